//! The objects, the indexes and the memory of each node, under its name.
//!
//! Knows no rules. Keeps one invariant: the entries are in the order of their names.

use indexmap::IndexMap;

use super::memory::Remembered;
use crate::model::names::{NodeName, PoolName};
use crate::model::node::{CiliumNode, Node};
use crate::net::cidr::Cidr;
use crate::net::small_set::SmallSet;

/// Everything that is known under the name of one node.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeEntry {
    // In boxes: a node that leaves has only one of the two for a long time.
    pub(super) node: Option<Box<Node>>,
    pub(super) cilium_node: Option<Box<CiliumNode>>,
    /// The blocks of its claims.
    pub(super) claims: SmallSet<Cidr>,
    /// The pools that select it, in the order in which it asks them.
    pub(super) selection: Vec<PoolName>,
    /// The memory beside the objects.
    pub(super) remembered: Remembered,
}

impl NodeEntry {
    /// Whether no object of the node exists, and no claim of it.
    pub(super) fn has_no_objects(&self) -> bool {
        self.node.is_none() && self.cilium_node.is_none() && self.claims.is_empty()
    }
}

/// The entries of all nodes. A lookup costs one hash of the name. The insertion of a name at its place, and its removal,
/// cost a pass over the later ones: nodes come and go one by one, or in a list that is in order already.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeEntries {
    // A map reserves more entries than it has, so they are in boxes.
    by_name: IndexMap<NodeName, Box<NodeEntry>>,
}

impl NodeEntries {
    pub(super) fn get(&self, name: &NodeName) -> Option<&NodeEntry> {
        self.by_name.get(name).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, name: &NodeName) -> Option<&mut NodeEntry> {
        self.by_name.get_mut(name).map(Box::as_mut)
    }

    /// The entry of this name, which is created if there is none.
    pub(super) fn of(&mut self, name: &NodeName) -> &mut NodeEntry {
        let place = self.by_name.get_index_of(name);
        let place = place.unwrap_or_else(|| self.by_name.insert_sorted(name.clone(), Box::default()).0);
        &mut self.by_name[place]
    }

    pub(super) fn remove(&mut self, name: &NodeName) {
        self.by_name.shift_remove(name);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeName, &NodeEntry)> {
        self.by_name.iter().map(|(name, entry)| (name, entry.as_ref()))
    }
}
