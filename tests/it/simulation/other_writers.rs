//! *Other writers*: the faults of *Promises* and more. People, scripts and other programs also edit nodes and their
//! objects, make these unreadable, remove claims by force, and restore the store from a backup.
//!
//! The judge has one excuse: nothing is promised of a tainted node, which such a writer has touched. No other node
//! suffers: every promise holds for each of them, and between any two of them (`rules/taint.rs`).

use super::cluster::Suite;
use super::mode::Mode::{ClusterPool, Crd, MultiPool};
use super::searches::{BOTH, KUBERNETES, Search, V4, forced, wild};

/// Every search. Each has a test of its name.
pub(super) const OTHER_WRITERS: [Search; 5] = [
    disturbed(forced("three_replicas_let_no_other_node_suffer", Crd, 3, BOTH)),
    disturbed(wild("one_replica_lets_no_other_node_suffer", Crd, 1, V4)),
    disturbed(forced("multi_pool_two_replicas_let_no_other_node_suffer", MultiPool, 2, V4)),
    disturbed(forced("cluster_pool_two_replicas_let_no_other_node_suffer", ClusterPool, 2, BOTH)),
    disturbed(forced("kubernetes_two_replicas_let_no_other_node_suffer", KUBERNETES, 2, V4)),
];

/// The same search, with other writers.
const fn disturbed(search: Search) -> Search {
    Search { suite: Suite::OtherWriters, ..search }
}

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
