//! Which nodes wait in vain, and when they are reported: those with the same lack together.
//!
//! Decides nothing and knows no world: its owner names the lack of each node. There is one of these for each kind of
//! lack, because a node may have several, and each starts and stops by itself. Keeps two invariants. A node is
//! reported when it has lacked something for a while, and then once per interval as long as it does. Nodes that lack
//! the same are reported in few groups, however slowly they come. An owner may instead ask for each node by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::events;
use crate::model::names::NodeName;

/// The time after which a node that still waits is reported again. The API server forgets events after an hour, unless
/// its flag `--event-ttl` says otherwise, so a node that waits always has one.
pub(super) const REPEAT: Duration = Duration::from_secs(45 * 60);

/// How many nodes that lack the same are reported one by one. More than these are reported as one group.
pub(super) const MAX_EACH: usize = 3;

/// The shortest time between two reports of one group. An event soon after the last one would be suppressed, and it may
/// wait behind others before it is created.
const INTERVAL: Duration = events::INTERVAL.saturating_add(Duration::from_secs(60));

/// How soon a node is looked at again whose wait was over when it was due, and which no decision has confirmed yet.
const AGAIN: Duration = Duration::from_secs(1);

/// How many nodes are reported by themselves at once, and the pause before the next ones. Their events take 12.8 s
/// (`events.rs`), so they never fill its channel.
const EACH_AT_ONCE: usize = events::CAPACITY / 4;
const PAUSE: Duration = Duration::from_secs(15);

/// The nodes that wait, each with its lack.
#[derive(Debug)]
pub(super) struct Waits<L> {
    /// How long a node lacks something before it is reported.
    patience: Duration,
    nodes: BTreeMap<NodeName, Wait<L>>,
    /// When each is reported, the next first.
    due: BTreeSet<(Instant, NodeName)>,
    /// When each group was last reported.
    groups: BTreeMap<L, Instant>,
}

/// Nodes to report now: up to [`MAX_EACH`] one by one, or all that wait for the same as a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Due<L> {
    /// Their lack.
    pub(super) lack: L,
    /// At least one node, in the order of names.
    pub(super) nodes: Vec<NodeName>,
}

/// The wait of one node.
#[derive(Debug)]
struct Wait<L> {
    lack: L,
    due: Instant,
    /// Whether it was reported, for this lack or an earlier one.
    is_reported: bool,
}

impl<L: Clone + Ord> Waits<L> {
    /// No node waits yet. A new wait is reported when it has lasted this long. It may be reported in half the time,
    /// together with others: waits that start within seconds of each other are due at the same time.
    pub(super) fn reported_after(patience: Duration) -> Self {
        Self { patience, nodes: BTreeMap::new(), due: BTreeSet::new(), groups: BTreeMap::new() }
    }

    /// Notes the lack of a node, if it has one.
    pub(super) fn note(&mut self, node: &NodeName, lack: Option<&L>, now: Instant) {
        if let (Some(wait), Some(lack)) = (self.nodes.get(node), lack)
            && wait.lack == *lack
        {
            return;
        }
        let before = self.nodes.remove(node);
        if let Some(wait) = &before {
            self.due.remove(&(wait.due, node.clone()));
        }
        let Some(lack) = lack else { return };
        let (due, is_reported) = (self.first_due(now), before.is_some_and(|wait| wait.is_reported));
        self.due.insert((due, node.clone()));
        self.nodes.insert(node.clone(), Wait { lack: lack.clone(), due, is_reported });
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
    pub(super) fn is_reported(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|wait| wait.is_reported)
    }

    /// When the next node is reported.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The nodes to report now, which then count as reported. `lasts` says whether a node still waits: a decision
    /// that stops its wait may be due.
    pub(super) fn pop_due(&mut self, now: Instant, lasts: impl Fn(&NodeName) -> bool) -> Vec<Due<L>> {
        let mut by_lack: BTreeMap<L, BTreeSet<NodeName>> = BTreeMap::new();
        while let Some((due, _)) = self.due.first()
            && *due <= now
            && let Some((_, node)) = self.due.pop_first()
        {
            let Some(wait) = self.nodes.get(&node) else { continue };
            if lasts(&node) {
                by_lack.entry(wait.lack.clone()).or_default().insert(node);
            } else {
                self.put_off(&node, now + AGAIN);
            }
        }
        self.groups.retain(|_, last| *last + INTERVAL > now);
        // One pass over all nodes, however many groups there are.
        let mut reported: BTreeMap<L, BTreeSet<NodeName>> =
            by_lack.keys().map(|lack| (lack.clone(), BTreeSet::new())).collect();
        for (node, wait) in self.nodes.iter().filter(|(_, wait)| wait.is_reported) {
            if let Some(reported) = reported.get_mut(&wait.lack).filter(|_| lasts(node)) {
                reported.insert(node.clone());
            }
        }
        let groups = by_lack.into_iter().filter_map(|(lack, due)| {
            let reported = reported.remove(&lack).unwrap_or_default();
            self.group(lack, due, reported, now)
        });
        groups.collect()
    }

    /// The nodes to report now, each by itself with its lack, in the order in which they are due. They then count as
    /// reported. Of many nodes, some are reported a little later.
    pub(super) fn pop_each(&mut self, now: Instant, lasts: impl Fn(&NodeName) -> bool) -> Vec<(NodeName, L)> {
        let due: Vec<NodeName> =
            self.due.iter().take_while(|(due, _)| *due <= now).map(|(_, node)| node.clone()).collect();
        let mut reported = Vec::new();
        for node in due {
            if !lasts(&node) {
                self.put_off(&node, now + AGAIN);
            } else if reported.len() == EACH_AT_ONCE {
                self.put_off(&node, now + PAUSE);
            } else if let Some(wait) = self.nodes.get_mut(&node) {
                wait.is_reported = true;
                reported.push((node.clone(), wait.lack.clone()));
                self.put_off(&node, now + REPEAT);
            }
        }
        reported
    }

    /// The report of nodes that lack the same: some are due, and others were reported before. `None` if those that
    /// are due are put off, because the group was reported a moment ago.
    fn group(
        &mut self,
        lack: L,
        due: BTreeSet<NodeName>,
        reported: BTreeSet<NodeName>,
        now: Instant,
    ) -> Option<Due<L>> {
        let mut nodes = reported;
        nodes.extend(due.iter().cloned());
        if nodes.len() <= MAX_EACH {
            nodes = due;
        } else if let Some(last) = self.groups.get(&lack) {
            let later = *last + INTERVAL;
            for node in &due {
                self.put_off(node, later);
            }
            return None;
        } else {
            self.groups.insert(lack.clone(), now);
        }
        for node in &nodes {
            self.put_off(node, now + REPEAT);
            if let Some(wait) = self.nodes.get_mut(node) {
                wait.is_reported = true;
            }
        }
        Some(Due { lack, nodes: nodes.into_iter().collect() })
    }

    fn put_off(&mut self, node: &NodeName, due: Instant) {
        if let Some(wait) = self.nodes.get_mut(node) {
            self.due.remove(&(wait.due, node.clone()));
            wait.due = due;
            self.due.insert((due, node.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// The nodes that are reported at a time, one text for each report.
    fn due(waits: &mut Waits<&'static str>, at: Instant) -> Vec<String> {
        let reported = waits.pop_due(at, |_| true).into_iter();
        reported
            .map(|Due { lack, nodes }| {
                format!("{lack}: {}", nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" "))
            })
            .collect()
    }

    #[test]
    fn a_node_is_reported_when_it_has_waited_and_then_once_per_interval() {
        let mut waits = Waits::reported_after(PATIENCE);
        let start = Instant::now();
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let (node, other) = (NodeName::from("a"), NodeName::from("b"));
        waits.note(&node, None, at(0));
        waits.note(&node, Some(&"one"), at(0));
        assert_eq!(due(&mut waits, at(0)), Vec::<String>::new());
        assert_eq!(due(&mut waits, at(0) + PATIENCE), ["one: a"]);
        waits.note(&node, Some(&"one"), at(30));
        assert_eq!(waits.next_due(), Some(at(45) + PATIENCE));
        assert_eq!(due(&mut waits, at(45)), Vec::<String>::new());
        assert_eq!(due(&mut waits, at(45) + PATIENCE), ["one: a"]);
        assert_eq!(due(&mut waits, at(45) + PATIENCE), Vec::<String>::new());
        waits.note(&node, Some(&"two"), at(61));
        assert_eq!(due(&mut waits, at(62)), ["two: a"], "it lacks something else");
        waits.note(&other, Some(&"one"), at(70));
        waits.note(&node, None, at(80));
        assert_eq!(due(&mut waits, at(200)), ["one: b"], "the other one is served");
        waits.note(&other, None, at(201));
        assert_eq!((waits.next_due(), waits.nodes.len()), (None, 0));
    }

    #[test]
    fn nodes_that_begin_to_wait_within_seconds_are_due_together() {
        let mut waits = Waits::reported_after(PATIENCE);
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for (node, seconds) in [("a", 0), ("b", 15), ("c", 16), ("d", 20)] {
            waits.note(&node.into(), Some(&"one"), at(seconds));
        }
        waits.note(&"d".into(), None, at(25));
        assert_eq!(due(&mut waits, at(29)), Vec::<String>::new());
        assert_eq!(due(&mut waits, at(30)), ["one: a b"]);
        assert_eq!(due(&mut waits, at(45)), Vec::<String>::new());
        assert_eq!(due(&mut waits, at(46)), ["one: c"], "the wait of the other one has ended");
        assert_eq!(due(&mut waits, at(30 + 45 * 60)), ["one: a b"]);
    }

    /// An autoscaler may add one node after the other.
    #[test]
    fn nodes_that_come_slowly_are_one_group_with_a_report_per_interval() {
        let mut waits = Waits::reported_after(PATIENCE);
        let start = Instant::now();
        let mut reports = Vec::new();
        for second in 0..1200u64 {
            if second % 6 == 0 && second < 600 {
                waits.note(
                    &format!("n{:02}", second / 6).as_str().into(),
                    Some(&"one"),
                    start + Duration::from_secs(second),
                );
            }
            for report in waits.pop_due(start + Duration::from_secs(second), |_| true) {
                reports.push((second, report.nodes.len()));
            }
        }
        assert_eq!(reports, [(30, 3), (48, 6), (408, 66), (768, 100)]);
        assert!(waits.next_due() > Some(start + Duration::from_secs(768) + REPEAT - Duration::from_secs(1)));
        let all = waits.pop_due(start + Duration::from_secs(768) + REPEAT, |_| true);
        assert_eq!(all.iter().map(|due| due.nodes.len()).collect::<Vec<_>>(), [100]);
    }

    #[test]
    fn of_many_nodes_each_is_reported_by_itself_in_turns() {
        let mut waits = Waits::reported_after(PATIENCE);
        let start = Instant::now();
        for number in 0..1000 {
            waits.note(&format!("n{number:03}").as_str().into(), Some(&"one"), start);
        }
        let mut at = start + PATIENCE;
        let mut reports = Vec::new();
        while at < start + REPEAT {
            let reported = waits.pop_each(at, |node| node.as_str() != "n000");
            reports.push(reported.len());
            let next = waits.due.iter().map(|(due, _)| *due).find(|due| *due > at + AGAIN);
            at = next.expect("they still wait");
        }
        assert_eq!(reports, [256, 256, 256, 231], "one of them waits no longer");
        assert!(waits.is_reported(&"n999".into()) && !waits.is_reported(&"n000".into()));
    }

    #[test]
    fn groups_of_different_lacks_are_apart() {
        let mut waits = Waits::reported_after(PATIENCE);
        let start = Instant::now();
        for number in 0..4 {
            waits.note(&format!("a{number}").as_str().into(), Some(&"one"), start);
            waits.note(&format!("b{number}").as_str().into(), Some(&"two"), start);
        }
        assert_eq!(due(&mut waits, start + PATIENCE), ["one: a0 a1 a2 a3", "two: b0 b1 b2 b3"]);
    }

    #[test]
    fn a_node_was_reported_once_it_was_due_and_still_waited() {
        let mut waits = Waits::reported_after(PATIENCE);
        let (start, node) = (Instant::now(), NodeName::from("a"));
        waits.note(&node, Some(&"one"), start);
        assert!(waits.is_waiting(&node) && !waits.is_reported(&node));
        assert_eq!(waits.pop_due(start + PATIENCE, |_| false), []);
        assert!(!waits.is_reported(&node), "its wait was over");
        assert_eq!(waits.next_due(), Some(start + PATIENCE + AGAIN));
        waits.pop_due(start + PATIENCE + AGAIN, |_| true);
        assert!(waits.is_reported(&node));
        waits.note(&node, Some(&"other"), start + PATIENCE + AGAIN);
        assert!(waits.is_reported(&node), "of another lack");
        waits.note(&node, None, start + PATIENCE + AGAIN);
        assert!(!waits.is_waiting(&node) && !waits.is_reported(&node));
    }
}
