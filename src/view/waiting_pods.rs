//! The Pods that are bound to a node and hang without an address.
//!
//! The scheduler and kubelet do not know addresses, so a Pod may be bound to a node that has none left. Such a Pod is in
//! no object of this controller. Derived from the Pods that were listed, and from their times alone. A Pod may also wait
//! for something else that comes before its address, such as a volume: only its events say that.

use std::collections::BTreeMap;
use std::time::Duration;

use super::audit::catalog::Severity;
use super::overview::Problem;
use crate::model::counted::counted;
use crate::model::names::{NodeName, by_number, ten_by_number};
use crate::model::node::Node;
use crate::model::surroundings::WaitingPod;
use crate::model::time::Timestamp;
use crate::world::World;

/// The kind of a problem of Pods without an address.
pub const WAITING_PODS: &str = "WaitingPods";

/// How long a Pod may have no address after it was bound. An agent gives a Pod its address within seconds, and a node
/// that fills up gets a block within its next report, which comes every 15 s.
pub const WITHIN: Duration = Duration::from_secs(60);

/// The Pods that have waited for longer than [`WITHIN`], by the node that they are bound to. A node that does not run
/// Linux has no agent.
#[must_use]
pub fn overdue<'a>(
    world: &World,
    waiting: &'a [WaitingPod],
    now: Timestamp,
) -> BTreeMap<&'a NodeName, Vec<&'a WaitingPod>> {
    let mut found: BTreeMap<&NodeName, Vec<&WaitingPod>> = BTreeMap::new();
    let is_ours = |pod: &&WaitingPod| world.node(&pod.node).is_some_and(Node::runs_linux);
    let is_overdue = |pod: &&WaitingPod| pod.since.checked_add(WITHIN).is_ok_and(|until| until < now);
    for pod in waiting.iter().filter(is_ours).filter(is_overdue) {
        found.entry(&pod.node).or_default().push(pod);
    }
    found
}

/// The problem of all these Pods, with the number of each node.
#[must_use]
pub fn problem(world: &World, waiting: &[WaitingPod], now: Timestamp) -> Option<Problem> {
    let overdue = overdue(world, waiting, now);
    let mut subjects: Vec<String> = overdue.keys().map(ToString::to_string).collect();
    subjects.sort_by(|one, other| by_number(one, other));
    let n_pods = overdue.values().map(Vec::len).sum::<usize>();
    let of_each = ten_by_number(overdue.iter().map(|(node, pods)| format!("{node} ({})", pods.len())));
    let (pods, nodes) = (counted(n_pods, "pod"), counted(overdue.len(), "node"));
    let within = WITHIN.as_secs();
    Some(Problem {
        kind: WAITING_PODS,
        severity: Severity::Warning,
        message: format!(
            "{pods} on {nodes} without an address, more than {within} s after the binding: {of_each}"
        ),
        next: Some(format!("why {}", subjects.first()?)),
        subjects,
    })
}
