//! Claims of nodes with one block for life that got other CIDRs: another writer was faster, or changed them.
//!
//! Such a claim counts as in use as long as its node exists, because nothing shows that its agent does not have the
//! block. All of them are one finding.

use crate::model::claim::{Claim, ClaimState, block_name};
use crate::model::counted::counted;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::names::ten_of;
use crate::world::World;

/// The finding about all of them. It has the name of the first. Costs a pass over the claims.
pub(super) fn finding(world: &World) -> Option<Finding> {
    let left_over = world.claims().map(|known| &known.claim).filter(|claim| is_left_over(world, claim));
    let names: Vec<String> = left_over.map(|claim| block_name(claim.cidr)).collect();
    let message = format!(
        "{} of nodes that have other CIDRs ({}): the blocks stay with these nodes, because their agents may have started \
         with them; to free them, drain the nodes, and delete their Nodes and CiliumNodes for reuseAfterNodeLoss of \
         their pools",
        counted(names.len(), "claim"),
        ten_of(&names),
    );
    Some(Finding::new(FindingKind::LeftOverClaims, Kind::Claim, names.first()?, message))
}

fn is_left_over(world: &World, claim: &Claim) -> bool {
    let reader = world.reader_of(&claim.node);
    reader.gives_one_block()
        && claim.state == ClaimState::Held
        && world.node(&claim.node).is_some()
        && world
            .carrier(&claim.node)
            .is_some_and(|carrier| !reader.blocks(carrier).is_empty() && !reader.carries(carrier, claim.cidr))
}
