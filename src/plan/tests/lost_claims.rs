//! Tests of lost claims, which are deleted without us, and of answers that come late.

use super::*;

#[test]
fn a_lost_claim_is_recreated_for_the_same_node_and_for_nobody_else() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\nnode a 1\njoined b @51\nciliumnode a @50 10.0.0.0/28\n\
         claim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

#[test]
fn a_claim_that_is_lost_while_its_ciliumnode_is_away_still_belongs_to_its_node() {
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/28 28\nnode a 1\njoined b @51\nclaim 10.0.0.0/28 a 1 Held @40");
    cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    // Only this process knows of it. After a restart the block would be free.
    let plan = cluster.plan("a");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    // The agent may be using the block. This CiliumNode does not show that: the claim was not created for it.
    let [Request::Write(Write::CreateClaim(again))] = plan.requests() else { panic!("{plan:?}") };
    assert_eq!(again.created_for, Some("cn-a".into()));
}

/// Its machine may go on with the block, whatever its Node says. This process never knew that Node otherwise.
#[test]
fn a_claim_that_is_lost_while_its_node_cannot_be_read_still_belongs_to_it() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\nunreadable Node a @42\njoined b @51\nciliumnode a @50 10.0.0.0/28\n\
         claim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
    // Somebody takes it off.
    cluster.observe("ciliumnode a @120");
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    cluster.expect("a", "waits: its Node is unreadable");
    cluster.delete(Kind::Node, "a", 121);
    cluster.expect("b", "claim 10.0.0.0/28 of pool p for node b");
}

/// Once the CiliumNode goes as well, nothing but the claim keeps the block from others until its machine is off.
#[test]
fn a_lost_claim_is_recreated_for_a_node_that_is_gone_while_its_ciliumnode_has_the_block() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\njoined b @51\nciliumnode a @50 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
    let plan = cluster.plan("a");
    let [Request::Write(Write::CreateClaim(again))] = plan.requests() else { panic!("{plan:?}") };
    assert_eq!(again.node_uid, "1".into());
    // A later version of the CiliumNode settles nothing, because that has the block.
    cluster.observe("ciliumnode a @120 10.0.0.0/28");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    cluster.carried_out("claim 10.0.0.0/28 a 1 Held @121");
    cluster.delete(Kind::CiliumNode, "a", 122);
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    cluster.expect("a", "read Node a");
}

#[test]
fn a_first_claim_names_the_ciliumnode_that_it_is_created_for() {
    let cluster = Cluster::of("pool p 10.0.0.0/28 28\njoined a @50");
    let plan = cluster.plan("a");
    let [Request::Write(Write::CreateClaim(first))] = plan.requests() else { panic!("{plan:?}") };
    assert_eq!(first.created_for, Some("cn-a".into()));
}

#[test]
fn a_claim_that_is_lost_with_its_node_is_free_when_a_later_version_shows_nothing() {
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/28 28\njoined b @51\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40");
    // A list does not show it: nobody saw in which state it was deleted.
    cluster.world.observe(Observation::Listed(Listing {
        kind: Kind::Claim,
        at_least: AnyRevision::of(Kind::Claim, 120),
        at_most: AnyRevision::of(Kind::Claim, 121),
        objects: Vec::new(),
    }));
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    cluster.expect("a", "read CiliumNode a");
    let absent = Seen::Absent(Revision::of(122));
    cluster.settle(&Target::CiliumNode("a".into()), absent);
    cluster.expect("b", "claim 10.0.0.0/28 of pool p for node b");
}

#[test]
fn an_answer_about_a_deleted_claim_does_not_touch_the_one_after_it() {
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/28 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40\njoined b @51");
    cluster.pass(4000);
    cluster.expect("a", "waits: it has no Node");
    cluster.pass(30);
    cluster.confirm_loss("a");
    let deletion = cluster.plan("a").requests()[0].clone();
    cluster.expect("a", "free 10.0.0.0/28 of node a");
    // The watch is faster than the answer.
    cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    let key = Target::Claim("10.0.0.0/28".parse().unwrap());
    cluster.settle(&key, Seen::Deleted("uid-10.0.0.0/28".into()));
    cluster.expect("b", "claim 10.0.0.0/28 of pool p for node b");
    let Object::Claim(mut created) = object("claim 10.0.0.0/28 b 1 Held @111") else { unreachable!() };
    created.uid = "another".into();
    cluster.settle(&key, Seen::Claim(Box::new(created)));
    cluster.finish(deletion, Seen::Deleted("uid-10.0.0.0/28".into()));
    assert!(cluster.world.claim("10.0.0.0/28".parse().unwrap()).is_some());
}

#[test]
fn nothing_is_published_while_a_lost_claim_is_not_recreated() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 10.0.0.16/28");
    cluster.delete(Kind::CiliumNode, "a", 109);
    cluster.delete(Kind::Claim, "10.0.0.16-28", 110);
    // The agent that recreated it restores the pods of both blocks as soon as it finds any address.
    cluster.observe("ciliumnode a @120 recreated");
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
    cluster.expect("a", "waits: a request for it is in flight");
    cluster.observe("claim 10.0.0.16/28 a 1 Held @121");
    cluster.settle(&Target::Claim("10.0.0.16/28".parse().unwrap()), Seen::Nothing);
    cluster.expect("a", "publish [10.0.0.0/28 10.0.0.16/28] and 32 addresses on ciliumnode a");
}

/// Another replica has deleted it meanwhile, on the same proof. To recreate it would take a block that nobody needs.
#[test]
fn a_claim_that_was_leaving_is_not_recreated() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\nnode a 1\njoined b @51\nciliumnode a @50\n\
         claim 10.0.0.0/28 a 1 Cooling/Reclaimed @40",
    );
    cluster.drain();
    cluster.pass(3600);
    cluster.expect("a", "free 10.0.0.0/28 of node a");
    // The read after a conflict does not say in which state it was deleted.
    let key = Target::Claim("10.0.0.0/28".parse().unwrap());
    cluster.settle(&key, Seen::Absent(Revision::of(110)));
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    cluster.expect("a", "touch ciliumnode a to get a later version");
    cluster.carried_out("ciliumnode a @112");
    cluster.expect("b", "claim 10.0.0.0/28 of pool p for node b");
}

/// Its Node was gone for a while. Another replica, which has seen that, may have let the block cool and freed it.
#[test]
fn a_claim_for_an_earlier_node_of_which_the_last_version_is_not_known_is_not_recreated() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\nnode a 2\njoined b @51\nciliumnode a @50\nclaim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
    let key = Target::Claim("10.0.0.0/28".parse().unwrap());
    cluster.settle(&key, Seen::Absent(Revision::of(110)));
    cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
    cluster.pass(60);
    cluster.expect("a", "touch ciliumnode a to get a later version");
    cluster.carried_out("ciliumnode a @112");
    cluster.expect("b", "claim 10.0.0.0/28 of pool p for node b");
}

/// A patch that publishes it may be on its way, decided before the claim was released.
#[test]
fn a_claim_that_somebody_removes_while_it_is_given_up_is_recreated() {
    for left in ["", " deleting", " deleting finalizer=theirs"] {
        let mut cluster = Cluster::of(&format!(
            "pool p 10.0.0.0/28 28\nnode a 1\njoined b @51\nciliumnode a @50\n\
             claim 10.0.0.0/28 a 1 Releasing/Unused @60{left}"
        ));
        cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
        cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
        cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    }
}

/// Without it `kubectl delete` would end a claim at once, whatever its node does.
#[test]
fn a_claim_that_lost_our_finalizer_gets_it_back_in_whatever_state_it_rests() {
    let restored = "restore the finalizer of the claim of 10.0.0.0/28 of node a";
    let held = "pool p 10.0.0.0/26 28\nnode a 1\nciliumnode a @50 10.0.0.0/28 used=3\nclaim 10.0.0.0/28 a 1 Held @40";
    let mut cluster = Cluster::of(&format!("{held} finalizer=theirs"));
    cluster.expect("a", restored);
    let target = Target::Claim("10.0.0.0/28".parse().unwrap());
    let Object::Claim(kept) = object("claim 10.0.0.0/28 a 1 Held @110") else { unreachable!() };
    cluster.settle(&target, Seen::Claim(Box::new(kept)));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    cluster.expect("a", "nothing");
    let cooling = "pool p 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40";
    Cluster::of(&format!("{cooling} finalizer=theirs")).expect("a", restored);
    // The server lets none be added to an object that is being deleted.
    Cluster::of(&format!("{held} finalizer=theirs deleting")).expect("a", "finding: ClaimBeingDeleted");
    // What the node needs goes first: somebody may take the finalizer off again and again.
    let mut full = Cluster::of(&format!("{held} finalizer=theirs").replace("used=3", "used=15"));
    full.expect("a", "claim 10.0.0.16/28 of pool p for node a");
}

/// The agent keeps using the block while its CiliumNode is absent. A claim that was unreadable can't be recreated.
#[test]
fn an_unreadable_claim_that_is_deleted_keeps_its_block_for_the_node_that_it_named() {
    let lost = || {
        let mut cluster = Cluster::of(
            "pool p 10.0.0.0/28 28\nnode a 1\njoined b @51\n\
             unreadable NodeIPBlock 10.0.0.0-28 of=a 10.0.0.0/28 @60",
        );
        cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
        cluster.observe("ciliumnode b @111");
        cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
        cluster
    };
    let mut recreated = lost();
    recreated.observe("ciliumnode a @112 recreated");
    recreated.expect("b", "unmet: no pool of the node has a free ipv4 block");
    // Its CiliumNode says what it was.
    let mut carried = lost();
    carried.observe("ciliumnode a @112 10.0.0.0/28");
    carried.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    let mut gone = lost();
    gone.delete(Kind::Node, "a", 5);
    gone.expect("b", "claim 10.0.0.0/28 of pool p for node b");
}

/// It was not on its way out after all: the CiliumNode carries it.
#[test]
fn a_lost_claim_that_was_leaving_and_is_carried_is_recreated() {
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/28 28\njoined a @50\nclaim 10.0.0.0/28 a 1 Cooling/Reclaimed @40");
    cluster.drain();
    cluster.pass(3600);
    cluster.expect("a", "free 10.0.0.0/28 of node a");
    let key = Target::Claim("10.0.0.0/28".parse().unwrap());
    cluster.settle(&key, Seen::Absent(Revision::of(110)));
    cluster.observe("ciliumnode a @112 10.0.0.0/28");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}
