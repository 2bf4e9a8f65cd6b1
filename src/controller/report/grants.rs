//! How long nodes wait for their blocks: from the first decision that sees the need to the publication.
//!
//! Knows no world: its owner says which node needs blocks, and which got them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::names::NodeName;
use crate::model::status::Need;

/// The nodes that need blocks now.
#[derive(Debug, Default)]
pub(super) struct Grants {
    since: BTreeMap<NodeName, (Need, Instant)>,
}

impl Grants {
    /// The node needs blocks. The first time counts.
    pub(super) fn needs(&mut self, node: &NodeName, need: Need, now: Instant) {
        self.since.entry(node.clone()).or_insert((need, now));
    }

    /// The node does not need blocks any more, or does not exist.
    pub(super) fn rests(&mut self, node: &NodeName) {
        self.since.remove(node);
    }

    /// Blocks were published for the node: its need, and how long it has waited. `None` if it needed none, as when a
    /// block is repaired.
    pub(super) fn published(&mut self, node: &NodeName, now: Instant) -> Option<(Need, Duration)> {
        let (need, since) = self.since.remove(node)?;
        Some((need, now.saturating_duration_since(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_lasts_from_the_first_need_to_the_publication() {
        let (mut grants, start) = (Grants::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let node = NodeName::from("a");
        assert_eq!(grants.published(&node, at(0)), None, "a repair");
        grants.needs(&node, Need::First, at(0));
        grants.needs(&node, Need::Growth, at(2));
        assert_eq!(grants.published(&node, at(3)), Some((Need::First, Duration::from_secs(3))));
        assert_eq!(grants.published(&node, at(4)), None, "it counts once");
        grants.needs(&node, Need::Growth, at(5));
        grants.rests(&node);
        assert_eq!(grants.published(&node, at(9)), None, "its need is over");
    }
}
