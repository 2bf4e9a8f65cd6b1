//! How many pods a node can ever give addresses to, and how many kubelet allows.

use super::*;
use crate::forecast::change::Change;
use crate::forecast::outlook::outlook;
use crate::model::surroundings::Surroundings;
use crate::view::audit::audit;
use crate::view::audit::catalog::Check;
use crate::view::max_pods::{bound, excess};
use crate::view::overview::overview;

/// Fails unless node `a` has this bound, as `ADDRESSES FAMILY: LIMIT`; empty without one.
#[track_caller]
fn check(mode: &str, text: &str, expected: &str) {
    let cluster = Cluster::serving(mode, text);
    let bound = bound(&cluster.world, &"a".into());
    let shown =
        bound.map(|bound| format!("{} {}: {}", bound.n_addresses, bound.family.as_str(), bound.limit));
    assert_eq!(shown.unwrap_or_default(), expected, "{mode}: {text}");
}

#[test]
fn a_node_with_one_block_for_its_life_has_the_addresses_of_that_block() {
    let life = "it keeps one block for its life";
    // 64 without the first, the last and that of the router.
    check("kubernetes v4", "pool p 10.0.0.0/24 26\nnode a 1", &format!("61 ipv4: {life}"));
    // The pool has larger blocks by now, and the node keeps its own.
    check(
        "kubernetes v4",
        "pool p 10.0.0.0/16 24\nnode a 1 has=10.9.0.0/26\nclaim 10.9.0.0/26 a 1 Held @40",
        &format!("61 ipv4: {life}"),
    );
    check("cluster-pool v4", "pool p 10.0.0.0/24 26\nnode a 1", &format!("61 ipv4: {life}"));
    check("kubernetes v4", "node a 1", "");
    // Another writer gave it this CIDR.
    check("kubernetes v4", "pool p 10.0.0.0/24 26\nnode a 1 has=10.9.0.0/26", "");
    check("kubernetes v4", "pool p 10.0.0.0/24 26\nnode a 1 deleting", "");
    check("kubernetes v4", "pool p 10.0.0.0/24 26\nnode a 1 label=kubernetes.io/os=windows", "");
}

#[test]
fn a_node_that_grows_is_bound_by_the_limits_of_its_first_pool() {
    let per_node = "perNode of pool p does not allow more";
    let pool = |words: &str| format!("pool p 10.0.0.0/16 28 {words}\nnode a 1\nciliumnode a @50");
    // 4 blocks of 16, without that of the router.
    check("crd v4", &pool("maxBlocks=4"), &format!("63 ipv4: {per_node}"));
    check("crd v4", &pool("maxBlocks=16 maxAddresses=100"), &format!("95 ipv4: {per_node}"));
    check("crd v4", &pool("maxBlocks=0"), &format!("0 ipv4: {per_node}"));
    // It has a block of another size, which counts for the number of blocks too.
    check(
        "crd v4",
        "pool p 10.0.0.0/16 28 maxBlocks=3\njoined a @50 10.1.0.0/29 used=2",
        &format!("39 ipv4: {per_node}"),
    );
    // A block that drains gives no pod an address.
    check(
        "crd v4",
        "pool p 10.0.0.0/16 28 maxBlocks=1\njoined a @50 10.0.0.0/28 10.0.0.16/28 used=1\n\
         claim 10.0.0.16/28 a 1 Draining @41",
        &format!("15 ipv4: {per_node}"),
    );
    check("crd v4", "joined a @50 10.0.0.0/28 used=2", "15 ipv4: no pool gives it another block");
    check("crd v4", "node a 1\nciliumnode a @50", "");
    // Blocks of 14 addresses each in this mode.
    check("multi-pool v4", &pool("maxBlocks=4"), &format!("55 ipv4: {per_node}"));
}

#[test]
fn a_pod_needs_an_address_of_each_family() {
    let text =
        "pool p 10.0.0.0/16 28 maxBlocks=4\npool q fd00::/112 124 maxBlocks=2\nnode a 1\nciliumnode a @50";
    check("crd v4 v6", text, "31 ipv6: perNode of pool q does not allow more");
    check("crd v4 v6", "pool p 10.0.0.0/16 28\nnode a 1\nciliumnode a @50", "");
}

#[test]
fn names_of_pod_ip_pools_add_up() {
    let text = "pool p 10.0.0.0/16 28 maxBlocks=1\npool q 10.1.0.0/16 28 maxBlocks=1 under=red\n\
                node a 1\nciliumnode a @50";
    check("multi-pool v4", text, "27 ipv4: perNode of pool q does not allow more");
}

#[test]
fn more_pods_than_addresses_are_a_warning_of_every_command() {
    let text = "pool p 10.0.0.0/24 26\nnode a 1 maxPods=110\nnode b 2 maxPods=61\nnode c 3";
    let cluster = Cluster::serving("kubernetes v4", text);
    let said = "kubelet allows 110 pods, and the node can have at most 61 ipv4 addresses for pods: it keeps one \
                block for its life";
    assert_eq!(excess(&cluster.world, &"a".into()).unwrap().to_string(), said);
    assert_eq!([excess(&cluster.world, &"b".into()), excess(&cluster.world, &"c".into())], [None, None]);
    let lines = audit(&cluster.world, &[], &Surroundings::default());
    let of_pods = lines.iter().filter(|line| line.check == Check::MaxPods);
    let found: Vec<(String, Vec<&str>)> =
        of_pods.map(|line| (line.cause.clone(), line.objects.keys().map(String::as_str).collect())).collect();
    assert_eq!(found, [(said.to_owned(), vec!["a"])]);
    let overview = overview(&cluster.world, &[], cluster.now.wall);
    let problems: Vec<(&str, String)> =
        overview.problems.iter().map(|problem| (problem.kind, problem.subjects.join(","))).collect();
    assert_eq!(problems, [("MaxPods", "a".to_owned())]);
}

/// The number of nodes with addresses, of pods now and at most, and the limit of kubelet.
#[track_caller]
fn check_added(mode: &str, text: &str, n_added: usize, expected: Option<(usize, u128, u128, Option<u32>)>) {
    let cluster = Cluster::serving(mode, text);
    let added = [Change::AddNodes(n_added, BTreeMap::new())];
    let outlook = outlook(&cluster.world, &added, Policy::DEFAULT, cluster.now).unwrap();
    let found = outlook.pods.map(|pods| (pods.n_nodes, pods.now, pods.most, pods.max_pods));
    assert_eq!(found, expected, "{mode}: {text}");
}

#[test]
fn added_nodes_run_as_many_pods_as_their_blocks_and_kubelet_allow() {
    let pool = "pool p 10.0.0.0/24 28";
    // 15 pods in each first block, and 63 in four blocks.
    check_added("crd v4", pool, 2, Some((2, 30, 126, None)));
    // The pool has 16 blocks: after 8 first ones there are 8 of 16 addresses.
    check_added("crd v4", pool, 8, Some((8, 120, 120 + 128, None)));
    check_added("crd v4", pool, 17, Some((16, 240, 240, None)));
    check_added("kubernetes v4", pool, 2, Some((2, 26, 26, None)));
    check_added("crd v4", &format!("{pool}\nnode z 1 maxPods=40"), 2, Some((2, 30, 80, Some(40))));
    check_added(
        "crd v4",
        &format!("{pool}\nnode y 1 maxPods=40\nnode z 2 maxPods=50"),
        1,
        Some((1, 15, 63, None)),
    );
    check_added("crd v4", "pool p 10.0.0.0/24 28 zone=b", 2, None);
}
