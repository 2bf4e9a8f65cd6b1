//! Tests of the rule that a carrier which shows nothing of ours gets all blocks that may be in use, or none.

use super::*;

const TWO_CLAIMS: &str = "pool p 10.0.0.0/24 28\njoined a @50 recreated\nclaim 10.0.0.0/28 a 1 Held @40\n\
                          claim 10.0.0.16/28 a 1 Held @41";

const BOTH: &str = "publish [10.0.0.0/28 10.0.0.16/28] and 32 addresses on ciliumnode a";

const NEITHER: &str = "finding: Blocked; waits: one of its blocks may be in use and can't be published";

fn said(cluster: &Cluster) -> String {
    let plan = cluster.plan("a");
    plan.findings.into_iter().find(|finding| finding.kind.as_str() == "Blocked").unwrap().message
}

#[test]
fn nothing_is_published_while_one_claim_cannot_be_read() {
    let mut cluster = Cluster::of(TWO_CLAIMS);
    cluster.observe("unreadable NodeIPBlock 10.0.0.16-28 10.0.0.16/28 of=a @110");
    assert_eq!(
        said(&cluster),
        "its CiliumNode gets no blocks, because one of them may be in use and can't be published: 10.0.0.16-28 \
         is unreadable (odd)"
    );
    cluster.drain();
    cluster.observe("claim 10.0.0.16/28 a 1 Held @120");
    cluster.expect("a", BOTH);
}

#[test]
fn an_unreadable_claim_that_was_never_known_holds_its_node_back_too() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\njoined a @50 recreated\nclaim 10.0.0.0/28 a 1 Held @40\n\
         unreadable NodeIPBlock 10.0.0.16-28 10.0.0.16/28 of=a @41",
    );
    assert_eq!(cluster.drain(), ["a"]);
    cluster.expect("a", NEITHER);
    // Its end and its correction are news for the node that it names.
    cluster.observe("claim 10.0.0.16/28 a 1 Held @120");
    assert!(cluster.world.next_node().is_some());
    cluster.expect("a", BOTH);
}

#[test]
fn nothing_is_published_while_one_claim_that_may_be_in_use_is_overlapped() {
    let mut cluster = Cluster::of(TWO_CLAIMS);
    cluster.observe("ciliumnode x @110 10.0.0.20/32");
    cluster.expect("a", &format!("finding: Overlap; {NEITHER}"));
    cluster.delete(Kind::CiliumNode, "x", 111);
    cluster.expect("a", BOTH);
}

/// Nothing shows that no other process has published it.
#[test]
fn a_claim_that_was_made_for_this_ciliumnode_holds_its_node_back_too() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\njoined a @50\nclaim 10.0.0.0/28 a 1 Held @40\n\
         claim 10.0.0.16/28 a 1 Held @41",
    );
    cluster.observe("ciliumnode x @110 10.0.0.20/32");
    cluster.expect("a", &format!("finding: Overlap; {NEITHER}"));
}

/// What stops it is no lack of blocks, also where a request comes first.
#[test]
fn a_node_that_is_held_back_waits_for_no_block() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/28 28\njoined a @50\nclaim 10.0.0.0/29 a 1 Held deleting @40\n\
         claim 10.0.0.8/29 a 1 Held @41",
    );
    cluster.observe("ciliumnode x @110 10.0.0.4/32");
    let plan = cluster.plan("a");
    assert!(!plan.requests().is_empty() && plan.unmet.is_empty(), "{plan:?}");
}

/// A served node does without it.
#[test]
fn a_claim_that_cant_be_published_does_not_count_against_the_limits_of_its_node() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 28 maxBlocks=2\njoined a @50 10.0.0.0/28 used=14\n\
         claim 10.0.0.16/28 a 1 Held @41",
    );
    cluster.observe("ciliumnode x @110 10.0.0.20/32");
    cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a; finding: Overlap");
}

/// Another replica claimed and published a second block; this one has not heard of it.
#[test]
fn the_claims_of_a_node_are_known_as_of_the_version_that_is_patched() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @50 10.0.0.0/28 10.0.0.16/28 10.0.0.32/28\n\
         claim 10.0.0.0/28 a 1 Held @40",
    );
    cluster.delete(Kind::CiliumNode, "a", 119);
    cluster.observe("ciliumnode a @120 recreated");
    // The version of the claim is later than that of the CiliumNode, but the watch of claims is not.
    let Object::Claim(held) = object("claim 10.0.0.0/28 a 1 Held @130") else { unreachable!() };
    let before = Claim { revision: Revision::of(40), ..held.clone() };
    let update =
        Write::UpdateClaim(ClaimUpdate::of(&before, ClaimChange::Hold("1".into()), cluster.now.wall));
    cluster.finish(update.into(), Seen::Claim(Box::new(held.clone())));
    cluster.expect("a", "read the claims of node a");
    let Object::Claim(second) = object("claim 10.0.0.16/28 a 1 Held @112") else { unreachable!() };
    let Object::Unreadable(_, third) = object("unreadable NodeIPBlock 10.0.0.32-28 10.0.0.32/28 of=a @113")
    else {
        unreachable!()
    };
    let (revision, claims) = (Revision::of(131), vec![held, second]);
    cluster
        .settle(&Target::ClaimsOf("a".into()), Seen::ClaimsOf { revision, claims, unreadable: vec![third] });
    assert_eq!(cluster.world.check(), []);
    cluster.observe("claim 10.0.0.16/28 a 1 Held @112");
    cluster.expect("a", NEITHER);
    cluster.observe("claim 10.0.0.32/28 a 1 Held @132");
    cluster.expect("a", "publish [10.0.0.0/28 10.0.0.16/28 10.0.0.32/28] and 48 addresses on ciliumnode a");
}

#[test]
fn a_drain_ends_when_its_ciliumnode_is_gone() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 28 reclaim=enabled\nnode a 1\n\
         ciliumnode a @50 10.0.0.0/28 10.0.0.16/28 fenced=10.0.0.16/28 used=10.0.0.16/31\n\
         claim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Draining @40",
    );
    cluster.expect("a", "read the pods of node a; finding: DrainWaits");
    let read = cluster.in_flight.remove(0);
    cluster.finish(read, Seen::Nothing);
    cluster.delete(Kind::CiliumNode, "a", 110);
    cluster.expect("a", "waits: it has no CiliumNode");
    cluster.observe("ciliumnode a @120 recreated");
    cluster.expect("a", "hold 10.0.0.16/28 for node a again");
    cluster.carried_out("claim 10.0.0.16/28 a 1 Held @130");
    cluster.expect("a", BOTH);
}

/// A write of the claim makes it later than its CiliumNode. The agent waits for its blocks, so it may never write the
/// CiliumNode again.
#[test]
fn a_drain_ends_though_its_claim_is_written_after_its_ciliumnode() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 28 reclaim=enabled\njoined a @50 recreated\nclaim 10.0.0.0/28 a 1 Held @30\n\
         claim 10.0.0.16/28 a 1 Draining @60",
    );
    cluster.expect("a", "touch ciliumnode a to get a later version");
    cluster.carried_out("ciliumnode a @110 recreated");
    cluster.expect("a", "hold 10.0.0.16/28 for node a again");
    // The same where its agent had let it go, and does not any more.
    let blocks = "10.0.0.0/28 10.0.0.16/28 fenced=10.0.0.16/28";
    let mut cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/24 28 reclaim=enabled\nnode a 1\nciliumnode a @50 {blocks}\n\
         claim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Releasing/Reclaimed @60",
    ));
    cluster.expect("a", "touch ciliumnode a to get a later version");
    cluster.carried_out(&format!("ciliumnode a @110 {blocks}"));
    cluster.expect("a", "hold 10.0.0.16/28 for node a again");
}
