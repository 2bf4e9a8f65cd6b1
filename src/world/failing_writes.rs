//! Writes that fail, in the world: which nodes and pools wait for their end, and the reports about them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::World;
use super::failures::{Failing, Next, Waiter};
use crate::model::failure::Failure;
use crate::model::names::{NodeName, PoolName};
use crate::model::outcome::Answer;
use crate::model::request::Write;
use crate::model::time::Now;

impl World {
    /// The writes that have failed for a while, each with one cause: those of this process, and those that the leader
    /// has noted.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        let own = self.failures.reported().map(|(action, failing)| self.failure(action, failing));
        own.chain(self.noted_failures.iter().cloned()).collect()
    }

    /// The same of this process alone, each with a write that fails.
    pub fn failing_writes(&self) -> impl Iterator<Item = (&Write, Failure)> {
        self.failures.reported().map(|(action, failing)| (&failing.write, self.failure(action, failing)))
    }

    fn failure(&self, action: &str, failing: &Failing) -> Failure {
        let (mut nodes, mut pools) = (BTreeSet::new(), BTreeSet::new());
        for waiter in &failing.waiters {
            match waiter {
                Waiter::Node(node) => {
                    pools.extend(self.pools_of(node).map(|pool| pool.name.clone()));
                    nodes.insert(node.clone());
                }
                Waiter::Condition(node) => drop(nodes.insert(node.clone())),
                Waiter::Pool(pool) => drop(pools.insert(pool.clone())),
            }
        }
        let (since, words) = (failing.since_wall, failing.words.clone());
        Failure { since, action: action.to_owned(), words, n_nodes: nodes.len(), nodes, pools }
    }

    /// Takes in the failures that the leader has noted. A command that looks once has none of its own.
    pub fn suppose_failures(&mut self, noted: Vec<Failure>) {
        self.noted_failures = noted;
    }

    /// Whether the node may write only when it is its turn, because its write fails for a cause that others share. Then
    /// it is decided again.
    #[must_use]
    pub fn node_awaits_turn(&self, node: &NodeName) -> bool {
        self.failures.awaits_turn(&Waiter::Node(node.clone()))
    }

    /// The same for a pool.
    #[must_use]
    pub fn pool_awaits_turn(&self, pool: &PoolName) -> bool {
        self.failures.awaits_turn(&Waiter::Pool(pool.clone()))
    }

    /// Takes in the outcome of a write that was sent at this time.
    pub(super) fn note_failure(
        &mut self,
        write: &Write,
        answer: &Answer,
        took_effect: bool,
        sent: Duration,
        now: Now,
    ) -> Next {
        let waiter = match (write, write.node(), write.pool()) {
            (Write::NodeCondition(write), ..) => Waiter::Condition(write.node.clone()),
            (_, Some(node), _) => Waiter::Node(node.clone()),
            (_, None, Some(pool)) if self.pools.contains_key(pool) => Waiter::Pool(pool.clone()),
            // Routes have refusals of their own (`frr`).
            (_, None, _) => return Next::Own,
        };
        if took_effect || *answer == Answer::Done {
            let released = self.failures.succeeded(&waiter, write);
            self.release_waiters(released);
            return Next::Own;
        }
        let n_reported = self.failures.reported().count();
        let next = self.failures.failed(&waiter, write, answer, sent, now);
        if self.failures.reported().count() > n_reported {
            let waiters: Vec<Waiter> =
                self.failures.reported().flat_map(|(_, failing)| failing.waiters.iter().cloned()).collect();
            for waiter in &waiters {
                self.mark_pools_of_waiter(waiter);
            }
        } else if self.failures.is_reported_for(&waiter) {
            self.mark_pools_of_waiter(&waiter);
        }
        next
    }

    /// These wait no longer for a write that fails.
    pub(super) fn release_waiters(&mut self, waiters: impl IntoIterator<Item = Waiter>) {
        for waiter in waiters {
            self.mark_waiter(&waiter);
            self.mark_pools_of_waiter(&waiter);
        }
    }

    /// This node or pool may write again.
    pub(super) fn mark_waiter(&mut self, waiter: &Waiter) {
        match waiter {
            Waiter::Node(node) => self.mark(node),
            Waiter::Condition(node) => self.revisit_condition(node),
            Waiter::Pool(pool) => self.agenda.mark_pool(pool),
        }
    }

    /// Pools say in their status that the writes of their nodes fail.
    fn mark_pools_of_waiter(&mut self, waiter: &Waiter) {
        match waiter {
            Waiter::Node(node) => self.mark_pools_of(node),
            Waiter::Pool(pool) if self.pools.contains_key(pool) => self.agenda.mark_pool(pool),
            Waiter::Pool(_) | Waiter::Condition(_) => {}
        }
    }

    /// This node or pool has nothing to write any more, or does not exist.
    pub(super) fn forget_failures(&mut self, waiter: &Waiter) {
        let was_reported = self.failures.is_reported_for(waiter);
        self.failures.forget(waiter);
        if was_reported {
            self.mark_pools_of_waiter(waiter);
        }
    }

    pub(super) fn failing_nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.failures.waiters().filter_map(|waiter| match waiter {
            Waiter::Node(node) | Waiter::Condition(node) => Some(node),
            Waiter::Pool(_) => None,
        })
    }

    pub(super) fn failing_pools(&self) -> impl Iterator<Item = &PoolName> {
        self.failures.waiters().filter_map(|waiter| match waiter {
            Waiter::Pool(pool) => Some(pool),
            Waiter::Node(_) | Waiter::Condition(_) => None,
        })
    }
}
