//! *Promises*: only faults that `docs/invariants.md` promises to survive. The judge (`rules.rs`) excuses nothing.
//!
//! Its scripts have:
//!
//! - news that is late or lost, processes that exit, and requests that arrive late;
//! - nodes, agents, pools and claims that users create, edit and delete;
//! - claims of two leaders that overlap;
//! - webhooks, finalizers of others, freezes, a passive mode, and pools that can't be read;
//! - first CIDRs that another allocator gives to a node;
//! - in the searches called `mixed`: nodes that change their mode between crd and another one.
//!
//! No script contains a known gap (`cluster/taint.rs`). These searches notice each missing rule of `tests/mutants`.

use super::mode::Mode::{ClusterPool, Crd, MultiPool};
use super::searches::{BOTH, KUBERNETES, Search, V4, calm, forced, mixed, wild};

/// Every search. Each has a test of its name.
pub(super) const PROMISES: [Search; 25] = [
    calm("one_replica_that_nothing_disturbs_serves_whoever_can_be_served", Crd, V4),
    calm("one_replica_serves_both_families_or_none", Crd, BOTH),
    wild("one_replica_survives_lost_answers_late_news_and_restarts", Crd, 1, V4),
    wild("two_replicas_never_make_two_nodes_hold_one_address", Crd, 2, V4),
    Search { n_cases: 10, ..wild("three_replicas_never_make_two_nodes_hold_one_address", Crd, 3, BOTH) },
    forced("claims_that_overlap_are_survived", Crd, 3, V4),
    calm("multi_pool_one_replica_serves_whoever_can_be_served", MultiPool, BOTH),
    wild("multi_pool_one_replica_survives_lost_answers_late_news_and_restarts", MultiPool, 1, V4),
    wild("multi_pool_two_replicas_never_make_two_nodes_hold_one_address", MultiPool, 2, V4),
    forced("multi_pool_claims_that_overlap_are_survived", MultiPool, 2, V4),
    calm("cluster_pool_one_replica_serves_whoever_can_be_served", ClusterPool, BOTH),
    wild("cluster_pool_one_replica_survives_lost_answers_late_news_and_restarts", ClusterPool, 1, V4),
    wild("cluster_pool_two_replicas_never_make_two_nodes_hold_one_address", ClusterPool, 2, BOTH),
    forced("cluster_pool_claims_that_overlap_are_survived", ClusterPool, 2, V4),
    calm("kubernetes_one_replica_serves_whoever_can_be_served", KUBERNETES, BOTH),
    wild("kubernetes_one_replica_survives_lost_answers_late_news_and_restarts", KUBERNETES, 1, V4),
    wild("kubernetes_two_replicas_never_make_two_nodes_hold_one_address", KUBERNETES, 2, BOTH),
    forced("kubernetes_claims_that_overlap_are_survived", KUBERNETES, 2, V4),
    mixed(calm("mixed_cluster_pool_one_replica_serves_whoever_can_be_served", ClusterPool, BOTH), Crd),
    mixed(
        wild(
            "mixed_cluster_pool_one_replica_survives_lost_answers_late_news_and_restarts",
            ClusterPool,
            1,
            V4,
        ),
        Crd,
    ),
    mixed(
        wild("mixed_cluster_pool_two_replicas_never_make_two_nodes_hold_one_address", ClusterPool, 2, V4),
        Crd,
    ),
    mixed(
        wild("mixed_cluster_pool_three_replicas_never_make_two_nodes_hold_one_address", ClusterPool, 3, BOTH),
        Crd,
    ),
    mixed(calm("mixed_kubernetes_one_replica_serves_whoever_can_be_served", KUBERNETES, BOTH), Crd),
    mixed(
        wild("mixed_kubernetes_one_replica_survives_lost_answers_late_news_and_restarts", KUBERNETES, 1, V4),
        Crd,
    ),
    mixed(
        wild("mixed_kubernetes_two_replicas_never_make_two_nodes_hold_one_address", KUBERNETES, 2, BOTH),
        Crd,
    ),
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

#[test]
fn mixed_cluster_pool_one_replica_serves_whoever_can_be_served() {
    Search::hold("mixed_cluster_pool_one_replica_serves_whoever_can_be_served");
}

#[test]
fn mixed_cluster_pool_one_replica_survives_lost_answers_late_news_and_restarts() {
    Search::hold("mixed_cluster_pool_one_replica_survives_lost_answers_late_news_and_restarts");
}

#[test]
fn mixed_cluster_pool_two_replicas_never_make_two_nodes_hold_one_address() {
    Search::hold("mixed_cluster_pool_two_replicas_never_make_two_nodes_hold_one_address");
}

#[test]
fn mixed_cluster_pool_three_replicas_never_make_two_nodes_hold_one_address() {
    Search::hold("mixed_cluster_pool_three_replicas_never_make_two_nodes_hold_one_address");
}

#[test]
fn mixed_kubernetes_one_replica_serves_whoever_can_be_served() {
    Search::hold("mixed_kubernetes_one_replica_serves_whoever_can_be_served");
}

#[test]
fn mixed_kubernetes_one_replica_survives_lost_answers_late_news_and_restarts() {
    Search::hold("mixed_kubernetes_one_replica_survives_lost_answers_late_news_and_restarts");
}

#[test]
fn mixed_kubernetes_two_replicas_never_make_two_nodes_hold_one_address() {
    Search::hold("mixed_kubernetes_two_replicas_never_make_two_nodes_hold_one_address");
}
