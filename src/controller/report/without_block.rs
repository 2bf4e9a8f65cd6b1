//! Which nodes wait for a block, and when that is reported: once for all nodes that lack the same of the same pools. A
//! node without addresses is also reported by itself.
//!
//! Knows neither log nor events. A pool that is full may get room within a moment, and an autoscaler adds many nodes
//! within seconds. So a node is reported only when it has waited for a moment.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::super::waits::{Due, Waits};
use crate::model::address_class::AddressClass;
use crate::model::names::{NodeName, PoolName};
use crate::model::plan::{Coverage, NodePlan, Unmet};
use crate::world::World;

/// How long a node waits for a block before it is reported.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The shortage of a node: blocks of these classes. Its pools have none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lack {
    /// The pools of the node, the first to be asked first.
    pub(super) pools: Vec<PoolName>,
    /// The classes that it asks for.
    pub(super) classes: BTreeSet<AddressClass>,
}

/// The nodes for which none of their pools has a block.
#[derive(Debug)]
pub(super) struct WithoutBlock {
    all: Waits<Lack>,
    /// Those of them without addresses.
    first: Waits<Lack>,
}

impl Default for WithoutBlock {
    fn default() -> Self {
        Self { all: Waits::reported_after(PATIENCE), first: Waits::reported_after(PATIENCE) }
    }
}

impl WithoutBlock {
    /// Notes the classes without a block of a plan.
    pub(super) fn note(&mut self, world: &World, plan: &NodePlan, now: Instant) {
        let classes = classes_without_block(plan);
        let lack = match plan.coverage {
            Coverage::Full => {
                let pools = || world.pools_of(&plan.node).map(|pool| pool.name.clone()).collect();
                (!classes.is_empty()).then(|| Lack { pools: pools(), classes })
            }
            // Something else comes first, such as a pause, and blocks were not looked at.
            Coverage::Partial if classes.is_empty() => None,
            Coverage::Partial => return,
        };
        self.all.note(&plan.node, lack.as_ref(), now);
        self.first.note(&plan.node, lack.as_ref().filter(|_| !world.is_served(&plan.node)), now);
    }

    /// When the next nodes are due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        [self.all.next_due(), self.first.next_due()].into_iter().flatten().min()
    }

    /// The nodes to report now, by lack.
    pub(super) fn pop_due(&mut self, world: &World, now: Instant) -> Vec<Due<Lack>> {
        self.all.pop_due(now, |node| world.node(node).is_some())
    }

    /// The nodes without addresses to report now, each by itself.
    pub(super) fn pop_first(&mut self, world: &World, now: Instant) -> Vec<(NodeName, Lack)> {
        self.first.pop_each(now, |node| world.node(node).is_some())
    }
}

/// The classes of a node for which its pools have no block. A node at its limit, or whose growth is held, is a
/// finding.
pub(super) fn classes_without_block(plan: &NodePlan) -> BTreeSet<AddressClass> {
    let no_block = plan.unmet.iter().filter_map(|unmet| match unmet {
        Unmet::NoCapacity(class) => Some(class.clone()),
        Unmet::AtLimit(_) | Unmet::Held(_) => None,
    });
    no_block.collect()
}
