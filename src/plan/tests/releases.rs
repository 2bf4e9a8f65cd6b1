//! Tests of what is done for nodes whose agents are of this or that release of Cilium.

use super::*;
use crate::view::agents;

const UPGRADE: &str = "finding: UnsupportedCilium; waits: its agent version is not supported";

/// A node that asks for its first block, whose agents these are.
fn newcomer(agents: &str) -> String {
    let cluster = Cluster::of(&format!("pool p 10.0.0.0/24 28\njoined a @50\n{agents}"));
    rendered(&cluster.plan("a"))
}

#[test]
fn nothing_is_claimed_for_an_agent_that_undoes_what_is_published() {
    let claims = "claim 10.0.0.0/28 of pool p for node a";
    for release in ["1.11.20", "1.12.17", "1.13.10", "1.14.1"] {
        assert_eq!(newcomer(&format!("agent a {release}")), UPGRADE, "{release}");
    }
    // An unknown release is trusted, and so is a node whose agent is not known.
    for agents in
        ["agent a 1.12.18", "agent a 1.13.11", "agent a 1.14.2", "agent a 1.20.2", "agent a none", ""]
    {
        let plan = newcomer(agents);
        assert!(plan.starts_with(claims), "{agents}: {plan}");
    }
}

#[test]
fn the_weakest_agent_that_may_run_counts() {
    assert_eq!(newcomer("agent a 1.13.10 deleting named=old\nagent a 1.17.8"), UPGRADE);
    assert_eq!(newcomer("agent a 1.13.10 named=z\nagent a none"), UPGRADE);
    assert_ne!(newcomer("agent a 1.13.10 ended named=old\nagent a 1.17.8"), UPGRADE);
    assert_ne!(newcomer("agent b 1.13.10\nagent a 1.17.8"), UPGRADE);
}

#[test]
fn a_node_keeps_what_it_has_and_gets_more_after_the_upgrade() {
    let full = "pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used=15";
    let mut cluster = Cluster::of(&format!("{full}\nagent a 1.13.10"));
    cluster.expect("a", UPGRADE);
    assert_eq!(cluster.drain(), [""; 0]);
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.13.11 named=new")));
    assert_eq!(rendered(&cluster.plan("a")), UPGRADE, "the old one is not gone");
    cluster.observe_agents(AgentNews::Deleted(agent("agent a 1.13.10")));
    assert_eq!(cluster.world.next_node(), Some(&"a".into()));
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
}

#[test]
fn a_claim_that_is_held_is_not_published_and_an_agent_is_not_asked() {
    let held = "pool p 10.0.0.0/24 28\njoined a @50\nclaim 10.0.0.0/28 a 1 Held @40\nagent a 1.14.1";
    Cluster::of(held).expect("a", UPGRADE);
    let silent = "pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used=unknown\nagent a 1.14.1";
    Cluster::of(silent).expect_for(3600, "a", UPGRADE);
}

#[test]
fn blocks_of_a_node_that_is_gone_come_back_whatever_its_agent_was() {
    let gone = "pool p 10.0.0.0/24 28\nclaim 10.0.0.0/28 a 1 Held @40\nagent a 1.14.1";
    let plan = rendered(&Cluster::of(gone).plan("a"));
    assert!(!plan.contains("release of Cilium"), "{plan}");
}

#[test]
fn a_pool_names_its_nodes_that_get_nothing_and_the_way_out() {
    let ready = |agents: &str| {
        let text = format!("pool p 10.0.0.0/24 28\nnode a 1\nnode b 1\n{agents}");
        Cluster::of(&text).condition("p", ConditionType::Ready)
    };
    assert_eq!(ready("agent a 1.17.8\nagent b none"), "Serving true: selected nodes get blocks");
    let why = "agents of Cilium 1.13.10 overwrite spec.ipam.podCIDRs in crd mode: their nodes keep their \
         blocks and get no more; upgrade these agents to 1.13.11, or to 1.14.2 or newer";
    assert_eq!(
        ready("agent a 1.17.8\nagent b 1.13.10"),
        format!("Serving true: selected nodes get blocks; but {why}: 1 node, b (1.13.10)")
    );
    assert_eq!(
        ready("agent a 1.14.1\nagent b 1.13.10"),
        format!("UnsupportedCilium false: {why}: 2 nodes, a (1.14.1), b (1.13.10)")
    );
}

#[test]
fn an_administrator_may_vouch_for_another_release() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28\njoined a @50\nagent a 1.13.10");
    cluster.expect("a", UPGRADE);
    cluster.observe_agents(AgentNews::Vouched("1.13.11".parse().unwrap()));
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

#[test]
fn the_start_says_which_releases_there_are() {
    let cluster = Cluster::of(
        "node a 1\nnode b 1\nnode c 1\nnode d 1\nnode e 1\nagent a 1.17.8\nagent b 1.17.8\nagent c 1.13.10\n\
         agent d 1.12.19",
    );
    let lines = agents::lines(&cluster.world);
    let [unsupported, unknown, without_fence, full] = &lines[..] else { panic!("{lines:#?}") };
    assert!(unsupported.starts_with("1 node with Cilium 1.13.10 (c): agents of Cilium 1.13.10 overwrite "));
    assert_starts(unknown, "1 node with an unknown version of Cilium (e): the controller serves them like ");
    assert!(without_fence.starts_with("1 node with Cilium 1.12.19 (d): they get blocks; "));
    assert_eq!(full, "2 nodes with Cilium 1.17.8: fully supported");
}
