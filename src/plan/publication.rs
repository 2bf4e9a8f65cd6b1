//! When blocks are written onto a CiliumNode, and when its agent gets a usage query.

use std::borrow::Cow;
use std::time::Duration;

use super::abandoned;
use super::draft::{Draft, NEXT, REST, Step, act};
use super::facts::Facts;
use super::publishable::{NotPublishable, describe_overlaps};
use super::subject::Subject;
use crate::model::carrier::{Carrier, FormerCarrier};
use crate::model::claim::{Claim, ClaimState};
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::NodeName;
use crate::model::plan::{TimedState, Wait};
use crate::model::request::{Read, Request, UsageQuery, Write};
use crate::model::revision::Revision;
use crate::net::cidr::Cidr;
use crate::publisher::answer::QueryState;
use crate::publisher::remember;
use crate::world::World;

/// The maximum time before the next usage query to an agent that has answered and shows no use. Every agent of the
/// cluster receives each query, its answer and its removal.
const LONGEST_SILENCE: Duration = Duration::from_secs(10 * 60);

/// How long an agent may take for two updates in a row. The longer time is for its client, which limits its rate. An agent
/// before 1.20 never removes the use of a former mode, and does not need to.
const FORMER_USE_REMAINS: Duration = Duration::from_secs(5);

/// Drops queries that would prove a block absent if the last patch of the CiliumNode was too recent. Then the plan
/// waits.
pub(super) fn postpone_queries(facts: &Facts<'_>, draft: &mut Draft, requests: &mut Vec<Request>) {
    let is_query = |request: &Request| matches!(request, Request::Write(Write::UsageQuery(_)));
    if requests.iter().any(is_query) && is_too_soon(facts, draft) {
        requests.retain(|request| !is_query(request));
    }
}

/// Whether a patch that publishes the held blocks of a node is its first, or restores addresses that its agent had.
/// Otherwise the node only grows. A block whose addresses an agent uses was published before.
#[must_use]
pub fn starts_or_restores(world: &World, node: &NodeName) -> bool {
    let Some(carrier) = world.carrier(node).filter(|_| world.is_served(node)) else { return true };
    let reader = world.reader_of(node);
    let is_missing = |claim: &&Claim| claim.state == ClaimState::Held && !reader.lists(carrier, claim.cidr);
    let mut missing = world.claims_of(node).map(|known| &known.claim).filter(is_missing).peekable();
    missing.peek().is_none() || missing.any(|claim| reader.n_used_in(carrier, claim.cidr) > 0)
}

fn is_too_soon(facts: &Facts<'_>, draft: &mut Draft) -> bool {
    let last = facts.serving().and_then(|serving| serving.last_patch);
    let too_soon = last.is_some_and(|last| draft.waits_until(last + draft.policy.min_write_interval));
    if too_soon {
        draft.wait_for(Wait::Interval);
    }
    too_soon
}

impl<'a> Subject<'a> {
    /// The claims that the carrier may carry. Each other claim that is held for this Node has a finding.
    pub(super) fn publishable_with_findings(&self, findings: &mut Vec<Finding>) -> Vec<&'a Claim> {
        for facts in &self.facts.claims {
            let claim = facts.claim;
            let Some(Err(why_not)) = &facts.publishable else { continue };
            let (kind, why) = match why_not {
                NotPublishable::State | NotPublishable::OtherNodeObject => continue,
                NotPublishable::Overlaps(others) => {
                    let others = describe_overlaps(self.world, claim.cidr, others);
                    let why = format!("no more addresses of it are published, because it overlaps {others}");
                    (FindingKind::Overlap, why)
                }
                NotPublishable::TooWide(widest) => {
                    let why = format!(
                        "it is not published, because the widest block in Cilium's mode {} is /{widest}; drain \
                         the node, turn its machine off, delete its Node and CiliumNode, and let it join \
                         again after reuseAfterNodeLoss of the pool",
                        self.publisher.ipam_mode().as_str(),
                    );
                    (FindingKind::BlockTooWide, why)
                }
                NotPublishable::PodIpPool(name, misfit) => {
                    let why = format!(
                        "CiliumPodIPPool {name} {misfit}, and the block would harm the agent: correct the \
                         CiliumPodIPPool; until then it is not published"
                    );
                    (FindingKind::UnfitPodIPPool, why)
                }
            };
            let advice = abandoned::advice(self.world, self.publisher, claim);
            findings.push(Finding::of_claim(kind, claim.cidr, why + &advice));
        }
        self.publishable()
    }

    /// The patch that publishes these claims, or the read that has to come first (safety rule 4).
    pub(super) fn publish(&self, draft: &mut Draft, publishable: &[&Claim]) -> Option<Request> {
        let former = self.former();
        let must_leave = |claim: &Claim| self.world.must_leave(claim);
        let publication =
            self.publisher.publication(self.carrier, publishable, &must_leave, former.as_deref())?;
        let is_urgent = !publication.completed.is_empty() || starts_or_restores(self.world, &self.node.name);
        if !is_urgent && self.is_too_soon(draft) {
            return None;
        }
        // On a carrier that shows nothing of ours, a claim that the watch has not shown yet may also be in use.
        let known_as_of = self.world.claims_known_as_of(&self.node.name);
        let is_whole = self.is_served || known_as_of.is_some_and(|known_at| self.is_fresh(known_at));
        Some(if is_whole && self.are_fresh(publishable.iter().map(|claim| claim.cidr)) {
            Write::Publish(publication).into()
        } else {
            Read::ClaimsOf(self.node.name.clone()).into()
        })
    }

    /// The content of the carrier before the present one, if this process saw it. Where a Node carries blocks, its
    /// CiliumNode shows the former blocks of its agent, also of another mode.
    pub(super) fn former(&self) -> Option<Cow<'a, FormerCarrier>> {
        let name = &self.node.name;
        let of_mode_before = || match self.carrier {
            Carrier::Node(_) => remember(self.world.cilium_node(name)?.clone()).map(Cow::Owned),
            Carrier::CiliumNode(_) => None,
        };
        self.world.former_carrier(name).map(Cow::Borrowed).or_else(of_mode_before)
    }

    /// Whether knowledge as of this revision is fresh enough to write the carrier (safety rule 4).
    fn is_fresh(&self, known_at: Revision) -> bool {
        self.publisher.is_fresh(known_at, self.carrier)
    }

    /// The same for the claims of these blocks. A block without a known claim is not fresh.
    pub(super) fn are_fresh(&self, blocks: impl IntoIterator<Item = Cidr>) -> bool {
        let is_fresh = |known| self.is_fresh(self.world.known_at(known));
        blocks.into_iter().all(|block| self.world.claim(block).is_some_and(is_fresh))
    }

    /// Whether the last patch of the CiliumNode was too recent for another one; then the plan waits.
    pub(super) fn is_too_soon(&self, draft: &mut Draft) -> bool {
        is_too_soon(self, draft)
    }

    /// The first publication waits for an update of the agent that it would make fail.
    pub(super) fn await_former_use(&self, draft: &mut Draft) -> Step {
        if !self.publisher.is_about_to_write(self.carrier) {
            return NEXT;
        }
        let since = draft.note_lasting_since(self.world, TimedState::FormerUseRemains);
        if !draft.waits_until(since + FORMER_USE_REMAINS) {
            return NEXT;
        }
        draft.wait_for(Wait::FormerUse);
        REST
    }

    /// The removal of a usage query that is answered and no longer needed.
    pub(super) fn clear_answer(&self, draft: &mut Draft) -> Option<Request> {
        let QueryState::Answered(clear) = self.publisher.usage_query(self.carrier) else { return None };
        if self.answer_is_needed() { None } else { self.write_query(draft, clear) }
    }

    /// This write, unless the last patch of the CiliumNode was too recent; then the plan waits.
    pub(super) fn write_query(&self, draft: &mut Draft, query: UsageQuery) -> Option<Request> {
        (!self.is_too_soon(draft)).then(|| Write::UsageQuery(query).into())
    }

    /// Sends a usage query to an agent that has been silent for long. The shortage of the node comes first: an agent
    /// that can't start without addresses answers every query at once, and the answer shows no use.
    ///
    /// Without this, a full node whose CiliumNode was recreated would never grow. Its agent writes its use only when
    /// that changes, and on a full node nothing can change (`docs/cilium.md`, Ping). For the same reason a query
    /// without an answer is removed and sent again, as long as the agent runs: its answer may have been lost.
    pub(super) fn query_use(&self, draft: &mut Draft) -> Step {
        let Some(due) = self.query_due(draft) else { return NEXT };
        let query = match self.publisher.usage_query(self.carrier) {
            QueryState::Possible(ask) => ask,
            QueryState::Open(clear) if self.world.agent_on(&self.node.name).is_ok() => clear,
            QueryState::Open(_) | QueryState::Answered(_) | QueryState::None => return NEXT,
        };
        if draft.waits_until(due) {
            return NEXT;
        }
        act(self.write_query(draft, query).into_iter().collect())
    }

    /// The time at which the silence of the agent is long enough for a usage query, or for another step if there was
    /// a query. `None` if the agent has reported its use.
    pub(super) fn query_due(&self, draft: &Draft) -> Option<Duration> {
        let noted = [TimedState::UseUnknown, TimedState::GrowthAwaitsUse].into_iter();
        let silence = noted.filter(|lasting| draft.has_noted(*lasting)).min()?;
        let serving = self.serving();
        let silent_since = serving.and_then(|serving| serving.since(silence)).unwrap_or(draft.now.uptime);
        // An agent may answer and still not report its use. Each query waits until the silence has doubled since the
        // last one.
        let last_query = serving.and_then(|serving| serving.last_query).filter(|last| *last > silent_since);
        let wait = last_query.map_or(draft.policy.query_interval, |last| {
            last.saturating_sub(silent_since).clamp(draft.policy.query_interval, LONGEST_SILENCE)
        });
        Some(last_query.unwrap_or(silent_since) + wait)
    }
}
