//! The core in a simulated cluster: scripts of whatever happens, drawn from seeds, run against a store in memory with
//! one to three replicas that each see it late. After every step the rules are checked; see `rules`.
//!
//! Pure: no control plane, no runtime, no time that passes by itself. `SIM_CASES` sets how many scripts each test runs,
//! `SIM_SEED` the first seed; a failure prints the seed, the shortest script that fails, and what happened in it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::net::cidr::Family;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

mod agent;
mod cluster;
mod found;
mod pools;
mod replica;
mod requests;
mod rules;
mod script;
mod store;

use cluster::{Cluster, Pace, Setting, Step, wall};
use pools::Shape;
use store::Defect;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn setting(n_replicas: usize, pace: Pace, families: &[Family]) -> Setting {
    let families: BTreeSet<Family> = families.iter().copied().collect();
    Setting { n_replicas, families, pace, defect: None }
}

/// Runs a script and ends at rest.
fn run(setting: &Setting, script: &[Step], cluster: &mut Cluster) -> Result<(), String> {
    for step in script {
        cluster.step(step)?;
    }
    cluster.rest()?;
    if setting.n_replicas == 1 {
        cluster.any_order_decides_alike(&[3, 1, 0, 2, 2, 1])?;
    }
    Ok(())
}

/// The failure of a script, a panic being one too.
fn failure(setting: &Setting, script: &[Step], cluster: &mut Cluster) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| run(setting, script, cluster))) {
        Ok(Ok(())) => None,
        Ok(Err(why)) => Some(why),
        Err(panic) => {
            let why = panic.downcast_ref::<String>().cloned();
            Some(why.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
        }
    }
}

/// Runs scripts from consecutive seeds. Returns the first failure, in words, with the shortest script that has it.
fn search(
    setting: &Setting,
    scripts: &impl Strategy<Value = Vec<Step>>,
    n_cases: u64,
    max_shrink_iters: u32,
) -> Option<String> {
    let first = number("SIM_SEED").unwrap_or(0);
    for seed in first..first + n_cases {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let config = Config {
            cases: 1,
            failure_persistence: None,
            max_shrink_iters,
            max_shrink_time: 60_000,
            ..Config::default()
        };
        let mut runner = TestRunner::new_with_rng(config, rng);
        let result = runner.run(scripts, |script| {
            let why = failure(setting, &script, &mut Cluster::new(setting.clone()));
            why.map_or(Ok(()), |why| Err(TestCaseError::fail(why)))
        });
        if let Err(TestError::Fail(_, script)) = result {
            return Some(told(setting, seed, &script));
        }
    }
    None
}

/// A failing script once more, for a person.
fn told(setting: &Setting, seed: u64, script: &[Step]) -> String {
    let mut cluster = Cluster::new(setting.clone());
    cluster.trace = Some(Vec::new());
    let why = failure(setting, script, &mut cluster).unwrap_or_default();
    let mut told = format!("{why}\n\nSIM_SEED={seed} SIM_CASES=1; {setting:?}; {} steps:\n", script.len());
    for line in cluster.trace.unwrap_or_default() {
        let _ = writeln!(told, "{line}");
    }
    let _ = write!(told, "\n{why}");
    told
}

fn holds(setting: &Setting, scripts: &impl Strategy<Value = Vec<Step>>, n_cases: u64) {
    let failure = search(setting, scripts, number("SIM_CASES").unwrap_or(n_cases), 3000);
    assert!(failure.is_none(), "{}", failure.unwrap_or_default());
}

#[test]
fn one_replica_that_nothing_disturbs_serves_whoever_can_be_served() {
    holds(&setting(1, Pace::Calm, &[Family::V4]), &script::calm(60), 20);
}

#[test]
fn one_replica_serves_both_families_or_none() {
    holds(&setting(1, Pace::Calm, &Family::ALL), &script::calm(60), 20);
}

#[test]
fn one_replica_survives_lost_answers_late_news_and_restarts() {
    holds(&setting(1, Pace::Wild, &[Family::V4]), &script::wild(300), 20);
}

#[test]
fn two_replicas_never_make_two_nodes_hold_one_address() {
    holds(&setting(2, Pace::Wild, &[Family::V4]), &script::wild(400), 20);
}

#[test]
fn three_replicas_never_make_two_nodes_hold_one_address() {
    holds(&setting(3, Pace::Wild, &Family::ALL), &script::wild(500), 10);
}

/// What force takes away is excused (see `Excuses`): once its claim was removed, a node may carry a block without one and
/// need not be served in full, and pods on two nodes may have an address of a block that no object shows any more. Even
/// so, two CiliumNodes never offer one address.
#[test]
fn pools_replaced_and_claims_removed_by_force_are_survived() {
    holds(&setting(3, Pace::Wild, &[Family::V4]), &script::forced(400), 20);
}

/// Replicas choose alike, so two of them ask for one block for two nodes only where each knows one of the nodes. That
/// is too rare to wait for.
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
        // The second replica hears of the second node only, and its claim is on its way for long.
        Step::News { replica: 1, kind: Kind::Node, events: 1 },
        Step::News { replica: 1, kind: Kind::CiliumNode, events: 1 },
        Step::Decision { replica: 1, decisions: 1 },
        // The first one hears of the first node only, and serves it.
        Step::News { replica: 0, kind: Kind::CiliumNode, events: 2 },
        Step::Decision { replica: 0, decisions: 2 },
        Step::WriteProceeds { replica: 0, write: 0 },
        Step::WriteProceeds { replica: 0, write: 0 },
        Step::News { replica: 0, kind: Kind::Claim, events: 1 },
        Step::Decision { replica: 0, decisions: 2 },
        Step::WriteProceeds { replica: 0, write: 0 },
        Step::WriteProceeds { replica: 1, write: 0 },
    ];
    let sound = setting(2, Pace::Wild, &[Family::V4]);
    assert_eq!(failure(&sound, &script, &mut Cluster::new(sound.clone())), None);
    let broken = Setting { defect: Some(Defect::NamesAreNotUnique), ..sound };
    let noticed = failure(&broken, &script, &mut Cluster::new(broken.clone()));
    assert_eq!(noticed.as_deref(), Some("10.0.0.0/28 is on n0, and its claim is for n1"));
}

#[test]
fn a_server_that_ignores_versions_is_noticed() {
    let setting =
        Setting { defect: Some(Defect::VersionsAreIgnored), ..setting(2, Pace::Wild, &[Family::V4]) };
    let found = search(&setting, &script::forced(400), 300, 0);
    assert!(found.is_some());
}
