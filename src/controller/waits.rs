//! Which nodes wait for something that nothing can give them, and when each of them is told of again.
//!
//! Decides nothing and knows no world: its owner says what each node lacks. There is one of these for each thing that a
//! node may lack, because it may lack several, and each begins and ends by itself. Keeps one invariant: a node is told of
//! when it begins to lack something, and then once per interval as long as it does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::names::NodeName;

/// The time after which a node that still waits is told of again. The API server forgets events after an hour.
pub(super) const REPEAT: Duration = Duration::from_secs(3600);

/// The nodes that wait, each with what it lacks.
#[derive(Debug, Default)]
pub(super) struct Waits<L> {
    lacks: BTreeMap<NodeName, (L, Instant)>,
    /// When each is told of again, the next first.
    due: BTreeSet<(Instant, NodeName)>,
}

impl<L: Clone + PartialEq> Waits<L> {
    /// Notes what a node lacks now; whether that is new, and is to be told.
    pub(super) fn note(&mut self, node: &NodeName, lack: Option<&L>, now: Instant) -> bool {
        match (self.lacks.remove(node), lack) {
            (None, None) => false,
            (Some((before, due)), Some(lack)) if before == *lack => {
                self.lacks.insert(node.clone(), (before, due));
                false
            }
            (before, lack) => {
                if let Some((_, due)) = before {
                    self.due.remove(&(due, node.clone()));
                }
                if let Some(lack) = lack {
                    self.due.insert((now + REPEAT, node.clone()));
                    self.lacks.insert(node.clone(), (lack.clone(), now + REPEAT));
                }
                lack.is_some()
            }
        }
    }

    /// When the next node is told of again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A node that is to be told of again now; it counts as told.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(NodeName, L)> {
        self.due.first().filter(|(due, _)| *due <= now)?;
        let (due, node) = self.due.pop_first()?;
        let (lack, at) = self.lacks.get_mut(&node)?;
        *at = due + REPEAT;
        self.due.insert((*at, node.clone()));
        Some((node, lack.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_told_of_when_it_begins_to_wait_and_then_every_hour() {
        let mut waits = Waits::default();
        let start = Instant::now();
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let (node, other) = (NodeName::from("a"), NodeName::from("b"));
        let (one, both) = ("one block", "two blocks");
        assert!(!waits.note(&node, None, at(0)));
        assert!(waits.note(&node, Some(&one), at(0)));
        assert!(!waits.note(&node, Some(&one), at(30)));
        assert_eq!(waits.next_due(), Some(at(60)));
        assert_eq!(waits.pop_due(at(59)), None);
        assert_eq!(waits.pop_due(at(60)), Some((node.clone(), one)));
        assert_eq!(waits.pop_due(at(60)), None);
        assert!(waits.note(&node, Some(&both), at(61)), "it lacks something else");
        assert!(waits.note(&other, Some(&one), at(70)));
        assert!(!waits.note(&node, None, at(80)), "it is served");
        assert_eq!(waits.pop_due(at(200)), Some((other.clone(), one)));
        assert!(!waits.note(&other, None, at(201)));
        assert_eq!((waits.next_due(), waits.lacks.len()), (None, 0));
    }
}
