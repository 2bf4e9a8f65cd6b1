//! The podCIDRs of Nodes by range, and the addresses of Nodes for people.
//!
//! Routers, cloud route controllers and BGP speakers follow the podCIDRs of a Node, also where its agent does not read
//! them. Such podCIDRs are in no ledger: no address is taken because of them.

use std::net::IpAddr;

use super::World;
use crate::model::claim::Claim;
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::node::Node;
use crate::net::cidr::Cidr;
use crate::publisher;

impl World {
    /// Whether agents of some node may use the podCIDRs of their Nodes.
    #[must_use]
    pub fn agents_read_nodes(&self) -> bool {
        self.publishers.agents_read_nodes()
    }

    /// Whether the podCIDRs of a claim's Node name an address of its block. They can't be changed, and its agent may take
    /// them for its own range in any mode: the machine would route the addresses of another node's pods to itself.
    #[must_use]
    pub fn is_named_by_its_node(&self, claim: &Claim) -> bool {
        let of_node = self.node(&claim.node).map(publisher::pod_cidrs_of).unwrap_or_default();
        of_node.iter().any(|cidr| cidr.overlaps(claim.cidr))
    }

    /// The Nodes other than this one that have a podCIDR over an address of `cidr`, where agents do not read it.
    pub fn routed_to_others<'a>(
        &'a self,
        cidr: Cidr,
        node: &'a NodeName,
    ) -> impl Iterator<Item = (Cidr, &'a NodeName)> {
        let routed = (!self.agents_read_nodes()).then(|| self.routed.overlapping(cidr));
        routed.into_iter().flatten().filter(move |(_, other)| *other != node)
    }

    /// The addresses of Nodes in a range.
    pub fn addresses_of_nodes_in(&self, range: Cidr) -> impl Iterator<Item = (IpAddr, &NodeName)> {
        range.entries_in(&self.node_addresses).flat_map(|(address, holders)| {
            let nodes = holders.iter().filter(|(kind, _)| *kind == Kind::Node);
            nodes.map(|(_, node)| (*address, node))
        })
    }

    /// The addresses that several Nodes have as their own, with these Nodes. Costs a pass over all addresses of nodes.
    pub fn shared_node_addresses(&self) -> impl Iterator<Item = (IpAddr, impl Iterator<Item = &NodeName>)> {
        let is_node = |(kind, _): &&(Kind, NodeName)| *kind == Kind::Node;
        let shared = self
            .node_addresses
            .iter()
            .filter(move |(_, holders)| holders.iter().filter(is_node).nth(1).is_some());
        shared.map(|(address, holders)| {
            let nodes = holders.iter().filter(|(kind, _)| *kind == Kind::Node);
            (*address, nodes.map(|(_, node)| node))
        })
    }

    /// Takes in the podCIDRs of a Node, in the place of those of `before`.
    pub(super) fn set_routed(&mut self, name: &NodeName, before: Option<&Node>) {
        let before = before.map(publisher::pod_cidrs_of).unwrap_or_default();
        let after = self.entries.get(name).and_then(|entry| entry.node.as_deref());
        let after = after.map(publisher::pod_cidrs_of).unwrap_or_default();
        if before == after {
            return;
        }
        for cidr in before {
            self.routed.remove(*cidr, name);
        }
        for cidr in after {
            self.routed.insert(*cidr, name.clone());
        }
    }
}
