//! Measures the cost of one change for the loop in clusters of different sizes: with ten times as many nodes, or a
//! hundred times as many pools, it should cost the same. Only the ratios are of interest; they are in
//! `docs/performance.md`.
//!
//! `edited_pool` edits one pool and decides for the nodes and pools that it concerns. `freed_block` frees one block
//! while every node waits for one. `taken_block` takes one, fifty in a second, while no node can start, because no pool
//! has a block of a second family for it. `lost_claims` takes in one event of a CiliumNode while there is a lost claim
//! for every node.
//!
//! `all_statuses` looks at the status of every pool, and `snapshot` counts for metrics and findings. `scrape` writes
//! these counts as the text of `/metrics`, and `self_check` compares everything with the objects. The costs have to
//! grow with nodes and pools, but not with their product, not even in these cases:
//!
//! - `one_family`: agents run two families, and each pool has one.
//! - `deleted`: every pool is being deleted.
//! - `unreadable`: no claim can be read, as after a newer version has changed its definition.

mod setup;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use cilium_node_ipam::model::claim::{Claim, ClaimState, Reason, block_name};
use cilium_node_ipam::model::crd::CrdFields;
use cilium_node_ipam::model::freeze::Freeze;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::multi_pool::PoolsFields;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::node::{CiliumNode, Node};
use cilium_node_ipam::model::observation::{Listing, Object, Observation, PoolObject, Unreadable};
use cilium_node_ipam::model::outcome::{Answer, Outcome, Seen};
use cilium_node_ipam::model::plan::PoolPlan;
use cilium_node_ipam::model::pool::Pool;
use cilium_node_ipam::model::request::{Request, Write};
use cilium_node_ipam::model::revision::{AnyRevision, Revision};
use cilium_node_ipam::model::status::PoolStatus;
use cilium_node_ipam::model::time::{Now, Timestamp};
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::plan::{self, Policy};
use cilium_node_ipam::publisher::Publisher;
use cilium_node_ipam::publisher::crd::Crd;
use cilium_node_ipam::publisher::mode::Mode;
use cilium_node_ipam::telemetry::metrics::Metrics;
use cilium_node_ipam::view::free;
use cilium_node_ipam::view::snapshot::snapshot;
use cilium_node_ipam::world::World;
use cilium_node_ipam::world::gather::Gathering;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

/// The sizes of the clusters: nodes and pools.
const SIZES: [(u32, u32); 4] = [(500, 10), (500, 1000), (5000, 10), (5000, 1000)];

const POLICY: Policy = Policy::DEFAULT;

/// The range of a pool: each has 512 blocks of 16 addresses.
fn range(pool: u32) -> Cidr {
    cidr(0x0a00_0000 + pool * 8192, 19)
}

fn block(pool: u32, place: u32) -> Cidr {
    cidr(0x0a00_0000 + pool * 8192 + place * 16, 28)
}

fn cidr(address: u32, length: u8) -> Cidr {
    Cidr::containing(std::net::Ipv4Addr::from(address).into(), length).expect("a length of IPv4")
}

fn pool(number: u32, revision: u64, priority: i32) -> PoolObject {
    let zone = ("zone".to_owned(), number.to_string());
    let pool = Pool {
        priority,
        selector: [zone].into_iter().collect(),
        pod_ip_pool: None,
        // No block stops cooling by itself, however long it is measured.
        reuse_after_node_loss: Duration::from_secs(1_000_000_000),
        communities: std::collections::BTreeSet::default(),
        ..setup::pool(&format!("p{number}"), range(number), 28)
    };
    PoolObject {
        name: pool.name.clone(),
        uid: pool.uid.clone(),
        revision: Revision::of(revision),
        deleting: false,
        finalizers: vec![PoolObject::FINALIZER.to_owned()],
        pool: Ok(pool),
        generation: 1,
        status: PoolStatus::default(),
        transitions: BTreeMap::new(),
        waits_since: BTreeMap::new(),
        history: BTreeMap::new(),
    }
}

fn node(name: &str, zone: u32) -> Object {
    let labels = [("zone".to_owned(), zone.to_string())].into();
    Object::Node(Node::joining(name.into(), "1".into(), Revision::of(1), Timestamp::default(), labels))
}

fn cilium_node(name: &str, carried: Option<Cidr>, revision: u64) -> Object {
    let addresses: AddressSet = carried.into_iter().collect();
    let used = addresses.iter().take(4).collect();
    let pod_cidrs = carried.into_iter().collect();
    Object::CiliumNode(CiliumNode {
        name: name.into(),
        uid: format!("cn-{name}").as_str().into(),
        revision: Revision::of(revision),
        created: Timestamp::default(),
        deleting: false,
        addresses: Vec::new(),
        crd: CrdFields { pod_cidrs, pool: addresses, used: Some(used), ..CrdFields::default() },
        pools: PoolsFields::default(),
        operator: None,
        malformed: Vec::new(),
    })
}

fn claim(cidr: Cidr, pool: u32, node: &str, state: ClaimState, revision: u64) -> Claim {
    Claim {
        cidr,
        pool: format!("p{pool}").as_str().into(),
        node: node.into(),
        node_uid: "1".into(),
        pod_ip_pool: None,
        excluded: AddressSet::new(),
        state,
        since: Timestamp::UNIX_EPOCH,
        created_for: Some(format!("cn-{node}").as_str().into()),
        uid: format!("{cidr} {revision}").as_str().into(),
        revision: Revision::of(revision),
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        finalizers: vec![Claim::FINALIZER.to_owned()],
        status: cilium_node_ipam::model::status::ClaimStatus::default(),
    }
}

/// A world in which everything has been decided, and where time does not pass.
struct Cluster {
    world: World,
    now: Now,
    revision: u64,
    in_flight: Vec<Request>,
}

impl Cluster {
    fn of(objects: &[Object]) -> Self {
        Self::running(&[Family::V4], objects)
    }

    /// A cluster whose agents run these families.
    fn running(families: &[Family], objects: &[Object]) -> Self {
        let families = families.iter().copied().collect();
        let mut gathering = Gathering::default();
        gathering.set_mode(Mode::from(Publisher::Crd(Crd { families, infrastructure: Vec::new() })));
        gathering.set_freeze(Freeze::default());
        for kind in Kind::AS_LISTED {
            let objects = objects.iter().filter(|object| object.kind() == kind).cloned().collect();
            let at = AnyRevision::of(kind, 100);
            gathering.observe(Observation::Listed(Listing { kind, at_least: at, at_most: at, objects }));
        }
        let world = gathering.complete().expect("every kind is listed");
        let now = Now { uptime: Duration::from_secs(1000), wall: Timestamp::UNIX_EPOCH };
        let mut cluster = Self { world, now, revision: 100, in_flight: Vec::new() };
        cluster.decide();
        cluster
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    fn observe(&mut self, object: Object) {
        self.world.observe(Observation::Applied(Box::new(object)));
    }

    /// Decides for every node and pool on the agenda. The writes of pools are applied at once.
    fn decide(&mut self) {
        loop {
            if let Some(node) = self.world.next_node().cloned() {
                let plan = plan::node(&self.world, &node, POLICY, self.now);
                self.world.begin(&plan, self.now);
                self.in_flight.extend(plan.into_requests());
            } else if let Some(name) = self.world.next_pool().cloned() {
                let plan = plan::pool(&self.world, &name, POLICY, self.now);
                self.world.begin_status(&name, &plan, self.now);
                for write in plan.into_writes() {
                    let mut written = self.world.pool_object(&name).expect("it is written").clone();
                    written.revision = Revision::of(self.next_revision());
                    if let Write::PoolStatus(status) = &write {
                        written.status = status.status.clone();
                    }
                    let seen = Seen::Pool(Box::new(written));
                    self.world
                        .finish(Outcome { request: write.into(), answer: Answer::Done, seen }, self.now);
                }
            } else {
                return;
            }
        }
    }
}

/// A cluster in which every node has a block of the pool of its zone.
fn served(nodes: u32, pools: u32) -> Vec<Object> {
    let mut objects: Vec<Object> = (0..pools).map(|number| Object::Pool(pool(number, 1, 0))).collect();
    for number in 0..nodes {
        let (name, zone) = (format!("n{number:04}"), number % pools);
        let block = block(zone, number / pools);
        objects.push(node(&name, zone));
        objects.push(cilium_node(&name, Some(block), 60));
        objects.push(Object::Claim(claim(block, zone, &name, ClaimState::Held, 50)));
    }
    objects
}

/// Oddities by which a cluster costs more to look at than one in which all is well.
const ODDITIES: [Oddity; 4] = [Oddity::None, Oddity::OneFamily, Oddity::Deleted, Oddity::Unreadable];

#[derive(Debug, Clone, Copy)]
enum Oddity {
    None,
    /// The agents run two families, and the pools have one.
    OneFamily,
    /// Every pool is being deleted, and all of its blocks are held.
    Deleted,
    /// No claim can be read.
    Unreadable,
}

impl Oddity {
    /// The name of a bench with it.
    fn of(self, bench: &str) -> String {
        match self {
            Self::None => bench.to_owned(),
            Self::OneFamily => format!("{bench}/one_family"),
            Self::Deleted => format!("{bench}/deleted"),
            Self::Unreadable => format!("{bench}/unreadable"),
        }
    }

    /// A cluster in which every node has a block, with the oddity.
    fn cluster(self, nodes: u32, pools: u32) -> Cluster {
        let mut objects = served(nodes, pools);
        let mut families = vec![Family::V4];
        match self {
            Self::None => {}
            Self::OneFamily => families.push(Family::V6),
            Self::Deleted => {
                for object in &mut objects {
                    if let Object::Pool(object) = object {
                        object.deleting = true;
                        object.pool.iter_mut().for_each(|pool| pool.deleting = true);
                    }
                }
            }
            Self::Unreadable => {
                for object in &mut objects {
                    if let Object::Claim(claim) = object {
                        *object = unreadable(claim);
                    }
                }
            }
        }
        Cluster::running(&families, &objects)
    }
}

fn unreadable(claim: &Claim) -> Object {
    let unreadable = Unreadable {
        name: block_name(claim.cidr),
        revision: Some(claim.revision.into()),
        node: Some(claim.node.clone()),
        pool: Some(claim.pool.clone()),
        reason: "of no known form".to_owned(),
        addresses: [claim.cidr].into_iter().collect(),
    };
    Object::Unreadable(Kind::Claim, unreadable)
}

/// Measures `change`, which returns how long the part of interest took.
fn measure(
    criterion: &mut Criterion,
    group: impl Into<String>,
    cluster: impl Fn(u32, u32) -> Cluster,
    change: impl Fn(&mut Cluster) -> Duration,
) {
    let mut group = criterion.benchmark_group(group);
    group.sample_size(10).warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_millis(300));
    for (nodes, pools) in &SIZES {
        let mut cluster = cluster(*nodes, *pools);
        group.bench_function(
            BenchmarkId::from_parameter(format!("{nodes} nodes, {pools} pools")),
            |bencher| {
                bencher.iter_custom(|n| (0..n).map(|_| change(&mut cluster)).sum());
            },
        );
    }
    group.finish();
}

fn edited_pool(criterion: &mut Criterion) {
    let cluster = |nodes, pools| Cluster::of(&served(nodes, pools));
    measure(criterion, "edited_pool", cluster, |cluster| {
        let revision = cluster.next_revision();
        let priority = i32::try_from(revision % 1000).expect("it is below 1000");
        let edited = pool(1, revision, priority);
        cluster.now.uptime += Duration::from_secs(2);
        let start = Instant::now();
        cluster.observe(Object::Pool(edited));
        cluster.decide();
        start.elapsed()
    });
}

/// A block of one pool is excluded, and the exclusion is removed the next time.
fn edited_ranges(criterion: &mut Criterion) {
    let cluster = |nodes, pools| Cluster::of(&served(nodes, pools));
    measure(criterion, "edited_ranges", cluster, |cluster| {
        let revision = cluster.next_revision();
        let mut edited = pool(1, revision, 0);
        let before = cluster.world.pool(&edited.name).expect("it is there");
        if before.families[&Family::V4].exclude.is_empty() {
            let pool = edited.pool.as_mut().expect("it can be read");
            pool.families.get_mut(&Family::V4).expect("it has ranges").exclude.push(block(1, 511));
        }
        cluster.now.uptime += Duration::from_secs(2);
        let start = Instant::now();
        cluster.observe(Object::Pool(edited));
        cluster.decide();
        start.elapsed()
    });
}

fn all_statuses(criterion: &mut Criterion) {
    for oddity in ODDITIES {
        let cluster = |nodes, pools| oddity.cluster(nodes, pools);
        measure(criterion, oddity.of("all_statuses"), cluster, |cluster| {
            cluster.now.uptime += Duration::from_secs(2);
            let plan = |object: &PoolObject| plan::pool(&cluster.world, &object.name, POLICY, cluster.now);
            let start = Instant::now();
            let plans: Vec<PoolPlan> = cluster.world.pool_objects().map(plan).collect();
            let elapsed = start.elapsed();
            let is_rewritten = |plan: &PoolPlan| matches!(plan, PoolPlan::Write(_));
            assert!(!plans.iter().any(is_rewritten), "the statuses are right");
            elapsed
        });
    }
}

fn whole_snapshot(criterion: &mut Criterion) {
    for oddity in ODDITIES {
        let cluster = |nodes, pools| oddity.cluster(nodes, pools);
        measure(criterion, oddity.of("snapshot"), cluster, |cluster| {
            let start = Instant::now();
            let findings = free::findings(&cluster.world);
            let kinds = findings.iter().map(|finding| finding.kind);
            black_box(snapshot(&cluster.world, kinds, Timestamp::default()));
            start.elapsed()
        });
    }
}

/// The text of `/metrics` for a snapshot that exists.
fn scrape(criterion: &mut Criterion) {
    let cluster = |nodes, pools| Oddity::None.cluster(nodes, pools);
    measure(criterion, "scrape", cluster, |cluster| {
        let metrics = Metrics::default();
        metrics.publish(snapshot(&cluster.world, std::iter::empty(), Timestamp::default()));
        let start = Instant::now();
        black_box(metrics.text());
        start.elapsed()
    });
}

fn self_check(criterion: &mut Criterion) {
    let cluster = |nodes, pools| Oddity::None.cluster(nodes, pools);
    measure(criterion, "self_check", cluster, |cluster| {
        let start = Instant::now();
        let differences = cluster.world.check();
        let elapsed = start.elapsed();
        assert_eq!(differences, []);
        elapsed
    });
}

/// Every node waits for a block of one pool, and all blocks of this pool cool.
fn freed_block(criterion: &mut Criterion) {
    let of_cooling =
        |revision| claim(block(0, 7), 0, "gone", ClaimState::Cooling(Reason::NodeGone), revision);
    let cluster = |nodes, pools| {
        let mut objects: Vec<Object> = (0..pools).map(|number| Object::Pool(pool(number, 1, 0))).collect();
        for place in 0..512 {
            let state = ClaimState::Cooling(Reason::NodeGone);
            objects.push(Object::Claim(claim(block(0, place), 0, "gone", state, 50)));
        }
        for number in 0..nodes {
            let name = format!("n{number:04}");
            objects.push(node(&name, 0));
            objects.push(cilium_node(&name, None, 60));
        }
        Cluster::of(&objects)
    };
    measure(criterion, "freed_block", cluster, |cluster| {
        let revision = cluster.next_revision();
        cluster.now.uptime += Duration::from_secs(2);
        let start = Instant::now();
        cluster.world.observe(Observation::Deleted {
            kind: Kind::Claim,
            name: block_name(block(0, 7)),
            revision: AnyRevision::of(Kind::Claim, revision),
        });
        cluster.decide();
        let elapsed = start.elapsed();
        // Another replica was faster, and the block is taken again.
        let revision = cluster.next_revision();
        let in_flight = std::mem::take(&mut cluster.in_flight);
        let [create] = &in_flight[..] else { panic!("one node claims it, not {in_flight:?}") };
        let seen = Seen::Claim(Box::new(of_cooling(revision)));
        let answer = Answer::Conflict("of the bench".to_owned());
        cluster.world.finish(Outcome { request: create.clone(), answer, seen }, cluster.now);
        cluster.observe(Object::Claim(of_cooling(revision)));
        cluster.now.uptime += Duration::from_secs(60);
        cluster.world.advance(cluster.now);
        cluster.decide();
        elapsed
    });
}

/// Every node lacks a block of the second family, and there is none. It could have one of the first family, and fifty
/// of these are taken within a second.
fn taken_block(criterion: &mut Criterion) {
    const TAKEN: u32 = 50;
    let of = |place, state, revision| claim(block(0, place), 0, "other", state, revision);
    let cluster = |nodes, pools| {
        let mut objects: Vec<Object> = (0..pools).map(|number| Object::Pool(pool(number, 1, 0))).collect();
        for number in 0..nodes {
            let name = format!("n{number:04}");
            objects.push(node(&name, 0));
            objects.push(cilium_node(&name, None, 60));
        }
        Cluster::running(&[Family::V4, Family::V6], &objects)
    };
    measure(criterion, "taken_block", cluster, |cluster| {
        let start = Instant::now();
        for place in 0..TAKEN {
            let revision = cluster.next_revision();
            cluster.now.uptime += Duration::from_secs(1) / TAKEN;
            cluster.observe(Object::Claim(of(place, ClaimState::Held, revision)));
            cluster.world.advance(cluster.now);
            cluster.decide();
        }
        let elapsed = start.elapsed();
        // They are free again: they cooled, and were deleted.
        for place in 0..TAKEN {
            let revision = cluster.next_revision();
            cluster.observe(Object::Claim(of(place, ClaimState::Cooling(Reason::NodeGone), revision)));
            let revision = AnyRevision::of(Kind::Claim, cluster.next_revision());
            let name = block_name(block(0, place));
            cluster.world.observe(Observation::Deleted { kind: Kind::Claim, name, revision });
        }
        cluster.now.uptime += Duration::from_secs(60);
        cluster.world.advance(cluster.now);
        cluster.decide();
        cluster.in_flight.clear();
        elapsed / TAKEN
    });
}

/// Claims of deleted nodes were lost, and their CiliumNodes still exist.
fn lost_claims(criterion: &mut Criterion) {
    let cluster = |nodes, pools| {
        let mut objects = served(nodes, pools);
        for number in 0..nodes {
            objects.push(cilium_node(&format!("gone{number:04}"), None, 60));
            let cidr = cidr(0x0b00_0000 + number * 16, 28);
            objects.push(Object::Claim(claim(cidr, 0, &format!("gone{number:04}"), ClaimState::Held, 50)));
        }
        let mut cluster = Cluster::of(&objects);
        let revision = cluster.next_revision();
        for number in 0..nodes {
            let revision = AnyRevision::of(Kind::Claim, revision);
            let name = block_name(cidr(0x0b00_0000 + number * 16, 28));
            cluster.world.observe(Observation::Deleted { kind: Kind::Claim, name, revision });
        }
        // As many requests are in flight as may be; the other nodes stay on the agenda.
        for _ in 0..32 {
            let node: NodeName = cluster.world.next_node().expect("every node is to be decided for").clone();
            let plan = plan::node(&cluster.world, &node, POLICY, cluster.now);
            cluster.world.begin(&plan, cluster.now);
        }
        cluster
    };
    measure(criterion, "lost_claims", cluster, |cluster| {
        let revision = cluster.next_revision();
        let object = cilium_node("n0001", Some(block(1, 0)), revision);
        let start = Instant::now();
        cluster.observe(object);
        start.elapsed()
    });
}

criterion_group!(
    benches,
    edited_pool,
    edited_ranges,
    all_statuses,
    whole_snapshot,
    scrape,
    self_check,
    freed_block,
    taken_block,
    lost_claims
);
criterion_main!(benches);
