//! The publisher of each node: that of Cilium's mode, with what CiliumNodeConfigs set for the node.
//!
//! Keeps one invariant: it is what the known CiliumNodeConfigs and the labels of the Node make of the publisher of all
//! nodes ([`World::check`]).

use std::collections::BTreeSet;

use super::World;
use crate::model::names::{NodeName, PodIpPoolName};
use crate::model::node::Node;
use crate::model::node_config::NodeConfigNews;
use crate::model::pool::Pool;
use crate::publisher::Publisher;

impl World {
    /// The publisher of a node, where the controller may write: that of Cilium's mode, with what is set for this node.
    #[must_use]
    pub fn publisher_of(&self, node: &NodeName) -> Option<&Publisher> {
        self.publisher().map(|_| self.reader_of(node))
    }

    /// The publisher by which the carrier of a node is read, also while nothing may be written.
    #[must_use]
    pub fn reader_of(&self, node: &NodeName) -> &Publisher {
        self.node_configs.of(node).unwrap_or(&self.reader)
    }

    /// Why a node is not served, because of what is set for it.
    #[must_use]
    pub fn set_aside(&self, node: &NodeName) -> Option<&str> {
        self.node_configs.set_aside(node)
    }

    /// The names under which a pool gives blocks: its own, or else the default of all nodes, and that of each node that it
    /// selects.
    #[must_use]
    pub fn names_of_pool<'a>(&'a self, pool: &'a Pool) -> BTreeSet<&'a PodIpPoolName> {
        let mut names: BTreeSet<&PodIpPoolName> = self.reader.pod_ip_pool_of(pool).into_iter().collect();
        if pool.pod_ip_pool.is_none() {
            let own = self.node_configs.default_pools();
            names.extend(own.filter(|name| self.is_default_in(name, pool)));
        }
        names
    }

    /// Whether a pool gives blocks under a name.
    pub(super) fn gives_under(&self, pool: &Pool, name: &PodIpPoolName) -> bool {
        self.reader.pod_ip_pool_of(pool) == Some(name)
            || (pool.pod_ip_pool.is_none() && self.is_default_in(name, pool))
    }

    /// Whether a name is the default of a node of its own that this pool selects.
    fn is_default_in(&self, name: &PodIpPoolName, pool: &Pool) -> bool {
        let (Some(nodes), Some(selected)) =
            (self.node_configs.nodes_with_default(name), self.selected.get(&pool.name))
        else {
            return false;
        };
        let (few, many) = if nodes.len() < selected.len() { (nodes, selected) } else { (selected, nodes) };
        few.iter().any(|node| many.contains(node))
    }

    /// Takes in what is told of CiliumNodeConfigs.
    pub fn observe_node_configs(&mut self, news: NodeConfigNews) {
        self.node_configs.observe(news);
        if self.derive_publishers() {
            self.mark_all();
        }
    }

    /// Derives the publisher of every node anew: of Cilium's mode, or what is set for nodes, something else is known.
    /// Returns whether any is another than before.
    pub(super) fn derive_publishers(&mut self) -> bool {
        let nodes: Vec<NodeName> = self.nodes.keys().cloned().collect();
        let changed: Vec<NodeName> =
            nodes.into_iter().filter(|node| self.derive_publisher_of(node)).collect();
        for node in &changed {
            // What Nodes carry counts as the settings say.
            self.update_carried(node);
        }
        !changed.is_empty()
    }

    /// The same of one node, whose labels may be others than before. One that is gone has none.
    pub(super) fn derive_publisher_of(&mut self, node: &NodeName) -> bool {
        let own = self.nodes.get(node).and_then(|node| self.node_configs.own(&self.reader, &node.labels));
        self.node_configs.set(node, own)
    }

    /// The nodes whose publisher is not what follows from what is known.
    pub(super) fn wrong_publishers(&self) -> BTreeSet<NodeName> {
        let own = |node: &Node| self.node_configs.own(&self.reader, &node.labels);
        let expected = self.nodes.values().filter_map(|node| Some((&node.name, own(node)?))).collect();
        self.node_configs.differing(&expected)
    }
}
