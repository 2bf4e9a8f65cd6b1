//! No wake-up is lost: whenever a decision would come out differently, the node or pool is put on the agenda.
//!
//! Nothing here names what a decision depends on. Every object is changed in turn, in worlds in which nodes wait for
//! every kind of thing, and in random ones. After each change the loop decides for whom it finds on the agenda. Then
//! every plan is computed again, also those of nodes that were not on it: each must be the one that was decided last.

mod multi_pool;
mod worlds;

use proptest::prelude::*;

use super::node_configs::node_config;
use super::pod_ip_pools::{pod_ip_pool, publisher};
use super::*;
use crate::model::node_config::NodeConfigNews;
use crate::model::plan::PoolPlan;
use crate::model::pod_ip_pool::{PodIpPool, PodIpPoolNews};
use crate::model::request::{ClaimChange, Read};
use crate::plan::{PodIpPoolOrigin, pool};
use crate::publisher::multi_pool::Bgp;
use worlds::{
    BLOCKS, NODES, WORLDS, agent_lines, all_lines, cilium_node_lines, claim_lines, node_lines, pool_lines,
};

/// The controller creates CiliumPodIPPools.
const CREATING: Policy = Policy { pod_ip_pools: PodIpPoolOrigin::Controller, ..Policy::DEFAULT };

/// Something that happens to a cluster.
#[derive(Debug, Clone)]
enum Change {
    /// A watch shows the object in this line, at the next revision.
    Shown(String),
    /// A watch shows that the object of this line is deleted.
    Deleted(String),
    /// A list of this kind has everything but this object, as numbered among those that are known.
    NotListed(Kind, usize),
    /// Cilium runs these families; with none of them nothing may be written.
    Mode(&'static [Family]),
    /// This switch of the freeze is on, and no other.
    Freeze(Option<Switch>),
    /// One of the requests in flight ends: the server did what it asks for, or the same without telling, or refused.
    Ends(usize, End),
    /// Something is told of the agents' Pods.
    Agents(AgentNews),
    /// Cilium runs in mode multi-pool, with this BGP.
    MultiPool(Bgp),
    /// Something is told of CiliumPodIPPools.
    PodIpPools(PodIpPoolNews),
    /// Something is told of CiliumNodeConfigs.
    NodeConfigs(NodeConfigNews),
    /// Time passes.
    Passes(u64),
}

#[derive(Debug, Clone, Copy)]
enum End {
    Applied,
    Silent,
    Conflict,
}

impl Change {
    /// The change in these words.
    fn named(text: &str) -> Self {
        match text.split_once(' ') {
            Some(("delete", line)) => Self::Deleted(line.to_owned()),
            Some(("wait", seconds)) => Self::Passes(seconds.parse().unwrap()),
            _ if text == "freeze" => Self::Freeze(Some(Switch::Writes)),
            Some(("agent", _)) => Self::Agents(AgentNews::Applied(agent(text))),
            Some(("podippools", lines)) => {
                Self::PodIpPools(PodIpPoolNews::Listed(lines.split('\n').map(pod_ip_pool).collect()))
            }
            _ if text == "passive" => Self::Mode(&[]),
            _ if text == "dual-stack" => Self::Mode(&[Family::V4, Family::V6]),
            _ => panic!("no change: {text}"),
        }
    }
}

/// A pool tells of what lies in its ranges, and only that wakes it.
#[test]
fn a_pool_tells_of_nothing_beside_its_ranges() {
    let mut settled = Settled::of("", &[]);
    for line in [
        "pool p 10.0.0.0/30 30",
        "ciliumnode a 10.0.0.0/30 10.0.0.4/30",
        "unreadable NodeIPBlock 10.0.0.4-31 10.0.0.4/31",
    ] {
        assert_eq!(settled.lost_after(&Change::Shown(line.to_owned())), [""; 0], "after {line}");
    }
}

/// A cluster in which everything that was on the agenda has been decided.
#[derive(Clone)]
struct Settled {
    cluster: Cluster,
    revision: u64,
    decided: BTreeMap<NodeName, NodePlan>,
}

impl Settled {
    /// The cluster in these lines, to which these changes have happened.
    fn of(text: &str, changes: &[Change]) -> Self {
        Self::after(Cluster::of(text), changes)
    }

    /// The same in the mode multi-pool.
    fn of_multi_pool(text: &str, changes: &[Change]) -> Self {
        Self::after(Cluster::served_by(publisher(Bgp::On, &[Family::V4]), text), changes)
    }

    fn after(cluster: Cluster, changes: &[Change]) -> Self {
        let mut settled = Self { cluster, revision: LISTED, decided: BTreeMap::new() };
        settled.settle();
        for change in changes {
            settled.apply(change);
            settled.settle();
        }
        settled
    }

    /// A change happens, and everything that is on the agenda then is decided. Returns what was not on it and should
    /// have been.
    fn lost_after(&mut self, change: &Change) -> Vec<String> {
        self.apply(change);
        self.settle();
        let mut lost = self.lost();
        // The status of a pool is looked at once per second, and what is told on its claims may change it once more.
        for _ in 0..2 {
            self.cluster.pass(2);
            self.settle();
            lost.extend(self.lost());
        }
        lost.extend(self.lost_pools());
        lost
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    fn apply(&mut self, change: &Change) {
        let revision = self.next_revision();
        match change {
            Change::Shown(line) => self.cluster.observe(&format!("{line} @{revision}")),
            Change::Deleted(line) => {
                let object = object(&format!("{line} @{revision}"));
                self.cluster.delete(object.kind(), &object.name(), revision);
            }
            Change::NotListed(kind, omitted) => self.relist(*kind, *omitted, revision),
            Change::Mode(families) => self.cluster.world.set_mode(if families.is_empty() {
                Mode::Passive("of a test".to_owned())
            } else {
                let families = families.iter().copied().collect();
                Mode::Active(Publisher::Crd(Crd { families, infrastructure: Vec::new() }))
            }),
            Change::Freeze(switch) => {
                let on = switch.map(|switch| (switch, "of a test".to_owned()));
                self.cluster.world.set_freeze(Freeze::of(on));
            }
            Change::Ends(place, end) => self.end(*place, *end, revision),
            Change::Agents(news) => self.cluster.observe_agents(news.clone()),
            Change::MultiPool(bgp) => {
                self.cluster.world.set_mode(Mode::Active(publisher(*bgp, &[Family::V4])));
            }
            Change::PodIpPools(news) => {
                self.cluster.world.observe_pod_ip_pools(numbered(news.clone(), revision));
            }
            Change::NodeConfigs(news) => self.cluster.world.observe_node_configs(news.clone()),
            Change::Passes(seconds) => self.cluster.pass(*seconds),
        }
        assert_eq!(self.cluster.world.check(), []);
    }

    fn relist(&mut self, kind: Kind, omitted: usize, revision: u64) {
        let world = &self.cluster.world;
        let mut objects: Vec<Object> = match kind {
            Kind::Node => world.nodes().cloned().map(Object::Node).collect(),
            Kind::CiliumNode => NODES
                .iter()
                .filter_map(|name| world.cilium_node(&NodeName::from(*name)).cloned().map(Object::CiliumNode))
                .collect(),
            Kind::Pool => world.pool_objects().cloned().map(Object::Pool).collect(),
            Kind::Claim => world.claims().map(|known| Object::Claim(known.claim.clone())).collect(),
        };
        let unreadable = world.all_unreadable().filter(|(of, _)| *of == kind);
        let unreadable: Vec<Object> =
            unreadable.map(|(kind, unreadable)| Object::Unreadable(kind, unreadable.clone())).collect();
        objects.retain(|object| !unreadable.iter().any(|other| other.name() == object.name()));
        objects.extend(unreadable);
        if !objects.is_empty() {
            objects.remove(omitted % objects.len());
        }
        let at = AnyRevision::of(kind, revision);
        self.cluster.world.observe(Observation::Listed(Listing { kind, at_least: at, at_most: at, objects }));
    }

    /// The request at this place among those in flight ends.
    fn end(&mut self, place: usize, end: End, revision: u64) {
        if self.cluster.in_flight.is_empty() {
            return;
        }
        let request = self.cluster.in_flight.remove(place % self.cluster.in_flight.len());
        let (answer, seen) = match end {
            End::Applied => (Answer::Done, self.answer(&request, revision)),
            End::Silent => (Answer::Done, Seen::Nothing),
            End::Conflict => (Answer::Conflict("of a test".to_owned()), Seen::Nothing),
        };
        self.cluster.world.finish(Outcome { request, answer, seen }, self.cluster.now);
    }

    /// What the server answers that has just the objects that the world knows.
    fn answer(&self, request: &Request, revision: u64) -> Seen {
        let world = &self.cluster.world;
        let revision = Revision::of(revision);
        match request {
            Request::Read(Read::ClaimsOf(node)) => Seen::ClaimsOf {
                unreadable: Vec::new(),
                revision,
                claims: world.claims_of(node).map(|known| known.claim.clone()).collect(),
            },
            Request::Read(Read::Claim(cidr, _)) => world
                .claim(*cidr)
                .map_or(Seen::Absent(revision), |known| Seen::Claim(Box::new(known.claim.clone()))),
            Request::Read(Read::CiliumNode(node)) => world
                .cilium_node(node)
                .map_or(Seen::Absent(revision), |found| Seen::CiliumNode(Box::new(found.clone()))),
            Request::Read(Read::PodsOf(node, after)) => Seen::PodsOf {
                after: *after,
                pods: PodsOnNode {
                    agents: world.agents_on(node).cloned().collect(),
                    holders: BTreeMap::new(),
                    n_bound: 0,
                    n_starting: 0,
                },
            },
            Request::Read(Read::Node(node, as_of)) => Seen::Node {
                as_of: *as_of,
                read_at: Revision::of(revision.number()),
                presence: world.node(node).map_or(Presence::Gone, |node| Presence::Is(node.uid.clone())),
            },
            Request::Write(Write::CreateClaim(new)) => {
                let line = format!("claim {} {} {} Held @{}", new.cidr, new.node, new.node_uid, revision);
                let Object::Claim(created) = object(&line) else { unreachable!() };
                Seen::Claim(Box::new(Claim {
                    pool: new.pool.clone(),
                    pod_ip_pool: new.pod_ip_pool.clone(),
                    created_for: new.created_for.clone(),
                    ..created
                }))
            }
            Request::Write(Write::UpdateClaim(update)) if update.change == ClaimChange::Delete => {
                Seen::Deleted(update.uid.clone())
            }
            Request::Write(_) => Seen::Nothing,
        }
    }

    /// Decides for whoever is on the agenda, until nobody is.
    fn settle(&mut self) {
        let cluster = &mut self.cluster;
        loop {
            let reads = cluster.world.unconfirmed();
            cluster.world.begin_confirming(&reads, cluster.now);
            cluster.in_flight.extend(reads.into_iter().map(Request::Read));
            if let Some(node) = cluster.world.next_node().cloned() {
                let plan = cluster.plan(node.as_str());
                assert_eq!(cluster.held_back(plan.requests()), [""; 0], "writes are frozen");
                cluster.begin(&plan);
                let decided = cluster.plan(node.as_str());
                self.decided.insert(node, decided);
            } else if let Some(name) = cluster.world.next_pool().cloned() {
                let plan = pool(&cluster.world, &name, CREATING, cluster.now);
                cluster.world.begin_status(&name, &plan, cluster.now);
                for write in plan.into_writes() {
                    assert_eq!(cluster.held_back(&[write.clone().into()]), [""; 0], "writes are frozen");
                    self.revision += 1;
                    let seen = written(&cluster.world, &write, self.revision);
                    cluster
                        .world
                        .finish(Outcome { request: write.into(), answer: Answer::Done, seen }, cluster.now);
                }
            } else {
                return;
            }
        }
    }

    /// The nodes about which something else would be decided now than was decided last.
    fn lost(&self) -> Vec<String> {
        let compared = NODES.iter().filter(|name| self.exists(&NodeName::from(**name))).filter_map(|name| {
            let now = self.cluster.plan(name);
            let told = |plan: &NodePlan| {
                let mut text: Vec<String> = plan.requests().iter().map(ToString::to_string).collect();
                text.extend(
                    plan.findings.iter().map(|finding| format!("{}: {}", finding.name, finding.message)),
                );
                format!("{:?}; {}", plan.verdict, text.join("; "))
            };
            let is_new = match self.decided.get(&now.node) {
                Some(before) => (&before.verdict, &before.findings) != (&now.verdict, &now.findings),
                None => !now.requests().is_empty(),
            };
            is_new.then(|| {
                let before = self.decided.get(&now.node).map(told);
                format!("node {name} was `{}` and would be `{}`", before.unwrap_or_default(), told(&now))
            })
        });
        compared.collect()
    }

    /// Whether anything is left of a node.
    fn exists(&self, name: &NodeName) -> bool {
        let world = &self.cluster.world;
        let is_unreadable = |kind| world.unreadable(kind, name.as_str()).is_some();
        world.node(name).is_some()
            || world.cilium_node(name).is_some()
            || world.claims_of(name).next().is_some()
            || world.lost_claims_of(name).next().is_some()
            || [Kind::Node, Kind::CiliumNode].into_iter().any(is_unreadable)
    }

    /// The pools whose objects do not show what they should.
    fn lost_pools(&self) -> Vec<String> {
        let later = Now { uptime: self.cluster.now.uptime + Duration::from_secs(10), ..self.cluster.now };
        let pools = self.cluster.world.pool_objects().map(|object| &object.name);
        pools
            .filter_map(|name| match pool(&self.cluster.world, name, CREATING, later) {
                PoolPlan::Write(writes) => Some(format!("pool {name} lacks {writes:?}")),
                PoolPlan::Unchanged | PoolPlan::UpToDate | PoolPlan::Later(_) => None,
            })
            .collect()
    }
}

/// The pool or the claim after this write of the plan of a pool.
pub(super) fn written(world: &World, write: &Write, revision: u64) -> Seen {
    if let Write::ClaimStatus(write) = write {
        let mut claim = world.claim(write.cidr).expect("it is written").claim.clone();
        claim.revision = Revision::of(revision);
        claim.drain.clone_from(&write.drain);
        return Seen::Claim(Box::new(claim));
    }
    if let Write::PodIpPool(write) = write {
        return Seen::PodIpPool(Box::new(super::pod_ip_pools::after(world, write, revision)));
    }
    let mut object =
        world.pool_object(write.pool().expect("it is of a pool")).expect("it is written").clone();
    object.revision = Revision::of(revision);
    match write {
        Write::PoolStatus(write) => object.status = write.status.clone(),
        Write::PoolFinalizers(write) => object.finalizers.clone_from(&write.finalizers),
        other => panic!("no write of a pool: {other}"),
    }
    Seen::Pool(Box::new(object))
}

/// Every change of one object.
fn single_changes() -> Vec<Change> {
    let mut changes: Vec<Change> = all_lines().into_iter().map(Change::Shown).collect();
    for name in NODES {
        changes.push(Change::Deleted(format!("node {name} 1")));
        changes.push(Change::Deleted(format!("ciliumnode {name}")));
    }
    changes.extend(BLOCKS.map(|cidr| Change::Deleted(format!("claim {cidr} a 1 Held"))));
    changes.extend(["p", "q"].map(|name| Change::Deleted(format!("pool {name} 10.0.0.0/28 30"))));
    for kind in Kind::ALL {
        changes.extend((0..3).map(|omitted| Change::NotListed(kind, omitted)));
    }
    changes.extend([&[][..], &[Family::V4], &[Family::V4, Family::V6]].map(Change::Mode));
    changes.extend([None, Some(Switch::Reclaim), Some(Switch::Writes)].map(Change::Freeze));
    for place in 0..2 {
        changes.extend([End::Applied, End::Silent, End::Conflict].map(|end| Change::Ends(place, end)));
    }
    changes.extend(agent_news().into_iter().map(Change::Agents));
    changes.extend([1, 40, 7200].map(Change::Passes));
    changes
}

/// Every change of one object in the mode multi-pool.
fn single_changes_in_multi_pool() -> Vec<Change> {
    let lines = [node_lines(), multi_pool::cilium_node_lines(), multi_pool::pool_lines()].concat();
    let mut changes: Vec<Change> = lines.into_iter().map(Change::Shown).collect();
    changes.extend(multi_pool::claim_lines().into_iter().map(Change::Shown));
    changes.extend(["p", "q"].map(|name| Change::Deleted(format!("pool {name} 10.0.0.0/24 28"))));
    changes.extend([Bgp::On, Bgp::Off].map(Change::MultiPool));
    changes.extend(pod_ip_pool_news().into_iter().map(Change::PodIpPools));
    changes.extend(node_config_news().into_iter().map(Change::NodeConfigs));
    changes.extend(agent_news().into_iter().map(Change::Agents));
    changes.extend([End::Applied, End::Silent, End::Conflict].map(|end| Change::Ends(0, end)));
    changes.extend([1, 40].map(Change::Passes));
    changes
}

/// Everything that may be told of CiliumPodIPPools.
fn pod_ip_pool_news() -> Vec<PodIpPoolNews> {
    let objects = || multi_pool::OBJECTS.iter().map(|line| pod_ip_pool(line));
    let mut news: Vec<PodIpPoolNews> = objects().map(PodIpPoolNews::Applied).collect();
    news.extend(["default", "mars"].map(|name| PodIpPoolNews::Deleted(name.into(), Revision::of(1))));
    news.extend(objects().map(|object| PodIpPoolNews::Listed(vec![object])));
    news.extend([PodIpPoolNews::Listed(Vec::new()), PodIpPoolNews::Unlisted("of a test".to_owned())]);
    news
}

/// Everything that may be told of CiliumNodeConfigs.
fn node_config_news() -> Vec<NodeConfigNews> {
    let configs = || {
        ["ipam-default-ip-pool=mars", "enable-bgp-control-plane=false", "ipam=crd", "enable-ipv6=true"]
            .into_iter()
            .flat_map(|set| ["all", "zone=x"].map(|whom| node_config(&format!("one {whom} {set}"))))
    };
    let mut news: Vec<NodeConfigNews> = configs().map(NodeConfigNews::Applied).collect();
    news.extend(configs().map(|config| NodeConfigNews::Listed(vec![config])));
    news.extend([
        NodeConfigNews::Deleted("one".to_owned()),
        NodeConfigNews::Unlisted("of a test".to_owned()),
    ]);
    news
}

/// The same at this revision.
fn numbered(news: PodIpPoolNews, revision: u64) -> PodIpPoolNews {
    let revision = Revision::of(revision);
    let at = |object: PodIpPool| PodIpPool { revision, ..object };
    match news {
        PodIpPoolNews::Applied(object) => PodIpPoolNews::Applied(at(object)),
        PodIpPoolNews::Listed(objects) => PodIpPoolNews::Listed(objects.into_iter().map(at).collect()),
        PodIpPoolNews::Deleted(name, _) => PodIpPoolNews::Deleted(name, revision),
        PodIpPoolNews::Unlisted(why) => PodIpPoolNews::Unlisted(why),
    }
}

/// Everything that may be told of the agents' Pods.
fn agent_news() -> Vec<AgentNews> {
    let pods = || agent_lines().into_iter().map(|line| agent(&line));
    let mut news: Vec<AgentNews> = pods().map(AgentNews::Applied).collect();
    news.extend(pods().map(AgentNews::Deleted));
    news.extend(pods().map(|pod| AgentNews::Listed(vec![pod])));
    news.push(AgentNews::Listed(Vec::new()));
    news.extend(["1.13.10", "1.17.8", "1.20.2"].map(|release| AgentNews::Vouched(release.parse().unwrap())));
    news
}

#[test]
fn every_change_of_one_object_wakes_whoever_decides_differently_then() {
    let mut lost = Vec::new();
    for (what, text, before) in WORLDS {
        let before: Vec<Change> = before.iter().copied().map(Change::named).collect();
        let settled = Settled::of(text, &before);
        assert_eq!(settled.lost(), [""; 0], "one who waits for {what}");
        for change in single_changes() {
            let mut settled = settled.clone();
            let found = settled.lost_after(&change);
            lost.extend(found.into_iter().map(|lost| format!("one waits for {what}, {change:?}: {lost}")));
        }
    }
    assert!(lost.is_empty(), "{} wake-ups are lost:\n{}", lost.len(), lost.join("\n"));
}

#[test]
fn every_change_of_one_object_in_multi_pool_mode_wakes_whoever_decides_differently_then() {
    let mut lost = Vec::new();
    for (what, text, before) in multi_pool::WORLDS {
        let before: Vec<Change> = before.iter().copied().map(Change::named).collect();
        let settled = Settled::of_multi_pool(text, &before);
        assert_eq!(settled.lost(), [""; 0], "one who waits for {what}");
        for change in single_changes_in_multi_pool() {
            let mut settled = settled.clone();
            let found = settled.lost_after(&change);
            lost.extend(found.into_iter().map(|lost| format!("one waits for {what}, {change:?}: {lost}")));
        }
    }
    assert!(lost.is_empty(), "{} wake-ups are lost:\n{}", lost.len(), lost.join("\n"));
}

/// Whether its node is still gone is read before it is free, which counts for a minute; while writes are frozen that minute
/// would pass again and again.
#[test]
fn a_block_that_has_cooled_while_writes_are_frozen_waits_for_nothing_else() {
    let cooling = "pool p 10.0.0.0/28 30\nclaim 10.0.0.0/30 b 1 Cooling/NodeGone @40";
    let mut settled = Settled::of(cooling, &[Change::named("freeze")]);
    for change in [
        Change::Passes(1_000_000),
        Change::Passes(60),
        Change::Ends(0, End::Applied),
        Change::Passes(40),
        Change::Passes(40),
    ] {
        assert_eq!(settled.lost_after(&change), [""; 0], "after {change:?}");
    }
}

fn change() -> impl Strategy<Value = Change> {
    let shown = |lines: Vec<String>| prop::sample::select(lines).prop_map(Change::Shown);
    prop_oneof![
        4 => shown(node_lines()),
        6 => shown(cilium_node_lines()),
        6 => shown(claim_lines()),
        3 => shown(pool_lines()),
        4 => prop::sample::select(all_lines()).prop_map(Change::Deleted),
        2 => (prop::sample::select(Kind::ALL.to_vec()), 0..8usize).prop_map(|(kind, omitted)| Change::NotListed(kind, omitted)),
        1 => prop::sample::select(vec![&[][..], &[Family::V4], &[Family::V4, Family::V6]]).prop_map(Change::Mode),
        2 => prop::sample::select(vec![None, Some(Switch::Reclaim), Some(Switch::Writes)]).prop_map(Change::Freeze),
        4 => (0..8usize, prop::sample::select(vec![End::Applied, End::Silent, End::Conflict]))
            .prop_map(|(place, end)| Change::Ends(place, end)),
        2 => prop::sample::select(agent_news()).prop_map(Change::Agents),
        2 => prop::sample::select(vec![1u64, 40, 7200]).prop_map(Change::Passes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_change_wakes_whoever_decides_differently_then(changes in prop::collection::vec(change(), 1..24)) {
        let mut settled = Settled::of("", &[]);
        for change in &changes {
            prop_assert_eq!(settled.lost_after(change), [""; 0], "after {:?}", change);
        }
    }

    #[test]
    fn any_change_in_multi_pool_mode_wakes_whoever_decides_differently_then(
        changes in prop::collection::vec(prop::sample::select(single_changes_in_multi_pool()), 1..24)
    ) {
        let mut settled = Settled::of_multi_pool("", &[]);
        for change in &changes {
            prop_assert_eq!(settled.lost_after(change), [""; 0], "after {:?}", change);
        }
    }
}
