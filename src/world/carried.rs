//! Which blocks carriers have carried, as this process has seen it.
//!
//! A process that has just started has seen nothing. So this tells a repair from growth in the log, and keeps a claim from
//! moving; it never moves one. What a carrier lists instead of a block tells every process, whatever it has seen.

use std::borrow::Cow;

use super::memory::TakenOff;
use super::{KnownClaim, World};
use crate::model::claim::Claim;
use crate::model::names::NodeName;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

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

    /// Notes which claims of the node its carrier carries, for when somebody takes them off; and which it has carried before
    /// they were known.
    pub(super) fn note_carried(&mut self, node: &NodeName) {
        let Some(carrier) = self.carrier(node) else { return };
        let uid = carrier.uid().clone();
        let taken_off = self.remembered.get(node).and_then(|remembered| remembered.taken_off.as_ref());
        let taken_off = taken_off.filter(|taken_off| taken_off.carrier == uid);
        let was_carried =
            |cidr: Cidr| taken_off.is_some_and(|taken_off| taken_off.addresses.intersects(cidr));
        let is_news = |known: &&KnownClaim| {
            let cidr = known.claim.cidr;
            known.carried_by.as_ref() != Some(&uid)
                && (self.reader.carries(carrier, cidr) || was_carried(cidr))
        };
        let news: Vec<Cidr> = self.claims_of(node).filter(is_news).map(|known| known.claim.cidr).collect();
        for cidr in news {
            if let Some(known) = self.claims.get_mut(&cidr) {
                known.carried_by = Some(uid.clone());
            }
            let remembered = self.remembered.get_mut(node);
            if let Some(taken_off) = remembered.and_then(|remembered| remembered.taken_off.as_mut()) {
                // Another claim of the same block begins anew.
                taken_off.addresses.remove_cidr(cidr);
            }
        }
    }

    /// Its carrier carried these addresses outside its claims, and does no more: they may be of a claim that is not known yet.
    pub(super) fn note_taken_off(&mut self, node: &NodeName, gone: AddressSet) {
        let Some(uid) = self.carrier(node).map(|carrier| carrier.uid().clone()) else { return };
        if gone.is_empty() {
            return;
        }
        match &mut self.remember_of(node).taken_off {
            Some(before) if before.carrier == uid => before.addresses.extend_with(&gone),
            other => *other = Some(TakenOff { carrier: uid, addresses: gone }),
        }
    }
}
