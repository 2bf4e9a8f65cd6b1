//! When a block stays after all, and how it gets its addresses back.

use super::*;

#[test]
fn a_block_stays_where_its_agent_refuses_or_somebody_owns_an_address_of_it() {
    for in_the_way in [
        "refused=10.0.0.20/32",
        "used=10.0.0.0/32,10.0.0.20/32 ready=10.0.0.16/28",
        "ready=10.0.0.16/28 owner=10.0.0.20:ns/pod",
        "ready=10.0.0.16/28 off=10.0.0.20/32",
        "ready=10.0.0.16/29",
    ] {
        let mut cluster = Cluster::marked();
        let used = if in_the_way.contains("used=") { "" } else { "used=10.0.0.0/32" };
        cluster.observe(&format!("ciliumnode a @115 {FENCED} {used} {in_the_way}"));
        cluster.done(HOLD, &["claim 10.0.0.16/28 a 1 Held @121"]);
        cluster.observe("claim 10.0.0.0/28 a 1 Held @122");
        let next = rendered(&cluster.plan("a"));
        assert!(next.starts_with("publish [] and ") || next == CLEAR, "{in_the_way}: {next}");
    }
}

/// What was begun is undone whole: the marks go, the fence goes, and nothing begins again at once.
#[test]
fn a_block_that_stays_gets_its_addresses_back() {
    let mut cluster = Cluster::marked();
    cluster.observe(&format!("ciliumnode a @115 {FENCED} used=10.0.0.0/32 refused=10.0.0.16/28"));
    cluster.done(HOLD, &["claim 10.0.0.16/28 a 1 Held @121", "claim 10.0.0.0/28 a 1 Held @122"]);
    cluster.done(
        "publish [] and 16 addresses on ciliumnode a",
        &[
            &format!("ciliumnode a @123 {BOTH} used=10.0.0.0/32 refused=10.0.0.16/28"),
            "claim 10.0.0.0/28 a 1 Held @124",
        ],
    );
    cluster.done(CLEAR, &[&format!("ciliumnode a @125 {BOTH} used=10.0.0.0/32")]);
    cluster.expect_for(590, "a", "nothing");
}

/// The agent version may change while a block drains: a reclaim that it forbids does not continue either.
#[test]
fn a_block_stays_where_its_agent_is_replaced_by_one_of_a_version_that_forbids_reclaim() {
    for release in ["1.13.18", "none"] {
        for mut cluster in [Cluster::fenced(), Cluster::marked()] {
            cluster.observe_agents(AgentNews::Applied(agent(&format!("agent a {release} restarts=1"))));
            cluster.expect("a", HOLD);
        }
    }
}

#[test]
fn an_agent_that_ends_while_it_is_asked_keeps_its_block() {
    let mut cluster = Cluster::marked();
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 unready")));
    cluster.expect("a", HOLD);
    // One that is fenced only waits: a fence does no harm to a restart.
    let mut cluster = Cluster::fenced();
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 unready")));
    cluster.expect("a", "nothing");
}

/// Load that comes back is served from the block that was about to leave.
#[test]
fn a_node_that_needs_its_block_again_keeps_it() {
    let mut cluster = Cluster::marked();
    let fifteen = "10.0.0.0/29,10.0.0.8/30,10.0.0.12/31,10.0.0.14/32";
    cluster.observe(&format!("ciliumnode a @115 {FENCED} used={fifteen} ready=10.0.0.16/28"));
    cluster.expect("a", HOLD);
}

/// Stale marks of another controller, or of an earlier try, keep addresses from pods.
#[test]
fn marks_in_a_held_block_are_cleared() {
    for stale in ["marked", "ready", "refused", "released"] {
        let mut cluster = Cluster::of(&format!(
            "pool p 10.0.0.0/24 28\n{NODE}\nciliumnode a @50 {BOTH} used=10.0.0.0/31 {stale}=10.0.0.18/32"
        ));
        cluster.expect("a", CLEAR);
    }
}

/// An address that comes back into the pool while its entry says `released` would never go to a pod again.
#[test]
fn a_block_that_is_held_again_after_it_was_removed_gets_its_addresses_back() {
    let mut cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/24 28\n{NODE}\nciliumnode a @50 {BOTH} used=10.0.0.0/31 released=10.0.0.16/28 off=10.0.0.16/28"
    ));
    cluster.expect("a", "nothing");
    cluster.observe(&format!("ciliumnode a @101 {BOTH} used=10.0.0.0/31 off=10.0.0.16/28"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @102");
    cluster.expect("a", "publish [] and 16 addresses on ciliumnode a");
}
