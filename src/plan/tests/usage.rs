//! Tests of when it is known which addresses an agent uses.

use super::*;

const NODE: &str = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @40\nagent a 1.20.2";

impl Cluster {
    /// How many addresses of its block the node uses, if that is known, else why not.
    fn usage(&self) -> String {
        match self.world.use_of(&"a".into()) {
            Ok(known) => {
                let block = "10.0.0.0/28".parse().unwrap();
                format!("uses {}", self.world.reader().n_used_in(known.carrier, block))
            }
            Err(why) => why.to_string(),
        }
    }

    fn agent(&mut self, line: &str) {
        self.observe_agents(AgentNews::Applied(agent(line)));
    }
}

const NOT_SEEN: &str = "the agent has not reported its use since it started";
const SILENT: &str = "its CiliumNode has no list of used addresses";

/// A node whose agent was seen to write its use.
fn known() -> Cluster {
    let mut cluster = Cluster::of(&format!("{NODE}\nciliumnode a @50 10.0.0.0/28 used=3"));
    assert_eq!(cluster.usage(), NOT_SEEN, "it may have been written before a restart");
    cluster.observe("ciliumnode a @101 10.0.0.0/28 used=4");
    assert_eq!(cluster.usage(), "uses 4");
    cluster
}

#[test]
fn use_is_known_when_the_agent_was_seen_to_write_it() {
    let mut cluster = known();
    // Neither a write of somebody else changes that, nor a list that shows the same.
    cluster.observe("ciliumnode a @102 10.0.0.0/28 used=4 own=10.9.9.9/32");
    assert_eq!(cluster.usage(), "uses 4");
    cluster.observe_agents(AgentNews::Listed(vec![agent("agent a 1.20.2")]));
    assert_eq!(cluster.usage(), "uses 4");
}

#[test]
fn the_answer_to_a_question_tells_it_though_the_list_is_the_same() {
    let mut cluster = Cluster::of(&format!("{NODE}\nciliumnode a @50 10.0.0.0/28 used=3 ping=marked"));
    cluster.observe("ciliumnode a @101 10.0.0.0/28 used=3 ping=marked own=10.9.9.9/32");
    assert_eq!(cluster.usage(), NOT_SEEN);
    cluster.observe("ciliumnode a @102 10.0.0.0/28 used=3 ping=answered");
    assert_eq!(cluster.usage(), "uses 3");
    cluster.observe("ciliumnode a @103 10.0.0.0/28 used=3");
    assert_eq!(cluster.usage(), "uses 3");
}

/// The first lie: a restarting agent writes an empty list before it has restored its pods.
#[test]
fn what_a_restarting_agent_writes_before_it_is_ready_is_not_believed() {
    let mut cluster = known();
    cluster.agent("agent a 1.20.2 restarts=1 unready");
    assert_eq!(cluster.usage(), "the Pod cilium-a of Cilium's agent is not Ready");
    cluster.observe("ciliumnode a @102 10.0.0.0/28 used=0");
    assert_eq!(cluster.usage(), "the Pod cilium-a of Cilium's agent is not Ready");
    cluster.agent("agent a 1.20.2 restarts=1");
    assert_eq!(cluster.usage(), NOT_SEEN, "an empty list of before");
    cluster.observe("ciliumnode a @103 10.0.0.0/28 used=4");
    assert_eq!(cluster.usage(), "uses 4");
}

/// The same, where the CiliumNode is heard of before the Pod.
#[test]
fn a_list_that_turns_out_to_be_of_an_earlier_start_is_not_believed() {
    let mut cluster = known();
    cluster.observe("ciliumnode a @102 10.0.0.0/28 used=0");
    cluster.agent("agent a 1.20.2 restarts=1");
    assert_eq!(cluster.usage(), NOT_SEEN);
    let mut cluster = known();
    cluster.observe_agents(AgentNews::Deleted(agent("agent a 1.20.2")));
    assert_eq!(cluster.usage(), "the node has no Pod of Cilium's agent");
    cluster.agent("agent a 1.20.2 named=new");
    assert_eq!(cluster.usage(), NOT_SEEN, "another Pod");
}

/// The agent may have written it before it was ready, and the versions in between were missed.
#[test]
fn a_report_that_only_a_list_shows_is_not_believed() {
    let mut cluster = known();
    cluster.agent("agent a 1.20.2 restarts=1");
    cluster.lists_only("ciliumnode a @110 10.0.0.0/28 used=0", 120);
    assert_eq!(cluster.usage(), NOT_SEEN);
    cluster.observe("ciliumnode a @125 10.0.0.0/28 used=4");
    assert_eq!(cluster.usage(), "uses 4");
}

/// The second lie: an agent under which its CiliumNode is recreated writes nothing.
#[test]
fn a_recreated_ciliumnode_says_nothing_until_its_agent_writes_there() {
    let mut cluster = known();
    cluster.delete(Kind::CiliumNode, "a", 102);
    assert_eq!(cluster.usage(), "the node has no CiliumNode");
    cluster.observe("ciliumnode a @103 recreated used=unknown");
    assert_eq!(cluster.usage(), SILENT);
    cluster.observe("ciliumnode a @104 10.0.0.0/28 recreated used=4");
    assert_eq!(cluster.usage(), "uses 4");
    // Replaced unseen: what the new object shows may be anything.
    cluster.observe("ciliumnode a @105 10.0.0.0/28 used=2");
    assert_eq!(cluster.usage(), NOT_SEEN);
}

/// The third: what is asked while pods are being restored is answered as if they were not there.
#[test]
fn an_answer_of_an_agent_that_is_not_ready_is_not_believed() {
    let mut cluster = known();
    cluster.agent("agent a 1.20.2 restarts=1 unready");
    cluster.observe("ciliumnode a @102 10.0.0.0/28 used=4 ping=marked");
    cluster.observe("ciliumnode a @103 10.0.0.0/28 used=0 ping=answered");
    cluster.agent("agent a 1.20.2 restarts=1");
    assert_eq!(cluster.usage(), NOT_SEEN);
}

#[test]
fn without_the_agents_pods_use_is_never_known() {
    let mut cluster = known();
    cluster.agent("agent a 1.20.2 named=second");
    cluster.observe("ciliumnode a @102 10.0.0.0/28 used=5");
    assert_eq!(
        cluster.usage(),
        "the node has several Pods of Cilium's agent: cilium-a and second",
        "both write the same object"
    );
    cluster.observe_agents(AgentNews::Deleted(agent("agent a 1.20.2 named=second")));
    assert_eq!(cluster.usage(), NOT_SEEN, "either may have written it");
}
