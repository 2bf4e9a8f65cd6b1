//! The conditions of Nodes that must be written, and the pace of these writes. Knows no objects.
//!
//! Keeps two invariants. All Nodes together get at most one such write per [`INTERVAL`]. And one Node gets at most one
//! per [`REST`], after any answer: a condition that changes often, or that another writer undoes, costs few writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::names::NodeName;

/// The minimum time between two writes, so at most 20 per second. kubelet writes the status of each Node every 5 min, in
/// a cluster of 5,000 nodes 17 times per second.
const INTERVAL: Duration = Duration::from_millis(50);

/// The minimum time between two writes of one Node.
const REST: Duration = Duration::from_secs(10);

/// The conditions that must be written.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    /// The Nodes that may be written, because their condition differs from the verdict.
    due: BTreeSet<NodeName>,
    /// Until when each Node that was written lately rests.
    rests: BTreeMap<NodeName, Duration>,
    /// When the next write may start.
    next: Duration,
}

impl Conditions {
    /// The next Node that may be written at this time.
    pub(super) fn next(&self, now: Duration) -> Option<&NodeName> {
        self.due.first().filter(|_| self.next <= now)
    }

    /// When there may be one; `None` if none is due and none rests.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let due = (!self.due.is_empty()).then_some(self.next);
        due.into_iter().chain(self.rests.values().copied()).min()
    }

    /// The write of a Node starts.
    pub(super) fn begin(&mut self, node: &NodeName, now: Duration) {
        self.next = now + INTERVAL;
        self.due.remove(node);
        self.rests.insert(node.clone(), now + REST);
    }

    /// Takes the Nodes that have rested.
    pub(super) fn take_rested(&mut self, now: Duration) -> Vec<NodeName> {
        let rested = self.rests.iter().filter(|(_, until)| **until <= now).map(|(node, _)| node.clone());
        let rested: Vec<NodeName> = rested.collect();
        for node in &rested {
            self.rests.remove(node);
        }
        rested
    }

    /// A Node must be written, if it does not rest.
    pub(super) fn want(&mut self, node: &NodeName) {
        if !self.rests.contains_key(node) {
            self.due.insert(node.clone());
        }
    }

    /// A Node must not be written now.
    pub(super) fn drop_due(&mut self, node: &NodeName) {
        self.due.remove(node);
    }

    /// Forgets a Node that no longer exists.
    pub(super) fn forget(&mut self, node: &NodeName) {
        self.due.remove(node);
        self.rests.remove(node);
    }

    /// The Nodes that it has an entry for.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.due.iter().chain(self.rests.keys())
    }
}
