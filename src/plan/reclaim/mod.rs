//! Reclaims blocks from nodes that still exist, with the consent of their agents (`docs/invariants.md`, Taking a
//! block back).
//!
//! Each step follows from the objects alone, so a replica that exits at any point is replaced by any other. Keeps one
//! invariant: a block drains on only while the node can do without it and the use of its agent is known (safety rule
//! 7). Otherwise the block is held again.
//!
//! - [`start`]: which blocks start draining.
//! - [`need`]: which blocks a node needs.
//! - [`kept`]: which blocks are kept after all.
//! - [`removal`]: how blocks are removed in the mode whose agents take blocks as a whole.
//! - [`report`]: the reports about blocks that can't leave.

use std::time::Duration;

use super::draft::{DONE, Draft, NEXT, Step};
use super::policy::Policy;
use super::publishable::may_publish;
use super::subject::Subject;
use crate::model::agent::{AgentPod, Look, PodsOnNode};
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::plan::Lasting;
use crate::model::request::{ClaimChange, Read, Request, Withdrawal, WithdrawalStep, Write};
use crate::net::cidr::Cidr;
use crate::publisher::answer::{Drain, Leaving, QueryState};
use crate::publisher::support::Reclaiming;
use crate::world::{KnownClaim, RunningAgent};

mod kept;
mod need;
mod removal;
mod report;
mod start;

pub(super) use removal::{PODS_AGAIN, holders, no_pod_uses_removed_block};

/// How long a node waits for its turn while the agents of too many others are being asked.
const TURN: Duration = Duration::from_secs(5);

/// The number of query intervals after which the answer to an open query counts as lost.
const LOST_AFTER: u32 = 2;

/// How often the Pods are read that keep a block in use.
const USERS_READ_EVERY: Duration = Duration::from_secs(5 * 60);

/// The time before the next read of a node's Pods, if the last one contradicts the known agent, or if the server
/// refused it.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN_AFTER_REFUSAL: Duration = Duration::from_secs(60);

impl<'a> Subject<'a> {
    /// Continues the drains of the node and starts others. This is the last step of a decision: every shortage of the
    /// node comes first.
    pub(super) fn reclaim(&self, draft: &mut Draft) -> Step {
        draft.end_if_any_request()?;
        if !self.is_served() && !self.claims().any(Claim::is_reclaimed) {
            return NEXT;
        }
        self.clear_stale_marks(draft)?;
        self.report_drains(draft);
        if self.world.freeze().stops_reclaim() {
            return NEXT;
        }
        if self.publisher.traits().removes_with_query {
            return self.remove_blocks(draft);
        }
        if matches!(self.publisher.usage_query(self.carrier), QueryState::Open(_)) {
            draft.note_lasting(Lasting::QueryOpen);
        }
        self.continue_released(draft)?;
        self.continue_draining(draft)?;
        self.start_drains(draft)
    }

    /// Whether blocks may be reclaimed from the node's agent, according to its version.
    fn may_reclaim(&self, policy: Policy) -> bool {
        match self.world.support(&self.node.name).0.reclaiming() {
            Reclaiming::Allowed => true,
            Reclaiming::OptIn => policy.reclaim.opt_in,
            Reclaiming::Never => false,
        }
    }

    /// The claims that drain on this carrier, each with its progress.
    pub(super) fn draining(&self) -> impl Iterator<Item = (&'a Claim, Drain)> {
        self.claims()
            .filter(|claim| claim.state == ClaimState::Draining(self.carrier.uid().clone()))
            .map(|claim| (claim, self.publisher.drain(self.carrier, claim)))
    }

    /// Release marks in blocks that stay are from an earlier attempt or from another controller. While a mark exists,
    /// no pod gets its address, and only this controller removes it (`docs/cilium.md`, Release handshake).
    fn clear_stale_marks(&self, draft: &mut Draft) -> Step {
        let stays = |known: &&KnownClaim| {
            let claim = &known.claim;
            may_publish(self.world, self.node, known).is_ok()
                || (claim.is_reclaimed() && self.publisher.leaving(self.carrier, claim) == Leaving::LeftOver)
        };
        let claims = self.world.claims_of(&self.node.name).filter(stays).map(|known| known.claim.cidr);
        let stale: Vec<Cidr> =
            claims.filter(|cidr| self.publisher.has_stale_marks(self.carrier, *cidr)).collect();
        self.withdraw(draft, WithdrawalStep::Clear, &stale)
    }

    /// Continues with blocks that their agent has released. The controller confirms the release to the agent and
    /// removes the blocks; then the agent acknowledges the removal.
    fn continue_released(&self, draft: &mut Draft) -> Step {
        let (mut consented, mut can_go, mut confirmed) = (Vec::new(), Vec::new(), false);
        for claim in self.claims().filter(|claim| claim.is_reclaimed()) {
            match self.publisher.leaving(self.carrier, claim) {
                Leaving::Consented => consented.push(claim.cidr),
                Leaving::Removable => can_go.push(claim.cidr),
                Leaving::Confirmed => confirmed = true,
                // The lifecycle of the claim continues with these.
                Leaving::LeftOver | Leaving::Off | Leaving::NoConsent | Leaving::NotSeen => {}
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
                Drain::Closed(used) if used.is_empty() => empty.push(claim.cidr),
                Drain::Asked => draft.note_lasting(Lasting::AgentAwaited),
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
        if draft.has_noted(Lasting::AgentAwaited) {
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
        let look = self.world.look(name);
        if !look.is_some_and(|look| draft.waits_until(look.at + USERS_READ_EVERY)) {
            draft.requests.push(Read::PodsOf(name.clone(), self.carrier.revision()).into());
        }
        draft.end_if_any_request()
    }

    /// Fences blocks. There must be no usage query then, neither open nor answered. So an answer beside a fence was
    /// given after the fence. It lists all addresses of the block that the agent will ever have assigned.
    fn fence(&self, draft: &mut Draft, blocks: &[Cidr]) -> Step {
        match self.publisher.usage_query(self.carrier) {
            QueryState::Open(_) => self.query_after_silence(draft),
            QueryState::Answered(clear) => {
                self.write_query(draft, clear);
                DONE
            }
            QueryState::Possible(_) | QueryState::None => self.withdraw(draft, WithdrawalStep::Fence, blocks),
        }
    }

    /// Asks the agent to release fenced blocks that are unused. A usage query confirms that first; then each address
    /// is asked for.
    fn mark(&self, draft: &mut Draft, empty: &[Cidr]) -> Step {
        let is_full = self.world.n_in_handshake() >= draft.policy.reclaim.at_once;
        if is_full && !self.world.is_in_handshake(&self.node.name) {
            draft.wake_at(draft.now.uptime + TURN);
            return NEXT;
        }
        if !self.answer_is_needed() {
            return match self.publisher.usage_query(self.carrier) {
                QueryState::Possible(_) => self.send_query(draft),
                QueryState::Open(_) => self.query_after_silence(draft),
                // It is cleared, because it is not an answer of the known agent.
                QueryState::Answered(_) | QueryState::None => NEXT,
            };
        }
        let Some(pods) = self.look(draft) else {
            return draft.end_if_any_request();
        };
        let free: Vec<Cidr> = empty.iter().copied().filter(|block| !pods.use_any_of(*block)).collect();
        if free.is_empty() {
            // The answer omits a pod that has an address. The query is repeated later.
            if let QueryState::Answered(clear) = self.publisher.usage_query(self.carrier) {
                self.write_query(draft, clear);
            }
            draft.wake_at(draft.now.uptime + draft.policy.query_interval);
            return DONE;
        }
        self.withdraw(draft, WithdrawalStep::Mark, &free)
    }

    /// Whether the next step relies on an answer on the carrier, so that it must not be cleared. Such an answer
    /// reports the use of the known agent after a fence.
    pub(super) fn answer_is_needed(&self) -> bool {
        matches!(self.publisher.usage_query(self.carrier), QueryState::Answered(_))
            && !self.world.freeze().stops_reclaim()
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
        let Some(pods) = self.look(draft) else {
            return draft.end_if_any_request();
        };
        let version = self.carrier.revision().within();
        for claim in consented.iter().filter(|claim| version > Some(claim.revision)) {
            let change = if pods.use_any_of(claim.cidr) {
                ClaimChange::Hold(self.node.uid.clone())
            } else {
                ClaimChange::Release(Reason::Reclaimed)
            };
            draft.change_claim(claim, change);
        }
        // A later version of each claim has been written since. A later version of the carrier must show the consent
        // once more.
        if draft.requests.is_empty()
            && let Some(latest) = consented.iter().map(|claim| claim.revision).max()
            && !self.is_too_soon(draft)
        {
            let later = self.publisher.later_version(&self.node.name, Some(self.carrier), latest);
            draft.requests.extend(later);
        }
        draft.end_if_any_request()
    }

    /// The Pods of the node, read after this version of the carrier was known, if its agent is the one whose use is
    /// known. `None` if that read comes first or is impossible.
    fn look(&self, draft: &mut Draft) -> Option<&'a PodsOnNode> {
        self.look_beside(draft, self.world.use_of(&self.node.name).ok()?.agent, |_| true)
    }

    /// The Pods of the node beside this agent, from a read for which `counts` holds.
    fn look_beside(
        &self,
        draft: &mut Draft,
        agent: RunningAgent<'_>,
        counts: impl Fn(&Look) -> bool,
    ) -> Option<&'a PodsOnNode> {
        let name = &self.node.name;
        let read = Request::from(Read::PodsOf(name.clone(), self.carrier.revision()));
        let Some(look) =
            self.world.look_after(self.carrier).filter(|look| counts(look) || look.found.is_err())
        else {
            draft.requests.push(read);
            return None;
        };
        let is_same = |found: &AgentPod| {
            found.uid == agent.pod.uid
                && found.started == Some(agent.started)
                && found.ready
                && !found.deleting
        };
        let again = match &look.found {
            Ok(pods) => match pods.agents.iter().filter(|found| !found.ended).collect::<Vec<_>>()[..] {
                [only] if is_same(only) => return Some(pods),
                // The watch of the agents' Pods is late, and will show the difference.
                _ => LOOK_AGAIN,
            },
            Err(_) => LOOK_AGAIN_AFTER_REFUSAL,
        };
        if !draft.waits_until(look.at + again) {
            draft.requests.push(read);
        }
        None
    }

    /// Sends a usage query to the agent, unless the last one is recent. A query that has been open for long is
    /// removed: its answer may have been lost. Then the agent looks at it again only when something else changes
    /// (`docs/cilium.md`, Lost answers). It may be the query of another replica, so the time since it was first seen
    /// counts.
    fn send_query(&self, draft: &mut Draft) -> Step {
        if self.world.agent_on(&self.node.name).is_err() {
            return NEXT;
        }
        let serving = self.serving();
        let (write, next) = match self.publisher.usage_query(self.carrier) {
            QueryState::Possible(ask) => {
                let last = serving.and_then(|serving| serving.last_query);
                (ask, last.map(|last| last + draft.policy.query_interval))
            }
            QueryState::Open(end) => {
                let since = serving.and_then(|serving| serving.since(Lasting::QueryOpen));
                (end, Some(since.unwrap_or(draft.now.uptime) + draft.policy.query_interval * LOST_AFTER))
            }
            QueryState::Answered(_) | QueryState::None => return NEXT,
        };
        if next.is_some_and(|next| draft.waits_until(next)) {
            return NEXT;
        }
        self.write_query(draft, write);
        DONE
    }

    /// Sends a usage query to an agent that has been silent for long. The query makes the agent look at every open
    /// mark again (`docs/cilium.md`, Lost answers).
    fn query_after_silence(&self, draft: &mut Draft) -> Step {
        let since = draft.note_lasting_since(self.world, Lasting::AgentAwaited);
        if draft.waits_until(since + draft.policy.query_interval) {
            return NEXT;
        }
        draft.wake_at(draft.now.uptime + draft.policy.query_interval);
        self.send_query(draft)
    }

    /// Adds the write of a step for these blocks, or the read that comes first. Their claims must be known as of the
    /// version that is written (safety rule 4). The next step follows if this one has nothing to write.
    fn withdraw(&self, draft: &mut Draft, step: WithdrawalStep, blocks: &[Cidr]) -> Step {
        let Some(write) =
            self.publisher.withdrawal(self.carrier, step, blocks).filter(|_| !blocks.is_empty())
        else {
            return NEXT;
        };
        self.add_withdrawal(draft, write, blocks);
        DONE
    }

    /// Adds this write, or the read of the claims of `blocks` that it relies on.
    fn add_withdrawal(&self, draft: &mut Draft, write: Withdrawal, blocks: &[Cidr]) {
        if self.is_too_soon(draft) {
            return;
        }
        draft.requests.push(if self.are_fresh(blocks.iter().copied()) {
            Write::Withdraw(write).into()
        } else {
            Read::ClaimsOf(self.node.name.clone()).into()
        });
    }
}
