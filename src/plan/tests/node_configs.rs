//! Tests of what CiliumNodeConfigs set for single nodes.

use super::*;
use crate::model::node_config::{NodeConfig, NodeConfigNews};
use crate::model::pod_ip_pool::PodIpPoolNews;
use crate::publisher::Publisher;
use crate::publisher::multi_pool::{Bgp, MultiPool};

use super::pod_ip_pools::{keep_pools, pod_ip_pool, written};

/// A CiliumNodeConfig in a line: `NAME all|none|zone=Z KEY=VALUE…`.
pub(super) fn node_config(line: &str) -> NodeConfig {
    let words: Vec<&str> = line.split_whitespace().collect();
    let selector = match words[1] {
        "none" => None,
        "all" => Some(kube_core::Selector::default()),
        zone => {
            let (key, value) = zone.split_once('=').expect("a label");
            Some(kube_core::Expression::Equal(key.to_owned(), value.to_owned()).into())
        }
    };
    let defaults = words[2..].iter().map(|word| {
        let (key, value) = word.split_once('=').expect("a setting");
        (key.to_owned(), value.to_owned())
    });
    NodeConfig { name: words[0].to_owned(), selector, defaults: defaults.collect() }
}

fn observe(cluster: &mut Cluster, news: NodeConfigNews) {
    cluster.world.observe_node_configs(news);
    assert_eq!(cluster.world.check(), []);
}

/// These are all CiliumNodeConfigs.
fn listed(cluster: &mut Cluster, lines: &[&str]) {
    observe(cluster, NodeConfigNews::Listed(lines.iter().map(|line| node_config(line)).collect()));
}

fn multi_pool(text: &str) -> Cluster {
    Cluster::serving("multi-pool v4", text)
}

const ASIDE: &str =
    "finding: OtherSettings; waits: a CiliumNodeConfig gives this node settings that are not supported";

const NODES: &str =
    "pool p 10.0.0.0/24 28\nnode a 1 zone=z\nnode b 2\nciliumnode a @90 mars=8\nciliumnode b @91 need=8";

#[test]
fn a_pool_without_a_name_gives_blocks_under_the_default_of_each_node() {
    let mut cluster = multi_pool(NODES);
    assert!(!rendered(&cluster.plan("a")).contains("claim"), "its agent does not ask for the default of all");
    listed(&mut cluster, &["rack zone=z ipam-default-ip-pool=mars"]);
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a under mars");
    cluster.expect("b", "claim 10.0.0.32/28 of pool p for node b under default");
}

#[test]
fn of_two_that_set_one_key_the_last_by_name_counts() {
    let mut cluster = multi_pool(NODES);
    let others = ["a none ipam-default-ip-pool=pluto", "b all enable-bgp-control-plane=true"];
    let ours = ["c zone=z ipam-default-ip-pool=mars", "a-too all ipam-default-ip-pool=venus"];
    listed(&mut cluster, &[ours[0], others[0], ours[1], others[1]]);
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a under mars");
    assert_eq!(rendered(&cluster.plan("b")), "finding: NoPool", "its agent asks for the name before");
    observe(&mut cluster, NodeConfigNews::Deleted(node_config("a-too all")));
    cluster.expect("b", "claim 10.0.0.32/28 of pool p for node b under default");
}

/// As after a change of `cilium-config`: an agent that still asks for the name before gets no more of it.
#[test]
fn what_is_published_stays_under_its_name_when_the_default_changes() {
    let mut cluster = multi_pool(
        "pool p 10.0.0.0/24 28\nnode a 1 zone=z\nciliumnode a @90 need=8 mars=8 has=10.0.0.0/28\n\
         claim 10.0.0.0/28 a 1 Held @80 under=default",
    );
    listed(&mut cluster, &["rack zone=z ipam-default-ip-pool=mars"]);
    cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a under mars");
    observe(&mut cluster, NodeConfigNews::Listed(Vec::new()));
    assert!(cluster.world.next_node().is_some(), "it decides again");
}

/// What follows for a node is derived anew when `cilium-config` changes, and nothing of before is left.
#[test]
fn cilium_config_may_come_to_say_what_is_set_for_a_node() {
    let mut cluster = multi_pool(NODES);
    let of_all = |name: &str, bgp| {
        let families = [Family::V4].into();
        Mode::from(Publisher::MultiPool(MultiPool { families, default_pool: name.into(), bgp }))
    };
    for set in ["ipam-default-ip-pool=mars", "ipam-default-ip-pool=mars enable-bgp-control-plane=true"] {
        listed(&mut cluster, &[&format!("rack zone=z {set}")]);
        for (name, bgp) in [("mars", Bgp::Off), ("mars", Bgp::On), ("venus", Bgp::On), ("default", Bgp::Off)]
        {
            cluster.world.set_mode(of_all(name, bgp));
            assert_eq!(cluster.world.check(), []);
        }
    }
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a under mars");
}

#[test]
fn labels_decide_again_what_is_set_for_a_node() {
    let mut cluster = multi_pool(NODES);
    listed(&mut cluster, &["rack zone=y ipam-default-ip-pool=mars"]);
    cluster.drain();
    assert!(!rendered(&cluster.plan("a")).contains("claim"));
    cluster.observe("node a 1 zone=y @95");
    cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a under mars");
    cluster.delete(Kind::Node, "a", 96);
}

/// An agent in another mode reads other fields, and somebody else may write these.
#[test]
fn a_node_in_another_mode_is_left_alone() {
    let mut cluster = multi_pool(NODES);
    listed(&mut cluster, &["rack zone=z ipam=cluster-pool"]);
    cluster.expect("a", ASIDE);
    let plan = cluster.plan("a");
    for part in ["CiliumNodeConfig rack sets `ipam: cluster-pool`", "`ipam: multi-pool`", "keeps its blocks"]
    {
        assert!(plan.findings[0].message.contains(part), "{}", plan.findings[0].message);
    }
    cluster.expect("b", "claim 10.0.0.0/28 of pool p for node b under default");
    // The same mode in other words is none.
    listed(&mut cluster, &["rack zone=z ipam=multi-pool ipam-default-ip-pool=mars"]);
    cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a under mars");
    listed(&mut cluster, &["rack zone=z ipam=eni"]);
    cluster.in_flight.clear();
    let mut crd = Cluster::of("pool p 10.0.0.0/24 28\nnode a 1 zone=z\nciliumnode a @90");
    listed(&mut crd, &["rack zone=z ipam=kubernetes"]);
    crd.expect("a", ASIDE);
    // What it holds it keeps, and when its Node is gone that goes as ever.
    let mut held = multi_pool(
        "pool p 10.0.0.0/24 28\nnode a 1 zone=z\nciliumnode a @90 need=8\nclaim 10.0.0.0/28 a 1 Held @80",
    );
    listed(&mut held, &["rack zone=z ipam=cluster-pool"]);
    held.expect("a", ASIDE);
    held.delete(Kind::Node, "a", 95);
    assert!(!rendered(&held.plan("a")).contains("OtherSettings"));
}

#[test]
fn a_node_gets_blocks_of_the_families_that_its_agent_runs() {
    let text = "pool p 10.0.0.0/24 28\npool q fd00::/120 124\nnode a 1 zone=z\nciliumnode a @90";
    for (setting, n_claims) in [("enable-ipv6=false", 1), ("enable-ipv6=true", 2), ("enable-ipv4=0", 1)] {
        let mut cluster = Cluster::serving("crd v4 v6", text);
        listed(&mut cluster, &[&format!("rack zone=z {setting}")]);
        let plan = cluster.plan("a");
        assert_eq!(plan.requests().len(), n_claims, "{setting}: {}", rendered(&plan));
    }
    let mut cluster = Cluster::serving("crd v4 v6", text);
    listed(&mut cluster, &["rack zone=z enable-ipv6=false enable-ipv4=false"]);
    cluster.expect("a", ASIDE);
}

/// A pool tells of the families that the agents of its nodes run, which need not be those of most agents.
#[test]
fn a_pool_says_which_family_is_missing_where_that_is_set_for_some_nodes() {
    let ready = |mode: &str, config: &str| {
        let text = "pool p 10.0.0.0/24 28\nnode a 1 zone=z\nnode b 1\nciliumnode a @90\nciliumnode b @91";
        let mut cluster = Cluster::serving(mode, text);
        listed(&mut cluster, &[config]);
        cluster.condition("p", ConditionType::Ready)
    };
    let serving = "Serving true: selected nodes get blocks";
    assert_eq!(ready("crd v4", "rack zone=y enable-ipv6=true"), serving);
    assert_eq!(
        ready("crd v4", "rack zone=z enable-ipv6=true"),
        format!("{serving}, except those whose agents also run ipv6 and that no pool gives ipv6 blocks: a")
    );
    let all = ready("crd v4", "rack all enable-ipv6=true");
    assert!(all.starts_with("FamilyMissing false: the agents also run ipv6"), "{all}");
    assert!(all.ends_with(": a, b"), "{all}");
    assert_eq!(
        ready("crd v4 v6", "rack zone=z enable-ipv6=false"),
        format!("{serving}, except those whose agents also run ipv6 and that no pool gives ipv6 blocks: b")
    );
    assert_eq!(ready("crd v4 v6", "rack all enable-ipv6=false"), serving);
}

/// The name of a node's blocks may be its own, as its families are.
#[test]
fn a_pool_looks_for_the_missing_family_under_the_name_of_each_node() {
    let ready = |name: &str| {
        let text = format!(
            "pool p 10.0.0.0/24 28\npool six fd00::/112 122 under={name}\nnode a 1 zone=z\nciliumnode a @90 mars=8"
        );
        let mut cluster = Cluster::serving("multi-pool v4 v6", &text);
        listed(&mut cluster, &["rack zone=z ipam-default-ip-pool=mars"]);
        cluster.condition("p", ConditionType::Ready)
    };
    let served = "Serving true: selected nodes get blocks, and ipv6 blocks from other pools";
    assert_eq!(ready("mars"), served);
    assert_starts(&ready("default"), "FamilyMissing false: ");
}

#[test]
fn a_pool_tells_of_an_object_that_lacks_a_family_which_some_nodes_run_alone() {
    let mut cluster = Cluster::serving(
        "multi-pool v4 bgp",
        "pool p 10.0.0.0/24 28\npool six fd00::/112 122\nnode a 1 zone=z\nciliumnode a @90 need=8\nagent a 1.20.2",
    );
    cluster.world.observe_pod_ip_pools(PodIpPoolNews::Listed(vec![pod_ip_pool("default v4=28")]));
    let unfit = |cluster: &Cluster| cluster.condition("six", ConditionType::UnfitPodIPPool);
    assert_eq!(unfit(&cluster), "");
    listed(&mut cluster, &["rack zone=z enable-ipv6=true"]);
    assert!(unfit(&cluster).starts_with("PodIPPoolLacksFamily true"), "{}", unfit(&cluster));
}

/// An agent with BGP ends when it has a CIDR of a family that the object of its name lacks.
#[test]
fn nothing_is_given_where_bgp_is_on_for_the_node_alone_and_the_object_lacks_the_family() {
    let nothing = "unmet: no pool of the node has a free ipv4 block of the Cilium pool default";
    let mut cluster =
        multi_pool("pool p 10.0.0.0/24 28\nnode a 1 zone=z\nciliumnode a @90 need=8\nagent a 1.20.2");
    cluster.world.observe_pod_ip_pools(PodIpPoolNews::Listed(vec![pod_ip_pool("default v6=122")]));
    listed(&mut cluster, &["rack zone=z enable-bgp-control-plane=true"]);
    cluster.expect("a", nothing);
    listed(&mut cluster, &[]);
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a under default");
}

/// Agents that start need the object of their own default, and pools tell of it.
#[test]
fn a_pool_tells_of_the_object_of_each_default_of_its_nodes() {
    let mut cluster = multi_pool(&format!("{NODES}\nagent a 1.20.2\nagent b 1.20.2"));
    cluster.world.observe_pod_ip_pools(PodIpPoolNews::Listed(vec![pod_ip_pool("default v4=28")]));
    let reported = |cluster: &Cluster| cluster.condition("p", ConditionType::UnfitPodIPPool);
    assert!(!reported(&cluster).contains("mars"), "{}", reported(&cluster));
    listed(&mut cluster, &["rack zone=z ipam-default-ip-pool=mars"]);
    assert!(reported(&cluster).contains("CiliumPodIPPool mars does not exist"), "{}", reported(&cluster));
    assert!(cluster.world.next_pool().is_some(), "it is looked at again");
}

/// The controller creates the object of each, where it is to.
#[test]
fn the_object_of_each_default_is_created() {
    let mut cluster = multi_pool(NODES);
    cluster.world.observe_pod_ip_pools(PodIpPoolNews::Listed(Vec::new()));
    listed(
        &mut cluster,
        &["rack zone=z ipam-default-ip-pool=mars", "shelf zone=y ipam-default-ip-pool=venus"],
    );
    keep_pools(&mut cluster);
    let created = |name: &str| format!("create CiliumPodIPPool {name} with ipv4 [10.0.0.0/24] /28");
    assert_eq!(written(&cluster, "p"), [created("default"), created("mars")], "no node of it has venus");
    cluster.observe("pool p 10.0.0.0/24 28 under=pluto @195");
    keep_pools(&mut cluster);
    assert_eq!(written(&cluster, "p"), [created("pluto")]);
}

#[test]
fn modes_with_one_block_go_by_it_too() {
    let text = "pool p 10.0.0.0/24 28\nnode a 1 zone=z annotated=10.0.0.0/28\nciliumnode a @90";
    // Where its agent reads annotations, what they say is taken, and may be adopted.
    let mut cluster = Cluster::serving("kubernetes v4", text);
    cluster.expect_after_claims("a", "claim 10.0.0.0/28 of pool p for node a");
    let mut cluster = Cluster::serving("kubernetes v4", text);
    listed(&mut cluster, &["rack zone=z annotate-k8s-node=true"]);
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "claim 10.0.0.0/28 of pool p for node a");
    let carried = |cluster: &Cluster| cluster.world.ledger().carried(&"a".into()).is_some();
    assert!(carried(&cluster), "what its annotation says is taken");
    listed(&mut cluster, &[]);
    assert!(!carried(&cluster));
    let mut cluster = Cluster::serving("kubernetes v4 annotate annotations", text);
    listed(&mut cluster, &["rack zone=z annotate-k8s-node=false"]);
    assert!(rendered(&cluster.plan("a")).starts_with("finding: OtherSettings"));
    let mut cluster = Cluster::serving("cluster-pool v4", text);
    listed(&mut cluster, &["rack zone=z ipam=multi-pool"]);
    assert!(rendered(&cluster.plan("a")).starts_with("finding: OtherSettings"));
}

/// A refused list takes nothing from what was known before, and nothing is set where nothing was known.
#[test]
fn without_the_right_every_node_is_served_as_cilium_config_says() {
    let mut cluster = multi_pool(NODES);
    observe(&mut cluster, NodeConfigNews::Unlisted("forbidden".to_owned()));
    cluster.expect("b", "claim 10.0.0.0/28 of pool p for node b under default");
}
