//! The core in a simulated cluster. A script is a random sequence of events, drawn from a seed. It runs against a store
//! in memory, with one to three replicas that each see the store late. After every step the judge (`rules`) checks the
//! rules. There are two suites of searches: `promises` and `other_writers`.
//!
//! Pure: no control plane, no runtime, and no time that passes by itself. `SIM_CASES` sets the number of scripts of
//! each test, and `SIM_SEED` the first seed. A failure prints the seed, the shortest script that fails, and its events.

use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::net::cidr::Family;
use proptest::strategy::Strategy;

pub(crate) mod agent;
mod cluster;
mod exhaustive;
mod found;
mod mode;
mod mutants;
mod other_writers;
mod pools;
mod promises;
mod replica;
mod requests;
mod rules;
mod script;
mod searches;
mod store;

use cluster::{Cluster, Hand, Pace, Setting, Step, Suite, wall};
use pools::Shape;
use script::{Events, Moving, script};
use searches::{failure, first_failure, setting};
use store::Defect;

/// Replicas choose alike. So two of them ask for one block for two nodes only if each knows one of the nodes. That is
/// too rare to wait for.
#[test]
fn a_server_that_lets_names_be_taken_twice_is_noticed() {
    let script = [
        Step::PoolIsMade { pool: 0, shape: Shape::whole() },
        Step::NodeJoins { node: 0, zone: 0, own_address: None },
        Step::ReplicaWorks { replica: 0 },
        Step::ReplicaWorks { replica: 1 },
        Step::NodeJoins { node: 1, zone: 0, own_address: None },
        Step::AgentStarts { node: 1 },
        Step::AgentStarts { node: 0 },
        // The second replica sees the second node only, and its claim is in flight for long.
        Step::News { replica: 1, kind: Kind::Node, events: 1 },
        Step::News { replica: 1, kind: Kind::CiliumNode, events: 1 },
        Step::Decision { replica: 1, decisions: 3 },
        // The first replica sees the first node only, and serves it.
        Step::News { replica: 0, kind: Kind::CiliumNode, events: 2 },
        Step::Decision { replica: 0, decisions: 4 },
        Step::WriteProceeds { replica: 0, write: 0 },
        Step::WriteProceeds { replica: 0, write: 0 },
        Step::News { replica: 0, kind: Kind::Claim, events: 1 },
        Step::Decision { replica: 0, decisions: 4 },
        Step::WriteProceeds { replica: 0, write: 0 },
        Step::WriteProceeds { replica: 1, write: 0 },
    ];
    let sound = setting(Suite::Promises, 2, Pace::Wild, &[Family::V4]);
    assert_eq!(failure(&script, &mut Cluster::new(sound.clone())), None);
    let broken = Setting { defect: Some(Defect::NamesAreNotUnique), ..sound };
    let noticed = failure(&script, &mut Cluster::new(broken));
    assert_eq!(noticed.as_deref(), Some("10.0.0.0/28 is on n0, and its claim is for n1"));
}

/// A pod whose address leaves its pool loses its network when the agent restarts. That is excused only if another
/// writer removed the address.
#[test]
fn a_pod_that_loses_its_network_is_noticed() {
    let serves = [
        Step::PoolIsMade { pool: 0, shape: Shape::whole() },
        Step::NodeJoins { node: 0, zone: 0, own_address: None },
        Step::AgentStarts { node: 0 },
        Step::Rest,
        Step::PodsAreWanted { node: 0, pods: 3, from: 0 },
        Step::AgentReports { node: 0 },
    ];
    let restarts = [Step::AgentRestarts { node: 0, release: 0 }, Step::AgentIsReady { node: 0 }];
    let setting = setting(Suite::OtherWriters, 1, Pace::Wild, &[Family::V4]);
    let begun = || {
        let mut cluster = Cluster::new(setting.clone());
        assert_eq!(failure(&serves, &mut cluster), None);
        cluster
    };
    assert_eq!(failure(&restarts, &mut begun()), None);

    let entry = "10.0.0.3";
    let mut taken = begun();
    taken.store.edit(Kind::CiliumNode, "n0", |json| {
        let pool = json["spec"]["ipam"]["pool"].as_object_mut().expect("it has a pool");
        assert!(pool.remove(entry).is_some());
    });
    let noticed = failure(&restarts, &mut taken);
    assert_eq!(noticed.as_deref(), Some("the pod with 10.0.0.3 on n0 lost its network"));

    // Another writer removes the third entry.
    let mut excused = begun();
    let hand = [Step::Hand(Hand::EntryGoes { node: 0, entry: 2 })];
    assert_eq!(failure(&[&hand[..], &restarts].concat(), &mut excused), None);
}

#[test]
fn a_server_that_ignores_versions_is_noticed() {
    let setting = Setting {
        defect: Some(Defect::VersionsAreIgnored),
        ..setting(Suite::Promises, 2, Pace::Wild, &[Family::V4])
    };
    let found = first_failure(
        "a server that ignores versions",
        |_| setting.clone(),
        &script(Events::Forced, Suite::Promises, Moving::Nothing, 400).boxed(),
        300,
        0,
    );
    assert!(found.is_some());
}
