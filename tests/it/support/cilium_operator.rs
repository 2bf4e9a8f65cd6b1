//! The allocators of Cilium's operator, Cilium's own code, as a process.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;
use tokio::sync::watch;

use super::control_plane::tool;
use super::peer::{Heard, Peer};
use super::rig::Rig;

/// Its caches are those of a small cluster; the machine may be busy with other tests.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A running operator. Dropping it stops the operator.
pub(crate) struct CiliumOperator {
    peer: Peer,
}

impl CiliumOperator {
    /// Starts an operator that allocates for this mode, with these further flags of Cilium's, and returns when it runs.
    pub(crate) async fn start(rig: &Rig, ipam: &str, flags: &[&str]) -> Result<Self> {
        let families = rig.control_plane.options.families;
        let mut command = Command::new(tool("NODEIPAM_OPERATOR", "operator-1.20"));
        command.arg("--k8s-kubeconfig-path").arg(&rig.control_plane.admin_kubeconfig);
        command.arg("--ipam").arg(ipam);
        command.arg(format!("--enable-ipv4={}", families.ipv4()));
        command.arg(format!("--enable-ipv6={}", families.ipv6())).args(flags);
        let (said, mut saying) = watch::channel(false);
        let alarm = rig.control_plane.alarm.clone();
        let log = rig.control_plane.dir().join("operator.log");
        let peer = Peer::start("operator", command, &log, move |heard| match heard {
            Heard::Event(event) if event["event"] == "started" => drop(said.send_replace(true)),
            Heard::Event(_) => {}
            Heard::Ended => alarm.raise("the operator has ended by itself"),
        })?;
        let started = async {
            saying.wait_for(|started| *started).await.context("the operator ended as it started").map(drop)
        };
        match tokio::time::timeout(START_TIMEOUT, rig.control_plane.alarm.over(started)).await {
            Ok(started) => started?,
            Err(_) => bail!("the operator did not start in {START_TIMEOUT:?}"),
        }
        Ok(Self { peer })
    }

    /// Stops it, and returns when it has exited.
    pub(crate) async fn end(mut self) -> Result<()> {
        self.peer.kill().await
    }
}
