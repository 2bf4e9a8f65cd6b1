//! Nodes that lose their first block only by a rejoin, and the blocks that they would have then.

use super::*;
use crate::forecast::rejoin::rejoined;
use crate::view::departures::departures;
use crate::view::moving::{Direction, Moves, next_step};
use crate::view::rejoin::rejoins;

/// Two nodes with a first block in a draining range. The podCIDRs of the one name it.
const DRAINS: &str = "pool p 10.0.0.0/26 28 draining\npool q 10.1.0.0/27 28
    node a 1 has=10.0.0.0/28\nciliumnode a @50 10.0.0.0/28 used=10.0.0.2/32
    claim 10.0.0.0/28 a 1 Held @40\nagent a 1.20.2
    joined b @60 10.0.0.16/28 10.0.0.32/28 used=1\nagent b 1.20.2
    joined c @70 10.1.0.16/28 used=1";

fn shown(cluster: &Cluster) -> Vec<String> {
    let world = &cluster.world;
    let found = rejoins(world, &departures(world, |_| true));
    let texts = found.iter().map(|rejoin| {
        format!("{}: {:?} {:?}", rejoin.node, rejoin.blocks.as_slice(), rejoin.named.as_slice())
    });
    texts.collect()
}

fn after(cluster: &Cluster, nodes: &[&str]) -> Vec<String> {
    let nodes: Vec<NodeName> = nodes.iter().map(|name| (*name).into()).collect();
    let found = rejoined(&cluster.world, &nodes, Policy::DEFAULT, cluster.now);
    let texts = found.iter().map(|(node, blocks)| {
        let blocks: Vec<String> = blocks.iter().map(ToString::to_string).collect();
        format!("{node}: {}", blocks.join(" "))
    });
    texts.collect()
}

#[test]
fn only_first_blocks_that_must_leave_need_a_rejoin() {
    let cluster = Cluster::of(DRAINS);
    assert_eq!(shown(&cluster), ["a: [10.0.0.0/28] [10.0.0.0/28]", "b: [10.0.0.16/28] []"]);
    // Of a node with one block for its life nothing leaves in this way.
    let of_one_block = Cluster::serving(
        "cluster-pool v4",
        "pool p 10.0.0.0/26 28 draining\njoined a @50 bare 10.0.0.0/28 used=unknown",
    );
    assert_eq!(shown(&of_one_block), [""; 0]);
}

#[test]
fn a_node_that_rejoins_has_another_block_in_front() {
    let cluster = Cluster::of(DRAINS);
    assert_eq!(after(&cluster, &["a"]), ["a: 10.1.0.0/28 10.0.0.0/28"]);
    assert_eq!(after(&cluster, &["b"]), ["b: 10.1.0.0/28 10.0.0.16/28 10.0.0.32/28"]);
    // There is one free block for two nodes.
    let both = ["a: 10.1.0.0/28 10.0.0.0/28", "b: 10.0.0.16/28 10.0.0.32/28"];
    assert_eq!(after(&cluster, &["a", "b"]), both);
}

#[test]
fn the_cost_of_a_rejoin_names_blocks_that_stay_taken() {
    let cluster = Cluster::of(DRAINS);
    let found = rejoins(&cluster.world, &departures(&cluster.world, |_| true));
    let [a, b] = found.as_slice() else { panic!("{found:?}") };
    assert!(a.costs()[1].contains("podCIDRs of Node a name 10.0.0.0/28"), "{:?}", a.costs());
    assert_eq!(b.costs().len(), 1);
    // The CiliumNode is deleted while no agent runs.
    let commands = b.commands();
    let place = |part: &str| commands.iter().position(|command| command.contains(part)).expect("a command");
    let order = ["drain b", "shut machine b", "Ready=Unknown", "delete ciliumnode b", "start", "uncordon b"];
    assert!(order.map(place).is_sorted(), "{commands:?}");
}

/// The next step of node a, and the closed gates.
fn next(cluster: &Cluster) -> String {
    let moves = Moves::of(&cluster.world).unwrap();
    let node = cluster.world.node(&"a".into()).unwrap();
    let found = moves.of_node(node, &Ok(BTreeMap::new()));
    let (step, gates) = next_step(&moves, node, &found, Direction::Forth);
    let closed: Vec<&str> = gates.iter().filter(|gate| !gate.is_open()).map(|gate| gate.name).collect();
    format!("{}: {} {closed:?}", found.state.as_str(), step.in_words())
}

#[test]
fn the_step_after_the_commit_is_a_rejoin_if_a_first_block_must_leave() {
    let of = |pool: &str, node: &str, agent: &str| {
        Cluster::of(&format!(
            "pool p 10.0.0.0/26 28 {pool}\npool q 10.1.0.0/27 28\nnode a 1 {node}\n\
             ciliumnode a @50 10.0.0.0/28 used=10.0.0.2/32\nclaim 10.0.0.0/28 a 1 Held @40\nagent a {agent}"
        ))
    };
    let rejoin = "Committed: rejoin, so that 10.0.0.0/28 leaves";
    assert_eq!(next(&of("draining", "", "1.20.2")), format!("{rejoin} []"));
    assert_eq!(next(&of("draining", "", "none")), format!("{rejoin} []"), "an unknown version");
    assert_eq!(next(&of("draining", "", "1.13.2")), format!("{rejoin} [\"agent\"]"));
    assert_eq!(next(&of("cordoned", "", "1.20.2")), "Committed: - []");
    // Its move is not committed, so no block leaves it.
    assert_eq!(next(&of("draining", "holds=uid-before", "1.20.2")), "Moved: commit []");
    let mut frozen = of("draining", "", "1.20.2");
    frozen.world.set_freeze(Freeze::of([(Switch::Reclaim, "of a test".to_owned())]));
    assert_eq!(next(&frozen), format!("{rejoin} [\"reclaim\"]"));
}
