//! The self-check: everything that the world derives, computed again from its objects and compared.
//!
//! Tests run it after each step; the controller runs it at its start and at intervals. A difference is a broken
//! invariant of ours, never bad input, and the process exits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::beside_claims::addresses_of;
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Inconsistency {
    /// The ledger differs from the occupants and from the declarations of pools.
    Ledger(Difference),
    /// This occupant of the range is not noted.
    NotTaken(Cidr, Occupant),
    /// The range is taken by this occupant, which no object has.
    TakenByNobody(Cidr, Occupant),
    /// The index of claims by node.
    ClaimsByNode(NodeName),
    /// The claims that name this pool.
    ClaimsByPool(PoolName),
    /// The objects that have this address as their own.
    NodeAddresses(IpAddr),
    /// The index of the podCIDRs of Nodes.
    Routed,
    /// The pools that select this node.
    Selection(NodeName),
    /// The nodes that this pool selects.
    Selected(PoolName),
    /// How this node is served.
    Publisher(NodeName),
    /// This is still stored for a node with nothing else left.
    Remembered(NodeName, Memory),
    /// This is still stored for a deleted pool.
    RememberedPool(PoolName, Memory),
    /// A block counts as cooling, but its claim does not.
    Cooling(Cidr),
    /// The timers of nodes and pools.
    Wakes,
    /// The indexes of waiting nodes.
    Waiting,
    /// The indexes of unreadable objects.
    Unreadable,
}

/// The parts of the memory beside the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Memory {
    /// How a node is being served, and the results of reads of its objects.
    Node,
    /// The fields of the former carrier.
    FormerCarrier,
    /// The pools for which it waits.
    Waiting,
    /// The timer of its next decision.
    Wake,
    /// How long it waits because its writes are not applied.
    Pause,
    /// When its status was last looked at.
    StatusLook,
    /// When it was first looked at as one that is being deleted.
    Deletion,
}

impl fmt::Display for Inconsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ledger(difference) => fmt::Display::fmt(difference, f),
            Self::NotTaken(cidr, occupant) => write!(f, "{cidr} is not taken by {occupant}"),
            Self::TakenByNobody(cidr, occupant) => {
                write!(f, "{cidr} is taken by {occupant}, which does not exist")
            }
            Self::ClaimsByNode(node) => write!(
                f,
                "the index of claims of node {node} does not match the \
                 claims"
            ),
            Self::NodeAddresses(address) => {
                write!(f, "the index of nodes with address {address} does not match the objects")
            }
            Self::Selection(node) => {
                write!(f, "the index of pools of node {node} does not match the selectors")
            }
            Self::ClaimsByPool(pool) => write!(
                f,
                "the index of claims of pool {pool} does not match the \
                 claims"
            ),
            Self::Selected(pool) => {
                write!(f, "the index of nodes of pool {pool} does not match its selector")
            }
            Self::Publisher(node) => {
                write!(f, "the settings of node {node} do not match its CiliumNodeConfigs")
            }
            Self::Remembered(node, memory) => {
                write!(f, "{memory} is still stored for node {node}, which has no objects")
            }
            Self::RememberedPool(pool, memory) => {
                write!(f, "{memory} is still stored for pool {pool}, which is deleted")
            }
            Self::Cooling(cidr) => write!(f, "{cidr} counts as cooling, but its claim is not"),
            Self::Routed => f.write_str("the index of podCIDRs does not match the Nodes"),
            Self::Waiting => f.write_str("the indexes of waiting nodes differ"),
            Self::Unreadable => f.write_str("the indexes of unreadable objects differ"),
            Self::Wakes => f.write_str("the indexes of timers differ"),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node => "its serving state",
            Self::FormerCarrier => "its former carrier",
            Self::Waiting => "its shortage",
            Self::Wake => "a timer",
            Self::Pause => "a pause",
            Self::StatusLook => "a read of its status",
            Self::Deletion => "its deletion",
        })
    }
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
        for node in self.nodes.keys().chain(self.cilium_nodes.keys()) {
            let occupant = Occupant::Carried(node.clone());
            let carried = if self.cilium_nodes.contains_key(node) {
                self.carried(node)
            } else {
                // Remembered while there is no CiliumNode: no object shows them.
                self.ledger.carried(node).cloned().unwrap_or_default()
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
        let mut expected: BTreeMap<NodeName, SmallSet<Cidr>> = BTreeMap::new();
        for (cidr, known) in &self.claims {
            expected.entry(known.claim.node.clone()).or_default().insert(*cidr);
        }
        found.extend(differing(&expected, &self.claims_of).cloned().map(Inconsistency::ClaimsByNode));
        let mut expected: BTreeMap<PoolName, BTreeSet<Cidr>> = BTreeMap::new();
        for (cidr, known) in &self.claims {
            expected.entry(known.claim.pool.clone()).or_default().insert(*cidr);
        }
        found.extend(differing(&expected, &self.claims_in).cloned().map(Inconsistency::ClaimsByPool));
    }

    fn check_addresses(&self, found: &mut Vec<Inconsistency>) {
        let of_nodes = self.nodes.values().flat_map(|node| {
            let owner = (Kind::Node, node.name.clone());
            addresses_of(node).into_iter().map(move |address| (address, owner.clone()))
        });
        let of_cilium_nodes = self.cilium_nodes.values().flat_map(|cilium_node| {
            let owner = (Kind::CiliumNode, cilium_node.name.clone());
            cilium_node.addresses.iter().map(move |address| (*address, owner.clone()))
        });
        let mut holders: BTreeMap<IpAddr, SmallSet<(Kind, NodeName)>> = BTreeMap::new();
        for (address, owner) in of_nodes.chain(of_cilium_nodes) {
            holders.entry(address).or_default().insert(owner);
        }
        found.extend(differing(&holders, &self.node_addresses).copied().map(Inconsistency::NodeAddresses));
        let mut routed = PrefixIndex::default();
        for node in self.nodes.values() {
            for cidr in publisher::pod_cidrs_of(node) {
                routed.insert(*cidr, node.name.clone());
            }
        }
        found.extend((routed != self.routed).then_some(Inconsistency::Routed));
    }

    fn check_selection(&self, found: &mut Vec<Inconsistency>) {
        let selectors = Selectors::of(readable(&self.pools));
        let selected_by = |node: &Node| selectors.select(&node.labels);
        let expected: BTreeMap<NodeName, Vec<PoolName>> =
            self.nodes.values().map(|node| (node.name.clone(), selected_by(node))).collect();
        found.extend(differing(&expected, &self.selection).cloned().map(Inconsistency::Selection));
        let mut nodes: BTreeMap<PoolName, BTreeSet<NodeName>> = BTreeMap::new();
        for (node, pools) in &expected {
            for pool in pools {
                nodes.entry(pool.clone()).or_default().insert(node.clone());
            }
        }
        found.extend(differing(&nodes, &self.selected).cloned().map(Inconsistency::Selected));
    }

    fn check_memory(&self, found: &mut Vec<Inconsistency>) {
        let mut memories: BTreeSet<(&NodeName, Memory)> = BTreeSet::new();
        memories.extend(self.remembered.keys().map(|node| (node, Memory::Node)));
        memories.extend(
            self.waiting.nodes().chain(self.waiting.passive_waiters()).map(|node| (node, Memory::Waiting)),
        );
        memories.extend(self.agenda.nodes_to_wake().map(|node| (node, Memory::Wake)));
        memories.retain(|(node, _)| self.is_gone(node));
        let with_carrier =
            self.remembered.iter().filter(|(_, remembered)| remembered.former_carrier.is_some());
        let orphans = with_carrier.map(|(node, _)| node).filter(|node| !self.nodes.contains_key(*node));
        memories.extend(orphans.map(|node| (node, Memory::FormerCarrier)));
        found.extend(memories.into_iter().map(|(node, what)| Inconsistency::Remembered(node.clone(), what)));

        let mut of_pools: BTreeSet<(&PoolName, Memory)> = BTreeSet::new();
        of_pools.extend(self.pool_writes.keys().map(|pool| (pool, Memory::Pause)));
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

/// The keys with different values in the two maps.
pub(super) fn differing<'a, K: Ord, V: PartialEq>(
    expected: &'a BTreeMap<K, V>,
    noted: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = &'a K> {
    let keys: BTreeSet<&K> = expected.keys().chain(noted.keys()).collect();
    keys.into_iter().filter(|key| expected.get(*key) != noted.get(*key))
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
