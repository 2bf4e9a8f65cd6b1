//! Findings about obstacles without a claim.

use super::*;
use crate::view::duplicates::duplicates;
use crate::view::findings;

fn found(cluster: &Cluster) -> Vec<String> {
    findings::of_world(&cluster.world).map(|finding| finding.to_string()).collect()
}

/// The one finding, which has all of these parts.
#[track_caller]
fn check(cluster: &Cluster, parts: &[&str]) {
    let found = found(cluster);
    let [finding] = found.as_slice() else { panic!("{found:#?}") };
    for part in parts {
        assert_has(finding, part);
    }
}

fn block() -> Cidr {
    "10.0.0.0/28".parse().unwrap()
}

const SERVED: &str = "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @50 10.0.0.0/28 used=1\n\
                      claim 10.0.0.0/28 a 1 Held @40";

#[test]
fn pod_cidrs_of_a_node_that_another_node_holds_are_named_with_their_readers_and_their_allocator() {
    let cluster = Cluster::of(&format!("{SERVED}\nnode b 1 has=10.0.0.0/26\nnode c 1 has=10.9.0.0/24"));
    check(
        &cluster,
        &[
            "PodCIDRConflict Node b: 1 node has a CIDR in spec.podCIDRs of the Node that other nodes hold: b has \
             10.0.0.0/26, and node a has 10.0.0.0/28; ",
            "routers, cloud route controllers and BGP speakers",
            "Cilium's mode crd does not use it",
            "--allocate-node-cidrs=false of kube-controller-manager",
        ],
    );
    let own = Cluster::of(&SERVED.replace("node a 1", "node a 1 has=10.0.0.0/28"));
    assert_eq!(found(&own), [""; 0], "routes lead to its holder");
    let many: Vec<String> = (0..40).map(|number| format!("node n{number} 1 has=10.0.0.0/26")).collect();
    let many = Cluster::of(&format!("{SERVED}\n{}", many.join("\n")));
    check(&many, &["40 nodes have CIDRs", " and 30 more; "]);
}

#[test]
fn in_a_mode_in_which_agents_use_them_pod_cidrs_of_others_are_no_conflict() {
    let text = format!("{SERVED}\nnode b 1 has=10.0.0.0/26");
    let cluster_pool = Cluster::serving("cluster-pool v4", &text);
    check(&cluster_pool, &["PodCIDRConflict Node b: ", "Cilium's mode cluster-pool"]);
    let kubernetes = Cluster::serving("kubernetes v4", &text);
    assert!(found(&kubernetes).iter().all(|finding| !finding.contains("PodCIDRConflict")));
    assert_eq!(kubernetes.world.routed_to_others(block(), &"a".into()).next(), None);
}

#[test]
fn the_nodes_that_routes_lead_to_are_known_as_they_come_and_go() {
    let mut cluster = Cluster::of(&format!("{SERVED}\nnode b 1 has=10.0.0.0/26 @10"));
    let routed = |cluster: &Cluster| -> Vec<String> {
        let (block, node) = (block(), "a".into());
        let found = cluster.world.routed_to_others(block, &node);
        found.map(|(cidr, node)| format!("{cidr} {node}")).collect()
    };
    assert_eq!(routed(&cluster), ["10.0.0.0/26 b"]);
    cluster.observe("node b 1 @110");
    assert_eq!(routed(&cluster), [""; 0]);
    cluster.observe("node b 1 has=10.0.0.0/29 @111");
    assert_eq!(routed(&cluster), ["10.0.0.0/29 b"]);
    cluster.delete(Kind::Node, "b", 112);
    assert_eq!(routed(&cluster), [""; 0]);
}

#[test]
fn a_cidr_of_a_served_node_that_is_in_no_pool_is_named() {
    let with = |cidrs: &str| Cluster::of(&SERVED.replace("@50 10.0.0.0/28", &format!("@50 {cidrs}")));
    check(
        &with("10.42.0.0/24 10.0.0.0/28"),
        &[
            "PodCIDROutsidePools CiliumNode a: 1 CiliumNode with spec.ipam.podCIDRs in no pool: a (10.42.0.0/24, as the first of its family); ",
        ],
    );
    check(&with("10.0.0.0/28 10.42.0.0/24"), &["in no pool: a (10.42.0.0/24); "]);
    assert_eq!(found(&with("10.0.0.0/28")), [""; 0]);
}

#[test]
fn a_pool_over_the_network_of_nodes_says_how_many_and_which_machines_are_unknown() {
    let nodes = "node b 1 own=10.0.0.200/32\nnode c 1 own=10.0.0.201/32\nnode d 1 own=192.168.0.1/32";
    let cluster = Cluster::of(&format!("{SERVED}\n{nodes}"));
    check(
        &cluster,
        &[
            "NodeNetworkInPool NodeIPPool p: 2 nodes with an own address in its ranges: b (10.0.0.200), c \
             (10.0.0.201); ",
            "gateways, DHCP servers and other machines of that network are in no object",
        ],
    );
    let excluded = SERVED.replace("10.0.0.0/24 28", "10.0.0.0/24 28 exclude=10.0.0.192/26");
    assert_eq!(found(&Cluster::of(&format!("{excluded}\n{nodes}"))), [""; 0]);
    // Its router has an address of its own block.
    let router = SERVED.replace("used=1", "used=1 own=10.0.0.1/32");
    assert_eq!(found(&Cluster::of(&router)), [""; 0]);
}

#[test]
fn nodes_with_one_internal_ip_are_named() {
    let mut cluster = Cluster::of("node a 1 own=192.168.0.1/32\nnode b 1 own=192.168.0.2/32");
    assert_eq!(found(&cluster), [""; 0]);
    cluster.observe("ciliumnode a @50 own=192.168.0.1/32");
    assert_eq!(found(&cluster), [""; 0], "one machine has both objects");
    cluster.observe("node b 1 own=192.168.0.1/32 @110");
    check(
        &cluster,
        &[
            "SharedInternalIP Node a: 1 InternalIP of several Nodes, and the only one of some: 192.168.0.1 (a, b); ",
            "--node-ip",
        ],
    );
    // One of them also has an address of its own.
    cluster.observe("node a 1 own=192.168.0.0/31 @111");
    check(&cluster, &["SharedInternalIP Node b: "]);
    // Both have.
    cluster.observe("node b 1 own=192.168.0.1/32,192.168.0.9/32 @112");
    assert_eq!(found(&cluster), [""; 0], "a virtual address beside others");
}

#[test]
fn in_kubernetes_mode_findings_about_carriers_are_about_nodes() {
    let text = "pool p 10.0.0.0/24 28\nnode a 1 has=10.0.0.0/28\nclaim 10.0.0.0/28 a 1 Held @40\n\
                node b 1 has=10.0.0.0/30";
    let cluster = Cluster::serving("kubernetes v4", text);
    let found = found(&cluster);
    assert!(
        found.iter().any(|finding| finding.starts_with("ForeignAddresses Node b: ")
            && finding.ends_with("remove them from the Node once no pod uses them")),
        "{found:#?}"
    );
    assert!(found.iter().all(|finding| !finding.contains("CiliumNode ")), "{found:#?}");
    assert_eq!(duplicates(&cluster.world).len(), 1);
}
