//! Nodes whose growth a person holds, with an annotation of their Node.

use super::*;

const HELD: &str = "unmet: the node needs a further ipv4 block, and its annotation nodeipam.io/hold-growth holds its \
                    growth; finding: GrowthHeld";

#[test]
fn a_held_node_does_not_grow_until_the_annotation_is_removed() {
    let mut cluster = Cluster::of("joined a @50 10.0.0.0/28 used=14\npool p 10.0.0.0/26 28");
    cluster.observe("node a 1 holds @60");
    cluster.expect("a", HELD);
    cluster.observe("node a 1 @61");
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
}

/// It would have no addresses at all.
#[test]
fn a_held_node_gets_its_first_blocks() {
    let mut cluster = Cluster::of("node a 1 holds\nciliumnode a @50\npool p 10.0.0.0/26 28");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

#[test]
fn no_block_leaves_a_held_node() {
    let text = "pool p 10.0.0.0/26 28 draining\njoined a @50 10.0.0.0/28 10.0.0.16/28 used=1\n\
                pool q 10.1.0.0/26 28\nagent a 1.20.2";
    let mut cluster = Cluster::of(text);
    cluster.observe("node a 1 holds @60");
    let plan = cluster.plan("a");
    assert!(plan.requests().is_empty(), "{}", rendered(&plan));
    cluster.observe("node a 1 @61");
    let plan = cluster.plan("a");
    assert!(!plan.requests().is_empty(), "{}", rendered(&plan));
}
