//! The queries of other rooms: the objects of the world, and the facts that it knows beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{KnownClaim, LostClaim, NodeProgress, Remembered, RunningAgent, World, readable};
use crate::ledger::{Ledger, Occupant};
use crate::model::address_class::AddressClass;
use crate::model::agent::{AgentPod, NoAgent};
use crate::model::carrier::{Carrier, FormerCarrier};
use crate::model::cilium_version::CiliumVersion;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PodIpPoolName, PoolName, Uid};
use crate::model::node::{CiliumNode, Node};
use crate::model::observation::{Contradiction, PoolObject, Unreadable};
use crate::model::outcome::Presence;
use crate::model::pool::{DEFAULT_REUSE_AFTER, DEFAULT_REUSE_AFTER_NODE_LOSS, Pool, Ranges};
use crate::model::revision::{AnyRevision, Revision, Store};
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::support::Support;

impl World {
    /// A Node.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.entries.get(name)?.node.as_deref()
    }

    /// All Nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.entries.iter().filter_map(|(_, entry)| entry.node.as_deref())
    }

    /// A CiliumNode.
    #[must_use]
    pub fn cilium_node(&self, name: &NodeName) -> Option<&CiliumNode> {
        self.entries.get(name)?.cilium_node.as_deref()
    }

    /// All CiliumNodes.
    pub fn cilium_nodes(&self) -> impl Iterator<Item = &CiliumNode> {
        self.entries.iter().filter_map(|(_, entry)| entry.cilium_node.as_deref())
    }

    /// The memory of a node beside its objects.
    pub(super) fn remembered(&self, name: &NodeName) -> Option<&Remembered> {
        self.entries.get(name).map(|entry| &entry.remembered)
    }

    /// The names of the pools that select a node, in the order in which it asks them.
    pub(super) fn selection_of(&self, node: &NodeName) -> &[PoolName] {
        self.entries.get(node).map_or(&[], |entry| &entry.selection)
    }

    /// The blocks of the claims of a node, in numeric order.
    pub(super) fn blocks_of(&self, node: &NodeName) -> &[Cidr] {
        self.entries.get(node).map_or(&[], |entry| entry.claims.as_slice())
    }

    /// The object of a pool, readable or not.
    #[must_use]
    pub fn pool_object(&self, name: &PoolName) -> Option<&PoolObject> {
        self.pools.get(name)
    }

    /// A pool that could be read.
    #[must_use]
    pub fn pool(&self, name: &PoolName) -> Option<&Pool> {
        self.pools.get(name)?.pool.as_ref().ok()
    }

    /// All objects of pools.
    pub fn pool_objects(&self) -> impl Iterator<Item = &PoolObject> {
        self.pools.values()
    }

    /// The pools that can be read.
    pub fn readable_pools(&self) -> impl Iterator<Item = &Pool> {
        readable(&self.pools)
    }

    /// The pools that select a node, in the order in which it asks them: by priority, then by name.
    pub fn pools_of<'a>(&'a self, node: &NodeName) -> impl Iterator<Item = &'a Pool> + use<'a> {
        self.selection_of(node).iter().filter_map(|name| self.pool(name))
    }

    /// The pools of a node that give blocks of this class, in the same order.
    pub fn pools_for<'a, 'b>(
        &'a self,
        node: &NodeName,
        class: &'b AddressClass,
    ) -> impl Iterator<Item = &'a Pool> + use<'a, 'b> {
        let name = class.pod_ip_pool.as_ref();
        let reader = self.reader_of(node);
        self.pools_of(node).filter(move |pool| reader.pod_ip_pool_of(pool) == name)
    }

    /// A claim.
    #[must_use]
    pub fn claim(&self, cidr: Cidr) -> Option<&KnownClaim> {
        self.claims.get(&cidr).map(Box::as_ref)
    }

    /// All claims.
    pub fn claims(&self) -> impl Iterator<Item = &KnownClaim> {
        self.claims.values().map(Box::as_ref)
    }

    /// The claims of a node, in numeric order.
    pub fn claims_of(&self, node: &NodeName) -> impl Iterator<Item = &KnownClaim> {
        self.blocks_of(node).iter().filter_map(|cidr| self.claim(*cidr))
    }

    /// The other claims that share an address with a claim, in numeric order.
    pub fn overlapping(&self, claim: &Claim) -> impl Iterator<Item = &KnownClaim> {
        let cidr = claim.cidr;
        self.claims_over(cidr).filter(move |other| other.claim.cidr != cidr)
    }

    /// The claims that share an address with a range, in numeric order.
    pub fn claims_over(&self, range: Cidr) -> impl Iterator<Item = &KnownClaim> {
        self.ledger.overlapping_claims(range).filter_map(|block| self.claim(block))
    }

    /// The latest revision at which a claim is known to exist in its known version (safety rule 4).
    #[must_use]
    pub fn known_at(&self, known: &KnownClaim) -> Revision {
        let watched = self.position(Kind::Claim).filter(|_| known.shown);
        [known.confirmed, watched].into_iter().flatten().fold(known.claim.revision, Revision::max)
    }

    /// The revision that the watch of a kind has reached; `None` before its first, or in another store.
    #[must_use]
    pub fn position<S: Store>(&self, kind: Kind) -> Option<Revision<S>> {
        self.positions.get(&kind)?.within()
    }

    /// The latest revision at which a CiliumNode is known not to exist; `None` if it may exist.
    #[must_use]
    pub fn absent_as_of(&self, node: &NodeName) -> Option<Revision> {
        if self.cilium_node(node).is_some() || self.is_unreadable(Kind::CiliumNode, node.as_str()) {
            return None;
        }
        self.remembered(node)
            .and_then(|remembered| remembered.absent_as_of)
            .max(self.position(Kind::CiliumNode))
    }

    /// Whether the Node of a claim exists, at some time after the claim came to its present state; `None` if a read
    /// must find out.
    ///
    /// The watch of Nodes may be older than the claim. If one of two replicas has such a view, they would undo each
    /// other's moves for as long. The revisions of Nodes do not help: the core group may be in another store.
    #[must_use]
    pub fn presence(&self, claim: &Claim) -> Option<Presence> {
        match self.remembered(&claim.node).and_then(|remembered| remembered.presence.as_ref()) {
            Some(read) if read.as_of >= claim.revision => Some(read.presence.clone()),
            Some(_) | None => (Some(claim.revision) <= self.nodes_listed_after)
                .then(|| self.presence_as_watched(&claim.node)),
        }
    }

    /// The result of the last read of a Node since the watch last showed it, and when it was answered.
    #[must_use]
    pub fn presence_read(&self, node: &NodeName) -> Option<(Duration, &Presence)> {
        let read = self.remembered(node)?.presence.as_ref()?;
        Some((read.answered_at, &read.presence))
    }

    /// Whether a Node exists, as the watch of Nodes shows it.
    pub(super) fn presence_as_watched(&self, node: &NodeName) -> Presence {
        if self.is_unreadable(Kind::Node, node.as_str()) {
            return Presence::Unreadable;
        }
        self.node(node).map_or(Presence::Gone, |node| Presence::Is(node.uid.clone()))
    }

    /// The lost claims of a node.
    pub fn lost_claims_of<'a>(&'a self, node: &NodeName) -> impl Iterator<Item = &'a LostClaim> + use<'a> {
        self.lost_claims.get(&Some(node.clone())).into_iter().flat_map(BTreeMap::values)
    }

    /// Whether a lost claim stays until it is recreated, or, if it was unreadable, until its node is deleted. A later
    /// version of the carrier settles any other lost claim.
    #[must_use]
    pub fn keeps_lost(&self, node: &NodeName, lost: &LostClaim) -> bool {
        let is_unreadable = lost.claim.is_none();
        self.is_recreated(node, lost) || is_unreadable && self.has_node(node)
    }

    /// Whether the Node of this name exists, readable or not.
    #[must_use]
    pub fn has_node(&self, node: &NodeName) -> bool {
        self.node(node).is_some() || self.is_unreadable(Kind::Node, node.as_str())
    }

    /// Whether a lost claim is recreated, because its node may keep using the block: its Node exists, or its carrier
    /// has the block. A claim that may be deleted is not: most likely another replica had a proof, and deleted it. Only
    /// a later version of the carrier is missing that shows this. Another is a claim for an earlier Node whose last
    /// version is unknown: its block may have cooled meanwhile. An unreadable claim can't be recreated.
    #[must_use]
    pub fn is_recreated(&self, node: &NodeName, lost: &LostClaim) -> bool {
        let Some(claim) = lost.claim.as_ref().filter(|claim| !claim.may_be_deleted()) else { return false };
        let is_of_earlier = self.node(node).is_some_and(|node| node.uid != claim.node_uid);
        let may_have_cooled = is_of_earlier && !lost.was_seen;
        self.has_node(node) && !may_have_cooled
            || self.carrier(node).is_some_and(|carrier| self.reader_of(node).lists(carrier, lost.cidr))
    }

    /// The memory of the carrier before the present one, if this process saw it.
    #[must_use]
    pub fn former_carrier(&self, node: &NodeName) -> Option<&FormerCarrier> {
        self.remembered(node)?.former_carrier.as_ref()
    }

    /// Since when this process has seen the block of a claim cool, in the present cooling of the claim.
    #[must_use]
    pub fn cooling_since(&self, claim: &Claim) -> Option<Duration> {
        self.cooling.get(&claim.cidr).filter(|seen| seen.is_of(claim))?.seen_at
    }

    /// Whether a claim's Node was seen to be deleted after its cooling started: the machine was back in between.
    #[must_use]
    pub fn went_while_cooling(&self, claim: &Claim) -> bool {
        self.cooling.get(&claim.cidr).is_some_and(|seen| seen.is_of(claim) && seen.node_went)
    }

    /// How long the block of a claim cools after it left its node for this reason. `None` while its pool can't be read:
    /// then it cools until the pool is corrected or deleted.
    #[must_use]
    pub fn cooling_time(&self, claim: &Claim, reason: Reason) -> Option<Duration> {
        let pool = self.pool(&claim.pool);
        if pool.is_none() && self.pool_object(&claim.pool).is_some_and(|object| !object.deleting) {
            return None;
        }
        Some(if reason == Reason::NodeGone {
            pool.map_or(DEFAULT_REUSE_AFTER_NODE_LOSS, |pool| pool.reuse_after_node_loss)
        } else {
            pool.map_or(DEFAULT_REUSE_AFTER, |pool| pool.reuse_after)
        })
    }

    /// When the block of a claim has cooled. `None` if it does not cool, and while no end is known.
    #[must_use]
    pub fn cooled_at(&self, claim: &Claim) -> Option<Timestamp> {
        let ClaimState::Cooling(reason) = claim.state else { return None };
        if self.is_named_by_its_node(claim) {
            return None;
        }
        claim.since.checked_add(self.cooling_time(claim, reason)?).ok()
    }

    /// The pools that could have cut this block: they declare its range, and cut blocks of its size or once did. A pool
    /// is not among them while the block may be of an older pool that can't be read.
    pub fn pools_of_block(&self, cidr: Cidr) -> impl Iterator<Item = &Pool> {
        let may_be_anothers = move |pool: &Pool| {
            let overlaps = self.ledger.overlaps(&pool.name).iter();
            overlaps
                .filter(|overlap| overlap.theirs.overlaps(cidr))
                .any(|overlap| self.pool(&overlap.older).is_none())
        };
        readable(&self.pools).filter(move |pool| {
            pool.families.get(&cidr.family()).is_some_and(|ranges| ranges.contains(cidr))
                && self.sizes_of(pool, cidr.family()).contains(&cidr.prefix_len())
                && !may_be_anothers(pool)
        })
    }

    /// The prefix lengths that the blocks of a pool have, or had: its status keeps them.
    #[must_use]
    pub fn sizes_of(&self, pool: &Pool, family: Family) -> BTreeSet<u8> {
        let mut sizes = pool.families.get(&family).map(Ranges::sizes).unwrap_or_default();
        let shown = self.pool_object(&pool.name).and_then(|object| object.status.sizes.get(&family));
        sizes.extend(shown.into_iter().flat_map(|shown| shown.counts.keys()));
        sizes
    }

    /// The prefix length of the blocks of a family that a pool gives a node; `None` if the pool has no such family.
    #[must_use]
    pub fn size_for(&self, node: &NodeName, pool: &Pool, family: Family) -> Option<u8> {
        match self.node(node) {
            Some(node) => pool.size_for(node, family).map(|(prefix, _)| prefix),
            None => pool.block_prefix(family),
        }
    }

    /// Whether a pool gives out blocks of a family, free or not. No node can get blocks that are too wide for the mode.
    #[must_use]
    pub fn gives_out_of(&self, pool: &Pool, family: Family) -> bool {
        self.ledger.gives_out_of(&pool.name, family) && !self.is_too_wide(pool, family)
    }

    /// Whether all blocks of a pool are wider than Cilium's mode supports.
    #[must_use]
    pub fn is_too_wide(&self, pool: &Pool, family: Family) -> bool {
        let widest = self.reader().widest_block(family);
        let sizes = pool.families.get(&family).map(Ranges::sizes).unwrap_or_default();
        sizes.last().is_some_and(|narrowest| *narrowest < widest)
    }

    /// An observation that can't be true of one store (safety rule 8). Nothing may be decided on this world any more.
    #[must_use]
    pub fn contradiction(&self) -> Option<&Contradiction> {
        self.contradiction.as_ref()
    }

    /// The known version of an object.
    pub(super) fn known_revision(&self, kind: Kind, name: &str) -> Option<AnyRevision> {
        match kind {
            Kind::Node => self.node(&NodeName::from(name)).map(|known| known.revision.into()),
            Kind::CiliumNode => self.cilium_node(&NodeName::from(name)).map(|known| known.revision.into()),
            Kind::Pool => self.pools.get(&PoolName::from(name)).map(|known| known.revision.into()),
            Kind::Claim => self.claim_named(name).map(|known| known.claim.revision.into()),
        }
    }

    /// Whether the last list of a kind may have been taken after `revision`. An object that it lacks may have been
    /// deleted since. If the object exists, the watch shows it, because the watch continues from the list.
    pub(super) fn may_be_listed(&self, kind: Kind, revision: Revision) -> bool {
        self.listed.get(&kind).is_some_and(|at_most| AnyRevision::from(revision) <= *at_most)
    }

    /// The taken addresses, and the free space of every pool.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The nodes' own addresses in `block`.
    #[must_use]
    pub fn node_addresses_in(&self, block: Cidr) -> AddressSet {
        block.entries_in(&self.node_addresses).map(|(address, _)| *address).collect()
    }

    /// The nodes with an address of their own in `block`.
    pub fn nodes_in(&self, block: Cidr) -> impl Iterator<Item = &NodeName> {
        block.entries_in(&self.node_addresses).flat_map(|(_, holders)| holders).map(|(_, node)| node)
    }

    /// The object of a kind and name, if it exists and could not be read.
    #[must_use]
    pub fn unreadable(&self, kind: Kind, name: &str) -> Option<&Unreadable> {
        self.unreadable.get(kind, name)
    }

    /// The claims that could not be read and name this node.
    pub fn unreadable_claims_of(&self, node: &NodeName) -> impl Iterator<Item = &Unreadable> {
        self.unreadable.claims_of(node)
    }

    /// A revision at which every claim of a node is known.
    #[must_use]
    pub fn claims_known_as_of(&self, node: &NodeName) -> Option<Revision> {
        self.remembered(node).and_then(|remembered| remembered.claims_read).max(self.position(Kind::Claim))
    }

    /// Whether all claims of a node were read since its carrier is known.
    #[must_use]
    pub fn has_read_claims_for(&self, carrier: Carrier<'_>) -> bool {
        let read_for = self.remembered(carrier.name()).and_then(|known| known.claims_read_for.as_ref());
        read_for == Some(carrier.uid())
    }

    /// Whether the object of a kind and name exists and could not be read. Its earlier readable version is still kept,
    /// by this process only.
    #[must_use]
    pub fn is_unreadable(&self, kind: Kind, name: &str) -> bool {
        self.unreadable(kind, name).is_some()
    }

    /// The same for the claim of this block.
    #[must_use]
    pub fn is_unreadable_claim(&self, block: Cidr) -> bool {
        self.unreadable.has_block(block)
    }

    /// The blocks that share an address with `range` and whose claims can't be read.
    pub fn unreadable_blocks_in(&self, range: Cidr) -> impl Iterator<Item = Cidr> {
        self.unreadable.blocks_in(range)
    }

    /// The blocks that share an address with `range` and whose claims are being created. Costs a pass over the requests
    /// in flight.
    pub fn pending_in(&self, range: Cidr) -> impl Iterator<Item = Cidr> {
        let pending = self.in_flight.values().filter_map(|sent| Some(sent.creates.as_ref()?.0));
        // The watch may show the claim before the answer comes.
        pending.filter(move |block| range.overlaps(*block) && !self.claims.contains_key(block))
    }

    /// All objects that could not be read.
    pub fn all_unreadable(&self) -> impl Iterator<Item = (Kind, &Unreadable)> {
        self.unreadable.iter()
    }

    /// The number of known objects of a kind, in a version that could be read.
    #[must_use]
    pub fn n_objects(&self, kind: Kind) -> usize {
        match kind {
            Kind::Node => self.nodes().count(),
            Kind::CiliumNode => self.cilium_nodes().count(),
            Kind::Pool => self.pools.len(),
            Kind::Claim => self.claims.len(),
        }
    }

    /// How a node is being served.
    #[must_use]
    pub fn serving(&self, node: &NodeName) -> Option<&NodeProgress> {
        self.remembered(node).map(|remembered| &remembered.serving)
    }

    /// The Pods in which an agent of this node may run; none if they are unknown.
    pub fn agents_on(&self, node: &NodeName) -> impl Iterator<Item = &AgentPod> {
        self.agents.on(node)
    }

    /// Why the agents' Pods are unknown; `None` if they are known.
    #[must_use]
    pub fn agents_unlisted(&self) -> Option<&str> {
        self.agents.unlisted()
    }

    /// The agent of a node, if exactly one can run there and it is Ready. Otherwise two agents may write the same
    /// CiliumNode, or none does. The agent may have restarted since it wrote the known CiliumNode.
    pub fn agent_on(&self, node: &NodeName) -> Result<RunningAgent<'_>, NoAgent> {
        self.agents.running_on(node)
    }

    /// The support of a node's agents, and their version. Of several that may run there the weakest counts: in an
    /// upgrade both the old and the new one may run.
    #[must_use]
    pub fn support(&self, node: &NodeName) -> (Support, Option<CiliumVersion>) {
        let releases = self.agents.releases_on(node);
        let reader = self.reader_of(node);
        let weakest = releases.map(|release| (reader.support(release), release)).min();
        weakest.unwrap_or_else(|| (reader.support(None), None))
    }

    /// The uid that claims of this node must have to be published.
    #[must_use]
    pub fn node_uid(&self, node: &NodeName) -> Option<&Uid> {
        self.node(node).map(|node| &node.uid)
    }

    /// Whether a node is served: its carrier has a block that is held, drains, or is about to be removed, and its agent
    /// can give addresses of it. So the first grant is over.
    ///
    /// Another mode, or another writer, may leave a block listed without its addresses. An agent waits then, and its
    /// first addresses must be complete.
    #[must_use]
    pub fn is_served(&self, name: &NodeName) -> bool {
        // Until such a block is removed, the agent serves pods from it.
        let is_terminating = |claim: &Claim| {
            self.reader_of(name).traits().removes_with_query && claim.is_reclaimed() && self.must_leave(claim)
        };
        let Some(carrier) = self.carrier(name) else { return false };
        self.claims_of(name).map(|known| &known.claim).any(|claim| {
            (claim.is_published_state() || is_terminating(claim)) && self.offers_from(carrier, claim)
        })
    }

    /// Whether the carrier lists the block of a claim, and its agent can give addresses of it.
    fn offers_from(&self, carrier: Carrier<'_>, claim: &Claim) -> bool {
        let reader = self.reader_of(carrier.name());
        reader.lists(carrier, claim.cidr) && reader.n_published_in(carrier, claim.cidr) > 0
    }

    /// Whether the carrier of a node has a block under the name of a Pod IP pool, so its first grant is over.
    pub(crate) fn is_served_under(&self, name: &NodeName, pod_ip_pool: Option<&PodIpPoolName>) -> bool {
        let Some(carrier) = self.carrier(name) else { return false };
        let reader = self.reader_of(name);
        self.claims_of(name).map(|known| &known.claim).any(|claim| {
            claim.is_published_state()
                && self.offers_from(carrier, claim)
                && reader.pool_name_on(carrier, claim).as_ref() == pod_ip_pool
        })
    }

    /// An occupant, for a person: of a carrier its kind and name.
    #[must_use]
    pub fn name_of(&self, occupant: &Occupant) -> String {
        match occupant {
            Occupant::Carried(node) => format!("{} {node}", self.reader_of(node).traits().carrier.as_str()),
            Occupant::Claim | Occupant::Pending | Occupant::LostClaim(_) | Occupant::Unreadable(..) => {
                occupant.to_string()
            }
        }
    }

    /// The carrier of a node's blocks.
    #[must_use]
    pub fn carrier(&self, name: &NodeName) -> Option<Carrier<'_>> {
        match self.reader_of(name).traits().carrier {
            Kind::Node => self.node(name).map(Carrier::Node),
            Kind::CiliumNode | Kind::Pool | Kind::Claim => self.cilium_node(name).map(Carrier::CiliumNode),
        }
    }
}
