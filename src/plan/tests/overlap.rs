//! Tests of claims that overlap, and of blocks that may be in use.

use super::*;

const BLOCKED: &str =
    "finding: Overlap; finding: Blocked; waits: one of its blocks may be in use and can't be published";

#[test]
fn of_two_claims_of_one_node_that_overlap_both_stay() {
    for (carried, other) in [("10.0.0.0/26", "10.0.0.16/28"), ("10.0.0.16/28", "10.0.0.0/26")] {
        let cluster = |state| {
            Cluster::of(&format!(
                "pool p 10.0.0.0/24 28
                 node n nu
                 ciliumnode n @60 {carried}
                 claim {carried} n nu Held @40
                 claim {other} n nu {state} @50"
            ))
        };
        cluster("Held").expect("n", "finding: Overlap; finding: Overlap");
        // A person deletes the one that is not published.
        cluster("Held deleting")
            .expect("n", &format!("release {other} of node n (Unused); finding: ClaimBeingDeleted"));
    }
}

#[test]
fn of_two_claims_that_overlap_the_one_that_is_carried_stays() {
    // Safety rule 2, with a pool recreated with another block size.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 27\njoined a @50 10.0.0.16/28\njoined b @51\nclaim 10.0.0.0/27 b 1 Held @45",
    );
    cluster.expect("a", "finding: Overlap");
    cluster.expect("b", BLOCKED);
}

#[test]
fn an_unused_claim_that_is_found_carried_is_held_again() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Releasing/Unused @40",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn a_claim_that_an_earlier_ciliumnode_may_have_carried_is_never_called_unused() {
    // Its first set can't be completed: the pool has no more blocks, and an agent can't start with two addresses.
    let text = "pool p 10.0.0.0/31 31\njoined a @50 recreated\nclaim 10.0.0.0/31 a 1 Held @40";
    let kept = "unmet: no pool of the node has a free ipv4 block; finding: Blocked";
    Cluster::of(text).expect_for(3600, "a", kept);
}

#[test]
fn no_claim_gives_way_to_another() {
    let overlap = |of_a: &str, of_b: &str| {
        Cluster::of(&format!(
            "pool p 10.0.0.0/26 27\nnode a 1\nnode b 1\n{of_a}\nclaim 10.0.0.16/28 a 1 Held @40\n\
             {of_b}\nclaim 10.0.0.0/27 b 1 Held @45"
        ))
    };
    let mut cluster = overlap("ciliumnode a @50 recreated", "ciliumnode b @51");
    cluster.expect("a", BLOCKED);
    cluster.expect("b", BLOCKED);
    let mut cluster = overlap("", "ciliumnode b @51");
    cluster.expect("a", "waits: it has no CiliumNode");
    cluster.expect("b", BLOCKED);
    // A replica that had not seen it carried has begun to give it back.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\njoined a @50 recreated\nclaim 10.0.0.0/28 a 1 Releasing/Unused @40",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn a_block_of_which_another_node_carries_anything_is_given_to_nobody() {
    // Safety rule 6: CiliumNode x carries an address in the pool's first block, which has no claim.
    Cluster::of("pool p 10.0.0.0/27 28\njoined a @50\nciliumnode x @51 10.0.0.3/32")
        .expect("a", "claim 10.0.0.16/28 of pool p for node a");
}

#[test]
fn who_was_overlapped_looks_again_when_the_other_is_gone() {
    // The other is a claim.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 27\njoined a @50 10.0.0.16/28\nclaim 10.0.0.0/27 gone 1 Cooling/NodeGone @45",
    );
    cluster.drain();
    cluster.delete(Kind::Claim, "10.0.0.0-27", 110);
    assert_eq!(cluster.drain(), ["gone", "a"]);
    // The other is what another CiliumNode carries.
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/26 27\njoined a @50 10.0.0.16/28\nciliumnode gone @51 10.0.0.0/27");
    cluster.drain();
    cluster.delete(Kind::CiliumNode, "gone", 110);
    assert!(cluster.drain().contains(&"a".to_owned()));
}

/// Somebody has emptied the CiliumNode by hand, and the agent has not said yet which addresses it uses.
#[test]
fn a_claim_that_was_seen_carried_a_moment_ago_does_not_give_way() {
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used=unknown\njoined b @51");
    cluster.observe("claim 10.0.0.0/27 b 1 Held @110");
    cluster.observe("ciliumnode a @111");
    cluster.expect("a", BLOCKED);
    cluster.expect("b", BLOCKED);
}

/// An agent that is down for good never answers, and the block of the other claim would wait for ever.
#[test]
fn an_open_question_of_ours_does_not_keep_a_claim_from_going() {
    let asked = "pool p 10.0.0.0/26 28\njoined a @50 ping=marked\n\
                 claim 10.0.0.0/28 a 1 Releasing/Unused deleting @60";
    let mut cluster = Cluster::of(asked);
    cluster.expect("a", "clear the usage query on CiliumNode a; finding: ClaimBeingDeleted");
    cluster.carried_out("ciliumnode a @112");
    cluster.expect("a", "read the pods of node a; finding: ClaimBeingDeleted");
}

/// Nothing records how the CiliumNode ended for which they were made, so each may be in use, and a person decides.
#[test]
fn claims_for_an_earlier_ciliumnode_that_overlap_wait_for_a_person() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\njoined a @50\nclaim 10.0.0.0/28 a 1 Held @40\n\
         claim 10.0.0.0/29 a 1 Held @41",
    );
    cluster.delete(Kind::CiliumNode, "a", 110);
    cluster.observe("ciliumnode a @120 recreated");
    let waits = "waits: one of its blocks may be in use and can't be published";
    cluster.expect("a", &format!("finding: Overlap; finding: Overlap; finding: Blocked; {waits}"));
    cluster.observe("claim 10.0.0.0/29 a 1 Held deleting @121");
    cluster.expect("a", "read Node a; finding: ClaimBeingDeleted");
}

/// Its agent goes on with the block, which it may not have reported yet.
#[test]
fn a_claim_that_somebody_took_off_a_ciliumnode_before_its_end_may_be_in_use() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\njoined a @50 10.0.0.0/28");
    cluster.observe("ciliumnode a @105");
    cluster.delete(Kind::CiliumNode, "a", 110);
    cluster.observe("ciliumnode a @120 recreated");
    cluster.observe("claim 10.0.0.0/29 b 2 Held @121");
    cluster.expect("a", BLOCKED);
}

/// Addresses that another node had, and may have again, keep a node from its blocks. That is no shortage of its pools.
#[test]
fn what_one_process_remembers_makes_no_node_wait() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/27 28\njoined a @50\nnode b 2\nnode c 3\nciliumnode b @51 10.0.0.0/28\n\
         claim 10.0.0.0/28 a 1 Held @40\nclaim 10.0.0.16/28 a 1 Held for=earlier @41\n\
         claim 10.0.0.16/29 c 3 Held @42",
    );
    cluster.delete(Kind::CiliumNode, "b", 110);
    let plan = cluster.plan("a");
    assert_eq!(plan.verdict, Verdict::Wait(Wait::CompleteSet));
    assert!(plan.unmet.is_empty(), "{:?}", plan.unmet);
}

/// The ledger has the addresses of a carrier, in other ranges than those that it lists.
#[test]
fn every_range_that_overlaps_a_claim_is_named_as_its_object_has_it() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\njoined a @50\nclaim 10.0.0.0/27 a 1 Held @40\n\
         ciliumnode b @51 10.0.0.0/29 off=10.0.0.0/32,10.0.0.7/32\nciliumnode c @52 10.0.0.16/29",
    );
    let plan = cluster.plan("a");
    let messages: Vec<&str> = plan.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(
        messages[0],
        "no more addresses of it are published, because it overlaps 10.0.0.0/29 (CiliumNode b), 10.0.0.16/29 \
         (CiliumNode c); if it is not needed, give it up: `kubectl delete nib 10.0.0.0-27`"
    );
}

/// What a person gives up goes on the proof of its mode, when no pod has an address of it, and cools like any block.
#[test]
fn a_claim_that_cant_be_published_goes_when_a_person_deletes_it() {
    let other = "joined b @51 10.0.0.16/28";
    let mut cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/26 28\njoined a @50 recreated\nclaim 10.0.0.0/27 a 1 Held @40\n{other}"
    ));
    let waits = "waits: one of its blocks may be in use and can't be published";
    cluster.expect("a", &format!("finding: Overlap; finding: Blocked; {waits}"));
    cluster.observe("claim 10.0.0.0/27 a 1 Held deleting @109");
    // Whether the Node is still this one has to be known: else the block cools as that of a lost node.
    cluster.expect("a", "read Node a; finding: ClaimBeingDeleted");
    cluster.settle(&Target::Node("a".into()), found(Presence::Is("1".into()), 110));
    cluster.expect("a", "release 10.0.0.0/27 of node a (Unused); finding: ClaimBeingDeleted");
    cluster.carried_out("claim 10.0.0.0/27 a 1 Releasing/Unused deleting @111");
    cluster.expect("a", "touch ciliumnode a to get a later version; finding: ClaimBeingDeleted");
    cluster.carried_out("ciliumnode a @112 recreated");
    let after = AnyRevision::of(Kind::CiliumNode, 112);
    let read = Read::PodsOf("a".into(), after);
    let mut pods = PodsOnNode::default();
    pods.holders.insert("10.0.0.3".parse().unwrap(), "apps/web".to_owned());
    let blocked = format!("finding: ClaimBeingDeleted; finding: Blocked; {waits}");
    cluster.expect("a", "read the pods of node a; finding: ClaimBeingDeleted");
    cluster.settle(&read.target(), Seen::PodsOf { after, pods });
    let reported = cluster.plan("a");
    assert_eq!(
        reported.findings[0].message,
        "a user gave the claim up, but these pods have an address of it: apps/web"
    );
    // The wrong one may have been deleted: its node gets no other blocks meanwhile.
    assert_eq!(rendered(&reported), blocked);
    cluster.pass(60);
    cluster.expect("a", "read the pods of node a; finding: ClaimBeingDeleted");
    cluster.settle(&read.target(), Seen::PodsOf { after, pods: PodsOnNode::default() });
    // The Pods of a lost node are deleted, and its machine may run on.
    cluster.expect("a", "read Node a; finding: ClaimBeingDeleted");
    cluster.settle(&Target::Node("a".into()), found(Presence::Is("1".into()), 113));
    cluster.expect("a", "cool 10.0.0.0/27 of node a; finding: ClaimBeingDeleted");
    cluster.settle(&Target::Claim("10.0.0.0/27".parse().unwrap()), Seen::Nothing);
    // Its node is served meanwhile.
    cluster.observe("claim 10.0.0.0/27 a 1 Cooling/Unused deleting @114");
    cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a; finding: ClaimBeingDeleted");
}

/// A word that nobody needs to guess: what is carried, used, or can be published stays with its node.
#[test]
fn a_deleted_claim_that_is_in_use_or_can_be_published_stays() {
    let other = "joined b @51 10.0.0.16/28";
    for shows in ["10.0.0.0/28", "10.0.0.0/28 used=4", "used=10.0.0.3/32", "agents=10.0.0.5"] {
        let cluster = Cluster::of(&format!(
            "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 recreated {shows}\n\
             claim 10.0.0.0/27 a 1 Held deleting @40\n{other}"
        ));
        assert!(
            !rendered(&cluster.plan("a")).contains("release"),
            "{shows}: {}",
            rendered(&cluster.plan("a"))
        );
    }
    Cluster::of("pool p 10.0.0.0/26 28\njoined a @50 recreated\nclaim 10.0.0.0/28 a 1 Held deleting @40")
        .expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a; finding: ClaimBeingDeleted");
    // It came to be in use after it was released.
    let cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/26 28\njoined a @50 recreated used=10.0.0.3/32\n\
         claim 10.0.0.0/27 a 1 Releasing/Unused deleting @40\n{other}"
    ));
    assert!(rendered(&cluster.plan("a")).starts_with("hold 10.0.0.0/27 for node a again"));
}
