//! The objects that could not be read, by kind and name. Claims are also indexed by their block and by the node and the
//! pool that they name.
//!
//! Knows no other objects and decides nothing. Keeps one invariant: the indexes name the same claims as the objects. If
//! the definition of claims is newer than the controller, all claims are here. So nothing may pass over them for each
//! node or pool.

use std::collections::{BTreeMap, BTreeSet};

use super::index::remove;
use crate::model::claim::block_named;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName};
use crate::model::observation::Unreadable;
use crate::net::cidr::Cidr;
use crate::net::prefixes::PrefixIndex;

/// The objects that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UnreadableObjects {
    /// By kind and name; never an empty map.
    by_kind: BTreeMap<Kind, BTreeMap<String, Unreadable>>,
    /// The names of the claims that name this node; never an empty set.
    claims_of: BTreeMap<NodeName, BTreeSet<String>>,
    /// The names of the claims that name this pool; never an empty set.
    claims_in: BTreeMap<PoolName, BTreeSet<String>>,
    /// The blocks in the names of claims.
    blocks: PrefixIndex<()>,
}

impl UnreadableObjects {
    /// Adds an object, and returns its earlier version.
    pub(super) fn insert(&mut self, kind: Kind, object: Unreadable) -> Option<Unreadable> {
        let before = self.remove(kind, &object.name);
        if kind == Kind::Claim {
            if let Some(node) = &object.node {
                self.claims_of.entry(node.clone()).or_default().insert(object.name.clone());
            }
            if let Some(pool) = &object.pool {
                self.claims_in.entry(pool.clone()).or_default().insert(object.name.clone());
            }
            if let Some(block) = block_named(&object.name) {
                self.blocks.insert(block, ());
            }
        }
        self.by_kind.entry(kind).or_default().insert(object.name.clone(), object);
        before
    }

    /// Removes an object, and returns it.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) -> Option<Unreadable> {
        let of_kind = self.by_kind.get_mut(&kind)?;
        let object = of_kind.remove(name)?;
        if of_kind.is_empty() {
            self.by_kind.remove(&kind);
        }
        if kind == Kind::Claim {
            if let Some(node) = &object.node {
                remove(&mut self.claims_of, node, name);
            }
            if let Some(pool) = &object.pool {
                remove(&mut self.claims_in, pool, name);
            }
            if let Some(block) = block_named(name) {
                self.blocks.remove(block, &());
            }
        }
        Some(object)
    }

    /// The object of this kind and name.
    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<&Unreadable> {
        self.by_kind.get(&kind)?.get(name)
    }

    /// All of them, by kind and name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Kind, &Unreadable)> {
        self.by_kind.iter().flat_map(|(kind, of_kind)| of_kind.values().map(|object| (*kind, object)))
    }

    /// Those of one kind, by name.
    pub(super) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Unreadable> {
        self.by_kind.get(&kind).into_iter().flat_map(BTreeMap::values)
    }

    /// The claims that name this node.
    pub(super) fn claims_of(&self, node: &NodeName) -> impl Iterator<Item = &Unreadable> {
        let names = self.claims_of.get(node).into_iter().flatten();
        names.filter_map(|name| self.get(Kind::Claim, name))
    }

    /// Whether a claim that names this pool is among them.
    pub(super) fn has_claim_in(&self, pool: &PoolName) -> bool {
        self.claims_in.contains_key(pool)
    }

    /// Whether the claim of this block is among them.
    pub(super) fn has_block(&self, block: Cidr) -> bool {
        !self.blocks.at(block).is_empty()
    }

    /// The blocks of the claims among them that share an address with `range`.
    pub(super) fn blocks_in(&self, range: Cidr) -> impl Iterator<Item = Cidr> {
        self.blocks.overlapping(range).map(|(block, ())| block)
    }

    /// Whether the indexes match the objects.
    pub(super) fn is_consistent(&self) -> bool {
        let mut fresh = Self::default();
        for (kind, object) in self.iter() {
            fresh.insert(kind, object.clone());
        }
        fresh == *self
    }

    #[cfg(test)]
    pub(super) fn break_an_index(&mut self) {
        self.claims_of.insert("n".into(), BTreeSet::new());
    }
}
