//! The self-check: everything that the world derives, computed again from its objects and compared.
//!
//! Tests run it after each step; the controller runs it at its start and at intervals. A difference is a broken
//! invariant of ours, never bad input, and the process exits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::beside_claims::addresses_of;
use super::index::differing;
use super::node_entries::NodeEntry;
use super::selection::Selectors;
use super::{SeenCooling, World, readable, reservations};
use crate::ledger::{Difference, Occupant};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName};
use crate::model::node::Node;
use crate::net::cidr::Cidr;
use crate::net::prefixes::PrefixIndex;
use crate::net::small_set::SmallSet;
use crate::publisher;

/// Something that the world derives and that differs from its objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Inconsistency {
    /// The ledger differs from the occupants and from the declarations of pools.
    #[error(transparent)]
    Ledger(Difference),
    /// This occupant of the range is not noted.
    #[error("{0} is not taken by {1}")]
    NotTaken(Cidr, Occupant),
    /// The range is taken by this occupant, which no object has.
    #[error("{0} is taken by {1}, which does not exist")]
    TakenByNobody(Cidr, Occupant),
    /// The index of claims by node.
    #[error("the index of claims of node {0} does not match the claims")]
    ClaimsByNode(NodeName),
    /// The claims that name this pool.
    #[error("the index of claims of pool {0} does not match the claims")]
    ClaimsByPool(PoolName),
    /// The objects that have this address as their own.
    #[error("the index of nodes with address {0} does not match the objects")]
    NodeAddresses(IpAddr),
    /// The index of the podCIDRs of Nodes.
    #[error("the index of podCIDRs does not match the Nodes")]
    Routed,
    /// The Nodes by the time of their creation.
    #[error("the index of creation times does not match the Nodes")]
    Joined,
    /// The pools that select this node.
    #[error("the index of pools of node {0} does not match the selectors")]
    Selection(NodeName),
    /// The nodes that this pool selects.
    #[error("the index of nodes of pool {0} does not match its selector")]
    Selected(PoolName),
    /// How this node is served.
    #[error("the settings of node {0} do not match its CiliumNodeConfigs")]
    Publisher(NodeName),
    /// This is still stored for a node with nothing else left.
    #[error("{1} is still stored for node {0}, which has no objects")]
    Remembered(NodeName, Memory),
    /// This is still stored for a deleted pool.
    #[error("{1} is still stored for pool {0}, which is deleted")]
    RememberedPool(PoolName, Memory),
    /// A block counts as cooling, but its claim does not.
    #[error("{0} counts as cooling, but its claim is not")]
    Cooling(Cidr),
    /// The timers of nodes and pools.
    #[error("the indexes of timers differ")]
    Wakes,
    /// The indexes of waiting nodes.
    #[error("the indexes of waiting nodes differ")]
    Waiting,
    /// The indexes of unreadable objects.
    #[error("the indexes of unreadable objects differ")]
    Unreadable,
}

/// The parts of the memory beside the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Memory {
    /// How a node is being served, and the results of reads of its objects.
    #[error("its serving state")]
    Node,
    /// The fields of the former carrier.
    #[error("its former carrier")]
    FormerCarrier,
    /// The pools for which it waits.
    #[error("its shortage")]
    Waiting,
    /// The timer of its next decision.
    #[error("a timer")]
    Wake,
    /// How long it waits because its writes are not applied.
    #[error("a pause")]
    Pause,
    /// The next write of its condition.
    #[error("its condition")]
    Condition,
    /// A write of it that fails.
    #[error("a failure")]
    Failure,
    /// When its status was last looked at.
    #[error("a read of its status")]
    StatusLook,
    /// When it was first looked at as one that is being deleted.
    #[error("its deletion")]
    Deletion,
}

impl World {
    /// All differences between derived data and the objects; empty if there are none. Costs a pass over everything.
    #[must_use]
    pub fn check(&self) -> Vec<Inconsistency> {
        let differences = self.ledger.check(readable(&self.pools), reservations(&self.pools));
        let mut found: Vec<Inconsistency> = differences.into_iter().map(Inconsistency::Ledger).collect();
        self.check_occupants(&mut found);
        self.check_claims_by_node(&mut found);
        self.check_addresses(&mut found);
        self.check_selection(&mut found);
        found.extend(self.wrong_publishers().into_iter().map(Inconsistency::Publisher));
        self.check_memory(&mut found);
        found
    }

    /// All occupants, by the objects and requests themselves.
    fn occupants(&self) -> BTreeSet<(Cidr, Occupant)> {
        let mut occupants: BTreeSet<(Cidr, Occupant)> =
            self.claims.keys().map(|cidr| (*cidr, Occupant::Claim)).collect();
        occupants.extend(
            self.in_flight.values().filter_map(|sent| Some((sent.creates.as_ref()?.0, Occupant::Pending))),
        );
        for (holder, lost) in &self.lost_claims {
            occupants.extend(lost.keys().map(|cidr| (*cidr, Occupant::LostClaim(holder.clone()))));
        }
        for (kind, unreadable) in self.unreadable.iter() {
            let occupant = Occupant::unreadable(kind, &unreadable.name);
            occupants.extend(unreadable.addresses.cidrs().map(|cidr| (cidr, occupant.clone())));
        }
        for (node, entry) in self.entries.iter() {
            let occupant = Occupant::Carried(node.clone());
            let carried = match entry {
                NodeEntry { cilium_node: Some(_), .. } => self.carried(node),
                // Remembered while there is no CiliumNode: no object shows them.
                NodeEntry { node: Some(_), .. } => self.ledger.carried(node).cloned().unwrap_or_default(),
                _ => continue,
            };
            occupants.extend(carried.cidrs().map(|cidr| (cidr, occupant.clone())));
        }
        occupants
    }

    fn check_occupants(&self, found: &mut Vec<Inconsistency>) {
        let expected = self.occupants();
        let noted: BTreeSet<(Cidr, Occupant)> =
            self.ledger.entries().map(|(cidr, occupant)| (cidr, occupant.clone())).collect();
        let missing = expected.difference(&noted).cloned();
        found.extend(missing.map(|(cidr, occupant)| Inconsistency::NotTaken(cidr, occupant)));
        let surplus = noted.difference(&expected).cloned();
        found.extend(surplus.map(|(cidr, occupant)| Inconsistency::TakenByNobody(cidr, occupant)));
    }

    fn check_claims_by_node(&self, found: &mut Vec<Inconsistency>) {
        let mut expected: BTreeMap<&NodeName, Vec<Cidr>> = BTreeMap::new();
        for (cidr, known) in &self.claims {
            expected.entry(&known.claim.node).or_default().push(*cidr);
        }
        let noted = self.entries.iter().map(|(node, entry)| (node, entry.claims.as_slice()));
        let noted = noted.filter(|(_, claims)| !claims.is_empty()).collect();
        found.extend(differing(&expected, &noted).map(|node| Inconsistency::ClaimsByNode((*node).clone())));
        let mut expected: BTreeMap<PoolName, BTreeSet<Cidr>> = BTreeMap::new();
        for (cidr, known) in &self.claims {
            expected.entry(known.claim.pool.clone()).or_default().insert(*cidr);
        }
        found.extend(differing(&expected, &self.claims_in).cloned().map(Inconsistency::ClaimsByPool));
    }

    fn check_addresses(&self, found: &mut Vec<Inconsistency>) {
        let of_nodes = self.nodes().flat_map(|node| {
            let owner = (Kind::Node, node.name.clone());
            addresses_of(node).into_iter().map(move |address| (address, owner.clone()))
        });
        let of_cilium_nodes = self.cilium_nodes().flat_map(|cilium_node| {
            let owner = (Kind::CiliumNode, cilium_node.name.clone());
            cilium_node.addresses.iter().map(move |address| (*address, owner.clone()))
        });
        let mut holders: BTreeMap<IpAddr, SmallSet<(Kind, NodeName)>> = BTreeMap::new();
        for (address, owner) in of_nodes.chain(of_cilium_nodes) {
            holders.entry(address).or_default().insert(owner);
        }
        found.extend(differing(&holders, &self.node_addresses).copied().map(Inconsistency::NodeAddresses));
        let mut routed = PrefixIndex::default();
        for node in self.nodes() {
            for cidr in publisher::pod_cidrs_of(node) {
                routed.insert(*cidr, node.name.clone());
            }
        }
        found.extend((routed != self.routed).then_some(Inconsistency::Routed));
        let joined: BTreeSet<_> = self.nodes().map(|node| (node.created, node.name.clone())).collect();
        found.extend((joined != self.joined).then_some(Inconsistency::Joined));
    }

    fn check_selection(&self, found: &mut Vec<Inconsistency>) {
        let selectors = Selectors::of(readable(&self.pools));
        let selected_by = |node: &Node| selectors.select(&node.labels);
        let expected = self.nodes().map(|node| (&node.name, selected_by(node)));
        let expected: BTreeMap<&NodeName, Vec<PoolName>> =
            expected.filter(|(_, pools)| !pools.is_empty()).collect();
        let noted = self.entries.iter().map(|(node, entry)| (node, entry.selection.as_slice()));
        let noted = noted.filter(|(_, pools)| !pools.is_empty()).collect();
        found.extend(differing(&expected, &noted).map(|node| Inconsistency::Selection((*node).clone())));
        let mut nodes: BTreeMap<PoolName, BTreeSet<NodeName>> = BTreeMap::new();
        for (node, pools) in &expected {
            for pool in pools {
                nodes.entry(pool.clone()).or_default().insert((*node).clone());
            }
        }
        found.extend(differing(&nodes, &self.selected).cloned().map(Inconsistency::Selected));
    }

    fn check_memory(&self, found: &mut Vec<Inconsistency>) {
        let mut memories: BTreeSet<(&NodeName, Memory)> = BTreeSet::new();
        memories.extend(self.entries.iter().map(|(node, _)| (node, Memory::Node)));
        memories.extend(
            self.waiting.nodes().chain(self.waiting.passive_waiters()).map(|node| (node, Memory::Waiting)),
        );
        memories.extend(self.agenda.nodes_to_wake().map(|node| (node, Memory::Wake)));
        memories.extend(self.conditions.nodes().map(|node| (node, Memory::Condition)));
        memories.extend(self.failing_nodes().map(|node| (node, Memory::Failure)));
        memories.retain(|(node, _)| self.is_gone(node));
        let orphans = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.node.is_none() && entry.remembered.former_carrier.is_some());
        memories.extend(orphans.map(|(node, _)| (node, Memory::FormerCarrier)));
        found.extend(memories.into_iter().map(|(node, what)| Inconsistency::Remembered(node.clone(), what)));

        let mut of_pools: BTreeSet<(&PoolName, Memory)> = BTreeSet::new();
        of_pools.extend(self.pool_writes.keys().map(|pool| (pool, Memory::Pause)));
        of_pools.extend(self.failing_pools().map(|pool| (pool, Memory::Failure)));
        of_pools.extend(self.agenda.pools_to_wake().map(|pool| (pool, Memory::Wake)));
        of_pools.extend(self.agenda.status_looked_at.keys().map(|pool| (pool, Memory::StatusLook)));
        of_pools.extend(self.agenda.deletion_seen_at.keys().map(|pool| (pool, Memory::Deletion)));
        of_pools.retain(|(pool, _)| !self.pools.contains_key(*pool));
        found.extend(
            of_pools.into_iter().map(|(pool, what)| Inconsistency::RememberedPool(pool.clone(), what)),
        );

        let differs = |(cidr, seen): &(&Cidr, &SeenCooling)| {
            !self.claims.get(*cidr).is_some_and(|known| seen.is_of(&known.claim))
        };
        found.extend(self.cooling.iter().filter(differs).map(|(cidr, _)| Inconsistency::Cooling(*cidr)));
        if !self.agenda.has_consistent_wakes() {
            found.push(Inconsistency::Wakes);
        }
        if !self.waiting.is_consistent() {
            found.push(Inconsistency::Waiting);
        }
        if !self.unreadable.is_consistent() {
            found.push(Inconsistency::Unreadable);
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
impl World {
    /// Makes a difference that [`World::check`] finds.
    pub(crate) fn break_an_index(&mut self) {
        let holders = self.node_addresses.entry(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)).or_default();
        holders.insert((Kind::Node, "nowhere".into()));
    }
}
