//! How blocks are taken off a CiliumNode whose agent runs: their CIDRs leave `allocated` in one write with a question
//! (`docs/cilium.md`, Mode multi-pool).
//!
//! The agent drops those of which nothing is in use as soon as it hears of that. It goes on with the others, but gives no
//! more of them to new pods, and its answer lists them again. Keeps one invariant: nothing leaves `allocated` without a
//! question that is later.

use std::collections::BTreeSet;

use crate::model::carrier::{Carrier, CarrierChange};
use crate::model::claim::Claim;
use crate::model::multi_pool::{Allocated, PoolsChange, PoolsFields, Question};
use crate::model::node::CiliumNode;
use crate::model::request::{Withdrawal, WithdrawalStep};
use crate::model::revision::Revision;
use crate::net::cidr::Cidr;
use crate::publisher::answer::Stays;

/// Why a block that is published can't be taken off; `Ok` if it can. Whether pods use it is not said here.
pub(super) fn may_leave(fields: &PoolsFields, claim: &Claim) -> Result<(), Stays> {
    if !listed(fields).any(|listed| listed == claim.cidr) {
        return Err(Stays::Incomplete);
    }
    if let Some((address, purpose)) = claim.cidr.entries_in(&fields.own).next() {
        return Err(Stays::AgentsOwn(*address, purpose));
    }
    Ok(())
}

/// Whether a question stands.
pub(super) fn is_asked(fields: &PoolsFields) -> bool {
    fields.requested.iter().any(|entry| entry.asked_as_of.is_some())
}

/// The question as of a revision; `None` while one stands.
pub(super) fn question(fields: &PoolsFields, as_of: Revision) -> Option<Question> {
    let others = fields.requested.iter().map(|entry| entry.entry.clone()).collect();
    (!is_asked(fields)).then_some(Question { others, as_of })
}

/// The write that takes blocks off and asks as of this revision; `None` where none of them is listed, or a question
/// stands. The entry of a name stays, be it without CIDRs: one that goes as a whole is written back as it was.
pub(super) fn take_off(cilium_node: &CiliumNode, blocks: &[Cidr], as_of: Revision) -> Option<Withdrawal> {
    let fields = &cilium_node.pools;
    // A hand may have listed one twice.
    let off: BTreeSet<Cidr> = listed(fields).filter(|listed| blocks.contains(listed)).collect();
    let off: Vec<Cidr> = off.into_iter().collect();
    let question = question(fields, as_of).filter(|_| !off.is_empty())?;
    let stays = |entry: &Allocated| {
        let cidrs = entry.cidrs.iter().copied().filter(|cidr| !off.contains(cidr));
        Allocated { cidrs: cidrs.collect(), ..entry.clone() }
    };
    let allocated = fields.allocated.iter().map(stays).collect();
    let carrier = Carrier::CiliumNode(cilium_node);
    Some(Withdrawal {
        node: carrier.name().clone(),
        uid: carrier.uid().clone(),
        revision: carrier.revision(),
        step: WithdrawalStep::TakeOff,
        blocks: off.clone(),
        change: CarrierChange::MultiPool(PoolsChange::TakeOff { off, allocated, question }),
    })
}

fn listed(fields: &PoolsFields) -> impl Iterator<Item = Cidr> + '_ {
    fields.allocated.iter().flat_map(|entry| &entry.cidrs).copied()
}
