//! The publisher of each node: that of Cilium's mode, with the settings of the node's CiliumNodeConfigs.
//!
//! Keeps one invariant: each publisher follows from that of all nodes, the known CiliumNodeConfigs and the labels of
//! the Node ([`World::check`]).

use std::collections::BTreeSet;

use super::World;
use crate::model::names::{NodeName, PodIpPoolName};
use crate::model::node::Node;
use crate::model::node_config::{NodeConfigNews, Relabelling};
use crate::model::pool::Pool;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::{self, Publisher};

impl World {
    /// The publisher of a node, where the controller may write: that of Cilium's mode, with the settings of this node.
    #[must_use]
    pub fn publisher_of(&self, node: &NodeName) -> Option<&Publisher> {
        self.publisher().map(|_| self.reader_of(node))
    }

    /// The publisher that reads the carrier of a node, also while nothing may be written.
    #[must_use]
    pub fn reader_of(&self, node: &NodeName) -> &Publisher {
        self.node_configs.of(node).unwrap_or(&self.publishers)
    }

    /// Why the CiliumNodeConfigs can't be listed.
    #[must_use]
    pub fn node_configs_unlisted(&self) -> Option<&str> {
        self.node_configs.unlisted()
    }

    /// The change of one label of a Node after which CiliumNodeConfigs give the node a mode that is wanted, if there is
    /// one.
    pub fn relabelling(&self, node: &Node, is_wanted: impl Fn(IpamMode) -> bool) -> Option<Relabelling> {
        self.node_configs.relabelling(&self.publishers, &node.labels, is_wanted)
    }

    /// Why the settings of a node keep it from being served.
    #[must_use]
    pub fn set_aside(&self, node: &NodeName) -> Option<&str> {
        self.node_configs.set_aside(node)
    }

    /// Whether cilium-operator gives blocks in the ranges of a pool to nodes in cluster-pool mode, as some CiliumNode
    /// shows, and this node may have several. A node with one block for life has signs of its own. Costs a pass over
    /// the CiliumNodes where a pool has such ranges and nodes may have that mode.
    #[must_use]
    pub fn operator_allocates_in(&self, pool: &Pool, family: Family, node: &NodeName) -> bool {
        if self.reader_of(node).traits().gives_one_block {
            return false;
        }
        let mut ranges = pool.families.get(&family).into_iter().flat_map(|ranges| ranges.cidrs.keys());
        let is_shared = |range: &Cidr| {
            self.publishers.operator_ranges().iter().any(|of_operator| of_operator.overlaps(*range))
        };
        ranges.any(is_shared) && self.cilium_nodes().any(publisher::shows_operator)
    }

    /// The names under which a pool gives blocks: its own name. Without one, the default of all nodes, and the own
    /// default of each node that it selects.
    #[must_use]
    pub fn names_of_pool<'a>(&'a self, pool: &'a Pool) -> BTreeSet<&'a PodIpPoolName> {
        let mut names: BTreeSet<&PodIpPoolName> = self.publishers.pod_ip_pool_of(pool).into_iter().collect();
        if pool.pod_ip_pool.is_none() {
            let own = self.node_configs.default_pools();
            names.extend(own.filter(|name| self.is_default_in(name, pool)));
        }
        names
    }

    /// Whether a pool gives blocks under a name.
    pub(super) fn gives_under(&self, pool: &Pool, name: &PodIpPoolName) -> bool {
        self.publishers.pod_ip_pool_of(pool) == Some(name)
            || (pool.pod_ip_pool.is_none() && self.is_default_in(name, pool))
    }

    /// Whether a name is the own default of a node that this pool selects.
    fn is_default_in(&self, name: &PodIpPoolName, pool: &Pool) -> bool {
        let (Some(nodes), Some(selected)) =
            (self.node_configs.nodes_with_default(name), self.selected.get(&pool.name))
        else {
            return false;
        };
        let (few, many) = if nodes.len() < selected.len() { (nodes, selected) } else { (selected, nodes) };
        few.iter().any(|node| many.contains(node))
    }

    /// Takes in news of CiliumNodeConfigs.
    pub fn observe_node_configs(&mut self, news: NodeConfigNews) {
        self.node_configs.observe(news);
        if self.derive_publishers() {
            self.mark_all();
        }
    }

    /// Derives the publisher of every node again, because Cilium's mode or the settings of nodes may have changed.
    /// Returns whether any publisher has changed.
    pub(super) fn derive_publishers(&mut self) -> bool {
        let nodes: Vec<NodeName> = self.nodes().map(|node| node.name.clone()).collect();
        let changed: Vec<NodeName> =
            nodes.into_iter().filter(|node| self.derive_publisher_of(node)).collect();
        for node in &changed {
            // The settings decide which CIDRs of a Node count, and in which fields its agent answers.
            self.update_carried(node);
            self.update_handshake(node);
        }
        !changed.is_empty()
    }

    /// The same for one node, whose labels may have changed. A deleted node has none.
    pub(super) fn derive_publisher_of(&mut self, node: &NodeName) -> bool {
        let own = self.node(node).and_then(|node| self.node_configs.own(&self.publishers, &node.labels));
        self.node_configs.set(node, own)
    }

    /// The nodes whose publisher does not follow from the known objects.
    pub(super) fn wrong_publishers(&self) -> BTreeSet<NodeName> {
        let own = |node: &Node| self.node_configs.own(&self.publishers, &node.labels);
        let expected = self.nodes().filter_map(|node| Some((node.name.clone(), own(node)?))).collect();
        self.node_configs.differing(&expected)
    }
}
