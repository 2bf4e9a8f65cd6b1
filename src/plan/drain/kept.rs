//! Which draining blocks are kept after all. They are held again, and get their addresses back.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::address_class::AddressClass;
use crate::model::claim::Claim;
use crate::model::plan::TimedState;
use crate::model::pool::ReclaimMode;
use crate::model::request::Request;
use crate::model::transitions::Rule;
use crate::net::cidr::Cidr;
use crate::plan::claims::chosen;
use crate::plan::draft::Draft;
use crate::plan::subject::Subject;
use crate::publisher::answer::Drain;

/// The number of query intervals within which an agent must release the addresses of a block. It is asked again after
/// each, and the block is closed to pods meanwhile.
const ANSWERS_WITHIN: u32 = 10;

impl<'a> Subject<'a> {
    /// Keeps draining blocks that can't leave any more, and one that the node needs. This needs no read or query:
    /// holding a block again gives no address away.
    pub(in crate::plan) fn hold_draining_blocks_again(&self, draft: &mut Draft) -> Vec<Request> {
        let stays = self.draining().filter(|(claim, drain)| self.stays(claim, drain, draft));
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
        if self.traits.removes_with_query {
            // Its agent gives no more addresses of it to new pods, whether or not the claim is held again.
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

    /// Whether a draining block can't leave, or need not leave any more.
    fn stays(&self, claim: &Claim, drain: &Drain, draft: &Draft) -> bool {
        let must_leave = self.world.must_leave(claim);
        if matches!(drain, Drain::Stays(_)) {
            return true;
        }
        if self.traits.removes_with_query {
            return !must_leave || self.has_new_agent(claim);
        }
        let pool_reclaims =
            || self.world.pool(&claim.pool).is_some_and(|pool| pool.reclaim.mode == ReclaimMode::Enabled);
        if !must_leave && !pool_reclaims() {
            return true;
        }
        let is_down = self.world.agent_on(&self.node.name).is_err();
        // The version of an agent that does not run is unknown.
        let version_forbids = !is_down && !self.may_reclaim(draft.policy);
        let awaited = self.serving().and_then(|serving| serving.since(TimedState::AgentAwaited));
        let is_overdue =
            |since: Duration| since + draft.policy.query_interval * ANSWERS_WITHIN <= draft.now.uptime;
        // A mark that exists when an agent starts keeps a pod from being restored. No pod should have the address,
        // but nothing should rely on that for long.
        let is_marked_without_answer = *drain == Drain::Asked && (is_down || awaited.is_some_and(is_overdue));
        version_forbids || is_marked_without_answer
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
