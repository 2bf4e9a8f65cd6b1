//! Tests of blocks that leave nodes that live: when each begins, how it goes on, and when it stays after all.

use super::*;
use crate::model::carrier::CarrierChange;
use crate::model::crd::{CrdChange, MarkChange};
use crate::model::request::WithdrawalStep;

mod told;

/// A node with a primary and a second block, whose agent runs.
const NODE: &str =
    "node a 1\nagent a 1.20.2\nclaim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Held @31";
const BOTH: &str = "10.0.0.0/28 10.0.0.16/28";
const FENCED: &str = "10.0.0.0/28 10.0.0.16/28 fenced=10.0.0.16/28";

const DRAIN: &str = "drain 10.0.0.16/28 of node a";
const FENCE: &str = "fence [10.0.0.16/28] on ciliumnode a";
const ASK: &str = "ask the agent of node a what it uses";
const LOOK: &str = "read the pods of node a";
const MARK: &str = "ask the agent of node a to let [10.0.0.16/28] go";
const RELEASE: &str = "release 10.0.0.16/28 of node a (Reclaimed)";
const CONFIRM: &str = "tell the agent of node a that [10.0.0.16/28] is released";
const TAKE_OFF: &str = "take [10.0.0.16/28] off ciliumnode a";
const COOL: &str = "cool 10.0.0.16/28 of node a";
const HOLD: &str = "hold 10.0.0.16/28 for node a again";
const CLEAR: &str = "clear the release marks in [10.0.0.16/28] on ciliumnode a";

impl Cluster {
    /// A node whose use is known: one of sixteen addresses of its primary block.
    fn known(pool: &str) -> Self {
        let mut cluster = Self::of(&format!("{pool}\n{NODE}\nciliumnode a @50 {BOTH} used=10.0.0.0/31"));
        cluster.observe(&format!("ciliumnode a @101 {BOTH} used=10.0.0.0/32"));
        cluster
    }

    /// What was asked of the node is answered: the request ends, and the watch shows these objects.
    #[track_caller]
    fn done(&mut self, expected: &str, shown: &[&str]) {
        self.expect("a", expected);
        let request = self.in_flight.remove(0);
        self.finish(request, Seen::Nothing);
        for line in shown {
            self.observe(line);
        }
        self.pass(2);
    }

    /// The Pods of the node are read: its agent, and these pods.
    #[track_caller]
    fn looked(&mut self, pods: &[(&str, &str)]) {
        let plan = self.plan("a");
        assert!(rendered(&plan).starts_with(LOOK), "{}", rendered(&plan));
        self.begin(&plan);
        let Request::Read(Read::PodsOf(node, after)) = self.in_flight.remove(0) else { unreachable!() };
        let agents = self.world.agents_on(&node).cloned().collect();
        let holders =
            pods.iter().map(|(address, pod)| (address.parse().unwrap(), (*pod).to_owned())).collect();
        let seen = Seen::PodsOf { after, pods: PodsOnNode { agents, holders, n_bound: 0 } };
        self.finish(Read::PodsOf(node, after).into(), seen);
    }

    /// The node has needed one block less for as long as its pool asks.
    fn wait_until_surplus(&mut self) {
        self.expect("a", "nothing");
        self.pass(600);
    }

    /// The claim of the second block drains, and is fenced and empty in this version.
    fn fenced() -> Self {
        let mut cluster = Self::known("pool p 10.0.0.0/24 28 reclaim=enabled");
        cluster.wait_until_surplus();
        cluster.done(DRAIN, &["claim 10.0.0.16/28 a 1 Draining @110"]);
        cluster.done(
            FENCE,
            &[&format!("ciliumnode a @111 {FENCED} used=10.0.0.0/32"), "claim 10.0.0.0/28 a 1 Held @111"],
        );
        cluster
    }

    /// The same, and the agent was asked to let its addresses go.
    fn marked() -> Self {
        let mut cluster = Self::fenced();
        cluster.done(ASK, &[&format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32 ping=marked")]);
        cluster.expect("a", "nothing");
        cluster.observe(&format!("ciliumnode a @113 {FENCED} used=10.0.0.0/32 ping=answered"));
        cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
        cluster.looked(&[]);
        cluster.done(MARK, &[&format!("ciliumnode a @114 {FENCED} used=10.0.0.0/32 marked=10.0.0.16/28")]);
        cluster
    }

    /// The same, and the agent has let every address go.
    fn ready() -> Self {
        let mut cluster = Self::marked();
        cluster.expect("a", "nothing");
        cluster.observe(&format!("ciliumnode a @115 {FENCED} used=10.0.0.0/32 ready=10.0.0.16/28"));
        cluster.observe("claim 10.0.0.0/28 a 1 Held @115");
        cluster
    }

    /// The same, and the claim is being released.
    fn releasing() -> Self {
        let mut cluster = Self::ready();
        cluster.looked(&[]);
        cluster.done(RELEASE, &["claim 10.0.0.16/28 a 1 Releasing/Reclaimed @116"]);
        cluster
    }
}

#[test]
fn a_block_leaves_step_by_step_and_cools() {
    let mut cluster = Cluster::releasing();
    cluster.done(CONFIRM, &[&format!("ciliumnode a @117 {FENCED} used=10.0.0.0/32 released=10.0.0.16/28")]);
    cluster.observe("claim 10.0.0.0/28 a 1 Held @117");
    cluster.done(TAKE_OFF, &["ciliumnode a @118 10.0.0.0/28 used=10.0.0.0/32 released=10.0.0.16/28"]);
    cluster.expect("a", "nothing");
    cluster.observe("ciliumnode a @119 10.0.0.0/28 used=10.0.0.0/32");
    cluster.done(COOL, &["claim 10.0.0.16/28 a 1 Cooling/Reclaimed @120"]);
    cluster.expect("a", "nothing");
    cluster.pass(300);
    cluster.expect("a", "free 10.0.0.16/28 of node a");
}

/// One patch asks for all addresses and ends the question, whose answer has served its purpose.
#[test]
fn the_marks_replace_the_question() {
    let mut cluster = Cluster::fenced();
    cluster.done(ASK, &[&format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32 ping=marked")]);
    cluster.observe(&format!("ciliumnode a @113 {FENCED} used=10.0.0.0/32 ping=answered"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
    cluster.looked(&[]);
    let plan = cluster.plan("a");
    let [Request::Write(Write::Withdraw(mark))] = plan.requests() else { panic!("{}", rendered(&plan)) };
    let CarrierChange::Crd(CrdChange::Marks(marks)) = &mark.change else { panic!("{mark:?}") };
    assert_eq!((mark.step, marks.len()), (WithdrawalStep::Mark, 17));
    assert_eq!(marks[&PROBE_ADDRESS], MarkChange::Remove);
}

#[test]
fn the_load_must_be_low_for_as_long_as_the_pool_says() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 reclaim=enabled");
    cluster.expect("a", "nothing");
    cluster.pass(590);
    // 7 of 16 would be more than 40 %, for a moment.
    cluster.observe(&format!("ciliumnode a @102 {BOTH} used=10.0.0.0/30,10.0.0.4/31,10.0.0.6/32"));
    cluster.expect("a", "nothing");
    cluster.observe(&format!("ciliumnode a @103 {BOTH} used=10.0.0.0/30"));
    cluster.expect("a", "nothing");
    cluster.pass(20);
    cluster.expect("a", "nothing");
    cluster.pass(580);
    cluster.expect("a", DRAIN);
}

/// A load that swings round the threshold for an hour takes back one block at most, and what was taken is not asked for
/// again.
#[test]
fn a_load_that_swings_takes_back_one_block_at_most() {
    // 6 of the 16 that would stay are under 40 %, and 7 are above.
    let (low, high) = ("10.0.0.0/30,10.0.0.4/31", "10.0.0.0/30,10.0.0.4/31,10.0.0.6/32");
    for (minutes, expected) in [(1, 0), (5, 0), (9, 0), (11, 1), (20, 1)] {
        let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 reclaim=enabled freeBelow=4");
        let mut n_drained = 0;
        for minute in 0..60 {
            let used = if minute / minutes % 2 == 0 { low } else { high };
            let blocks = if n_drained == 0 { BOTH } else { "10.0.0.0/28" };
            cluster.observe(&format!("ciliumnode a @{} {blocks} used={used}", 110 + 2 * minute));
            let plan = cluster.plan("a");
            cluster.begin(&plan);
            match rendered(&plan).as_str() {
                "nothing" => {}
                DRAIN => {
                    n_drained += 1;
                    let request = cluster.in_flight.remove(0);
                    cluster.finish(request, Seen::Nothing);
                    cluster
                        .observe(&format!("claim 10.0.0.16/28 a 1 Cooling/Reclaimed @{}", 111 + 2 * minute));
                }
                "free 10.0.0.16/28 of node a" => {
                    let request = cluster.in_flight.remove(0);
                    cluster.finish(request, Seen::Nothing);
                    cluster.delete(Kind::Claim, "10.0.0.16-28", 111 + 2 * minute);
                }
                other => panic!("{minutes}: {other}"),
            }
            cluster.pass(60);
        }
        assert_eq!(n_drained, expected, "it swings every {minutes} minutes");
    }
}

/// An agent needs four addresses to start. A node that has fewer without a block would get another one for it, and that
/// would be taken back in its turn.
#[test]
fn a_node_keeps_what_an_agent_needs_to_start() {
    const DRAIN_WAITS: &str =
        "finding: DrainWaits; finding: DrainWaits; finding: DrainWaits; finding: DrainWaits";
    let single = ["10.0.0.0/32", "10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"];
    let of = |pool: &str, blocks: &[&str]| {
        let claims: Vec<String> = blocks.iter().map(|block| format!("claim {block} a 1 Held @30")).collect();
        let (claims, blocks) = (claims.join("\n"), blocks.join(" "));
        let node = "node a 1\nagent a 1.20.2";
        let mut cluster = Cluster::of(&format!("{pool}\n{node}\n{claims}\nciliumnode a @50 {blocks} used=2"));
        cluster.observe(&format!("ciliumnode a @101 {blocks} used=1"));
        cluster.expect("a", if pool.contains("draining") { DRAIN_WAITS } else { "nothing" });
        cluster.pass(600);
        cluster
    };
    let reclaims = "pool p 10.0.0.0/28 32 reclaim=enabled freeBelow=0";
    of(reclaims, &single).expect("a", "nothing");
    of(reclaims, &[&single[..], &["10.0.0.4/32"]].concat()).expect("a", "drain 10.0.0.4/32 of node a");
    of("pool p 10.0.0.0/28 32 draining freeBelow=0", &single).expect("a", DRAIN_WAITS);
}

#[test]
fn a_pool_that_tries_it_out_says_what_it_would_take_back() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 reclaim=dry-run");
    cluster.wait_until_surplus();
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "finding: WouldReclaim");
    assert_eq!(
        plan.findings[0].message,
        "with spec.reclaim.mode Enabled pool p would take 10.0.0.16/28 back"
    );
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.13.18")));
    let plan = cluster.plan("a");
    assert!(
        plan.findings[0].message.ends_with("the release of its agent needs --reclaim-opt-in"),
        "{plan:?}"
    );
    cluster.observe("pool p 10.0.0.0/24 28 @130");
    cluster.expect("a", "nothing");
}

/// Rule 7: an agent that was not seen to write its use is asked before anything begins, and one that is not Ready is waited
/// for.
#[test]
fn nothing_begins_while_it_is_not_known_what_the_agent_uses() {
    let pool = "pool p 10.0.0.0/24 28 reclaim=enabled";
    let mut cluster = Cluster::of(&format!("{pool}\n{NODE}\nciliumnode a @50 {BOTH} used=10.0.0.0/31"));
    cluster.wait_until_surplus();
    cluster.done(ASK, &[&format!("ciliumnode a @101 {BOTH} used=10.0.0.0/31 ping=marked")]);
    cluster.expect("a", "nothing");
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 unready")));
    cluster.observe(&format!("ciliumnode a @102 {BOTH} used=unknown ping=answered"));
    cluster
        .done("clear the question on ciliumnode a", &[&format!("ciliumnode a @103 {BOTH} used=10.0.0.0/31")]);
    cluster.expect("a", "nothing");
    cluster.pass(1200);
    cluster.expect("a", "nothing");
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 restarts=1")));
    cluster.expect("a", ASK);
}

#[test]
fn agents_of_some_releases_have_to_be_asked_for() {
    for (release, expected) in
        [("1.12.19", "nothing"), ("1.13.18", "nothing"), ("none", "nothing"), ("1.14.2", DRAIN)]
    {
        let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 reclaim=enabled");
        cluster.observe_agents(AgentNews::Applied(agent(&format!("agent a {release}"))));
        cluster.wait_until_surplus();
        assert_eq!(rendered(&cluster.plan("a")), expected, "{release}");
        let policy =
            Policy { reclaim: ReclaimPolicy { opt_in: true, ..ReclaimPolicy::DEFAULT }, ..Policy::DEFAULT };
        assert_eq!(rendered(&node(&cluster.world, &"a".into(), policy, cluster.now)), DRAIN, "{release}");
    }
}

/// A question that was open before the fence may be answered by what was used before it.
#[test]
fn a_fence_waits_for_the_end_of_an_open_question() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 reclaim=enabled");
    cluster.wait_until_surplus();
    cluster.done(DRAIN, &["claim 10.0.0.16/28 a 1 Draining @110"]);
    cluster.observe(&format!("ciliumnode a @111 {BOTH} used=10.0.0.0/32 ping=marked"));
    cluster.expect("a", "nothing");
    cluster.observe(&format!("ciliumnode a @112 {BOTH} used=10.0.0.0/32 ping=answered"));
    cluster
        .done("clear the question on ciliumnode a", &[&format!("ciliumnode a @113 {BOTH} used=10.0.0.0/32")]);
    cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
    cluster.expect("a", FENCE);
}

/// It may be that of an agent which was restoring its pods when another replica asked it, and is Ready now.
#[test]
fn an_answer_to_a_question_that_was_asked_of_nobody_known_does_not_count() {
    let mut cluster = Cluster::fenced();
    cluster.observe(&format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32 ping=answered"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @112");
    cluster.done(
        "clear the question on ciliumnode a",
        &[&format!("ciliumnode a @113 {FENCED} used=10.0.0.0/32")],
    );
    cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
    cluster.done(ASK, &[&format!("ciliumnode a @114 {FENCED} used=10.0.0.0/32 ping=marked")]);
    // It was asked, and restarts before it answers; the news of the answer is the last to come.
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 restarts=1")));
    cluster.observe(&format!("ciliumnode a @115 {FENCED} used=10.0.0.0/32 ping=answered"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @115");
    cluster.expect("a", "clear the question on ciliumnode a");
}

/// Rule 4: a replica that has not heard that the claim is held again must not close its block.
#[test]
fn each_step_waits_until_the_claims_are_known_as_of_the_version() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 reclaim=enabled");
    cluster.wait_until_surplus();
    cluster.done(DRAIN, &["claim 10.0.0.16/28 a 1 Draining @110"]);
    cluster.observe(&format!("ciliumnode a @120 {BOTH} used=10.0.0.0/32"));
    cluster.expect("a", "read the claims of node a");
}

#[test]
fn a_pod_that_the_agent_does_not_list_keeps_its_block() {
    let mut cluster = Cluster::fenced();
    cluster.done(ASK, &[&format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32 ping=marked")]);
    cluster.observe(&format!("ciliumnode a @113 {FENCED} used=10.0.0.0/32 ping=answered"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
    cluster.looked(&[("10.0.0.20", "apps/web-0")]);
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "clear the question on ciliumnode a; finding: DrainWaits");
    assert_eq!(
        plan.findings[0].message,
        "it is to leave node a and can't yet: its agent lists no address of it, but these pods have one: apps/web-0"
    );
    // A mark would keep the pod from being restored when the agent starts again.
    let mut cluster = Cluster::ready();
    cluster.looked(&[("10.0.0.20", "apps/web-0")]);
    cluster.expect("a", HOLD);
}

/// The watch of the agents' Pods may be late: it has restarted, and nobody knows what it used before.
#[test]
fn an_agent_that_the_read_finds_restarted_is_not_asked() {
    let mut cluster = Cluster::fenced();
    cluster.done(ASK, &[&format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32 ping=marked")]);
    cluster.observe(&format!("ciliumnode a @113 {FENCED} used=10.0.0.0/32 ping=answered"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @113");
    cluster.expect("a", LOOK);
    let Request::Read(read) = cluster.in_flight.remove(0) else { unreachable!() };
    let Read::PodsOf(_, after) = read else { unreachable!() };
    let pods =
        PodsOnNode { agents: vec![agent("agent a 1.20.2 restarts=1")], holders: BTreeMap::new(), n_bound: 0 };
    cluster.finish(read.into(), Seen::PodsOf { after, pods });
    cluster.expect("a", "nothing");
    cluster.pass(10);
    cluster.expect("a", LOOK);
}

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
    cluster.expect("a", "nothing");
    cluster.pass(590);
    cluster.expect("a", "nothing");
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
    let after = |seconds| Policy { question_interval: Duration::from_secs(seconds), ..Policy::DEFAULT };
    let said = |policy| rendered(&node(&cluster.world, &"a".into(), policy, cluster.now));
    assert_eq!([said(after(5)), said(after(6))], [ASK, "nothing"]);
}

/// Load that comes back is served from the block that was about to leave.
#[test]
fn a_node_that_needs_its_block_again_keeps_it() {
    let mut cluster = Cluster::marked();
    let fifteen = "10.0.0.0/29,10.0.0.8/30,10.0.0.12/31,10.0.0.14/32";
    cluster.observe(&format!("ciliumnode a @115 {FENCED} used={fifteen} ready=10.0.0.16/28"));
    cluster.expect("a", HOLD);
}

/// The consent that stands on the carrier may be that of an earlier drain, which this replica has not seen end. Whoever
/// edited the claim since, a later version of the carrier shows what stands.
#[test]
fn a_consent_from_before_the_last_version_of_the_claim_is_shown_once_more() {
    let mut cluster = Cluster::ready();
    cluster.observe("claim 10.0.0.16/28 a 1 Draining @116");
    cluster.looked(&[]);
    cluster.done(
        "make a later version of ciliumnode a",
        &[&format!("ciliumnode a @117 {FENCED} used=10.0.0.0/32 ready=10.0.0.16/28")],
    );
    cluster.observe("claim 10.0.0.0/28 a 1 Held @117");
    cluster.looked(&[]);
    cluster.expect("a", RELEASE);
}

#[test]
fn a_block_whose_consent_is_gone_before_it_is_off_is_held_again() {
    let mut cluster = Cluster::releasing();
    cluster.observe(&format!("ciliumnode a @117 {FENCED} used=10.0.0.0/32 ready=10.0.0.16/29"));
    cluster.expect("a", HOLD);
    // A version from before the move says nothing.
    let mut cluster = Cluster::ready();
    cluster.looked(&[]);
    cluster.observe(&format!("ciliumnode a @116 {FENCED} used=10.0.0.0/32 ready=10.0.0.16/29"));
    cluster.observe("claim 10.0.0.16/28 a 1 Releasing/Reclaimed @117");
    cluster.expect("a", "nothing");
}

#[test]
fn a_freeze_of_reclaim_stops_every_step() {
    for at in [Cluster::fenced(), Cluster::ready(), Cluster::releasing()] {
        let mut cluster = at;
        cluster.world.set_freeze(Freeze::of([(Switch::Reclaim, "of a test".to_owned())]));
        cluster.expect("a", "nothing");
        cluster.pass(3600);
        cluster.expect("a", "nothing");
    }
}

#[test]
fn no_more_blocks_begin_than_a_minute_allows_until_somebody_has_looked() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 reclaim=enabled");
    cluster.wait_until_surplus();
    let policy =
        Policy { reclaim: ReclaimPolicy { per_minute: 1, ..ReclaimPolicy::DEFAULT }, ..Policy::DEFAULT };
    let decide = |cluster: &Cluster| node(&cluster.world, &"a".into(), policy, cluster.now);
    let plan = decide(&cluster);
    assert_eq!(rendered(&plan), DRAIN);
    cluster.begin(&plan);
    let request = cluster.in_flight.remove(0);
    cluster.finish(request, Seen::Nothing);
    // It has been kept by another replica in the meantime, and is wanted again.
    cluster.observe("claim 10.0.0.16/28 a 1 Held @111");
    let plan = decide(&cluster);
    assert_eq!(rendered(&plan), "finding: ReclaimStopped");
    cluster.begin(&plan);
    cluster.pass(3600);
    assert_eq!(rendered(&decide(&cluster)), "finding: ReclaimStopped", "time does not end it");
    for on in [true, false] {
        let switches = on.then(|| (Switch::Reclaim, "of a test".to_owned()));
        cluster.world.set_freeze(Freeze::of(switches));
    }
    assert_eq!(rendered(&decide(&cluster)), DRAIN);
}

/// Blocks that an administrator takes back are not too many: they go one after the other.
#[test]
fn a_pool_that_drains_is_slowed_down_and_not_stopped() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/28 28 deleting\npool q 10.0.0.16/28 28 younger");
    cluster.observe("pool p 10.0.0.0/24 28 deleting @110");
    let policy =
        Policy { reclaim: ReclaimPolicy { per_minute: 1, ..ReclaimPolicy::DEFAULT }, ..Policy::DEFAULT };
    let decide = |cluster: &Cluster| node(&cluster.world, &"a".into(), policy, cluster.now);
    let plan = decide(&cluster);
    assert_eq!(rendered(&plan), format!("{DRAIN}; finding: DrainWaits"));
    cluster.begin(&plan);
    let request = cluster.in_flight.remove(0);
    cluster.finish(request, Seen::Nothing);
    cluster.observe("claim 10.0.0.16/28 a 1 Held @111");
    let plan = decide(&cluster);
    assert_eq!(rendered(&plan), "finding: DrainWaits");
    assert!(plan.wake.is_some());
    cluster.begin(&plan);
    cluster.pass(60);
    assert_eq!(rendered(&decide(&cluster)), format!("{DRAIN}; finding: DrainWaits"));
}

#[test]
fn a_pool_that_is_deleted_takes_its_unused_blocks_back_at_once() {
    let mut cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/28 28\npool q 10.0.0.16/28 28 younger\nnode a 1\nagent a 1.20.2\n\
         claim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Held @31 of=q\nciliumnode a @50 {BOTH} used=10.0.0.0/31"
    ));
    cluster.observe(&format!("ciliumnode a @101 {BOTH} used=10.0.0.0/32"));
    cluster.expect("a", "nothing");
    cluster.observe("pool q 10.0.0.16/28 28 younger deleting @110");
    cluster.expect("a", DRAIN);
}

/// Nothing is closed that a node needs: it gets room from its other pools first, and where none has any, it waits.
#[test]
fn a_range_that_drains_is_replaced_first_and_never_closed_without_that() {
    let fifteen = "10.0.0.0/29,10.0.0.8/30,10.0.0.12/31,10.0.0.14/32";
    let text = format!(
        "pool p 10.0.0.0/28 28\npool q 10.0.0.16/28 28 younger draining\nnode a 1\nagent a 1.20.2\n\
         claim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Held @31 of=q\n\
         ciliumnode a @50 {BOTH} used=10.0.0.0/31"
    );
    let mut cluster = Cluster::of(&text);
    cluster.observe(&format!("ciliumnode a @101 {BOTH} used={fifteen}"));
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "finding: DrainWaits");
    assert_eq!(
        plan.findings[0].message,
        "it is to leave node a and can't yet: the node needs it, and no other pool of it has room"
    );
    cluster.begin(&plan);
    cluster.observe("pool r 10.0.1.0/24 28 @110");
    cluster.expect("a", "claim 10.0.1.0/28 of pool r for node a");
    let request = cluster.in_flight.remove(0);
    cluster.finish(request, Seen::Nothing);
    cluster.observe("claim 10.0.1.0/28 a 1 Held @111 of=r");
    let three = format!("{BOTH} 10.0.1.0/28");
    cluster.done(
        "publish [10.0.1.0/28] and 16 addresses on ciliumnode a",
        &[&format!("ciliumnode a @112 {three} used={fifteen}")],
    );
    cluster.expect("a", DRAIN);
}

/// A pod of the block that is to leave needs a place, too: it may end and be recreated at any time.
#[test]
fn a_block_in_use_is_closed_only_where_what_stays_has_room_for_its_pods() {
    let text = |used: &str| {
        format!(
            "pool p 10.0.0.0/28 28\npool q 10.0.0.16/28 28 younger draining\nnode a 1\nagent a 1.20.2\n\
             claim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Held @31 of=q\nciliumnode a @50 {BOTH} used={used}"
        )
    };
    for (in_q, expected) in [("10.0.0.16/30", DRAIN), ("10.0.0.16/29", "finding: DrainWaits")] {
        let used = format!("10.0.0.0/29,{in_q}");
        let mut cluster = Cluster::of(&text("10.0.0.0/31"));
        cluster.observe(&format!("ciliumnode a @101 {BOTH} used={used}"));
        cluster.expect("a", expected);
    }
}

#[test]
fn the_pods_that_a_block_waits_for_are_named() {
    let mut cluster = Cluster::fenced();
    cluster.observe(&format!("ciliumnode a @112 {FENCED} used=10.0.0.0/32,10.0.0.18/31"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @112");
    let read = Read::PodsOf("a".into(), AnyRevision::of(Kind::CiliumNode, 112));
    let plan = cluster.plan("a");
    assert_eq!(plan.requests(), [Request::from(read.clone())]);
    cluster.begin(&plan);
    cluster.in_flight.clear();
    let holders = [("10.0.0.18".parse().unwrap(), "apps/web-0".to_owned())].into();
    let agents = cluster.world.agents_on(&"a".into()).cloned().collect();
    let after = AnyRevision::of(Kind::CiliumNode, 112);
    cluster.finish(read.into(), Seen::PodsOf { after, pods: PodsOnNode { agents, holders, n_bound: 0 } });
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "finding: DrainWaits");
    assert_eq!(
        plan.findings[0].message,
        "it is to leave node a and can't yet: 2 addresses of it are in use, by apps/web-0"
    );
    cluster.begin(&plan);
    cluster.pass(300);
    cluster.expect("a", "read the pods of node a; finding: DrainWaits");
}

#[test]
fn a_primary_block_and_one_with_an_owner_are_told_of() {
    let mut cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/24 28 deleting\n{NODE}\nciliumnode a @50 {BOTH} owner=10.0.0.20:ns/pod used=10.0.0.0/31"
    ));
    let plan = cluster.plan("a");
    let messages: Vec<&str> = plan.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "it is to leave node a and can't yet: it is the node's first block of its family, which stays until the node \
             is drained or recreated",
            "it is to leave node a and can't yet: 10.0.0.20 is kept for ns/pod",
        ]
    );
    cluster.begin(&plan);
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
fn a_block_that_is_held_again_after_it_was_taken_off_gets_its_addresses_back() {
    let mut cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/24 28\n{NODE}\nciliumnode a @50 {BOTH} used=10.0.0.0/31 released=10.0.0.16/28 off=10.0.0.16/28"
    ));
    cluster.expect("a", "nothing");
    cluster.observe(&format!("ciliumnode a @101 {BOTH} used=10.0.0.0/31 off=10.0.0.16/28"));
    cluster.observe("claim 10.0.0.0/28 a 1 Held @102");
    cluster.expect("a", "publish [] and 16 addresses on ciliumnode a");
}
