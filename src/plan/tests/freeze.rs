//! Tests of the freeze: what it stops, what goes on, and that all goes on from where the world is when it ends.

use super::*;
use crate::model::leadership::Leadership;
use crate::model::names::PoolName;
use crate::plan::pool::pool as plan_pool;

impl Cluster {
    /// From now on only these switches are on.
    fn freeze(&mut self, switches: impl IntoIterator<Item = Switch>) {
        let on = switches.into_iter().map(|switch| (switch, "of a test".to_owned()));
        self.world.set_freeze(Freeze::of(on));
        assert_eq!(self.world.check(), []);
    }

    fn pool_write(&self, name: &str) -> Option<Write> {
        plan_pool(&self.world, &PoolName::from(name), Policy::DEFAULT, self.now).into_writes().pop()
    }

    /// The reason and the message of a condition; empty without it.
    fn described(&self, pool: &str, kind: ConditionType) -> String {
        let reported = self.status(pool).conditions.remove(&kind);
        reported.map_or_else(String::new, |reported| format!("{}: {}", reported.reason, reported.message))
    }
}

/// A world for each kind of write that is sent for a node, how many seconds pass in it, and the plan that sends it.
const WORLDS: [(&str, u64, &str); 10] = [
    ("pool p 10.0.0.0/24 28\njoined a @50", 0, "claim 10.0.0.0/28 of pool p for node a"),
    // The block is on the CiliumNode already.
    (
        "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @50 10.0.0.16/28",
        0,
        "claim 10.0.0.16/28 of pool p for node a",
    ),
    (
        "pool p 10.0.0.0/24 28\njoined a @50\nclaim 10.0.0.0/28 a 1 Held @40",
        0,
        "publish [10.0.0.0/28] and 16 addresses on ciliumnode a",
    ),
    ("pool p 10.0.0.0/24 28\nclaim 10.0.0.0/28 a 1 Held @40", 0, "release 10.0.0.0/28 of node a (NodeGone)"),
    ("pool p 10.0.0.0/24 28\nclaim 10.0.0.0/28 a 1 Releasing/NodeGone @40", 0, "cool 10.0.0.0/28 of node a"),
    (
        "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40",
        0,
        "hold 10.0.0.0/28 for node a again",
    ),
    ("pool p 10.0.0.0/24 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40", 3600, "free 10.0.0.0/28 of node a"),
    (
        "pool p 10.0.0.0/24 28 reclaim=enabled\nnode a 1\nciliumnode a @50 10.0.0.0/28 10.0.0.16/28 fenced=10.0.0.16/28\n\
         claim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Releasing/Reclaimed @60",
        0,
        "touch ciliumnode a to get a later version",
    ),
    (
        "pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used=unknown",
        30,
        "send a usage query to the agent of node a",
    ),
    (
        "pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 ping=answered",
        0,
        "clear the usage query on CiliumNode a",
    ),
];

#[test]
fn no_write_begins_while_writes_are_frozen_and_all_go_on_when_that_ends() {
    for (text, seconds, expected) in WORLDS {
        let mut cluster = Cluster::of(text);
        if seconds > 0 {
            cluster.drain();
            cluster.pass(seconds);
        }
        if matches!(cluster.plan("a").requests(), [Request::Read(Read::Node(..))]) {
            cluster.confirm_loss("a");
        }
        assert_eq!(rendered(&cluster.plan("a")), expected);

        cluster.freeze([Switch::Writes]);
        cluster.expect("a", "waits: writes are frozen");
        cluster.drain();
        assert_eq!(cluster.in_flight, [], "{text}");
        // Nothing looks again and again.
        let now = cluster.now.uptime;
        assert!(cluster.world.next_wake().is_none_or(|wake| wake > now), "{text}");

        cluster.freeze([Switch::Reclaim]);
        assert_eq!(rendered(&cluster.plan("a")), expected, "that switch stops nothing else");
        cluster.drain();
        cluster.in_flight.clear();
    }
}

/// Of several processes only the leader sends: no write, and no read for one. The others know what they would send, and
/// do so when they lead.
#[test]
fn a_standby_sends_nothing_and_goes_on_when_it_leads() {
    for (text, seconds, expected) in WORLDS {
        let mut cluster = Cluster::of(text);
        cluster.world.set_leadership(Leadership::StandsBy);
        if seconds > 0 {
            cluster.drain();
            cluster.pass(seconds);
        }
        assert_eq!(cluster.plan("a").verdict, Verdict::Wait(Wait::Lead), "{expected}");
        assert_eq!(cluster.pool_write("p"), None, "{expected}");
        cluster.drain();
        assert_eq!(cluster.world.n_in_flight(), 0, "{expected}");
        assert_eq!(cluster.world.next_node(), None, "{expected}");

        cluster.world.set_leadership(Leadership::Leads);
        assert!(cluster.world.next_node().is_some(), "{expected}: nobody decides again");
        // How long a block has cooled, or an agent has been silent, is known to a standby, too.
        if matches!(cluster.plan("a").requests(), [Request::Read(Read::Node(..))]) {
            cluster.confirm_loss("a");
        }
        let requests: Vec<String> = cluster.plan("a").requests().iter().map(ToString::to_string).collect();
        assert_eq!(requests, [expected]);
    }
}

#[test]
fn the_end_of_a_freeze_wakes_all_that_waited_for_it() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28\njoined a @50");
    cluster.freeze([Switch::Writes]);
    assert_eq!(cluster.drain(), ["a"]);
    // The world went on meanwhile.
    cluster.observe("claim 10.0.0.0/28 b 1 Held @110");
    cluster.freeze([]);
    assert!(cluster.world.next_node().is_some());
    cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a");
}

#[test]
fn there_is_no_world_before_it_is_known_what_is_frozen() {
    let mut gathering = Gathering::default();
    gathering.set_mode(mode("crd v4"));
    for kind in Kind::AS_LISTED {
        let at = AnyRevision::of(kind, LISTED);
        let objects = Vec::new();
        gathering.observe(Observation::Listed(Listing { kind, at_least: at, at_most: at, objects }));
    }
    let mut gathering = gathering.complete().expect_err("it may be frozen");
    gathering.set_freeze(Freeze::default());
    assert!(gathering.complete().is_ok());
}

#[test]
fn a_write_that_was_in_flight_ends_normally_and_what_follows_it_waits() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28\njoined a @50");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    cluster.freeze([Switch::Writes]);
    cluster.expect("a", "waits: a request for it is in flight");
    cluster.answered_with("claim 10.0.0.0/28 a 1 Held @110");
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    cluster.expect("a", "waits: writes are frozen");
    cluster.freeze([]);
    cluster.expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a");
}

#[test]
fn a_frozen_plan_still_reports_what_is_wrong_and_reads() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\njoined a @50\nclaim 10.0.0.0/28 a 1 Held @40\n\
         claim 10.0.0.16/28 a 1 Held @41",
    );
    cluster.observe("ciliumnode x @110 10.0.0.20/32");
    cluster.freeze([Switch::Writes]);
    cluster.expect(
        "a",
        "finding: Overlap; finding: Blocked; waits: one of its blocks may be in use and can't be published",
    );

    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @60");
    cluster.observe("ciliumnode a @150");
    cluster.freeze([Switch::Writes]);
    cluster.expect("a", "read the claims of node a");
}

#[test]
fn no_ciliumnode_is_created_while_writes_are_frozen() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28\nnode a 1");
    let policy = Policy {
        min_write_interval: Duration::ZERO,
        cilium_nodes: CiliumNodeOrigin::Controller,
        ..Policy::DEFAULT
    };
    let said = |cluster: &Cluster| rendered(&node(&cluster.world, &"a".into(), policy, cluster.now));
    assert_eq!(said(&cluster), "create CiliumNode a");
    cluster.freeze([Switch::Writes]);
    assert_eq!(said(&cluster), "waits: writes are frozen");
}

#[test]
fn the_status_of_a_pool_tells_of_the_freeze_while_its_finalizers_wait() {
    let kept = || {
        let Object::Pool(mut pool) = object("pool p 10.0.0.0/24 28 deleting @101") else { unreachable!() };
        pool.finalizers = vec![PoolObject::FINALIZER.to_owned()];
        pool
    };
    for is_terminating in [false, true] {
        let mut cluster = Cluster::of("pool p 10.0.0.0/24 28");
        if is_terminating {
            cluster.world.observe(Observation::Applied(Box::new(Object::Pool(kept()))));
        }
        let finalizers =
            |cluster: &Cluster| matches!(cluster.pool_write("p"), Some(Write::PoolFinalizers(_)));
        assert!(finalizers(&cluster));
        cluster.freeze([Switch::Writes]);
        let Some(Write::PoolStatus(write)) = cluster.pool_write("p") else { panic!("no status") };
        assert!(write.status.conditions[&ConditionType::Frozen].holds);
        cluster.freeze([]);
        assert!(finalizers(&cluster));
    }
}

#[test]
fn a_condition_shows_escapes() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28");
    cluster.world.set_freeze(Freeze::of([(Switch::Reclaim, "a\u{1b}[2J\u{9b}\u{202e}".to_owned())]));
    assert!(cluster.described("p", ConditionType::Frozen).ends_with(r"a\u{1b}[2J\u{9b}\u{202e}"));
}

#[test]
fn conditions_say_what_is_frozen() {
    let check = |pool: &str, switches: &[Switch], ready: &str, frozen: &str| {
        let mut cluster = Cluster::of(pool);
        cluster.freeze(switches.iter().copied());
        assert_starts(&cluster.described("p", ConditionType::Ready), ready);
        assert_eq!(cluster.described("p", ConditionType::Frozen), frozen);
    };
    let pool = "pool p 10.0.0.0/24 28";
    let writes =
        "no claim, CiliumNode, Node, CiliumPodIPPool, FRRConfiguration or finalizer is written: of a test";
    let reclaim = "no block is reclaimed: of a test";
    check(pool, &[], "Serving: ", "");
    check(pool, &[Switch::Reclaim], "Serving: ", &format!("ReclaimFrozen: {reclaim}"));
    check(pool, &[Switch::Writes], "Frozen: ", &format!("WritesFrozen: {writes}"));
    check(pool, &Switch::ALL, "Frozen: ", &format!("WritesFrozen: {writes}; {reclaim}"));
    // What keeps it from serving in any case is told first.
    check(
        "pool p 10.0.0.0/24 28 cordoned",
        &[Switch::Writes],
        "Cordoned: ",
        &format!("WritesFrozen: {writes}"),
    );
    check(
        "pool p 10.0.0.0/24 28 invalid",
        &[Switch::Writes],
        "Invalid: ",
        &format!("WritesFrozen: {writes}"),
    );
}
