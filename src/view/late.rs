//! Nodes that have lacked addresses for too long, and claims that their carriers should have by now. The
//! intentions of the planner do not count: a write that is due and never succeeds looks like any other plan. It may wait
//! for the event budget of the leader, and then it is no error.
//!
//! Derived from the times in objects, so a command that looks once sees it. Knows no requests and no failures of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::audit::catalog::{Check, Severity};
use super::overview::Problem;
use super::tally::{self, Lack};
use crate::model::claim::{Claim, block_name};
use crate::model::counted::counted;
use crate::model::freeze::Switch;
use crate::model::names::NodeName;
use crate::model::patience::{DONE_WITHIN, Patience};
use crate::model::plan::{NodePlan, Verdict};
use crate::model::time::Timestamp;
use crate::world::World;

/// The kind of a problem of nodes that should have addresses by now.
const NO_ADDRESSES: &str = "NoAddresses";
/// The kind of a problem of claims that their carriers should have by now.
const UNPUBLISHED: &str = "Unpublished";

/// Something that should be done by now.
enum Late {
    /// The node has no addresses.
    NoAddresses {
        /// The bound.
        within: Duration,
        /// The words of the planner.
        intent: Intent,
    },
    /// Its carrier lacks these claims.
    Unpublished {
        /// Their names.
        blocks: Vec<String>,
        /// The words of the planner.
        intent: Intent,
    },
}

/// The next step of the controller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Intent {
    /// In the words of the planner.
    Stated(String),
    /// A write, which may wait for the event budget. In words.
    Paced(String),
}

impl Intent {
    /// The severity of a problem of this severity, if the controller intends this.
    fn severity(&self, severity: Severity) -> Severity {
        match self {
            Self::Stated(_) => severity,
            Self::Paced(_) => severity.max(Severity::Warning),
        }
    }
}

impl fmt::Display for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Stated(words) | Self::Paced(words)) = self;
        f.write_str(words)
    }
}

/// The problems of all nodes. A node with another problem of its own is left out. `pace` is the pace of the leader's
/// writes, in words, if nodes wait for its event budget.
#[must_use]
pub fn problems(world: &World, plans: &[NodePlan], pace: Option<&str>, now: Timestamp) -> Vec<Problem> {
    let mut without: BTreeMap<(Duration, Intent), Vec<&NodeName>> = BTreeMap::new();
    let mut unpublished: BTreeMap<Intent, (Vec<String>, &NodeName)> = BTreeMap::new();
    for plan in plans {
        match late(world, plan, pace, now) {
            Some(Late::NoAddresses { within, intent }) => {
                without.entry((within, intent)).or_default().push(&plan.node);
            }
            Some(Late::Unpublished { blocks, intent }) => {
                unpublished.entry(intent).or_insert_with(|| (Vec::new(), &plan.node)).0.extend(blocks);
            }
            None => {}
        }
    }
    let next = |node: &NodeName| Some(format!("why {node}"));
    let of_nodes = without.into_iter().map(|((within, intent), nodes)| Problem {
        kind: NO_ADDRESSES,
        severity: intent.severity(Severity::Error),
        message: format!("{} without addresses, {}: {intent}", counted(nodes.len(), "node"), after(within)),
        next: nodes.first().and_then(|node| next(node)),
        subjects: nodes.iter().map(ToString::to_string).collect(),
    });
    let of_claims = unpublished.into_iter().map(|(intent, (blocks, first))| Problem {
        kind: UNPUBLISHED,
        severity: intent.severity(Check::ClaimUnpublished.severity()),
        message: format!(
            "{} missing on the carrier of the node, more than {} s after it was made: {intent}",
            counted(blocks.len(), "claim"),
            DONE_WITHIN.as_secs()
        ),
        next: next(first),
        subjects: blocks,
    });
    of_nodes.chain(of_claims).collect()
}

/// The addresses that a node should have by now, in a sentence for a person.
#[must_use]
pub fn of_node(world: &World, plan: &NodePlan, now: Timestamp) -> Option<String> {
    Some(match late(world, plan, None, now)? {
        Late::NoAddresses { within, .. } => format!("it has no addresses, {}", after(within)),
        Late::Unpublished { blocks, .. } => {
            format!(
                "its carrier lacks the claims {}, more than {} s after they were made",
                blocks.join(", "),
                DONE_WITHIN.as_secs()
            )
        }
    })
}

fn after(within: Duration) -> String {
    format!("more than {} s after its carrier was created", within.as_secs())
}

fn late(world: &World, plan: &NodePlan, pace: Option<&str>, now: Timestamp) -> Option<Late> {
    let name = &plan.node;
    let node = world.node(name).filter(|node| node.runs_linux() && !node.deleting)?;
    // Both are problems of all nodes.
    let is_stopped = world.publisher().is_none() || world.freeze().is_on(Switch::Writes);
    let has_problem = plan.findings.iter().any(|finding| finding.kind.is_wrong());
    let Patience::Within(within) = Patience::with(&plan.verdict) else { return None };
    if is_stopped || has_problem || !plan.unmet.is_empty() {
        return None;
    }
    let carrier = tally::readable_carrier(world, name)?;
    let is_due = |since: Timestamp, within: Duration| {
        Duration::try_from(now.duration_since(since)).is_ok_and(|lasted| lasted >= within)
    };
    if tally::lack(world, name, tally::node_state(world, name)) == Some(Lack::Pending) {
        let intent = intent(plan, pace);
        return is_due(carrier.created(), within).then_some(Late::NoAddresses { within, intent });
    }
    let is_unpublished = |claim: &&Claim| {
        claim.is_published_state()
            && claim.node_uid == node.uid
            && !world.is_unreadable_claim(claim.cidr)
            && !world.reader_of(name).lists(carrier, claim.cidr)
            && is_due(claim.since.max(claim.created).max(carrier.created()), DONE_WITHIN)
    };
    let claims = world.claims_of(name).map(|known| &known.claim).filter(is_unpublished);
    let blocks: Vec<String> = claims.map(|claim| block_name(claim.cidr)).collect();
    (!blocks.is_empty()).then(|| Late::Unpublished { blocks, intent: intent(plan, pace) })
}

/// The words of the planner about the node.
fn intent(plan: &NodePlan, pace: Option<&str>) -> Intent {
    match (&plan.verdict, pace) {
        (Verdict::Act(_), Some(pace)) => Intent::Paced(format!(
            "the next write is due and may wait for the event budget ({pace}); see --watch-event-budget"
        )),
        (Verdict::Act(_), None) => Intent::Stated(
            "the next write is due and does not succeed; see the log and /readyz of the leader".to_owned(),
        ),
        (Verdict::Wait(wait), _) => Intent::Stated(wait.to_string()),
        (Verdict::AtRest, _) => Intent::Stated("the controller finds nothing to write".to_owned()),
    }
}
