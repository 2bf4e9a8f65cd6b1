//! Tests of Cilium pools and their names: under which name a block is given, counted and published.

use super::*;

/// Pods choose a Cilium pool by its name, and the node decides which ranges that name means there.
#[test]
fn each_name_gets_what_its_agent_needs_from_the_pools_that_name_it() {
    let pools =
        "pool p 10.0.0.0/24 28\npool q 10.1.0.0/28 28 under=mars\npool r 10.2.0.0/24 28 under=mars\nnode a 1";
    let mut cluster = cluster(&format!("{pools}\nciliumnode a @90 need=8 mars=16"));
    cluster.expect(
        "a",
        "claim 10.0.0.0/28 of pool p for node a under default; claim 10.1.0.0/28 of pool q for node a under mars; \
         claim 10.2.0.0/28 of pool r for node a under mars",
    );
}

#[test]
fn a_publication_adds_each_block_under_the_name_of_its_claim() {
    let text = "pool p 10.0.0.0/24 28\npool q 10.1.0.0/24 28 under=mars\n\
                joined a @90 need=8 mars=20 others=10.9.0.0/28\n\
                claim 10.0.0.0/28 a 1 Held @80 under=default\n\
                claim 10.1.0.0/28 a 1 Held @81 of=q under=mars";
    assert_eq!(
        written(&cluster(text), "a"),
        "mars [10.9.0.0/28, 10.1.0.0/28] {\"of\":\"mars\"}; default [10.0.0.0/28] {}"
    );
}

/// What is lacking under one name is no reason to keep what there is under another from an agent.
#[test]
fn a_name_without_free_blocks_holds_no_other_back() {
    let pools = "pool p 10.0.0.0/24 28\npool q 10.1.0.0/28 28 under=mars\nclaim 10.1.0.0/28 b 2 Held @70 of=q \
         under=mars\nnode a 1";
    let mut starts = cluster(&format!("{pools}\nciliumnode a @90 need=8 mars=8"));
    starts.expect(
        "a",
        "claim 10.0.0.0/28 of pool p for node a under default; unmet: no pool of the node has a free ipv4 block of the \
         Cilium pool mars",
    );
    let held = "claim 10.0.0.0/28 a 1 Held @80 under=default";
    let holds = cluster(&format!("{pools}\n{held}\nciliumnode a @90 need=8 mars=8"));
    assert_eq!(written(&holds, "a"), "default [10.0.0.0/28] {}");
}

/// An agent asks for a pool as soon as a Pod wants an address of it, whatever else there is.
#[test]
fn need_under_a_name_that_no_pool_has_is_not_ours() {
    let text = "pool p 10.0.0.0/24 28\njoined a @90 need=8 mars=8 has=10.0.0.0/28\n\
                claim 10.0.0.0/28 a 1 Held @80 under=default";
    cluster(text).expect("a", "nothing");
}

/// Agents take another default pool when they restart, and what stands under the old one is in use until then.
#[test]
fn another_default_pool_moves_nothing() {
    let held = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80 under=mars\nclaim 10.0.0.16/28 \
         a 1 Held @81 under=mars";
    // Before its claims said so, the default was mars.
    let both = cluster(&format!("{held}\nciliumnode a @90 mars=20 others=10.0.0.0/28"));
    assert_eq!(written(&both, "a"), "mars [10.0.0.0/28, 10.0.0.16/28] {\"of\":\"mars\"}");
    cluster(&format!("{held}\nciliumnode a @90 need=8 mars=20 others=10.0.0.0/28,10.0.0.16/28"))
        .expect("a", "claim 10.0.0.32/28 of pool p for node a under default");
    let mut short = cluster(&format!("{held}\nciliumnode a @90 mars=40 others=10.0.0.0/28,10.0.0.16/28"));
    short.expect("a", "finding: NoPool");
}

/// A pool that is recreated with the same ranges under another name finds blocks of the old name.
#[test]
fn a_renamed_pool_gives_new_blocks_under_the_new_name_only() {
    let renamed = "pool p 10.0.0.0/24 28 under=mars\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80 under=default";
    let mut grows = cluster(&format!("{renamed}\nciliumnode a @90 need=8 mars=8 has=10.0.0.0/28"));
    grows.expect("a", "claim 10.0.0.32/28 of pool p for node a under mars");
    // The agent lets the old block go, and it is not taken back for the new name, nor for the old one.
    let mut releases = cluster(&format!(
        "{renamed}\nclaim 10.0.0.16/28 a 1 Held @81 under=mars\nciliumnode a @90 mars=8 others=10.0.0.16/28"
    ));
    releases.expect("a", "release 10.0.0.0/28 of node a (Reclaimed)");
    let mut left = cluster(
        "pool p 10.0.0.0/24 28 under=mars\njoined a @90 need=8 mars=20 others=10.0.0.16/28\n\
         claim 10.0.0.0/28 a 1 Releasing/Reclaimed @80 under=default\n\
         claim 10.0.0.16/28 a 1 Held @81 under=mars",
    );
    assert_eq!(written(&left, "a"), "{\"pool\":\"default\"} {\"pool\":\"mars\"} and asks as of 80");
    left.observe("claim 10.0.0.0/28 a 1 Cooling/Reclaimed @101 under=default");
    left.expect("a", "claim 10.0.0.32/28 of pool p for node a under mars");
}

/// Of another hand, be it in a range of ours: it stays what it is, and nobody gets it.
#[test]
fn a_cidr_under_another_name_than_its_pool_says_is_not_claimed() {
    let text = "pool p 10.0.0.0/24 28\njoined a @90 need=8 others=10.0.0.0/28";
    cluster(text).expect("a", "claim 10.0.0.32/28 of pool p for node a under default");
}

#[test]
fn a_block_that_a_hand_moved_to_another_name_is_reported_and_stays_the_nodes() {
    let held = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80 under=default\nclaim \
         10.0.0.16/28 a 1 Held @81 under=default";
    let moved = "has=10.0.0.0/28 others=10.0.0.16/28";
    cluster(&format!("{held}\nciliumnode a @90 need=8 {moved}")).expect("a", "finding: MisplacedBlock");
    let mut grows = cluster(&format!("{held}\nciliumnode a @90 need=20 {moved}"));
    grows.expect("a", "claim 10.0.0.32/28 of pool p for node a under default; finding: MisplacedBlock");
    let more = "claim 10.0.0.32/28 a 1 Held @82 under=default";
    let patched = cluster(&format!("{held}\n{more}\nciliumnode a @90 need=20 {moved}"));
    assert_eq!(
        written(&patched, "a"),
        "mars [10.0.0.16/28] {\"of\":\"mars\"}; default [10.0.0.0/28, 10.0.0.32/28] {\"of\":\"default\"}"
    );
    // The agent writes back what it lost, and gives both back at the end.
    let twice = "has=10.0.0.0/28,10.0.0.16/28 others=10.0.0.16/28";
    cluster(&format!("{held}\nciliumnode a @90 need=8 {twice}")).expect("a", "finding: MisplacedBlock");
    let mut gone = cluster(&format!("{held}\nciliumnode a @90 need=8 has=10.0.0.0/28"));
    gone.expect("a", "release 10.0.0.16/28 of node a (Reclaimed)");
}

/// An agent need not want an address of its default pool.
#[test]
fn an_agent_that_asks_for_another_pool_alone_is_served() {
    let text = "pool q 10.1.0.0/24 28 under=mars\njoined a @90 mars=8\n\
                claim 10.1.0.0/28 a 1 Held @80 of=q under=mars";
    assert_eq!(written(&cluster(text), "a"), "mars [10.1.0.0/28] {}");
}

#[test]
fn pools_of_one_name_with_blocks_of_another_size_are_reported() {
    let mut cluster = cluster(
        "pool p 10.0.0.0/24 28\npool q 10.1.0.0/24 26 under=mars\npool r 10.2.0.0/24 27 under=default",
    );
    let reported = |cluster: &Cluster, pool: &str| {
        cluster
            .status(pool)
            .conditions
            .remove(&ConditionType::MixedBlockSizes)
            .map(|reported| reported.message)
    };
    let message = reported(&cluster, "p").unwrap();
    assert_has(&message, "pools of the Cilium pool default have another block size: r (ipv4: /27)");
    assert!(reported(&cluster, "r").unwrap().contains("p (ipv4: /28)"));
    assert_eq!(reported(&cluster, "q"), None);
    while let Some(pool) = cluster.world.next_pool().cloned() {
        cluster.world.begin_status(&pool, &PoolPlan::UpToDate, cluster.now);
    }
    cluster.delete(Kind::Pool, "r", 120);
    assert_eq!(reported(&cluster, "p"), None);
    assert_eq!(cluster.world.next_pool(), Some(&"p".into()), "it looks again");
}

#[test]
fn a_node_waits_for_blocks_of_the_name_that_it_lacks() {
    let text = "pool p 10.0.0.0/24 28\npool q 10.1.0.0/28 28 under=mars\n\
                claim 10.1.0.0/28 b 2 Held @70 of=q under=mars\n\
                joined a @90 need=8 mars=8 has=10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @80 under=default";
    let mut cluster = cluster(text);
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block of the Cilium pool mars");
    let waiting = |pool: &str| tally::of(&cluster.world, &pool.into()).nodes.want_growth;
    assert_eq!((waiting("p"), waiting("q")), (0, 1));
    let class = AddressClass { family: Family::V4, pod_ip_pool: Some("mars".into()) };
    assert_eq!(
        why_no_block(&cluster.world, &"a".into(), &class),
        "no pool of the node has a free ipv4 block of the Cilium pool mars; add a CIDR to one of its pools, or \
         create a pool that selects the node: pool q (all blocks are taken)"
    );
    // What becomes free under another name is not offered to it.
    cluster.drain();
    cluster.observe("pool p 10.0.0.0/24 28 @150");
    cluster.drain();
    cluster.observe("claim 10.0.0.16/28 b 2 Held @151 under=default");
    cluster.drain();
    cluster.delete(Kind::Claim, "10.0.0.16-28", 152);
    assert!(!cluster.drain().contains(&"a".to_owned()));
    cluster.observe("pool r 10.2.0.0/28 28 under=mars @160");
    assert!(cluster.drain().contains(&"a".to_owned()));
}

/// A misspelt name, or the default one forgotten.
#[test]
fn a_node_none_of_whose_pools_has_a_name_that_its_agent_asks_for_is_reported() {
    let text = "pool p 10.0.0.0/24 28 under=mras\njoined a @90 need=8";
    let mut cluster = cluster(text);
    cluster.expect("a", "finding: NoPool");
    assert_eq!(
        why_no_pool(&cluster.world, &"a".into()),
        "its agent asks for addresses of the Cilium pools default; create a NodeIPPool with the missing \
         podIPPool that selects it; its pools are pool p (mras)"
    );
    // Others serve it.
    cluster.observe("ciliumnode a @101 need=8 has=10.9.0.0/28");
    cluster.expect("a", "nothing");
}

/// An agent that has one CIDR under two names counts it under both, and gives back what it does not need beside it.
#[test]
fn a_block_that_somebody_put_under_a_second_name_counts_there_too() {
    let text = "joined a @90 need=8 mars=8 has=10.0.0.0/28 others=10.0.0.0/28\n\
                claim 10.0.0.0/28 a 1 Held @80 under=mars\nclaim 10.0.0.160/30 a 1 Held @81 under=default";
    cluster(text).expect("a", "release 10.0.0.160/30 of node a (Reclaimed); finding: MisplacedBlock");
}
