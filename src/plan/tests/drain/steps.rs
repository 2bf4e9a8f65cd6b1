//! How a block goes on that has begun to leave.

use super::*;

#[test]
fn a_block_leaves_step_by_step_and_cools() {
    let mut cluster = Cluster::confirmed();
    cluster.done(REMOVE, &["ciliumnode a @118 10.0.0.0/28 used=10.0.0.0/32 released=10.0.0.16/28"]);
    cluster.expect("a", "nothing");
    cluster.observe("ciliumnode a @119 10.0.0.0/28 used=10.0.0.0/32");
    cluster.done(COOL, &["claim 10.0.0.16/28 a 1 Cooling/Reclaimed @120"]);
    cluster.expect("a", "nothing");
    cluster.pass(300);
    cluster.expect("a", "free 10.0.0.16/28 of node a");
}

/// No agent of this mode gives back what is more than it needs, so room need not come in the write that takes a block
/// off.
#[test]
fn a_new_block_does_not_wait_until_another_has_left() {
    let claims = "claim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Releasing/Reclaimed @31\n\
                  claim 10.1.0.0/28 a 1 Held @32 of=q";
    let mut cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/24 28 draining\npool q 10.1.0.0/24 28\nnode a 1\nagent a 1.20.2\n{claims}\n\
         ciliumnode a @50 {FENCED} used=10.0.0.0/32 released=10.0.0.16/28"
    ));
    cluster.expect("a", "publish [10.1.0.0/28] and 16 addresses on ciliumnode a");
}

/// One patch asks for all addresses and ends the question, whose answer has served its purpose.
#[test]
fn the_marks_replace_the_question() {
    let cluster = Cluster::answered();
    let plan = cluster.plan("a");
    let [Request::Write(Write::Withdraw(mark))] = plan.requests() else { panic!("{}", rendered(&plan)) };
    let CarrierChange::Crd(CrdChange::Marks(marks)) = &mark.change else { panic!("{mark:?}") };
    assert_eq!((mark.step, marks.len()), (WithdrawalStep::Mark, 17));
    assert_eq!(marks[&QUERY_ADDRESS], MarkChange::Remove);
}

/// The pod of a fenced block was deleted, and its agent has written that.
fn reported() -> Cluster {
    let mut cluster = Cluster::draining();
    let used = "used=10.0.0.0/32,10.0.0.16/32";
    cluster.observe(&format!("ciliumnode a @110 {BOTH} {used}"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    cluster.done(FENCE, &[&format!("ciliumnode a @111 {FENCED} {used}"), "claim 10.0.0.0/28 a 1 Held @111"]);
    cluster.looked(&[("10.0.0.16", "apps/web-0")]);
    cluster.observe(&format!("ciliumnode a @113 {FENCED} used=10.0.0.0/32"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
    cluster
}

/// An agent that writes its use after it has seen a fence reports as much as an answer does. So the reclaim takes four writes
/// to the CiliumNode instead of five, and the agent writes three times instead of four.
#[test]
fn a_report_after_the_fence_takes_the_place_of_a_query() {
    let mut cluster = reported();
    cluster.looked(&[]);
    cluster.done(MARK, &[&format!("ciliumnode a @114 {FENCED} used=10.0.0.0/32 marked=10.0.0.16/28")]);
    cluster.expect("a", "nothing");
    cluster.observe(&format!("ciliumnode a @115 {FENCED} used=10.0.0.0/32 ready=10.0.0.16/28"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @115");
    cluster.looked(&[]);
    cluster.done(RELEASE, &["claim 10.0.0.16/28 a 1 Releasing/Reclaimed @116"]);
    cluster.done(CONFIRM, &[&format!("ciliumnode a @117 {FENCED} used=10.0.0.0/32 released=10.0.0.16/28")]);
    cluster.observe("claim 10.0.0.0/28 a 1 Held @117");
    cluster.done(REMOVE, &["ciliumnode a @118 10.0.0.0/28 used=10.0.0.0/32 released=10.0.0.16/28"]);
    cluster.expect("a", "nothing");
    cluster.observe("ciliumnode a @119 10.0.0.0/28 used=10.0.0.0/32");
    cluster.expect("a", COOL);
}

#[test]
fn a_report_that_may_be_older_than_the_fence_is_followed_by_a_query() {
    let mut cluster = Cluster::draining();
    cluster.observe(&format!("ciliumnode a @110 {BOTH} used=10.0.0.0/32,10.0.0.16/32"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    let both = format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32");
    cluster.done(FENCE, &[&both, "claim 10.0.0.0/28 a 1 Held @112"]);
    cluster.expect("a", ASK);
}

/// It may restore its pods, and report only some of them.
#[test]
fn a_report_of_an_agent_that_was_not_there_at_the_fence_is_followed_by_a_query() {
    let mut cluster = Cluster::draining();
    let used = "used=10.0.0.0/32,10.0.0.16/32";
    cluster.observe(&format!("ciliumnode a @110 {BOTH} {used}"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @110");
    cluster.done(FENCE, &[&format!("ciliumnode a @111 {FENCED} {used}"), "claim 10.0.0.0/28 a 1 Held @111"]);
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 restarts=1")));
    cluster.observe(&format!("ciliumnode a @113 {FENCED} used=10.0.0.0/32"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
    cluster.expect("a", ASK);
}

#[test]
fn a_pod_that_a_report_after_the_fence_omits_keeps_its_block() {
    let mut cluster = reported();
    cluster.looked(&[("10.0.0.20", "apps/web-1")]);
    cluster.expect("a", &format!("{ASK}; finding: DrainWaits"));
}

/// A question that was open before the fence may be answered by what was used before it.
#[test]
fn a_fence_waits_for_the_end_of_an_open_question() {
    let mut cluster = Cluster::draining();
    cluster.observe(&format!("ciliumnode a @111 {BOTH} used=10.0.0.0/32 ping=marked"));
    cluster.expect("a", "nothing");
    cluster.observe(&format!("ciliumnode a @112 {BOTH} used=10.0.0.0/32 ping=answered"));
    cluster.done(END_QUERY, &[&format!("ciliumnode a @113 {BOTH} used=10.0.0.0/32")]);
    cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
    cluster.expect("a", FENCE);
}

/// It may be that of an agent which was restoring its pods when the leader before asked it, and is Ready now.
#[test]
fn an_answer_to_a_question_that_was_asked_of_nobody_known_does_not_count() {
    // The leader before has set the fence, too.
    let mut cluster = Cluster::draining();
    cluster.observe(&format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32 ping=answered"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @112");
    cluster.done(END_QUERY, &[&format!("ciliumnode a @113 {FENCED} used=10.0.0.0/32")]);
    cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
    cluster.done(ASK, &[&format!("ciliumnode a @114 {FENCED} used=10.0.0.0/32 ping=marked")]);
    // It was asked, and restarts before it answers; the news of the answer is the last to come.
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 restarts=1")));
    cluster.observe(&format!("ciliumnode a @115 {FENCED} used=10.0.0.0/32 ping=answered"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @115");
    cluster.expect("a", END_QUERY);
}

/// Rule 4: a replica that has not heard that the claim is held again must not close its block.
#[test]
fn each_step_waits_until_the_claims_are_known_as_of_the_version() {
    let mut cluster = Cluster::draining();
    cluster.observe(&format!("ciliumnode a @120 {BOTH} used=10.0.0.0/32"));
    cluster.expect("a", "read the claims of node a");
}

#[test]
fn a_pod_that_the_agent_does_not_list_keeps_its_block() {
    let mut cluster = Cluster::queried();
    cluster.looked(&[("10.0.0.20", "apps/web-0")]);
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "clear the usage query on CiliumNode a; finding: DrainWaits");
    assert_eq!(
        plan.findings[0].message,
        "can't be drained from node a yet: the agent lists no address of it, but these pods have one: apps/web-0"
    );
    // A mark would keep the pod from being restored when the agent starts again.
    let mut cluster = Cluster::ready();
    cluster.looked(&[("10.0.0.20", "apps/web-0")]);
    assert_eq!(cluster.rules("a"), [Rule::PodFound]);
    cluster.expect("a", HOLD);
}

/// The watch of the agents' Pods may be late: it has restarted, and nobody knows what it used before.
#[test]
fn an_agent_that_the_read_finds_restarted_is_not_asked() {
    let mut cluster = Cluster::queried();
    cluster.expect("a", LOOK);
    let Request::Read(read) = cluster.in_flight.remove(0) else { unreachable!() };
    let Read::PodsOf(_, after) = read else { unreachable!() };
    let pods = PodsOnNode {
        agents: vec![agent("agent a 1.20.2 restarts=1")],
        holders: BTreeMap::new(),
        n_starting: 0,
    };
    cluster.finish(read.into(), Seen::PodsOf { after, pods });
    cluster.expect("a", "nothing");
    cluster.pass(10);
    cluster.expect("a", LOOK);
}

#[test]
fn an_agent_that_does_not_answer_is_asked_again_and_not_for_ever() {
    let mut cluster = Cluster::marked();
    cluster.expect("a", "nothing");
    cluster.pass(30);
    let pinged = format!("ciliumnode a @115 {FENCED} used=10.0.0.0/32 marked=10.0.0.16/28 ping=marked");
    cluster.done(ASK, &[&pinged]);
    cluster.expect("a", "nothing");
    cluster.pass(300);
    cluster.expect("a", HOLD);
}

#[test]
fn how_long_an_agent_may_be_silent_follows_the_policy() {
    let mut cluster = Cluster::marked();
    cluster.expect("a", "nothing");
    cluster.pass(5);
    let after = |seconds| Policy { query_interval: Duration::from_secs(seconds), ..Policy::DEFAULT };
    let said = |policy| rendered(&node(&cluster.world, &"a".into(), policy, cluster.now));
    assert_eq!([said(after(5)), said(after(6))], [ASK, "nothing"]);
    cluster.pass(45);
    let said = |policy| rendered(&node(&cluster.world, &"a".into(), policy, cluster.now));
    assert_eq!([said(after(5)), said(after(6))], [HOLD, ASK]);
}

/// The consent that stands on the carrier may be that of an earlier drain, which this replica has not seen end. Whoever
/// edited the claim since, a later version of the carrier shows what stands.
#[test]
fn a_consent_from_before_the_last_version_of_the_claim_is_shown_once_more() {
    let mut cluster = Cluster::ready();
    cluster.observe("claim 10.0.0.16/28 a 1 Draining @116");
    cluster.looked(&[]);
    cluster.done(TOUCH, &[&format!("ciliumnode a @117 {FENCED} used=10.0.0.0/32 ready=10.0.0.16/28")]);
    cluster.observe("claim 10.0.0.0/28 a 1 Held @117");
    cluster.looked(&[]);
    cluster.expect("a", RELEASE);
}

#[test]
fn a_block_whose_consent_is_gone_before_it_is_off_is_held_again() {
    let mut cluster = Cluster::releasing();
    cluster.observe(&format!("ciliumnode a @117 {FENCED} used=10.0.0.0/32 ready=10.0.0.16/29"));
    cluster.expect("a", HOLD);
    // A version from before the move says nothing, and a later one is made.
    let mut cluster = Cluster::ready();
    cluster.looked(&[]);
    cluster.observe(&format!("ciliumnode a @116 {FENCED} used=10.0.0.0/32 ready=10.0.0.16/29"));
    cluster.observe("claim 10.0.0.16/28 a 1 Releasing/Reclaimed @117");
    cluster.expect("a", TOUCH);
}

#[test]
fn a_freeze_of_reclaim_stops_every_step() {
    for at in [Cluster::fenced(), Cluster::ready(), Cluster::releasing()] {
        let mut cluster = at;
        cluster.world.set_freeze(Freeze::of([(Switch::Reclaim, "of a test".to_owned())]));
        cluster.expect_for(3600, "a", "nothing");
    }
}

#[test]
fn the_pods_that_a_block_waits_for_are_named() {
    let mut cluster = Cluster::fenced();
    cluster.observe(&format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32,10.0.0.18/31"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @112");
    let read = Read::PodsOf("a".into(), AnyRevision::of(Kind::CiliumNode, 112));
    assert_eq!(cluster.plan("a").requests(), [Request::from(read)]);
    cluster.looked(&[("10.0.0.18", "apps/web-0")]);
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "finding: DrainWaits");
    assert_eq!(
        plan.findings[0].message,
        "can't be drained from node a yet: 2 addresses of it are in use, by apps/web-0"
    );
    cluster.begin(&plan);
    cluster.pass(300);
    cluster.expect("a", "read the pods of node a; finding: DrainWaits");
}

/// A change of metadata alone makes an agent lose its answers, and it looks at no mark again until something else
/// changes. A question that is open for so long is ended, which is such a change, and asked anew.
#[test]
fn a_question_whose_answer_was_lost_is_asked_again() {
    let mut cluster = Cluster::confirmed();
    let off = "10.0.0.0/28 used=10.0.0.0/32 released=10.0.0.16/28";
    cluster.done(REMOVE, &[&format!("ciliumnode a @118 {off}")]);
    cluster.expect("a", "nothing");
    cluster.pass(30);
    cluster.done(ASK, &[&format!("ciliumnode a @119 {off} ping=marked")]);
    cluster.expect_for(59, "a", "nothing");
    cluster.pass(1);
    cluster.done(END_QUERY, &[&format!("ciliumnode a @120 {off}")]);
    cluster.expect("a", ASK);
}

#[test]
fn a_fence_does_not_wait_for_an_answer_that_was_lost() {
    let mut cluster = Cluster::draining();
    cluster.observe(&format!("ciliumnode a @111 {BOTH} used=10.0.0.0/32 ping=marked"));
    cluster.expect("a", "nothing");
    cluster.pass(60);
    cluster.done(END_QUERY, &[&format!("ciliumnode a @113 {BOTH} used=10.0.0.0/32")]);
    cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
    cluster.expect("a", FENCE);
}

/// Another replica has asked. Its question has not been open for long, however long ago this one asked.
#[test]
fn the_question_of_another_replica_is_not_ended_at_once() {
    let mut cluster = Cluster::fenced();
    cluster.done(ASK, &[&format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32 ping=marked")]);
    cluster.pass(300);
    cluster.observe(&format!("ciliumnode a @113 {FENCED} used=10.0.0.0/32"));
    cluster.observe(&format!("ciliumnode a @114 {FENCED} used=10.0.0.0/32 ping=marked"));
    cluster.expect_for(30, "a", "nothing");
}
