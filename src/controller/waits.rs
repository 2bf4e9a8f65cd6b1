//! Which nodes wait for addresses that nothing can give them, and when each of them is told of again.
//!
//! Decides nothing and knows no world: its owner says what each node lacks. Keeps one invariant: a node is told of when
//! it begins to lack something, and then once per interval as long as it does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::names::NodeName;
use crate::model::share::Share;

/// The time after which a node that still waits is told of again. The API server forgets events after an hour.
pub(super) const REPEAT: Duration = Duration::from_secs(3600);

/// What a node lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lack {
    /// No pool selects it.
    Pool,
    /// None of its pools has a block of these shares for it.
    Blocks(BTreeSet<Share>),
}

/// The nodes that wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    lacks: BTreeMap<NodeName, (Lack, Instant)>,
    /// When each is told of again, the next first.
    due: BTreeSet<(Instant, NodeName)>,
}

impl Waits {
    /// Notes what a node lacks now; whether that is new, and is to be told.
    pub(super) fn note(&mut self, node: &NodeName, lack: Option<&Lack>, now: Instant) -> bool {
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

    /// What a node lacks is not known as a whole, but no pool lacks a block for it any more.
    pub(super) fn note_no_lack_of_blocks(&mut self, node: &NodeName, now: Instant) {
        if matches!(self.lacks.get(node), Some((Lack::Blocks(_), _))) {
            self.note(node, None, now);
        }
    }

    /// When the next node is told of again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A node that is to be told of again now; it counts as told.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(NodeName, Lack)> {
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
    use crate::net::cidr::Family;

    fn blocks(families: &[Family]) -> Lack {
        Lack::Blocks(families.iter().map(|family| Share { family: *family, pod_ip_pool: None }).collect())
    }

    #[test]
    fn a_node_that_lacks_no_block_any_more_is_told_of_no_longer_whatever_else_it_waits_for() {
        let mut waits = Waits::default();
        let start = Instant::now();
        let (node, other) = (NodeName::from("a"), NodeName::from("b"));
        assert!(waits.note(&node, Some(&blocks(&[Family::V4])), start));
        assert!(waits.note(&other, Some(&Lack::Pool), start));
        waits.note_no_lack_of_blocks(&node, start);
        waits.note_no_lack_of_blocks(&other, start);
        assert_eq!(waits.pop_due(start + REPEAT), Some((other, Lack::Pool)));
        assert_eq!(waits.pop_due(start + REPEAT), None);
    }

    #[test]
    fn a_node_is_told_of_when_it_begins_to_wait_and_then_every_hour() {
        let mut waits = Waits::default();
        let start = Instant::now();
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let (node, other) = (NodeName::from("a"), NodeName::from("b"));
        let (one, both) = (blocks(&[Family::V4]), blocks(&Family::ALL));
        assert!(!waits.note(&node, None, at(0)));
        assert!(waits.note(&node, Some(&one), at(0)));
        assert!(!waits.note(&node, Some(&one), at(30)));
        assert_eq!(waits.next_due(), Some(at(60)));
        assert_eq!(waits.pop_due(at(59)), None);
        assert_eq!(waits.pop_due(at(60)), Some((node.clone(), one)));
        assert_eq!(waits.pop_due(at(60)), None);
        assert!(waits.note(&node, Some(&both), at(61)), "it lacks something else");
        assert!(waits.note(&other, Some(&Lack::Pool), at(70)));
        assert!(!waits.note(&node, None, at(80)), "it is served");
        assert_eq!(waits.pop_due(at(200)), Some((other.clone(), Lack::Pool)));
        assert!(!waits.note(&other, None, at(201)));
        assert_eq!((waits.next_due(), waits.lacks.len()), (None, 0));
    }
}
