//! Nodes that are left alone because another allocator gives them addresses, or has given them some.
//!
//! In crd mode the blocks of other writers stay on the carrier beside ours. In other modes a carrier has one writer.

use std::ops::ControlFlow;

use super::draft::{Draft, End, NEXT, Step};
use super::subject::Subject;
use crate::ledger::Occupant;
use crate::model::finding::Finding;
use crate::model::plan::Wait;
use crate::net::cidr::Cidr;

impl Subject<'_> {
    /// Why the node is left alone, if it is.
    pub(super) fn why_left_alone(&self) -> Option<Finding> {
        let is_claimed = |cidr: Cidr| self.is_claimed(cidr);
        self.publisher.why_left_alone(self.carrier, &is_claimed, &|cidr| self.why_unclaimable(cidr))
    }

    /// Whether a block is a claim of the node.
    pub(super) fn is_claimed(&self, cidr: Cidr) -> bool {
        self.world.claim(cidr).is_some_and(|known| known.claim.node == self.node.name)
    }

    /// Whether the carrier has a block that is no claim of the node.
    pub(super) fn has_unclaimed_block(&self) -> bool {
        self.publisher.blocks(self.carrier).into_iter().any(|cidr| !self.is_claimed(cidr))
    }

    /// Why a block of the carrier that is not a claim of the node can't become one. `None` if it can, now or when a
    /// request is answered.
    fn why_unclaimable(&self, cidr: Cidr) -> Option<String> {
        let is_in_the_way = |(_, occupant): &(Cidr, &Occupant)| match occupant {
            Occupant::Claim | Occupant::Unreadable(..) => true,
            Occupant::Carried(holder) => *holder != self.node.name,
            Occupant::Pending | Occupant::LostClaim(_) => false,
        };
        if let Some((other, occupant)) = self.world.ledger().overlapping(cidr).find(is_in_the_way) {
            let holder = self.world.claim(other).map(|known| format!(" of node {}", known.claim.node));
            let occupant = self.world.name_of(occupant);
            return Some(format!("overlaps {other} ({occupant}{})", holder.unwrap_or_default()));
        }
        self.world
            .pools_of_block(cidr)
            .next()
            .is_none()
            .then(|| "is not a block of a readable pool".to_owned())
    }

    /// Claims and publishes nothing for a node that another allocator serves.
    pub(super) fn leave_to_others(&self, draft: &mut Draft) -> Step {
        let Some(finding) = self.why_left_alone() else { return NEXT };
        draft.findings.retain(|found| found.kind != finding.kind);
        draft.findings.push(finding);
        ControlFlow::Break(End::Idle(Wait::OtherAllocator))
    }
}
