//! Addresses that two nodes have on their carriers, of any writer.
//!
//! Derived from carriers, and from claims only to name the node that should have the addresses. Does not know Pods:
//! whether both agents have given one of them to a pod is not known here.

use std::collections::BTreeSet;

use crate::ledger::Occupant;
use crate::model::names::{NodeName, ten_of};
use crate::net::cidr::Cidr;
use crate::world::World;

/// The kind of the problem that two nodes have the same addresses.
pub const DUPLICATE_ADDRESSES: &str = "DuplicateAddresses";

/// Addresses that two nodes have on their carriers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duplicate {
    /// A node without a claim of them.
    pub node: NodeName,
    /// The other node. Of two nodes without a claim, the one with the later name.
    pub other: NodeName,
    /// The addresses.
    pub cidr: Cidr,
}

impl Duplicate {
    /// In a sentence about one of the two nodes.
    #[must_use]
    pub fn seen_from(&self, node: &NodeName, world: &World) -> String {
        let other = if self.node == *node { &self.other } else { &self.node };
        format!("node {other} has the same addresses {}, and {}", self.cidr, self.holders(world))
    }

    /// The nodes with claims of the addresses, in words.
    #[must_use]
    pub fn holders(&self, world: &World) -> String {
        let holders: Vec<String> =
            world.claims_over(self.cidr).map(|known| format!("node {}", known.claim.node)).collect();
        if holders.is_empty() {
            "no node has a claim of them".to_owned()
        } else {
            format!("the claim is of {}", ten_of(holders))
        }
    }
}

/// All addresses that a carrier has without a claim of its node, and that another carrier has too. Two claims that
/// overlap are a finding of the planner.
#[must_use]
pub fn duplicates(world: &World) -> BTreeSet<Duplicate> {
    let mut found = BTreeSet::new();
    for (cidr, occupant) in world.ledger().entries() {
        if let Occupant::Carried(node) = occupant {
            found.extend(others_with(world, node, cidr));
        }
    }
    found
}

/// The other nodes with addresses that this node carries without a claim.
fn others_with(world: &World, node: &NodeName, cidr: Cidr) -> Vec<Duplicate> {
    let pair = |other: &NodeName, shared: Cidr| Duplicate {
        node: node.clone(),
        other: other.clone(),
        cidr: if cidr.covers(shared) { shared } else { cidr },
    };
    let unclaimed = world.ledger().unclaimed_in(cidr).filter_map(|(shared, occupant)| match occupant {
        Occupant::Carried(other) => (node < other).then(|| pair(other, shared)),
        Occupant::Claim | Occupant::Pending | Occupant::LostClaim(_) | Occupant::Unreadable(..) => None,
    });
    let has = |holder: &NodeName, shared: Cidr| {
        let carrier = world.carrier(holder);
        carrier.is_some_and(|carrier| !world.reader_of(holder).offered_in(carrier, shared).is_empty())
    };
    let claims = world.claims_over(cidr).map(|known| &known.claim).filter(|claim| claim.node != *node);
    let claimed = claims.map(|claim| pair(&claim.node, claim.cidr));
    unclaimed.chain(claimed.filter(|found| has(&found.other, found.cidr))).collect()
}
