//! The addresses that the objects of nodes take beside claims: those on carriers without a claim, and the nodes' own.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::World;
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::node::Node;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::publisher;

impl World {
    /// The addresses that the objects of a node carry, in any mode, outside its claims.
    pub(super) fn carried(&self, node: &NodeName) -> AddressSet {
        let mut carried = self.cilium_node(node).map(publisher::carried_by_cilium_node).unwrap_or_default();
        carried.extend_with(&self.carried_by_node(node));
        self.without_claims(node, carried)
    }

    /// The addresses that the Node itself carries, for its agent in its mode or in another one.
    pub(super) fn carried_by_node(&self, node: &NodeName) -> AddressSet {
        let Some(object) = self.node(node) else { return AddressSet::new() };
        let mut carried = self.publishers.carried_by_node(object);
        carried.extend_with(&self.reader_of(node).carried_by_node(object));
        carried
    }

    /// These addresses without those of the known claims of the node.
    fn without_claims(&self, node: &NodeName, mut addresses: AddressSet) -> AddressSet {
        for cidr in self.blocks_of(node) {
            addresses.remove_cidr(*cidr);
        }
        addresses
    }

    /// The node itself takes the addresses that its objects carry outside its claims.
    pub(super) fn update_carried(&mut self, node: &NodeName) {
        self.update_carried_without(node, &AddressSet::new());
    }

    /// The same; `gone` are the addresses that the Node carried before.
    pub(super) fn update_carried_without(&mut self, node: &NodeName, gone: &AddressSet) {
        let carried = match self.cilium_node(node) {
            Some(_) => self.carried(node),
            // The CiliumNode is missing and the Node exists: its agent keeps using its addresses.
            None if self.node(node).is_some() => {
                let mut carried = self.ledger.carried(node).cloned().unwrap_or_default();
                carried.remove_all(gone);
                carried.extend_with(&self.carried(node));
                self.without_claims(node, carried)
            }
            None => AddressSet::new(),
        };
        let before = self.ledger.carried(node);
        if before.map_or(carried.is_empty(), |before| *before == carried) {
            return;
        }
        let changed: Vec<Cidr> = before.into_iter().chain([&carried]).flat_map(AddressSet::cidrs).collect();
        self.ledger.set_carried(node, carried);
        for cidr in changed {
            self.addresses_released(cidr);
        }
    }

    /// This object of a node now has the addresses `after` in place of `before`.
    pub(super) fn set_own_addresses(
        &mut self,
        kind: Kind,
        name: &NodeName,
        before: &[IpAddr],
        after: &[IpAddr],
    ) {
        if before == after {
            return;
        }
        let owner = (kind, name.clone());
        let before: BTreeSet<IpAddr> = before.iter().copied().collect();
        let after: BTreeSet<IpAddr> = after.iter().copied().collect();
        for address in after.difference(&before) {
            self.node_addresses.entry(*address).or_default().insert(owner.clone());
        }
        for address in before.difference(&after) {
            if let Some(holders) = self.node_addresses.get_mut(address) {
                holders.remove(&owner);
                if holders.is_empty() {
                    self.node_addresses.remove(address);
                }
            }
        }
        // A block is not given out if every address of it is an address of a node itself.
        for address in before.symmetric_difference(&after) {
            self.addresses_released(Cidr::single(*address));
        }
    }
}

/// The addresses of a Node itself.
pub(super) fn addresses_of(node: &Node) -> Vec<IpAddr> {
    node.addresses.iter().map(|address| address.address).collect()
}
