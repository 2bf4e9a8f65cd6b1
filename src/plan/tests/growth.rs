//! Tests of growth: what a node asks for, and what it gets from which pool.

use super::*;
use crate::model::leadership::Leadership;
use crate::model::request::Read;
use crate::view::overview::overview;
use crate::view::{agents, snapshot, tally};

const AT_LIMIT: &str = "unmet: the node has the maximum of ipv4 blocks or addresses that its first pool \
                        allows; finding: NodeAtLimit";

#[test]
fn a_first_set_that_cannot_be_completed_is_kept_and_named() {
    // An agent can't start with two addresses, and the pool has no other block.
    let mut cluster = Cluster::of("pool p 10.0.0.0/31 31\njoined a @50\nclaim 10.0.0.0/31 a 1 Held @40");
    let kept = "unmet: no pool of the node has a free ipv4 block; finding: Blocked";
    cluster.expect_for(3600, "a", kept);
    assert_eq!(
        cluster.plan("a").findings[0].message,
        "its agent can't start with the blocks that the node holds (10.0.0.0-31), and it gets no more: no pool \
         of the node has a free ipv4 block; if it is not needed, give it up: `kubectl delete nib 10.0.0.0-31`"
    );
    // No pool selects it any more.
    let mut without = Cluster::of("joined a @50\nclaim 10.0.0.0/31 a 1 Held @40");
    without.expect("a", "finding: NoPool; finding: Blocked; waits: its first publication is incomplete");
    // A person gives it up.
    cluster.observe("claim 10.0.0.0/31 a 1 Held deleting @110");
    cluster.expect("a", "read Node a; finding: ClaimBeingDeleted");
    cluster.settle(&Target::Node("a".into()), found(Presence::Is("1".into()), 110));
    cluster.expect("a", "release 10.0.0.0/31 of node a (Unused); finding: ClaimBeingDeleted");
}

/// Of equal priority, the pool with the first name is asked first.
#[test]
fn a_pool_that_can_give_no_block_sizes_no_node() {
    let served = "joined a @50 10.0.0.0/28 used=14\n";
    for closed in [
        "pool a 10.1.0.0/24 28 maxBlocks=1 deleting",
        "pool a 10.1.0.0/24 28 maxBlocks=1 cordoned",
        "pool a 10.1.0.0/24 28 maxBlocks=1 invalid",
        "pool a none 28 maxBlocks=1",
        "pool a 10.1.0.0/29 28 maxBlocks=1",
        "pool a 10.0.0.0/26 28 maxBlocks=1 younger",
        // Too wide for the mode.
        "pool a 10.8.0.0/16 21 maxBlocks=1",
    ] {
        let mut cluster = Cluster::of(&format!("{served}{closed}\npool p 10.0.0.0/26 28"));
        cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
        let wants_more = closed.replace("maxBlocks=1", "freeBelow=15");
        let satisfied = served.replace("used=14", "used=3");
        Cluster::of(&format!("{satisfied}{wants_more}\npool p 10.0.0.0/26 28")).expect("a", "nothing");
    }
}

#[test]
fn a_pool_that_is_merely_full_still_sizes_its_nodes() {
    let mut cluster = Cluster::of(
        "joined a @50 10.0.0.0/28 used=14\nnode b 1\npool a 10.1.0.0/28 28 maxBlocks=1\n\
         claim 10.1.0.0/28 b 1 Held @41\npool p 10.0.0.0/26 28",
    );
    cluster.expect("a", AT_LIMIT);
}

/// Its limits would only be blamed for what their pool can't give anyway.
#[test]
fn where_no_pool_can_give_a_block_a_full_node_waits_for_capacity_whatever_the_limits() {
    for closed in ["deleting", "cordoned"] {
        let mut cluster = Cluster::of(&format!(
            "joined a @50 10.0.0.0/28 used=14\npool p 10.0.0.0/26 28 maxBlocks=1 {closed}"
        ));
        let unmet = "unmet: no pool of the node has a free ipv4 block";
        let also = if closed == "deleting" { "; finding: DrainWaits" } else { "" };
        cluster.expect("a", &format!("{unmet}{also}"));
    }
}

#[test]
fn a_node_that_cannot_start_comes_before_the_headroom_of_another() {
    let cluster = |more: &str| {
        Cluster::of(&format!("pool p 10.0.0.0/27 28\njoined a @50 10.0.0.0/28 used=14\njoined b @51\n{more}"))
    };
    let mut scarce = cluster("");
    assert_eq!(scarce.drain(), ["b", "a"]);
    let claims: Vec<String> = scarce.in_flight.iter().map(ToString::to_string).collect();
    assert_eq!(claims, ["claim 10.0.0.16/28 of pool p for node b"]);
    // In the middle of its first grant: two addresses are not enough.
    let mut starting = cluster("joined c @52\nclaim 10.1.0.0/31 c 1 Held @41");
    assert_eq!(starting.drain(), ["c", "b", "a"]);
}

#[test]
fn a_node_that_does_not_run_linux_gets_nothing_and_is_counted_apart() {
    let windows = "label=kubernetes.io/os=windows";
    let mut cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/28 28\nnode a 1 {windows}\nciliumnode a @50\nnode b 1 {windows}\n\
         node c 1 label=kubernetes.io/os=linux\nciliumnode c @51"
    ));
    let waits = format!("waits: {}", Wait::Linux);
    cluster.expect("a", &waits);
    // With --create-ciliumnodes too.
    let policy = Policy { cilium_nodes: CiliumNodeOrigin::Controller, ..Policy::DEFAULT };
    assert_eq!(rendered(&node(&cluster.world, &"b".into(), policy, cluster.now)), waits);
    cluster.expect("c", "claim 10.0.0.0/28 of pool p for node c");
    let counts = tally::of(&cluster.world, &"p".into()).nodes;
    assert_eq!((counts.selected, counts.served, counts.waiting), (1, 0, 0));
    let overview = overview(
        &cluster.world,
        &[cluster.plan("a"), cluster.plan("b"), cluster.plan("c")],
        cluster.now.wall,
    );
    assert_eq!((overview.nodes.all, overview.nodes.not_linux), (3, 2));
    assert_eq!(overview.problems, []);
    // The label corrects itself.
    cluster.observe("node a 1 label=kubernetes.io/os=linux @101");
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
}

#[test]
fn nodes_without_an_agent_for_an_hour_are_one_finding() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/26 28\njoined a @50 10.0.0.0/28 used=1\njoined b @51 10.0.0.16/28 used=1\n\
         joined c @52 10.0.0.32/28 used=1\nagent c 1.20.2\njoined d @53",
    );
    cluster.drain();
    cluster.pass(3599);
    cluster.drain();
    assert_eq!(agents::missing(&cluster.world, cluster.now), None);
    cluster.pass(1);
    assert_eq!(cluster.drain(), ["a", "b"], "time alone wakes them");
    let finding = agents::missing(&cluster.world, cluster.now).unwrap();
    let begins = "AgentMissing Node a: 2 nodes with blocks had no Pod of Cilium's agent for an hour: a, b; ";
    assert!(finding.to_string().starts_with(begins), "{finding}");
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2")));
    cluster.drain();
    let finding = agents::missing(&cluster.world, cluster.now).unwrap();
    assert!(finding.to_string().starts_with("AgentMissing Node b: 1 node with"), "{finding}");
}

/// What the node waits for, and for how long, does not change because something else comes first.
#[test]
fn a_plan_that_ends_early_forgets_nothing() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/31 31\njoined a @50\nclaim 10.0.0.0/31 a 1 Held @40");
    let waiting = |cluster: &Cluster| tally::of(&cluster.world, &"p".into()).nodes.waiting;
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block; finding: Blocked");
    assert_eq!(waiting(&cluster), 1);
    cluster.pass(20);
    let request = Read::ClaimsOf("a".into()).into();
    let answer = Answer::Refused("busy".to_owned(), Some(Duration::from_secs(5)));
    cluster.world.finish(Outcome { request, answer, seen: Seen::Nothing }, cluster.now);
    cluster.expect("a", "waits: its last requests failed; the next one comes after a pause");
    assert_eq!(waiting(&cluster), 1);
    cluster.pass(10);
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block; finding: Blocked");
}

#[test]
fn one_change_of_use_alone_leads_to_growth() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\njoined a @50 10.0.0.0/28 used=3\nagent a 1.20.2");
    cluster.expect("a", "nothing");
    assert_eq!(cluster.world.next_wake(), None, "no timer looks for work");
    cluster.observe("ciliumnode a @110 10.0.0.0/28 used=14");
    assert_eq!(cluster.world.next_node(), Some(&"a".into()));
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
}

/// Other controllers rewrite a whole pool when its spec is wrong. Here nothing is taken off, nothing is given out, and
/// the pool keeps its ranges.
#[test]
fn a_pool_that_turns_invalid_loses_nothing_to_a_younger_one() {
    let text = |pool: &str| {
        format!(
            "{pool}\npool q 10.0.0.0/27 28 younger\njoined a @50 10.0.0.0/28 used=3\njoined b @51\n\
             joined c @52"
        )
    };
    let mut turned = Cluster::of(&text("pool p 10.0.0.0/27 28"));
    turned.observe("pool p 10.0.0.0/27 28 invalid @110");
    let restarted = Cluster::of(&text("pool p 10.0.0.0/27 28 invalid @110"));
    for mut cluster in [turned, restarted] {
        cluster.expect("a", "nothing");
        cluster.expect("b", "unmet: no pool of the node has a free ipv4 block");
        cluster.observe("pool p 10.0.0.0/27 28 @120");
        cluster.expect("a", "nothing");
        cluster.expect("c", "claim 10.0.0.16/28 of pool p for node c");
    }
}

#[test]
fn a_pool_that_turns_invalid_takes_nothing_from_an_older_one() {
    Cluster::of("pool p 10.0.0.0/27 28\npool q 10.0.0.0/26 28 younger invalid\njoined a @50")
        .expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

#[test]
fn a_lost_claim_in_the_range_of_an_invalid_pool_is_recreated_when_that_can_be_read() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/27 28 invalid\npool q 10.0.0.0/27 28 younger\nnode a 1\nciliumnode a @50 10.0.0.0/28",
    );
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
    cluster.observe("pool p 10.0.0.0/27 28 @110");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

#[test]
fn a_block_cools_until_its_pool_can_be_read_or_is_deleted() {
    for changed in ["pool p 10.0.0.0/27 28 @110", "pool p 10.0.0.0/27 28 invalid deleting @110"] {
        let mut cluster =
            Cluster::of("pool p 10.0.0.0/27 28 invalid\nclaim 10.0.0.0/28 a 1 Cooling/NodeGone @40");
        cluster.pass(1_000_000);
        cluster.expect_for(30, "a", "waits: it has no Node");
        cluster.drain();
        cluster.observe(changed);
        assert_eq!(cluster.world.next_node(), Some(&NodeName::from("a")), "{changed}");
        cluster.confirm_loss("a");
        cluster.expect("a", "free 10.0.0.0/28 of node a");
    }
}

#[test]
fn a_node_does_not_call_itself_at_its_limit_while_a_block_that_fits_may_become_free() {
    // None of the free blocks fits, and the blocks that would fit are all taken.
    let mut cluster = Cluster::of(
        "pool large 10.1.0.0/16 22\npool small 10.0.0.0/28 29\njoined a @50 10.0.0.0/29 used=8\n\
         claim 10.0.0.8/29 b 1 Cooling/NodeGone @41",
    );
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
    cluster.delete(Kind::Claim, "10.0.0.8-29", 110);
    assert!(cluster.drain().contains(&"a".to_owned()), "it is not looked at again");
    let claims: Vec<String> = cluster.in_flight.iter().map(ToString::to_string).collect();
    assert_eq!(claims, ["claim 10.0.0.8/29 of pool small for node a"]);
}

#[test]
fn nodes_are_served_in_the_order_in_which_they_began_to_wait() {
    let block = |number: u32| format!("claim 10.0.0.{}/28 gone 1 Cooling/NodeGone @4{number}", 16 * number);
    let pool = format!("pool p 10.0.0.0/26 28 maxBlocks=2\n{}\n{}", block(0), block(1));
    let full = "joined a @50 10.0.0.32/28 used=13\nclaim 10.0.0.48/28 gone 1 Cooling/NodeGone @44";
    let free = |cluster: &mut Cluster| {
        // A standby sees the blocks, and claims none.
        cluster.world.set_leadership(Leadership::StandsBy);
        for (place, revision) in [(0, 120), (16, 121), (48, 122)] {
            cluster.delete(Kind::Claim, &format!("10.0.0.{place}-28"), revision);
        }
        cluster.drain();
        assert!(cluster.in_flight.is_empty());
        cluster.world.set_leadership(Leadership::Leads);
        cluster.drain();
        let claims: Vec<String> = cluster.in_flight.iter().map(ToString::to_string).collect();
        claims.join("; ").replace(" of pool p for node", "")
    };
    let expected = "claim 10.0.0.0/28 z; claim 10.0.0.16/28 b; claim 10.0.0.48/28 a";

    // Node `a` has a block and waits longest, for growth.
    let mut cluster = Cluster::of(&format!("{pool}\n{full}"));
    cluster.drain();
    for (node, revision) in [("z", 101), ("b", 103)] {
        cluster.pass(1);
        cluster.observe(&format!("node {node} 1 created=1 @{revision}"));
        cluster.observe(&format!("ciliumnode {node} @{}", revision + 1));
        cluster.drain();
    }
    // News does not move a node in the order.
    cluster.observe("node z 1 created=1 label=a=b @110");
    cluster.drain();
    assert_eq!(free(&mut cluster), expected);

    // A restarted controller has seen no node wait.
    let nodes = "node b 1 created=20\nciliumnode b @51\nnode z 1 created=10\nciliumnode z @52";
    let mut restarted = Cluster::of(&format!("{pool}\n{full}\n{nodes}"));
    restarted.drain();
    assert_eq!(free(&mut restarted), expected);
}

#[test]
fn one_free_block_is_decided_for_once_however_many_nodes_wait() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\njoined a @50\njoined b @51\njoined c @52\n\
         claim 10.0.0.0/28 gone 1 Cooling/NodeGone @40",
    );
    assert_eq!(cluster.drain(), ["gone", "a", "b", "c"]);
    cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
    assert_eq!(cluster.drain(), ["a", "gone"]);
    // Its claim was refused: the block is offered to all again.
    cluster.settle(&Target::Claim("10.0.0.0/28".parse().unwrap()), Seen::Nothing);
    assert_eq!(cluster.drain(), ["a"]);
}

#[test]
fn a_free_block_that_one_node_does_not_take_is_offered_to_the_next() {
    // The first node has no pool of the other family, and without that no use for the block.
    let mut cluster = Cluster::serving(
        "crd v4 v6",
        "pool p 10.0.0.0/28 28\npool q fd00::/124 124 zone=x\njoined a @50\nnode b 1 zone=x\n\
         node c 1 zone=x\nciliumnode b @51\nciliumnode c @52\nclaim 10.0.0.0/28 gone 1 Cooling/NodeGone @40",
    );
    cluster.drain();
    cluster.delete(Kind::Claim, "10.0.0.0-28", 110);
    assert_eq!(cluster.drain(), ["a", "b", "gone"]);
    let requests: Vec<String> = cluster.in_flight.iter().map(ToString::to_string).collect();
    assert_eq!(requests, ["claim 10.0.0.0/28 of pool p for node b", "claim fd00::/124 of pool q for node b"]);
    // What the second takes the others lack from then on, and are told of as waiting for.
    cluster.pass(1);
    assert_eq!(cluster.drain(), ["a", "c"]);
}

#[test]
fn a_first_grant_is_not_used_up_by_a_block_that_is_too_poor() {
    // The first free block has an address of the node itself, and an agent can't start with three.
    for limit in ["maxBlocks=1", "maxAddresses=5"] {
        let mut cluster = Cluster::of(&format!(
            "pool p 10.0.0.0/28 30 {limit}\nnode a 1 own=10.0.0.0/32\nciliumnode a @50"
        ));
        cluster.expect("a", "claim 10.0.0.8/30 of pool p for node a");
    }
}

#[test]
fn a_node_is_at_its_limit_whatever_is_withheld_of_the_next_block() {
    // Of the first free block only two addresses are left, and then the node would have six.
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 30 maxAddresses=7\njoined a @50 10.0.0.0/30 used=4\nnode b 1 own=10.0.0.4/31",
    );
    cluster.expect("a", AT_LIMIT);
}

/// The first of the free blocks that `p` has offers one address only, its second all of its two, and no third is
/// allowed.
const POOR: &str = "pool p 10.0.0.0/28 31 maxBlocks=2\nnode b 1 own=10.0.0.4/32\njoined a @50\n\
                    claim 10.0.0.0/31 x 1 Cooling/NodeGone @40\nclaim 10.0.0.2/31 x 1 Cooling/NodeGone @41";

#[test]
fn a_pool_that_gives_nothing_makes_up_for_no_poor_block() {
    let expected = "claim 10.0.0.8/31 of pool p for node a; claim 10.0.0.10/31 of pool p for node a";
    Cluster::of(POOR).expect("a", expected);
    Cluster::of(&format!("{POOR}\npool q 10.9.0.0/28 30 cordoned")).expect("a", expected);
}

#[test]
fn a_node_that_poor_blocks_keep_from_starting_gets_richer_ones_when_they_are_free() {
    // The large block of `q` would make up for the poor one.
    let mut cluster =
        Cluster::of(&format!("{POOR}\npool q 10.9.0.0/30 30\nclaim 10.9.0.0/30 x 1 Cooling/NodeGone @42"));
    cluster.drain();
    assert_eq!(cluster.in_flight, []);
    cluster.delete(Kind::Claim, "10.0.0.0-31", 110);
    cluster.delete(Kind::Claim, "10.0.0.2-31", 111);
    assert!(cluster.drain().contains(&"a".to_owned()));
    let claims = |request: &&Request| matches!(request, Request::Write(Write::CreateClaim(_)));
    assert_eq!(cluster.in_flight.iter().filter(claims).count(), 2);
}

#[test]
fn a_full_node_that_no_pool_selects_says_so() {
    let holding = |used: u32| Cluster::of(&format!("joined a @50 10.0.0.0/28 used={used}"));
    holding(4).expect("a", "nothing");
    holding(15).expect("a", "finding: NoPool");
    Cluster::of("joined a @50").expect("a", "finding: NoPool");
    Cluster::of("node a 1").expect("a", "waits: it has no CiliumNode");
    // Somebody else gives it addresses.
    Cluster::of("node a 1\nciliumnode a @50 10.9.0.0/24").expect("a", "nothing");
}

#[test]
fn what_a_pool_has_to_say_of_itself_fits_the_api() {
    let mut pool = object("pool p 10.0.0.0/24 28 invalid");
    let Object::Pool(PoolObject { pool: Err(invalid), .. }) = &mut pool else { panic!("{pool:?}") };
    invalid.findings = vec!["é".repeat(1000); 64];
    let Object::Pool(pool) = pool else { unreachable!() };
    let status = conditions::status(&Cluster::of("").world, &pool);
    let lengths = status.conditions.values().map(|condition| condition.message.chars().count());
    assert_eq!(lengths.max(), Some(32_768));
}

#[test]
fn free_addresses_are_those_that_are_offered() {
    let free = |cluster: &mut Cluster| {
        let due = cluster.world.next_pool().expect("its status may have changed").clone();
        cluster.world.begin_status(&due, &PoolPlan::UpToDate, cluster.now);
        assert_eq!(cluster.world.next_pool(), None);
        cluster.status(due.as_str()).families[&Family::V4].addresses_free
    };
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28 exclude=10.0.0.16/29 zone=elsewhere");
    assert_eq!(free(&mut cluster), 3 * 16 + 8);
    // The address of a node is never offered, whichever pool selects the node.
    for (address, expected) in [("10.0.0.1", 3 * 16 + 7), ("10.0.0.17", 3 * 16 + 8)] {
        cluster.observe(&format!("node a 1 own={address}/32 @120"));
        assert_eq!(free(&mut cluster), expected, "{address}");
    }
    cluster.observe("node a 1 own=10.0.0.2/32 @121");
    assert_eq!(free(&mut cluster), 3 * 16 + 7);
    cluster.delete(Kind::Node, "a", 122);
    assert_eq!(free(&mut cluster), 3 * 16 + 8);
}

/// Where the agents don't create their CiliumNodes, a node that no pool selects waits for nothing else.
#[test]
fn a_node_whose_ciliumnode_is_not_created_because_no_pool_selects_it_says_so() {
    let plan = |text: &str, cilium_nodes: CiliumNodeOrigin| {
        let cluster = Cluster::of(text);
        let policy = Policy { cilium_nodes, ..Policy::DEFAULT };
        rendered(&node(&cluster.world, &"a".into(), policy, cluster.now))
    };
    let unselected = "pool p 10.0.0.0/24 28 zone=x\nnode a 1";
    let silent = "waits: it has no CiliumNode";
    let reported = "finding: NoPool; waits: it has no CiliumNode";
    assert_eq!(plan(unselected, CiliumNodeOrigin::Controller), reported);
    assert_eq!(plan(&format!("{unselected} deleting"), CiliumNodeOrigin::Controller), silent);
    assert_eq!(plan(unselected, CiliumNodeOrigin::Agent), silent);
}

/// A pool that gives out blocks of one family only has nothing to say about how many a node gets of the other.
#[test]
fn each_family_is_sized_by_the_first_pool_that_gives_blocks_of_it() {
    let full = "joined a @50 10.0.0.0/28 fd00::/124 used=30\n";
    let mut cluster = Cluster::serving(
        "crd v4 v6",
        &format!("{full}pool a6 fd00::/64 124 maxBlocks=1\npool b4 10.0.0.0/24 28\n"),
    );
    cluster.expect(
        "a",
        "claim 10.0.0.16/28 of pool b4 for node a; unmet: the node has the maximum of ipv6 blocks or addresses \
         that its first pool allows; finding: NodeAtLimit",
    );
}

/// There may be any number of free blocks in front that no node can use.
#[test]
fn useless_blocks_do_not_hide_the_others() {
    // Each address of the first 4096 belongs to a node.
    let cluster = Cluster::of("pool p 10.0.0.0/19 32\nnode x 1 own=10.0.0.0/20 zone=z\njoined a @50");
    let plan = rendered(&cluster.plan("a"));
    let claims = "claim 10.0.16.0/32 of pool p for node a; claim 10.0.16.1/32 of pool p for node a";
    assert!(plan.starts_with(claims), "{plan}");
}

/// A free block that nobody can use keeps no offer alive.
#[test]
fn a_block_that_is_given_away_is_offered_no_longer_though_useless_ones_are_free() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/27 28\nnode x 1 own=10.0.0.0/28 zone=z\njoined a @50\njoined b @51\njoined c @52\n\
         claim 10.0.0.16/28 gone 1 Cooling/NodeGone @40",
    );
    cluster.drain();
    cluster.delete(Kind::Claim, "10.0.0.16-28", 110);
    assert_eq!(cluster.drain(), ["a", "gone"]);
    let requests: Vec<String> = cluster.in_flight.iter().map(ToString::to_string).collect();
    assert_eq!(requests, ["claim 10.0.0.16/28 of pool p for node a"]);
}

/// Whether it is told of as at its limit or as waiting depends on whether there is a block to bring it there, and every
/// process has to tell the same.
#[test]
fn a_node_that_can_not_start_within_its_limits_looks_again_when_a_block_is_taken() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/31 31 maxBlocks=1\njoined a @50");
    cluster.expect("a", AT_LIMIT);
    cluster.observe("claim 10.0.0.0/31 b 2 Held @101");
    cluster.pass(1);
    assert!(cluster.drain().contains(&"a".to_owned()));
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
}

/// There may be as many of them as nodes.
#[test]
fn a_node_that_can_not_start_within_its_limits_looks_once_per_second() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/29 31 maxBlocks=1\njoined a @50");
    cluster.drain();
    for (second, blocks) in
        [["10.0.0.0/31", "10.0.0.2/31"], ["10.0.0.4/31", "10.0.0.6/31"]].iter().enumerate()
    {
        for block in blocks {
            cluster.observe(&format!("claim {block} b 2 Held @{}", 101 + second));
            let looks = cluster.drain().contains(&"a".to_owned());
            assert!(!looks, "{block}");
        }
        cluster.pass(1);
        assert!(cluster.drain().contains(&"a".to_owned()), "{second}");
    }
}

/// The nodes without addresses of pool `p`, by reason: without a CiliumNode, waiting for a block, pending.
fn without_addresses(text: &str) -> Vec<u64> {
    let mut cluster = Cluster::of(text);
    cluster.drain();
    let snapshot = snapshot::snapshot(&cluster.world, std::iter::empty(), cluster.now.wall);
    snapshot.pools[&"p".into()].without_addresses.values().copied().collect()
}

#[test]
fn a_node_without_addresses_is_counted_apart_from_one_that_wants_growth() {
    let pool = "pool p 10.0.0.0/28 28\n";
    assert_eq!(without_addresses(&format!("{pool}node a 1")), [1, 0, 0]);
    assert_eq!(without_addresses(&format!("{pool}node a 1\nciliumnode a @50")), [0, 0, 1]);
    let full = format!("{pool}claim 10.0.0.0/28 a 1 Held @40\nnode a 1\n");
    let grows = format!("{full}ciliumnode a @50 10.0.0.0/28 used=15\n");
    assert_eq!(without_addresses(&grows), [0, 0, 0], "it wants growth, and has addresses");
    let starts = format!("{grows}node b 1\nciliumnode b @50\n");
    assert_eq!(without_addresses(&starts), [0, 1, 0], "b starts, and no block is free");
    assert_eq!(without_addresses(&format!("{pool}node a 1\nciliumnode a @50 10.9.0.0/24")), [0, 0, 0]);
    assert_eq!(without_addresses(&format!("{pool}node a 1\nunreadable CiliumNode a @50")), [0, 0, 0]);
}
