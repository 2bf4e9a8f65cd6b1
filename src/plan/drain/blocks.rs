//! How blocks leave in the mode whose agents take blocks as a whole. A block that must leave is removed from its
//! carrier together with a usage query. Before that, no pod may be known to have an address of it, and the node must
//! have enough without it.
//!
//! The answer of the agent decides. Either it confirms that the block is absent, or it lists the block again because
//! something uses it. Then the claim drains, and its block counts as no capacity, because the agent gives no more of
//! it to new pods. The block is removed again later.
//!
//! Keeps one invariant: no block is free before an answer without it. After that answer, a read of the node's Pods
//! must find none with an address of it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use super::way::{TURN, Way};
use crate::model::address_class::AddressClass;
use crate::model::agent::PodSnapshot;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::transitions::Rule;
use crate::net::cidr::Cidr;
use crate::plan::claims::chosen;
use crate::plan::draft::{Draft, End, NEXT, REST, Step, act};
use crate::plan::facts::ClaimFacts;
use crate::plan::pods::{LOOK_AGAIN, PODS_AGAIN, holders};
use crate::plan::subject::Subject;
use crate::publisher::answer::{Drain, Phase};
use crate::world::RunningAgent;

/// How long a read of a node's Pods counts that found no pod with an address of a block. The next pod may get one.
const LOOK_COUNTS_FOR: Duration = Duration::from_secs(5);

/// Agents take and release blocks as a whole.
pub(super) struct AsWhole;

impl Way for AsWhole {
    /// An agent that releases every block that it does not need gets no replacement in advance
    /// (`Subject::remove_blocks`).
    fn claim_replacements(&self, _: &Subject<'_>, _: &mut Draft) -> Step {
        NEXT
    }

    fn reclaim(&self, subject: &Subject<'_>, draft: &mut Draft) -> Step {
        subject.remove_blocks(draft)
    }

    fn stays(&self, subject: &Subject<'_>, claim: &Claim, _: &Drain, _: &Draft) -> bool {
        !subject.world.must_leave(claim) || subject.has_new_agent(claim)
    }

    /// The agent gives no more addresses of it to new pods, whether or not the claim is held again.
    fn opens_held_blocks(&self) -> bool {
        false
    }

    fn why_held(&self, subject: &Subject<'_>, claim: &Claim) -> Option<String> {
        holders(subject.world, claim).map(|pods| format!("these pods have addresses of it: {pods}"))
    }

    fn why_draining(&self, subject: &Subject<'_>, claim: &Claim, _: &Drain) -> Option<String> {
        let why = "the agent still uses it and kept it; it takes no new pods";
        Some(self.why_held(subject, claim).map_or_else(|| why.to_owned(), |pods| format!("{why}; {pods}")))
    }

    fn how_surplus_returns(&self) -> &'static str {
        "a block returns to its pool when the agent does not need it"
    }

    fn imminent_removals(&self, subject: &Subject<'_>, draft: &Draft) -> BTreeSet<Cidr> {
        let may_remove = !subject.stops_reclaim()
            && subject.may_reclaim(draft.policy)
            && subject.world.agent_on(&subject.node.name).is_ok()
            && subject.drains_paused_until(draft).is_none();
        let look = subject.world.look(&subject.node.name).filter(|_| may_remove);
        let Some(pods) = look.and_then(|look| look.found.as_ref().ok()) else { return BTreeSet::new() };
        let unused: Vec<&Claim> = subject
            .removal_candidates()
            .filter(|claim| claim.state == ClaimState::Held)
            .filter(|claim| subject.publisher.may_leave(subject.carrier, claim).is_ok())
            .filter(|claim| !pods.use_any_of(claim.cidr))
            .collect();
        let classes = subject.classes();
        let dispensable = classes.iter().flat_map(|class| subject.dispensable(class, &unused));
        dispensable.map(|claim| claim.cidr).collect()
    }

    /// Held blocks that are published in the same write that removes others. An agent that had both would release the
    /// surplus.
    fn replacement_blocks(&self, subject: &Subject<'_>, imminent: &BTreeSet<Cidr>) -> BTreeSet<Cidr> {
        let mut replacements = BTreeSet::new();
        let is_removed = |claim: &&Claim| {
            imminent.contains(&claim.cidr) || (claim.is_reclaimed() && !subject.world.is_refused(claim))
        };
        let removed: Vec<&Claim> = subject.removal_candidates().filter(is_removed).collect();
        if removed.is_empty() {
            return replacements;
        }
        for class in subject.classes() {
            // The carrier shows these too, until they have left it.
            let released = |claim: &&Claim| claim.is_reclaimed() && subject.is_of(claim, class);
            let released = removed.iter().copied().filter(released);
            replacements
                .extend(subject.unneeded(class, |_| true, released).into_iter().map(|claim| claim.cidr));
        }
        replacements
    }
}

impl<'a> Subject<'a> {
    /// Removes blocks that must leave from the carrier, as far as the node can do without them. First the node has
    /// enough without the blocks, then no replica may publish them, and only then they leave the carrier.
    fn remove_blocks(&self, draft: &mut Draft) -> Step {
        let carried: Vec<&Claim> = self.removal_candidates().collect();
        if carried.is_empty() {
            return NEXT;
        }
        self.drain_again(draft, carried.iter().copied().filter(|claim| self.world.is_refused(claim)))?;
        // The answer to an open query comes first.
        if self.publisher.has_open_removal_query(self.carrier) {
            return REST;
        }
        let (can_leave, stay): (Vec<&Claim>, Vec<&Claim>) =
            carried.into_iter().partition(|claim| self.publisher.may_leave(self.carrier, claim).is_ok());
        let agent = self.world.agent_on(&self.node.name).ok();
        let Some(agent) = agent.filter(|_| self.may_reclaim(draft.policy) && !self.was_kept_recently(draft))
        else {
            return self.rehold_needed_blocks(draft, &[can_leave, stay].concat());
        };
        self.rehold_needed_blocks(draft, &stay)?;
        if can_leave.is_empty() || self.is_too_soon(draft) {
            return REST;
        }
        let unused = self.without_pods(draft, can_leave, agent)?;
        let dispensable = self.choose_dispensable(draft, &unused)?;
        // A pool that has a replacement would have given it.
        let is_needed = |claim: &&Claim| claim.is_reclaimed() && !dispensable.contains(claim);
        act(chosen(Rule::NeededAgain, unused.iter().copied().filter(is_needed), self, draft))?;
        self.release_claims(draft, &dispensable)?;
        self.remove_released(draft, &dispensable)
    }

    /// Claims that were released, so that no replica may publish them, drain again: the agent keeps their blocks.
    fn drain_again<'c>(&self, draft: &mut Draft, claims: impl Iterator<Item = &'c Claim>) -> Step {
        act(chosen(Rule::Refused, claims.filter(|claim| claim.is_reclaimed()), self, draft))
    }

    /// The blocks of these in which no pod of the node has an address. This is unknown while a pod is starting.
    fn without_pods(
        &self,
        draft: &mut Draft,
        blocks: Vec<&'a Claim>,
        agent: RunningAgent<'_>,
    ) -> Step<Vec<&'a Claim>> {
        if self.next_read_of_pods(&blocks).is_some_and(|next| draft.waits_until(next)) {
            return ControlFlow::Break(End::Rests);
        }
        let now = draft.now.uptime;
        let counts = |look: &PodSnapshot| look.at + LOOK_COUNTS_FOR > now;
        let Some(pods) = self.look_beside(draft, agent, counts)? else {
            return ControlFlow::Break(End::Rests);
        };
        if pods.n_starting > 0 {
            draft.wake_at(now + LOOK_AGAIN);
            return ControlFlow::Break(End::Rests);
        }
        let is_used = |claim: &&Claim| pods.use_any_of(claim.cidr);
        let (used, unused): (Vec<&Claim>, Vec<&Claim>) = blocks.into_iter().partition(is_used);
        // Another replica or writer may have removed it, and its agent may have refused. This process did not see
        // that.
        self.drain_again(draft, used.into_iter())?;
        ControlFlow::Continue(unused)
    }

    /// Holds released claims of these again if the node has come to need their blocks. Nothing removes the blocks for
    /// now.
    fn rehold_needed_blocks(&self, draft: &mut Draft, blocks: &[&'a Claim]) -> Step {
        if !blocks.iter().any(|claim| claim.is_reclaimed()) {
            return NEXT;
        }
        let mut needed = Vec::new();
        for class in self.classes() {
            let released = |claim: &&Claim| claim.is_reclaimed() && self.is_of(claim, class);
            let of_class: Vec<&Claim> = blocks.iter().copied().filter(released).collect();
            let dispensable = self.dispensable(class, &of_class);
            needed.extend(of_class.into_iter().filter(|claim| !dispensable.contains(claim)));
        }
        act(chosen(Rule::NeededAgain, needed, self, draft))
    }

    /// The blocks of these that the node can do without. For the others it claims replacements first, if its pools
    /// have enough.
    fn choose_dispensable(&self, draft: &mut Draft, blocks: &[&'a Claim]) -> Step<Vec<&'a Claim>> {
        let (mut chosen, mut claims) = (Vec::new(), Vec::new());
        for class in self.classes() {
            let dispensable = self.dispensable(class, blocks);
            let of_class = blocks.iter().filter(|claim| self.is_of(claim, class));
            let needed = of_class.filter(|claim| !dispensable.contains(claim));
            let needed: Vec<Cidr> = needed.map(|claim| claim.cidr).collect();
            if !needed.is_empty() {
                let gone = dispensable.iter().map(|claim| claim.cidr);
                let gone: BTreeSet<Cidr> = gone.chain(self.absent_from_carrier(class)).collect();
                let mut sets = std::iter::once(&needed[..]).chain(needed.chunks(1));
                let replacements = sets.find_map(|more| {
                    let leaving: BTreeSet<Cidr> = gone.iter().chain(more).copied().collect();
                    self.claim_all_replacements(draft, class, &leaving, Phase::Served)
                });
                claims.extend(replacements.unwrap_or_default());
            }
            chosen.extend(dispensable);
        }
        act(claims)?;
        ControlFlow::Continue(chosen)
    }

    /// Releases claims, so that no replica may publish their blocks any more, as many as the limit per minute allows.
    fn release_claims(&self, draft: &mut Draft, dispensable: &[&Claim]) -> Step {
        let mut started: Vec<&Claim> =
            dispensable.iter().copied().filter(|claim| !claim.is_reclaimed()).collect();
        let n_more =
            draft.policy.reclaim.per_minute.saturating_sub(self.world.n_starts_of_reclaim(draft.now.uptime));
        if n_more < started.len() {
            draft.wake_at(draft.now.uptime + TURN);
            started.truncate(n_more);
        }
        act(chosen(Rule::RemovalStarts, started, self, draft))
    }

    /// Removes the blocks of released claims from the carrier, and publishes others in their place.
    fn remove_released(&self, draft: &mut Draft, dispensable: &[&Claim]) -> Step {
        let released: Vec<&Claim> =
            dispensable.iter().copied().filter(|claim| claim.is_reclaimed()).collect();
        let Some(as_of) = released.iter().map(|claim| claim.revision).max() else { return NEXT };
        let mut blocks: Vec<Cidr> = released.iter().map(|claim| claim.cidr).collect();
        let claims = self.publishable();
        let Some(write) = self.publisher.removal(self.carrier, &blocks, &claims, as_of) else { return REST };
        blocks.extend(claims.iter().map(|claim| claim.cidr));
        self.send_withdrawal(draft, write, &blocks)
    }

    /// As many of these blocks of a class as the node can do without, with the blocks that it holds now.
    fn dispensable(&self, class: &AddressClass, blocks: &[&'a Claim]) -> Vec<&'a Claim> {
        let of_class: Vec<&Claim> = blocks.iter().copied().filter(|claim| self.is_of(claim, class)).collect();
        self.dispensable_of(class, &of_class, self.absent_from_carrier(class).collect())
    }

    /// The held blocks of a class that must leave and that the carrier does not show. They replace nothing.
    fn absent_from_carrier(&self, class: &AddressClass) -> impl Iterator<Item = Cidr> + 'a {
        let must_leave: Vec<&Claim> = self.held_that_must_leave(class).collect();
        let (publisher, carrier) = (self.publisher, self.carrier);
        must_leave.into_iter().map(|claim| claim.cidr).filter(move |cidr| !publisher.lists(carrier, *cidr))
    }

    /// The blocks on the carrier that must leave: held, refused, or about to be removed.
    fn removal_candidates(&self) -> impl Iterator<Item = &'a Claim> {
        let can_move = |facts: &&ClaimFacts<'_>| match &facts.claim.state {
            ClaimState::Held | ClaimState::Releasing(Reason::Reclaimed) => true,
            ClaimState::Draining(_) => facts.drain.is_some(),
            ClaimState::Releasing(_) | ClaimState::Cooling(_) => false,
        };
        let must_leave = self.facts.claims.iter().filter(|facts| facts.must_leave).filter(can_move);
        let claims = must_leave.map(|facts| facts.claim);
        claims.filter(|claim| self.publisher.lists(self.carrier, claim.cidr))
    }

    /// The time of the next read of the Pods that keep all of these blocks. `None` if no read has shown that, or if
    /// one of the blocks is not kept.
    fn next_read_of_pods(&self, blocks: &[&Claim]) -> Option<Duration> {
        let look = self.world.look(&self.node.name)?;
        let pods = look.found.as_ref().ok()?;
        let are_kept = blocks.iter().all(|claim| pods.use_any_of(claim.cidr) && !claim.is_reclaimed());
        are_kept.then_some(look.at + PODS_AGAIN)
    }

    /// Whether the agent of the node started after its predecessor had refused to release a block. The new agent
    /// gives addresses of the block to new pods again. A clock difference only makes this appear late or too early,
    /// and then the next refusal corrects it.
    fn has_new_agent(&self, claim: &Claim) -> bool {
        self.world.agent_on(&self.node.name).is_ok_and(|agent| agent.started.at > claim.since)
    }
}
