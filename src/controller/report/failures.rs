//! The events about writes that fail: one for each cause on one of its nodes or pools, and again as long as it lasts.
//!
//! The finding on each node, the status of pools and the Lease follow from the world.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::controller::events::{Event, Subject};
use crate::controller::forbidden;
use crate::controller::waits::REPEAT;
use crate::model::counted::counted;
use crate::model::failure::Failure;
use crate::model::finding::FindingKind;
use crate::model::names::ten_by_number;
use crate::model::request::Write;
use crate::telemetry::api_health::ApiHealth;
use crate::telemetry::event_reason::EventReason;
use crate::world::World;

/// The causes that were reported, each by its action and words, and when.
#[derive(Debug, Default)]
pub(super) struct ReportedFailures(BTreeMap<(String, String), Instant>);

impl ReportedFailures {
    /// The events that are due about the writes that fail.
    pub(super) fn due(
        &mut self,
        world: &World,
        api_health: &ApiHealth,
        failing: &[(&Write, Failure)],
    ) -> Vec<Event> {
        let now = Instant::now();
        let cause = |failure: &Failure| (failure.action.clone(), failure.words.clone());
        self.0.retain(|reported, _| failing.iter().any(|(_, failure)| cause(failure) == *reported));
        let is_due = |failure: &Failure| self.0.get(&cause(failure)).is_none_or(|at| at.elapsed() >= REPEAT);
        let due = failing.iter().filter(|(_, failure)| is_due(failure));
        let events: Vec<(_, Event)> = due
            .filter_map(|(write, failure)| {
                Some((cause(failure), event(api_health, write, failure, subject(world, failure)?)))
            })
            .collect();
        self.0.extend(events.iter().map(|(cause, _)| (cause.clone(), now)));
        events.into_iter().map(|(_, event)| event).collect()
    }
}

/// The first node that waits and exists, or the first pool.
fn subject(world: &World, failure: &Failure) -> Option<Subject> {
    let of_node = failure
        .nodes
        .iter()
        .find_map(|node| Some(Subject::Node(node.clone(), world.node_uid(node)?.clone())));
    of_node.or_else(|| {
        let pool = failure.pools.iter().find_map(|pool| world.pool_object(pool))?;
        Some(Subject::Pool(pool.name.clone(), pool.uid.clone()))
    })
}

/// With the rule that is missing, if the server forbids such writes.
fn event(api_health: &ApiHealth, write: &Write, failure: &Failure, subject: Subject) -> Event {
    let (reason, cause) = match forbidden::rule_for(api_health, write) {
        Some(rule) => (EventReason::WriteForbidden, format!("{rule}; {}", failure.description())),
        None => (EventReason::Finding(FindingKind::WriteFailed), failure.description()),
    };
    let waiting = match failure.n_nodes {
        0 => String::new(),
        n_nodes => format!("; {} waiting: {}", counted(n_nodes, "node"), ten_by_number(&failure.nodes)),
    };
    Event { subject, reason, note: format!("{cause}{waiting}"), about: failure.action.clone() }
}
