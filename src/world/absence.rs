//! How the world takes in that an object no longer exists: its deletion was seen, or a list or read does not have it.
//!
//! Keeps one invariant: if a claim was deleted out of order, or it is unknown how, its block stays taken.

use std::collections::BTreeMap;

use super::beside_claims::addresses_of;
use super::node_entries::NodeEntry;
use super::{LostClaim, SeenCooling, Waiter, World};
use crate::ledger::Occupant;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName};
use crate::model::node::CiliumNode;
use crate::model::outcome::Presence;
use crate::model::request::Target;
use crate::model::revision::{AnyRevision, Core, Revision};
use crate::net::cidr::Cidr;
use crate::publisher;

/// How the end of a claim is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Departure {
    /// A watch, or the answer to our own deletion, showed its last version and its deletion.
    Seen,
    /// A list or a read does not have it. The state in which it was deleted is unknown.
    Inferred,
}

impl World {
    /// A known object is missing in a list that shows the store as it was between two revisions.
    pub(super) fn observe_absence_from_list(
        &mut self,
        kind: Kind,
        name: &str,
        at_least: AnyRevision,
        at_most: AnyRevision,
    ) {
        if kind == Kind::Claim
            && let Some(known) = self.claim_named(name)
            && !known.shown
            && AnyRevision::from(known.claim.revision) > at_least
        {
            // Known from an answer that may be newer than the list. If it is, the watch will show the claim; if it is
            // not, the watch never will. So the claim is read.
            let cidr = known.claim.cidr;
            self.agenda.unconfirmed.insert(cidr);
            return;
        }
        self.observe_deletion(kind, name, at_most, Departure::Inferred);
    }

    pub(super) fn observe_deletion(&mut self, kind: Kind, name: &str, revision: AnyRevision, how: Departure) {
        match revision {
            AnyRevision::Core(revision) => self.observe_node_deletion(&NodeName::from(name), revision),
            AnyRevision::Custom(revision) => self.observe_custom_deletion(kind, name, revision, how),
        }
        self.forget_unreadable(kind, name);
    }

    fn observe_custom_deletion(&mut self, kind: Kind, name: &str, revision: Revision, how: Departure) {
        match kind {
            // Nodes are in the other store.
            Kind::Node => {}
            Kind::CiliumNode => self.observe_cilium_node_deletion(&NodeName::from(name), revision),
            Kind::Pool => self.observe_pool_deletion(&PoolName::from(name), revision),
            Kind::Claim => {
                if let Some(cidr) = self.claim_named(name).map(|known| known.claim.cidr) {
                    self.observe_claim_deletion(cidr, revision, how);
                } else if let Some(unreadable) = self.unreadable(kind, name).cloned() {
                    for cidr in unreadable.addresses.cidrs() {
                        let lost = LostClaim { cidr, at: revision, claim: None, was_seen: false };
                        self.lose_claim(unreadable.node.clone(), lost);
                    }
                }
            }
        }
    }

    fn observe_node_deletion(&mut self, name: &NodeName, revision: Revision<Core>) {
        if self.node(name).is_some_and(|known| known.revision > revision) {
            return;
        }
        self.mark_pools_of(name);
        let gone = self.entries.get_mut(name).and_then(|entry| entry.node.take());
        self.set_selection(name, Vec::new());
        if let Some(gone) = &gone {
            self.set_routed(name, Some(gone));
            self.set_joined(name, Some(gone));
            self.cool_anew(name);
            if self.derive_publisher_of(name) {
                self.mark_all_pools();
            }
        }
        if let Some(NodeEntry { remembered, .. }) = self.entries.get_mut(name) {
            (remembered.presence, remembered.former_carrier) = (None, None);
        }
        self.settle_lost_claims(name);
        if let Some(NodeEntry { remembered, .. }) = self.entries.get_mut(name) {
            remembered.absent_as_of = None;
        }
        let addresses = gone.map(|gone| addresses_of(&gone)).unwrap_or_default();
        self.set_own_addresses(Kind::Node, name, &addresses, &[]);
        self.update_carried(name);
        self.node_changed(name);
        self.forget_if_gone(name);
    }

    /// A known Node was deleted. Blocks that cool since an earlier deletion of it cool for their whole time again.
    fn cool_anew(&mut self, name: &NodeName) {
        let lost = |claim: &&Claim| claim.state == ClaimState::Cooling(Reason::NodeGone);
        let cooling: Vec<Claim> =
            self.claims_of(name).map(|known| &known.claim).filter(lost).cloned().collect();
        for claim in cooling {
            self.cooling.insert(claim.cidr, SeenCooling { node_went: true, ..SeenCooling::of(&claim) });
        }
    }

    fn observe_cilium_node_deletion(&mut self, name: &NodeName, revision: Revision) {
        if self.cilium_node(name).is_some_and(|known| known.revision > revision) {
            return;
        }
        if let Some(gone) = self.entries.get_mut(name).and_then(|entry| entry.cilium_node.take()) {
            let addresses = gone.addresses.clone();
            self.remember(*gone);
            self.set_own_addresses(Kind::CiliumNode, name, &addresses, &[]);
        }
        self.update_carried(name);
        self.update_handshake(name);
        self.settle_lost_claims(name);
        self.node_changed(name);
        self.forget_if_gone(name);
    }

    /// Keeps the fields of a deleted or replaced CiliumNode: if its Node exists, the agent keeps using the addresses.
    pub(super) fn remember(&mut self, gone: CiliumNode) {
        let name = gone.name.clone();
        if self.node(&name).is_none() {
            return;
        }
        let former = publisher::remember(gone);
        let remembered = self.remember_of(&name);
        remembered.former_carrier = former.or_else(|| remembered.former_carrier.take());
    }

    fn observe_pool_deletion(&mut self, name: &PoolName, revision: Revision) {
        if self.pools.get(name).is_some_and(|known| known.revision > revision) {
            return;
        }
        if let Some(before) = self.pools.remove(name) {
            self.pool_writes.remove(name);
            self.forget_failures(&Waiter::Pool(name.clone()));
            self.pool_changed(name, Some(&before));
            self.agenda.forget_pool(name);
        }
    }

    pub(super) fn observe_claim_deletion(&mut self, cidr: Cidr, revision: Revision, how: Departure) {
        let Some(known) = self.claims.get(&cidr).filter(|known| known.claim.revision <= revision) else {
            return;
        };
        let (node, pool) = (known.claim.node.clone(), known.claim.pool.clone());
        let claim = known.claim.clone();
        if how == Departure::Inferred || !claim.may_be_deleted() {
            let was_seen = how == Departure::Seen;
            let lost = LostClaim { cidr, at: revision, claim: Some(claim), was_seen };
            self.lose_claim(Some(node.clone()), lost);
        }
        self.claims.remove(&cidr);
        self.move_claim(cidr, Some(&pool), None);
        self.cooling.remove(&cidr);
        self.remaining.remove(&cidr);
        self.disown(&node, cidr);
        // The addresses of the block that are still on the CiliumNode are entered before the claim is removed.
        self.update_carried(&node);
        self.release(cidr, &Occupant::Claim);
        self.settle_lost_claims(&node);
        self.node_changed(&node);
        self.forget_if_gone(&node);
        self.agenda.mark_pool(&pool);
    }

    /// Our read found no object of this key.
    pub(super) fn observe_absence(&mut self, target: &Target, revision: Revision) {
        match target {
            Target::Claim(cidr) => {
                self.observe_claim_deletion(*cidr, revision, Departure::Inferred);
            }
            // If the CiliumNode is known, the watch will show its deletion, in its order.
            Target::CiliumNode(name) => {
                if self.cilium_node(name).is_none() {
                    let remembered = self.remember_of(name);
                    remembered.absent_as_of = remembered.absent_as_of.max(Some(revision));
                    self.settle_lost_claims(name);
                }
            }
            Target::ClaimsOf(_)
            | Target::Node(_)
            | Target::PodsOf(_)
            | Target::Pool(_)
            | Target::NodeCondition(_)
            | Target::PodIpPool(_)
            | Target::Frr(_) => {}
        }
    }

    /// Keeps the block of a lost claim taken.
    fn lose_claim(&mut self, holder: Option<NodeName>, lost: LostClaim) {
        self.take(lost.cidr, Occupant::LostClaim(holder.clone()));
        self.lost_by_revision.insert((lost.at, holder.clone()));
        self.lost_claims.entry(holder).or_default().insert(lost.cidr, lost);
    }

    /// A lost claim no longer takes its range.
    fn release_lost(&mut self, cidr: Cidr, holder: Option<NodeName>) {
        let Some(of_holder) = self.lost_claims.get_mut(&holder) else { return };
        let lost = of_holder.remove(&cidr);
        if of_holder.is_empty() {
            self.lost_claims.remove(&holder);
        }
        if let Some(claim) = lost.and_then(|lost| lost.claim) {
            self.agenda.mark_pool(&claim.pool);
        }
        self.release(cidr, &Occupant::LostClaim(holder.clone()));
        if let Some(node) = holder {
            self.mark(&node);
            self.forget_if_gone(&node);
        }
    }

    /// The claim of this block exists again, and its node is known.
    pub(super) fn find_lost_claims(&mut self, cidr: Cidr) {
        let is_lost = |occupant: &&Occupant| matches!(occupant, Occupant::LostClaim(_));
        let lost: Vec<Occupant> = self.ledger.occupants(cidr).iter().filter(is_lost).cloned().collect();
        for occupant in lost {
            if let Occupant::LostClaim(holder) = occupant {
                self.release_lost(cidr, holder);
            }
        }
    }

    /// Settles the lost claims of a node, where this is possible.
    pub(super) fn settle_lost_claims(&mut self, node: &NodeName) {
        self.settle_lost_claims_of(Some(node));
    }

    /// Settles the lost claims that the watch of CiliumNodes has passed, where that is sufficient. The others wait for
    /// a change of their node.
    pub(super) fn settle_passed_lost_claims(&mut self) {
        let position = self.position(Kind::CiliumNode);
        while self.lost_by_revision.first().is_some_and(|(at, _)| Some(*at) <= position)
            && let Some((_, holder)) = self.lost_by_revision.pop_first()
        {
            self.settle_lost_claims_of(holder.as_ref());
        }
    }

    /// A settled lost claim leaves taken only the addresses that the carrier of its node shows. It is settled when the
    /// carrier has a version later than the loss, or is known not to exist. The version from before the loss is not
    /// sufficient: a replica with an old view may still patch it. If the node may keep using the block, the claim is
    /// recreated instead ([`Self::is_recreated`]). An unreadable claim can't be recreated. Its range stays taken while
    /// the node exists, unless the carrier shows all of it and so takes it.
    fn settle_lost_claims_of(&mut self, holder: Option<&NodeName>) {
        let is_settled = |lost: &LostClaim| match holder {
            Some(node) => self.is_settled(node, lost),
            // It may be of any node, so only the position of the watch counts.
            None => self.position(Kind::CiliumNode) >= Some(lost.at),
        };
        let lost = self.lost_claims.get(&holder.cloned()).into_iter().flat_map(BTreeMap::values);
        let settled: Vec<Cidr> = lost.filter(|lost| is_settled(lost)).map(|lost| lost.cidr).collect();
        for cidr in settled {
            self.release_lost(cidr, holder.cloned());
        }
    }

    fn is_settled(&self, node: &NodeName, lost: &LostClaim) -> bool {
        let takes_it_itself = || {
            let carried = self.ledger.carried(node);
            lost.claim.is_none() && carried.is_some_and(|carried| carried.covers(lost.cidr))
        };
        let reader = self.reader_of(node);
        let is_known = match (self.carrier(node), reader.traits().carrier) {
            (Some(carrier), _) => reader.shows_later(carrier, lost.at),
            // A read after the loss must have found that the Node does not exist.
            (None, Kind::Node) => {
                let read = self.remembered(node).and_then(|remembered| remembered.presence.as_ref());
                read.is_some_and(|read| read.as_of >= lost.at && read.presence == Presence::Gone)
            }
            (None, Kind::CiliumNode | Kind::Pool | Kind::Claim) => self.absent_as_of(node) >= Some(lost.at),
        };
        is_known && (!self.keeps_lost(node, lost) || takes_it_itself())
    }
}
