//! What a pool may ask for and this version does not do yet: said in a condition instead of being ignored silently.

use crate::ipam::pool::{Pool, RangeState, ReclaimMode};

/// What the pool asks for in vain, one sentence each; empty when all of it is served.
///
/// TODO: goes when blocks are taken back. Until then nothing is lost by it: a block that is not taken back stays with
/// its node.
#[must_use]
pub fn not_yet_served(pool: &Pool) -> Vec<String> {
    let mut sentences = Vec::new();
    let draining: Vec<String> = pool
        .families
        .values()
        .flat_map(|ranges| &ranges.cidrs)
        .filter(|(_, state)| **state == RangeState::Draining)
        .map(|(cidr, _)| cidr.to_string())
        .collect();
    if !draining.is_empty() {
        sentences.push(format!(
            "state Draining acts as Cordoned: this version takes no blocks back ({})",
            draining.join(", ")
        ));
    }
    match pool.reclaim.mode {
        ReclaimMode::Enabled => {
            sentences.push("reclaim.mode Enabled acts as Disabled: this version takes no blocks back".into());
        }
        ReclaimMode::DryRun => {
            sentences.push(
                "reclaim.mode DryRun acts as Disabled: this version reports no blocks to take back".into(),
            );
        }
        ReclaimMode::Disabled => {}
    }
    sentences
}
