//! Claims that overlap, and blocks that may be in use.

use super::*;

#[test]
fn of_two_claims_of_one_node_that_overlap_the_one_that_stands_stays() {
    for (standing, other) in [("10.0.0.0/26", "10.0.0.16/28"), ("10.0.0.16/28", "10.0.0.0/26")] {
        let cluster = |state| {
            Cluster::of(&format!(
                "pool p 10.0.0.0/24 28
                 node n nu
                 ciliumnode n @60 {standing}
                 claim {standing} n nu Held @40
                 claim {other} n nu {state} @50"
            ))
        };
        cluster("Held").expect("n", &format!("release {other} of node n (Unused)"));
        // Nothing of its own stands there as of a version later than the move.
        cluster("Releasing/Unused").expect("n", &format!("free {other}, which was node n's"));
    }
}

#[test]
fn of_two_claims_that_overlap_the_one_that_stands_stays() {
    // Safety rule 2, with a pool made again with another block size.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 27\nnode a 1\nnode b 1\n\
         ciliumnode a @50 10.0.0.16/28\nclaim 10.0.0.16/28 a 1 Held @40\n\
         ciliumnode b @51\nclaim 10.0.0.0/27 b 1 Held @45",
    );
    cluster.expect("a", "finding: Overlap");
    cluster.expect("b", "release 10.0.0.0/27 of node b (Unused)");
    cluster.settle(&Target::Claim("10.0.0.0/27".parse().unwrap()), Seen::Nothing);
    cluster.observe("claim 10.0.0.0/27 b 1 Releasing/Unused @110");
    // The proof that it never stood is a version later than the move.
    cluster.expect("b", "make a later version of ciliumnode b");
    cluster.settle(&Target::CiliumNode("b".into()), Seen::Nothing);
    cluster.observe("ciliumnode b @112");
    cluster.expect("b", "free 10.0.0.0/27, which was node b's");
}

#[test]
fn an_unused_claim_that_is_found_standing_is_held_again() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Releasing/Unused @40",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn a_claim_that_may_have_stood_on_an_earlier_ciliumnode_is_never_called_unused() {
    // Its first set can't be completed, for the pool has no more and a block of two starts no agent.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/31 31\nnode a 1\nciliumnode a @50 recreated\nclaim 10.0.0.0/31 a 1 Held @40",
    );
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
    cluster.pass(30);
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
}

#[test]
fn a_claim_that_may_have_stood_on_an_earlier_ciliumnode_gives_way_to_none() {
    let overlap = |of_a: &str, of_b: &str| {
        Cluster::of(&format!(
            "pool p 10.0.0.0/26 27\nnode a 1\nnode b 1\n{of_a}\nclaim 10.0.0.16/28 a 1 Held @40\n\
             {of_b}\nclaim 10.0.0.0/27 b 1 Held @45"
        ))
    };
    // By its name it would have to. Until it is published, its node has nothing.
    let mut cluster = overlap("ciliumnode a @50 recreated", "ciliumnode b @51");
    cluster.expect("a", "claim 10.0.0.32/27 of pool p for node a; finding: Overlap");
    cluster.expect("b", "release 10.0.0.0/27 of node b (Unused)");
    // A CiliumNode that is away tells no more than a young one.
    let mut cluster = overlap("", "ciliumnode b @51");
    cluster.expect("a", "waits: it has no CiliumNode");
    cluster.expect("b", "release 10.0.0.0/27 of node b (Unused)");
    // Where either may be in use none moves.
    let mut cluster = overlap("ciliumnode a @50 recreated", "ciliumnode b @51 recreated");
    cluster.expect("a", "claim 10.0.0.32/27 of pool p for node a; finding: Overlap");
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block; finding: Overlap");
    // A replica that had not seen it standing has begun to give it back.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 recreated\nclaim 10.0.0.0/28 a 1 Releasing/Unused @40",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn a_block_on_which_another_node_has_anything_standing_is_nobodys() {
    // Safety rule 6: a foreign address in the pool's first block, without any claim.
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/27 28\nnode a 1\nciliumnode a @50\nciliumnode x @51 10.0.0.3/32");
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
}

#[test]
fn who_was_overlapped_looks_again_when_the_other_is_gone() {
    // By a claim.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 27\nnode a 1\nciliumnode a @50 10.0.0.16/28\nclaim 10.0.0.16/28 a 1 Held @40\n\
         claim 10.0.0.0/27 gone 1 Cooling/NodeGone @45",
    );
    cluster.drain();
    cluster.delete(Kind::Claim, "10.0.0.0-27", 110);
    assert_eq!(cluster.drain(), ["a", "gone"]);
    // By what stands on another node.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 27\nnode a 1\nciliumnode a @50 10.0.0.16/28\nclaim 10.0.0.16/28 a 1 Held @40\n\
         ciliumnode gone @51 10.0.0.0/27",
    );
    cluster.drain();
    cluster.delete(Kind::CiliumNode, "gone", 110);
    assert!(cluster.drain().contains(&"a".to_owned()));
}
