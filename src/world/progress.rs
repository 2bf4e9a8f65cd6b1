//! The requests in flight, the next node or pool to decide for, and the time of the next wake-up.
//!
//! Keeps three invariants. At most one write about an object is in flight. Nothing is decided for a node while an
//! answer about its blocks is due. No write starts that the freeze stops, or on a standby.

use std::collections::BTreeSet;
use std::time::Duration;

use super::node_entries::NodeEntry;
use super::pause::Pause;
use super::{Remembered, SeenCooling, Sent, Waiter, World};
use crate::ledger::Occupant;
use crate::model::address_class::AddressClass;
use crate::model::claim::{ClaimState, Reason};
use crate::model::leadership::Leadership;
use crate::model::names::{NodeName, PoolName};
use crate::model::plan::{NodePlan, PoolPlan, Unmet};
use crate::model::request::{
    BumpVersion, ClaimChange, ClaimUpdate, Publication, QueryStep, Read, Request, Target, UsageQuery,
    Withdrawal, WithdrawalStep, Write,
};
use crate::model::time::Now;
use crate::net::cidr::{Cidr, Family};

impl World {
    /// How long a pool waits because its writes are not applied.
    #[must_use]
    pub fn pool_pause(&self, pool: &PoolName) -> Pause {
        self.pool_writes.get(pool).map(|(pause, _)| *pause).unwrap_or_default()
    }

    /// The objects that do not keep our accepted writes, each with the write as a line for people.
    pub fn ineffective_writes(&self, now: Now) -> impl Iterator<Item = (&Target, &str)> {
        let of_nodes = self.entries.iter().map(|(_, entry)| &entry.remembered.writes);
        let of_pools = self.pool_writes.values().map(|(_, writes)| writes);
        of_nodes.chain(of_pools).flat_map(move |writes| writes.ineffective(now))
    }

    /// Whether a request is in flight for this node or about one of its claims, lost or not. Also whether an answer
    /// alone has shown one of its claims.
    ///
    /// The request may be for another node: its new claim may meet a claim of this node that no watch has shown yet.
    #[must_use]
    pub fn is_busy(&self, node: &NodeName) -> bool {
        self.has_in_flight(node)
            || self
                .claims_of(node)
                .any(|known| !known.shown || self.is_in_flight(&Target::Claim(known.claim.cidr)))
            // Another node may have had the claim in between, and its request is not answered yet.
            || self.lost_claims_of(node).any(|lost| self.is_in_flight(&Target::Claim(lost.cidr)))
    }

    /// Whether a request about this object is in flight.
    #[must_use]
    pub fn is_in_flight(&self, key: &Target) -> bool {
        self.in_flight.contains_key(key)
    }

    /// The number of requests in flight.
    #[must_use]
    pub fn n_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The number of them that write FRRConfigurations.
    #[must_use]
    pub fn n_routes_in_flight(&self) -> usize {
        self.in_flight.keys().filter(|target| matches!(target, Target::Frr(_))).count()
    }

    /// The next node to decide for: one with a change, or one that waits for a block that a pool may have now.
    #[must_use]
    pub fn next_node(&self) -> Option<&NodeName> {
        let (marked, waiting) = (self.agenda.next_node(), self.waiting.next());
        marked.into_iter().chain(waiting).min().map(|place| &place.node)
    }

    /// Whether a decision for a node is due. Until then it is unknown whether the node waits.
    #[must_use]
    pub fn is_due(&self, node: &NodeName) -> bool {
        self.agenda.is_marked(node)
    }

    /// The next pool whose status is due.
    #[must_use]
    pub fn next_pool(&self) -> Option<&PoolName> {
        self.agenda.pools.first()
    }

    /// The next time that changes something by itself.
    #[must_use]
    pub fn next_wake(&self) -> Option<Duration> {
        let turn = self.failures.next_turn();
        self.agenda.next_wake().into_iter().chain(self.waiting.next_look()).chain(turn).min()
    }

    /// Time has passed: decisions that waited for it are due.
    pub fn advance(&mut self, now: Now) {
        let due = self.agenda.advance(now.uptime);
        self.mark_nodes(due);
        for waiter in self.failures.take_turns(now.uptime) {
            self.mark_waiter(&waiter);
        }
        self.look_on(now.uptime);
        self.advance_conditions(now.uptime);
    }

    /// A decision for a node has been made and is being carried out.
    pub fn begin(&mut self, plan: &NodePlan, now: Now) {
        self.agenda.unmark_node(&plan.node);
        // The blocks that a node takes itself are not offered to it.
        self.waiting.forget(&plan.node);
        for request in plan.requests() {
            self.mark_sent(request, now);
        }
        let serving = &mut self.remember_of(&plan.node).serving;
        serving.note_unmet(plan, now.uptime);
        serving.note_lasting(plan, now.uptime);
        for cidr in &plan.cooling {
            if let Some(claim) = self.claims.get(cidr).map(|known| &known.claim) {
                let seen = self.cooling.entry(*cidr).or_insert_with(|| SeenCooling::of(claim));
                seen.seen_at.get_or_insert(now.uptime);
            }
        }
        self.note_routes(&plan.routes, now.uptime);
        if let Some(wake) = plan.wake {
            self.agenda.wake_node(&plan.node, wake);
        }
        if plan.saw_everything() && plan.requests().is_empty() {
            // Another replica may have done it; there is nothing to retry.
            self.remember_of(&plan.node).serving.pause.end();
            self.forget_failures(&Waiter::Node(plan.node.clone()));
        }
        if plan.too_many_drains {
            self.pace.stopped.get_or_insert(now.uptime);
        }
        self.note_waiting(plan);
        self.note_availability(plan);
        self.forget_if_gone(&plan.node);
        self.mark_pools_of(&plan.node);
    }

    /// Whether a node lacks only a part of its first grant under a name. Its pools have the rest, but it does not claim
    /// that alone.
    fn lacks_the_rest(&self, node: &NodeName, unmet: &Unmet) -> bool {
        let class = unmet.class();
        let serving = self.serving(node);
        let has = |family: &Family| {
            let other = AddressClass { family: *family, ..class.clone() };
            let mut unmet = serving.into_iter().flat_map(|serving| &serving.unmet);
            unmet.all(|unmet| *unmet.class() != other)
                && self.pools_for(node, &other).any(|pool| self.gives_out_of(pool, *family))
        };
        !self.is_served_under(node, class.pod_ip_pool.as_ref())
            && self.reader_of(node).families().iter().filter(|family| **family != class.family).any(has)
    }

    /// The node has asked all of its pools for its shortage, or would ask them as soon as it may.
    fn note_waiting(&mut self, plan: &NodePlan) {
        let is_served = self.is_served(&plan.node);
        let unmet = || self.serving(&plan.node).into_iter().flat_map(|serving| &serving.unmet);
        let is_at_limit = !is_served && unmet().any(|unmet| matches!(unmet, Unmet::AtLimit(_)));
        let is_incomplete = unmet().any(|unmet| self.lacks_the_rest(&plan.node, unmet));
        let is_passive_waiter = is_at_limit || is_incomplete;
        let classes = unmet().filter(|unmet| match unmet {
            Unmet::NoCapacity(_) => true,
            // Blocks with few addresses may have exhausted its limit in the first grant. Others may offer more.
            Unmet::AtLimit(_) => !is_served,
            Unmet::Held(_) => false,
        });
        let sources = classes.map(Unmet::class).flat_map(|class| {
            self.pools_for(&plan.node, class).map(|pool| (pool.name.clone(), class.family))
        });
        let sources = sources.collect();
        self.waiting.set(self.place_of(&plan.node), sources, is_passive_waiter);
        let ledger = &self.ledger;
        self.waiting.retain_offers(|(pool, family), region| ledger.has_free_in(pool, *family, region));
    }

    /// It is decided that a pool gets a new status, keeps its status, or is looked at later.
    pub fn begin_status(&mut self, pool: &PoolName, decision: &PoolPlan, now: Now) {
        self.agenda.pools.remove(pool);
        if let Some(object) = self.pools.get(pool) {
            self.agenda.deletion_seen(pool, object.deleting.then_some(now.uptime));
        }
        match decision {
            PoolPlan::Unchanged => {}
            PoolPlan::UpToDate | PoolPlan::UpToDateUntil(_) => {
                self.agenda.status_looked_at.insert(pool.clone(), now.uptime);
                if let PoolPlan::UpToDateUntil(wake) = decision {
                    self.agenda.wake_pool(pool, *wake);
                }
                if let Some((pause, _)) = self.pool_writes.get_mut(pool) {
                    pause.end();
                }
                self.forget_failures(&Waiter::Pool(pool.clone()));
            }
            PoolPlan::Later(wake) => self.agenda.wake_pool(pool, *wake),
            PoolPlan::Write(writes) => {
                for write in writes {
                    if !matches!(write, Write::PoolFinalizers(_)) {
                        self.agenda.status_looked_at.insert(pool.clone(), now.uptime);
                    }
                    self.mark_sent(&Request::Write(write.clone()), now);
                }
            }
        }
    }

    /// When the status of a pool was last compared with the world.
    #[must_use]
    pub fn status_looked_at(&self, pool: &PoolName) -> Option<Duration> {
        self.agenda.status_looked_at.get(pool).copied()
    }

    /// When this process first looked at the pool as one that is being deleted.
    #[must_use]
    pub fn deletion_seen(&self, pool: &PoolName) -> Option<Duration> {
        self.agenda.deletion_seen_at.get(pool).copied()
    }

    pub(super) fn mark_sent(&mut self, request: &Request, now: Now) {
        let (creates, reads_claims_for) = match request {
            Request::Write(Write::CreateClaim(new)) => (Some((new.cidr, new.pool.clone())), None),
            Request::Read(Read::ClaimsOf(node)) => {
                (None, self.carrier(node).map(|carrier| carrier.uid().clone()))
            }
            Request::Write(_) | Request::Read(_) => (None, None),
        };
        let sent = Sent { node: request.node().cloned(), creates, reads_claims_for, at: now.uptime };
        self.in_flight.insert(request.target(), sent);
        let Request::Write(write) = request else {
            return;
        };
        debug_assert!(!self.freeze.stops_write(write), "writes are frozen: {write}");
        debug_assert!(self.leadership == Leadership::Leads, "this process stands by: {write}");
        match write {
            Write::CreateClaim(claim) => {
                self.take(claim.cidr, Occupant::Pending);
            }
            Write::Publish(Publication { node, .. }) | Write::BumpVersion(BumpVersion { node, .. }) => {
                self.remember_of(node).serving.last_patch = Some(now.uptime);
            }
            Write::UsageQuery(UsageQuery { node, step, .. }) => {
                let serving = &mut self.remember_of(node).serving;
                serving.last_patch = Some(now.uptime);
                if *step == QueryStep::Ask {
                    serving.last_query = Some(now.uptime);
                    self.note_asked(node);
                }
            }
            Write::Withdraw(Withdrawal { node, step, .. }) => {
                self.remember_of(node).serving.last_patch = Some(now.uptime);
                match step {
                    WithdrawalStep::Fence => self.note_asked(node),
                    WithdrawalStep::Mark => drop(self.pace.in_handshake.insert(node.clone())),
                    WithdrawalStep::Confirm | WithdrawalStep::Remove | WithdrawalStep::Clear => {}
                }
            }
            Write::UpdateClaim(update) => self.note_move(update, now),
            Write::CreateCiliumNode(_)
            | Write::PoolStatus(_)
            | Write::PoolFinalizers(_)
            | Write::ClaimStatus(_)
            | Write::NodeCondition(_)
            | Write::PodIpPool(_)
            | Write::Frr(_) => {}
        }
    }

    /// A block of a node that exists starts draining or being removed, or stays after all.
    fn note_move(&mut self, update: &ClaimUpdate, now: Now) {
        let state = self.claim(update.cidr).map(|known| known.claim.state.clone());
        match &update.change {
            ClaimChange::Drain(_) if state == Some(ClaimState::Held) => self.pace.begins(now.uptime),
            ClaimChange::Drain(_) => {
                let serving = &mut self.remember_of(&update.node).serving;
                serving.last_kept = Some(now.uptime);
                serving.n_refused = serving.n_refused.saturating_add(1);
            }
            ClaimChange::Release(Reason::Reclaimed) if self.is_removed_without_drain(update.cidr) => {
                self.pace.begins(now.uptime);
            }
            ClaimChange::Cool => self.remember_of(&update.node).serving.n_refused = 0,
            ClaimChange::Hold(_) => {
                if matches!(state, Some(ClaimState::Draining(_))) {
                    self.remember_of(&update.node).serving.last_kept = Some(now.uptime);
                }
            }
            ClaimChange::Keep | ClaimChange::Release(_) | ClaimChange::Delete => {}
        }
    }

    /// Whether a released block is still on its carrier, in a mode that removes blocks without a drain.
    fn is_removed_without_drain(&self, cidr: Cidr) -> bool {
        let Some(claim) = self.claim(cidr).map(|known| &known.claim) else { return false };
        let reader = self.reader_of(&claim.node);
        reader.traits().removes_with_query
            && self.carrier(&claim.node).is_some_and(|carrier| reader.lists(carrier, cidr))
    }

    /// The reads that are due because a list lacks claims that only an answer has shown.
    #[must_use]
    pub fn unconfirmed(&self) -> Vec<Read> {
        self.agenda
            .unconfirmed
            .iter()
            .filter_map(|cidr| self.claims.get(cidr))
            .filter(|known| !known.shown && !self.is_in_flight(&Target::Claim(known.claim.cidr)))
            .map(|known| Read::Claim(known.claim.cidr, known.claim.node.clone()))
            .collect()
    }

    /// Unconfirmed claims are being read.
    pub fn begin_confirming(&mut self, reads: &[Read], now: Now) {
        let asked: BTreeSet<Target> = reads.iter().map(Read::target).collect();
        // A claim with a request in flight is read after that.
        let claims = &self.claims;
        self.agenda.unconfirmed.retain(|cidr| {
            claims.get(cidr).is_some_and(|known| !known.shown) && !asked.contains(&Target::Claim(*cidr))
        });
        for read in reads {
            self.mark_sent(&Request::Read(read.clone()), now);
        }
    }

    /// The memory of a node. A caller that adds to it calls [`Self::forget_if_gone`] if nothing of the node may be
    /// left.
    pub(super) fn remember_of(&mut self, node: &NodeName) -> &mut Remembered {
        &mut self.entries.of(node).remembered
    }

    /// Forgets a node if nothing of it is left.
    pub(super) fn forget_if_gone(&mut self, node: &NodeName) {
        if self.is_gone(node) {
            self.entries.remove(node);
            self.agenda.forget_node(node);
            self.waiting.forget(node);
            self.conditions.forget(node);
            self.forget_failures(&Waiter::Node(node.clone()));
            self.forget_failures(&Waiter::Condition(node.clone()));
        }
    }

    /// Whether nothing is left of a node: no object, no claim, no lost claim, no request in flight.
    pub(super) fn is_gone(&self, node: &NodeName) -> bool {
        self.entries.get(node).is_none_or(NodeEntry::has_no_objects)
            && self.lost_claims_of(node).next().is_none()
            && !self.has_in_flight(node)
    }

    /// Whether a request on behalf of this node is under way.
    fn has_in_flight(&self, node: &NodeName) -> bool {
        self.in_flight.values().any(|sent| sent.node.as_ref() == Some(node))
    }
}
