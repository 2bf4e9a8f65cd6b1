//! Tests of the events about blocks and about the status of a pool, as plans bring them about.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::cluster::{Cluster, cilium_node, claim, node, pool, ranges};
use super::*;
use crate::model::plan::PoolPlan;
use crate::model::request::{Request, Write};
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::plan::{self, Policy};
use crate::view::block_event;
use crate::wire::pool::status_patch;

/// Checks the event about a write for node `a`, which holds these blocks. Its CiliumNode carries some of them.
#[track_caller]
fn check_publication(held: &[&str], carried: &[&str], about: &str, note: &str) {
    let expected = Event {
        subject: Subject::Node("a".into(), "uid-a".into()),
        reason: EventReason::BlocksPublished,
        note: note.to_owned(),
        about: about.to_owned(),
    };
    assert_eq!(publication(held, carried, &[]), Some(expected));
}

/// That event, where the cluster also has these objects.
fn publication(held: &[&str], carried: &[&str], others: &[Value]) -> Option<Event> {
    let claims: Vec<Value> = held.iter().map(|cidr| claim(cidr, "a")).collect();
    let pool = pool(&ranges("10.0.0.0/24"));
    let entries: Value = carried
        .iter()
        .flat_map(|cidr| AddressSet::from_iter([cidr.parse::<Cidr>().unwrap()]).iter().collect::<Vec<_>>())
        .map(|address| (address.to_string(), json!({})))
        .collect();
    let cilium_node = cilium_node("a", &json!({ "podCIDRs": carried, "pool": entries }));
    let holder = node("a");
    let objects: Vec<&Value> = claims.iter().chain([&pool, &holder, &cilium_node]).chain(others).collect();
    let cluster = Cluster::of(&objects);
    let plan = cluster.plan("a");
    let [Request::Write(write @ Write::Publish(_))] = plan.requests() else { panic!("{plan:?}") };
    let block_event = block_event::of(&cluster.world, write).expect("it is reported");
    event_of_block(&cluster.world, &block_event)
}

/// Routers follow the podCIDRs of Nodes, which another allocator has written.
#[test]
fn the_publication_of_a_block_that_another_node_has_as_pod_cidr_says_so() {
    let mut other = node("b");
    other["spec"] = json!({ "podCIDRs": ["10.0.0.0/24"] });
    let note = publication(&["10.0.0.0/28"], &[], &[other]).unwrap().note;
    let expected = "(FirstGrant); Node b has 10.0.0.0/24 in spec.podCIDRs, so routes may lead there: see the finding \
                    PodCIDRConflict";
    assert!(note.ends_with(expected), "{note}");
}

/// The field `about` keeps an event apart from others of its reason (`events.rs`).
#[test]
fn a_publication_is_reported_as_one_of_its_blocks() {
    let (first, second) = ("10.0.0.0/28", "10.0.0.16/28");
    check_publication(
        &[first],
        &[],
        first,
        "published 10.0.0.0/28 of pool p: 16 addresses more (FirstGrant)",
    );
    check_publication(
        &[first, second],
        &[first],
        second,
        "published 10.0.0.16/28 of pool p: 16 addresses more (Growth)",
    );
    let both = "10.0.0.0/28,10.0.0.16/28";
    check_publication(
        &[first, second],
        &[],
        both,
        &format!("published {both} of pool p: 32 addresses more (FirstGrant)"),
    );
}

/// A pool `p` of one block, which another node has given back.
struct Rig {
    cluster: Cluster,
    pool: Value,
}

impl Rig {
    fn of(pool: Value) -> Self {
        let mut rig = Self { cluster: Cluster::of(&[&pool]), pool };
        // A pool shows its first status.
        rig.write_status();
        rig
    }

    /// The block is taken.
    fn take(&mut self) -> Vec<String> {
        self.cluster.shows(&cooling());
        self.write_status()
    }

    /// The block is free again.
    fn free(&mut self) -> Vec<String> {
        self.cluster.loses(&cooling());
        self.write_status()
    }

    /// A user changes the pool.
    fn change(&mut self, field: &str, value: &Value) -> Vec<String> {
        *self.pool.pointer_mut(field).expect("it has the field") = value.clone();
        self.cluster.shows(&self.pool);
        self.write_status()
    }

    /// The events when the status of the pool is written, which it then shows.
    fn write_status(&mut self) -> Vec<String> {
        let Self { cluster, pool } = self;
        let plan = plan::pool(&cluster.world, &"p".into(), Policy::DEFAULT, cluster.now);
        let writes = match plan {
            PoolPlan::Write(writes) => writes,
            PoolPlan::UpToDate | PoolPlan::UpToDateUntil(_) => return Vec::new(),
            PoolPlan::Unchanged | PoolPlan::Later(_) => panic!("{plan:?}"),
        };
        // The status of a cooling claim, if it is due too, is behind that of its pool.
        let Some(Write::PoolStatus(write)) = writes.first() else { return Vec::new() };
        let reported = events_of_status(&cluster.world, write);
        pool["status"] = status_patch(write)["status"].clone();
        cluster.shows(pool);
        cluster.pass(Duration::from_secs(1));
        let subject = Subject::Pool("p".into(), "uid-p".into());
        reported
            .into_iter()
            .inspect(|event| assert_eq!((&event.subject, event.about.as_str()), (&subject, "")))
            .map(|event| format!("{}: {}", event.reason.as_str(), event.note))
            .collect()
    }
}

/// The only block of the pool, which no node can get before it has cooled.
fn cooling() -> Value {
    let mut claim = claim("10.0.0.0/28", "b");
    claim["spec"]["state"] = "Cooling".into();
    claim["spec"]["reason"] = "Reclaimed".into();
    claim
}

fn one_block() -> Value {
    let mut spec = ranges("10.0.0.0/28");
    spec["ipv4"]["cidrs"][0]["state"] = "Active".into();
    pool(&spec)
}

const STATE: &str = "/spec/ipv4/cidrs/0/state";
const NOTHING: [&str; 0] = [];
const EXHAUSTED: [&str; 1] = [
    "Exhausted: ipv4: 0 of 1 block free (0 held, 1 cooling: the first is free at 2026-01-01T00:05:00Z by reuseAfter); waiting: 0 nodes without addresses, 0 for growth; cooling blocks return without action; add a CIDR to serve nodes earlier",
];
const RETURNED: [&str; 1] = ["CapacityReturned: every family has a free block again"];

#[test]
fn a_pool_is_reported_when_its_last_block_is_taken_and_when_one_is_free_again() {
    let mut rig = Rig::of(one_block());
    for _ in 0..2 {
        assert_eq!(rig.take(), EXHAUSTED);
        assert_eq!(rig.write_status(), NOTHING, "it shows that already");
        // Another status, and the same condition.
        assert_eq!(rig.change("/metadata/generation", &json!(2)), NOTHING);
        assert_eq!(rig.free(), RETURNED);
        assert_eq!(rig.change("/metadata/generation", &json!(3)), NOTHING);
    }
}

#[test]
fn a_pool_that_gives_out_nothing_is_not_exhausted() {
    let mut cordoned = one_block();
    *cordoned.pointer_mut(STATE).unwrap() = "Cordoned".into();
    let mut deleted = one_block();
    deleted["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    for pool in [cordoned, deleted] {
        let mut cluster = Cluster::of(&[&pool, &cooling()]);
        cluster.pass(Duration::ZERO);
        let mut rig = Rig { cluster, pool };
        assert_eq!(rig.write_status(), NOTHING);
        assert_eq!(rig.write_status(), NOTHING);
    }
}

/// A closed pool has no capacity, and its capacity when it is opened has not returned from nodes.
#[test]
fn a_pool_that_is_closed_while_it_is_exhausted_has_no_capacity_that_returns() {
    let mut rig = Rig::of(one_block());
    assert_eq!(rig.take(), EXHAUSTED);
    assert_eq!(rig.change(STATE, &json!("Cordoned")), NOTHING);
    assert_eq!(rig.free(), NOTHING);
    assert_eq!(rig.change(STATE, &json!("Active")), NOTHING);
    assert_eq!(rig.take(), EXHAUSTED);
    // It is news again where it is opened while it is full.
    assert_eq!(rig.change(STATE, &json!("Cordoned")), NOTHING);
    assert_eq!(rig.change(STATE, &json!("Active")), EXHAUSTED);
}
