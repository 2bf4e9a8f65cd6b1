//! Tests that the seam fits another mode: one block per family as a label of the Node, which only the agent removes.
//! Planner, claims and rules are the same; what differs is behind the publisher.

use super::*;
use crate::publisher::made_up::MadeUp;

fn cluster(text: &str) -> Cluster {
    Cluster::served_by(Publisher::MadeUp(MadeUp { families: [Family::V4].into() }), text)
}

#[test]
fn a_node_gets_one_block_on_its_own_object_and_never_a_second() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28\nnode a 1 @7");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    let Object::Claim(mut created) = object("claim 10.0.0.0/28 a 1 Held @110") else { unreachable!() };
    // What it is created for is the Node here.
    created.created_for = Some("1".into());
    cluster.settle(&Target::Claim(created.cidr), Seen::Claim(Box::new(created)));
    cluster.expect("a", "waits: a request for it is not answered yet");
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    // The revisions of Nodes are of another store; nothing has to be read before the Node is patched.
    let plan = cluster.plan("a");
    let [Request::Write(Write::Publish(publication))] = plan.requests() else { panic!("{plan:?}") };
    assert_eq!(
        (publication.uid.as_str(), &publication.added[..]),
        ("1", &["10.0.0.0/28".parse().unwrap()][..])
    );
    cluster.observe("node a 1 made-up=10.0.0.0/28 @8");
    cluster.expect("a", "nothing");
}

#[test]
fn what_a_node_carries_is_taken_also_without_a_claim() {
    let mut cluster = cluster("pool p 10.0.0.0/27 28\nnode a 1 made-up=10.0.0.0/28\nnode b 2");
    // Its claim is lost, and is recreated before anything else.
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    cluster.expect("b", "claim 10.0.0.16/28 of pool p for node b");
    assert_eq!(cluster.world.check(), []);
}

/// The label is gone, so the block is off: no patch of ours is needed for the proof.
#[test]
fn a_block_that_the_agent_took_off_cools_without_a_write_on_the_node() {
    let mut cluster = cluster("node a 1 @7\nclaim 10.0.0.0/28 a 1 Releasing/Reclaimed @40");
    cluster.expect("a", "cool 10.0.0.0/28 of node a");
}

#[test]
fn a_block_that_the_agent_put_back_is_held_again() {
    let released = "claim 10.0.0.0/28 a 1 Releasing/Reclaimed @40";
    let mut cluster = cluster(&format!("node a 1 made-up=10.0.0.0/28 @7\n{released}"));
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

/// The revisions of Nodes tell nothing of those of claims: that the Node is gone is the proof.
#[test]
fn a_block_of_a_node_that_is_gone_cools_after_one_read() {
    let mut cluster = cluster("");
    cluster.observe("claim 10.0.0.0/28 a 1 Releasing/NodeGone @140");
    cluster.expect("a", "read whether node a exists");
    let gone = Seen::Node { as_of: Revision::of(140), read_at: Revision::of(900), presence: Presence::Gone };
    cluster.settle(&Target::Node("a".into()), gone);
    cluster.expect("a", "cool 10.0.0.0/28 of node a");
}

#[test]
fn what_the_agent_took_off_is_free_again() {
    let mut cluster = cluster("node a 1 made-up=10.0.0.0/28 @7");
    assert!(cluster.world.ledger().is_taken("10.0.0.0/28".parse().unwrap()));
    cluster.observe("node a 1 @8");
    assert!(!cluster.world.ledger().is_taken("10.0.0.0/28".parse().unwrap()));
}
