//! How a block leaves in the mode whose agents give back single addresses: the block is fenced, its agent releases
//! each address, and then the controller removes them (`docs/invariants.md`, Taking a block back).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use super::way::{TURN, Way};
use crate::model::agent::PodsOnNode;
use crate::model::claim::Claim;
use crate::model::counted::counted;
use crate::model::names::ten_of;
use crate::model::plan::TimedState;
use crate::model::pool::ReclaimMode;
use crate::model::request::{Read, WithdrawalStep};
use crate::model::transitions::Rule;
use crate::net::cidr::Cidr;
use crate::plan::claims::chosen;
use crate::plan::draft::{Draft, NEXT, REST, Step, act, act_now};
use crate::plan::facts::ClaimFacts;
use crate::plan::subject::Subject;
use crate::publisher::answer::{Drain, Leaving, QueryState};

/// How often the Pods are read that keep a block in use.
const USERS_READ_EVERY: Duration = Duration::from_secs(5 * 60);

/// The number of query intervals within which an agent must release the addresses of a block. It is asked again after
/// each, and the block is closed to pods meanwhile.
const ANSWERS_WITHIN: u32 = 10;

/// Agents give back single addresses.
pub(super) struct ByAddress;

impl Way for ByAddress {
    /// The node must have the replacements before the first of its blocks is closed to new pods.
    fn claim_replacements(&self, subject: &Subject<'_>, draft: &mut Draft) -> Step {
        subject.claim_replacements(draft)
    }

    fn reclaim(&self, subject: &Subject<'_>, draft: &mut Draft) -> Step {
        subject.drain_addresses(draft)?;
        subject.start_drains(draft)
    }

    fn stays(&self, subject: &Subject<'_>, claim: &Claim, drain: &Drain, draft: &Draft) -> bool {
        let pool_reclaims =
            || subject.world.pool(&claim.pool).is_some_and(|pool| pool.reclaim.mode == ReclaimMode::Enabled);
        if !subject.world.must_leave(claim) && !pool_reclaims() {
            return true;
        }
        let is_down = subject.world.agent_on(&subject.node.name).is_err();
        // The version of an agent that does not run is unknown.
        let version_forbids = !is_down && !subject.may_reclaim(draft.policy);
        let awaited = subject.serving().and_then(|serving| serving.since(TimedState::AgentAwaited));
        let is_overdue =
            |since: Duration| since + draft.policy.query_interval * ANSWERS_WITHIN <= draft.now.uptime;
        // A mark that exists when an agent starts keeps a pod from being restored. No pod should have the address,
        // but nothing should rely on that for long.
        let is_marked_without_answer = *drain == Drain::Asked && (is_down || awaited.is_some_and(is_overdue));
        version_forbids || is_marked_without_answer
    }

    fn opens_held_blocks(&self) -> bool {
        true
    }

    fn why_held(&self, _: &Subject<'_>, _: &Claim) -> Option<String> {
        None
    }

    fn why_draining(&self, subject: &Subject<'_>, claim: &Claim, drain: &Drain) -> Option<String> {
        let Drain::Closed(used) = drain else { return None };
        subject.users_of(claim, used.len())
    }

    fn how_surplus_returns(&self) -> &'static str {
        "with `reclaim.mode: Enabled` of its pool a block returns when the node does not need it"
    }

    fn imminent_removals(&self, _: &Subject<'_>, _: &Draft) -> BTreeSet<Cidr> {
        BTreeSet::new()
    }

    fn replacement_blocks(&self, _: &Subject<'_>, _: &BTreeSet<Cidr>) -> BTreeSet<Cidr> {
        BTreeSet::new()
    }
}

impl<'a> Subject<'a> {
    /// Continues with the blocks that leave already.
    fn drain_addresses(&self, draft: &mut Draft) -> Step {
        if matches!(self.publisher.usage_query(self.carrier), QueryState::Open(_)) {
            draft.note_lasting(TimedState::QueryOpen);
        }
        self.continue_released(draft)?;
        self.continue_draining(draft)
    }

    /// Release marks in blocks that stay are from an earlier attempt or from another controller. While a mark exists,
    /// no pod gets its address, and only this controller removes it (`docs/cilium.md`, Release handshake).
    pub(super) fn clear_stale_marks(&self, draft: &mut Draft) -> Step {
        let stays =
            |facts: &&ClaimFacts<'_>| facts.is_publishable() || facts.leaving == Some(Leaving::LeftOver);
        let claims = self.facts.claims.iter().filter(stays).map(|facts| facts.claim.cidr);
        let stale: Vec<Cidr> =
            claims.filter(|cidr| self.publisher.has_stale_marks(self.carrier, *cidr)).collect();
        self.withdraw(draft, WithdrawalStep::Clear, &stale)
    }

    /// Continues with blocks that their agent has released. The controller confirms the release to the agent and
    /// removes the blocks; then the agent acknowledges the removal.
    fn continue_released(&self, draft: &mut Draft) -> Step {
        let (mut consented, mut can_go, mut confirmed) = (Vec::new(), Vec::new(), false);
        for facts in &self.facts.claims {
            match facts.leaving {
                Some(Leaving::Consented) => consented.push(facts.claim.cidr),
                Some(Leaving::Removable) => can_go.push(facts.claim.cidr),
                Some(Leaving::Confirmed) => confirmed = true,
                // The table of claims continues with these. Marks that are left over were cleared before.
                Some(Leaving::LeftOver | Leaving::Off | Leaving::NoConsent | Leaving::NotSeen) | None => {}
            }
        }
        self.withdraw(draft, WithdrawalStep::Confirm, &consented)?;
        self.withdraw(draft, WithdrawalStep::Remove, &can_go)?;
        if confirmed { self.query_after_silence(draft) } else { NEXT }
    }

    /// Continues with the draining blocks.
    fn continue_draining(&self, draft: &mut Draft) -> Step {
        let (mut open, mut empty, mut consented) = (Vec::new(), Vec::new(), Vec::new());
        let mut in_use = false;
        for (claim, drain) in self.draining() {
            match drain {
                Drain::Open => open.push(claim.cidr),
                Drain::Closed(used) if used.is_empty() => empty.push(claim),
                Drain::Asked => draft.note_lasting(TimedState::AgentAwaited),
                Drain::Consented => consented.push(claim),
                // Its pods must end first.
                Drain::Closed(_) => in_use = true,
                // It is held again.
                Drain::Stays(_) => {}
            }
        }
        if !open.is_empty() {
            return self.fence(draft, &open);
        }
        if !consented.is_empty() {
            return self.release(draft, &consented);
        }
        if draft.has_noted(TimedState::AgentAwaited) {
            return self.query_after_silence(draft);
        }
        if !empty.is_empty() {
            return self.mark(draft, &empty);
        }
        if in_use { self.read_users(draft) } else { NEXT }
    }

    /// Reads the Pods of the node at intervals, so that the status can name the Pods that a drain waits for.
    fn read_users(&self, draft: &mut Draft) -> Step {
        let name = &self.node.name;
        if self.world.look(name).is_some_and(|look| draft.waits_until(look.at + USERS_READ_EVERY)) {
            return NEXT;
        }
        act_now(Read::PodsOf(name.clone(), self.carrier.revision()))
    }

    /// Fences blocks. There must be no usage query then, neither open nor answered. So an answer beside a fence was
    /// given after the fence. It lists all addresses of the block that the agent will ever have assigned.
    fn fence(&self, draft: &mut Draft, blocks: &[Cidr]) -> Step {
        match self.publisher.usage_query(self.carrier) {
            QueryState::Open(_) => self.query_after_silence(draft),
            QueryState::Answered(clear) => self.send(draft, clear),
            QueryState::Possible(_) | QueryState::None => self.withdraw(draft, WithdrawalStep::Fence, blocks),
        }
    }

    /// Asks the agent to release fenced blocks that are unused. A report of its use after the fence, or else the answer to
    /// a usage query, confirms that first; then each address is asked for.
    fn mark(&self, draft: &mut Draft, empty: &[&Claim]) -> Step {
        let is_full = self.world.n_in_handshake() >= draft.policy.reclaim.at_once;
        if is_full && !self.world.is_in_handshake(&self.node.name) {
            draft.wake_at(draft.now.uptime + TURN);
            return NEXT;
        }
        let confirmed: Vec<Cidr> = if self.answer_is_needed() {
            empty.iter().map(|claim| claim.cidr).collect()
        } else {
            match self.publisher.usage_query(self.carrier) {
                QueryState::Possible(_) => {}
                QueryState::Open(_) => return self.query_after_silence(draft),
                // It is cleared, because it is not an answer of the known agent.
                QueryState::Answered(_) | QueryState::None => return NEXT,
            }
            let reported = empty.iter().filter(|claim| self.world.reported_since_fence(claim));
            reported.map(|claim| claim.cidr).collect()
        };
        if confirmed.is_empty() {
            return self.send_query(draft);
        }
        let Some(pods) = self.look(draft)? else { return NEXT };
        let free: Vec<Cidr> = confirmed.into_iter().filter(|block| !pods.use_any_of(*block)).collect();
        if free.is_empty() {
            // The agent omits a pod that has an address. It is asked, now or again.
            draft.wake_at(draft.now.uptime + draft.policy.query_interval);
            return match self.publisher.usage_query(self.carrier) {
                QueryState::Answered(clear) => self.send(draft, clear),
                QueryState::Possible(_) => self.send_query(draft),
                QueryState::Open(_) | QueryState::None => REST,
            };
        }
        self.withdraw(draft, WithdrawalStep::Mark, &free)
    }

    /// Whether the next step relies on an answer on the carrier, so that it must not be cleared. Such an answer
    /// reports the use of the known agent after a fence.
    pub(in crate::plan) fn answer_is_needed(&self) -> bool {
        matches!(self.publisher.usage_query(self.carrier), QueryState::Answered(_))
            && !self.stops_reclaim()
            && self.world.answer_counts(&self.node.name)
            && self.draining().any(|(_, drain)| matches!(drain, Drain::Closed(used) if used.is_empty()))
            && !self
                .draining()
                .any(|(_, drain)| matches!(drain, Drain::Open | Drain::Asked | Drain::Consented))
    }

    /// Releases blocks whose every address the agent has released, after a second read of the Pods. From then on no
    /// replica publishes them. The consent must be later than the drain; otherwise it may belong to an earlier drain.
    ///
    /// A block is held again if a pod has an address of it that the agent does not know of. While the marks exist, an
    /// agent that starts would not restore that pod.
    fn release(&self, draft: &mut Draft, consented: &[&Claim]) -> Step {
        if self.world.use_of(&self.node.name).is_err() {
            return self.query_after_silence(draft);
        }
        let Some(pods) = self.look(draft)? else { return NEXT };
        let version = self.carrier.revision().within();
        let mut requests = Vec::new();
        for claim in consented.iter().filter(|claim| version > Some(claim.revision)) {
            let rule = if pods.use_any_of(claim.cidr) { Rule::PodFound } else { Rule::Consented };
            requests.extend(chosen(rule, [*claim], self, draft));
        }
        act(requests)?;
        // A later version of each claim has been written since. A later version of the carrier must show the consent
        // once more.
        let Some(latest) = consented.iter().map(|claim| claim.revision).max() else { return NEXT };
        if self.is_too_soon(draft) {
            return NEXT;
        }
        let later = self.publisher.later_version(&self.node.name, Some(self.carrier), latest);
        act(later.into_iter().collect())
    }

    /// The Pods of the node, read after this version of the carrier was known, if its agent is the one whose use is
    /// known. `None` if that is impossible for now.
    fn look(&self, draft: &mut Draft) -> Step<Option<&'a PodsOnNode>> {
        match self.world.use_of(&self.node.name) {
            Ok(known) => self.look_beside(draft, known.agent, |_| true),
            Err(_) => ControlFlow::Continue(None),
        }
    }

    /// Adds the write of a step for these blocks, or the read that comes first. Their claims must be known as of the
    /// version that is written (safety rule 4). The next step follows if this one has nothing to write.
    fn withdraw(&self, draft: &mut Draft, step: WithdrawalStep, blocks: &[Cidr]) -> Step {
        let Some(write) =
            self.publisher.withdrawal(self.carrier, step, blocks).filter(|_| !blocks.is_empty())
        else {
            return NEXT;
        };
        self.send_withdrawal(draft, write, blocks)
    }

    /// The known users of a block; `None` if there are none.
    fn users_of(&self, claim: &Claim, n_used: u128) -> Option<String> {
        let look = self.world.look(&self.node.name);
        // A pod of the last read may have ended since. Only then its address is in no list.
        let counts =
            |address: &IpAddr| n_used > 0 || look.is_some_and(|look| look.unlisted.contains(address));
        let found = look.and_then(|look| look.found.as_ref().ok());
        let found = found.into_iter().flat_map(|pods| claim.cidr.entries_in(&pods.holders));
        let holders = found.filter(|(address, _)| counts(address)).map(|(_, pod)| pod);
        let pods: BTreeSet<&String> = holders.collect();
        let is = if n_used == 1 { "is" } else { "are" };
        let used = format!("{} of it {is} in use", counted(n_used, "address"));
        match (n_used, pods.is_empty()) {
            (0, true) => None,
            (0, false) => {
                let pods = ten_of(pods);
                Some(format!("the agent lists no address of it, but these pods have one: {pods}"))
            }
            (_, true) => Some(used),
            (_, false) => Some(format!("{used}, by {}", ten_of(pods))),
        }
    }
}
