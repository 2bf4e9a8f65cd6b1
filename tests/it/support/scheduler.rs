//! The real kube-scheduler, as a process.

use anyhow::Result;
use tokio::process::Command;

use super::control_plane::control_plane_program;
use super::peer::{Heard, Peer};
use super::rig::Rig;

/// A running scheduler. Dropping it stops the scheduler.
pub(crate) struct Scheduler {
    _peer: Peer,
}

impl Scheduler {
    /// Starts a scheduler with the administrator's rights. It binds pods as soon as its caches are filled.
    pub(crate) fn start(rig: &Rig) -> Result<Self> {
        let mut command = Command::new(control_plane_program());
        command.arg("scheduler").arg("--kubeconfig").arg(&rig.control_plane.admin_kubeconfig);
        let alarm = rig.control_plane.alarm.clone();
        let log = rig.control_plane.dir().join("scheduler.log");
        let peer = Peer::start("scheduler", command, &log, move |heard| match heard {
            Heard::Event(_) => {}
            Heard::Ended => alarm.raise("the scheduler has ended by itself"),
        })?;
        Ok(Self { _peer: peer })
    }
}
