//! cluster-pool: a node gets one block of each family on its CiliumNode, and it stays as it is.

use super::*;
use crate::view::findings;

const V4: &str = "cluster-pool v4";
const BOTH: &str = "cluster-pool v4 v6";

fn cluster(text: &str) -> Cluster {
    Cluster::serving(V4, text)
}

/// The podCIDRs of the patch that is decided.
#[track_caller]
fn published(plan: &NodePlan) -> Vec<String> {
    let publication = publication(plan);
    let CarrierChange::ClusterPool(pod_cidrs) = &publication.change else { panic!("{publication:?}") };
    pod_cidrs.iter().map(ToString::to_string).collect()
}

#[test]
fn a_node_gets_one_block_on_its_ciliumnode_and_never_a_second() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28 reclaim=enabled freeBelow=99\nnode a 1");
    cluster.expect("a", "waits: it has no CiliumNode");
    cluster.observe("ciliumnode a @101 bare");
    cluster.expect_after_claims("a", "claim 10.0.0.0/28 of pool p for node a");
    cluster.answered_with("claim 10.0.0.0/28 a 1 Held @102");
    cluster.expect("a", "waits: a request for it is in flight");
    cluster.observe("claim 10.0.0.0/28 a 1 Held @102");
    assert_eq!(published(&cluster.plan("a")), ["10.0.0.0/28"]);
    cluster.observe("ciliumnode a @103 bare 10.0.0.0/28");
    cluster.expect("a", "nothing");
    // Nobody is asked what is used, whatever time passes, and nothing is taken back.
    cluster.pass(3600);
    cluster.expect("a", "nothing");
}

#[test]
fn a_claim_that_is_not_known_as_of_the_ciliumnode_is_read_first() {
    cluster("pool p 10.0.0.0/24 28\njoined a @150 bare\nclaim 10.0.0.0/28 a 1 Held @90")
        .expect("a", "read the claims of node a");
}

#[test]
fn both_families_come_in_one_patch_or_not_at_all() {
    let pools = "pool p 10.0.0.0/24 28\npool q fd00::/120 124";
    let mut cluster = Cluster::serving(BOTH, &format!("{pools}\njoined a @99 bare"));
    cluster.expect_after_claims(
        "a",
        "claim 10.0.0.0/28 of pool p for node a; claim fd00::/124 of pool q for node a",
    );
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    cluster.observe("claim fd00::/124 a 1 Held @111 of=q");
    cluster.in_flight.clear();
    let cluster = Cluster::serving(
        BOTH,
        &format!(
            "{pools}\njoined a @99 bare\nclaim 10.0.0.0/28 a 1 Held @90\nclaim fd00::/124 a 1 Held @91 of=q"
        ),
    );
    assert_eq!(published(&cluster.plan("a")), ["10.0.0.0/28", "fd00::/124"]);
    let mut alone = Cluster::serving(BOTH, "pool p 10.0.0.0/24 28\njoined a @99 bare");
    alone.expect("a", "unmet: no pool of the node has a free ipv6 block");
}

/// Addresses are given out by the agent, so it can't be kept from single ones.
#[test]
fn a_block_with_an_address_of_a_node_or_an_exclusion_is_no_nodes() {
    let mut cluster =
        cluster("pool p 10.0.0.0/26 28 exclude=10.0.0.16/29\njoined a @99 bare\nnode b 2 own=10.0.0.5/32");
    cluster.expect_after_claims("a", "claim 10.0.0.32/28 of pool p for node a");
    let counts = cluster.status("p").families[&Family::V4];
    assert_eq!((counts.blocks, counts.free, counts.unavailable), (4, 2, 2));
    // An agent gives out 14 addresses of each of the two.
    assert_eq!(counts.addresses_free, 28);
}

#[test]
fn per_node_limits_no_first_block() {
    let mut cluster = cluster("pool p 10.0.0.0/16 24 maxAddresses=16\njoined a @99 bare");
    cluster.expect_after_claims("a", "claim 10.0.0.0/24 of pool p for node a");
}

#[test]
fn pod_cidrs_that_are_blocks_of_a_pool_become_claims() {
    let mut cluster = cluster(
        "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @99 bare 10.0.0.32/28 manager=cilium-operator-generic",
    );
    let plan = cluster.plan("a");
    let [Request::Write(Write::CreateClaim(claim))] = plan.requests() else { panic!("{}", rendered(&plan)) };
    assert_eq!((claim.cidr.to_string().as_str(), &claim.created_for), ("10.0.0.32/28", &None));
    cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a");
    let taken_over = "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @99 bare 10.0.0.32/28 \
         manager=cilium-operator\nclaim 10.0.0.32/28 a 1 Held @101";
    self::cluster(taken_over).expect("a", "nothing");
}

#[test]
fn pod_cidrs_that_are_no_blocks_are_reported_and_left_alone() {
    let pool = "pool p 10.0.0.0/24 28\nnode a 1";
    for (pod_cidrs, mode, why) in [
        ("10.0.0.0/24", V4, "10.0.0.0/24 is not a block of a readable pool"),
        ("10.9.0.0/28", V4, "10.9.0.0/28 is not a block of a readable pool"),
        ("10.0.0.0/28 10.0.0.16/28", V4, "it has 2 ipv4 CIDRs, and a node may have one block per family"),
        ("10.0.0.0/28", BOTH, "the agents also run ipv6, and it has no ipv6 CIDR"),
    ] {
        let cluster = Cluster::serving(mode, &format!("{pool}\nciliumnode a @99 bare {pod_cidrs}"));
        let plan = cluster.plan("a");
        assert_eq!(rendered(&plan), "finding: ForeignPodCIDRs; waits: another allocator serves it");
        assert_eq!(
            message(&plan),
            format!(
                "CiliumNode a: spec.ipam.podCIDRs is {}, and the controller can't adopt it: {why}; the node \
                 gets no blocks; turn the allocator of cilium-operator off with `--ipam=kubernetes` \
                 (`operator.extraArgs` of Cilium's chart); then create a pool for the node with these CIDRs as \
                 blocks, or drain the node and recreate its CiliumNode",
                pod_cidrs.replace(' ', ", ")
            )
        );
    }
}

#[test]
fn pod_cidrs_that_another_node_has_are_no_claims() {
    let cluster = cluster(
        "pool p 10.0.0.0/24 28\nnode a 1\nnode b 2\nciliumnode a @98 bare 10.0.0.0/28\nciliumnode b @99 bare \
         10.0.0.0/28\nclaim 10.0.0.0/28 b 2 Held @97",
    );
    assert_has(&message(&cluster.plan("a")), "10.0.0.0/28 overlaps 10.0.0.0/28 (a claim of node b)");
}

/// The claim of a lost node overlaps it and was removed by force. It becomes a claim when nothing is in its way.
#[test]
fn pod_cidrs_that_cannot_become_claims_yet_are_waited_for() {
    let mut cluster = cluster(
        "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @101 bare 10.0.0.0/28\nciliumnode b @90 bare\n\
         claim 10.0.0.0/29 b 2 Releasing/NodeGone @97",
    );
    cluster.delete(Kind::Claim, "10.0.0.0-29", 110);
    cluster.expect("a", "waits: a request for it is in flight");
    cluster.observe("ciliumnode b @120 bare");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

#[test]
fn an_operator_that_allocates_stops_what_is_written_for_that_node() {
    let pool = "pool p 10.0.0.0/24 28\nnode a 1";
    for (sign, reported) in [
        (
            "manager=cilium-operator-aws",
            "metadata.managedFields names cilium-operator-aws, which writes CiliumNodes only if it allocates",
        ),
        (
            "manager=cilium-operator@86400",
            "metadata.managedFields names cilium-operator, last at 1970-01-02T00:00:00Z, which writes CiliumNodes only \
             if it allocates",
        ),
        (
            "operator=full",
            "status.ipam.operator-status.error is `full`: cilium-operator allocates for this node",
        ),
    ] {
        let cluster = cluster(&format!("{pool}\nciliumnode a @99 bare {sign}"));
        let plan = cluster.plan("a");
        assert_eq!(rendered(&plan), "finding: SecondAllocator; waits: another allocator serves it");
        let message = message(&plan);
        let start = format!("CiliumNode a: {reported} (once it has stopped: kubectl patch ciliumnode a ");
        assert_starts(&message, &start);
        let remedy =
            "); the node gets no blocks; turn the allocator of cilium-operator off with `--ipam=kubernetes`";
        assert_has(&message, remedy);
    }
    // What the node has it keeps.
    let mut served = cluster(&format!(
        "{pool}\nciliumnode a @99 bare 10.0.0.0/28 operator=full\nclaim 10.0.0.0/28 a 1 Held @98"
    ));
    served.expect("a", "finding: SecondAllocator");
}

/// An operator that loses the race puts its CIDR in the place of ours, and by then the agent may have started with
/// that. Nothing tells it from an operator that was faster.
#[test]
fn a_block_that_another_allocator_may_have_replaced_stays() {
    let objects = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @98";
    let mut cluster = cluster(&format!("{objects}\nciliumnode a @99 bare 10.9.0.0/24"));
    cluster.expect_for(3600, "a", "finding: ForeignPodCIDRs; waits: another allocator serves it");
    // One that is a block becomes a claim, which was made for no CiliumNode.
    let mut cluster = self::cluster(&format!("{objects}\nciliumnode a @99 bare 10.0.0.16/28"));
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
    let adopted =
        format!("{objects}\nciliumnode a @99 bare 10.0.0.16/28\nclaim 10.0.0.16/28 a 1 Held @97 for=nobody");
    self::cluster(&adopted).expect("a", "nothing");
}

/// Whoever writes one family wrote the list, and ours had both.
#[test]
fn a_cidr_of_one_family_may_have_replaced_a_block_of_the_other() {
    let objects =
        "pool p 10.0.0.0/24 28\npool q fd00::/120 124\nnode a 1\nclaim fd00::/124 a 1 Held @98 of=q";
    let mut cluster = Cluster::serving(BOTH, &format!("{objects}\nciliumnode a @99 bare 10.9.0.0/24"));
    cluster.expect_for(3600, "a", "finding: ForeignPodCIDRs; waits: another allocator serves it");
}

/// Ours come in one write, so a list without one family is not as it was written.
#[test]
fn a_block_of_a_family_that_somebody_took_off_stays() {
    let objects = "pool p 10.0.0.0/24 28\npool q fd00::/120 124\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @97\n\
                   claim fd00::/124 a 1 Held @98 of=q";
    let mut cluster = Cluster::serving(BOTH, &format!("{objects}\nciliumnode a @99 bare 10.0.0.0/28"));
    cluster.expect_for(3600, "a", "finding: ForeignPodCIDRs; waits: another allocator serves it");
}

/// Another writer may have replaced the block with its own CIDR before the CiliumNode was deleted. A controller that
/// starts after that has not seen the block there.
#[test]
fn a_block_that_may_have_been_replaced_stays_when_the_ciliumnode_is_recreated() {
    let objects =
        "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @98\nclaim 10.0.0.0/29 b 2 Held @90";
    for listed in ["10.9.0.0/24", ""] {
        let mut cluster = cluster(&format!("{objects}\nciliumnode a @99 bare {listed}"));
        cluster.delete(Kind::CiliumNode, "a", 120);
        cluster.observe("ciliumnode a @121 bare recreated");
        let plan = rendered(&cluster.plan("a"));
        assert!(plan.contains("finding: Blocked"), "{listed}: {plan}");
    }
}

/// Somebody may have put the one in the place of the other, and the agent may have started with that.
#[test]
fn a_second_block_for_one_ciliumnode_stays_and_is_counted() {
    let objects = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @98";
    let two = format!("{objects}\nciliumnode a @99 bare 10.0.0.16/28\nclaim 10.0.0.16/28 a 1 Held @97");
    let mut cluster = cluster(&two);
    cluster.expect("a", "nothing");
    let reported: Vec<String> =
        findings::of_world(&cluster.world).map(|finding| finding.to_string()).collect();
    assert!(
        reported[0].starts_with("LeftOverClaims NodeIPBlock 10.0.0.0-28: 1 claim of nodes"),
        "{reported:?}"
    );
    // Its CiliumNode is made anew, and this process has seen which of them the last one listed.
    cluster.delete(Kind::CiliumNode, "a", 120);
    cluster.observe("ciliumnode a @121 bare recreated");
    cluster.reads_claims("a", 122);
    assert_eq!(published(&cluster.plan("a")), ["10.0.0.16/28"]);
}

/// After a change back from crd mode, agents use the first CIDR of a family alone.
#[test]
fn a_second_block_from_crd_mode_is_left_over() {
    let objects =
        "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @98\nclaim 10.0.0.16/28 a 1 Held @97";
    let cluster = cluster(&format!("{objects}\nciliumnode a @99 bare 10.0.0.0/28 10.0.0.16/28"));
    let found: Vec<String> = findings::of_world(&cluster.world).map(|finding| finding.to_string()).collect();
    assert!(found[0].starts_with("LeftOverClaims NodeIPBlock 10.0.0.16-28: 1 claim of nodes"), "{found:?}");
}

#[test]
fn a_ciliumnode_that_is_recreated_gets_the_same_cidrs_in_the_same_order() {
    let objects = "pool p 10.0.0.0/24 28\npool q fd00::/120 124\nnode a 1\nclaim 10.0.0.0/28 a 1 Held \
         @90\nclaim fd00::/124 a 1 Held @91 of=q";
    let mut cluster =
        Cluster::serving(BOTH, &format!("{objects}\nciliumnode a @99 bare fd00::/124 10.0.0.0/28"));
    cluster.expect("a", "nothing");
    cluster.delete(Kind::CiliumNode, "a", 120);
    cluster.expect("a", "waits: it has no CiliumNode");
    cluster.observe("ciliumnode a @121 bare recreated");
    cluster.reads_claims("a", 122);
    assert_eq!(published(&cluster.plan("a")), ["fd00::/124", "10.0.0.0/28"]);
}

/// Nothing shows which of them its agent has, and what is published stays for the life of the CiliumNode.
#[test]
fn of_several_claims_none_is_published_where_no_carrier_has_shown_one() {
    for (first, second) in
        [("for=cn-1 created=10", "for=cn-2 created=20"), ("for=cn-1 created=10", "for=cn-1 created=20")]
    {
        let mut cluster = cluster(&format!(
            "pool p 10.0.0.0/24 28\njoined a @99 bare\nclaim 10.0.0.0/28 a 1 Held @100 {first}\n\
             claim 10.0.0.16/28 a 1 Held @100 {second}"
        ));
        cluster
            .expect("a", "finding: Blocked; waits: one of its blocks may be in use and can't be published");
        let message = message(&cluster.plan("a"));
        assert!(message.contains("10.0.0.0-28 is one of several of its family"), "{message}");
        assert!(message.ends_with("let it join again after reuseAfterNodeLoss of the pool"), "{message}");
    }
}

/// A block is the node's until Node and CiliumNode are gone; then it cools.
#[test]
fn a_block_of_a_node_that_is_gone_cools() {
    let mut cluster =
        cluster("pool p 10.0.0.0/24 28\nciliumnode a @99 bare 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @98");
    cluster.expect("a", "waits: it has no Node");
    cluster.delete(Kind::CiliumNode, "a", 120);
    cluster.expect("a", "release 10.0.0.0/28 of node a (NodeGone)");
    let mut cluster = self::cluster(
        "pool p 10.0.0.0/24 28\nciliumnode a @99 bare 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Releasing/NodeGone @98",
    );
    cluster.expect("a", "waits: it has no Node");
    cluster.delete(Kind::CiliumNode, "a", 120);
    cluster.expect("a", "cool 10.0.0.0/28 of node a");
}

/// A pool can't have back what the agent never lets go.
#[test]
fn a_pool_that_drains_waits_for_its_nodes() {
    let mut cluster = cluster(
        "pool p 10.0.0.0/24 28 draining\nnode a 1\nciliumnode a @99 bare 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @98",
    );
    cluster.expect("a", "finding: DrainWaits");
    assert!(message(&cluster.plan("a")).contains("after reuseAfterNodeLoss of the pool"));
    // One that began to leave in another mode stays.
    let mut cluster = self::cluster(
        "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @99 bare 10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Draining @98",
    );
    cluster.expect("a", "hold 10.0.0.0/28 for node a again");
}

/// The end of a cooling comes first. The shortage beside that step follows the same rules as any other.
#[test]
fn a_node_of_another_allocator_lacks_no_block_while_another_step_comes_first() {
    for (sign, n_unmet) in [("", 1), (" manager=cilium-operator", 0)] {
        let mut cluster = cluster(&format!(
            "pool p 10.0.0.0/28 28\nnode b 1\nciliumnode b @90 bare 10.0.0.0/28\nclaim 10.0.0.0/28 b 1 Held @91\n\
             node a 1\nciliumnode a @92 bare{sign}\nclaim 10.9.0.0/28 a 1 Cooling/Unused @50"
        ));
        let cooling = cluster.plan("a");
        cluster.begin(&cooling);
        cluster.pass(7200);
        let plan = cluster.plan("a");
        assert!(!plan.requests().is_empty(), "{}", rendered(&plan));
        assert_eq!(plan.unmet.len(), n_unmet, "{sign}: {}", rendered(&plan));
    }
}
