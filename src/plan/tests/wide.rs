//! Blocks as wide as agents take them, where no map of single addresses is written.

use std::fmt::Write as _;

use super::*;
use crate::model::finding::FindingKind;
use crate::model::status::capped_count;

const CLAIMS: &str = "claim 10.0.0.0/16 of pool p for node a; claim fd00::/64 of pool q for node a";
const BOTH: &str = "pool p 10.0.0.0/8 16\npool q fd00::/48 64\nnode a 1\n";

/// Only nodes that should get such a block get none.
#[test]
fn a_pool_says_which_of_its_sizes_are_too_wide() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/16 26 sized=big:20");
    assert_eq!(
        cluster.condition("p", ConditionType::Ready),
        "Serving true: selected nodes get blocks; but blocks are too wide for Cilium's mode crd: `spec.ipv4` has blocks \
         of /20, and the widest possible is /22; nodes get no such blocks; set a larger `blockSize`"
    );
    cluster.observe("pool p 10.0.0.0/16 20 @60");
    assert_starts(&cluster.condition("p", ConditionType::Ready), "BlockTooWide false: ");
}

#[test]
fn cluster_pool_gives_what_a_node_gets_from_kubernetes() {
    let mut cluster = Cluster::serving("cluster-pool v4 v6", &format!("{BOTH}ciliumnode a @99 bare"));
    cluster.expect_after_claims("a", CLAIMS);
    let claims = "claim 10.0.0.0/16 a 1 Held @102\nclaim fd00::/64 a 1 Held @103";
    Cluster::serving("cluster-pool v4 v6", &format!("{BOTH}ciliumnode a @99 bare\n{claims}"))
        .expect("a", "publish [10.0.0.0/16 fd00::/64] and >2^63 addresses on ciliumnode a");
}

#[test]
fn kubernetes_gives_the_same() {
    Cluster::serving("kubernetes v4 v6", BOTH).expect_after_claims("a", CLAIMS);
}

#[test]
fn crd_gives_no_block_that_is_wider_than_1024_addresses_and_says_so() {
    let text = "pool p 10.0.0.0/8 21\npool q 11.0.0.0/8 22 priority=-1\njoined a @99";
    let mut cluster = Cluster::of(text);
    // The pool that comes first gives none, and the next one does.
    cluster.expect("a", "claim 11.0.0.0/22 of pool q for node a");
    let said = cluster.condition("p", ConditionType::Ready);
    assert_starts(&said, "BlockTooWide false: blocks are too wide for Cilium's mode crd: `spec");
    assert!(said.contains("`spec.ipv4` has blocks of /21, and the widest possible is /22"), "{said}");
    assert!(cluster.condition("q", ConditionType::Ready).starts_with("Serving true"));

    let alone = Cluster::of("pool p 10.0.0.0/8 21 maxAddresses=4096\njoined a @99");
    let plan = alone.plan("a");
    assert!(plan.requests().is_empty(), "{}", rendered(&plan));
    let why = crate::plan::reasons::why_no_block(
        &alone.world,
        &"a".into(),
        &crate::model::address_class::AddressClass { family: Family::V4, pod_ip_pool: None },
    );
    assert!(why.contains("its blocks are too wide for Cilium's mode: /22 is the limit"), "{why}");
}

/// What no node can get is neither free nor exhausted, nor does it help out another pool that lacks the family.
#[test]
fn a_pool_whose_blocks_are_too_wide_offers_none() {
    let text = "pool p 10.0.0.0/8 21\npool q fd00::/64 118\njoined a @99\nclaim 10.0.0.0/21 b 2 Held @90";
    let cluster = Cluster::serving("crd v4 v6", text);
    let counts = cluster.status("p").families[&Family::V4];
    assert_eq!((counts.blocks, counts.held, counts.free), (1, 1, 0));
    assert_eq!((counts.unavailable, counts.addresses_free), (0, 0));
    assert_starts(&cluster.condition("p", ConditionType::Exhausted), "Closed false");
    assert_starts(&cluster.condition("q", ConditionType::Ready), "FamilyMissing false");
}

#[test]
fn crd_publishes_no_claim_that_another_mode_left() {
    let cluster = Cluster::of("pool p 10.0.0.0/8 16\njoined a @99\nclaim 10.0.0.0/16 a 1 Held @90");
    let plan = cluster.plan("a");
    assert!(!plan.requests().iter().any(|request| matches!(request, Request::Write(Write::Publish(_)))));
    let kinds: Vec<FindingKind> = plan.findings.iter().map(|finding| finding.kind).collect();
    assert!(kinds.contains(&FindingKind::BlockTooWide), "{kinds:?}");
}

#[test]
fn counts_of_wide_blocks_end_at_what_json_can_say() {
    let mut text = "pool p fd00::/32 64\n".to_owned();
    // More of them than would fit into the type of the count.
    for at in 1..=2100 {
        let block = format!("fd00:0:{at:x}::/64");
        writeln!(text, "joined n{at} @50 bare {block}").expect("a string takes it");
    }
    let cluster = Cluster::serving("cluster-pool v6", &text);
    let counts = cluster.status("p").families[&Family::V6];
    assert_eq!((counts.held, counts.published), (2100, capped_count(u128::MAX)));
    assert_eq!(counts.free, (1 << 32) - 2100);
    assert_eq!(counts.addresses_free, capped_count(u128::MAX));
}
