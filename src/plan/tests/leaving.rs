//! Tests of nodes that leave and return, and of blocks that cool.

use super::*;
use crate::view::orphans;

impl Cluster {
    /// The block of the lost node `a` cools for so many seconds, in which this is decided. Then it is free.
    #[track_caller]
    fn cools_for(&mut self, seconds: u64, expected: &str) {
        self.expect_for(seconds - 1, "a", expected);
        self.pass(1);
        self.confirm_loss("a");
        self.expect("a", "free 10.0.0.0/28 of node a");
    }
}

#[test]
fn a_node_that_is_only_being_deleted_keeps_everything() {
    // Other IPAM controllers release the blocks when `deletionTimestamp` appears, while the machine still runs its
    // pods.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 1 deleting\nciliumnode a @50 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.expect("a", "nothing");
    cluster.delete(Kind::Node, "a", 120);
    cluster.expect("a", "waits: it has no Node");
}

#[test]
fn a_lost_node_gives_up_its_block_by_proof_and_cooling() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Held @40");
    cluster.expect("a", "release 10.0.0.0/28 of node a (NodeGone)");
    cluster.answered_with("claim 10.0.0.0/28 a 1 Releasing/NodeGone @110");
    // The list of CiliumNodes is from before the move.
    cluster.expect("a", "read CiliumNode a");
    cluster.settle(&Target::CiliumNode("a".into()), Seen::Absent(Revision::of(111)));
    cluster.expect("a", "cool 10.0.0.0/28 of node a");
    cluster.carried_out("claim 10.0.0.0/28 a 1 Cooling/NodeGone @120");
    cluster.cools_for(3600, "waits: it has no Node");
}

/// The replica that found it unused may have had an old view of the node, on which another had published the block.
#[test]
fn an_unused_block_of_a_lost_node_cools_like_any_other() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Releasing/Unused @110");
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
    cluster.carried_out("claim 10.0.0.0/28 a 1 Held @120");
    cluster.reads_node(Presence::Gone, 120);
    cluster.expect("a", "release 10.0.0.0/28 of node a (NodeGone)");
    // The same where its CiliumNode is left.
    let text = "pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Releasing/Unused @40\nciliumnode a @50";
    Cluster::of(text).expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn cooling_is_seen_by_this_process_too() {
    // A process with a clock far behind has written `since`.
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40");
    cluster.now.wall = Timestamp::from_second(1_000_000).unwrap();
    cluster.cools_for(30, "waits: it has no Node");
}

#[test]
fn cooling_that_began_in_the_future_is_no_longer_than_what_this_process_sees() {
    const YEAR: u64 = 365 * 24 * 3600;
    let Object::Claim(mut cooling) = object("claim 10.0.0.0/28 a 1 Cooling/NodeGone @110") else {
        unreachable!()
    };
    cooling.since = Timestamp::default() + Duration::from_secs(YEAR);
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28");
    cluster.world.observe(Observation::Applied(Box::new(Object::Claim(cooling))));
    cluster.expect("a", "waits: it has no Node");
    assert_eq!(cluster.world.next_wake(), Some(cluster.now.uptime + Duration::from_secs(3600)));
    cluster.pass(3599);
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(1);
    cluster.confirm_loss("a");
    cluster.expect("a", "free 10.0.0.0/28 of node a");
}

/// The watch of Nodes may be late or broken, and the machine back: with one replica nobody else would hold the claim.
#[test]
fn a_cooled_block_of_a_lost_node_is_free_only_when_a_read_does_not_find_the_node() {
    let cooled = || {
        let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40");
        cluster.expect("a", "waits: it has no Node");
        cluster.pass(3600);
        cluster
    };
    let mut gone = cooled();
    gone.reads_node(Presence::Gone, 40);
    gone.expect("a", "free 10.0.0.0/28 of node a");

    let mut back = cooled();
    back.reads_node(Presence::Is("2".into()), 40);
    back.expect("a", "waits: it has no Node");
    // A watch that lists again tells nothing of a Node that came and went in between.
    back.pass(59);
    back.expect("a", "waits: it has no Node");
    back.pass(1);
    assert_eq!(back.world.next_node(), Some(&NodeName::from("a")), "it is looked at again by itself");
    back.reads_node(Presence::Gone, 40);
    back.expect("a", "free 10.0.0.0/28 of node a");

    // Its agent has created its CiliumNode again.
    let mut registered = cooled();
    registered.observe("ciliumnode a @110");
    registered.expect("a", "waits: it has no Node");
    registered.delete(Kind::CiliumNode, "a", 111);
    registered.expect("a", "read Node a");
}

/// The server refuses the deletion for a while, and the machine may return meanwhile.
#[test]
fn a_refused_deletion_is_repeated_only_within_5_s_of_a_read_that_does_not_find_the_node() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40");
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(3600);
    cluster.reads_node(Presence::Gone, 40);
    cluster.expect("a", "free 10.0.0.0/28 of node a");
    let refuse = |cluster: &mut Cluster| {
        let request = cluster.in_flight.remove(0);
        let answer = Answer::Refused("no endpoints for the webhook".to_owned(), None);
        cluster.world.finish(Outcome { request, answer, seen: Seen::Nothing }, cluster.now);
    };
    refuse(&mut cluster);
    cluster.pass(4);
    cluster.expect("a", "free 10.0.0.0/28 of node a");
    refuse(&mut cluster);
    cluster.pass(1);
    cluster.reads_node(Presence::Is("2".into()), 40);
    cluster.expect("a", "waits: it has no Node");
}

#[test]
fn a_read_from_before_the_end_of_the_cooling_does_not_free_the_block() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1");
    cluster.observe("claim 10.0.0.0/28 a 1 Cooling/NodeGone @110");
    cluster.reads_node(Presence::Gone, 110);
    cluster.expect("a", "waits: it has no CiliumNode");
    // The watch of Nodes is broken, and the machine comes back.
    cluster.pass(3600);
    cluster.reads_node(Presence::Is("1".into()), 110);
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

/// A cooling may be so short that the read that began it still counts when it ends.
#[test]
fn the_read_that_lets_a_block_cool_does_not_free_it() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28 reuseAfterNodeLoss=30\nnode a 1");
    cluster.observe("claim 10.0.0.0/28 a 1 Cooling/NodeGone @110");
    cluster.reads_node(Presence::Gone, 110);
    cluster.delete(Kind::Node, "a", 112);
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(30);
    cluster.reads_node(Presence::Gone, 112);
    cluster.expect("a", "free 10.0.0.0/28 of node a");
}

/// The watch of Nodes was broken, and tells at last that the machine was back while its block cooled. It has gone
/// again, and may run on.
#[test]
fn a_block_whose_node_was_back_cools_for_the_whole_time_again() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40");
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(3600);
    cluster.observe("node a 2");
    cluster.delete(Kind::Node, "a", 112);
    assert_eq!(cluster.world.check(), []);
    cluster.cools_for(3600, "waits: it has no Node");
}

/// What this process has seen of an earlier cooling of the block says nothing about this one, whatever it saw between.
#[test]
fn a_block_that_cools_again_cools_for_the_whole_time() {
    let again = |claim: &str, uid: &str| {
        let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40");
        cluster.expect("a", "waits: it has no Node");
        cluster.pass(3599);
        // A list, or a watch that is behind, shows the next cooling only.
        let Object::Claim(mut claim) = object(claim) else { unreachable!() };
        let node = claim.node.clone();
        (claim.uid, claim.since) = (uid.into(), cluster.now.wall);
        cluster.world.observe(Observation::Applied(Box::new(Object::Claim(claim))));
        assert_eq!(cluster.world.check(), []);
        cluster.expect(node.as_str(), "waits: it has no Node");
        assert_eq!(cluster.world.next_wake(), Some(cluster.now.uptime + Duration::from_secs(3600)), "{uid}");
    };
    again("claim 10.0.0.0/28 a 1 Cooling/NodeGone @110", "uid-10.0.0.0/28");
    again("claim 10.0.0.0/28 a 1 Cooling/NodeGone @110", "another");
    again("claim 10.0.0.0/28 b 1 Cooling/NodeGone @110", "another");
}

/// `kubectl delete` ends no cooling: the machine may only be partitioned, and return with its pods.
#[test]
fn a_cooling_claim_that_somebody_deletes_cools_to_its_end() {
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40 deleting");
    cluster.cools_for(3600, "finding: ClaimBeingDeleted; waits: it has no Node");
}

#[test]
fn a_node_that_returns_holds_all_its_blocks_again_before_any_is_published() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 2\nciliumnode a @50\n\
         claim 10.0.0.0/28 a 1 Releasing/NodeGone @40\nclaim 10.0.0.16/28 a 1 Cooling/NodeGone @41",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again; hold 10.0.0.16/28 for node a again");
    for (cidr, revision) in [("10.0.0.0/28", 110), ("10.0.0.16/28", 111)] {
        cluster.settle(&Target::Claim(cidr.parse().unwrap()), Seen::Nothing);
        cluster.observe(&format!("claim {cidr} a 2 Held @{revision}"));
    }
    cluster.expect("a", "publish [10.0.0.0/28 10.0.0.16/28] and 32 addresses on ciliumnode a");
}

#[test]
fn a_claim_that_nobody_gave_up_is_held_again_and_a_deleted_one_leaves() {
    let claim = "claim 10.0.0.0/28 a 1 Releasing/Unused @40";
    let cluster = |claim: &str| Cluster::of(&format!("pool p 10.0.0.0/26 28\njoined a @50\n{claim}"));
    cluster(claim).expect("a", "hold 10.0.0.0/28 for node a again");
    // A user deletes it, and our finalizer keeps it.
    cluster(&format!("{claim} deleting")).expect("a", "read the pods of node a; finding: ClaimBeingDeleted");
    // Nothing of ours would keep it until it is proven off.
    cluster(&format!("{claim} deleting finalizer=theirs"))
        .expect("a", "hold 10.0.0.0/28 for node a again; finding: ClaimBeingDeleted");
}

/// The server lets no finalizer be added to an object that is being deleted.
#[test]
fn a_node_that_returns_is_served_though_its_cooling_claim_is_being_deleted() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 2\nciliumnode a @50\n\
         claim 10.0.0.0/28 a 1 Cooling/NodeGone @40 deleting finalizer=theirs",
    );
    assert_eq!(cluster.rules("a"), [Rule::Terminating]);
    cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a; finding: ClaimBeingDeleted");
    // If our finalizer is still there, it keeps the claim.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 2\nciliumnode a @50\n\
         claim 10.0.0.0/28 a 1 Cooling/NodeGone @40 deleting",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again; finding: ClaimBeingDeleted");
    // A block that is not proven to be off the node still belongs to it, even if its claim will soon be gone.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\nnode a 2\nciliumnode a @50\n\
         claim 10.0.0.0/28 a 1 Releasing/NodeGone @40 deleting finalizer=theirs",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again; finding: ClaimBeingDeleted");
}

#[test]
fn an_answer_about_a_node_that_the_watch_has_overtaken_does_not_count() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\njoined a @50 10.0.0.0/28");
    cluster.observe("claim 10.0.0.0/28 a 2 Held @110");
    cluster.observe("node a 2 @120");
    cluster.expect("a", "nothing");
    cluster.observe("node a 3 @130");
    cluster.expect("a", "read Node a");
    // The read shows the Node before the last one, and its answer came after the watch had shown that one.
    let before = Presence::Is("2".into());
    let seen = Seen::Node { as_of: Revision::of(110), read_at: Revision::of(125), presence: before };
    cluster.settle(&Target::Node("a".into()), seen);
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn a_replica_that_has_not_heard_of_the_end_of_a_node_leaves_its_claims_alone() {
    let cluster = || {
        let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\njoined a @50 10.0.0.0/28");
        cluster.delete(Kind::CiliumNode, "a", 109);
        cluster.observe("claim 10.0.0.0/28 a 1 Releasing/NodeGone @110");
        cluster.expect("a", "read Node a");
        cluster
    };
    let mut gone = cluster();
    gone.settle(&Target::Node("a".into()), found(Presence::Gone, 110));
    gone.expect("a", "read CiliumNode a");
    let mut there = cluster();
    there.settle(&Target::Node("a".into()), found(Presence::Is("1".into()), 110));
    there.expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn a_replica_that_has_not_heard_of_a_node_does_not_release_its_claims() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28");
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    cluster.reads_node(Presence::Is("1".into()), 110);
    cluster.expect("a", "waits: it has no Node");
    // At last the watch shows the Node, and then its deletion.
    cluster.observe("node a 1");
    cluster.delete(Kind::Node, "a", 111);
    cluster.reads_node(Presence::Gone, 110);
    cluster.expect("a", "release 10.0.0.0/28 of node a (NodeGone)");
}

#[test]
fn a_replica_that_knows_an_earlier_node_of_the_name_does_not_take_its_claims_back() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\njoined a @50");
    cluster.observe("claim 10.0.0.0/28 a 2 Held @110");
    cluster.reads_node(Presence::Is("2".into()), 110);
    assert!(!rendered(&cluster.plan("a")).contains("hold"), "{}", rendered(&cluster.plan("a")));
}

#[test]
fn ciliumnodes_that_outlive_their_nodes_are_one_finding_with_the_command() {
    let orphan = |number: u32| {
        let block = format!("10.0.0.{}/28", 16 * number);
        format!("ciliumnode n{number} @50 {block} used=3\nclaim {block} n{number} 1 Held @40\n")
    };
    let orphans: String = (0..12).map(orphan).collect();
    let mut cluster = Cluster::of(&format!("pool p 10.0.0.0/24 28\n{orphans}ciliumnode other @50"));
    let message = |cluster: &Cluster| {
        orphans::finding(&cluster.world, cluster.now).map(|finding| finding.to_string()).unwrap_or_default()
    };
    cluster.expect("n0", "waits: it has no Node");
    cluster.drain();
    cluster.pass(599);
    cluster.drain();
    assert_eq!(message(&cluster), "");
    cluster.pass(1);
    assert_eq!(cluster.world.next_node(), Some(&NodeName::from("n0")), "it is looked at again by itself");
    cluster.drain();
    assert_eq!(cluster.world.next_wake(), None, "there is nothing to wait for");
    let names = "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 2 more";
    let command = "kubectl delete ciliumnode n0 n1 n2 n3 n4 n5 n6 n7 n8 n9";
    assert_eq!(
        message(&cluster),
        format!(
            "NodeMissing CiliumNode n0: 12 CiliumNodes of deleted Nodes, with 12 blocks that other nodes can't \
             get: {names}; once their machines are off: {command}"
        )
    );
    cluster.observe("node n0 1 @110");
    assert_starts(&message(&cluster), "NodeMissing CiliumNode n1: 11 CiliumNodes");
    for number in 1..12_u32 {
        cluster.delete(Kind::CiliumNode, &format!("n{number}"), 120 + u64::from(number));
    }
    assert_eq!(message(&cluster), "");
}

#[test]
fn a_ciliumnode_that_keeps_a_pool_full_is_reported_sooner() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\nciliumnode a @50 10.0.0.0/28 used=3\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.drain();
    cluster.pass(59);
    cluster.drain();
    assert_eq!(orphans::finding(&cluster.world, cluster.now), None);
    cluster.pass(1);
    assert_eq!(cluster.world.next_node(), Some(&NodeName::from("a")));
    cluster.drain();
    assert!(orphans::finding(&cluster.world, cluster.now).is_some());
}

/// Its machine may route the range to itself as long as the Node exists.
#[test]
fn a_block_that_the_pod_cidrs_of_its_node_name_is_free_for_no_other_node() {
    let text = |has: &str| {
        format!(
            "pool p 10.0.0.0/26 28\nnode a 1{has}\nciliumnode a @90 10.0.0.16/28\nclaim 10.0.0.16/28 a 1 Held @41\n\
             claim 10.0.0.0/28 a 1 Cooling/Unused @42"
        )
    };
    let mut cluster = Cluster::of(&text(" has=10.0.0.0/27"));
    cluster.expect("a", "nothing");
    cluster.pass(3600);
    cluster.expect("a", "nothing");
    cluster.observe("node a 1 @95");
    let plan = cluster.plan("a");
    assert!(rendered(&plan) == "free 10.0.0.0/28 of node a", "{}", rendered(&plan));
}
