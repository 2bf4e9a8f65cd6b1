//! Which nodes wait in vain, and when each of them is reported.
//!
//! Decides nothing and knows no world: its owner says what each node lacks. There is one of these for each thing that a
//! node may lack, because it may lack several, and each begins and ends by itself. Keeps one invariant: a node is reported
//! when it has lacked something for a while, and then once per interval as long as it does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::names::NodeName;

/// The time after which a node that still waits is reported again. The API server forgets events after an hour, unless its
/// flag `--event-ttl` says otherwise, so a node that waits always has one.
pub(super) const REPEAT: Duration = Duration::from_secs(45 * 60);

/// The nodes that wait, each with what it lacks.
#[derive(Debug)]
pub(super) struct Waits<L> {
    /// How long a node lacks something before it is reported.
    patience: Duration,
    nodes: BTreeMap<NodeName, Wait<L>>,
    /// When each is reported, the next first.
    due: BTreeSet<(Instant, NodeName)>,
}

/// The wait of one node.
#[derive(Debug)]
struct Wait<L> {
    lack: L,
    due: Instant,
    /// Whether it was reported, for this lack or an earlier one.
    is_told: bool,
}

impl<L: Clone + PartialEq> Waits<L> {
    /// No node waits yet. A new wait is reported at once.
    pub(super) fn told_at_once() -> Self {
        Self::told_after(Duration::ZERO)
    }

    /// No node waits yet. A new wait is reported when it has lasted this long. It may be reported in half the time,
    /// together with others: waits that start within seconds of each other are due at the same time.
    pub(super) fn told_after(patience: Duration) -> Self {
        Self { patience, nodes: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// Notes the lack of a node, if it has one; whether that is due at once.
    pub(super) fn note(&mut self, node: &NodeName, lack: Option<&L>, now: Instant) -> bool {
        let before = self.nodes.remove(node);
        if let (Some(wait), Some(lack)) = (&before, lack)
            && wait.lack == *lack
        {
            self.nodes.extend(before.map(|wait| (node.clone(), wait)));
            return false;
        }
        if let Some(wait) = &before {
            self.due.remove(&(wait.due, node.clone()));
        }
        let Some(lack) = lack else { return false };
        let is_due = self.patience.is_zero();
        let due = if is_due { now + REPEAT } else { self.first_due(now) };
        let is_told = is_due || before.is_some_and(|wait| wait.is_told);
        self.due.insert((due, node.clone()));
        self.nodes.insert(node.clone(), Wait { lack: lack.clone(), due, is_told });
        is_due
    }

    /// When a wait that starts now is reported.
    fn first_due(&self, now: Instant) -> Instant {
        let (soonest, latest) = (now + self.patience / 2, now + self.patience);
        let shared = self.due.range((soonest, NodeName::from(""))..).next().map(|(due, _)| *due);
        shared.filter(|due| *due <= latest).unwrap_or(latest)
    }

    /// Whether the node lacks something.
    pub(super) fn is_waiting(&self, node: &NodeName) -> bool {
        self.nodes.contains_key(node)
    }

    /// Whether the node lacks something, and was reported.
    pub(super) fn is_told(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|wait| wait.is_told)
    }

    /// When the next node is reported.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A node to report now; it counts as reported.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(NodeName, L)> {
        self.due.first().filter(|(due, _)| *due <= now)?;
        let (due, node) = self.due.pop_first()?;
        let wait = self.nodes.get_mut(&node)?;
        (wait.due, wait.is_told) = (due + REPEAT, true);
        self.due.insert((wait.due, node.clone()));
        Some((node, wait.lack.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_told_of_when_it_begins_to_wait_and_then_once_per_interval() {
        let mut waits = Waits::told_at_once();
        let start = Instant::now();
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let (node, other) = (NodeName::from("a"), NodeName::from("b"));
        let (one, both) = ("one block", "two blocks");
        assert!(!waits.note(&node, None, at(0)));
        assert!(waits.note(&node, Some(&one), at(0)));
        assert!(!waits.note(&node, Some(&one), at(30)));
        assert_eq!(waits.next_due(), Some(at(45)));
        assert_eq!(waits.pop_due(at(44)), None);
        assert_eq!(waits.pop_due(at(45)), Some((node.clone(), one)));
        assert_eq!(waits.pop_due(at(45)), None);
        assert!(waits.note(&node, Some(&both), at(61)), "it lacks something else");
        assert!(waits.note(&other, Some(&one), at(70)));
        assert!(!waits.note(&node, None, at(80)), "it is served");
        assert_eq!(waits.pop_due(at(200)), Some((other.clone(), one)));
        assert!(!waits.note(&other, None, at(201)));
        assert_eq!((waits.next_due(), waits.nodes.len()), (None, 0));
    }

    #[test]
    fn nodes_that_begin_to_wait_within_seconds_are_due_together() {
        let mut waits = Waits::told_after(Duration::from_secs(30));
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for (node, seconds) in [("a", 0), ("b", 15), ("c", 16), ("d", 20)] {
            assert!(!waits.note(&node.into(), Some(&()), at(seconds)));
        }
        waits.note(&"d".into(), None, at(25));
        let mut due = |seconds| {
            std::iter::from_fn(|| waits.pop_due(at(seconds)).map(|(node, ())| node.to_string()))
                .collect::<Vec<_>>()
        };
        assert!(due(29).is_empty());
        assert_eq!(due(30), ["a", "b"]);
        assert_eq!(due(45), Vec::<String>::new());
        assert_eq!(due(46), ["c"], "the wait of the other one has ended");
        assert_eq!(due(30 + 45 * 60), ["a", "b"]);
    }

    #[test]
    fn a_node_was_told_of_once_it_was_due() {
        let mut waits = Waits::told_after(Duration::from_secs(30));
        let (start, node) = (Instant::now(), NodeName::from("a"));
        waits.note(&node, Some(&"one"), start);
        assert!(waits.is_waiting(&node) && !waits.is_told(&node));
        waits.pop_due(start + Duration::from_secs(30));
        assert!(waits.is_told(&node));
        waits.note(&node, Some(&"other"), start + Duration::from_secs(31));
        assert!(waits.is_told(&node), "of another lack");
        waits.note(&node, None, start + Duration::from_secs(32));
        assert!(!waits.is_waiting(&node) && !waits.is_told(&node));
    }
}
