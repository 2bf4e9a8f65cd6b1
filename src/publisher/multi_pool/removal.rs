//! How blocks are removed from a CiliumNode whose agent runs. One write removes their CIDRs from `allocated` and adds
//! a usage query (`docs/cilium.md`, Mode multi-pool).
//!
//! As soon as the agent sees that, it drops the unused CIDRs. It keeps the others, but gives no more of them to new
//! pods, and its answer lists them again. Keeps one invariant: nothing leaves `allocated` without a later query.

use std::collections::BTreeSet;

use crate::model::carrier::CarrierChange;
use crate::model::claim::Claim;
use crate::model::multi_pool::{Allocated, PoolsChange, PoolsFields, Question};
use crate::model::node::CiliumNode;
use crate::model::request::{Withdrawal, WithdrawalStep};
use crate::model::revision::Revision;
use crate::net::cidr::Cidr;
use crate::publisher::answer::Stays;

/// Why a published block can't be removed; `Ok` if it can. Does not consider whether pods use it.
pub(super) fn may_leave(fields: &PoolsFields, claim: &Claim) -> Result<(), Stays> {
    if !fields.listed().any(|listed| listed == claim.cidr) {
        return Err(Stays::Incomplete);
    }
    if let Some((address, purpose)) = fields.own.entries_in(claim.cidr).next() {
        return Err(Stays::AgentsOwn(address, purpose));
    }
    Ok(())
}

/// Whether there is an open query.
pub(super) fn has_open_query(fields: &PoolsFields) -> bool {
    fields.requested.iter().any(|entry| entry.asked_as_of.is_some())
}

/// The query of a revision; `None` while one is open.
pub(super) fn query(fields: &PoolsFields, as_of: Revision) -> Option<Question> {
    let others = fields.requested.iter().map(|entry| entry.entry.clone()).collect();
    (!has_open_query(fields)).then_some(Question { others, as_of })
}

/// The write that removes blocks and adds the query of this revision. `None` if none of them is listed, or a query is
/// open. The entry of a name stays, even without CIDRs: the agent writes back a removed entry as it was.
pub(super) fn removal(cilium_node: &CiliumNode, blocks: &[Cidr], as_of: Revision) -> Option<Withdrawal> {
    let fields = &cilium_node.pools;
    // Another writer may have listed one twice.
    let off: BTreeSet<Cidr> = fields.listed().filter(|listed| blocks.contains(listed)).collect();
    let off: Vec<Cidr> = off.into_iter().collect();
    let question = query(fields, as_of).filter(|_| !off.is_empty())?;
    let stays = |entry: &Allocated| {
        let cidrs = entry.cidrs.iter().copied().filter(|cidr| !off.contains(cidr));
        Allocated { cidrs: cidrs.collect(), ..entry.clone() }
    };
    let allocated = fields.allocated.iter().map(stays).collect();
    Some(Withdrawal {
        node: cilium_node.name.clone(),
        uid: cilium_node.uid.clone(),
        revision: cilium_node.revision.into(),
        step: WithdrawalStep::Remove,
        blocks: off.clone(),
        change: CarrierChange::MultiPool(PoolsChange::Remove { off, allocated, question }),
    })
}
