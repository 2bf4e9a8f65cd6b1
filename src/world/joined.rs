//! Which Nodes joined lately, by the times in their objects.
//!
//! Knows no clock: its callers name the time.

use super::World;
use crate::model::names::{NodeName, PoolName};
use crate::model::node::Node;
use crate::model::time::Timestamp;

impl World {
    /// The number of nodes of a pool that were created after `since`, at most `max`. A Node without a readable time
    /// does not count. Costs a pass over the Nodes that were created after `since`.
    #[must_use]
    pub fn n_joined(&self, pool: &PoolName, since: Timestamp, max: usize) -> usize {
        let Some(selected) = self.selected.get(pool) else { return 0 };
        // The default is the time of a Node whose time can't be read.
        let since = since.max(Timestamp::default());
        let joined = self.joined.range((since, NodeName::from(""))..);
        joined.filter(|(at, node)| *at > since && selected.contains(node)).take(max).count()
    }

    /// Takes in the time of a Node, in the place of that of `before`.
    pub(super) fn set_joined(&mut self, name: &NodeName, before: Option<&Node>) {
        if let Some(before) = before {
            self.joined.remove(&(before.created, name.clone()));
        }
        if let Some(created) = self.node(name).map(|node| node.created) {
            self.joined.insert((created, name.clone()));
        }
    }
}
