//! Which blocks carriers have carried, as this process has seen it.
//!
//! A process that has just started has seen nothing. So this tells a repair from growth in the log, and keeps a claim in its
//! state; others give way to it. What a carrier lists instead of a block tells every process, whatever it has seen.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::World;
use super::memory::TakenOff;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::names::NodeName;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::publisher;

impl World {
    /// Whether among the blocks that a carrier lists is a CIDR that somebody else may have put in the place of this claim's,
    /// of whatever family: he writes the whole list. One of ours he did not: it was written where nothing stood, and so nothing
    /// had been written before it. Nor does a list of ours lack a family: somebody took that off.
    #[must_use]
    pub fn may_have_been_replaced<'l>(
        &self,
        claim: &Claim,
        listed: impl FnOnce() -> Cow<'l, [Cidr]>,
    ) -> bool {
        if !self.reader.can_be_replaced() {
            return false;
        }
        let listed = listed();
        let is_ours = |cidr: Cidr| {
            let other = self.claim(cidr).map(|known| &known.claim);
            other.is_some_and(|other| other.node == claim.node && other.created_for == claim.created_for)
        };
        let has_family = listed.iter().any(|cidr| cidr.family() == claim.cidr.family());
        let is_as_written = listed.is_empty() || has_family && listed.iter().all(|cidr| is_ours(*cidr));
        !is_as_written
    }

    /// Whether the carrier of a claim's node carries its block, or has, as far as this process has seen. If it does no more,
    /// somebody may have taken the block off without asking the agent, which goes on with it. Addresses of other blocks of
    /// the node that were listed there do not count.
    #[must_use]
    pub fn has_carried(&self, claim: &Claim) -> bool {
        let Some(carrier) = self.carrier(&claim.node) else { return false };
        let taken_off = self.taken_off(carrier);
        let has_listed = |cidr: Cidr| {
            self.reader.carries(carrier, cidr) || taken_off.is_some_and(|seen| seen.listed.contains(&cidr))
        };
        has_listed(claim.cidr)
            || taken_off.is_some_and(|seen| {
                let mut addresses = seen.addresses.within(claim.cidr);
                for other in self.overlapping(claim).map(|known| &known.claim) {
                    if other.node == claim.node && has_listed(other.cidr) {
                        addresses.remove_cidr(other.cidr);
                    }
                }
                !addresses.is_empty()
            })
    }

    fn taken_off(&self, carrier: Carrier<'_>) -> Option<&TakenOff> {
        let taken_off = self.remembered.get(carrier.name())?.taken_off.as_ref();
        taken_off.filter(|taken_off| taken_off.carrier == *carrier.uid())
    }

    /// A carrier is there in another version than `before`, which was of the same object. Notes what is not on it any more.
    pub(super) fn note_taken_off(&mut self, before: Carrier<'_>) {
        let name = before.name();
        let Some(now) = self.carrier(name).filter(|now| now.uid() == before.uid()) else { return };
        let mut addresses = self.carried_by(before);
        addresses.remove_all(&self.carried_by(now));
        let mut listed: BTreeSet<Cidr> = self.reader.blocks(before).into_iter().collect();
        for cidr in self.reader.blocks(now) {
            listed.remove(&cidr);
        }
        let gone = TakenOff { carrier: before.uid().clone(), listed, addresses };
        if gone.is_empty() {
            return;
        }
        match &mut self.remember_of(name).taken_off {
            Some(taken_off) if taken_off.carrier == gone.carrier => taken_off.extend_with(gone),
            other => *other = Some(gone),
        }
    }

    /// Every address that a carrier carries.
    fn carried_by(&self, carrier: Carrier<'_>) -> AddressSet {
        match carrier {
            Carrier::CiliumNode(seen) => publisher::carried_by_cilium_node(seen),
            Carrier::Node(seen) => self.reader_of(&seen.name).carried_by_node(seen),
        }
    }

    /// A claim of this block of the node ended, on the proof that it is off.
    pub(super) fn forget_taken_off(&mut self, node: &NodeName, cidr: Cidr) {
        if let Some(remembered) = self.remembered.get_mut(node)
            && let Some(taken_off) = &mut remembered.taken_off
        {
            taken_off.forget(cidr);
            remembered.taken_off.take_if(|taken_off| taken_off.is_empty());
        }
    }
}
