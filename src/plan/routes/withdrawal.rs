//! Whether the route of a block is gone, before the block cools: otherwise a router could send the traffic of another node's
//! pods to the node that had it.
//!
//! The proof is a version of the node's FRRConfiguration that is later than the release of the claim and announces nothing of
//! the block. Any write that could announce it again carries an earlier version, and is refused. Then the daemon of the node
//! has to say that it runs without the block. A daemon may be unable to say so, and has [`DAEMON_ANSWERS_WITHIN`].

use std::time::Duration;

use crate::model::claim::{Claim, block_name};
use crate::model::finding::{Finding, FindingKind};
use crate::model::frr::name_of;
use crate::model::kind::Kind;
use crate::model::names::ten_of;
use crate::model::plan::Lasting;
use crate::model::time::Now;
use crate::plan::draft::Draft;
use crate::world::World;
use crate::world::frr::Frr;

/// How long a daemon may say that it still announces a block, or say nothing at all. It reloads within seconds, and reports
/// every 2 m; a lost node never does.
const DAEMON_ANSWERS_WITHIN: Duration = Duration::from_secs(10 * 60);
/// How long that may last before it is a finding.
const TOLD_FROM: Duration = Duration::from_secs(60);

/// A place in which a block may still be announced.
enum Remains {
    /// An FRRConfiguration, or they are unknown.
    Configured(String),
    /// The daemon of the node.
    Running(String),
}

/// Whether the route of a block is gone, or its daemon has had its time.
pub(in crate::plan) fn is_gone(world: &World, draft: &mut Draft, claim: &Claim, now: Now) -> bool {
    let Some(frr) = world.frr() else { return true };
    let Some(remains) = remains(frr, claim) else { return true };
    draft.finds(Lasting::RouteRemains);
    let since = world.serving(&claim.node).and_then(|serving| serving.since(Lasting::RouteRemains));
    let waited = now.uptime.saturating_sub(since.unwrap_or(now.uptime));
    let (why, may_end) = match remains {
        Remains::Configured(why) => (why, false),
        Remains::Running(why) => (why, true),
    };
    if may_end && waited >= DAEMON_ANSWERS_WITHIN {
        return true;
    }
    if waited >= TOLD_FROM {
        let end = if may_end { "; it cools anyway 10 min after its release" } else { "" };
        let message = format!("it can't cool yet, because its route may be announced: {why}{end}");
        let name = block_name(claim.cidr);
        draft.findings.push(Finding::new(FindingKind::RouteRemains, Kind::Claim, &name, message));
    }
    let began = since.unwrap_or(now.uptime);
    for end in [TOLD_FROM, DAEMON_ANSWERS_WITHIN] {
        if waited < end {
            draft.wake_at(began + end);
        }
    }
    false
}

fn remains(frr: &Frr, claim: &Claim) -> Option<Remains> {
    let (block, node) = (claim.cidr, &claim.node);
    let configurations = match frr.configurations() {
        Ok(configurations) => configurations,
        Err(why) => return Some(Remains::Configured(why.to_owned())),
    };
    let ours = configurations.values().filter(|found| found.of_node.is_some());
    let mut announcing = ours.filter(|found| found.overlaps(block)).map(|found| &found.name).peekable();
    if announcing.peek().is_some() {
        return Some(Remains::Configured(format!("FRRConfiguration {} has it", ten_of(announcing))));
    }
    if frr.of_node(node).is_some_and(|found| found.revision <= claim.revision) {
        let why = format!("FRRConfiguration {} has no later version than its release", name_of(node));
        return Some(Remains::Configured(why));
    }
    match frr.state_of(node) {
        Err(why) => Some(Remains::Running(why.to_owned())),
        Ok(None) => None,
        Ok(Some(state)) => state.networks.iter().any(|network| network.overlaps(block)).then(|| {
            Remains::Running(format!("FRRNodeState {node} has a network of it in its running configuration"))
        }),
    }
}
