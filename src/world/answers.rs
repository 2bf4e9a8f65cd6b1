//! How the world takes in the outcomes of requests: the object that an answer shows, and the waits that follow.

use std::collections::BTreeSet;

use super::absence::Departure;
use super::absorb::Source;
use super::failures::Next;
use super::pause::Cause;
use super::{NodeRead, Remembered, World};
use crate::ledger::Occupant;
use crate::model::claim::{Claim, block_name, block_named};
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::observation::Unreadable;
use crate::model::outcome::{Answer, Effect, Outcome, Seen};
use crate::model::request::{QueryStep, Read, Request, Target, UsageQuery, Write};
use crate::model::revision::Revision;
use crate::model::time::Now;
use crate::net::cidr::Cidr;

impl World {
    /// Takes in the outcome of a request.
    pub fn finish(&mut self, outcome: Outcome, now: Now) {
        let effect = outcome.effect();
        let took_effect = outcome.took_effect();
        let Outcome { request, answer, seen } = outcome;
        let (target, node) = (request.target(), request.node().cloned());
        let sent = self.in_flight.remove(&target);
        let is_refused_question = matches!(
            (&request, &answer),
            (
                Request::Write(Write::UsageQuery(UsageQuery { step: QueryStep::Ask, .. })),
                Answer::Conflict(_) | Answer::Refused(..)
            )
        );
        if let Request::Write(Write::Frr(write)) = &request {
            self.finish_frr(write, &answer, &seen, effect, now);
        }
        self.read_for_routes(node.as_ref(), &seen, now);
        let failed = (answer != Answer::Done).then(|| Cause::of(&answer, &seen));
        if let (Request::Read(Read::PodsOf(node, after)), Answer::Refused(why, _)) = (&request, &answer) {
            self.observe_pods_of(node, *after, Err(why.clone()), now);
        }
        match seen {
            Seen::Claim(claim) => self.observe_claim(*claim, Source::Answer(None)),
            Seen::CiliumNode(cilium_node) => {
                self.observe_cilium_node(*cilium_node, Source::Answer(None));
            }
            // The watch does not show it: it was deleted since, or the watch will show it.
            Seen::PatchedNode(node) => {
                if self.node(&node.name).is_some_and(|known| known.uid == node.uid) {
                    self.observe_node(*node);
                }
            }
            Seen::Deleted(uid) => {
                if let Target::Claim(cidr) = &target
                    && let Some(revision) = self
                        .claims
                        .get(cidr)
                        .filter(|known| known.claim.uid == uid)
                        .map(|known| known.claim.revision)
                {
                    self.observe_claim_deletion(*cidr, revision, Departure::Seen);
                }
            }
            // An answer does not restore a pool whose deletion the watch has shown.
            Seen::Pool(pool) if self.pools.contains_key(&pool.name) => self.observe_pool(*pool),
            Seen::PodIpPool(pool) => self.observe_written_pod_ip_pool(*pool),
            Seen::Frr(_) | Seen::Pool(_) | Seen::Nothing | Seen::Unreadable(_) => {}
            Seen::Absent(revision) => self.observe_absence(&target, revision),
            Seen::Node { as_of, read_at, presence } => {
                if let Some(node) = node.clone() {
                    // The watch may have overtaken the answer, and then it shows a later state. An answer that
                    // contradicts it would stay for ever, because no event would settle the two.
                    let overtaken = self.position(Kind::Node) > Some(read_at);
                    let presence = if overtaken { self.presence_as_watched(&node) } else { presence };
                    let read = NodeRead { as_of, answered_at: now.uptime, presence };
                    self.remember_of(&node).presence = Some(read);
                    self.settle_lost_claims(&node);
                }
            }
            Seen::PodsOf { after, pods } => {
                if let Some(node) = &node {
                    self.observe_pods_of(node, after, Ok(pods), now);
                }
            }
            Seen::ClaimsOf { revision, claims, unreadable } => {
                if let Some(node) = &node {
                    self.observe_claims_of(node, revision, claims, unreadable);
                    self.remember_of(node).claims_read_for =
                        sent.as_ref().and_then(|sent| sent.reads_claims_for.clone());
                }
            }
        }
        let sent_at = sent.as_ref().map_or(now.uptime, |sent| sent.at);
        let next = match &request {
            Request::Write(write) => self.note_failure(write, &answer, took_effect, sent_at, now),
            Request::Read(_) => Next::Own,
        };
        let is_read = matches!(request, Request::Read(_));
        let is_stale_read = is_read
            && matches!(&target, Target::CiliumNode(name)
                if self.cilium_node(name).is_none() && !self.is_known_absent(name));
        if let Request::Write(Write::CreateClaim(new)) = &request {
            self.agenda.mark_pool(&new.pool);
        }
        self.is_answered(&target);
        if let Some(node) = node {
            let Remembered { serving, writes, .. } = self.remember_of(&node);
            if is_refused_question {
                serving.last_query = None;
            }
            match (failed, &request) {
                // The node keeps blocks for longer. Other waits for this read have their own time
                // (`plan/released_by_agent.rs`).
                (Some(_), Request::Read(Read::PodsOf(..))) => {}
                (Some(_), _) if next == Next::Turn => serving.pause.count(),
                (Some(cause), _) => serving.pause.lengthen(cause, now),
                (None, Request::Write(write)) => writes.accepted(write, effect, &mut serving.pause, now),
                // The world knows that the result is overtaken. The watch will show the change.
                (None, Request::Read(_)) if is_stale_read => serving.pause.lengthen(Cause::Nothing, now),
                (None, Request::Read(_)) => {}
            }
            self.mark(&node);
            self.forget_if_gone(&node);
        }
        if let Request::Write(write) = &request {
            self.finish_pool(write, failed, next, effect, now);
        }
    }

    /// Takes in the outcome of a write of a pool: its pause is over, or grows.
    fn finish_pool(&mut self, write: &Write, failed: Option<Cause>, next: Next, effect: Effect, now: Now) {
        let Some(pool) = write.pool().cloned() else { return };
        // An answer about a deleted pool leaves no entry.
        if self.pools.contains_key(&pool) {
            let (pause, writes) = self.pool_writes.entry(pool.clone()).or_default();
            match failed {
                Some(_) if next == Next::Turn => pause.count(),
                Some(cause) => pause.lengthen(cause, now),
                None => writes.accepted(write, effect, pause, now),
            }
        }
        self.agenda.mark_pool(&pool);
    }

    /// Takes the known claims for all claims, as if those of each node had been read. A command that only proposes
    /// writes has listed all claims, and reads nothing more.
    pub fn suppose_all_claims_known(&mut self) {
        for name in self.nodes().map(|node| node.name.clone()).collect::<Vec<_>>() {
            if let Some(carrier) = self.carrier(&name).map(|carrier| carrier.uid().clone()) {
                self.remember_of(&name).claims_read_for = Some(carrier);
            }
        }
    }

    /// The request about this object was answered.
    fn is_answered(&mut self, target: &Target) {
        match target {
            Target::Claim(cidr) => {
                // If the claim exists, it is already entered.
                self.release(*cidr, &Occupant::Pending);
                // The block may be given out again, because no request about it is in flight.
                self.addresses_released(*cidr);
                // A claim of another node may have been in the way, and that node waited for the answer.
                if let Some(holder) = self.claims.get(cidr).map(|known| known.claim.node.clone()) {
                    self.mark(&holder);
                }
            }
            // Another pool than the writing one may have to write next.
            Target::PodIpPool(name) => self.mark_pools_under(name),
            Target::CiliumNode(_)
            | Target::ClaimsOf(_)
            | Target::Node(_)
            | Target::PodsOf(_)
            | Target::Frr(_)
            | Target::Pool(_) => {}
            Target::NodeCondition(node) => self.revisit_condition(node),
        }
    }

    /// Whether a read did not find the CiliumNode of this name.
    fn is_known_absent(&self, name: &NodeName) -> bool {
        self.remembered(name).is_some_and(|remembered| remembered.absent_as_of.is_some())
    }

    /// All claims of a node as of one revision, by a consistent read.
    fn observe_claims_of(
        &mut self,
        node: &NodeName,
        revision: Revision,
        claims: Vec<Claim>,
        unreadable: Vec<Unreadable>,
    ) {
        let mut found: BTreeSet<Cidr> = claims.iter().map(|claim| claim.cidr).collect();
        found.extend(unreadable.iter().filter_map(|unreadable| block_named(&unreadable.name)));
        for unreadable in unreadable {
            // The watch of claims will show it, unless it has already shown a later version.
            if unreadable.revision > self.positions.get(&Kind::Claim).copied() {
                self.observe_unreadable(Kind::Claim, unreadable);
            }
        }
        for claim in claims {
            self.compare(Kind::Claim, &block_name(claim.cidr), claim.revision.into(), revision.into());
            self.observe_claim(claim, Source::Answer(Some(revision)));
        }
        let missing: Vec<Cidr> =
            self.claims_of(node).map(|known| known.claim.cidr).filter(|cidr| !found.contains(cidr)).collect();
        for cidr in missing {
            self.observe_claim_deletion(cidr, revision, Departure::Inferred);
        }
        let remembered = self.remember_of(node);
        remembered.claims_read = remembered.claims_read.max(Some(revision));
    }
}
