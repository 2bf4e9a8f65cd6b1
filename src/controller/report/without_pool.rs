//! Which nodes wait for a pool that selects them, and when that is reported: once for all nodes with the same cause. A
//! node without addresses is also reported by itself.
//!
//! Knows neither log nor events. The pools of a roll-out are created one after another, so a node is reported only when
//! it has waited for a moment. Keeps one invariant: no node is reported whose cause is over.

use std::time::Duration;

use tokio::time::Instant;

use super::super::waits::{Due, Waits};
use crate::model::finding::FindingKind;
use crate::model::names::NodeName;
use crate::model::plan::NodePlan;
use crate::plan::still_lacks_pool;
use crate::world::World;

/// How long a node waits for a pool before it is reported.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The nodes that need addresses for which no pool selects them, each with the cause.
#[derive(Debug)]
pub(super) struct WithoutPool {
    all: Waits<String>,
    /// Those of them without addresses.
    first: Waits<String>,
}

/// The wait of a node for a pool, after a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolWait {
    /// The node needs a pool.
    Lasts,
    /// It does not, or no longer.
    Over {
        /// Whether the wait was reported.
        was_reported: bool,
    },
}

impl Default for WithoutPool {
    fn default() -> Self {
        Self { all: Waits::reported_after(PATIENCE), first: Waits::reported_after(PATIENCE) }
    }
}

impl WithoutPool {
    /// Notes the finding of a plan. A plan that did not see everything, such as one whose writes are frozen, does not
    /// say that the wait is over. So the world must.
    pub(super) fn note(&mut self, world: &World, plan: &NodePlan, now: Instant) -> PoolWait {
        let node = &plan.node;
        let found = plan.findings.iter().find(|finding| finding.kind == FindingKind::NoPool);
        if found.is_none()
            && !plan.saw_everything()
            && self.all.is_waiting(node)
            && still_lacks_pool(world, node)
        {
            return PoolWait::Lasts;
        }
        let was_reported = self.all.is_reported(node);
        let cause = found.map(|finding| &finding.message);
        self.all.note(node, cause, now);
        self.first.note(node, cause.filter(|_| !world.is_served(node)), now);
        if found.is_some() { PoolWait::Lasts } else { PoolWait::Over { was_reported } }
    }

    /// When the next nodes are due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        [self.all.next_due(), self.first.next_due()].into_iter().flatten().min()
    }

    /// The nodes to report now, by cause. A pool may select one already whose next decision is still due.
    pub(super) fn pop_due(&mut self, world: &World, now: Instant) -> Vec<Due<String>> {
        self.all.pop_due(now, |node| still_lacks_pool(world, node))
    }

    /// The nodes without addresses to report now, each by itself with the cause.
    pub(super) fn pop_first(&mut self, world: &World, now: Instant) -> Vec<(NodeName, String)> {
        self.first.pop_each(now, |node| still_lacks_pool(world, node))
    }
}
