//! Reclaims blocks from nodes that still exist, with the consent of their agents (`docs/invariants.md`, Taking a
//! block back).
//!
//! There are two ways, and the trait `removes_with_query` of a mode chooses one (`publisher`):
//!
//! - Address by address: the block is closed and Draining, its agent releases each address, and then it is removed.
//! - As a whole: the block is Releasing and removed, and its agent is asked. An agent that still uses it gets it back;
//!   until the next attempt it is Draining.
//!
//! Each step follows from the objects alone, so a replica that exits at any point is replaced by any other. Keeps one
//! invariant: a surplus block drains on only while the node can do without it and the use of its agent is known (safety
//! rule 7). Otherwise it rests, or is held again ([`kept`]). A block that must leave gets a replacement instead.
//!
//! - [`start`]: which blocks start draining.
//! - [`need`]: which blocks a node needs.
//! - [`kept`]: which blocks are kept after all.
//! - [`addresses`]: how a block leaves address by address.
//! - [`blocks`]: how blocks leave as a whole.
//! - [`way`]: the questions that these two answer differently.
//! - [`report`]: the reports about blocks that can't leave.

use std::ops::ControlFlow;

use addresses::ByAddress;
use blocks::AsWhole;
use way::Way;

use super::draft::{Draft, NEXT, REST, Step, act, act_now};
use super::pods::{LOOK_AGAIN, LOOK_AGAIN_AFTER_REFUSAL};
use super::policy::Policy;
use super::subject::Subject;
use crate::model::agent::{AgentPod, PodSnapshot, PodsOnNode};
use crate::model::claim::Claim;
use crate::model::plan::TimedState;
use crate::model::request::{Read, UsageQuery, Withdrawal, WithdrawalStep, Write};
use crate::net::cidr::Cidr;
use crate::publisher::answer::{Drain, QueryState};
use crate::publisher::support::Reclaiming;
use crate::world::RunningAgent;

mod addresses;
mod blocks;
mod kept;
mod need;
mod report;
mod start;
mod way;

/// The number of query intervals after which the answer to an open query counts as lost.
const LOST_AFTER: u32 = 2;

impl<'a> Subject<'a> {
    /// Continues the drains of the node and starts others. This is the last step of a decision: every shortage of the
    /// node comes first.
    pub(super) fn reclaim(&self, draft: &mut Draft) -> Step {
        if !self.is_served && !self.claims().any(Claim::is_reclaimed) {
            return NEXT;
        }
        self.clear_stale_marks(draft)?;
        self.report_drains(draft);
        if self.stops_reclaim() {
            return NEXT;
        }
        self.way().reclaim(self, draft)
    }

    /// How blocks leave this node. None can leave a node with one block for life.
    pub(super) fn way(&self) -> &'static dyn Way {
        if self.traits.removes_with_query { &AsWhole } else { &ByAddress }
    }

    /// Whether blocks may be reclaimed from the node's agent, according to its version.
    fn may_reclaim(&self, policy: Policy) -> bool {
        match self.world.support(&self.node.name).0.reclaiming() {
            Reclaiming::Allowed => true,
            Reclaiming::OptIn => policy.reclaim.unknown_agents,
            Reclaiming::Never => false,
        }
    }

    /// Why the version of the node's agent forbids reclaim.
    fn why_version_forbids(&self) -> &'static str {
        match self.world.support(&self.node.name).0.reclaiming() {
            Reclaiming::Allowed | Reclaiming::OptIn => {
                "the version of its agent is unknown, and --reclaim-unknown-agents is not set"
            }
            Reclaiming::Never => "the version of its agent is not supported",
        }
    }

    /// The claims that drain on this carrier, each with its progress.
    pub(super) fn draining(&self) -> impl Iterator<Item = (&'a Claim, &'a Drain)> + use<'a> {
        self.facts.claims.iter().filter_map(|facts| Some((facts.claim, facts.drain.as_ref()?)))
    }

    /// The Pods of the node beside this agent, from a read for which `counts` holds. `None` if the next read must wait.
    fn look_beside(
        &self,
        draft: &mut Draft,
        agent: RunningAgent<'_>,
        counts: impl Fn(&PodSnapshot) -> bool,
    ) -> Step<Option<&'a PodsOnNode>> {
        let read = Read::PodsOf(self.node.name.clone(), self.carrier.revision());
        let Some(look) =
            self.world.look_after(self.carrier).filter(|look| counts(look) || look.found.is_err())
        else {
            return act_now(read);
        };
        let is_same = |found: &AgentPod| {
            found.uid == agent.pod.uid
                && found.started == Some(agent.started)
                && found.ready
                && !found.deleting
        };
        let again = match &look.found {
            Ok(pods) => match pods.agents.iter().filter(|found| !found.ended).collect::<Vec<_>>()[..] {
                [only] if is_same(only) => return ControlFlow::Continue(Some(pods)),
                // The watch of the agents' Pods is late, and will show the difference.
                _ => LOOK_AGAIN,
            },
            Err(_) => LOOK_AGAIN_AFTER_REFUSAL,
        };
        if draft.waits_until(look.at + again) { ControlFlow::Continue(None) } else { act_now(read) }
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
                let since = serving.and_then(|serving| serving.since(TimedState::QueryOpen));
                (end, Some(since.unwrap_or(draft.now.uptime) + draft.policy.query_interval * LOST_AFTER))
            }
            QueryState::Answered(_) | QueryState::None => return NEXT,
        };
        if next.is_some_and(|next| draft.waits_until(next)) {
            return NEXT;
        }
        self.send(draft, write)
    }

    /// Sends this query, or waits if the last patch of the CiliumNode was too recent.
    fn send(&self, draft: &mut Draft, query: UsageQuery) -> Step {
        act(self.write_query(draft, query).into_iter().collect())?;
        REST
    }

    /// Sends a usage query to an agent that has been silent for long. The query makes the agent look at every open
    /// mark again (`docs/cilium.md`, Lost answers).
    fn query_after_silence(&self, draft: &mut Draft) -> Step {
        let since = draft.note_lasting_since(self.world, TimedState::AgentAwaited);
        if draft.waits_until(since + draft.policy.query_interval) {
            return NEXT;
        }
        draft.wake_at(draft.now.uptime + draft.policy.query_interval);
        self.send_query(draft)
    }

    /// Sends this write, or the read of the claims of `blocks` that it relies on.
    fn send_withdrawal(&self, draft: &mut Draft, write: Withdrawal, blocks: &[Cidr]) -> Step {
        // An agent that restarts before that restores no pod whose address has a mark.
        let is_urgent = write.step == WithdrawalStep::Clear;
        if !is_urgent && self.is_too_soon(draft) {
            REST
        } else if self.are_fresh(blocks.iter().copied()) {
            act_now(Write::Withdraw(write))
        } else {
            act_now(Read::ClaimsOf(self.node.name.clone()))
        }
    }
}
