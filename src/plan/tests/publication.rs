//! Tests of publication: when blocks are published, and when an agent is asked what it uses.

use super::*;
use crate::plan::starts_or_restores;

/// Node a is served, and its agent does not say which addresses it uses.
fn with_silent_agent() -> Cluster {
    Cluster::of("pool p 10.0.0.0/26 28\njoined a @50 10.0.0.0/28 used=unknown")
}

/// The agent of node a is silent for so long that it is asked.
fn ask(cluster: &mut Cluster) {
    cluster.expect("a", "nothing");
    cluster.pass(30);
    cluster.expect("a", "send a usage query to the agent of node a");
}

#[test]
fn a_fresh_node_gets_a_claim_first_and_its_publication_when_the_claim_is_shown() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\njoined a @50");
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
    cluster.expect("a", "waits: a request for it is in flight");
    // The answer alone says nothing about claims that overlap (safety rule 2).
    let Object::Claim(created) = object("claim 10.0.0.0/28 a 1 Held @110") else { unreachable!() };
    let key = Target::Claim(created.cidr);
    cluster.settle(&key, Seen::Claim(Box::new(created)));
    cluster.expect("a", "waits: a request for it is in flight");
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    cluster.expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a");
}

#[test]
fn a_patch_waits_until_the_claim_is_known_as_late_as_the_version_it_carries() {
    // Safety rule 4: the CiliumNode was read at 150, and claims are known up to 100 only.
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @60");
    cluster.observe("ciliumnode a @150");
    cluster.reads_claims("a", 160);
    cluster.expect("a", "publish [10.0.0.0/28] and 16 addresses on ciliumnode a");
}

#[test]
fn a_claim_that_the_read_does_not_find_is_not_published() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @60");
    cluster.observe("ciliumnode a @150");
    cluster.expect("a", "read the claims of node a");
    let seen = Seen::ClaimsOf { revision: Revision::of(160), claims: Vec::new(), unreadable: Vec::new() };
    cluster.settle(&Target::ClaimsOf("a".into()), seen);
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a");
}

/// The last address of `::/80` is IPv4-mapped, and its first is not.
#[test]
fn a_foreign_range_that_ends_with_ipv4_is_told_apart_from_what_is_published() {
    let mut cluster = Cluster::of("pool p 10.0.0.0/26 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @40");
    let Object::CiliumNode(mut seen) = object("ciliumnode a @50 10.0.0.0/28 used=1") else { unreachable!() };
    seen.crd.pod_cidrs.push("::/80".parse().unwrap());
    seen.crd.pool.remove("10.0.0.5".parse().unwrap());
    cluster.world.observe(Observation::Applied(Box::new(Object::CiliumNode(seen))));
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "publish [] and 1 address on ciliumnode a");
    let event =
        block_event::of(&cluster.world, plan.requests()[0].as_write().unwrap()).expect("it is a step");
    assert_eq!(listed(&event.blocks), "10.0.0.0/28");
}

#[test]
fn a_silent_agent_is_asked_what_it_uses_and_the_question_is_cleared() {
    let mut cluster = with_silent_agent();
    ask(&mut cluster);
    cluster.carried_out("ciliumnode a @110 10.0.0.0/28 used=unknown ping=marked");
    cluster.expect("a", "nothing");
    cluster.observe("ciliumnode a @111 10.0.0.0/28 used=1 ping=answered");
    cluster.expect("a", "waits: its carrier was patched less than --min-write-interval ago");
    cluster.pass(2);
    cluster.expect("a", "clear the usage query on CiliumNode a");
}

/// Its answer may have been lost, and a full node must grow some day.
#[test]
fn a_query_that_a_running_agent_does_not_answer_is_sent_again_ever_more_seldom() {
    let mut cluster = with_silent_agent();
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2")));
    let mut steps = Vec::new();
    for second in 0..=500 {
        let plan = cluster.plan("a");
        cluster.begin(&plan);
        let mark = match rendered(&plan).as_str() {
            "send a usage query to the agent of node a" => "ping=marked",
            "clear the usage query on CiliumNode a" => "",
            _ => {
                cluster.pass(1);
                continue;
            }
        };
        steps.push(format!("{second}{}", if mark.is_empty() { " clear" } else { "" }));
        cluster.settle(&Target::CiliumNode("a".into()), Seen::Nothing);
        cluster.observe(&format!("ciliumnode a @{} 10.0.0.0/28 used=unknown {mark}", 110 + second));
        cluster.pass(1);
    }
    assert_eq!(steps, ["30", "60 clear", "62", "124 clear", "126", "252 clear", "254"]);
}

#[test]
fn a_query_that_no_agent_can_answer_stays_open() {
    let mut cluster = with_silent_agent();
    ask(&mut cluster);
    cluster.carried_out("ciliumnode a @110 10.0.0.0/28 used=unknown ping=marked");
    cluster.expect_for(3600, "a", "nothing");
}

/// It writes its whole use with the answer, but somebody may take that off again.
#[test]
fn an_agent_that_answers_and_shows_no_use_is_asked_ever_more_seldom() {
    let mut cluster = with_silent_agent();
    let mut asked_at = Vec::new();
    for second in 0..=2700 {
        let plan = cluster.plan("a");
        cluster.begin(&plan);
        let mark = match rendered(&plan).as_str() {
            "send a usage query to the agent of node a" => {
                asked_at.push(second);
                Some("ping=answered")
            }
            "clear the usage query on CiliumNode a" => Some(""),
            _ => None,
        };
        if let Some(mark) = mark {
            cluster.settle(&Target::CiliumNode("a".into()), Seen::Nothing);
            cluster.observe(&format!("ciliumnode a @{} 10.0.0.0/28 used=unknown {mark}", 110 + second));
        }
        cluster.pass(1);
    }
    assert_eq!(asked_at, [30, 60, 120, 240, 480, 960, 1560, 2160]);
}

/// An agent that can't start for want of addresses answers each question at once, and says nothing by it.
#[test]
fn what_a_node_lacks_goes_before_the_question_what_it_uses() {
    let mut cluster = with_silent_agent();
    cluster.expect("a", "nothing");
    cluster.pass(40);
    // Somebody has taken a block off.
    cluster.observe("claim 10.0.0.16/28 a 1 Held @105");
    cluster.observe("ciliumnode a @104 10.0.0.0/28 used=unknown");
    cluster.expect("a", "publish [10.0.0.16/28] and 16 addresses on ciliumnode a");
    cluster.carried_out("ciliumnode a @110 10.0.0.0/28 10.0.0.16/28 used=unknown");
    cluster.pass(2);
    cluster.expect("a", "send a usage query to the agent of node a");
    // So does a block that it has to claim first.
    let mut small = Cluster::of("pool p 10.0.0.0/26 31\njoined a @50 10.0.0.0/31 used=unknown");
    small.pass(40);
    small.expect("a", "claim 10.0.0.2/31 of pool p for node a");
}

#[test]
fn an_agent_that_falls_silent_again_is_given_the_whole_time() {
    let mut cluster = with_silent_agent();
    ask(&mut cluster);
    cluster.carried_out("ciliumnode a @110 10.0.0.0/28 used=1");
    cluster.expect("a", "nothing");
    cluster.pass(100);
    cluster.observe("ciliumnode a @111 10.0.0.0/28 used=unknown");
    cluster.expect_for(29, "a", "nothing");
    cluster.pass(1);
    cluster.expect("a", "send a usage query to the agent of node a");
}

/// Its agent has not heard it.
#[test]
fn a_question_that_was_refused_is_repeated_without_the_wait() {
    let mut cluster = with_silent_agent();
    ask(&mut cluster);
    let request = cluster.in_flight.remove(0);
    let Object::CiliumNode(read) = object("ciliumnode a @110 10.0.0.0/28 used=unknown") else {
        unreachable!()
    };
    let seen = Seen::CiliumNode(Box::new(read));
    let answer = Answer::Conflict("the CiliumNode has changed".to_owned());
    cluster.world.finish(Outcome { request, answer, seen }, cluster.now);
    cluster.pass(2);
    cluster.expect("a", "send a usage query to the agent of node a");
}

/// An agent writes its CiliumNode too, and a conflict with a patch of ours can kill it.
#[test]
fn a_question_and_a_publication_keep_the_interval_between_writes() {
    let mut cluster = with_silent_agent();
    cluster.expect("a", "nothing");
    cluster.pass(29);
    // Somebody has removed an address, and the controller puts it back.
    let Object::CiliumNode(mut seen) = object("ciliumnode a @60 10.0.0.0/28 used=unknown") else {
        unreachable!()
    };
    seen.crd.pool.remove("10.0.0.5".parse().unwrap());
    cluster.world.observe(Observation::Applied(Box::new(Object::CiliumNode(seen))));
    cluster.expect("a", "publish [] and 1 address on ciliumnode a");
    cluster.carried_out("ciliumnode a @110 10.0.0.0/28 used=unknown");
    cluster.pass(1);
    cluster.expect("a", "waits: its carrier was patched less than --min-write-interval ago");
    cluster.pass(1);
    cluster.expect("a", "send a usage query to the agent of node a");
    cluster.settle(&Target::CiliumNode("a".into()), Seen::Nothing);
    // The answer asks for more: a block is claimed at once, and the mark is removed before the block is published.
    cluster.observe("ciliumnode a @111 10.0.0.0/28 used=15 ping=answered");
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a");
    cluster.carried_out("claim 10.0.0.16/28 a 1 Held @112");
    cluster.expect("a", "waits: its carrier was patched less than --min-write-interval ago");
    cluster.pass(2);
    cluster.expect("a", "clear the usage query on CiliumNode a");
    cluster.carried_out("ciliumnode a @113 10.0.0.0/28 used=15");
    cluster.expect("a", "waits: its carrier was patched less than --min-write-interval ago");
    cluster.pass(2);
    cluster.expect("a", "read the claims of node a");
}

#[test]
fn a_block_that_somebody_took_off_is_published_again() {
    let log = |cluster: &Cluster| {
        let plan = cluster.plan("a");
        let writes = plan.requests().iter().filter_map(|request| match request {
            Request::Write(write) => block_event::of(&cluster.world, write),
            Request::Read(_) => None,
        });
        let lines: Vec<String> = writes
            .map(|event| {
                format!("{} [{}] {}", event.step.as_str(), listed(&event.blocks), event.cause.as_str())
            })
            .collect();
        lines.join("; ")
    };
    let mut cluster = Cluster::of(
        "pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used=8\nclaim 10.0.0.16/28 a 1 Held @60",
    );
    assert_eq!(log(&cluster), "Published [10.0.0.16/28] Growth");
    cluster.observe("ciliumnode a @110 10.0.0.0/28 10.0.0.16/28 used=8");
    assert_eq!(log(&cluster), "");
    cluster.observe("claim 10.0.0.16/28 a 1 Held @130");
    cluster.observe("ciliumnode a @120 10.0.0.0/28 used=8");
    assert_eq!(log(&cluster), "Published [10.0.0.16/28] Growth");
    cluster.observe("claim 10.0.0.0/28 a 1 Held @131");
    cluster.observe("ciliumnode a @125 used=0");
    assert_eq!(log(&cluster), "Published [10.0.0.0/28,10.0.0.16/28] FirstGrant");
}

/// An agent that restarts before the repair does not restore the pod.
#[test]
fn a_block_that_its_agent_uses_is_restored_without_the_interval_between_writes() {
    let claims = "claim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Held @31";
    let mut cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/24 28\nnode a 1\nagent a 1.20.2\n{claims}\nciliumnode a @50 10.0.0.0/28 used=1"
    ));
    assert!(!starts_or_restores(&cluster.world, &"a".into()), "it grows");
    cluster.expect("a", "publish [10.0.0.16/28] and 16 addresses on ciliumnode a");
    cluster.carried_out("ciliumnode a @110 10.0.0.0/28 10.0.0.16/28 used=1");
    // Another writer removes the block again.
    cluster.observe("ciliumnode a @111 10.0.0.0/28 used=1");
    let interval = "waits: its carrier was patched less than --min-write-interval ago";
    assert!(!starts_or_restores(&cluster.world, &"a".into()), "it may be new");
    assert_eq!(rendered(&cluster.plan("a")), interval);
    cluster.observe("ciliumnode a @112 10.0.0.0/28 used=10.0.0.0/32,10.0.0.16/32");
    assert!(starts_or_restores(&cluster.world, &"a".into()), "a pod has an address of it");
    assert_ne!(rendered(&cluster.plan("a")), interval);
    cluster.observe("ciliumnode a @113 used=10.0.0.0/32");
    assert!(starts_or_restores(&cluster.world, &"a".into()), "it has nothing");
}
