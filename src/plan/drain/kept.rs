//! Which draining blocks are kept after all. They are held again, and get their addresses back: a held block is
//! published without its fence (`src/publisher/crd/projection.rs`).

use std::collections::BTreeSet;

use crate::model::address_class::AddressClass;
use crate::model::claim::Claim;
use crate::model::request::Request;
use crate::model::transitions::Rule;
use crate::net::cidr::Cidr;
use crate::plan::claims::chosen;
use crate::plan::draft::Draft;
use crate::plan::subject::Subject;
use crate::publisher::answer::Drain;

impl<'a> Subject<'a> {
    /// Keeps draining blocks that can't leave any more, and one that the node needs. This needs no read or query:
    /// holding a block again gives no address away.
    pub(in crate::plan) fn hold_draining_blocks_again(&self, draft: &mut Draft) -> Vec<Request> {
        let stays = self.draining().filter(|(claim, drain)| {
            matches!(drain, Drain::Stays(_)) || self.way().stays(self, claim, drain, draft)
        });
        let mut kept: BTreeSet<Cidr> = stays.map(|(claim, _)| claim.cidr).collect();
        for class in self.classes() {
            // A block that must leave is replaced first (`Subject::claim_replacements`).
            let needed = self.needed(class).filter(|claim| !self.world.must_leave(claim));
            kept.extend(needed.map(|claim| claim.cidr));
        }
        self.keep(draft, kept)
    }

    /// Keeps one block of each class in which the node needs addresses that its pools can't give.
    pub(in crate::plan) fn keep_irreplaceable_blocks(&self, draft: &mut Draft) -> Vec<Request> {
        if !self.way().opens_held_blocks() {
            return Vec::new();
        }
        let kept = draft.unmet.iter().filter_map(|unmet| self.needed(unmet.class()));
        let kept = kept.map(|claim| claim.cidr).collect();
        self.keep(draft, kept)
    }

    fn keep(&self, draft: &mut Draft, kept: BTreeSet<Cidr>) -> Vec<Request> {
        let claims = kept.into_iter().filter_map(|cidr| self.world.claim(cidr));
        chosen(Rule::DrainEnds, claims.map(|known| &known.claim), self, draft)
    }

    /// The block that a node gets back because the remaining blocks do not suffice. It is the most used one, which
    /// would become empty last.
    fn needed(&self, class: &AddressClass) -> Option<&'a Claim> {
        if self.can_do_without(class, &BTreeSet::new()) {
            return None;
        }
        let draining = self.draining().map(|(claim, _)| claim).filter(|claim| self.is_of(claim, class));
        draining.max_by_key(|claim| (self.publisher.n_used_in(self.carrier, claim.cidr), claim.cidr))
    }
}
