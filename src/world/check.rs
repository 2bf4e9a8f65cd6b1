//! The self-check: what the world derives must equal what its objects say, computed anew.
//!
//! Run by tests after each step, and by the controller at its start and at intervals. A difference is a broken invariant
//! of ours, never bad input, and ends the process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{World, reservations};
use crate::ledger::Occupant;
use crate::model::names::NodeName;
use crate::net::cidr::Cidr;

impl World {
    /// Every difference between the derived state and the objects; empty when all is well.
    #[must_use]
    pub fn check(&self) -> Vec<String> {
        let reserved = reservations(&self.pools);
        let mut differences: Vec<String> =
            self.ledger.check(&self.declared, reserved).iter().map(ToString::to_string).collect();

        let mut claims_of: BTreeMap<NodeName, BTreeSet<Cidr>> = BTreeMap::new();
        for (cidr, known) in &self.claims {
            claims_of.entry(known.claim.node.clone()).or_default().insert(*cidr);
            if !self.ledger.occupants(*cidr).contains(&Occupant::Claim) {
                differences.push(format!("claim {cidr} does not take its block"));
            }
        }
        if claims_of != self.claims_of {
            differences.push("the index of claims by node is not that of the claims".to_owned());
        }
        for (cidr, occupant) in self.ledger.entries() {
            if *occupant == Occupant::Claim && !self.claims.contains_key(&cidr) {
                differences.push(format!("block {cidr} is taken by a claim that is not known"));
            }
        }
        let mut node_addresses: BTreeMap<IpAddr, u32> = BTreeMap::new();
        for address in self.own_addresses.values().flatten() {
            *node_addresses.entry(*address).or_default() += 1;
        }
        if node_addresses != self.node_addresses {
            differences.push("the addresses of nodes are not those of the objects".to_owned());
        }
        for name in self.cilium_nodes.keys() {
            let carried = self.carried(name);
            let entered = self.ledger.carried(name);
            if entered.map_or(!carried.is_empty(), |entered| *entered != carried) {
                differences.push(format!("what stands on ciliumnode {name} is not what it takes"));
            }
        }
        let remembered = self.servings.keys().chain(self.presences.keys()).chain(self.absences.keys());
        for name in remembered.collect::<BTreeSet<_>>() {
            // The next decision for it forgets it.
            if self.is_forgotten(name) && !self.agenda.has_node(name) {
                differences.push(format!("something is kept of node {name}, of which nothing is left"));
            }
        }
        if self.pool_pauses.keys().any(|pool| !self.pools.contains_key(pool)) {
            differences.push("a pool that is gone waits".to_owned());
        }
        if self.nodes.keys().ne(self.selection.keys()) {
            differences.push("the selection does not cover the nodes".to_owned());
        }
        differences
    }
}

#[cfg(test)]
impl World {
    /// Makes a difference that [`World::check`] finds.
    pub(crate) fn break_an_index(&mut self) {
        *self.node_addresses.entry(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)).or_default() += 1;
    }
}
