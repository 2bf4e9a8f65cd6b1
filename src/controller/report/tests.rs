//! Tests of the loop's reports: lines in the log, and events.

use std::fmt::Write as _;

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::super::cluster::{Cluster, cilium_node, claim, node, pool, ranges};
use super::super::events::Waiting;
use super::super::lead::Lead;
use super::super::log_lines::LogLines;
use super::super::waits::REPEAT;
use super::without_block::PATIENCE as MOMENT;
use super::without_pool::PATIENCE;
use super::*;
use crate::model::outcome::{Answer, Seen};
use crate::model::plan::{Coverage, Verdict, Wait};
use crate::model::pod_ip_pool::PodIpPoolNews;
use crate::model::request::Read;
use crate::net::cidr::Family;
use crate::plan::{self, Policy};
use crate::publisher::Publisher;
use crate::publisher::multi_pool::{Bgp, MultiPool};

/// The reports about a cluster.
struct Rig {
    cluster: Cluster,
    reporter: Reporter,
    events: Waiting,
    lines: LogLines,
}

impl Rig {
    fn of(cluster: Cluster) -> Self {
        let telemetry = Telemetry::start();
        let (events, waiting) = Events::channel(telemetry.metrics.clone(), Lead::unelected());
        let reporter = Reporter::new(telemetry, events);
        Self { cluster, reporter, events: waiting, lines: LogLines::capture() }
    }

    /// Decides for node `a`, and returns the reports about that.
    fn decide(&mut self) -> String {
        self.decide_for(&["a".to_owned()])
    }

    /// Decides for these nodes, and returns the reports.
    fn decide_for(&mut self, nodes: &[String]) -> String {
        for node in nodes {
            let plan = self.cluster.plan(node);
            self.reporter.plan(&self.cluster.world, &plan);
        }
        self.reported()
    }

    /// The reports when only time has passed.
    fn turn(&mut self) -> String {
        self.reporter.show_if_due(&self.cluster.world, self.cluster.now);
        self.reported()
    }

    /// The reports of a look at the whole world.
    fn show(&mut self) -> String {
        self.reporter.show(&self.cluster.world, self.cluster.now);
        self.reported()
    }

    /// The reports within this time, with the time from now.
    async fn over(&mut self, time: Duration) -> Vec<(Duration, String)> {
        let start = Instant::now();
        let mut reported = Vec::new();
        while let Some(due) = self.reporter.due()
            && due <= start + time
        {
            tokio::time::sleep_until(due).await;
            reported.push((start.elapsed(), self.turn()));
        }
        // A snapshot has no report.
        reported.retain(|(_, reported)| !reported.is_empty());
        reported
    }

    /// The lines of the log, and then the events.
    fn reported(&mut self) -> String {
        let mut reported = self.lines.take();
        while let Some(Some(Event { subject, reason, note, .. })) = self.events.next().now_or_never() {
            let subject = match subject {
                Subject::Node(name, uid) => format!("Node {name} ({uid})"),
                Subject::Pool(name, uid) => format!("NodeIPPool {name} ({uid})"),
                Subject::ClusterRole => "ClusterRole".to_owned(),
            };
            writeln!(reported, "event {} on {subject}: {note}", reason.as_str()).expect("a text takes all");
        }
        reported
    }
}

fn plan_with(verdict: Verdict, messages: &[&str]) -> NodePlan {
    let finding = |message: &&str| {
        Finding::new(FindingKind::Overlap, Kind::Claim, "10.0.0.0-28", (*message).to_owned())
    };
    NodePlan {
        node: "a".into(),
        verdict,
        unmet: BTreeSet::new(),
        refusals: Vec::new(),
        findings: messages.iter().map(finding).collect(),
        wake: None,
        cooling: Vec::new(),
        routes: std::collections::BTreeMap::new(),
        lasting: BTreeSet::new(),
        too_many_drains: false,
        availability: None,
        rules: Vec::new(),
        coverage: Coverage::Full,
    }
}

#[test]
fn a_finding_that_ends_has_a_line() {
    let mut rig = Rig::of(Cluster::of(&[]));
    let mut check = |plan: NodePlan, expected: &str| {
        rig.reporter.plan(&rig.cluster.world, &plan);
        assert_eq!(rig.reported(), expected);
    };
    let overlap = r#" finding="Overlap" kind="NodeIPBlock" name="10.0.0.0-28""#;
    check(plan_with(Verdict::AtRest, &["one overlaps it"]), &format!(" WARN one overlaps it{overlap}\n"));
    // The same problem in other words is no new finding.
    check(plan_with(Verdict::AtRest, &["two overlap it"]), &format!(" WARN two overlap it{overlap}\n"));
    // A plan that stopped before it had seen everything reports nothing about the rest.
    check(plan_with(Verdict::Wait(Wait::Pause), &[]), "");
    check(plan_with(Verdict::AtRest, &[]), &format!(" INFO resolved: two overlap it{overlap}\n"));
    check(plan_with(Verdict::AtRest, &[]), "");
}

/// Checks the reports of node `a`: those of blocks and those of pools after a moment, and both again after each
/// interval.
async fn check_wait(cluster: Cluster, of_block: &str, of_pool: &str) {
    let mut rig = Rig::of(cluster);
    assert_eq!(rig.decide() + &rig.turn() + &rig.decide() + &rig.turn(), "", "it may wait for a moment only");
    let mut expected = Vec::new();
    for n in 0..3 {
        expected.push((REPEAT * n + MOMENT, of_block.to_owned()));
        expected.push((REPEAT * n + PATIENCE, of_pool.to_owned()));
    }
    expected.retain(|(_, reported)| !reported.is_empty());
    assert_eq!(rig.over(REPEAT * 2 + PATIENCE).await, expected);
}

const NO_POOL: &str = "no pool selects it: it has no labels; label it, or create a pool that selects it: pool \
     p (needs `zone=b`; the node has no label zone)";
const NO_BLOCK: &str = "no pool of the node has a free ipv4 block; add a CIDR to one of its pools, or create a \
     pool that selects the node: pool p (all blocks are taken)";

#[tokio::test(start_paused = true)]
async fn a_node_that_no_pool_selects_is_reported_with_the_reasons_once_per_interval() {
    let mut spec = ranges("10.0.0.0/24");
    spec["nodeSelector"] = json!({ "matchLabels": { "zone": "b" } });
    let cluster = Cluster::of(&[&pool(&spec), &node("a"), &cilium_node("a", &json!({}))]);
    let line = format!(" WARN {NO_POOL} finding=\"NoPool\" kind=\"Node\" name=\"a\"\n");
    check_wait(cluster, "", &format!("{line}event NoPool on Node a (uid-a): {NO_POOL}\n")).await;
}

/// A node `a` whose only pool is full.
fn full() -> Cluster {
    let taken = claim("10.0.0.0/28", "b");
    Cluster::of(&[&pool(&ranges("10.0.0.0/28")), &taken, &node("a"), &cilium_node("a", &json!({}))])
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_pools_are_full_is_reported_with_the_reasons_once_per_interval() {
    let line = format!(" WARN {NO_BLOCK} node=a\n");
    check_wait(full(), &format!("{line}event NoCapacity on Node a (uid-a): {NO_BLOCK}\n"), "").await;
}

/// A node `a` that holds nearly full blocks under a name that no pool has, and asks for another one, whose pool is
/// full.
fn short_of_two_names() -> Cluster {
    let publisher =
        MultiPool { families: [Family::V4].into(), default_pool: "default".into(), bgp: Bgp::Off };
    let blocks = ["10.0.0.0/28", "10.0.0.16/28"];
    let claims = blocks.map(|cidr| {
        let mut claim = claim(cidr, "a");
        claim["spec"]["podIPPool"] = "mars".into();
        claim
    });
    let needs =
        |name: &str, n_addresses: u64| json!({ "pool": name, "needed": { "ipv4-addrs": n_addresses } });
    let ipam = json!({ "pools": {
        "requested": [needs("default", 8), needs("mars", 40)],
        "allocated": [{ "pool": "mars", "cidrs": blocks }],
    }});
    let pool = pool(&ranges("10.0.0.0/27"));
    let objects = [&pool, &claims[0], &claims[1], &node("a"), &cilium_node("a", &ipam)];
    Cluster::served_by(Publisher::MultiPool(publisher), &objects)
}

const NO_POOL_FOR_MARS: &str = "its agent asks for addresses of the Cilium pools default, mars; create a \
     NodeIPPool with the missing podIPPool that selects it; its pools are pool p (default)";
const NO_BLOCK_OF_DEFAULT: &str = "no pool of the node has a free ipv4 block of the Cilium pool default; add a \
     CIDR to one of its pools, or create a pool that selects the node: pool p (all blocks are taken)";

#[tokio::test(start_paused = true)]
async fn a_node_that_lacks_a_pool_and_a_block_is_reported_with_both_once_per_interval() {
    let of_block = format!(
        " WARN {NO_BLOCK_OF_DEFAULT} node=a\nevent NoCapacity on Node a (uid-a): {NO_BLOCK_OF_DEFAULT}\n"
    );
    let of_pool = format!(
        " WARN {NO_POOL_FOR_MARS} finding=\"NoPool\" kind=\"Node\" name=\"a\"\n\
         event NoPool on Node a (uid-a): {NO_POOL_FOR_MARS}\n"
    );
    check_wait(short_of_two_names(), &of_block, &of_pool).await;
}

/// 46 nodes of zone b with waiting agents, and a pool for zone a.
fn many() -> (Rig, Vec<String>) {
    let names: Vec<String> = (10..56).map(|n| format!("n{n}")).collect();
    let mut objects = vec![pool_of_zone("a")];
    for name in &names {
        let mut node = node(name);
        node["metadata"]["labels"] = json!({ "zone": "b" });
        objects.extend([node, cilium_node(name, &json!({}))]);
    }
    (Rig::of(Cluster::of(&objects.iter().collect::<Vec<_>>())), names)
}

fn pool_of_zone(zone: &str) -> Value {
    let mut spec = ranges(if zone == "a" { "10.0.0.0/16" } else { "10.1.0.0/16" });
    spec["nodeSelector"] = json!({ "matchLabels": { "zone": zone } });
    let mut pool = pool(&spec);
    pool["metadata"]["name"] = format!("pool-{zone}").into();
    pool["metadata"]["uid"] = format!("uid-{zone}").into();
    pool
}

/// The pools of a roll-out come one after another.
#[tokio::test(start_paused = true)]
async fn nodes_whose_pool_comes_within_a_moment_are_not_reported() {
    let (mut rig, names) = many();
    assert_eq!(rig.decide_for(&names), "");
    assert_eq!(rig.over(PATIENCE / 2).await, []);
    rig.cluster.shows(&pool_of_zone("b"));
    // No decision yet.
    assert_eq!(rig.over(PATIENCE / 2).await, []);
    assert_eq!(rig.decide_for(&names), "");
    assert_eq!(rig.over(REPEAT * 2).await, []);
}

#[tokio::test(start_paused = true)]
async fn many_nodes_without_a_pool_have_one_line_and_an_event_each_until_a_pool_selects_them() {
    let (mut rig, names) = many();
    rig.decide_for(&names);
    let [(at, reported)] = &rig.over(PATIENCE + SNAPSHOT_INTERVAL).await[..] else { panic!("once") };
    let why = "no pool selects it: its labels are zone=b; label it, or create a pool that selects it: pool pool-a \
               (needs `zone=a`; the node has zone=b)";
    let mut expected = format!(
        " WARN 46 nodes lack a pool, such as n10: {why} finding=\"NoPool\" kind=\"Node\" name=\"n10\"\n"
    );
    expected.extend(names.iter().map(|name| format!("event NoPool on Node {name} (uid-{name}): {why}\n")));
    assert_eq!((*at, reported.as_str()), (PATIENCE, &*expected));
    rig.cluster.shows(&pool_of_zone("b"));
    // None of these plans has seen everything, because claims have to be written first.
    let resolved = rig.decide_for(&names) + &rig.show();
    let lines: Vec<&str> = resolved.lines().collect();
    assert_eq!(lines.len(), 4, "{resolved}");
    assert!(lines[0].starts_with(" INFO resolved: it has no addresses, and no readable pool"), "{resolved}");
    assert!(lines[3].starts_with(" INFO 43 more changes of NoPool"), "{resolved}");
    assert!(rig.reporter.findings.is_empty(), "{:?}", rig.reporter.findings);
    assert_eq!(rig.over(REPEAT * 2).await, []);
}

#[tokio::test(start_paused = true)]
async fn three_nodes_without_a_pool_have_an_event_each() {
    let (mut rig, names) = many();
    rig.decide_for(&names[..3]);
    let reported = rig.over(PATIENCE).await.remove(0).1;
    for name in &names[..3] {
        assert!(
            reported.contains(&format!("event NoPool on Node {name} (uid-{name}): no pool selects it")),
            "{reported}"
        );
    }
    assert_eq!(reported.lines().count(), 6, "{reported}");
}

/// Blocks come and go more often than pools.
#[tokio::test(start_paused = true)]
async fn a_node_that_lacks_a_pool_is_not_told_of_again_because_of_a_block() {
    let mut rig = Rig::of(short_of_two_names());
    rig.decide();
    rig.over(PATIENCE).await;
    rig.cluster.shows(&pool(&ranges("10.0.0.0/26")));
    assert_eq!(rig.decide(), "", "a block is claimed");
    rig.cluster.shows(&pool(&ranges("10.0.0.0/27")));
    let expected = format!(
        " WARN {NO_BLOCK_OF_DEFAULT} node=a\nevent NoCapacity on Node a (uid-a): {NO_BLOCK_OF_DEFAULT}\n"
    );
    rig.decide();
    assert_eq!(rig.over(MOMENT).await, [(MOMENT, expected.clone())]);
    let step = plan_with(Verdict::Act(vec![Read::ClaimsOf("a".into()).into()]), &[]);
    rig.reporter.plan(&rig.cluster.world, &step);
    rig.decide();
    let [of_block, of_pool] = &rig.over(REPEAT).await[..] else { panic!("both") };
    assert_eq!(*of_block, (MOMENT, expected), "a step comes first");
    assert_eq!(of_pool.0 + MOMENT, REPEAT, "the pool is still lacking");
    assert!(of_pool.1.contains("event NoPool on Node a"), "{}", of_pool.1);
}

/// Something else may come first, so that the plan stops before it has come to pools.
#[tokio::test(start_paused = true)]
async fn a_node_that_gets_its_block_is_reported_no_longer() {
    let mut rig = Rig::of(full());
    rig.decide();
    assert_eq!(rig.over(MOMENT).await.len(), 1);
    let paused = NodePlan { coverage: Coverage::Partial, ..plan_with(Verdict::Wait(Wait::Pause), &[]) };
    rig.reporter.plan(&rig.cluster.world, &paused);
    assert_eq!(rig.over(REPEAT * 2).await, []);
}

/// Nodes `n10`, `n11`, … whose only pool is full.
fn many_of_a_full_pool() -> (Rig, Vec<String>) {
    let names: Vec<String> = (10..56).map(|n| format!("n{n}")).collect();
    let mut objects = vec![pool(&ranges("10.0.0.0/28")), claim("10.0.0.0/28", "b")];
    objects.extend(names.iter().flat_map(|name| [node(name), cilium_node(name, &json!({}))]));
    (Rig::of(Cluster::of(&objects.iter().collect::<Vec<_>>())), names)
}

#[tokio::test(start_paused = true)]
async fn many_nodes_of_a_full_pool_have_an_event_on_the_pool_and_one_each() {
    let (mut rig, names) = many_of_a_full_pool();
    assert_eq!(rig.decide_for(&names), "");
    let [(at, reported)] = &rig.over(REPEAT).await[..] else { panic!("once") };
    let message = format!("46 nodes wait for a block, such as n10, n11, n12: {NO_BLOCK}");
    let mut expected =
        format!(" WARN {message} pool=p\nevent NoCapacity on NodeIPPool p (uid-p): {message}\n");
    let on_node = |name: &String| format!("event NoCapacity on Node {name} (uid-{name}): {NO_BLOCK}\n");
    expected.extend(names.iter().map(on_node));
    assert_eq!((*at, reported.as_str()), (MOMENT, &*expected));
    let [(at, reported)] = &rig.over(REPEAT).await[..] else { panic!("once per interval") };
    assert_eq!((*at, reported.as_str()), (REPEAT, &*expected));
    rig.cluster.shows(&pool(&ranges("10.0.0.0/16")));
    assert_eq!(rig.decide_for(&names), "");
    assert_eq!(rig.over(REPEAT * 2).await, []);
}

/// An autoscaler adds one node after the other.
#[tokio::test(start_paused = true)]
async fn nodes_that_join_a_full_pool_slowly_are_no_storm_either() {
    let (mut rig, names) = many_of_a_full_pool();
    let mut reported = String::new();
    for name in &names {
        reported += &rig.decide_for(std::slice::from_ref(name));
        for (_, more) in rig.over(Duration::from_secs(6)).await {
            reported += &more;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for (_, more) in rig.over(REPEAT / 2).await {
        reported += &more;
    }
    let (events, on_nodes): (Vec<&str>, Vec<&str>) = reported
        .lines()
        .filter(|line| line.starts_with("event "))
        .partition(|line| line.contains(" on NodeIPPool p "));
    assert!(events.len() <= 6, "{reported}");
    assert_eq!(on_nodes.len(), names.len(), "each node without addresses has one: {reported}");
    let [.., last] = &events[..] else { panic!("{reported}") };
    assert!(
        last.starts_with("event NoCapacity on NodeIPPool p (uid-p): 46 nodes wait for a block"),
        "{last}"
    );
}

#[tokio::test(start_paused = true)]
async fn nodes_whose_pool_gets_room_within_a_moment_are_not_reported() {
    let (mut rig, names) = many_of_a_full_pool();
    rig.decide_for(&names);
    assert_eq!(rig.over(MOMENT / 2).await, []);
    rig.cluster.shows(&pool(&ranges("10.0.0.0/16")));
    assert_eq!(rig.decide_for(&names), "");
    assert_eq!(rig.over(REPEAT * 2).await, []);
}

/// Checks the reports of a look at the world while a cluster has this object, and when it has the other version of
/// it.
fn check_look(mut cluster: Cluster, wrong: &Value, right: &Value, message: &str, fields: &str) {
    cluster.shows(wrong);
    let mut rig = Rig::of(cluster);
    assert_eq!(rig.show(), format!(" WARN {message} {fields}\n"));
    assert_eq!(rig.show(), "", "it is reported already");
    rig.cluster.shows(right);
    assert_eq!(rig.show(), format!(" INFO resolved: {message} {fields}\n"));
    assert_eq!(rig.show(), "");
}

#[test]
fn a_block_of_another_hand_in_a_pool_is_reported_until_it_is_gone() {
    check_look(
        Cluster::of(&[&pool(&ranges("10.0.0.0/24")), &node("a")]),
        &cilium_node("a", &json!({ "podCIDRs": ["10.0.0.0/27"] })),
        &cilium_node("a", &json!({})),
        "it has 10.0.0.0/27 without a claim, in the ranges of pool p: other nodes get no blocks there; remove \
         them from the CiliumNode once no pod uses them",
        r#"finding="ForeignAddresses" kind="CiliumNode" name="a""#,
    );
}

#[test]
fn an_object_that_can_not_be_read_is_reported_until_it_can() {
    let mut odd = claim("10.0.0.0/28", "a");
    odd["spec"]["pool"] = "".into();
    check_look(
        Cluster::of(&[&node("a")]),
        &odd,
        &claim("10.0.0.0/28", "a"),
        "it is unreadable: spec.pool: \"\": must not be empty; its addresses count as in use",
        r#"finding="UnreadableObject" kind="NodeIPBlock" name="10.0.0.0-28""#,
    );
}

#[test]
fn a_pool_that_can_not_be_read_is_reported_until_it_can() {
    let mut odd = ranges("10.0.0.0/24");
    odd["ipv4"]["blockSize"] = 40.into();
    check_look(
        Cluster::of(&[]),
        &pool(&odd),
        &pool(&ranges("10.0.0.0/24")),
        "it is unreadable and gives no blocks; younger pools get nothing of [10.0.0.0/24]: \
         spec.ipv4.blockSize: 40: must be between 16 and 32",
        r#"finding="UnreadableObject" kind="NodeIPPool" name="p""#,
    );
}

#[test]
fn a_pool_without_the_object_of_its_name_is_reported() {
    let mut rig = Rig::of(short_of_two_names());
    assert_eq!(rig.show(), "", "nobody knows yet");
    rig.cluster.world.observe_pod_ip_pools(PodIpPoolNews::Listed(Vec::new()));
    let reported = rig.show();
    assert!(reported.starts_with(" WARN CiliumPodIPPool default does not exist; "), "{reported}");
    assert!(reported.ends_with(" finding=\"UnfitPodIPPool\" kind=\"NodeIPPool\" name=\"p\"\n"), "{reported}");
    assert_eq!(rig.show(), "", "it is reported already");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_effect_is_reported_until_it_is_no_longer_repeated() {
    let mut rig = Rig::of(Cluster::of(&[&pool(&ranges("10.0.0.0/24"))]));
    let name = "p".into();
    let mut reported = Vec::new();
    for _ in 0..3 {
        let Rig { cluster: Cluster { world, now, .. }, .. } = &mut rig;
        let plan = plan::pool(world, &name, Policy::DEFAULT, *now);
        world.begin_status(&name, &plan, *now);
        let write = plan.into_writes().pop().expect("it writes");
        let seen = Seen::Pool(Box::new(world.pool_object(&name).unwrap().clone()));
        world.finish(Outcome { request: write.into(), answer: Answer::Done, seen }, *now);
        reported.push(rig.show());
        rig.cluster.pass(Duration::from_secs(2));
    }
    let message = "the API server accepts `write the status of pool p`, but the object does not change: a \
         mutating webhook or another writer undoes it; see kubectl get mutatingwebhookconfigurations; the \
         controller retries with pauses of up to 30 s finding=\"WriteWithoutEffect\" kind=\"NodeIPPool\" \
         name=\"p\"\n";
    // One may be chance.
    assert_eq!(reported, [String::new(), format!(" WARN {message}"), String::new()]);
    assert_eq!(rig.reporter.due(), Some(Instant::now() + INEFFECTIVE_INTERVAL), "it may end by time alone");
    rig.cluster.pass(Duration::from_secs(60));
    tokio::time::sleep(INEFFECTIVE_INTERVAL).await;
    assert_eq!(rig.turn(), format!(" INFO resolved: {message}"));
    assert_eq!(rig.reporter.due(), None);
}

#[test]
fn many_findings_of_one_kind_become_one_line() {
    let lines = LogLines::capture();
    let mut log = FindingLog::default();
    for n in 0..46 {
        log.found(&Finding::new(FindingKind::NoPool, Kind::Node, &format!("n{n}"), "no pool".to_owned()));
    }
    log.found(&Finding::new(FindingKind::Overlap, Kind::Claim, "c", "overlaps".to_owned()));
    log.summarize();
    assert_eq!(
        lines.take(),
        " WARN no pool finding=\"NoPool\" kind=\"Node\" name=\"n0\"\n \
         WARN no pool finding=\"NoPool\" kind=\"Node\" name=\"n1\"\n \
         WARN no pool finding=\"NoPool\" kind=\"Node\" name=\"n2\"\n \
         WARN overlaps finding=\"Overlap\" kind=\"NodeIPBlock\" name=\"c\"\n \
         WARN 43 more changes of NoPool; details: `cilium-node-ipam status`, or RUST_LOG=debug finding=\"NoPool\"\n"
    );
    log.summarize();
    assert_eq!(lines.take(), "");
}
