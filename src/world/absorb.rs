//! How the world takes in the news of watches, lists and answers: object by object, each by its version.
//!
//! Keeps two invariants. No older version replaces a newer one, in any order of arrival. And no address that is held or
//! published anywhere is ever free in between: the new occupant is entered before the old one is removed.

use std::collections::BTreeSet;

use super::absence::Departure;
use super::beside_claims::addresses_of;
use super::{KnownClaim, World};
use crate::ledger::Occupant;
use crate::model::claim::{Claim, block_name, block_named};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName};
use crate::model::node::{CiliumNode, Node};
use crate::model::observation::{Contradiction, Listing, Object, Observation, PoolObject, Unreadable};
use crate::model::plan::TimedState;
use crate::model::pool::{Pool, Reservation};
use crate::model::revision::{AnyRevision, Revision};
use crate::net::cidr::{Cidr, Family};

/// Where an object was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// In the ordered stream of its kind, which shows every version.
    Watch,
    /// In a list of its kind, which shows only the latest version.
    List,
    /// In the answer to our write or read, at this consistent revision if the answer has one.
    Answer(Option<Revision>),
}

impl World {
    /// Takes in the news of a watch or list.
    pub fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Listed(listing) => self.observe_listing(listing),
            Observation::Applied(object) => {
                let (kind, revision) = (object.kind(), object.revision());
                self.observe_object(*object, Source::Watch);
                if let Some(revision) = revision {
                    self.reach(kind, revision);
                }
            }
            Observation::Deleted { kind, name, revision } => {
                self.observe_deletion(kind, &name, revision, Departure::Seen);
                self.reach(kind, revision);
            }
        }
    }

    fn observe_listing(&mut self, listing: Listing) {
        let Listing { kind, at_least, at_most, objects } = listing;
        let listed: BTreeSet<String> = objects.iter().map(Object::name).collect();
        for object in objects {
            if let (Some(shown), false) = (object.revision(), matches!(object, Object::Unreadable(..))) {
                self.compare(kind, &object.name(), shown, at_least);
            }
            self.observe_object(object, Source::List);
        }
        for name in self.names_of(kind) {
            if !listed.contains(&name) {
                self.observe_absence_from_list(kind, &name, at_least, at_most);
            }
        }
        self.listed.insert(kind, at_most);
        self.reach(kind, at_least);
    }

    /// Notes a contradiction. If an object was known at a version, a read as of that version or later can't show an
    /// earlier one.
    pub(super) fn compare(&mut self, kind: Kind, name: &str, shown: AnyRevision, as_of: AnyRevision) {
        let known = self.known_revision(kind, name);
        if let Some(known) = known.filter(|known| shown < *known && *known <= as_of)
            && self.contradiction.is_none()
        {
            self.contradiction = Some(Contradiction { kind, name: name.to_owned(), shown, as_of, known });
        }
    }

    fn names_of(&self, kind: Kind) -> Vec<String> {
        let mut names: Vec<String> = match kind {
            Kind::Node => self.nodes().map(|node| node.name.to_string()).collect(),
            Kind::CiliumNode => self.cilium_nodes().map(|node| node.name.to_string()).collect(),
            Kind::Pool => self.pools.keys().map(ToString::to_string).collect(),
            Kind::Claim => self.claims.keys().map(|cidr| block_name(*cidr)).collect(),
        };
        names.extend(self.unreadable.of_kind(kind).map(|unreadable| unreadable.name.clone()));
        names
    }

    pub(super) fn claim_named(&self, name: &str) -> Option<&KnownClaim> {
        self.claim(block_named(name)?)
    }

    /// The watch of a kind has reached this revision.
    fn reach(&mut self, kind: Kind, revision: AnyRevision) {
        let position = self.positions.get(&kind);
        if position.is_some_and(|position| revision <= *position) {
            return;
        }
        self.positions.insert(kind, revision);
        if kind == Kind::CiliumNode {
            self.settle_passed_lost_claims();
        }
    }

    fn observe_object(&mut self, object: Object, source: Source) {
        let (kind, name) = (object.kind(), object.name());
        match object {
            Object::Node(node) => self.observe_node(node),
            Object::CiliumNode(cilium_node) => self.observe_cilium_node(cilium_node, source),
            Object::Pool(pool) => self.observe_pool(pool),
            Object::Claim(claim) => self.observe_claim(claim, source),
            Object::Unreadable(_, unreadable) => {
                self.observe_unreadable(kind, unreadable);
                return;
            }
        }
        self.forget_unreadable(kind, &name);
    }

    pub(super) fn observe_node(&mut self, node: Node) {
        if self.node(&node.name).is_some_and(|known| known.revision > node.revision) {
            return;
        }
        let name = node.name.clone();
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.remembered.presence = None;
            if entry.node.as_ref().is_some_and(|before| before.uid != node.uid) {
                entry.remembered.serving.availability = None;
            }
        }
        let own_before = self.node(&name).map(addresses_of).unwrap_or_default();
        self.set_own_addresses(Kind::Node, &name, &own_before, &addresses_of(&node));
        self.mark_pools_of(&name);
        let is_labelled_anew = self.node(&name).is_none_or(|before| before.labels != node.labels);
        if is_labelled_anew {
            let selection = self.selected_by(&node.labels);
            self.set_selection(&name, selection);
        }
        let carried_before = self.carried_by_node(&name);
        let before = self.entries.of(&name).node.replace(Box::new(node));
        self.set_routed(&name, before.as_deref());
        self.set_joined(&name, before.as_deref());
        if is_labelled_anew && self.derive_publisher_of(&name) {
            // Pools report the names under which they give blocks.
            self.mark_all_pools();
            self.update_handshake(&name);
        }
        if carried_before != self.carried_by_node(&name) {
            self.update_carried_without(&name, &carried_before);
        }
        if self.reader_of(&name).traits().carrier == Kind::Node {
            self.settle_lost_claims(&name);
        }
        self.node_changed(&name);
    }

    pub(super) fn observe_cilium_node(&mut self, cilium_node: CiliumNode, source: Source) {
        let name = cilium_node.name.clone();
        match self.cilium_node(&name) {
            Some(known) if known.revision > cilium_node.revision => return,
            // The watch or a list has overtaken the answer: the object was deleted since, or the watch will show it.
            None if matches!(source, Source::Answer(_))
                && (Some(cilium_node.revision) <= self.position(Kind::CiliumNode)
                    || self.may_be_listed(Kind::CiliumNode, cilium_node.revision)) =>
            {
                return;
            }
            _ => {}
        }
        let own_before = self.cilium_node(&name).map(|known| known.addresses.clone()).unwrap_or_default();
        self.set_own_addresses(Kind::CiliumNode, &name, &own_before, &cilium_node.addresses);
        let uid = cilium_node.uid.clone();
        let entry = self.entries.of(&name);
        let before = entry.cilium_node.replace(Box::new(cilium_node));
        let is_another = before.as_ref().is_none_or(|before| before.uid != uid);
        if is_another {
            // The reads of the Pods said nothing about the machine that has returned.
            entry.remembered.serving.begin_anew(TimedState::FormerModeOver);
        }
        match before {
            Some(before) if is_another => self.remember(*before),
            // Otherwise the answer, or the report of the use, may be an earlier version that was missed. The agent gets
            // the query again.
            Some(before)
                if source == Source::Watch && !self.is_unreadable(Kind::CiliumNode, name.as_str()) =>
            {
                self.note_use_written(&before);
                self.note_answered(&before);
            }
            Some(_) | None => {}
        }
        self.remember_of(&name).absent_as_of = None;
        self.update_carried(&name);
        self.update_handshake(&name);
        self.settle_lost_claims(&name);
        self.node_changed(&name);
    }

    pub(super) fn observe_claim(&mut self, claim: Claim, source: Source) {
        let cidr = claim.cidr;
        let known = self.claims.get(&cidr);
        match (known, source) {
            (Some(known), Source::Watch | Source::List) if known.claim.revision > claim.revision => {
                if known.claim.uid == claim.uid {
                    let node = known.claim.node.clone();
                    if let Some(known) = self.claims.get_mut(&cidr) {
                        known.shown = true;
                    }
                    self.mark(&node);
                }
                return;
            }
            (Some(known), Source::Answer(_)) if known.claim.revision > claim.revision => return,
            (None, Source::Answer(_)) if Some(claim.revision) <= self.position(Kind::Claim) => return,
            (None, Source::Answer(_)) if self.may_be_listed(Kind::Claim, claim.revision) => {
                // The list may be older than the answer, or later. So the claim is read.
                self.agenda.unconfirmed.insert(cidr);
            }
            _ => {}
        }
        let same = known.filter(|known| known.claim.uid == claim.uid);
        let confirmed = match source {
            Source::Answer(revision) => revision,
            Source::Watch | Source::List => None,
        };
        let confirmed = same.map_or(confirmed, |known| known.confirmed.max(confirmed));
        let shown = !matches!(source, Source::Answer(_)) || same.is_some_and(|known| known.shown);
        let (node, pool) = (claim.node.clone(), claim.pool.clone());
        if self.cooling.get(&cidr).is_some_and(|seen| !seen.is_of(&claim)) {
            self.cooling.remove(&cidr);
        }
        if self.remaining.get(&cidr).is_some_and(|seen| !seen.is_of(&claim)) {
            self.remaining.remove(&cidr);
        }
        let before = self.claims.insert(cidr, Box::new(KnownClaim { claim, shown, confirmed }));
        let before_pool = before.as_ref().map(|before| before.claim.pool.clone());
        self.move_claim(cidr, before_pool.as_ref(), Some(&pool));
        self.take(cidr, Occupant::Claim);
        self.find_lost_claims(cidr);
        if let Some(before) = before
            && before.claim.node != node
        {
            self.disown(&before.claim.node, cidr);
            self.update_carried(&before.claim.node);
            self.node_changed(&before.claim.node);
            self.forget_if_gone(&before.claim.node);
        }
        if self.entries.of(&node).claims.insert(cidr) {
            self.update_carried(&node);
        }
        self.node_changed(&node);
        if let Some(before) = before_pool {
            self.agenda.mark_pool(&before);
        }
    }

    pub(super) fn disown(&mut self, node: &NodeName, cidr: Cidr) {
        if let Some(entry) = self.entries.get_mut(node) {
            entry.claims.remove(&cidr);
        }
    }

    pub(super) fn observe_pool(&mut self, pool: PoolObject) {
        let name = pool.name.clone();
        if self.pools.get(&name).is_some_and(|known| known.revision > pool.revision) {
            return;
        }
        self.agenda.mark_pool(&name);
        let before = self.pools.insert(name.clone(), pool);
        if before.as_ref().map(what_counts) != self.pools.get(&name).map(what_counts) {
            self.pool_changed(&name, before.as_ref());
        }
        let sizes = before.iter().flat_map(former_sizes);
        if !sizes.eq(self.pools.get(&name).into_iter().flat_map(former_sizes)) {
            self.sizes_changed(&name);
        }
    }

    pub(super) fn observe_unreadable(&mut self, kind: Kind, unreadable: Unreadable) {
        let name = unreadable.name.clone();
        let occupant = Occupant::unreadable(kind, &name);
        let taken: BTreeSet<Cidr> = unreadable.addresses.cidrs().collect();
        for cidr in &taken {
            self.take(*cidr, occupant.clone());
        }
        // The earlier version stays known and taken, but the plan decides nothing on it.
        let (holder, pool) = (unreadable.node.clone(), unreadable.pool.clone());
        if let Some(before) = self.unreadable.insert(kind, unreadable) {
            self.mark_if_there(before.node.as_ref());
            self.mark_pool_if_there(before.pool.as_ref());
            for cidr in before.addresses.cidrs().filter(|cidr| !taken.contains(cidr)) {
                self.release(cidr, &occupant);
            }
        }
        self.mark_if_there(holder.as_ref());
        self.mark_pool_if_there(pool.as_ref());
        self.mark_subject(kind, &name);
    }

    /// A pool that an unreadable claim names.
    fn mark_pool_if_there(&mut self, pool: Option<&PoolName>) {
        if let Some(pool) = pool.filter(|pool| self.pools.contains_key(*pool)) {
            self.agenda.mark_pool(pool);
        }
    }

    /// A node that an unreadable claim names.
    fn mark_if_there(&mut self, node: Option<&NodeName>) {
        if let Some(node) = node.filter(|node| !self.is_gone(node)) {
            self.mark(node);
        }
    }

    pub(super) fn forget_unreadable(&mut self, kind: Kind, name: &str) {
        if let Some(before) = self.unreadable.remove(kind, name) {
            let occupant = Occupant::unreadable(kind, name);
            for cidr in before.addresses.cidrs() {
                self.release(cidr, &occupant);
            }
            self.mark_if_there(before.node.as_ref());
            self.mark_pool_if_there(before.pool.as_ref());
            self.mark_subject(kind, name);
            if matches!(kind, Kind::Node | Kind::CiliumNode) {
                // The unreadable object may have kept lost claims from being settled.
                self.settle_lost_claims(&NodeName::from(name));
            }
        }
    }

    fn mark_subject(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::Node | Kind::CiliumNode => self.node_changed(&NodeName::from(name)),
            Kind::Pool => self.agenda.mark_pool(&PoolName::from(name)),
            Kind::Claim => {
                // The status of a deleted pool names the blocks that may keep it.
                if let Some(block) = block_named(name) {
                    self.mark_pools_over(block);
                }
                if let Some(claim) = self.claim_named(name).map(|known| &known.claim) {
                    let (node, pool, cidr) = (claim.node.clone(), claim.pool.clone(), claim.cidr);
                    self.mark(&node);
                    self.agenda.mark_pool(&pool);
                    self.addresses_taken(cidr);
                }
            }
        }
    }
}

/// The part of a pool on which nodes and their blocks depend. The blocks of an unreadable pool cool until it is
/// corrected or deleted.
fn what_counts(pool: &PoolObject) -> (Result<&Pool, &Reservation>, bool) {
    (pool.declaration(), pool.deleting)
}

/// The sizes that the blocks of a pool had, as its status says: a CIDR of such a size may become a claim.
fn former_sizes(pool: &PoolObject) -> impl Iterator<Item = (Family, u8)> + '_ {
    let sizes = pool.status.sizes.iter();
    sizes.flat_map(|(family, sizes)| sizes.counts.keys().map(move |size| (*family, *size)))
}
