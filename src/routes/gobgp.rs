//! The paths of the exporter in the table of a GoBGP daemon: one per prefix that a node announces, with the node's
//! InternalIP as the next hop.
//!
//! Does not know how requests are sent. Keeps these invariants:
//!
//! - Nothing is changed before the table was listed in this term of leading, nor after a request without an answer.
//! - A path of a node is changed only if its claims were read in this term: the watches of a new leader may be late.
//! - A prefix is added only while the table has no address of it by another next hop.
//! - A path whose addresses all stay with its node is withdrawn only after the paths that replace it were added.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::announced::{announced, next_hops};
use super::duplicate::announced_twice;
use crate::model::claim::ClaimState;
use crate::model::finding::{Finding, FindingKind};
use crate::model::freeze::Switch;
use crate::model::gobgp::{Rib, RibChange, RibPath, RibRequest};
use crate::model::kind::ObjectKind;
use crate::model::names::{NodeName, ten_of};
use crate::model::plan::RoutesPlan;
use crate::model::request::{Read, Target};
use crate::model::time::Now;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::net::prefixes::PrefixIndex;
use crate::world::World;
use crate::world::gobgp::{Announcing, Gobgp};

/// How often the table is listed even if the daemon shows no change. It shows none of a path that is not the best one:
/// such a path of a paused replica may be wrong for that long.
const LISTED_EVERY: Duration = Duration::from_secs(30);
/// The minimum time between two lists.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of changes in one request: a second's work for the daemon, and well within a Lease.
const MAX_CHANGES: usize = 500;
/// How long the answer to a read of a node's claims is awaited before the next read.
const READ_AGAIN: Duration = Duration::from_secs(3);

/// The request that makes routers know the routes of all nodes.
pub(super) fn routes(world: &World, gobgp: &Gobgp, now: Now) -> RoutesPlan {
    let mut plan = RoutesPlan::default();
    if let Err(why) = gobgp.rib()
        && gobgp.pause().failures() > 1
    {
        let why =
            format!("it can't be read, so no route is announced or withdrawn, and no block cools: {why}");
        plan.findings.insert(about_daemon(gobgp, FindingKind::RouteWithheld, why));
    }
    if gobgp.policy().announcing == Announcing::Blocks {
        let subject = (ObjectKind::Gobgp, gobgp.policy().daemon.as_str());
        plan.findings.extend(announced_twice(world, subject));
    }
    // A passive controller may misread carriers.
    if world.publisher().is_none() || world.freeze().is_on(Switch::Writes) {
        return plan;
    }
    let wanted = match gobgp.policy().announcing {
        Announcing::Blocks => wanted(world, gobgp, &mut plan),
        Announcing::Nothing => BTreeMap::new(),
    };
    let Ok(rib) = gobgp.rib() else {
        list_at(gobgp.pause().later_than(now).unwrap_or(now.uptime), gobgp, &mut plan, now);
        return plan;
    };
    report_others(gobgp, rib, &wanted, &mut plan);
    let mut round = Pass::new(world, gobgp, now, rib, &wanted, plan);
    let changes = round.changes();
    let mut plan = round.plan;
    // Lists and changes take turns, however often the daemon shows a change.
    let is_turn_of_list = changes.is_empty() || gobgp.has_changed_since_listed();
    let wait = if gobgp.is_suspect() && is_turn_of_list { LIST_INTERVAL } else { LISTED_EVERY };
    let resync = gobgp.listed().map_or(now.uptime, |listed| listed + wait);
    if changes.is_empty() || resync <= now.uptime {
        let at = proof_due(world, gobgp).map_or(resync, |proof| proof.min(resync));
        list_at(at, gobgp, &mut plan, now);
    } else if !gobgp.is_busy() {
        plan.rib = Some(RibRequest::Change(changes));
    }
    plan
}

/// Lists the table at this time.
fn list_at(at: Duration, gobgp: &Gobgp, plan: &mut RoutesPlan, now: Now) {
    if gobgp.is_busy() {
        // The completion of that request is news.
    } else if at <= now.uptime {
        plan.rib = Some(RibRequest::List);
    } else {
        wake_at(plan, at);
    }
}

fn wake_at(plan: &mut RoutesPlan, at: Duration) {
    plan.wake = Some(plan.wake.map_or(at, |before| before.min(at)));
}

/// The time at which a list is due that would prove that the path of a released block is withdrawn.
fn proof_due(world: &World, gobgp: &Gobgp) -> Option<Duration> {
    let released = world.claims().map(|known| &known.claim).filter(|claim| {
        let is_released = matches!(claim.state, ClaimState::Releasing(_));
        is_released && gobgp.rib().is_ok_and(|rib| rib.overlapping(claim.cidr).next().is_none())
    });
    let waiting = released.filter_map(|claim| world.route_looked_for_since(claim));
    let latest = waiting.filter(|since| !gobgp.proves_since(*since)).max()?;
    // A list proves nothing about the moment of its own decision.
    let later = Duration::from_millis(1) + latest.max(gobgp.settles().unwrap_or_default());
    Some(gobgp.listed().map_or(later, |listed| later.max(listed + LIST_INTERVAL)))
}

/// A prefix with its node and its path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DesiredRoute<'a> {
    node: &'a NodeName,
    path: RibPath,
}

/// The paths that the table should have.
fn wanted<'a>(world: &'a World, gobgp: &Gobgp, plan: &mut RoutesPlan) -> BTreeMap<Cidr, DesiredRoute<'a>> {
    let present = |prefix: Cidr| gobgp.rib().ok()?.own.get(&prefix)?.as_ref().ok();
    let mut wanted = BTreeMap::new();
    for (name, routes) in announced(world) {
        let Some(node) = world.node(&name) else { continue };
        let hops = next_hops(world, node);
        let mut without: BTreeMap<Family, BTreeSet<Cidr>> = BTreeMap::new();
        for prefix in routes.prefixes {
            match hops.get(&prefix.family()) {
                Some(hop) => {
                    let communities = match routes.communities.get(&prefix) {
                        None => BTreeSet::new(),
                        Some(Some(communities)) => communities.clone(),
                        // The path keeps its present communities.
                        Some(None) => {
                            present(prefix).map(|path| path.communities.clone()).unwrap_or_default()
                        }
                    };
                    let path = RibPath { communities, next_hop: *hop };
                    wanted.insert(prefix, DesiredRoute { node: &node.name, path });
                }
                None => drop(without.entry(prefix.family()).or_default().insert(prefix)),
            }
        }
        for (family, prefixes) in without {
            let why = format!("{} is not announced: it has no InternalIP of {family}", ten_of(&prefixes));
            let finding = Finding::of_node(FindingKind::RouteWithheld, &node.name, why);
            plan.findings.insert(finding);
        }
    }
    wanted
}

/// Another writer has paths of the same prefixes, which may win.
fn report_others(gobgp: &Gobgp, rib: &Rib, wanted: &BTreeMap<Cidr, DesiredRoute<'_>>, plan: &mut RoutesPlan) {
    let mut others = rib.others.iter().filter(|prefix| wanted.contains_key(prefix)).peekable();
    if others.peek().is_some() {
        let why = format!(
            "another writer has added paths of {} to its table, and routers may get those instead; remove them",
            ten_of(others)
        );
        plan.findings.insert(about_daemon(gobgp, FindingKind::RouteAnnouncedTwice, why));
    }
}

fn about_daemon(gobgp: &Gobgp, kind: FindingKind, why: String) -> Finding {
    Finding::new(kind, ObjectKind::Gobgp, &gobgp.policy().daemon, why)
}

/// A comparison of the table with the paths that it should have.
struct Pass<'a> {
    world: &'a World,
    gobgp: &'a Gobgp,
    now: Now,
    rib: &'a Rib,
    wanted: &'a BTreeMap<Cidr, DesiredRoute<'a>>,
    /// The next hops of the table, and those that it should have.
    present_hops: PrefixIndex<Option<IpAddr>>,
    wanted_hops: PrefixIndex<IpAddr>,
    nodes: BTreeMap<IpAddr, BTreeSet<&'a NodeName>>,
    plan: RoutesPlan,
}

impl<'a> Pass<'a> {
    fn new(
        world: &'a World,
        gobgp: &'a Gobgp,
        now: Now,
        rib: &'a Rib,
        wanted: &'a BTreeMap<Cidr, DesiredRoute<'a>>,
        plan: RoutesPlan,
    ) -> Self {
        let mut nodes: BTreeMap<IpAddr, BTreeSet<&NodeName>> = BTreeMap::new();
        for node in world.nodes() {
            for hop in next_hops(world, node).into_values() {
                nodes.entry(hop).or_default().insert(&node.name);
            }
        }
        let (mut present_hops, mut wanted_hops) = (PrefixIndex::default(), PrefixIndex::default());
        for (prefix, path) in &rib.own {
            present_hops.insert(*prefix, path.as_ref().ok().map(|path| path.next_hop));
        }
        for (prefix, wanted) in wanted {
            wanted_hops.insert(*prefix, wanted.path.next_hop);
        }
        Self { world, gobgp, now, rib, wanted, present_hops, wanted_hops, nodes, plan }
    }

    /// The next changes, in the order in which they are sent.
    fn changes(&mut self) -> Vec<RibChange> {
        let (urgent, replaced) = self.withdrawals();
        let adds = self.adds();
        let all = urgent.into_iter().chain(adds).chain(replaced);
        let mut changes: Vec<RibChange> = all.filter(|change| self.may_change(change)).collect();
        if changes.len() > MAX_CHANGES {
            changes.truncate(MAX_CHANGES);
            wake_at(&mut self.plan, self.now.uptime);
        }
        changes
    }

    /// The paths that the table should not have: first those to withdraw at once, then those that other paths
    /// replace.
    fn withdrawals(&self) -> (Vec<RibChange>, Vec<RibChange>) {
        let (mut urgent, mut replaced) = (Vec::new(), Vec::new());
        for (prefix, path) in &self.rib.own {
            if self.wanted.contains_key(prefix) {
                continue;
            }
            let hop = path.as_ref().ok().map(|path| path.next_hop);
            let beside: Vec<(Cidr, IpAddr)> =
                self.wanted_hops.overlapping(*prefix).map(|(wanted, hop)| (wanted, *hop)).collect();
            let stays = !beside.is_empty() && beside.iter().all(|(_, wanted)| Some(*wanted) == hop);
            if !stays {
                urgent.push(RibChange::Withdraw(*prefix));
                continue;
            }
            let all: AddressSet = beside.iter().map(|(wanted, _)| *wanted).collect();
            let is_present = |wanted: &Cidr| matches!(self.rib.own.get(wanted), Some(Ok(_)));
            // A path that has an address of another owner is withdrawn all the same.
            if !all.covers(*prefix) || beside.iter().all(|(wanted, _)| is_present(wanted)) {
                replaced.push(RibChange::Withdraw(*prefix));
            }
        }
        (urgent, replaced)
    }

    /// The paths that the table lacks, up to the maximum number of paths.
    fn adds(&mut self) -> Vec<RibChange> {
        let mut n_paths = self.rib.own.len();
        let max = self.gobgp.policy().max_prefixes;
        let mut over = BTreeSet::new();
        let mut adds = Vec::new();
        for (prefix, wanted) in self.wanted {
            let found = self.rib.own.get(prefix);
            if found.is_some_and(|found| found.as_ref() == Ok(&wanted.path)) {
                continue;
            }
            let is_elsewhere = self
                .present_hops
                .overlapping(*prefix)
                .any(|(present, hop)| present != *prefix && *hop != Some(wanted.path.next_hop));
            if found.is_none() {
                if n_paths >= max {
                    over.insert(*prefix);
                    continue;
                }
                n_paths += 1;
            }
            if !is_elsewhere {
                adds.push(RibChange::Add(*prefix, wanted.path.clone()));
            }
        }
        if !over.is_empty() {
            let why = format!(
                "it has {n_paths} paths of the controller, and --gobgp-max-prefixes allows {max}: {} is not announced; \
                 raise the limit",
                ten_of(&over)
            );
            self.plan.findings.insert(about_daemon(self.gobgp, FindingKind::RouteWithheld, why));
        }
        adds
    }

    /// Whether a change may be sent now: the claims of its nodes are known, and the daemon has not just refused it.
    fn may_change(&mut self, change: &RibChange) -> bool {
        let prefix = change.prefix();
        if let Some((why, pause)) = self.gobgp.refused().get(&prefix) {
            let why = format!("the daemon refuses to {change}: {why}");
            self.plan.findings.insert(about_daemon(self.gobgp, FindingKind::RouteRefused, why));
            if let Some(until) = pause.later_than(self.now) {
                wake_at(&mut self.plan, until);
                return false;
            }
        }
        if self.gobgp.policy().announcing == Announcing::Nothing {
            return true;
        }
        let mut nodes: BTreeSet<&NodeName> =
            self.wanted.get(&prefix).map(|wanted| wanted.node).into_iter().collect();
        if let Some(Ok(found)) = self.rib.own.get(&prefix) {
            nodes.extend(self.nodes.get(&found.next_hop).into_iter().flatten());
        }
        let mut knows_all = true;
        for node in nodes {
            if !self.gobgp.knows_claims_of(node) {
                knows_all = false;
                self.read_claims(node);
            }
        }
        knows_all
    }

    fn read_claims(&mut self, node: &NodeName) {
        // The read may fail.
        wake_at(&mut self.plan, self.now.uptime + READ_AGAIN);
        let read = Read::ClaimsOf(node.clone()).into();
        if !self.world.is_in_flight(&Target::ClaimsOf(node.clone())) && !self.plan.requests.contains(&read) {
            self.plan.requests.push(read);
        }
    }
}
