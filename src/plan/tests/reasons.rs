//! Tests of every reason for which a pool gives a node nothing.

use super::*;
use crate::model::address_class::AddressClass;
use crate::plan::{explain, still_lacks_pool, why_no_block, why_no_pool};

/// Compares the reasons for node `a` in this cluster and mode, one per line, and its wait.
#[track_caller]
fn check(mode: &str, text: &str, expected: &str) {
    let cluster = Cluster::serving(mode, text);
    let policy = Policy::DEFAULT;
    let plan = explain(&cluster.world, &"a".into(), policy, cluster.now);
    let mut lines: Vec<String> = plan.refusals.iter().map(ToString::to_string).collect();
    lines.extend(match &plan.verdict {
        Verdict::Wait(wait) => Some(format!("waits: {wait}")),
        Verdict::Act(_) | Verdict::AtRest => None,
    });
    assert_eq!(lines.join("\n"), expected);
    let unasked = NodePlan { refusals: Vec::new(), ..plan };
    assert_eq!(cluster.plan("a"), unasked, "without being asked for reasons the planner makes the same plan");
}

#[test]
fn a_pool_that_is_not_asked_says_which_term_the_node_fails_or_that_it_cannot_be_read() {
    check(
        "crd v4",
        "node a 1 zone=b\nciliumnode a @50\npool other 10.0.0.0/24 28 zone=c\npool broken 10.0.1.0/24 28 invalid",
        "pool broken gives nothing: the pool is unreadable\n\
         pool other gives nothing: the node does not match `zone=c`",
    );
}

#[test]
fn a_pool_that_is_asked_says_why_it_has_no_block() {
    let cluster = |pool: &str| format!("joined a @50\n{pool}");
    for (pool, why) in [
        ("pool p 10.0.0.0/24 28 deleting", "the pool is being deleted"),
        ("pool p 10.0.0.0/24 28 cordoned", "all ranges are cordoned or draining"),
        ("pool p 10.0.0.0/29 28", "its ranges have no room for a block"),
        ("pool p 10.0.0.0/28 28\nclaim 10.0.0.0/28 b 1 Held @40", "all blocks are taken"),
        (
            "pool old 10.0.0.0/16 28 invalid\npool p 10.0.0.0/24 28 younger",
            "the older or unreadable pool old keeps its ranges",
        ),
    ] {
        let broken =
            if pool.contains("invalid") { "pool old gives nothing: the pool is unreadable\n" } else { "" };
        let wait = "waits: no pool that selects it has a free block";
        check("crd v4", &cluster(pool), &format!("{broken}pool p gives no ipv4 block: {why}\n{wait}"));
    }
}

#[test]
fn a_node_at_its_limits_says_which() {
    let served = "joined a @50 10.0.0.0/30 used=4\n";
    let limits = [
        ("maxBlocks=1", "the node's first pool allows at most 1 block"),
        ("maxAddresses=6", "the node's first pool allows at most 6 addresses"),
    ];
    for (limit, why) in limits {
        let text = format!("{served}pool p 10.0.0.0/24 30 {limit}");
        check("crd v4", &text, &format!("pool p gives no ipv4 block: {why}"));
    }
}

#[test]
fn a_first_grant_that_lacks_a_family_says_which() {
    check(
        "crd v4 v6",
        "joined a @50\npool p 10.0.0.0/24 28",
        "pool p gives no ipv6 block: the pool has no ranges of this family\n\
         pool p gives no ipv4 block: the first grant also needs ipv6, and no pool has a ipv6 block\n\
         waits: no pool that selects it has a free block",
    );
}

#[test]
fn a_node_that_no_pool_selects_says_which_label_it_lacks() {
    let mut text = "node a 1 zone=b\nnode c 1\nciliumnode a @50\nciliumnode c @51\n".to_owned();
    let none = "the cluster has no pools: create a NodeIPPool";
    assert_eq!(why_no_pool(&Cluster::of(&text).world, &"a".into()), none);
    text += "pool broken 10.0.1.0/24 28 invalid\npool other 10.0.0.0/24 28 zone=c";
    let cluster = Cluster::of(&text);
    let why = |node: &str| why_no_pool(&cluster.world, &node.into());
    let pools = "label it, or create a pool that selects it: pool broken (unreadable), pool other (needs \
                 `zone=c`; the node has";
    assert_eq!(why("a"), format!("no pool selects it: its labels are zone=b; {pools} zone=b)"));
    assert_eq!(why("c"), format!("no pool selects it: it has no labels; {pools} no label zone)"));
}

#[test]
fn a_node_lacks_a_pool_until_one_selects_it_or_the_node_is_gone() {
    for (text, lacks) in [
        ("joined a @50", true),
        ("joined a @50\npool p 10.0.0.0/24 28", false),
        ("joined a @50\npool p 10.0.0.0/24 28 zone=c", true),
        ("node a 1", true),
        ("node a 1\npool p 10.0.0.0/24 28", false),
        ("ciliumnode a @50", false),
    ] {
        assert_eq!(still_lacks_pool(&Cluster::of(text).world, &"a".into()), lacks, "{text}");
    }
}

/// There are a dozen that Kubernetes and a cloud give every Node, and an event is short.
#[test]
fn the_labels_that_pools_ask_for_are_told_first_and_those_of_kubernetes_last() {
    let labels: Vec<String> = (0..10).map(|n| format!(" label=k8s.io/l{n}=x")).collect();
    let labels = labels.concat();
    let cluster = Cluster::of(&format!(
        "node a 1{labels} label=node.kubernetes.io/of=k label=cloud=c zone=b\nciliumnode a @50\npool q none 28 zone=c"
    ));
    let why = why_no_pool(&cluster.world, &"a".into());
    let reported = "no pool selects it: its labels are zone=b, cloud=c, k8s.io/l0=x, k8s.io/l1=x, k8s.io/l2=x, \
                k8s.io/l3=x, k8s.io/l4=x, k8s.io/l5=x, k8s.io/l6=x, k8s.io/l7=x and 3 more; label it";
    assert!(why.starts_with(reported), "{why}");
}

#[test]
fn a_node_that_waits_says_why_each_of_its_pools_has_no_block() {
    let cluster = Cluster::serving(
        "crd v4 v6",
        "joined a @50\npool closed 10.1.0.0/24 28 cordoned\npool full 10.0.0.0/28 28\n\
         claim 10.0.0.0/28 b 1 Held @40",
    );
    assert_eq!(
        why_no_block(&cluster.world, &"a".into(), &AddressClass { family: Family::V4, pod_ip_pool: None }),
        "no pool of the node has a free ipv4 block; add a CIDR to one of its pools, or create a pool that \
         selects the node: pool closed (all ranges are cordoned or draining), pool full (all blocks are taken)",
    );
    let cordoned = Cluster::of("joined a @50\npool closed 10.1.0.0/24 28 cordoned");
    assert_eq!(
        why_no_block(&cordoned.world, &"a".into(), &AddressClass { family: Family::V4, pod_ip_pool: None }),
        "no pool of the node has a free ipv4 block; set `state: Active` on a CIDR of one of its pools, or create \
         a pool that selects the node: pool closed (all ranges are cordoned or draining)",
    );
    assert_eq!(
        why_no_block(&cluster.world, &"a".into(), &AddressClass { family: Family::V6, pod_ip_pool: None }),
        "the agent runs ipv6 and needs ipv6 addresses, and no pool of the node has ipv6 ranges; add `spec.ipv6` \
         to one of its pools, or create a pool with ipv6 ranges that selects it: closed, full",
    );
}

#[test]
fn no_remedy_names_a_pool_that_is_being_deleted() {
    let old = "joined a @50\npool old 10.0.0.0/28 28 deleting\nclaim 10.0.0.0/28 b 1 Held @40 of=old";
    let why = |text: &str, family: Family| {
        let cluster = Cluster::serving("crd v4 v6", text);
        why_no_block(&cluster.world, &"a".into(), &AddressClass { family, pod_ip_pool: None })
    };
    assert_eq!(
        why(old, Family::V4),
        "no pool of the node has a free ipv4 block; create a pool that selects the node: pool old (the pool is \
         being deleted)"
    );
    let both = format!("{old}\npool new 10.1.0.0/28 28\nclaim 10.1.0.0/28 c 1 Held @41 of=new");
    assert_eq!(
        why(&both, Family::V4),
        "no pool of the node has a free ipv4 block; add a CIDR to pool new, or create a pool that selects the \
         node: pool new (all blocks are taken), pool old (the pool is being deleted)"
    );
    assert!(why(&both, Family::V6).ends_with("selects it: new"), "{}", why(&both, Family::V6));
    assert!(why(old, Family::V6).ends_with("create a pool with ipv6 ranges that selects it"));
}

#[test]
fn a_reason_stays_short_whatever_the_number_of_pools() {
    let pools: Vec<String> =
        (0..300).map(|n| format!("pool p{n:03} 10.0.0.0/24 28 zone=c younger\n")).collect();
    let cluster = Cluster::of(&format!("joined a @50\n{}", pools.concat()));
    let why = why_no_pool(&cluster.world, &"a".into());
    let end = "pool p009 (needs `zone=c`; the node has no label zone) and 290 more";
    assert!(why.ends_with(end), "{why}");
}
