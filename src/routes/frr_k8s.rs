//! The FRRConfigurations of the controller: one per node, with the sessions of its template and the prefixes
//! of the node.
//!
//! Does not know how they are written. Keeps these invariants, for every replica with any view, however old:
//!
//! - One is created without prefixes, and gets prefixes only after a read has shown the right selector. So a late
//!   create announces nothing.
//! - One that selects anything but its own node is deleted at once.
//! - A prefix is added only while no other of them has an address of it.
//! - Each write carries uid and version. Prefixes are changed only if all claims of the node are known as of that
//!   version. An object of an absent node is deleted only after a read of the Node.
//!
//! So if a version later than a block's release lacks the block, no later version has it (`plan/route_withdrawal.rs`).

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::announced::{NodeRoutes, announced};
use super::duplicate::announced_twice;
use crate::model::claim::ClaimState;
use crate::model::finding::{Finding, FindingKind};
use crate::model::freeze::Switch;
use crate::model::frr::{
    FOR_NODES, FrrChange, FrrConfiguration, FrrPurpose, FrrWrite, HOSTNAME_LABEL, LEFT_OUT_VRFS, Selector,
    Sessions, name_of,
};
use crate::model::kind::ObjectKind;
use crate::model::names::{FrrName, NodeName, ten_of};
use crate::model::node::Node;
use crate::model::plan::RoutesPlan;
use crate::model::request::{Read, Request, Target, Write};
use crate::model::revision::Revision;
use crate::model::time::Now;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::net::prefixes::PrefixIndex;
use crate::world::World;
use crate::world::frr::{Exporting, Frr};

/// The minimum time between two writes to one FRRConfiguration. Each write makes the daemon of the node reload FRR,
/// which it does every 3 s at most.
const WRITE_INTERVAL: Duration = Duration::from_secs(3);
/// How long a prefix stays beside the prefixes that take its place. FRR withdraws a network at once, and announces
/// another one up to 13 s after the write: 3 s until the reload, 5 s for a slow one, and 5 s until a changed route map
/// counts.
const BESIDE_FOR: Duration = Duration::from_secs(20);
/// How long an FRRConfiguration without prefixes remains before it is deleted: longer than a reload takes.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(15);
/// The number of refusals in a row after which an FRRConfiguration is deleted with its prefixes.
const REFUSED_OFTEN: u32 = 5;
/// The minimum time between two FRRConfigurations that get the sessions of a changed template.
const ROLLOUT_INTERVAL: Duration = Duration::from_secs(1);

/// The writes that make routers know the routes of all nodes.
pub(super) fn routes(world: &World, frr: &Frr, now: Now) -> RoutesPlan {
    let mut plan = RoutesPlan::default();
    let configurations = match frr.configurations() {
        Ok(configurations) => configurations,
        Err(_) if frr.awaits_list() => return plan,
        Err(why) => {
            let about = |name: &str| about_template(name, why.to_owned());
            plan.findings.extend(templates_of(frr).map(|name| about(name.as_str())));
            if *frr.exporting() == Exporting::Nothing {
                plan.findings.insert(about("template"));
            }
            return plan;
        }
    };
    let templates = Templates::of(frr, configurations, &mut plan);
    let mut wanted = wanted(world, frr, &templates, &mut plan);
    plan.findings.extend(foreign(configurations, &wanted));
    for template in templates_of(frr) {
        let subject = (ObjectKind::FrrConfiguration, template.as_str());
        plan.findings.extend(announced_twice(world, subject));
        plan.findings.extend(configurations.get(template).and_then(in_vrfs));
    }
    // A passive controller may misread carriers.
    if world.publisher().is_none() || world.freeze().is_on(Switch::Writes) {
        return plan;
    }
    let routes = announced(world);
    let mut round = Pass { world, frr, now, templates, present: OnceCell::new(), plan };
    let mut exact = None;
    for found in configurations.values() {
        let Some(node) = &found.of_node else { continue };
        match wanted.remove(&found.name) {
            Some(hostname) if found.selector == Selector::Hostname(hostname.hostname.clone()) => {
                round.update(found, &hostname, routes.get(node));
                if found.is_exact {
                    exact.get_or_insert((found, hostname));
                }
            }
            // It selects another node, or all nodes.
            Some(_) => round.delete(found, node),
            None => round.delete_unwanted(found, node),
        }
    }
    for (name, node) in wanted {
        // One of another writer is not touched.
        if !configurations.contains_key(&name) {
            round.create(&name, &node);
        }
    }
    if let Some((found, node)) = exact {
        round.touch_for_others(found, &node);
    }
    round.plan
}

/// A node that gets an FRRConfiguration.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DesiredRoute {
    name: NodeName,
    hostname: String,
}

/// The nodes that get an FRRConfiguration: those that have blocks or may get some. It exists before the first block,
/// so that its sessions are up by then.
fn wanted(
    world: &World,
    frr: &Frr,
    templates: &Templates,
    plan: &mut RoutesPlan,
) -> BTreeMap<FrrName, DesiredRoute> {
    let mut by_hostname: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
    let mut without = Vec::new();
    for node in world.nodes() {
        match node.labels.get(HOSTNAME_LABEL) {
            Some(hostname) => by_hostname.entry(hostname).or_default().push(node),
            None => without.push(node),
        }
    }
    let has_blocks = |node: &Node| {
        let mut claims = world.claims_of(&node.name);
        claims.any(|known| !matches!(known.claim.state, ClaimState::Cooling(_)))
    };
    let is_meant = |node: &Node| has_blocks(node) || world.pools_of(&node.name).next().is_some();
    let mut wanted = BTreeMap::new();
    if *frr.exporting() == Exporting::Nothing {
        return wanted;
    }
    for node in without.into_iter().filter(|node| is_meant(node)) {
        let why = format!("its routes are not announced: it has no label {HOSTNAME_LABEL}");
        plan.findings.insert(Finding::of_node(FindingKind::RouteWithheld, &node.name, why));
    }
    for (hostname, nodes) in by_hostname {
        match &nodes[..] {
            [node] if is_meant(node) => {
                plan.findings.extend(templates.finding(node));
                let of = DesiredRoute { name: node.name.clone(), hostname: hostname.to_owned() };
                wanted.insert(name_of(&node.name), of);
            }
            [_] => {}
            many => {
                for node in many.iter().filter(|node| is_meant(node)) {
                    let others = many.iter().map(|other| &other.name).filter(|other| **other != node.name);
                    let why = format!(
                        "its routes are not announced: Node {} has the same label {HOSTNAME_LABEL}={hostname}; \
                         give each Node its own value",
                        ten_of(others)
                    );
                    plan.findings.insert(Finding::of_node(FindingKind::RouteWithheld, &node.name, why));
                }
            }
        }
    }
    wanted
}

/// The names of the templates.
fn templates_of(frr: &Frr) -> impl Iterator<Item = &FrrName> {
    let names = match frr.exporting() {
        Exporting::By(names) => Some(names),
        Exporting::Nothing => None,
    };
    names.into_iter().flatten()
}

/// The templates that can be used.
#[derive(Debug, Default)]
struct Templates {
    usable: Vec<Template>,
    /// Whether another one can't be used. The nodes that it is for are unknown then.
    lacks_some: bool,
}

/// A template that can be used.
#[derive(Debug)]
struct Template {
    name: FrrName,
    for_nodes: BTreeMap<String, String>,
    sessions: Sessions,
}

impl Templates {
    fn of(frr: &Frr, configurations: &BTreeMap<FrrName, FrrConfiguration>, plan: &mut RoutesPlan) -> Self {
        let mut templates = Self::default();
        for name in templates_of(frr) {
            match template(name, configurations) {
                Ok(template) => templates.usable.push(template),
                Err(why) => {
                    templates.lacks_some = true;
                    plan.findings.insert(about_template(name.as_str(), why));
                }
            }
        }
        templates
    }

    /// Those that are for a node.
    fn for_node(&self, node: &Node) -> impl Iterator<Item = &Template> {
        let has = |(key, value): (&String, &String)| node.labels.get(key) == Some(value);
        self.usable.iter().filter(move |template| template.for_nodes.iter().all(has))
    }

    /// The sessions of a node: those of the only template that is for it.
    fn sessions(&self, node: &Node) -> Option<&Sessions> {
        let mut of_node = self.for_node(node);
        let only = of_node.next().filter(|_| of_node.next().is_none())?;
        Some(&only.sessions)
    }

    /// That a node has no template, or several.
    fn finding(&self, node: &Node) -> Option<Finding> {
        let names: Vec<&FrrName> = self.for_node(node).map(|template| &template.name).collect();
        let why = match names.len() {
            1 => return None,
            0 if self.lacks_some => return None,
            0 => format!("no template is for it; give one of them its labels in the annotation {FOR_NODES}"),
            _ => format!(
                "the templates {} are for it; give each node one template by the annotation {FOR_NODES}",
                ten_of(names)
            ),
        };
        let why = format!("it gets no sessions with routers: {why}");
        Some(Finding::of_node(FindingKind::RouteWithheld, &node.name, why))
    }
}

/// A template, or why it can't be used.
fn template(
    name: &FrrName,
    configurations: &BTreeMap<FrrName, FrrConfiguration>,
) -> Result<Template, String> {
    let found = configurations.get(name);
    let found =
        found.ok_or("it does not exist, so new nodes announce no routes; create it as the template")?;
    if found.selector == Selector::Every {
        return Err("the template selects every node; give it a nodeSelector that matches no node".to_owned());
    }
    if found.n_routers == 0 {
        return Err(
            "the template has no router, so no route can be announced; add spec.bgp.routers".to_owned()
        );
    }
    let for_nodes = found.for_nodes.clone().map_err(|text| {
        format!("its annotation {FOR_NODES} is `{text}`, and must be KEY=VALUE, separated by commas")
    })?;
    Ok(Template { name: name.clone(), for_nodes, sessions: found.sessions.clone() })
}

fn about_template(name: &str, why: String) -> Finding {
    Finding::new(FindingKind::RouteWithheld, ObjectKind::FrrConfiguration, name, why)
}

/// That routers of VRFs announce the routes of nodes too.
fn in_vrfs(template: &FrrConfiguration) -> Option<Finding> {
    if template.vrfs.is_empty() {
        return None;
    }
    let why = format!(
        "its routers of the VRFs {} announce the routes of nodes too; name them in its annotation {LEFT_OUT_VRFS} if \
         they should not",
        ten_of(&template.vrfs)
    );
    Some(Finding::new(FindingKind::RouteInVrf, ObjectKind::FrrConfiguration, template.name.as_str(), why))
}

/// The nodes whose FRRConfiguration belongs to another writer.
fn foreign(
    configurations: &BTreeMap<FrrName, FrrConfiguration>,
    wanted: &BTreeMap<FrrName, DesiredRoute>,
) -> impl Iterator<Item = Finding> {
    wanted.iter().filter_map(|(name, node)| {
        let is_foreign = configurations.get(name)?.of_node.as_ref() != Some(&node.name);
        is_foreign.then(|| refused(name, &node.name, "another writer has created it; delete it"))
    })
}

fn refused(name: &FrrName, node: &NodeName, why: &str) -> Finding {
    let message = format!("FRRConfiguration {name} of this node: {why}");
    Finding::of_node(FindingKind::RouteRefused, node, message)
}

/// A pass over all FRRConfigurations.
struct Pass<'a> {
    world: &'a World,
    frr: &'a Frr,
    now: Now,
    templates: Templates,
    /// The result of [`present`]. Only the few passes that add a prefix need it.
    present: OnceCell<PrefixIndex<FrrName>>,
    plan: RoutesPlan,
}

/// Every prefix of an FRRConfiguration with a name of ours. Another writer may have removed the labels.
fn present(frr: &Frr) -> PrefixIndex<FrrName> {
    let mut present = PrefixIndex::default();
    let all = frr.configurations().ok().into_iter().flat_map(|all| all.values());
    for found in all.filter(|found| found.has_our_name()) {
        for prefix in &found.prefixes {
            present.insert(*prefix, found.name.clone());
        }
    }
    present
}

impl Pass<'_> {
    /// The sessions that a node gets.
    fn sessions_of(&self, node: &NodeName) -> Option<Sessions> {
        self.templates.sessions(self.world.node(node)?).cloned()
    }

    /// Creates the FRRConfiguration of a node.
    fn create(&mut self, name: &FrrName, node: &DesiredRoute) {
        let Some(sessions) = self.sessions_of(&node.name) else { return };
        let writing = self.frr.writing(name);
        self.report(name, &node.name, writing.routes.why);
        if !self.is_due(name, writing.routes.pause.later_than(self.now)) {
            return;
        }
        let change = FrrChange::Create { hostname: node.hostname.clone(), sessions };
        self.write(FrrWrite { name: name.clone(), node: node.name.clone(), change });
    }

    /// Deletes an FRRConfiguration: its node is deleted, or it selects other nodes. That does not wait for the
    /// interval. It waits for the pause after a refused write only if it selects one host name.
    fn delete(&mut self, found: &FrrConfiguration, node: &NodeName) {
        self.report(&found.name, node, self.frr.writing(&found.name).routes.why);
        if found.is_deleting || self.world.is_in_flight(&Target::Frr(found.name.clone())) {
            return;
        }
        // One that selects every node is deleted as soon as possible.
        let pause = self.frr.writing(&found.name).routes.pause.later_than(self.now);
        if let (Selector::Hostname(_), Some(until)) = (&found.selector, pause) {
            self.wake_at(until);
            return;
        }
        let change = FrrChange::Delete { uid: found.uid.clone(), revision: found.revision };
        let write = FrrWrite { name: found.name.clone(), node: node.clone(), change };
        self.plan.requests.insert(0, Write::Frr(write).into());
    }

    /// Deletes an FRRConfiguration of a node that should have none, once this is known as of a time later than the
    /// object.
    fn delete_unwanted(&mut self, found: &FrrConfiguration, node: &NodeName) {
        let is_of_host = matches!(found.selector, Selector::Hostname(_));
        let is_absent = self.world.node(node).is_none();
        if !is_of_host {
            self.delete(found, node);
        } else if *self.frr.exporting() == Exporting::Nothing {
            self.withdraw_and_delete(found, node);
        } else if is_absent && self.frr.writing(&found.name).node_gone < Some(found.revision) {
            self.wake_at(self.now.uptime + WRITE_INTERVAL);
            if !self.world.is_in_flight(&Target::Node(node.clone())) {
                let as_of = self
                    .world
                    .claims_known_as_of(node)
                    .map_or(found.revision, |known| known.max(found.revision));
                self.plan.requests.push(Read::Node(node.clone(), as_of).into());
            }
        } else if is_absent {
            self.delete(found, node);
        } else if self.knows_claims(found, node) {
            self.withdraw_and_delete(found, node);
        } else {
            self.read_claims(node);
        }
    }

    /// Removes the prefixes of an FRRConfiguration first. The loss of a session withdraws no route where the router
    /// helps its neighbors to restart gracefully.
    fn withdraw_and_delete(&mut self, found: &FrrConfiguration, node: &NodeName) {
        let writing = self.frr.writing(&found.name);
        let Selector::Hostname(hostname) = &found.selector else { return self.delete(found, node) };
        if writing.routes.pause.failures() >= REFUSED_OFTEN {
            // The webhook refuses it, and no webhook is asked about a deletion.
            self.delete(found, node);
            return;
        }
        if found.prefixes.is_empty() {
            let until = writing.last.map(|last| last + WITHDRAWN_WITHIN);
            match until.filter(|until| *until > self.now.uptime) {
                Some(until) => self.wake_at(until),
                None => self.delete(found, node),
            }
            return;
        }
        let hostname = hostname.clone();
        if !found.is_deleting && self.is_due(&found.name, writing.routes.pause.later_than(self.now)) {
            let of = DesiredRoute { name: node.clone(), hostname };
            self.replace(found, &of, found.sessions.clone(), BTreeSet::new(), FrrPurpose::Prefixes);
        }
    }

    /// The answer to the last refused write of a kind that is still due.
    fn report(&mut self, found: &FrrName, node: &NodeName, why: Option<String>) {
        if let Some(why) = why {
            self.plan.findings.insert(refused(found, node, &why));
        }
    }

    /// Corrects an FRRConfiguration. Prefixes come first: they never wait for sessions that the server refuses.
    fn update(&mut self, found: &FrrConfiguration, node: &DesiredRoute, routes: Option<&NodeRoutes>) {
        let nothing = BTreeSet::new();
        let announced = routes.map_or(&nothing, |routes| &routes.prefixes);
        let writing = self.frr.writing(&found.name);
        let mut prefixes = self.step(found, announced, writing.last);
        if prefixes != found.prefixes && !self.knows_claims(found, &node.name) {
            self.read_claims(&node.name);
            return;
        }
        // An object of another node may still have an address of it, if its withdrawal is refused.
        let present: AddressSet = found.prefixes.iter().copied().collect();
        prefixes.retain(|prefix| present.covers(*prefix) || !self.is_announced_elsewhere(found, *prefix));
        let has_other_sessions =
            self.sessions_of(&node.name).is_some_and(|of_template| of_template != found.sessions);
        let of_sessions = writing.sessions.why.filter(|_| has_other_sessions);
        let purpose = if prefixes != found.prefixes || !found.is_exact {
            FrrPurpose::Prefixes
        } else if let Some(released) = self.released_later(found, &node.name) {
            FrrPurpose::LaterThan(released)
        } else if has_other_sessions {
            self.report(&found.name, &node.name, of_sessions);
            self.copy_template(found, node);
            return;
        } else {
            return;
        };
        self.report(&found.name, &node.name, writing.routes.why.or(of_sessions));
        if self.is_due(&found.name, writing.routes.pause.later_than(self.now)) {
            self.replace(found, node, found.sessions.clone(), prefixes, purpose);
        }
    }

    /// Whether the FRRConfiguration of another node announces an address of this prefix.
    fn is_announced_elsewhere(&self, found: &FrrConfiguration, prefix: Cidr) -> bool {
        let all = self.present.get_or_init(|| present(self.frr));
        all.overlapping(prefix).any(|(_, name)| *name != found.name)
    }

    /// Copies the template into one FRRConfiguration, and into the next after a while.
    fn copy_template(&mut self, found: &FrrConfiguration, node: &DesiredRoute) {
        let Some(sessions) = self.sessions_of(&node.name) else { return };
        let next = self.frr.last_rollout().map(|last| last + ROLLOUT_INTERVAL);
        if let Some(next) = next.filter(|next| *next > self.now.uptime) {
            self.wake_at(next);
            return;
        }
        let is_begun = self.plan.requests.iter().any(|request| {
            matches!(
                request,
                Request::Write(Write::Frr(FrrWrite {
                    change: FrrChange::Replace { purpose: FrrPurpose::Sessions, .. },
                    ..
                }))
            )
        });
        if is_begun {
            self.wake_at(self.now.uptime + ROLLOUT_INTERVAL);
            return;
        }
        let pause = self.frr.writing(&found.name).sessions.pause.later_than(self.now);
        if self.is_due(&found.name, pause) {
            self.replace(found, node, sessions, found.prefixes.clone(), FrrPurpose::Sessions);
        }
    }

    fn replace(
        &mut self,
        found: &FrrConfiguration,
        node: &DesiredRoute,
        sessions: Sessions,
        prefixes: BTreeSet<Cidr>,
        purpose: FrrPurpose,
    ) {
        let change = FrrChange::Replace {
            uid: found.uid.clone(),
            revision: found.revision,
            hostname: node.hostname.clone(),
            sessions,
            prefixes,
            purpose,
        };
        self.write(FrrWrite { name: found.name.clone(), node: node.name.clone(), change });
    }

    /// The next prefixes on the way to `announced`. While a prefix replaces others, as when two blocks become one
    /// prefix, the others stay beside it for a while.
    fn step(
        &mut self,
        found: &FrrConfiguration,
        announced: &BTreeSet<Cidr>,
        last: Option<Duration>,
    ) -> BTreeSet<Cidr> {
        let addresses: AddressSet = announced.iter().copied().collect();
        let mut beside = found.prefixes.iter().filter(|before| addresses.covers(**before)).peekable();
        let lacks = announced.iter().any(|prefix| !found.prefixes.contains(prefix));
        let until = last.map(|last| last + BESIDE_FOR).filter(|until| *until > self.now.uptime);
        if lacks || until.is_none() || beside.peek().is_none() {
            return if lacks { announced.iter().chain(beside).copied().collect() } else { announced.clone() };
        }
        if let Some(until) = until
            && found.prefixes != *announced
        {
            self.wake_at(until);
        }
        announced.iter().chain(beside).copied().collect()
    }

    /// The latest release of a block of the node that is later than the version of its FRRConfiguration.
    fn released_later(&self, found: &FrrConfiguration, node: &NodeName) -> Option<Revision> {
        let claims = self.world.claims_of(node).map(|known| &known.claim);
        let released = claims.filter(|claim| matches!(claim.state, ClaimState::Releasing(_)));
        let waiting = released.filter(|claim| claim.revision > found.revision && !found.overlaps(claim.cidr));
        waiting.map(|claim| claim.revision).max()
    }

    /// Writes this object again if a released block of a node without an object waits for the watch to pass its
    /// release. Any other write has the same effect.
    fn touch_for_others(&mut self, found: &FrrConfiguration, node: &DesiredRoute) {
        let is_frr = |request: &Request| matches!(request, Request::Write(Write::Frr(_)));
        let Ok(configurations) = self.frr.configurations() else { return };
        let released = self.world.claims().map(|known| &known.claim).filter(|claim| {
            matches!(claim.state, ClaimState::Releasing(_))
                && self.frr.position() <= Some(claim.revision)
                && !configurations.contains_key(&name_of(&claim.node))
        });
        let Some(released) = released.map(|claim| claim.revision).max() else { return };
        let pause = self.frr.writing(&found.name).routes.pause.later_than(self.now);
        if !self.plan.requests.iter().any(is_frr) && self.is_due(&found.name, pause) {
            let purpose = FrrPurpose::LaterThan(released);
            self.replace(found, node, found.sessions.clone(), found.prefixes.clone(), purpose);
        }
    }

    /// Whether every claim of the node is known as of this version of its FRRConfiguration.
    fn knows_claims(&self, found: &FrrConfiguration, node: &NodeName) -> bool {
        let read = self.frr.writing(&found.name).claims_read;
        self.world.claims_known_as_of(node).max(read) >= Some(found.revision)
    }

    fn read_claims(&mut self, node: &NodeName) {
        // The read may fail.
        self.wake_at(self.now.uptime + WRITE_INTERVAL);
        if !self.world.is_in_flight(&Target::ClaimsOf(node.clone())) {
            self.plan.requests.push(Read::ClaimsOf(node.clone()).into());
        }
    }

    /// Whether an FRRConfiguration may be written now. Otherwise the plan wakes at the time when it may.
    fn is_due(&mut self, name: &FrrName, pause: Option<Duration>) -> bool {
        if self.world.is_in_flight(&Target::Frr(name.clone())) {
            return false;
        }
        let next = self.frr.writing(name).last.map(|last| last + WRITE_INTERVAL);
        let next = next.filter(|next| *next > self.now.uptime).max(pause);
        if let Some(next) = next {
            self.wake_at(next);
        }
        next.is_none()
    }

    fn write(&mut self, write: FrrWrite) {
        self.plan.requests.push(Write::Frr(write).into());
    }

    fn wake_at(&mut self, at: Duration) {
        self.plan.wake = Some(self.plan.wake.map_or(at, |before| before.min(at)));
    }
}
