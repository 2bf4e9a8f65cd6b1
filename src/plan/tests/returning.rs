//! Tests of nodes that return with a new CiliumNode while their blocks must leave them.

use super::*;
use crate::model::crd::CrdChange;

/// A node that was given its block again, which is in a range that drains. The other pool has room.
const DRAINING: &str = "pool p 10.0.0.0/26 28 draining\npool q 10.1.0.0/26 28\nnode a 2\n\
     ciliumnode a @50 recreated\nclaim 10.0.0.0/28 a 2 Held @40";

const CLAIM: &str = "claim 10.1.0.0/28 of pool q for node a";

/// The claim that the plan asks for is created, and the watch shows it.
fn claimed(cluster: &mut Cluster, line: &str) {
    let Object::Claim(claim) = object(line) else { unreachable!() };
    let target = Target::Claim(claim.cidr);
    cluster.settle(&target, Seen::Claim(Box::new(claim)));
    cluster.expect("a", "waits: a request for it is in flight");
    cluster.observe(line);
}

/// The new block is published in front, with the address that the agent takes for its router, and the old one behind.
#[track_caller]
fn expect_new_block_in_front(cluster: &Cluster) {
    let plan = cluster.plan("a");
    let publication = publication(&plan);
    let CarrierChange::Crd(CrdChange::Blocks { pod_cidrs, entries, .. }) = &publication.change else {
        panic!("{publication:?}");
    };
    assert_eq!(*pod_cidrs, cidrs("10.1.0.0/28,10.0.0.0/28").collect::<Vec<_>>());
    assert_eq!(entries.len(), 32);
    let owned: Vec<String> = entries
        .iter()
        .filter_map(|(address, owner)| owner.map(|owner| format!("{address}={owner}")))
        .collect();
    assert_eq!(owned, ["10.1.0.0=router"]);
}

#[test]
fn a_node_that_returns_to_a_draining_range_gets_a_new_block_in_front() {
    for pool in ["pool p 10.0.0.0/26 28 draining", "pool p 10.0.0.0/26 28 deleting"] {
        let mut cluster = Cluster::of(&DRAINING.replace("pool p 10.0.0.0/26 28 draining", pool));
        cluster.expect("a", CLAIM);
        claimed(&mut cluster, "claim 10.1.0.0/28 a 2 Held @110 of=q for=cn-a-again");
        expect_new_block_in_front(&cluster);
    }
}

/// An agent in the mode cluster-pool or kubernetes may run there, and uses the first block alone.
#[test]
fn a_node_that_moves_gets_back_its_first_block_alone() {
    let mut cluster = Cluster::of(&DRAINING.replace("node a 2", "node a 2 holds"));
    cluster.expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a");
}

/// A process that starts in between sees only the objects.
#[test]
fn the_new_block_is_in_front_for_a_process_that_starts_later_too() {
    expect_new_block_in_front(&Cluster::of(&format!(
        "{DRAINING}\nclaim 10.1.0.0/28 a 2 Held @41 of=q for=cn-a-again"
    )));
}

#[test]
fn a_node_whose_pools_have_no_room_gets_back_what_it_holds() {
    for full in ["", "pool q 10.1.0.0/28 28\nnode b 1\nclaim 10.1.0.0/28 b 1 Held @30 of=q"] {
        let mut cluster = Cluster::of(&DRAINING.replace("pool q 10.1.0.0/26 28", full));
        cluster.expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a");
    }
}

/// A webhook or a quota may refuse claims for long, and pods of the node may run.
#[test]
fn a_node_whose_new_claim_is_refused_gets_back_what_it_holds() {
    let mut cluster = Cluster::of(DRAINING);
    cluster.expect("a", CLAIM);
    let request = cluster.in_flight.remove(0);
    let answer = Answer::Refused("quota".to_owned(), None);
    cluster.world.finish(Outcome { request, answer, seen: Seen::Nothing }, cluster.now);
    cluster.pass(1);
    cluster.expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a");
}

#[test]
fn a_new_block_waits_for_the_labels_of_an_uninitialized_node() {
    let mut cluster =
        Cluster::of(&DRAINING.replace("node a 2", "node a 2 taint=node.cluster.x-k8s.io/uninitialized"));
    assert_starts(&rendered(&cluster.plan("a")), "waits: ");
    cluster.begin(&cluster.plan("a"));
    cluster.pass(60);
    cluster.expect("a", CLAIM);
}

#[test]
fn a_node_with_a_block_that_stays_gets_no_other_one() {
    let mut cluster = Cluster::of(&format!("{DRAINING}\nclaim 10.1.0.16/28 a 2 Held @41 of=q"));
    cluster.expect("a", "publish [10.1.0.16/28 10.0.0.0/28] and 32 addresses on ciliumnode a");
}

/// A foreign CIDR is first there already, and stays.
#[test]
fn a_carrier_that_lists_a_block_gets_no_new_primary_one() {
    let mut cluster = Cluster::of(&DRAINING.replace("@50 recreated", "@50 192.168.0.0/28 recreated"));
    cluster.expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a");
}
