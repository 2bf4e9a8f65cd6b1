//! The next decisions: nodes and pools with a change, and the times to look again.
//!
//! Ordered, so that equal worlds decide in equal order. It looks for no work by itself: only an observation, an
//! outcome, or a time that a decision named adds an entry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::names::{NodeName, PoolName};
use crate::model::time::Timestamp;
use crate::net::cidr::Cidr;

/// Which node comes first when blocks are scarce. A node that can't start without a block comes before one that has
/// some, because the latter mostly asks for headroom. A node in the middle of its first grant must not lose the block
/// that completes the grant to a newcomer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// It holds claims, and none of its blocks is published.
    Starting,
    /// It holds none.
    Newcomer,
    /// It is served.
    Served,
}

/// The place of a node in the order of decisions and offers: first come, first served within a turn.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) turn: Turn,
    /// Since when it waits. A node that does not wait comes after all that do.
    pub(super) waits_since: Duration,
    /// When its Node was created: the order of the nodes that this process has found waiting.
    pub(super) created: Timestamp,
    pub(super) node: NodeName,
}

/// The node or pool for which a time was named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Waker {
    Node(NodeName),
    Pool(PoolName),
}

/// The agenda.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Agenda {
    nodes: BTreeSet<Place>,
    place_of: BTreeMap<NodeName, Place>,
    /// The pools whose status is due.
    pub(super) pools: BTreeSet<PoolName>,
    wakes: BTreeSet<(Duration, Waker)>,
    wake_of: BTreeMap<Waker, Duration>,
    /// When the status of each pool was last compared with the world.
    pub(super) status_looked_at: BTreeMap<PoolName, Duration>,
    /// Since when each pool has been looked at as one that is being deleted.
    pub(super) deletion_seen_at: BTreeMap<PoolName, Duration>,
    /// The claims that a list lacks, and that only an answer has shown.
    pub(super) unconfirmed: BTreeSet<Cidr>,
}

impl Agenda {
    pub(super) fn next_node(&self) -> Option<&Place> {
        self.nodes.first()
    }

    /// The nodes with a time to look again.
    pub(super) fn nodes_to_wake(&self) -> impl Iterator<Item = &NodeName> {
        self.wake_of.keys().filter_map(|waker| match waker {
            Waker::Node(node) => Some(node),
            Waker::Pool(_) => None,
        })
    }

    /// The pools with a time to look again.
    pub(super) fn pools_to_wake(&self) -> impl Iterator<Item = &PoolName> {
        self.wake_of.keys().filter_map(|waker| match waker {
            Waker::Pool(pool) => Some(pool),
            Waker::Node(_) => None,
        })
    }

    /// Whether the ordered times match those of each node and pool.
    pub(super) fn has_consistent_wakes(&self) -> bool {
        let by_time: BTreeSet<_> = self.wake_of.iter().map(|(waker, at)| (*at, waker.clone())).collect();
        by_time == self.wakes
    }

    #[cfg(test)]
    pub(super) fn break_wakes(&mut self) {
        self.wakes.insert((Duration::ZERO, Waker::Node("n".into())));
    }

    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.wakes.first().map(|(at, _)| *at)
    }

    pub(super) fn mark_node(&mut self, place: Place) {
        if let Some(before) = self.place_of.insert(place.node.clone(), place.clone()) {
            self.nodes.remove(&before);
        }
        self.nodes.insert(place);
    }

    /// Whether a decision for a node is due.
    pub(super) fn is_marked(&self, node: &NodeName) -> bool {
        self.place_of.contains_key(node)
    }

    pub(super) fn unmark_node(&mut self, node: &NodeName) {
        if let Some(place) = self.place_of.remove(node) {
            self.nodes.remove(&place);
        }
    }

    pub(super) fn mark_pool(&mut self, pool: &PoolName) {
        if !self.pools.contains(pool) {
            self.pools.insert(pool.clone());
        }
    }

    pub(super) fn wake_node(&mut self, node: &NodeName, at: Duration) {
        self.wake(Waker::Node(node.clone()), at);
    }

    pub(super) fn wake_pool(&mut self, pool: &PoolName, at: Duration) {
        self.wake(Waker::Pool(pool.clone()), at);
    }

    /// One time each: that of the latest decision.
    fn wake(&mut self, waker: Waker, at: Duration) {
        if let Some(before) = self.wake_of.insert(waker.clone(), at) {
            self.wakes.remove(&(before, waker.clone()));
        }
        self.wakes.insert((at, waker));
    }

    /// Time has passed: marks the pools that are due, and returns the nodes that are due.
    pub(super) fn advance(&mut self, uptime: Duration) -> Vec<NodeName> {
        let mut nodes = Vec::new();
        while let Some((at, _)) = self.wakes.first()
            && *at <= uptime
            && let Some((_, waker)) = self.wakes.pop_first()
        {
            self.wake_of.remove(&waker);
            match waker {
                Waker::Node(node) => nodes.push(node),
                Waker::Pool(pool) => self.mark_pool(&pool),
            }
        }
        nodes
    }

    /// Whether the pool is being deleted, and since when at the latest.
    pub(super) fn deletion_seen(&mut self, pool: &PoolName, at: Option<Duration>) {
        match at {
            Some(at) => {
                self.deletion_seen_at.entry(pool.clone()).or_insert(at);
            }
            // This is another pool of the same name.
            None => {
                self.deletion_seen_at.remove(pool);
            }
        }
    }

    pub(super) fn forget_pool(&mut self, pool: &PoolName) {
        self.pools.remove(pool);
        self.status_looked_at.remove(pool);
        self.deletion_seen_at.remove(pool);
        self.forget_wake(&Waker::Pool(pool.clone()));
    }

    /// Nothing is left of a node, so it waits for no time.
    pub(super) fn forget_node(&mut self, node: &NodeName) {
        self.forget_wake(&Waker::Node(node.clone()));
    }

    fn forget_wake(&mut self, waker: &Waker) {
        if let Some(at) = self.wake_of.remove(waker) {
            self.wakes.remove(&(at, waker.clone()));
        }
    }
}
