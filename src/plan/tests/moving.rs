//! How far nodes have moved to the mode crd, and their next steps.

use super::node_configs::node_config;
use super::*;
use crate::model::node_config::NodeConfigNews;
use crate::model::surroundings::PodAddresses;
use crate::view::moving::{Direction, Moves, State, Step, next_step};

type Pods = BTreeMap<NodeName, Vec<PodAddresses>>;

const MODES: &str = "cluster-pool v4 + crd v4";

/// A cluster with these objects, and a CiliumNodeConfig that gives labelled nodes the mode crd.
fn cluster(text: &str) -> Cluster {
    let mut cluster = Cluster::serving(MODES, &format!("pool p 10.0.0.0/24 28\n{text}"));
    let config = node_config("move zone=z ipam=crd");
    cluster.world.observe_node_configs(NodeConfigNews::Listed(vec![config]));
    assert_eq!(cluster.world.check(), []);
    cluster
}

/// The Pods of node a.
fn pods(addresses: &[&str]) -> Pods {
    let pod = |address: &&str| PodAddresses {
        name: format!("ns/{address}"),
        node: Some("a".into()),
        addresses: vec![address.parse().unwrap()],
    };
    [("a".into(), addresses.iter().map(pod).collect())].into()
}

/// The state of node a, its next step in a direction, and the closed gates of that step.
fn shown(cluster: &Cluster, pods: &Pods, direction: Direction) -> String {
    let moves = Moves::of(&cluster.world).unwrap();
    let node = cluster.world.node(&"a".into()).unwrap();
    let found = moves.of_node(node, &Ok(pods.clone()));
    let (step, gates) = next_step(&moves, node, &found, direction);
    let closed: Vec<&str> = gates.iter().filter(|gate| !gate.is_open()).map(|gate| gate.name).collect();
    let closed = if closed.is_empty() { String::new() } else { format!(" [{}]", closed.join(" ")) };
    format!("{}: {}{closed}", found.state.as_str(), step.in_words())
}

fn forth(cluster: &Cluster, pods: &Pods) -> String {
    shown(cluster, pods, Direction::Forth)
}

const BLOCK: &str = "claim 10.0.0.0/28 a 1 Held @92";
const AGENT: &str = "agent a 1.20.2";

#[test]
fn a_node_moves_step_by_step() {
    let pod = pods(&["10.0.0.3"]);
    let mut cluster = cluster(&format!("node a 1\nciliumnode a @90 bare 10.0.0.0/28\n{AGENT}"));
    assert_eq!(forth(&cluster, &pod), "Foreign: label zone=z [claims families pods]");
    cluster.observe(BLOCK);
    assert_eq!(forth(&cluster, &pod), "Claimed: label zone=z");
    // The label comes with the annotation, and the controller writes the addresses.
    cluster.observe("node a 1 zone=z holds @95");
    let waits = "Claimed: wait: the controller writes the addresses of its blocks onto its CiliumNode";
    assert_eq!(forth(&cluster, &pod), waits);
    cluster.observe("ciliumnode a @96 10.0.0.0/28 used=unknown");
    assert_eq!(forth(&cluster, &pod), "Prepared: delete Pod cilium-a");
    // It moves for the second time, and the use that its agent reported then is still there.
    cluster.observe("ciliumnode a @97 10.0.0.0/28 used=10.0.0.0/29");
    assert_eq!(forth(&cluster, &pod), "Prepared: delete Pod cilium-a");
    cluster.observe("ciliumnode a @98 10.0.0.0/28 used=unknown");
    cluster.observe("node a 1 zone=z holds=uid-cilium-a @97");
    assert_eq!(forth(&cluster, &pod), "Prepared: delete Pod cilium-a");
    // Another Pod has started.
    cluster.observe("node a 1 zone=z holds=uid-before @98");
    assert_eq!(forth(&cluster, &pod), "Prepared: wait: its agent reports its use");
    cluster.observe("ciliumnode a @99 10.0.0.0/28 used=10.0.0.2/32");
    assert_eq!(forth(&cluster, &pod), "Prepared: wait: its agent reports its use");
    cluster.observe("ciliumnode a @100 10.0.0.0/28 used=10.0.0.0/29");
    assert_eq!(forth(&cluster, &pod), "Moved: commit");
    cluster.observe("node a 1 zone=z @101");
    assert_eq!(forth(&cluster, &pod), "Committed: -");
}

/// It has moved before, and its pods are the same as then. Only a change of the use is the work of the new Pod.
#[test]
fn the_use_that_an_earlier_move_left_proves_nothing() {
    let pod = pods(&["10.0.0.3"]);
    // The value of the annotation in the first command of the next step.
    let hold = |cluster: &Cluster| {
        let moves = Moves::of(&cluster.world).unwrap();
        let node = cluster.world.node(&"a".into()).unwrap();
        let found = moves.of_node(node, &Ok(pods(&["10.0.0.3"])));
        let (step, _) = next_step(&moves, node, &found, Direction::Forth);
        let commands = step.commands(&"a".into(), "kube-system");
        commands[0].rsplit_once('=').unwrap().1.to_owned()
    };
    let used = "used=10.0.0.0/29";
    let mut cluster = cluster(&format!("node a 1\nciliumnode a @90 10.0.0.0/28 {used}\n{BLOCK}\n{AGENT}"));
    assert_eq!(forth(&cluster, &pod), "Claimed: label zone=z");
    cluster.observe(&format!("node a 1 zone=z holds={} @94", hold(&cluster)));
    // The addresses of the first move are still there.
    assert_eq!(forth(&cluster, &pod), "Prepared: delete Pod cilium-a");
    cluster.observe(&format!("node a 1 zone=z holds={} @96", hold(&cluster)));
    assert_eq!(forth(&cluster, &pod), "Prepared: delete Pod cilium-a");
    let next = "agent a 1.20.2 named=cilium-next";
    cluster.observe_agents(AgentNews::Listed(vec![lines::agent(next)]));
    let waits =
        "Prepared: wait: its agent reports its use, which was there before: the next pod there changes it";
    assert_eq!(forth(&cluster, &pod), waits);
    cluster.observe("ciliumnode a @97 10.0.0.0/28 used=10.0.0.0/28");
    assert_eq!(forth(&cluster, &pod), "Moved: commit");
    // The annotation of an earlier version names the Pod alone.
    cluster.observe("node a 1 zone=z holds=uid-cilium-a @98");
    assert_eq!(forth(&cluster, &pod), "Moved: commit");
}

#[test]
fn a_node_goes_back_while_its_pods_are_in_its_first_block() {
    let moved = format!(
        "node a 1 zone=z holds=uid-before\nciliumnode a @90 10.0.0.0/28 10.0.0.16/28 used=10.0.0.0/28\n{BLOCK}\n\
         claim 10.0.0.16/28 a 1 Held @93\n{AGENT}"
    );
    let back = |cluster: &Cluster, pods: &Pods| shown(cluster, pods, Direction::Back);
    let mut cluster = cluster(&moved);
    assert_eq!(back(&cluster, &pods(&["10.0.0.17"])), "Prepared: label zone- [pods further-blocks]");
    let inside = pods(&["10.0.0.3"]);
    // The next pod may start in the second block.
    assert_eq!(back(&cluster, &inside), "Moved: label zone- [further-blocks]");
    let cordoned = "taint=node.kubernetes.io/unschedulable";
    cluster.observe(&format!("node a 1 zone=z holds=uid-before {cordoned} @94"));
    assert_eq!(back(&cluster, &inside), "Moved: label zone-");
    cluster.observe(&format!("node a 1 holds {cordoned} @95"));
    assert_eq!(back(&cluster, &inside), "Back: delete Pod cilium-a");
    // A pod that has started in between would lose its network. In the mode crd its agent finds all blocks.
    let late = pods(&["10.0.0.17"]);
    assert_eq!(back(&cluster, &late), "Blocked: delete Pod cilium-a [pods]");
    assert_eq!(forth(&cluster, &late), "Blocked: label zone=z");
    cluster.observe(&format!("node a 1 holds=uid-before {cordoned} @96"));
    assert_eq!(back(&cluster, &inside), "Back: commit");
    cluster.observe_agents(AgentNews::Listed(vec![lines::agent(&format!("{AGENT} unready"))]));
    assert_eq!(back(&cluster, &inside), "Back: wait: its agent is Ready");
    cluster.observe_agents(AgentNews::Listed(Vec::new()));
    assert_eq!(back(&cluster, &inside), "Back: wait: its agent starts");
}

/// Nothing is known then about the pods that a step would cost.
#[test]
fn where_pods_or_node_configs_are_not_known_no_step_is_free() {
    let text = format!("node a 1 holds\nciliumnode a @90 10.0.0.0/28 used=10.0.0.0/28\n{BLOCK}\n{AGENT}");
    let mut cluster = cluster(&text);
    let moves = Moves::of(&cluster.world).unwrap();
    let node = cluster.world.node(&"a".into()).unwrap();
    let found = moves.of_node(node, &Err("forbidden".to_owned()));
    let (step, gates) = next_step(&moves, node, &found, Direction::Back);
    assert!(matches!(step, Step::Restart(..)), "{step:?}");
    assert!(gates.iter().any(|gate| gate.name == "pods" && !gate.is_open()), "{gates:?}");
    cluster.world.observe_node_configs(NodeConfigNews::Unlisted("forbidden".to_owned()));
    assert!(Moves::of(&cluster.world).is_err_and(|why| why.contains("in which mode each node runs")));
}

/// The label of a host or a zone is not a person's.
#[test]
fn labels_that_kubernetes_gives_are_never_changed() {
    let text = format!("node a 1\nciliumnode a @90 bare 10.0.0.0/28\n{BLOCK}\n{AGENT}");
    let mut cluster = cluster(&text);
    let config = node_config("canary kubernetes.io/hostname=w1 ipam=crd");
    cluster.world.observe_node_configs(NodeConfigNews::Listed(vec![config]));
    let without = "Claimed: create a CiliumNodeConfig with `ipam: crd` [node-config]";
    assert_eq!(forth(&cluster, &pods(&[])), without);
}

/// In the mode crd an agent without addresses waits, and one with some loses the pods of the others.
#[test]
fn a_restart_loses_the_pods_outside_of_what_the_agent_finds() {
    let lost = |text: &str, addresses: &[&str]| {
        let cluster = cluster(text);
        let moves = Moves::of(&cluster.world).unwrap();
        let node = cluster.world.node(&"a".into()).unwrap();
        moves.of_node(node, &Ok(pods(addresses))).lost_at_restart.unwrap()
    };
    let crd = |more: &str| format!("node a 1 zone=z\nciliumnode a @90 {more}\n{BLOCK}");
    assert_eq!(lost(&crd("bare 10.0.0.0/28"), &["10.0.0.3", "10.9.9.9"]), [""; 0]);
    assert_eq!(lost(&crd("10.0.0.0/28"), &["10.0.0.3"]), [""; 0]);
    assert_eq!(lost(&crd("10.0.0.0/28 off=10.0.0.8/29"), &["10.0.0.3", "10.0.0.9"]), ["ns/10.0.0.9"]);
    let second = format!(
        "node a 1\nciliumnode a @90 bare 10.0.0.0/28 10.0.0.16/28\n{BLOCK}\nclaim 10.0.0.16/28 a 1 Held @93"
    );
    assert_eq!(lost(&second, &["10.0.0.3", "10.0.0.17"]), ["ns/10.0.0.17"]);
}

/// An agent in the mode cluster-pool allocates neither of them, so it can't restore their pods.
#[test]
fn a_pod_with_the_first_or_last_address_of_a_block_does_not_survive_the_return() {
    let text = format!("node a 1 zone=z\nciliumnode a @90 10.0.0.0/28 used=10.0.0.0/28\n{BLOCK}\n{AGENT}");
    let mut cluster = cluster(&text);
    let lost = |cluster: &Cluster| {
        let moves = Moves::of(&cluster.world).unwrap();
        let node = cluster.world.node(&"a".into()).unwrap();
        let found = moves.of_node(node, &Ok(pods(&["10.0.0.0", "10.0.0.3", "10.0.0.15"])));
        (found.lost_on_return.unwrap(), found.lost_at_restart.unwrap())
    };
    let ends = ["ns/10.0.0.0", "ns/10.0.0.15"].map(str::to_owned).to_vec();
    assert_eq!(lost(&cluster), (ends.clone(), Vec::new()));
    cluster.observe("node a 1 @95");
    assert_eq!(lost(&cluster), (Vec::new(), ends));
}

#[test]
fn nodes_that_need_a_person_come_first() {
    let text = format!(
        "node a 1\nciliumnode a @90 bare 10.0.0.0/28\n{BLOCK}\nnode b 1\nciliumnode b @91 bare 10.0.0.32/28\nnode c 1"
    );
    let cluster = cluster(&text);
    let found = Moves::of(&cluster.world).unwrap().all(&Ok(pods(&["10.9.9.9"])), &[]);
    let found: Vec<(&str, State)> = found.iter().map(|found| (found.node.as_str(), found.state)).collect();
    assert_eq!(found, [("a", State::Blocked), ("b", State::Foreign), ("c", State::New)]);
}

#[test]
fn nodes_of_a_cluster_in_multi_pool_do_not_move() {
    let cluster = Cluster::serving("multi-pool v4", "node a 1");
    assert!(Moves::of(&cluster.world).is_err_and(|why| why.contains("can't move one by one")));
}
