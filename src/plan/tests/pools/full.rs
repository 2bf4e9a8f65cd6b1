//! Tests of pools without a free block: what takes their blocks, who holds them, who waits, and the remedy that fits.

use super::*;

#[test]
fn what_takes_blocks_without_a_claim_is_counted_and_named() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/25 28\npool q 10.9.0.0/24 28\nnode a 1\nciliumnode a @50 10.0.0.0/27\nnode b 1 own=10.0.0.32/28\n\
         unreadable NodeIPBlock odd 10.0.0.48/32 @41\nclaim 10.0.0.64/28 c 1 Held @40",
    );
    assert_eq!(cluster.blocks("p"), [8, 1, 3, 4]);
    assert_eq!(
        cluster.condition("p", ConditionType::Obstructed),
        "BlocksUnavailable true: unavailable blocks (ipv4: 4): addresses without a claim: CiliumNode a \
         (10.0.0.0/27), the unreadable NodeIPBlock odd (10.0.0.48/32); only reserved addresses \
         in 10.0.0.32/28 (node b)",
    );
    assert_eq!(cluster.condition("q", ConditionType::Obstructed), "Unobstructed false: ",);
    assert_eq!(
        cluster.findings(),
        [
            "ForeignAddresses NodeIPPool p: these blocks have only addresses of nodes themselves, and nodes \
             don't get them: 10.0.0.32/28; exclude the network of the nodes, or remove it from `cidrs`",
            "ForeignAddresses CiliumNode a: it has 10.0.0.0/27 without a claim, in the ranges of pool p: other \
             nodes get no blocks there; remove them from the CiliumNode once no pod uses them",
        ],
    );
    // It is claimed at once.
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @50 10.0.0.0/28");
    assert_eq!(cluster.findings(), [""; 0]);
    cluster.drain();
    assert_eq!(cluster.in_flight.len(), 1);
    assert_eq!(cluster.findings(), [""; 0], "it is being claimed");
}

#[test]
fn claims_that_are_none_of_the_pool_are_named() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\npool q 10.9.0.0/24 28\nclaim 10.0.0.0/28 a 1 Held @40\n\
         claim 10.0.0.16/28 b 1 Held @41 of=q\nclaim 10.0.0.32/27 c 1 Held @42",
    );
    assert_eq!(
        cluster.condition("p", ConditionType::Obstructed),
        "BlocksUnavailable true: unavailable blocks (ipv4: 1): claims of another pool: 10.0.0.16/28 of \
         pool q",
    );
    // What an older pool keeps is none of its blocks, whoever has it.
    let under = Cluster::of(
        "pool p 10.0.0.0/24 28 younger\npool q 10.0.0.0/26 28\nclaim 10.0.0.0/28 a 1 Held @40 of=q\n\
         claim 10.0.0.64/28 b 1 Held @41 of=q\nnode c 1\nciliumnode c @50 10.0.0.16/29",
    );
    assert_eq!(
        under.condition("p", ConditionType::Obstructed),
        "BlocksUnavailable true: unavailable blocks (ipv4: 1): claims of another pool: 10.0.0.64/28 of pool q",
    );
}

#[test]
fn a_pool_is_exhausted_when_what_is_free_cannot_be_used() {
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/27 28\nnode a 1 own=10.0.0.0/28\nciliumnode a @50\nnode b 1\nciliumnode b @51 10.0.0.16/28\n\
         claim 10.0.0.16/28 b 1 Held @40",
    );
    cluster.expect("a", "unmet: no pool of the node has a free ipv4 block");
    let exhausted = "NoFreeBlocks true: ipv4: 0 of 2 blocks free (1 held, 1 unavailable: only reserved addresses in 10.0.0.0/28 (node a)); waiting: 1 node without addresses, 0 for growth; add a CIDR";
    assert_eq!(cluster.condition("p", ConditionType::Exhausted), exhausted);
}

/// The cause and its remedy, and not only that blocks are missing.
#[test]
fn a_full_pool_names_who_takes_its_blocks_without_a_claim() {
    let check = |text: &str, who: &str, remedy: &str| {
        let cluster = Cluster::of(&format!("pool p 10.0.0.0/26 28\njoined a @50\n{text}"));
        let exhausted = cluster.condition("p", ConditionType::Exhausted);
        let expected =
            format!("NoFreeBlocks true: ipv4: 0 of 4 blocks free (0 held, 4 unavailable: {who}); ");
        assert!(exhausted.starts_with(&expected) && exhausted.ends_with(remedy), "{exhausted}");
        let ready = cluster.condition("p", ConditionType::Ready);
        assert!(ready.ends_with(remedy), "{ready}");
    };
    check(
        "node b 1\nciliumnode b @51 10.0.0.0/26",
        "addresses without a claim: CiliumNode b (10.0.0.0/26)",
        "; remove CIDRs without a claim from the CiliumNodes once no pod uses them, or add a CIDR",
    );
    check(
        "node b 1 own=10.0.0.0/26",
        "only reserved addresses in 10.0.0.0/28, 10.0.0.16/28, 10.0.0.32/28, 10.0.0.48/28 (node b)",
        "; add a CIDR outside of the network of the nodes",
    );
    check(
        "unreadable NodeIPBlock odd 10.0.0.0/26 @41",
        "addresses without a claim: the unreadable NodeIPBlock odd (10.0.0.0/26)",
        "; correct the unreadable objects, or add a CIDR",
    );
}

#[test]
fn a_full_pool_says_who_holds_it_and_the_remedy_that_fits() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @90");
    cluster.observe("claim 10.0.0.16/28 gone 2 Held @91");
    cluster.observe("claim 10.0.0.32/28 lost 3 Cooling/NodeGone @92");
    cluster.observe("claim 10.0.0.48/28 a 1 Held @93");
    let said = cluster.condition("p", ConditionType::Exhausted);
    assert!(said.contains("0 of 4 blocks free (3 held, 1 of them by deleted nodes, 1 cooling"), "{said}");
    assert!(said.contains("reuseAfterNodeLoss") && said.ends_with("once their machines are off"), "{said}");
}

/// Times are those of the object, and not of the process.
#[test]
fn a_full_pool_names_the_node_that_waits_longest_and_a_restart_keeps_its_time() {
    let text = "pool p 10.0.0.0/28 28\njoined a @50 10.0.0.0/28 used=3\nnode b 2\nnode c 3\n\
                ciliumnode b @51\nciliumnode c @52";
    let object = |cluster: &Cluster| cluster.world.pool_object(&"p".into()).expect("it is a pool").clone();
    let mut cluster = Cluster::of(text);
    cluster.observe_kept("pool p 10.0.0.0/28 28 @60");
    cluster.drain();
    let began = cluster.now.wall;
    cluster.pass(60);
    cluster.settle_pool("p", 120);
    let shown = object(&cluster);
    assert_eq!(shown.status.longest_wait, BTreeMap::from([(Need::First, "b".into())]));
    assert_eq!(shown.waits_since, BTreeMap::from([(Need::First, began)]));
    cluster.pass(600);
    assert_eq!(cluster.status("p"), shown.status, "an unchanged world writes nothing");

    let mut restarted = Cluster::of(text);
    restarted.pass(3600);
    restarted.world.observe(Observation::Applied(Box::new(Object::Pool(shown.clone()))));
    assert_eq!(restarted.status("p").longest_wait, shown.status.longest_wait, "before any decision");
    restarted.drain();
    restarted.settle_pool("p", 130);
    assert_eq!(object(&restarted).waits_since, shown.waits_since);

    // It waits no more: the next one is named, with the time at which this process has seen it wait.
    restarted.delete(Kind::CiliumNode, "b", 140);
    restarted.delete(Kind::Node, "b", 140);
    restarted.drain();
    restarted.pass(60);
    restarted.settle_pool("p", 150);
    assert_eq!(object(&restarted).status.longest_wait, BTreeMap::from([(Need::First, "c".into())]));
}

/// The forecast needs them, and a write per grant would be one too many.
#[test]
fn a_pool_keeps_the_blocks_on_nodes_once_per_hour_in_its_status() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28\nnode a 1");
    cluster.observe_kept("pool p 10.0.0.0/24 28 @60");
    let samples = |cluster: &Cluster| {
        let object = cluster.world.pool_object(&"p".into()).expect("it is a pool");
        object.history[&Family::V4].iter().map(|sample| sample.on_nodes).collect::<Vec<_>>()
    };
    cluster.settle_pool("p", 100);
    assert_eq!(samples(&cluster), [0]);
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    cluster.pass(60);
    cluster.settle_pool("p", 120);
    assert_eq!(samples(&cluster), [0], "the last sample is a minute old");
    cluster.pass(60);
    let PoolPlan::UpToDateUntil(due) = cluster.pool_plan("p") else { panic!("{:?}", cluster.pool_plan("p")) };
    assert_eq!(due, cluster.now.uptime + Duration::from_secs(3600 - 120));
    cluster.pass(3600);
    cluster.settle_pool("p", 130);
    assert_eq!(samples(&cluster), [0, 1]);
    cluster.pass(36_000);
    assert_eq!(cluster.settle_pool("p", 140), "UpToDate", "nothing changes");
}
