//! The condition of a Node: the verdict of a plan, and when it is written.

use super::lines::object;
use super::*;
use crate::model::availability::Availability;
use crate::model::leadership::Leadership;
use crate::plan::{NodeConditions, next_condition};

const POLICY: Policy = Policy { node_conditions: NodeConditions::Written, ..Policy::DEFAULT };

/// All blocks of the pool `p` are taken.
const FULL: &str = "pool p 10.0.0.0/28 28\nnode other 1\nclaim 10.0.0.0/28 other 1 Held @41\n";

impl Cluster {
    /// Decides for a node with the policy of conditions.
    fn conclude(&mut self, name: &str) -> Option<Availability> {
        let plan = node(&self.world, &NodeName::from(name), POLICY, self.now);
        self.begin(&plan);
        plan.availability
    }

    /// The next write of a condition, which starts.
    fn next_condition(&mut self) -> Option<String> {
        let write = next_condition(&self.world, self.now)?;
        self.world.begin_condition(&write, self.now);
        self.in_flight.push(Write::NodeCondition(write.clone()).into());
        Some(Write::NodeCondition(write).to_string())
    }
}

#[track_caller]
fn check(mode: &str, text: &str, expected: Option<Availability>) {
    let mut cluster = Cluster::serving(mode, text);
    let plan = rendered(&cluster.plan("a"));
    assert_eq!(cluster.conclude("a"), expected, "{mode}: {text}: {plan}");
}

#[test]
fn a_node_is_short_if_it_has_few_free_addresses_and_can_get_no_more() {
    use Availability::{AtLimit, Blocked, Free, NoPool, NotMeasured, PoolExhausted};
    let full = |more: &str| format!("{FULL}{more}");
    let given = |more: &str| format!("pool p 10.0.0.0/24 28\n{more}");
    for (mode, text, expected) in [
        // A block of 16 addresses; up to 13 are used.
        ("crd v4", full("joined a @50 10.1.0.0/28 used=12"), Some(Free)),
        ("crd v4", full("joined a @50 10.1.0.0/28 used=13"), Some(PoolExhausted)),
        ("crd v4", full("node a 1\nciliumnode a @50"), Some(PoolExhausted)),
        ("crd v4", given("node a 1\nciliumnode a @50"), None),
        ("crd v4", given("joined a @50 10.0.0.0/28 used=16"), None),
        ("crd v4", given("joined a @50 10.0.0.0/28 used=2"), Some(Free)),
        (
            "crd v4",
            "pool p 10.0.0.0/24 28 maxBlocks=1\njoined a @50 10.0.0.0/28 used=15".into(),
            Some(AtLimit),
        ),
        ("crd v4", "joined a @50 10.0.0.0/28 used=16".into(), Some(NoPool)),
        ("crd v4", "node a 1\nciliumnode a @50".into(), Some(NoPool)),
        ("crd v4", given("node a 1\nciliumnode a @50 malformed"), Some(Blocked)),
        ("crd v4", full("joined a @50 10.1.0.0/28 used=unknown"), Some(Free)),
        ("crd v4 v6", full("joined a @50 10.1.0.0/28 used=1"), Some(PoolExhausted)),
        // The agent's need.
        (
            "multi-pool v4",
            full("node a 1\nciliumnode a @50 has=10.1.0.0/28 need=8\nclaim 10.1.0.0/28 a 1 Held @40"),
            Some(Free),
        ),
        (
            "multi-pool v4",
            full("node a 1\nciliumnode a @50 has=10.1.0.0/28 need=17\nclaim 10.1.0.0/28 a 1 Held @40"),
            Some(PoolExhausted),
        ),
        ("cluster-pool v4", full("joined a @50 10.1.0.0/28"), Some(NotMeasured)),
        ("cluster-pool v4", full("node a 1\nciliumnode a @50"), Some(PoolExhausted)),
        (
            "kubernetes v4",
            full("node a 1 has=10.1.0.0/28\nclaim 10.1.0.0/28 a 1 Held @40"),
            Some(NotMeasured),
        ),
        ("kubernetes v4", full("node a 1"), Some(PoolExhausted)),
        // Nothing is known of these.
        ("none", full("joined a @50 10.1.0.0/28 used=16"), None),
        ("crd v4", full("node a 1"), None),
        ("crd v4", full("node a 1 deleting\nciliumnode a @50"), None),
        ("crd v4", full("node a 1 label=kubernetes.io/os=windows\nciliumnode a @50"), None),
    ] {
        check(mode, &text, expected);
    }
}

#[test]
fn a_node_leaves_the_state_only_with_twice_as_many_addresses() {
    use Availability::{Free, PoolExhausted};
    for (shown, used, expected) in [
        ("AddressesFree", 12, Free),
        ("AddressesFree", 13, PoolExhausted),
        ("PoolExhausted", 12, PoolExhausted),
        ("PoolExhausted", 9, PoolExhausted),
        ("PoolExhausted", 8, Free),
        // Of another writer.
        ("OtherReason", 12, Free),
    ] {
        let text = format!(
            "{FULL}node a 1 shows={shown}\nciliumnode a @50 10.1.0.0/28 used={used}\nclaim 10.1.0.0/28 a 1 Held @40"
        );
        check("crd v4", &text, Some(expected));
    }
}

#[test]
fn a_freeze_or_a_standby_changes_no_verdict() {
    for text in [
        format!("{FULL}joined a @50 10.1.0.0/28 used=16"),
        "pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used=16".to_owned(),
        "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @50".to_owned(),
    ] {
        let verdict = Cluster::of(&text).conclude("a");
        let mut frozen = Cluster::of(&text);
        frozen.world.set_freeze(Freeze::of([(Switch::Writes, "of a test".to_owned())]));
        assert_eq!(frozen.conclude("a"), verdict, "{text}");
        let mut standby = Cluster::of(&text);
        standby.world.set_leadership(Leadership::StandsBy);
        assert_eq!(standby.conclude("a"), verdict, "{text}");
        assert_eq!(standby.next_condition(), None, "{text}");
    }
}

#[test]
fn a_condition_is_written_once_and_again_after_a_change() {
    let mut cluster = Cluster::of(&format!("{FULL}joined a @50 10.1.0.0/28 used=16"));
    cluster.conclude("a");
    let full = Some("set the condition of node a to False (PoolExhausted)".to_owned());
    assert_eq!(cluster.next_condition(), full);
    assert_eq!(cluster.next_condition(), None, "it is in flight");
    // The node gets blocks meanwhile.
    assert!(!cluster.world.is_busy(&"a".into()));
    let Object::Node(shown) = object("node a 1 shows=PoolExhausted @120") else { panic!("no node") };
    cluster.settle(&Target::NodeCondition("a".into()), Seen::PatchedNode(Box::new(shown)));
    cluster.conclude("a");
    cluster.pass(3600);
    assert_eq!(cluster.next_condition(), None);
    cluster.observe("ciliumnode a @130 10.1.0.0/28 used=1");
    cluster.conclude("a");
    assert_eq!(
        cluster.next_condition(),
        Some("set the condition of node a to True (AddressesFree)".to_owned())
    );
}

#[test]
fn conditions_are_paced_for_each_node_and_for_all() {
    let mut cluster = Cluster::of(&format!("{FULL}joined a @50 10.1.0.0/28\njoined b @51 10.1.0.16/28"));
    cluster.conclude("a");
    cluster.conclude("b");
    assert!(cluster.next_condition().is_some_and(|line| line.contains("node a")));
    assert_eq!(cluster.next_condition(), None);
    assert_eq!(cluster.world.next_condition_at(), Some(cluster.now.uptime + Duration::from_millis(50)));
    cluster.pass(1);
    assert!(cluster.next_condition().is_some_and(|line| line.contains("node b")));
    // A webhook has undone it: the next write of this node comes after its rest.
    let Object::Node(undone) = object("node a 1 @120") else { panic!("no node") };
    cluster.settle(&Target::NodeCondition("a".into()), Seen::PatchedNode(Box::new(undone)));
    cluster.conclude("a");
    cluster.pass(8);
    assert_eq!(cluster.next_condition(), None);
    cluster.pass(1);
    assert!(cluster.next_condition().is_some_and(|line| line.contains("node a")));
    cluster.delete(Kind::Node, "b", 130);
    cluster.delete(Kind::CiliumNode, "b", 131);
    assert_eq!(cluster.world.check(), []);
}

/// As many nodes as the pool has blocks are full, and cross the edge at the same time.
#[test]
fn a_thousand_nodes_that_become_full_take_one_write_each_within_a_minute() {
    const N_NODES: u32 = 1024;
    let joined = |number: u32| {
        let block = format!("10.0.{}.{}/28", number / 16, number % 16 * 16);
        format!("joined n{number} @50 {block} used=16\n")
    };
    let nodes: String = (0..N_NODES).map(joined).collect();
    let mut cluster = Cluster::of(&format!("pool p 10.0.0.0/18 28\n{nodes}"));
    for number in 0..N_NODES {
        assert_eq!(cluster.conclude(&format!("n{number}")), Some(Availability::PoolExhausted));
    }
    let mut written = std::collections::BTreeSet::new();
    for _ in 0..N_NODES {
        let write = cluster.next_condition().expect("its turn has come");
        assert!(written.insert(write), "a node is written twice");
        assert_eq!(cluster.next_condition(), None, "two writes have the same turn");
        cluster.now.uptime += Duration::from_millis(50);
    }
    assert_eq!(cluster.next_condition(), None, "each node is written");
}
