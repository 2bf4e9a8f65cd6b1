//! kubernetes: a node gets one block of each family on its Node, whose revisions tell nothing of those of claims.

use super::*;

fn cluster(text: &str) -> Cluster {
    Cluster::serving("kubernetes v4", text)
}

/// The patch that is decided: the uid, the version and the podCIDRs in it.
#[track_caller]
fn published(plan: &NodePlan) -> String {
    let publication = publication(plan);
    let CarrierChange::Kubernetes(cidrs) = &publication.change else { panic!("{publication:?}") };
    let cidrs: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
    format!("{} @{}: {}", publication.uid, publication.revision, cidrs.join(" "))
}

#[test]
fn a_node_gets_one_block_on_its_own_object_and_never_a_second() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28 reclaim=enabled freeBelow=99\nnode a 1 @7");
    cluster.expect_after_claims("a", "claim 10.0.0.0/28 of pool p for node a");
    let Object::Claim(mut created) = object("claim 10.0.0.0/28 a 1 Held @110") else { unreachable!() };
    // What it is created for is the Node here.
    created.created_for = Some("1".into());
    cluster.settle(&Target::Claim(created.cidr), Seen::Claim(Box::new(created)));
    cluster.expect("a", "waits: a request for it is in flight");
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    // The revisions of Nodes are of another store; nothing has to be read before the Node is patched.
    assert_eq!(published(&cluster.plan("a")), "1 @7: 10.0.0.0/28");
    cluster.observe("node a 1 has=10.0.0.0/28 @8");
    cluster.expect_for(3600, "a", "nothing");
}

/// The machine comes back, and goes on with the block that it had. What is published on its new Node stays there.
#[test]
fn a_node_that_returns_holds_its_block_again_also_where_the_watch_of_claims_is_late() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28\nnode a 2 @7");
    cluster.expect("a", "read the claims of node a");
    let Object::Claim(held) = object("claim 10.0.0.32/28 a 1 Held @110") else { unreachable!() };
    let seen = Seen::ClaimsOf { revision: Revision::of(120), claims: vec![held], unreadable: Vec::new() };
    cluster.settle(&Target::ClaimsOf("a".into()), seen);
    cluster.expect("a", "waits: a request for it is in flight");
    cluster.observe("claim 10.0.0.32/28 a 1 Held @110");
    // It is held again if the machine is back, and no other is claimed.
    cluster.expect("a", "read Node a");
}

/// `run --dry-run` says what a node would get, and not that its claims would be read.
#[test]
fn where_all_claims_are_supposed_to_be_known_none_are_read_first() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28\nnode a 1 @7");
    cluster.world.suppose_all_claims_known();
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

/// A read that was sent before the Node was there may have been answered before its machine got a block.
#[test]
fn claims_that_were_read_for_an_earlier_node_are_read_again() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28\nnode a 1 @7");
    cluster.expect("a", "read the claims of node a");
    cluster.delete(Kind::Node, "a", 8);
    cluster.observe("node a 2 @9");
    let seen = Seen::ClaimsOf { revision: Revision::of(120), claims: Vec::new(), unreadable: Vec::new() };
    cluster.settle(&Target::ClaimsOf("a".into()), seen);
    cluster.expect_after_claims("a", "claim 10.0.0.0/28 of pool p for node a");
}

/// The watch of Nodes may be behind the answer.
#[test]
fn the_answer_to_the_patch_shows_the_node() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28\nnode a 1 @7\nclaim 10.0.0.0/28 a 1 Held @90");
    cluster.expect("a", "publish [10.0.0.0/28] and 14 addresses on node a");
    cluster.answered_with("node a 1 has=10.0.0.0/28 @8");
    cluster.expect("a", "nothing");
    cluster.observe("node a 1 @7");
    cluster.expect("a", "nothing");
}

#[test]
fn both_families_come_in_one_patch() {
    let claims = "claim 10.0.0.0/28 a 1 Held @90\nclaim fd00::/124 a 1 Held @91 of=q";
    let pools = "pool p 10.0.0.0/24 28\npool q fd00::/120 124";
    let cluster = Cluster::serving("kubernetes v4 v6", &format!("{pools}\nnode a 1 @7\n{claims}"));
    assert_eq!(published(&cluster.plan("a")), "1 @7: 10.0.0.0/28 fd00::/124");
}

#[test]
fn what_a_node_carries_is_taken_also_without_a_claim() {
    let mut cluster = cluster("pool p 10.0.0.0/27 28\nnode a 1 has=10.0.0.0/28\nnode b 2");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    cluster.expect_after_claims("b", "claim 10.0.0.16/28 of pool p for node b");
    assert_eq!(cluster.world.check(), []);
    cluster.delete(Kind::Node, "a", 120);
    assert_eq!(cluster.world.check(), []);
}

/// In another mode nobody uses them, and kube-controller-manager gives them out by default.
#[test]
fn pod_cidrs_of_nodes_take_nothing_in_other_modes() {
    let text = "pool p 10.0.0.0/27 28\nnode a 1 has=10.0.0.0/28\nnode b 2\nciliumnode b @99 bare";
    let mut other = Cluster::serving("cluster-pool v4", text);
    other.expect_after_claims("b", "claim 10.0.0.0/28 of pool p for node b");
    other.in_flight.clear();
    // They count as soon as the mode is known.
    let block: Cidr = "10.0.0.16/28".parse().unwrap();
    let mut other =
        Cluster::in_mode(Mode::Passive("it is not known".to_owned()), "node a 1 has=10.0.0.16/28");
    assert!(!other.world.ledger().is_taken(block));
    other.world.set_mode(mode("kubernetes v4"));
    assert!(other.world.ledger().is_taken(block));
    assert_eq!(other.world.check(), []);
}

#[test]
fn pod_cidrs_that_are_no_blocks_are_reported_and_left_alone() {
    for (has, why) in [
        ("10.0.0.0/24", "10.0.0.0/24 is not a block of a readable pool"),
        ("fd00::/64", "the agents also run ipv4, and it has no ipv4 CIDR"),
    ] {
        let cluster = cluster(&format!("pool p 10.0.0.0/24 28\nnode a 1 has={has}"));
        let plan = cluster.plan("a");
        assert_eq!(rendered(&plan), "finding: ForeignPodCIDRs; waits: another allocator serves it");
        assert_eq!(
            plan.findings[0].to_string(),
            format!(
                "ForeignPodCIDRs Node a: spec.podCIDRs is {has}, and the controller can't adopt it: {why}; the \
                 node gets no blocks; turn the allocator of kube-controller-manager off with \
                 `--allocate-node-cidrs=false`; then create a pool for the node with these CIDRs as blocks, or \
                 drain the node and recreate its Node"
            )
        );
    }
}

#[test]
fn a_text_that_is_no_cidr_is_reported_and_nothing_is_written() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28\nnode a 1 malformed");
    cluster.expect("a", "finding: MalformedNode; waits: its Node has an unreadable address");
}

/// kube-controller-manager was faster: the server lets nobody change what is set, so our block was never published.
#[test]
fn a_block_that_another_allocator_forestalled_goes_back() {
    let mut cluster = cluster("node a 1 has=10.9.0.0/24 @7\nclaim 10.0.0.0/28 a 1 Held @90 for=1");
    cluster.expect("a", "release 10.0.0.0/28 of node a (Unused)");
    cluster = self::cluster("node a 1 has=10.9.0.0/24 @7\nclaim 10.0.0.0/28 a 1 Releasing/Unused @90 for=1");
    cluster.expect("a", "read the pods of node a");
    // It was made for an earlier Node of that name, which may have had the block.
    cluster = self::cluster("node a 1 has=10.9.0.0/24 @7\nclaim 10.0.0.0/28 a 1 Held @90 for=0");
    cluster.expect("a", "finding: ForeignPodCIDRs; waits: another allocator serves it");
}

#[test]
fn a_claim_that_is_not_known_as_of_such_a_version_is_read_first() {
    let text = "pool p 10.0.0.0/24 28\nnode a 1 later-than=140 @7\nclaim 10.0.0.0/28 a 1 Held @90";
    let mut cluster = cluster(text);
    cluster.reads_claims("a", 141);
    assert_eq!(published(&cluster.plan("a")), "1 @7: 10.0.0.0/28");
}

/// The old kubelet registers its Node anew, and its agent goes on with the CIDRs that it had.
#[test]
fn a_node_that_is_recreated_gets_the_same_cidrs() {
    let mut cluster =
        cluster("pool p 10.0.0.0/24 28\nnode a 1 has=10.0.0.16/28 @7\nclaim 10.0.0.16/28 a 1 Held @90");
    cluster.delete(Kind::Node, "a", 110);
    cluster.observe("node a 2 @111");
    cluster.expect("a", "hold 10.0.0.16/28 for node a again");
    cluster.answered_with("claim 10.0.0.16/28 a 2 Held @112");
    assert_eq!(published(&cluster.plan("a")), "2 @111: 10.0.0.16/28");
}

/// A watch that is behind shows the Node before the one that the claim is held for: that is no proof.
#[test]
fn a_block_is_not_free_because_the_watch_shows_an_earlier_node() {
    let mut cluster = cluster("node a 1 @7");
    cluster.observe("claim 10.0.0.0/28 a 2 Releasing/Reclaimed @140");
    cluster.reads_node(Presence::Is("2".into()), 140);
    cluster.expect("a", "finding: NoPool");
}

/// The revisions of Nodes tell nothing of those of claims: that the Node is gone is the proof.
#[test]
fn a_block_of_a_node_that_is_gone_cools_after_one_read() {
    let mut cluster = cluster("");
    cluster.observe("claim 10.0.0.0/28 a 1 Releasing/NodeGone @140");
    cluster.reads_node(Presence::Gone, 140);
    cluster.expect("a", "cool 10.0.0.0/28 of node a");
}

/// One of them is on its way and needs the proof, the other one begins. The later read serves both.
#[test]
fn the_node_of_several_blocks_is_read_once() {
    let mut cluster = cluster("");
    cluster.observe("claim 10.0.0.0/28 a 1 Releasing/NodeGone @140");
    cluster.observe("claim 10.0.0.16/28 a 1 Held @141");
    let plan = cluster.plan("a");
    let [Request::Read(Read::Node(_, after))] = plan.requests() else { panic!("{}", rendered(&plan)) };
    assert_eq!(*after, Revision::of(141));
}

/// Its claim vanished, and nobody can say how: a read after that has to say that the Node is gone.
#[test]
fn a_lost_claim_of_a_node_that_is_gone_is_settled_by_a_read() {
    let block: Cidr = "10.0.0.0/28".parse().unwrap();
    let mut cluster = cluster("claim 10.0.0.0/28 a 1 Held @90");
    cluster.delete(Kind::Claim, "10.0.0.0-28", 120);
    assert!(cluster.world.ledger().is_taken(block));
    cluster.reads_node(Presence::Gone, 120);
    assert!(!cluster.world.ledger().is_taken(block));
    assert_eq!(cluster.world.check(), []);
}

#[test]
fn what_a_pool_asks_for_in_vain_is_told() {
    let reported = |pool: &str| {
        let reported = cluster(pool).status("p").conditions.remove(&ConditionType::WithoutEffect);
        reported.map_or((false, String::new()), |reported| (reported.holds, reported.message))
    };
    let (holds, message) = reported("pool p 10.0.0.0/24 28 inner reclaim=enabled freeBelow=8 maxBlocks=16");
    assert!(holds);
    assert_eq!(
        message,
        "in Cilium's mode kubernetes a node has exactly one block of each family; these fields have no effect: reclaim"
    );
    for quiet in ["freeBelow=8 maxBlocks=16", "freeBelow=8 maxBlocks=1"] {
        assert!(!reported(&format!("pool p 10.0.0.0/24 28 inner {quiet}")).0, "{quiet}");
    }
    let (_, message) = reported("pool p 10.0.0.0/24 28 inner freeBelow=3 maxBlocks=5 maxAddresses=99");
    assert!(message.ends_with(": perNode.maxBlocks, perNode.maxAddresses, expand"), "{message}");
    let names = "podIPPool (mars) has no effect: only Cilium's mode multi-pool has CiliumPodIPPools";
    let (holds, message) = reported("pool p 10.0.0.0/24 28 inner under=mars freeBelow=8 maxBlocks=16");
    assert_eq!((holds, message.as_str()), (true, names));
    let (_, message) = reported("pool p 10.0.0.0/24 28 inner under=mars freeBelow=3 maxBlocks=16");
    assert!(message.ends_with(&format!("no effect: expand; {names}")), "{message}");
    let ends = "allowFirstLastIPs has an effect in Cilium's mode crd only";
    let (holds, message) = reported("pool p 10.0.0.0/24 28 freeBelow=8 maxBlocks=16");
    assert_eq!((holds, message.as_str()), (true, ends));
    let (_, message) = reported("pool p 10.0.0.0/24 28 under=mars freeBelow=3 maxBlocks=16");
    assert!(message.ends_with(&format!("no effect: expand; {ends}; {names}")), "{message}");
}

#[test]
fn use_is_reported_nowhere() {
    let cluster =
        cluster("pool p 10.0.0.0/24 28\nnode a 1 has=10.0.0.0/28 @7\nclaim 10.0.0.0/28 a 1 Held @90");
    let counts = cluster.status("p").families[&Family::V4];
    assert_eq!((counts.published, counts.used, counts.addresses_free), (14, None, 15 * 14));
    let snapshot = crate::view::snapshot::snapshot(&cluster.world, [].into_iter(), cluster.now.wall);
    assert!(snapshot.usage.values().all(|n| *n == 0), "{:?}", snapshot.usage);
}

/// The cluster ran in another mode, and the agent takes the first block that its CiliumNode lists.
#[test]
fn of_several_claims_the_one_is_published_that_the_ciliumnode_lists_first() {
    let text = "node a 1 @7\nclaim 10.0.0.0/28 a 1 Held @90\nclaim 10.0.0.16/28 a 1 Held @91";
    let mut undecided = cluster(text);
    undecided.expect("a", "finding: Blocked; waits: one of its blocks may be in use and can't be published");
    let listed = format!("{text}\nciliumnode a @99 bare 10.0.0.16/28 10.0.0.0/28");
    assert_eq!(published(&cluster(&listed).plan("a")), "1 @7: 10.0.0.16/28");
}
