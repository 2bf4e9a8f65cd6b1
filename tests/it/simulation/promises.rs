//! *Promises*: only faults that `docs/invariants.md` promises to survive. The judge (`rules.rs`) excuses nothing.
//!
//! Its scripts have:
//!
//! - news that is late or lost, processes that exit, and requests that arrive late;
//! - nodes, agents, pools and claims that users create, edit and delete;
//! - claims of two leaders that overlap;
//! - webhooks, finalizers of others, freezes, a passive mode, and pools that can't be read;
//! - first CIDRs that another allocator gives to a node.
//!
//! No script contains a known gap (`cluster/taint.rs`). These searches notice each missing rule of `tests/mutants`.

use cilium_node_ipam::net::cidr::Family;
use cilium_node_ipam::publisher::static_mode::NodeField;
use proptest::strategy::Strategy;

use super::cluster::{Pace, Suite};
use super::mode::Mode;
use super::script;
use super::searches::Search;

/// Every search. Each has a test of its name.
pub(super) const PROMISES: [Search; 18] = [
    Search {
        name: "one_replica_that_nothing_disturbs_serves_whoever_can_be_served",
        suite: Suite::Promises,
        mode: Mode::Crd,
        n_replicas: 1,
        pace: Pace::Calm,
        families: &[Family::V4],
        scripts: || script::calm(60).boxed(),
        n_cases: 20,
    },
    Search {
        name: "one_replica_serves_both_families_or_none",
        suite: Suite::Promises,
        mode: Mode::Crd,
        n_replicas: 1,
        pace: Pace::Calm,
        families: &Family::ALL,
        scripts: || script::calm(60).boxed(),
        n_cases: 20,
    },
    Search {
        name: "one_replica_survives_lost_answers_late_news_and_restarts",
        suite: Suite::Promises,
        mode: Mode::Crd,
        n_replicas: 1,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::wild(Suite::Promises, 300).boxed(),
        n_cases: 20,
    },
    Search {
        name: "two_replicas_never_make_two_nodes_hold_one_address",
        suite: Suite::Promises,
        mode: Mode::Crd,
        n_replicas: 2,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::wild(Suite::Promises, 400).boxed(),
        n_cases: 20,
    },
    Search {
        name: "three_replicas_never_make_two_nodes_hold_one_address",
        suite: Suite::Promises,
        mode: Mode::Crd,
        n_replicas: 3,
        pace: Pace::Wild,
        families: &Family::ALL,
        scripts: || script::wild(Suite::Promises, 500).boxed(),
        n_cases: 10,
    },
    Search {
        name: "claims_that_overlap_are_survived",
        suite: Suite::Promises,
        mode: Mode::Crd,
        n_replicas: 3,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::forced(Suite::Promises, 400).boxed(),
        n_cases: 20,
    },
    Search {
        name: "multi_pool_one_replica_serves_whoever_can_be_served",
        suite: Suite::Promises,
        mode: Mode::MultiPool,
        n_replicas: 1,
        pace: Pace::Calm,
        families: &Family::ALL,
        scripts: || script::calm(60).boxed(),
        n_cases: 20,
    },
    Search {
        name: "multi_pool_one_replica_survives_lost_answers_late_news_and_restarts",
        suite: Suite::Promises,
        mode: Mode::MultiPool,
        n_replicas: 1,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::wild(Suite::Promises, 300).boxed(),
        n_cases: 20,
    },
    Search {
        name: "multi_pool_two_replicas_never_make_two_nodes_hold_one_address",
        suite: Suite::Promises,
        mode: Mode::MultiPool,
        n_replicas: 2,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::wild(Suite::Promises, 400).boxed(),
        n_cases: 20,
    },
    Search {
        name: "multi_pool_claims_that_overlap_are_survived",
        suite: Suite::Promises,
        mode: Mode::MultiPool,
        n_replicas: 2,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::forced(Suite::Promises, 400).boxed(),
        n_cases: 20,
    },
    Search {
        name: "cluster_pool_one_replica_serves_whoever_can_be_served",
        suite: Suite::Promises,
        mode: Mode::ClusterPool,
        n_replicas: 1,
        pace: Pace::Calm,
        families: &Family::ALL,
        scripts: || script::calm(60).boxed(),
        n_cases: 20,
    },
    Search {
        name: "cluster_pool_one_replica_survives_lost_answers_late_news_and_restarts",
        suite: Suite::Promises,
        mode: Mode::ClusterPool,
        n_replicas: 1,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::wild(Suite::Promises, 300).boxed(),
        n_cases: 20,
    },
    Search {
        name: "cluster_pool_two_replicas_never_make_two_nodes_hold_one_address",
        suite: Suite::Promises,
        mode: Mode::ClusterPool,
        n_replicas: 2,
        pace: Pace::Wild,
        families: &Family::ALL,
        scripts: || script::wild(Suite::Promises, 400).boxed(),
        n_cases: 20,
    },
    Search {
        name: "cluster_pool_claims_that_overlap_are_survived",
        suite: Suite::Promises,
        mode: Mode::ClusterPool,
        n_replicas: 2,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::forced(Suite::Promises, 400).boxed(),
        n_cases: 20,
    },
    Search {
        name: "kubernetes_one_replica_serves_whoever_can_be_served",
        suite: Suite::Promises,
        mode: Mode::Kubernetes(NodeField::Spec),
        n_replicas: 1,
        pace: Pace::Calm,
        families: &Family::ALL,
        scripts: || script::calm(60).boxed(),
        n_cases: 20,
    },
    Search {
        name: "kubernetes_one_replica_survives_lost_answers_late_news_and_restarts",
        suite: Suite::Promises,
        mode: Mode::Kubernetes(NodeField::Spec),
        n_replicas: 1,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::wild(Suite::Promises, 300).boxed(),
        n_cases: 20,
    },
    Search {
        name: "kubernetes_two_replicas_never_make_two_nodes_hold_one_address",
        suite: Suite::Promises,
        mode: Mode::Kubernetes(NodeField::Spec),
        n_replicas: 2,
        pace: Pace::Wild,
        families: &Family::ALL,
        scripts: || script::wild(Suite::Promises, 400).boxed(),
        n_cases: 20,
    },
    Search {
        name: "kubernetes_claims_that_overlap_are_survived",
        suite: Suite::Promises,
        mode: Mode::Kubernetes(NodeField::Spec),
        n_replicas: 2,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::forced(Suite::Promises, 400).boxed(),
        n_cases: 20,
    },
];

#[test]
fn one_replica_that_nothing_disturbs_serves_whoever_can_be_served() {
    Search::hold("one_replica_that_nothing_disturbs_serves_whoever_can_be_served");
}

#[test]
fn one_replica_serves_both_families_or_none() {
    Search::hold("one_replica_serves_both_families_or_none");
}

#[test]
fn one_replica_survives_lost_answers_late_news_and_restarts() {
    Search::hold("one_replica_survives_lost_answers_late_news_and_restarts");
}

#[test]
fn two_replicas_never_make_two_nodes_hold_one_address() {
    Search::hold("two_replicas_never_make_two_nodes_hold_one_address");
}

#[test]
fn three_replicas_never_make_two_nodes_hold_one_address() {
    Search::hold("three_replicas_never_make_two_nodes_hold_one_address");
}

#[test]
fn claims_that_overlap_are_survived() {
    Search::hold("claims_that_overlap_are_survived");
}

#[test]
fn multi_pool_one_replica_serves_whoever_can_be_served() {
    Search::hold("multi_pool_one_replica_serves_whoever_can_be_served");
}

#[test]
fn multi_pool_one_replica_survives_lost_answers_late_news_and_restarts() {
    Search::hold("multi_pool_one_replica_survives_lost_answers_late_news_and_restarts");
}

#[test]
fn multi_pool_two_replicas_never_make_two_nodes_hold_one_address() {
    Search::hold("multi_pool_two_replicas_never_make_two_nodes_hold_one_address");
}

#[test]
fn multi_pool_claims_that_overlap_are_survived() {
    Search::hold("multi_pool_claims_that_overlap_are_survived");
}

#[test]
fn cluster_pool_one_replica_serves_whoever_can_be_served() {
    Search::hold("cluster_pool_one_replica_serves_whoever_can_be_served");
}

#[test]
fn cluster_pool_one_replica_survives_lost_answers_late_news_and_restarts() {
    Search::hold("cluster_pool_one_replica_survives_lost_answers_late_news_and_restarts");
}

#[test]
fn cluster_pool_two_replicas_never_make_two_nodes_hold_one_address() {
    Search::hold("cluster_pool_two_replicas_never_make_two_nodes_hold_one_address");
}

#[test]
fn cluster_pool_claims_that_overlap_are_survived() {
    Search::hold("cluster_pool_claims_that_overlap_are_survived");
}

#[test]
fn kubernetes_one_replica_serves_whoever_can_be_served() {
    Search::hold("kubernetes_one_replica_serves_whoever_can_be_served");
}

#[test]
fn kubernetes_one_replica_survives_lost_answers_late_news_and_restarts() {
    Search::hold("kubernetes_one_replica_survives_lost_answers_late_news_and_restarts");
}

#[test]
fn kubernetes_two_replicas_never_make_two_nodes_hold_one_address() {
    Search::hold("kubernetes_two_replicas_never_make_two_nodes_hold_one_address");
}

#[test]
fn kubernetes_claims_that_overlap_are_survived() {
    Search::hold("kubernetes_claims_that_overlap_are_survived");
}
