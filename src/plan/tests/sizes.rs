//! Tests of pools with blocks of several sizes: a size that changes, and sizes that differ by node.

use super::*;
use crate::model::status::SizeCounts;

/// The number of blocks on nodes and of free blocks, by size, and the largest free CIDR.
fn sizes(cluster: &Cluster, pool: &str) -> String {
    let status = cluster.status(pool);
    let sizes = &status.sizes[&Family::V4];
    let counts = sizes.counts.iter();
    let counts = counts.map(|(size, SizeCounts { on_nodes, free })| format!("/{size}: {on_nodes}+{free}"));
    let largest = sizes.largest_free.map_or("none".to_owned(), |size| format!("/{size}"));
    format!("{}; largest {largest}", counts.collect::<Vec<_>>().join(", "))
}

/// All blocks of a pool, and those of them that are held, free and unavailable.
fn counts(cluster: &Cluster, pool: &str) -> (u64, u64, u64, u64) {
    let counts = cluster.status(pool).families[&Family::V4];
    (counts.blocks, counts.held, counts.free, counts.unavailable)
}

#[test]
fn held_blocks_keep_their_size_and_new_ones_have_the_new_one() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used=14");
    assert_eq!(sizes(&cluster, "p"), "/28: 1+15; largest /25");
    // The status shows 28 before the size changes.
    cluster.observe("pool p 10.0.0.0/24 27 had=28 @60");
    assert_eq!(sizes(&cluster, "p"), "/27: 0+7, /28: 1+0; largest /25");
    assert_eq!(counts(&cluster, "p"), (8, 1, 7, 0));
    cluster.expect("a", "claim 10.0.0.64/27 of pool p for node a");
    cluster.carried_out("claim 10.0.0.64/27 a a Held @61");
    assert_eq!(sizes(&cluster, "p"), "/27: 1+6, /28: 1+0; largest /25");
    assert_eq!(counts(&cluster, "p"), (8, 2, 6, 0));
    assert_eq!(cluster.condition("p", ConditionType::Obstructed), "Unobstructed false: ");
    // Smaller blocks fill the other half of the pair of the first one.
    cluster.observe("pool p 10.0.0.0/24 28 had=27,28 @62");
    assert_eq!(sizes(&cluster, "p"), "/27: 1+0, /28: 1+13; largest /25");
    assert_eq!(counts(&cluster, "p"), (15, 2, 13, 0));
}

/// Agents in this mode get whole blocks, and none that has an excluded address.
#[test]
fn blocks_that_no_node_can_get_are_not_free_in_any_size() {
    let pool = "pool p 10.0.0.0/24 28 sized=big:26 exclude=10.0.0.1/32";
    let cluster = Cluster::serving("multi-pool v4", pool);
    assert_eq!(sizes(&cluster, "p"), "/26: 0+3, /28: 0+15; largest /24");
}

/// A claim may be lost while no controller runs, and the size of its pool may change.
#[test]
fn a_block_of_a_former_size_is_adopted() {
    let carried = "node a 1\nciliumnode a @50 10.0.0.0/28";
    Cluster::of(&format!("pool p 10.0.0.0/24 27 had=28\n{carried}"))
        .expect("a", "claim 10.0.0.0/28 of pool p for node a");
    // Without a word of it in the status, it may be of another allocator.
    Cluster::of(&format!("pool p 10.0.0.0/24 27\n{carried}"))
        .expect("a", "claim 10.0.0.64/27 of pool p for node a");
}

#[test]
fn the_size_of_a_block_follows_from_the_node() {
    let pool = "pool p 10.0.0.0/24 28 sized=big:26 byMaxPods=2:28-25";
    for (node, expected) in [
        ("node a a label=size=big maxPods=10", "10.0.0.0/26"),
        ("node a a maxPods=12", "10.0.0.0/28"),
        ("node a a maxPods=13", "10.0.0.0/27"),
        ("node a a maxPods=110", "10.0.0.0/25"),
        // More than the largest block has.
        ("node a a maxPods=250", "10.0.0.0/25"),
    ] {
        let mut cluster = Cluster::of(&format!("{pool}\n{node}\nciliumnode a @50"));
        cluster.expect("a", &format!("claim {expected} of pool p for node a"));
    }
}

#[test]
fn a_first_block_waits_for_the_number_of_pods_within_a_bound() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28 byMaxPods=0:28-25\nnode a a\nciliumnode a @50");
    let waits = "waits: kubelet has not reported `status.allocatable.pods` of its Node, from which the size of its \
                 block follows";
    cluster.expect("a", waits);
    let mut late = cluster.clone();
    cluster.observe("node a a maxPods=60 @51");
    cluster.expect("a", "claim 10.0.0.0/26 of pool p for node a");
    late.pass(Policy::DEFAULT.initialization.as_secs());
    late.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

/// Small blocks fill the space beside other small ones, so that a large one still fits.
#[test]
fn small_blocks_leave_room_for_large_ones() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28 sized=big:27\nclaim 10.0.0.0/28 x x Held @40\nnode a a\nciliumnode a @50",
    );
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
    assert_eq!(sizes(&cluster, "p"), "/27: 0+1, /28: 1+3; largest /27");
}

/// The node that waits for a large block is among those that are decided again when one becomes free.
#[test]
fn a_node_waits_for_a_block_of_its_size() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28 sized=big:27\nclaim 10.0.0.0/28 x x Cooling/Reclaimed @40\n\
         claim 10.0.0.32/28 y y Held @41\nnode a a label=size=big\nciliumnode a @50",
    );
    cluster.drain();
    assert_eq!(rendered(&cluster.plan("a")), "unmet: no pool of the node has a free ipv4 block");
    cluster.delete(Kind::Claim, "10.0.0.0-28", 60);
    assert!(cluster.drain().contains(&"a".to_owned()));
    assert_eq!(cluster.in_flight.last().unwrap().to_string(), "claim 10.0.0.0/27 of pool p for node a");
}

/// A pool with small blocks may have none for nodes that need large ones.
#[test]
fn a_size_of_which_no_block_is_free_is_reported() {
    let pool = "pool p 10.0.0.0/26 28 sized=big:27\nclaim 10.0.0.32/28 y y Held @41";
    let mut cluster = Cluster::of(pool);
    assert_eq!(cluster.condition("p", ConditionType::Exhausted), "FreeBlocks false: ");
    cluster.observe("claim 10.0.0.0/27 x x Held @42");
    let full = "NoFreeBlocks true: ipv4: no free /27 block (1 on nodes); waiting: 0 nodes without addresses, 0 for \
                growth; add a CIDR";
    assert_eq!(cluster.condition("p", ConditionType::Exhausted), full);
    assert_eq!(cluster.condition("p", ConditionType::Ready), "Serving true: selected nodes get blocks");
    // A size that the pool gave out before, and that no node has, is none of its problems.
    let other = Cluster::of("pool p 10.0.0.0/27 28 sized=big:27\nclaim 10.0.0.0/28 y y Held @41");
    assert_eq!(other.condition("p", ConditionType::Exhausted), "FreeBlocks false: ");
}

#[test]
fn overlapping_claims_of_two_sizes_are_published_to_nobody() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/24 27 had=28\nclaim 10.0.0.0/27 a a Held @40\nclaim 10.0.0.16/28 b b Held @41\n\
         node a a\nciliumnode a @50\nnode b b\nciliumnode b @51",
    );
    for node in ["a", "b"] {
        let plan = cluster.plan(node);
        assert!(plan.requests().is_empty(), "{}", rendered(&plan));
        assert_has(&rendered(&plan), "finding: Overlap");
    }
}

/// Agents of most modes never give out the first and the last address of a block.
#[test]
fn a_size_by_pods_counts_no_edges() {
    let pool = "pool p 10.0.0.0/24 28 byMaxPods=2:28-25";
    for (max_pods, size) in [(12, 28), (13, 27), (124, 25), (125, 25)] {
        let mut cluster = Cluster::of(&format!("{pool}\nnode a a maxPods={max_pods}\nciliumnode a @50"));
        cluster.expect("a", &format!("claim 10.0.0.0/{size} of pool p for node a"));
    }
    // A kubelet that allows no pod has not reported yet.
    let cluster = Cluster::of(&format!("{pool}\nnode a a maxPods=0\nciliumnode a @50"));
    assert_has(&rendered(&cluster.plan("a")), "waits: kubelet has not reported");
}

/// Free blocks have the usual size, and held ones may be larger.
#[test]
fn the_share_of_free_blocks_counts_large_blocks_as_the_small_ones_in_them() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/24 28 sized=big:26\nclaim 10.0.0.0/26 x x Held @40\nclaim 10.0.0.64/26 y y Held @41\n\
         claim 10.0.0.128/28 z z Held @42",
    );
    assert_eq!(counts(&cluster, "p"), (10, 3, 7, 0));
    let snapshot = crate::view::snapshot::snapshot(&cluster.world, [].into_iter(), cluster.now.wall);
    let usual = snapshot.pools[&"p".into()].usual_blocks[&Family::V4];
    assert_eq!((usual.held, usual.free), (9, 7));
}

/// The sizes that a pool once had are known by its status alone.
#[test]
fn an_unreadable_pool_keeps_its_former_sizes() {
    let cluster = Cluster::of("pool p 10.0.0.0/24 27 had=28 invalid");
    assert!(cluster.condition("p", ConditionType::Ready).starts_with("Invalid false"));
    assert!(cluster.status("p").sizes[&Family::V4].counts.contains_key(&28));
}

/// A CIDR that gives nothing out counts its blocks as any other.
#[test]
fn a_cordoned_cidr_counts_blocks_of_two_sizes_once() {
    for state in ["", " cordoned"] {
        let pool = format!("pool p 10.0.0.0/24 27 had=28{state}\nclaim 10.0.0.0/28 x x Held @40");
        let counts = Cluster::of(&pool).status("p").cidrs[&"10.0.0.0/24".parse().unwrap()];
        assert_eq!((counts.blocks, counts.held), (8, 1), "{pool}");
    }
}
