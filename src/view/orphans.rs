//! CiliumNodes whose Nodes were deleted: they keep their blocks from other nodes, because their agents may still use
//! them.
//!
//! All of them are one finding, with the command that frees the blocks. Knows no other reason why a pool is full.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::claim::Claim;
use crate::model::counted::counted;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, by_number, ten_of};
use crate::model::plan::TimedState;
use crate::model::time::Now;
use crate::world::World;

/// For how long a CiliumNode may keep blocks after its Node was deleted. The garbage collection of the cluster deletes
/// it, or that of cilium-operator, which runs every 5 m by default (`--nodes-gc-interval`).
const MAY_OUTLIVE_FOR: Duration = Duration::from_secs(10 * 60);
/// The same where a pool of its blocks has no free block.
const MAY_KEEP_POOL_FULL_FOR: Duration = Duration::from_secs(60);
/// How many names the command has. After it the finding has the next ones.
const MAX_NAMED: usize = 10;

/// The times at which a CiliumNode may become part of the finding, after its Node was deleted.
pub const DUE_AFTER: [Duration; 2] = [MAY_KEEP_POOL_FULL_FOR, MAY_OUTLIVE_FOR];

/// The finding about all of them. It has the name of the first. Costs a pass over the claims.
#[must_use]
pub fn finding(world: &World, now: Now) -> Option<Finding> {
    let mut kept = BTreeMap::<&NodeName, (usize, bool)>::new();
    for claim in world.claims().map(|known| &known.claim) {
        if is_orphaned(world, &claim.node) {
            let (n_blocks, keeps_full) = kept.entry(&claim.node).or_default();
            *n_blocks += 1;
            *keeps_full |= is_of_full_pool(world, claim);
        }
    }
    kept.retain(|node, (_, keeps_full)| {
        let may_for = if *keeps_full { MAY_KEEP_POOL_FULL_FOR } else { MAY_OUTLIVE_FOR };
        let since = world.serving(node).and_then(|serving| serving.since(TimedState::Orphaned));
        since.is_some_and(|since| since + may_for <= now.uptime)
    });
    let n_blocks: usize = kept.values().map(|(n_blocks, _)| n_blocks).sum();
    let mut names: Vec<&str> = kept.keys().map(|node| node.as_str()).collect();
    names.sort_by(|one, other| by_number(one, other));
    let message = format!(
        "{} of deleted Nodes, with {} that other nodes can't get: {}; once their machines are off: kubectl delete ciliumnode {}",
        counted(kept.len(), "CiliumNode"),
        counted(n_blocks, "block"),
        ten_of(&names),
        names[..names.len().min(MAX_NAMED)].join(" ")
    );
    let (first, _) = kept.first_key_value()?;
    Some(Finding::new(FindingKind::NodeMissing, Kind::CiliumNode, first.as_str(), message))
}

fn is_orphaned(world: &World, node: &NodeName) -> bool {
    world.cilium_node(node).is_some() && !world.has_node(node)
}

fn is_of_full_pool(world: &World, claim: &Claim) -> bool {
    let family = claim.cidr.family();
    let gives_out = world.pool(&claim.pool).is_some_and(|pool| world.gives_out_of(pool, family));
    gives_out && !world.ledger().has_free(&claim.pool, family)
}
