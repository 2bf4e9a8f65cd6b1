//! The reports about nodes that wait: log lines, and events on the nodes or, for many of them, one event. A node without
//! addresses has an event of its own in any case: people look for the cause there.
//!
//! The reasons are collected only here, because that costs a look at the pools, and only for the nodes that have an
//! event.

use tokio::time::Instant;
use tracing::debug;

use super::super::events::{Event, Subject};
use super::super::waits::{Due, MAX_EACH};
use super::Reporter;
use super::without_block::Lack;
use crate::model::counted::counted;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, ten_by_number};
use crate::plan::{why_no_block, why_no_pool};
use crate::telemetry::event_reason::EventReason;
use crate::world::World;

impl Reporter {
    /// Reports nodes that need a pool for the same cause, and why they have none.
    pub(super) fn report_no_pool(&mut self, world: &World, Due { lack: cause, nodes }: &Due<String>) {
        self.changed();
        let (reported, rest) = nodes.split_at(if nodes.len() > MAX_EACH { 1 } else { nodes.len() });
        for node in reported {
            let mut message = why_no_pool(world, node);
            if !rest.is_empty() {
                message = format!("{} lack a pool, such as {node}: {message}", counted(nodes.len(), "node"));
            }
            self.log.found(&Finding::of_node(FindingKind::NoPool, node, message.clone()));
            self.report_wait(
                of_served(world, node),
                EventReason::Finding(FindingKind::NoPool),
                message,
                cause,
            );
        }
        for node in rest {
            debug!(finding = FindingKind::NoPool.as_str(), kind = Kind::Node.as_str(), name = %node, "{cause}");
        }
    }

    /// Reports nodes that need blocks of the same classes of the same pools, and why they get none. The event about many
    /// of them is on their first pool, where people look for the cause.
    pub(super) fn report_no_block(&mut self, world: &World, Due { lack, nodes }: &Due<Lack>) {
        self.changed();
        let why = |node: &NodeName| why_none_of(world, node, lack);
        let of_pool = lack.pools.first().and_then(|name| world.pool_object(name));
        if let (Some(pool), [first, .., _]) = (of_pool.filter(|_| nodes.len() > MAX_EACH), &nodes[..]) {
            let message = format!(
                "{} wait for a block, such as {}: {}",
                counted(nodes.len(), "node"),
                ten_by_number(nodes.iter().take(MAX_EACH)),
                why(first)
            );
            self.log.many_wait(&pool.name, &message);
            let subject = Subject::Pool(pool.name.clone(), pool.uid.clone());
            self.report_wait(Some(subject), EventReason::NoCapacity, message, "");
            for node in nodes {
                debug!(%node, pool = %pool.name, "waits for a block");
            }
            return;
        }
        for node in nodes {
            let message = why(node);
            self.log.waits(node, &message);
            self.report_wait(of_served(world, node), EventReason::NoCapacity, message, "");
        }
    }

    /// Reports each node without addresses on the node itself.
    pub(super) fn report_first_waits(&mut self, world: &World, now: Instant) {
        for (node, cause) in self.without_pool.pop_first(world, now) {
            let message = why_no_pool(world, &node);
            self.report_wait(
                of_node(world, &node),
                EventReason::Finding(FindingKind::NoPool),
                message,
                &cause,
            );
        }
        for (node, lack) in self.without_block.pop_first(world, now) {
            let message = why_none_of(world, &node, &lack);
            self.report_wait(of_node(world, &node), EventReason::NoCapacity, message, "");
        }
    }

    fn report_wait(&self, subject: Option<Subject>, reason: EventReason, note: String, about: &str) {
        if let Some(subject) = subject {
            self.events.report(Event { subject, reason, note, about: about.to_owned() });
        }
    }
}

/// Why a node gets none of the blocks that it lacks.
fn why_none_of(world: &World, node: &NodeName, lack: &Lack) -> String {
    let reasons: Vec<String> = lack.classes.iter().map(|class| why_no_block(world, node, class)).collect();
    reasons.join("; ")
}

/// The Node, if it has addresses. One without has an event of its own.
fn of_served(world: &World, node: &NodeName) -> Option<Subject> {
    of_node(world, node).filter(|_| world.is_served(node))
}

fn of_node(world: &World, node: &NodeName) -> Option<Subject> {
    world.node_uid(node).map(|uid| Subject::Node(node.clone(), uid.clone()))
}
