//! The controller's own books of a very large cluster, without a server: objects as a watch delivers them, read, taken
//! in and decided about. Nothing that one change costs may grow with the nodes. The results are in
//! `docs/performance.md`.
//!
//! Every node has one block of /28 of the pool of its zone, and 1000 nodes share a pool.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use cilium_node_ipam::forecast::plan_all;
use cilium_node_ipam::model::freeze::Freeze;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::observation::{Listing, Object, Observation};
use cilium_node_ipam::model::plan::NodePlan;
use cilium_node_ipam::model::request::{Request, Write};
use cilium_node_ipam::model::revision::AnyRevision;
use cilium_node_ipam::model::time::{Now, Timestamp};
use cilium_node_ipam::net::cidr::Family;
use cilium_node_ipam::plan::{self, Policy};
use cilium_node_ipam::publisher::Publisher;
use cilium_node_ipam::publisher::crd::Crd;
use cilium_node_ipam::publisher::mode::Mode;
use cilium_node_ipam::telemetry::metrics::Metrics;
use cilium_node_ipam::view::overview::overview;
use cilium_node_ipam::view::snapshot::snapshot;
use cilium_node_ipam::view::{free, late};
use cilium_node_ipam::wire::watched::{Watched, Wire};
use cilium_node_ipam::wire::{CiliumNodes, Claims, Nodes, Pools};
use cilium_node_ipam::world::World;
use cilium_node_ipam::world::gather::Gathering;

const SIZES: [u32; 3] = [1_000, 10_000, 100_000];

const NODES_OF_POOL: u32 = 1_000;

/// The number of single changes, for a mean.
const CHANGES: u32 = 500;

/// The revision of the lists.
const LISTED_AT: u64 = 1_000_000;

fn main() {
    println!(
        "| nodes | read and ready | peak memory | use reported | growth decided | snapshot | /metrics | `status` | self-check |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for n_nodes in SIZES {
        let began = Instant::now();
        let mut cluster = Cluster::read(n_nodes);
        let ready = began.elapsed();
        let memory = peak_memory();
        let reported = cluster.mean(4, |plan| assert!(plan.requests().is_empty(), "{plan:?}"));
        let grown = cluster.mean(16, |plan| {
            let claims = |request: &Request| matches!(request, Request::Write(Write::CreateClaim(_)));
            assert!(plan.requests().iter().any(claims), "{plan:?}");
        });
        let (shown, text) = cluster.show();
        let began = Instant::now();
        assert_eq!(cluster.world.check(), []);
        let checked = began.elapsed();
        let status = cluster.status();
        println!(
            "| {n_nodes} | {:.1} s | {memory} MiB | {:.0} µs | {:.0} µs | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} ms |",
            ready.as_secs_f64(),
            reported.as_secs_f64() * 1e6,
            grown.as_secs_f64() * 1e6,
            shown.as_secs_f64() * 1e3,
            text.as_secs_f64() * 1e3,
            status.as_secs_f64() * 1e3,
            checked.as_secs_f64() * 1e3,
        );
    }
}

/// A cluster in which nothing remains to be done.
struct Cluster {
    world: World,
    now: Now,
    revision: u64,
    n_nodes: u32,
}

impl Cluster {
    fn read(n_nodes: u32) -> Self {
        let mut gathering = Gathering::default();
        let crd = Crd { families: [Family::V4].into(), infrastructure: Vec::new() };
        gathering.set_mode(Mode::from(Publisher::Crd(crd)));
        gathering.set_freeze(Freeze::default());
        for kind in Kind::AS_LISTED {
            let objects = match kind {
                Kind::Pool => (0..n_nodes.div_ceil(NODES_OF_POOL)).map(pool).collect(),
                Kind::Node => (0..n_nodes).map(node).collect(),
                Kind::CiliumNode => (0..n_nodes).map(|number| cilium_node(number, 4, LISTED_AT)).collect(),
                Kind::Claim => (0..n_nodes).map(claim).collect(),
            };
            let at = AnyRevision::of(kind, LISTED_AT);
            gathering.observe(Observation::Listed(Listing { kind, at_least: at, at_most: at, objects }));
        }
        let world = gathering.complete().expect("every kind is listed");
        let now = Now { uptime: Duration::from_secs(1000), wall: Timestamp::UNIX_EPOCH };
        let mut cluster = Self { world, now, revision: LISTED_AT, n_nodes };
        while let Some(node) = cluster.world.next_node().cloned() {
            let plan = cluster.decide(&node);
            assert!(plan.requests().is_empty(), "{plan:?}");
        }
        while let Some(name) = cluster.world.next_pool().cloned() {
            let plan = plan::pool(&cluster.world, &name, Policy::DEFAULT, cluster.now);
            cluster.world.begin_status(&name, &plan, cluster.now);
        }
        cluster
    }

    fn decide(&mut self, node: &NodeName) -> NodePlan {
        let plan = plan::node(&self.world, node, Policy::DEFAULT, self.now);
        self.world.begin(&plan, self.now);
        plan
    }

    /// The mean time for the event of a CiliumNode whose agent uses as many addresses, and the decision that follows.
    fn mean(&mut self, n_used: u32, judge: impl Fn(&NodePlan)) -> Duration {
        let mut took = Duration::ZERO;
        for change in 0..CHANGES {
            // Nodes from all over the cluster.
            let number = (change * 7919 + n_used) % self.n_nodes;
            self.revision += 1;
            let event = json_of_cilium_node(number, n_used, self.revision);
            let began = Instant::now();
            self.world.observe(Observation::Applied(Box::new(read::<CiliumNodes>(&event))));
            let node = self.world.next_node().cloned().expect("the event is about a node");
            let plan = self.decide(&node);
            took += began.elapsed();
            judge(&plan);
        }
        took / CHANGES
    }

    /// The times of a snapshot for metrics and findings, and of its text.
    fn show(&self) -> (Duration, Duration) {
        let began = Instant::now();
        let findings = free::findings(&self.world);
        let shown = snapshot(&self.world, findings.iter().map(|finding| finding.kind), Timestamp::default());
        let took = began.elapsed();
        let metrics = Metrics::default();
        metrics.publish(shown);
        let began = Instant::now();
        black_box(metrics.text());
        (took, began.elapsed())
    }

    /// The time that the command `status` takes for its plans and its answer.
    fn status(mut self) -> Duration {
        let began = Instant::now();
        let plans = plan_all(&mut self.world, Policy::DEFAULT, self.now);
        black_box(overview(&self.world, &plans, self.now.wall));
        black_box(late::problems(&self.world, &plans, None, self.now.wall));
        began.elapsed()
    }
}

fn read<W: Wire>(json: &str) -> Object {
    let watched: Watched<W> = serde_json::from_str(json).expect("an object");
    let object = watched.into_object();
    assert!(!matches!(object, Object::Unreadable(..)), "{object:?}");
    object
}

fn name(number: u32) -> String {
    format!("worker-{number:06}.example.com")
}

/// The addresses of the block of a node: each pool has 2048 blocks, and the first 1000 are held.
fn addresses(number: u32) -> impl Iterator<Item = Ipv4Addr> {
    let first = 0x0a00_0000 + number / NODES_OF_POOL * 2048 * 16 + number % NODES_OF_POOL * 16;
    (first..first + 16).map(Ipv4Addr::from)
}

fn block(number: u32) -> String {
    format!("{}/28", addresses(number).next().expect("a block has addresses"))
}

fn pool(number: u32) -> Object {
    let range = format!("{}/17", Ipv4Addr::from(0x0a00_0000 + number * 2048 * 16));
    read::<Pools>(&format!(
        r#"{{"metadata":{{"name":"zone-{number}","uid":"p{number}","resourceVersion":"7","generation":1,
             "creationTimestamp":"2026-01-01T00:00:00Z","finalizers":["nodeipam.io/pool"]}},
            "spec":{{"nodeSelector":{{"matchLabels":{{"topology.kubernetes.io/zone":"zone-{number}"}}}},
             "ipv4":{{"blockSize":28,"cidrs":[{{"cidr":"{range}"}}]}}}}}}"#
    ))
}

fn node(number: u32) -> Object {
    let (name, zone) = (name(number), number / NODES_OF_POOL);
    read::<Nodes>(&format!(
        r#"{{"metadata":{{"name":"{name}","uid":"node-{number}","resourceVersion":"{}",
             "creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"kubernetes.io/hostname":"{name}",
              "kubernetes.io/arch":"amd64","kubernetes.io/os":"linux","node.kubernetes.io/instance-type":"m5.large",
              "topology.kubernetes.io/region":"region","topology.kubernetes.io/zone":"zone-{zone}"}}}},
            "status":{{"addresses":[{{"type":"InternalIP","address":"{}"}},{{"type":"Hostname","address":"{name}"}}]}}}}"#,
        number + 8,
        Ipv4Addr::from(0xac10_0000 + number),
    ))
}

fn cilium_node(number: u32, n_used: u32, revision: u64) -> Object {
    read::<CiliumNodes>(&json_of_cilium_node(number, n_used, revision))
}

fn json_of_cilium_node(number: u32, n_used: u32, revision: u64) -> String {
    let entries = |n_entries: u32, value: &str| {
        let mut text = String::new();
        for (index, address) in addresses(number).take(n_entries as usize).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(text, r#"{comma}"{address}":{value}"#).expect("a String takes all");
        }
        text
    };
    let (name, block, pool) = (name(number), block(number), entries(16, "{}"));
    let used = entries(n_used, r#"{"owner":"default/pod"}"#);
    format!(
        r#"{{"metadata":{{"name":"{name}","uid":"cn-{number}","resourceVersion":"{revision}",
             "creationTimestamp":"2026-01-01T00:00:00Z"}},
            "spec":{{"ipam":{{"podCIDRs":["{block}"],"pool":{{{pool}}}}}}},"status":{{"ipam":{{"used":{{{used}}}}}}}}}"#
    )
}

fn claim(number: u32) -> Object {
    let (name, block, zone) = (name(number), block(number), number / NODES_OF_POOL);
    read::<Claims>(&format!(
        r#"{{"metadata":{{"name":"{}","uid":"c{number}","resourceVersion":"{}","generation":1,
             "creationTimestamp":"2026-01-01T00:00:00Z","finalizers":["nodeipam.io/claim"]}},
            "spec":{{"cidr":"{block}","pool":"zone-{zone}","node":"{name}","nodeUID":"node-{number}",
             "createdForCiliumNodeUID":"cn-{number}","state":"Held","since":"2026-01-01T00:00:00Z"}}}}"#,
        block.replace('/', "-"),
        number + 9,
    ))
}

/// The maximum memory that this process ever held, in MiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let fields: BTreeMap<&str, &str> = status.lines().filter_map(|line| line.split_once(':')).collect();
    let kibibytes = fields["VmHWM"].trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    kibibytes / 1024
}
