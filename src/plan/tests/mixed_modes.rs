//! Tests of clusters whose nodes run in different modes of Cilium, as CiliumNodeConfigs say.

use super::node_configs::node_config;
use super::*;
use crate::model::address_class::AddressClass;
use crate::model::node_config::NodeConfigNews;
use crate::plan::why_no_block;

const FROM_CLUSTER_POOL: &str = "cluster-pool v4 + crd v4";
const TO_CRD: &str = "crd v4 + cluster-pool v4 + kubernetes v4";

/// Node a is in the zone z. Its pods and those of node b have addresses of one block each.
const NODES: &str = "pool p 10.0.0.0/24 28\nnode a 1 zone=z\nnode b 1\n\
                     ciliumnode a @90 bare 10.0.0.0/28 agents=10.0.0.9\nciliumnode b @91 bare 10.0.0.16/28\n\
                     claim 10.0.0.0/28 a 1 Held @92\nclaim 10.0.0.16/28 b 1 Held @93";

const MAP_OF_A: &str = "publish [] and 16 addresses on ciliumnode a";

fn listed(cluster: &mut Cluster, lines: &[&str]) {
    cluster
        .world
        .observe_node_configs(NodeConfigNews::Listed(lines.iter().map(|line| node_config(line)).collect()));
    assert_eq!(cluster.world.check(), []);
}

#[test]
fn one_node_moves_while_the_others_keep_their_mode() {
    let mut cluster = Cluster::serving(FROM_CLUSTER_POOL, NODES);
    listed(&mut cluster, &[]);
    cluster.expect("a", "nothing");
    listed(&mut cluster, &["canary zone=z ipam=crd"]);
    assert_eq!(rendered(&cluster.plan("a")), MAP_OF_A);
    cluster.expect("b", "nothing");
    // Its label takes it back.
    cluster.observe("node a 1 @95");
    assert_eq!(cluster.world.check(), []);
    cluster.expect("a", "nothing");
}

#[test]
fn nodes_keep_the_former_mode_until_their_label_is_removed() {
    let mut cluster = Cluster::serving(TO_CRD, NODES);
    listed(&mut cluster, &["old zone=z ipam=cluster-pool"]);
    cluster.expect("a", "nothing");
    cluster.expect("b", "publish [] and 16 addresses on ciliumnode b");
    cluster.observe("node a 1 @95");
    cluster.expect("a", MAP_OF_A);
}

/// An agent takes its first block in the mode in which it starts.
#[test]
fn nodes_that_join_get_blocks_in_their_own_mode() {
    let text = "pool p 10.0.0.0/24 28\nnode a 1 zone=z\nnode b 1\nciliumnode a @90 bare\nciliumnode b @91";
    let mut cluster = Cluster::serving(TO_CRD, text);
    listed(&mut cluster, &["rack zone=z ipam=cluster-pool"]);
    // A node that gets one block for life has its claims read first.
    cluster.expect_after_claims("a", "claim 10.0.0.0/28 of pool p for node a");
    cluster.expect("b", "claim 10.0.0.32/28 of pool p for node b");
    for (node, block, n_addresses) in [("a", "10.0.0.0/28", 14), ("b", "10.0.0.32/28", 16)] {
        let claim = format!("claim {block} {node} 1 Held @110");
        cluster.answered_with(&claim);
        cluster.observe(&claim);
        let published = format!("publish [{block}] and {n_addresses} addresses on ciliumnode {node}");
        assert_eq!(rendered(&cluster.plan(node)), published);
    }
}

/// Its agent may go back to the podCIDRs of its Node with any restart.
#[test]
fn pod_cidrs_of_a_node_are_taken_where_nodes_may_read_them() {
    let text = "pool p 10.0.0.0/24 28\nnode a 1 has=10.0.0.0/28\nnode b 1\nciliumnode b @91";
    let mut cluster = Cluster::serving("crd v4", text);
    cluster.expect("b", "claim 10.0.0.0/28 of pool p for node b");
    let mut cluster = Cluster::serving(TO_CRD, text);
    cluster.expect("b", "claim 10.0.0.32/28 of pool p for node b");
}

#[test]
fn a_mode_that_is_not_served_names_the_flag() {
    let mut cluster = Cluster::serving("cluster-pool v4", NODES);
    listed(&mut cluster, &["canary zone=z ipam=crd"]);
    let plan = cluster.plan("a");
    assert_has(&message(&plan), "set `--modes cluster-pool,crd` to serve both");
    let mut cluster = Cluster::serving("crd v4 + cluster-pool v4", NODES);
    listed(&mut cluster, &["rack zone=z ipam=multi-pool"]);
    assert_has(&message(&cluster.plan("a")), "remove the node from the nodeSelector or the key");
}

/// The operator takes each podCIDR but the first from a node, and may give it to another.
#[test]
fn a_moved_node_gets_no_further_block_in_the_ranges_of_a_living_operator() {
    let modes = "cluster-pool v4 operator=10.0.0.0/16 + crd v4";
    let grows = "pool p 10.0.0.0/24 28 freeBelow=8\nnode a 1 zone=z\nnode b 1\n\
                 ciliumnode a @90 10.0.0.0/28 used=10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @92";
    let config = ["canary zone=z ipam=crd"];
    let mut cluster = Cluster::serving(modes, &format!("{grows}\nciliumnode b @91 bare"));
    listed(&mut cluster, &config);
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
    let mut cluster =
        Cluster::serving(modes, &format!("{grows}\nciliumnode b @91 bare manager=cilium-operator"));
    listed(&mut cluster, &config);
    let plan = cluster.plan("a");
    assert!(plan.requests().is_empty(), "{}", rendered(&plan));
    let class = AddressClass { family: Family::V4, pod_ip_pool: None };
    assert_has(&why_no_block(&cluster.world, &"a".into(), &class), "cilium-operator allocates in its ranges");
    let elsewhere =
        grows.replace("pool p 10.0.0.0/24 28", "pool p 10.0.0.0/24 28 cordoned\npool r 10.9.0.0/24 28");
    let mut cluster =
        Cluster::serving(modes, &format!("{elsewhere}\nciliumnode b @91 bare manager=cilium-operator"));
    listed(&mut cluster, &config);
    cluster.expect("a", "claim 10.9.0.0/28 of pool r for node a");
}

/// The agent may have run in the other mode since the claim was made, and used the block there.
#[test]
fn nothing_proves_that_a_claim_was_never_published_where_nodes_may_change_their_mode() {
    let text = "pool p 10.0.0.0/24 28\nnode a 1 has=10.9.0.0/24 @7\nclaim 10.0.0.0/28 a 1 Held @90 for=1";
    let cluster = Cluster::serving("kubernetes v4", text);
    assert_has(&rendered(&cluster.plan("a")), "release 10.0.0.0/28 of node a (Unused)");
    let cluster = Cluster::serving("kubernetes v4 + crd v4", text);
    let plan = rendered(&cluster.plan("a"));
    assert!(!plan.contains("release"), "{plan}");
}

/// With several modes they decide about each node.
#[test]
fn nothing_is_written_where_the_settings_of_nodes_are_unknown_and_may_matter() {
    let unlisted = Some("can't list CiliumNodeConfigs: refused with 403");
    assert_eq!(lines::mode("crd v4").without_node_configs(unlisted), lines::mode("crd v4"));
    let Mode::Passive(why) = lines::mode(TO_CRD).without_node_configs(unlisted) else { panic!() };
    assert_has(&why, "refused with 403; with several --modes");
    assert_eq!(lines::mode(TO_CRD).without_node_configs(None), lines::mode(TO_CRD));
}

/// Two blocks of node a; the pool of the second one drains.
const LEAVES: &str = "pool p 10.0.0.0/28 28\npool q 10.0.0.16/28 28 draining\npool r 10.9.0.0/24 28\nnode a 1\n\
                      agent a 1.20.2\nclaim 10.0.0.0/28 a 1 Held @80\n";

/// The agent of the mode multi-pool may still run, and take a CIDR again whose removal it has missed.
#[test]
fn no_version_proves_that_a_block_left_which_was_leaving_in_the_mode_multi_pool() {
    let leaving = format!(
        "{LEAVES}claim 10.0.0.16/28 a 1 Releasing/Reclaimed @95 of=q\nciliumnode a @99 10.0.0.0/28 used=unknown"
    );
    let rendered_with =
        |fields: &str| rendered(&Cluster::serving("crd v4", &format!("{leaving} {fields}")).plan("a"));
    assert_eq!(rendered_with("need=8 has=10.0.0.0/28"), "nothing");
    // Only an agent of that mode answers our query.
    assert_eq!(rendered_with("asked=90"), "nothing");
    assert_eq!(rendered_with(""), "cool 10.0.0.16/28 of node a");
    // It has taken the block again.
    assert_eq!(rendered_with("need=8 has=10.0.0.0/28,10.0.0.16/28"), "hold 10.0.0.16/28 for node a again");
}

/// A pod may have got an address of it just before its removal, and its agent may have restarted in crd mode.
#[test]
fn a_block_with_the_name_of_a_pod_ip_pool_leaves_when_no_pod_has_an_address_of_it() {
    let text = format!(
        "{LEAVES}claim 10.0.0.16/28 a 1 Releasing/Reclaimed @95 of=q under=default\nciliumnode a @99 10.0.0.0/28 used=0"
    );
    let mut cluster = Cluster::serving("crd v4", &text);
    cluster.looked(&[("10.0.0.20", "apps/db")]);
    assert_eq!(rendered(&cluster.plan("a")), "finding: DrainWaits");
    cluster.pass(60);
    cluster.looked(&[]);
    assert_eq!(rendered(&cluster.plan("a")), "cool 10.0.0.16/28 of node a");
}

/// The need on its CiliumNode is that of before, and no block is taken that pods may use now.
#[test]
fn a_node_that_returns_to_the_mode_multi_pool_keeps_the_blocks_of_its_pods() {
    let held =
        "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80\nclaim 10.0.0.16/28 a 1 Held @81";
    let returned = |text: &str, fields: &str| {
        let cluster = Cluster::serving("multi-pool v4", &format!("{text}\nciliumnode a @99 {fields}"));
        rendered(&cluster.plan("a"))
    };
    let publishes = "publish [10.0.0.16/28] and 14 addresses on ciliumnode a";
    assert_eq!(returned(held, "10.0.0.0/28 10.0.0.16/28 used=1 need=8 has=10.0.0.0/28"), publishes);
    // An agent of 1.20 has removed the use, or a person the map.
    let released = "release 10.0.0.16/28 of node a (Reclaimed)";
    assert_eq!(returned(held, "10.0.0.0/28 10.0.0.16/28 used=0 need=8 has=10.0.0.0/28"), released);
    assert_eq!(returned(held, "used=1 need=8 has=10.0.0.0/28"), released);
    // The block must leave, and no pod is in it just now.
    let drains = format!("{LEAVES}claim 10.0.0.16/28 a 1 Held @81 of=q");
    let both = "need=8 has=10.0.0.0/28,10.0.0.16/28";
    assert_eq!(returned(&drains, &format!("10.0.0.0/28 10.0.0.16/28 used=1 {both}")), "finding: DrainWaits");
    assert_eq!(returned(&drains, both), "read the pods of node a");
}

/// Its agent may still run in the mode multi-pool, which knows no such handshake.
#[test]
fn a_drain_waits_until_the_fields_of_the_mode_multi_pool_are_removed() {
    let map = "ciliumnode a @99 10.0.0.0/28 10.0.0.16/28 used=10.0.0.0/29";
    let plan = |state: &str, fields: &str| {
        Cluster::serving("crd v4", &format!("{LEAVES}claim 10.0.0.16/28 a 1 {state} of=q\n{map} {fields}"))
            .plan("a")
    };
    let waits = plan("Held @81", "has=10.0.0.0/28");
    assert_eq!(rendered(&waits), "finding: DrainWaits");
    assert_has(&message(&waits), "the CiliumNode has fields of another mode in spec.ipam: pools");
    assert_eq!(rendered(&plan("Held @81", "")), "send a usage query to the agent of node a");
    // The agent of the mode before drained it.
    assert_eq!(rendered(&plan("Draining @95", "has=10.0.0.0/28")), "hold 10.0.0.16/28 for node a again");
}
