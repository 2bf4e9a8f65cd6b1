//! *Other writers*: the faults of *Promises* and more. People, scripts and other programs also edit nodes and their
//! objects, make these unreadable, remove claims by force, and restore the store from a backup.
//!
//! The judge has one excuse: nothing is promised of a tainted node, which such a writer has touched. No other node
//! suffers: every promise holds for each of them, and between any two of them (`rules/taint.rs`).

use cilium_node_ipam::net::cidr::Family;
use cilium_node_ipam::publisher::static_mode::NodeField;
use proptest::strategy::Strategy;

use super::cluster::{Pace, Suite};
use super::mode::Mode;
use super::script;
use super::searches::Search;

/// Every search. Each has a test of its name.
pub(super) const OTHER_WRITERS: [Search; 5] = [
    Search {
        name: "three_replicas_let_no_other_node_suffer",
        suite: Suite::OtherWriters,
        mode: Mode::Crd,
        n_replicas: 3,
        pace: Pace::Wild,
        families: &Family::ALL,
        scripts: || script::forced(Suite::OtherWriters, 400).boxed(),
        n_cases: 20,
    },
    Search {
        name: "one_replica_lets_no_other_node_suffer",
        suite: Suite::OtherWriters,
        mode: Mode::Crd,
        n_replicas: 1,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::wild(Suite::OtherWriters, 300).boxed(),
        n_cases: 20,
    },
    Search {
        name: "multi_pool_two_replicas_let_no_other_node_suffer",
        suite: Suite::OtherWriters,
        mode: Mode::MultiPool,
        n_replicas: 2,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::forced(Suite::OtherWriters, 400).boxed(),
        n_cases: 20,
    },
    Search {
        name: "cluster_pool_two_replicas_let_no_other_node_suffer",
        suite: Suite::OtherWriters,
        mode: Mode::ClusterPool,
        n_replicas: 2,
        pace: Pace::Wild,
        families: &Family::ALL,
        scripts: || script::forced(Suite::OtherWriters, 400).boxed(),
        n_cases: 20,
    },
    Search {
        name: "kubernetes_two_replicas_let_no_other_node_suffer",
        suite: Suite::OtherWriters,
        mode: Mode::Kubernetes(NodeField::Spec),
        n_replicas: 2,
        pace: Pace::Wild,
        families: &[Family::V4],
        scripts: || script::forced(Suite::OtherWriters, 400).boxed(),
        n_cases: 20,
    },
];

#[test]
fn three_replicas_let_no_other_node_suffer() {
    Search::hold("three_replicas_let_no_other_node_suffer");
}

#[test]
fn one_replica_lets_no_other_node_suffer() {
    Search::hold("one_replica_lets_no_other_node_suffer");
}

#[test]
fn multi_pool_two_replicas_let_no_other_node_suffer() {
    Search::hold("multi_pool_two_replicas_let_no_other_node_suffer");
}

#[test]
fn cluster_pool_two_replicas_let_no_other_node_suffer() {
    Search::hold("cluster_pool_two_replicas_let_no_other_node_suffer");
}

#[test]
fn kubernetes_two_replicas_let_no_other_node_suffer() {
    Search::hold("kubernetes_two_replicas_let_no_other_node_suffer");
}
