//! Whether the route of a block is withdrawn before the block cools. Otherwise a router could send the traffic of
//! another node's pods to the former node.
//!
//! The proof is a version of the node's FRRConfiguration that is later than the release of the claim and announces
//! nothing of the block. For a node without one, the watch of FRRConfigurations must have passed the release. Any
//! write that could announce the block again carries an earlier version, and is refused.
//!
//! Then the daemon of the node must report that it runs without the block. A daemon may be unable to do so, and has
//! [`DAEMON_ANSWERS_WITHIN`].
//!
//! With GoBGP the proof is a list of its table without a path of the block. The list must have been decided after the
//! release was known. A daemon that does not answer may announce the block for as long as it runs, so that wait has
//! no limit.

use std::time::Duration;

use super::draft::Draft;
use crate::model::claim::Claim;
use crate::model::finding::{Finding, FindingKind};
use crate::model::frr::name_of;
use crate::model::names::ten_of;
use crate::model::plan::RouteAt;
use crate::world::World;
use crate::world::exporter::Exporter;
use crate::world::frr::Frr;
use crate::world::gobgp::Gobgp;

/// How long a daemon may report that it still announces a block, or report nothing at all. It reloads within seconds,
/// and reports every 2 m; a lost node never does.
const DAEMON_ANSWERS_WITHIN: Duration = Duration::from_secs(10 * 60);
/// How long a route may remain before a finding reports it, and how often the controller looks for it from then on.
const REPORTED_AFTER: Duration = Duration::from_secs(60);

/// Whether the route of a block is withdrawn, or the time of its daemon has run out.
pub(super) fn is_gone(world: &World, draft: &mut Draft, claim: &Claim) -> bool {
    let now = draft.now;
    let remains = match world.exporter() {
        Some(Exporter::FrrK8s(frr)) => remains(frr, claim),
        Some(Exporter::Gobgp(gobgp)) => {
            remains_in_table(world, gobgp, claim).map(|why| (RouteAt::Configured, why))
        }
        None => return true,
    };
    let Some((at, why)) = remains else {
        draft.routes.insert(claim.cidr, RouteAt::Nowhere);
        return true;
    };
    draft.routes.insert(claim.cidr, at);
    let waited = |since: Option<Duration>| now.uptime.saturating_sub(since.unwrap_or(now.uptime));
    let left = match at {
        RouteAt::Running => {
            Some(DAEMON_ANSWERS_WITHIN.saturating_sub(waited(world.route_running_since(claim))))
        }
        RouteAt::Nowhere | RouteAt::Configured => None,
    };
    if left == Some(Duration::ZERO) {
        return true;
    }
    let unreported = REPORTED_AFTER.saturating_sub(waited(world.route_looked_for_since(claim)));
    if unreported.is_zero() {
        let end = if left.is_some() { "; it cools anyway once that has lasted 10 min" } else { "" };
        let message = format!("it can't cool yet, because its route may be announced: {why}{end}");
        draft.findings.push(Finding::of_claim(FindingKind::RouteRemains, claim.cidr, message));
    }
    let next = if unreported.is_zero() { REPORTED_AFTER } else { unreported };
    draft.wake_at(now.uptime + left.map_or(next, |left| next.min(left)));
    false
}

/// Why the table of a GoBGP daemon may have a path of a block; `None` if it has none.
fn remains_in_table(world: &World, gobgp: &Gobgp, claim: &Claim) -> Option<String> {
    let daemon = &gobgp.policy().daemon;
    let rib = match gobgp.rib() {
        Ok(rib) => rib,
        Err(why) => return Some(format!("GoBGP {daemon}: {why}")),
    };
    let mut paths = rib.overlapping(claim.cidr).peekable();
    if paths.peek().is_some() {
        return Some(format!("GoBGP {daemon} has a path of {}", ten_of(paths)));
    }
    let is_proven = world.route_looked_for_since(claim).is_some_and(|since| gobgp.proves_since(since));
    (!is_proven).then(|| format!("GoBGP {daemon} has not listed its table since its release"))
}

/// Where the route of a block may be, and the evidence for that; `None` if it is withdrawn.
fn remains(frr: &Frr, claim: &Claim) -> Option<(RouteAt, String)> {
    let (block, node) = (claim.cidr, &claim.node);
    let configurations = match frr.configurations() {
        Ok(configurations) => configurations,
        Err(why) => return Some((RouteAt::Configured, why.to_owned())),
    };
    // Another writer may have removed the labels of one of ours.
    let ours = configurations.values().filter(|found| found.has_our_name());
    let mut announcing = ours.filter(|found| found.overlaps(block)).map(|found| &found.name).peekable();
    if announcing.peek().is_some() {
        return Some((RouteAt::Configured, format!("FRRConfiguration {} has it", ten_of(announcing))));
    }
    match configurations.get(&name_of(node)) {
        Some(found) if found.revision <= claim.revision => {
            let why = format!("FRRConfiguration {} has no later version than its release", name_of(node));
            return Some((RouteAt::Configured, why));
        }
        None if frr.position() <= Some(claim.revision) => {
            // The exporter writes to one of the objects, if there is any. Then the watch passes the release.
            let has_some = configurations.values().any(|found| found.of_node.is_some());
            let at = if has_some { RouteAt::Configured } else { RouteAt::Running };
            return Some((at, "no FRRConfiguration has changed since its release".to_owned()));
        }
        Some(_) | None => {}
    }
    let networks = match frr.state_of(node) {
        Err(why) => return Some((RouteAt::Running, why.to_owned())),
        Ok(None) => return None,
        Ok(Some(state)) => state.networks.as_ref(),
    };
    let why = match networks {
        Some(networks) if !networks.iter().any(|network| network.overlaps(block)) => return None,
        Some(_) => "has a network of it in its running configuration",
        None => "has no running configuration that can be read",
    };
    Some((RouteAt::Running, format!("FRRNodeState {node} {why}")))
}
