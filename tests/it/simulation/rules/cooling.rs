//! How long the blocks of lost nodes cool, on the clock of the simulation. The clocks of the machines are wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use cilium_node_ipam::model::claim::{ClaimState, Reason};
use cilium_node_ipam::model::names::Uid;
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::model::request::{ClaimChange, Write};

use super::super::pools::REUSE_AFTER_NODE_LOSS;

/// The date of an answer is in whole seconds, and two processes are concerned: one that writes when a block starts to
/// cool, and one that compares.
const RESOLUTION: Duration = Duration::from_secs(2);

/// Since when the blocks of lost nodes cool, by the claim.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Coolings(BTreeMap<Uid, Duration>);

impl Coolings {
    /// Judges a write of a replica that was decided at `sent` and has changed the claim `before`: a block of a lost node is
    /// not free before it has cooled. One that another writer lets cool is not judged.
    pub(in super::super) fn judge(
        &mut self,
        write: &Write,
        before: &Object,
        sent: Duration,
        clock: Duration,
    ) -> Result<(), String> {
        let (Write::UpdateClaim(update), Object::Claim(claim)) = (write, before) else { return Ok(()) };
        match (&update.change, &claim.state) {
            (ClaimChange::Cool, ClaimState::Releasing(Reason::NodeGone)) => {
                // The object has this time, also if the write arrives late.
                self.0.insert(claim.uid.clone(), sent);
            }
            (ClaimChange::Delete, ClaimState::Cooling(Reason::NodeGone)) => {
                let Some(since) = self.0.get(&claim.uid) else { return Ok(()) };
                let cooled = clock.saturating_sub(*since);
                if cooled + RESOLUTION < REUSE_AFTER_NODE_LOSS {
                    return Err(format!("{} of lost {} cooled for {cooled:?} only", claim.cidr, claim.node));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
