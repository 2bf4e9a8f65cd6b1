//! Claims of nodes with one block for life whose agents use another CIDR: another writer was faster, or changed them, or
//! the mode was crd before, in which nodes have several blocks.
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
        "{} of nodes whose agents use another CIDR of the family ({}): after a change from crd mode, pods of these blocks \
         have lost their network; the blocks stay with the nodes; to free them, drain the nodes, turn their machines off, and delete their Nodes\
         {} for reuseAfterNodeLoss of their pools",
        counted(names.len(), "claim"),
        ten_of(&names),
        if world.reader().traits().carrier == Kind::CiliumNode { " and CiliumNodes" } else { "" },
    );
    Some(Finding::new(FindingKind::LeftOverClaims, Kind::Claim, names.first()?, message))
}

fn is_left_over(world: &World, claim: &Claim) -> bool {
    let reader = world.reader_of(&claim.node);
    if !reader.traits().gives_one_block
        || claim.state != ClaimState::Held
        || world.node(&claim.node).is_none()
    {
        return false;
    }
    let blocks = world.carrier(&claim.node).map(|carrier| reader.blocks(carrier)).unwrap_or_default();
    // Agents use the first CIDR of a family.
    let used = blocks.iter().find(|block| block.family() == claim.cidr.family());
    !blocks.is_empty() && used != Some(&claim.cidr)
}
