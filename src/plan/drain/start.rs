//! Which blocks start draining. A block that must leave does so as soon as the node can do without it. Otherwise one
//! block does that the node has not needed for long.

use std::collections::BTreeSet;
use std::time::Duration;

use super::need::is_surplus;
use super::way::TURN;
use crate::model::address_class::AddressClass;
use crate::model::agent::UseUnknown;
use crate::model::claim::{Claim, ClaimState};
use crate::model::counted::counted;
use crate::model::finding::{Finding, FindingKind};
use crate::model::plan::TimedState;
use crate::model::pool::{Pool, ReclaimMode};
use crate::model::transitions::Rule;
use crate::net::cidr::Cidr;
use crate::plan::claims;
use crate::plan::draft::{Draft, NEXT, Step, act};
use crate::plan::policy::Policy;
use crate::plan::subject::Subject;

/// The number of query intervals in which no block of a node, the kept one included, starts draining after one was
/// kept. The cause may last.
const PAUSE_INTERVALS: u32 = 2;

/// The maximum number of times that this pause doubles while an agent keeps removed blocks: to 32 query intervals.
const MAX_DOUBLINGS: u32 = 4;

impl<'a> Subject<'a> {
    /// Starts to drain blocks.
    pub(super) fn start_drains(&self, draft: &mut Draft) -> Step {
        let classes = self.classes();
        let leaves = classes.iter().any(|class| self.can_leave_of(class).next().is_some());
        let surplus = if leaves { None } else { self.surplus(draft) };
        if (!leaves && surplus.is_none()) || !self.may_reclaim(draft.policy) || self.was_kept_recently(draft)
        {
            return NEXT;
        }
        match self.world.use_of(&self.node.name) {
            Ok(_) => {}
            // This process has not seen the agent report its use.
            Err(UseUnknown::NotSeen | UseUnknown::Silent) => return self.send_query(draft),
            Err(UseUnknown::NoCarrier | UseUnknown::NoAgent(_)) => return NEXT,
        }
        let mut chosen: Vec<&Claim> = classes.iter().flat_map(|class| self.drains_to_start(class)).collect();
        chosen.extend(surplus);
        if chosen.is_empty() || self.is_stopped(draft, surplus) {
            return NEXT;
        }
        let n_started = self.world.n_starts_of_reclaim(draft.now.uptime);
        let n_more = match surplus {
            // At most as many as agents may be asked for at the same time. So more than `per_minute` within a minute
            // is unusual.
            Some(_) => draft.policy.reclaim.at_once.saturating_sub(self.world.n_in_handshake() + n_started),
            None => draft.policy.reclaim.per_minute.saturating_sub(n_started),
        };
        if n_more < chosen.len() {
            draft.wake_at(draft.now.uptime + TURN);
            chosen.truncate(n_more);
        }
        act(claims::chosen(Rule::DrainStarts, chosen, self, draft))
    }

    /// Whether a block of the node was kept recently. Then none starts draining.
    pub(super) fn was_kept_recently(&self, draft: &mut Draft) -> bool {
        self.drains_paused_until(draft).is_some_and(|until| draft.waits_until(until))
    }

    /// The time until which no block starts draining because one was kept.
    pub(super) fn drains_paused_until(&self, draft: &Draft) -> Option<Duration> {
        let serving = self.serving()?;
        let pause = draft.policy.query_interval
            * (PAUSE_INTERVALS << serving.n_refused.saturating_sub(1).min(MAX_DOUBLINGS));
        serving.last_kept.map(|last| last + pause).filter(|until| *until > draft.now.uptime)
    }

    /// Whether too many surplus blocks started draining within a minute. No user has asked for these drains, so an
    /// administrator must look at the cause before any more.
    fn is_stopped(&self, draft: &mut Draft, surplus: Option<&Claim>) -> bool {
        let n_started = self.world.n_starts_of_reclaim(draft.now.uptime);
        let too_many = surplus.is_some() && n_started >= draft.policy.reclaim.per_minute;
        draft.too_many_drains |= too_many;
        let stopped = too_many || self.world.reclaim_stopped_since().is_some();
        if stopped {
            let message = format!(
                "more than {} started draining within a minute, and reclaim has stopped; find the cause, then \
                 set and remove freeze-reclaim to resume",
                counted(draft.policy.reclaim.per_minute, "block")
            );
            draft.findings.push(Finding::of_node(FindingKind::ReclaimStopped, &self.node.name, message));
        }
        stopped
    }

    /// The blocks of a class that must leave and that the node can do without. The least used comes first.
    fn drains_to_start(&self, class: &AddressClass) -> Vec<&'a Claim> {
        let mut able: Vec<&Claim> = self.can_leave_of(class).collect();
        able.sort_by_key(|claim| (self.publisher.n_used_in(self.carrier, claim.cidr), claim.cidr));
        self.dispensable_of(class, &able, BTreeSet::new())
    }

    /// The block that the node has not needed for as long as its pool says. Notes whether there is a surplus block.
    ///
    /// One at a time: the need of the node is computed again when that block has left.
    fn surplus(&self, draft: &mut Draft) -> Option<&'a Claim> {
        let leaves = |claim: &Claim| claim.is_reclaimed() || matches!(claim.state, ClaimState::Draining(_));
        if self.claims().any(leaves) {
            return None;
        }
        let classes = self.classes();
        let found =
            classes.iter().filter_map(|class| self.surplus_of(class)).min_by_key(|found| found.used)?;
        let since = draft.note_lasting_since(self.world, TimedState::Surplus);
        if draft.waits_until(since + found.pool.reclaim.after) {
            return None;
        }
        match found.pool.reclaim.mode {
            ReclaimMode::Enabled => Some(found.claim),
            ReclaimMode::DryRun => {
                draft.findings.push(self.would_reclaim(&found, draft.policy));
                None
            }
            ReclaimMode::Disabled => None,
        }
    }

    fn would_reclaim(&self, found: &Surplus<'_>, policy: Policy) -> Finding {
        let hindrance = match self.world.use_of(&self.node.name) {
            _ if !self.may_reclaim(policy) => Some(self.why_version_forbids().to_owned()),
            Ok(_) => None,
            Err(unknown) => Some(unknown.to_string()),
        };
        let hindrance = hindrance.map(|why| format!("; blocked by: {why}")).unwrap_or_default();
        let (cidr, pool) = (found.claim.cidr, &found.pool.name);
        let message =
            format!("pool {pool} would reclaim {cidr} with `spec.reclaim.mode: Enabled`{hindrance}");
        Finding::of_node(FindingKind::WouldReclaim, &self.node.name, message)
    }

    /// The least used surplus block of a class. Without it, the node would use only a small part of the remaining
    /// blocks.
    fn surplus_of(&self, class: &AddressClass) -> Option<Surplus<'a>> {
        let expand = self.expand_of(class);
        let demand = self.demand_without(class, &BTreeSet::new());
        let held =
            self.occupied().filter(|claim| self.is_of(claim, class) && claim.state == ClaimState::Held);
        let of_pools = held.filter_map(|claim| Some((claim, self.world.pool(&claim.pool)?)));
        let asked = of_pools.filter(|(_, pool)| pool.reclaim.mode != ReclaimMode::Disabled);
        let surplus = asked.filter(|(claim, pool)| {
            is_surplus(demand, claim.offered_count(), pool.reclaim, expand)
                && self.can_do_without(class, &BTreeSet::from([claim.cidr]))
                && self.publisher.may_leave(self.carrier, claim).is_ok()
        });
        let used = |cidr: Cidr| self.publisher.n_used_in(self.carrier, cidr);
        surplus
            .map(|(claim, pool)| Surplus { claim, pool, used: used(claim.cidr) })
            .min_by_key(|found| (found.used, std::cmp::Reverse(found.claim.cidr)))
    }
}

/// A block that a node does not need.
struct Surplus<'a> {
    claim: &'a Claim,
    pool: &'a Pool,
    used: u128,
}
