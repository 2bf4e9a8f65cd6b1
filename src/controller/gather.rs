//! The start: collects a list of each kind and Cilium's mode into the first [`World`].
//!
//! Knows no policy. Keeps one invariant: Nodes and CiliumNodes are listed after claims (safety rule 6).

use tokio::sync::mpsc;

use super::input::Input;
use super::tasks::{Tasks, ended};
use super::watch::Watches;
use crate::model::observation::{Kind, Observation};
use crate::telemetry::readiness::Readiness;
use crate::telemetry::{Telemetry, heartbeat};
use crate::wire::watched::{CiliumNodes, Nodes};
use crate::world::World;
use crate::world::gather::Gathering;

/// Takes in lists until the world is whole. CiliumNodes are listed after claims (safety rule 6), so that a block that
/// was claimed and published in between is seen at least once; Nodes too, so that what is known of them is not older
/// than any claim of the first list. `None` when told to stop.
pub(super) async fn gather(
    inputs: &mut mpsc::Receiver<Input>,
    tasks: &mut Tasks,
    watches: &Watches,
    telemetry: &Telemetry,
) -> anyhow::Result<Option<World>> {
    let mut gathering = Gathering::default();
    let mut has_listed_claims = false;
    let mut beats = tokio::time::interval(heartbeat::INTERVAL);
    loop {
        telemetry.heartbeat.beat();
        let missing: Vec<&str> = gathering.missing().into_iter().map(Kind::as_str).collect();
        let why = if missing.is_empty() {
            "Cilium's configuration is not known yet".to_owned()
        } else {
            format!("lists still missing: {}", missing.join(", "))
        };
        telemetry.set_readiness(Readiness::NotReady(why));
        let input = tokio::select! {
            biased;
            () = watches.stop.cancelled() => return Ok(None),
            (name, end) = tasks.next_end() => return Err(ended(name, end)),
            input = inputs.recv() => input,
            _ = beats.tick() => continue,
        };
        match input {
            Some(Input::Observed(observation)) => {
                if matches!(&observation, Observation::Listed(listing) if listing.kind == Kind::Claim)
                    && !has_listed_claims
                {
                    has_listed_claims = true;
                    tasks.spawn("watch nodes", watches.clone().follow::<Nodes>());
                    tasks.spawn("watch ciliumnodes", watches.clone().follow::<CiliumNodes>());
                }
                gathering.observe(observation);
            }
            Some(Input::Mode(mode)) => gathering.set_mode(mode),
            // Nothing has been written yet, and the sender lives as long as `watches`.
            Some(Input::Finished(_)) | None => {}
        }
        match gathering.complete() {
            Ok(world) => return Ok(Some(world)),
            Err(incomplete) => gathering = incomplete,
        }
    }
}
