//! Tests of the decisions for nodes by the agent version.

use super::*;
use crate::view::agents;

const OLD: &str = "finding: UnsupportedCilium";
const SERVES: &str = "Serving true: selected nodes get blocks";
const CLAIM: &str = "claim 10.0.0.0/28 of pool p for node a";

/// A node that asks for its first block, with these agents.
fn newcomer(agents: &str) -> String {
    let cluster = Cluster::of(&format!("pool p 10.0.0.0/24 28\njoined a @50\n{agents}"));
    rendered(&cluster.plan("a"))
}

#[test]
fn an_agent_that_is_too_old_is_served_and_reported() {
    for release in ["1.11.20", "1.12.19", "1.13.18", "1.14.1"] {
        assert_eq!(newcomer(&format!("agent a {release}")), format!("{CLAIM}; {OLD}"), "{release}");
    }
    // An unknown version is trusted, and so is a node whose agent is not known.
    for agents in ["agent a 1.14.2", "agent a 1.20.2", "agent a none", ""] {
        assert_eq!(newcomer(agents), CLAIM, "{agents}");
    }
}

#[test]
fn the_weakest_agent_that_may_run_counts() {
    let is_old = |agents: &str| newcomer(agents).ends_with(OLD);
    assert!(is_old("agent a 1.13.10 deleting named=old\nagent a 1.17.8"));
    assert!(is_old("agent a 1.13.10 named=z\nagent a none"));
    assert!(!is_old("agent a 1.13.10 ended named=old\nagent a 1.17.8"));
    assert!(!is_old("agent b 1.13.10\nagent a 1.17.8"));
}

#[test]
fn a_node_grows_before_and_after_the_upgrade() {
    const GROW: &str = "claim 10.0.0.16/28 of pool p for node a";
    let full = "pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used=15";
    let mut cluster = Cluster::of(&format!("{full}\nagent a 1.13.10"));
    assert_eq!(rendered(&cluster.plan("a")), format!("{GROW}; {OLD}"));
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.14.2 named=new")));
    assert_eq!(rendered(&cluster.plan("a")), format!("{GROW}; {OLD}"), "the old one is not gone");
    cluster.observe_agents(AgentNews::Deleted(agent("agent a 1.13.10")));
    cluster.expect("a", GROW);
}

#[test]
fn blocks_of_a_node_that_is_gone_come_back_whatever_its_agent_was() {
    let gone = "pool p 10.0.0.0/24 28\nclaim 10.0.0.0/28 a 1 Held @40\nagent a 1.14.1";
    let plan = rendered(&Cluster::of(gone).plan("a"));
    assert!(!plan.contains("UnsupportedCilium"), "{plan}");
}

#[test]
fn a_pool_names_its_nodes_with_old_agents_and_the_remedy() {
    let ready = |agents: &str| {
        let text = format!("pool p 10.0.0.0/24 28\nnode a 1\nnode b 1\n{agents}");
        Cluster::of(&text).condition("p", ConditionType::Ready)
    };
    assert_eq!(ready("agent a 1.17.8\nagent b none"), SERVES);
    let why = "agents of Cilium 1.13.10 are older than 1.14.2 and may overwrite spec.ipam.podCIDRs: their nodes \
         get blocks, and none is reclaimed; upgrade these agents to 1.14.2 or newer";
    assert_eq!(ready("agent a 1.17.8\nagent b 1.13.10"), format!("{SERVES}; but {why}: 1 node, b (1.13.10)"));
    assert_eq!(
        ready("agent a 1.14.1\nagent b 1.13.10"),
        format!("{SERVES}; but {why}: 2 nodes, a (1.14.1), b (1.13.10)")
    );
}

#[test]
fn an_administrator_may_vouch_for_another_version() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/24 28\njoined a @50\nagent a 1.13.10");
    assert_eq!(rendered(&cluster.plan("a")), format!("{CLAIM}; {OLD}"));
    cluster.observe_agents(AgentNews::Vouched("1.14.2".parse().unwrap()));
    cluster.expect("a", CLAIM);
}

#[test]
fn the_start_says_which_versions_there_are() {
    let cluster = Cluster::of(
        "node a 1\nnode b 1\nnode c 1\nnode d 1\nagent a 1.17.8\nagent b 1.17.8\nagent c 1.13.10",
    );
    let lines = agents::lines(&cluster.world);
    let [old, unknown, full] = &lines[..] else { panic!("{lines:#?}") };
    assert!(
        old.starts_with("1 node with Cilium 1.13.10 (c): agents of Cilium 1.13.10 are older than 1.14.2 ")
    );
    assert_starts(unknown, "1 node with an unknown version of Cilium (d): the controller serves them like ");
    assert_eq!(full, "2 nodes with Cilium 1.17.8: fully supported");
}
