//! The headroom in the status of a pool: how many nodes and pods its free blocks can serve.

use super::*;

/// Fails unless pool `p` has this headroom, as `NODES PODS`.
#[track_caller]
fn check(mode: &str, text: &str, expected: &str) {
    let cluster = Cluster::serving(mode, text);
    let shown = cluster.status("p").families.into_values().map(|counts| {
        let headroom = counts.headroom;
        format!("{} {}", headroom.nodes, headroom.pods)
    });
    assert_eq!(shown.collect::<Vec<_>>().join(", "), expected, "{mode}: {text}");
}

#[test]
fn free_blocks_serve_nodes_by_their_first_blocks_and_pods_by_their_addresses() {
    // 16 blocks of 16 addresses; each agent takes one.
    check("crd v4", "pool p 10.0.0.0/24 28", "16 240");
    check("crd v4", "pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used=3", "15 225");
    // A node with blocks of 4 addresses gets two: five must be free, with that of the agent.
    check("crd v4", "pool p 10.0.0.0/26 30 freeBelow=5", "8 56");
    // Its limit does not allow the second one.
    check("crd v4", "pool p 10.0.0.0/26 30 freeBelow=5 maxBlocks=1", "16 48");
    // Its agent could not start with less than 4 addresses.
    check("crd v4", "pool p 10.0.0.0/26 31 freeBelow=0", "16 48");
    // 14 addresses each, and one block per node.
    check("kubernetes v4", "pool p 10.0.0.0/24 28 freeBelow=99", "16 208");
    check("multi-pool v4", "pool p 10.0.0.0/24 28", "16 208");
    // An agent asks for 8 addresses, and a block has 6.
    check("multi-pool v4", "pool p 10.0.0.0/26 29", "4 44");
}

#[test]
fn a_pool_without_free_blocks_serves_nothing() {
    check("crd v4", "pool p 10.0.0.0/28 28\njoined a @50 10.0.0.0/28 used=3", "0 0");
    check("crd v4", "pool p 10.0.0.0/24 28 cordoned", "0 0");
    check("crd v4", "pool p 10.0.0.0/24 28 deleting", "0 0");
    // Excluded addresses serve no pod.
    check("crd v4", "pool p 10.0.0.0/27 28 exclude=10.0.0.0/29", "2 22");
}

#[test]
fn pods_that_start_do_not_change_it() {
    let of = |used: u32| {
        let cluster = Cluster::of(&format!("pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used={used}"));
        cluster.status("p").families[&Family::V4].headroom
    };
    assert_eq!(of(1), of(9));
}
