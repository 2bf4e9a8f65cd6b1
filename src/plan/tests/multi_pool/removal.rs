//! Tests of blocks that are removed from an agent of whole blocks: the start of the removal, the proof that a block is
//! off, and blocks that the agent keeps using.

use super::*;

const FIRST: &str = "10.0.0.0/28";
/// The one that is to leave.
const SECOND: &str = "10.1.0.0/28";

/// Two pools, of which one takes its blocks back, and a node that has a block of each, whose agent runs.
const POOLS: &str = "pool p 10.0.0.0/24 28\npool q 10.1.0.0/24 28 draining";
/// The same, and the other one has no more blocks.
const FULL: &str = "pool p 10.0.0.0/28 28\npool q 10.1.0.0/24 28 draining";
const NODE: &str = "node a 1\nagent a 1.20.2\nclaim 10.0.0.0/28 a 1 Held @30";
const BOTH: &str = "has=10.0.0.0/28,10.1.0.0/28";

const RELEASE: &str = "release 10.1.0.0/28 of node a (Reclaimed)";

impl Cluster {
    /// The node, in this version, with its second claim in this state.
    fn removing(state: &str, shown: &str) -> Self {
        Self::in_pools(POOLS, state, shown)
    }

    /// The same with these pools.
    fn in_pools(pools: &str, state: &str, shown: &str) -> Self {
        cluster(&format!("{pools}\n{NODE}\nclaim {SECOND} a 1 {state} of=q\nciliumnode a @90 {shown}"))
    }

    /// The second claim is withdrawn, and the block was taken off with a question as of that.
    fn removed() -> Self {
        let mut cluster = Self::removing("Held @31", &format!("need=8 {BOTH}"));
        cluster.looked(&[]);
        cluster.expect("a", RELEASE);
        cluster.shows("claim 10.1.0.0/28 a 1 Releasing/Reclaimed @110 of=q");
        cluster.observe("claim 10.0.0.0/28 a 1 Held @111");
        assert_eq!(
            written(&cluster, "a"),
            "default [10.0.0.0/28] {\"of\":\"default\"}; {\"pool\":\"default\"} and asks as of 110"
        );
        let plan = cluster.plan("a");
        cluster.begin(&plan);
        cluster.shows("ciliumnode a @115 need=8 has=10.0.0.0/28 asked=110");
        cluster.expect("a", "nothing");
        cluster
    }

    /// The write that is in flight is answered with this object.
    fn shows(&mut self, line: &str) {
        let request = self.in_flight.remove(0);
        self.finish(request, Seen::Nothing);
        self.observe(line);
        self.pass(2);
    }
}

#[test]
fn an_unused_block_of_a_pool_that_drains_is_removed_with_a_question() {
    let mut cluster = Cluster::removed();
    cluster.observe("ciliumnode a @120 need=8 has=10.0.0.0/28");
    // An agent that began in between does not know of a pod of its predecessor's.
    cluster.looked(&[("10.1.0.3", "apps/left")]);
    cluster.expect("a", "finding: DrainWaits");
    cluster.pass(60);
    cluster.looked(&[]);
    cluster.expect("a", "cool 10.1.0.0/28 of node a");
}

/// Pods go with their Node, while the machine may run on. Then the block cools as every block of a lost node.
#[test]
fn a_block_that_was_removed_stays_with_a_ciliumnode_that_outlives_its_node() {
    let mut cluster = Cluster::removed();
    cluster.observe("ciliumnode a @120 need=8 has=10.0.0.0/28");
    cluster.looked(&[("10.1.0.3", "apps/left")]);
    cluster.delete(Kind::Node, "a", 130);
    let left = rendered(&cluster.plan("a"));
    assert!(!left.contains("cool"), "{left}");
    cluster.delete(Kind::CiliumNode, "a", 140);
    assert_has(&rendered(&cluster.plan("a")), "hold 10.1.0.0/28 for node a again");
}

/// A hand takes all off, and the agent begins anew: it restores its pods from what it finds, and one of them may have
/// got an address of the block a moment before that was off.
#[test]
fn a_block_that_was_removed_comes_back_with_the_others_when_its_agent_finds_none() {
    let mut cluster = Cluster::removed();
    cluster.observe("ciliumnode a @120 need=8");
    cluster.looked(&[("10.1.0.3", "apps/left")]);
    cluster.expect("a", "hold 10.1.0.0/28 for node a again; finding: DrainWaits");
    cluster.shows("claim 10.1.0.0/28 a 1 Held @121 of=q");
    cluster.expect("a", "publish [10.0.0.0/28 10.1.0.0/28] and 28 addresses on ciliumnode a");
}

/// A block whose removal was under way when its CiliumNode was recreated.
const RELEASED_UNDER_ANOTHER_NAME: &str = "pool p 10.0.0.0/24 28\npool q 10.1.0.0/24 28 under=mars deleting\n\
     joined a @90 need=8 asked=31 recreated\nagent a 1.20.2\nclaim 10.0.0.0/28 a 1 Held @30 under=default\n\
     claim 10.1.0.0/28 a 1 Releasing/Reclaimed @31 of=q under=mars";

/// An agent that starts again asks for addresses of the default pool. Of other names it asks when it has restored its
/// pods.
#[test]
fn a_released_block_comes_back_for_the_pods_in_it_whatever_name_its_agent_asks_for() {
    let mut in_use = cluster(RELEASED_UNDER_ANOTHER_NAME);
    in_use.looked(&[("10.1.0.3", "apps/left")]);
    in_use.expect("a", "hold 10.1.0.0/28 for node a again");
    in_use.shows("claim 10.1.0.0/28 a 1 Held @121 of=q under=mars");
    in_use.expect("a", "publish [10.0.0.0/28 10.1.0.0/28] and 28 addresses on ciliumnode a");
    let mut empty = cluster(RELEASED_UNDER_ANOTHER_NAME);
    empty.looked(&[]);
    empty.expect("a", "publish [10.0.0.0/28] and 14 addresses on ciliumnode a");
}

/// One that fails says nothing of pods. For a while it is made again; the right to it may be missing for good.
#[test]
fn blocks_on_their_way_wait_for_a_read_of_the_pods_that_fails_but_not_for_ever() {
    let mut cluster = cluster(RELEASED_UNDER_ANOTHER_NAME);
    for _ in 0..6 {
        cluster.expect("a", "read the pods of node a");
        let request = cluster.in_flight.remove(0);
        let answer = Answer::Refused("of a test".to_owned(), None);
        cluster.world.finish(Outcome { request, answer, seen: Seen::Nothing }, cluster.now);
        cluster.expect("a", "waits: a request for it is in flight");
        cluster.pass(10);
    }
    cluster.expect("a", "publish [10.0.0.0/28] and 14 addresses on ciliumnode a");
}

/// What its agent does not need under the name of that block it gave back.
#[test]
fn a_released_block_that_nobody_has_is_not_held_for_a_need_under_another_name() {
    let mut cluster = cluster(
        "pool p none 28\npool q 10.1.0.0/24 28 under=mars\njoined a @32 others=10.1.0.0/28 mars=8\n\
         agent a 1.20.2\nclaim 10.1.0.0/28 a 1 Held @31 of=q under=mars",
    );
    cluster.observe("ciliumnode a @110 need=8");
    cluster.looked(&[]);
    cluster.expect(
        "a",
        "release 10.1.0.0/28 of node a (Reclaimed); unmet: no pool of the node has a free ipv4 \
         block of the Cilium pool default",
    );
    cluster.shows("claim 10.1.0.0/28 a 1 Releasing/Reclaimed @111 of=q under=mars");
    cluster.observe("ciliumnode a @112 need=8 asked=111");
    cluster.looked(&[]);
    let plan = rendered(&cluster.plan("a"));
    assert!(!plan.contains("hold"), "{plan}");
}

/// It would go back at once, and be held again, without end.
#[test]
fn a_released_block_is_not_held_again_beside_what_somebody_else_gave() {
    let text =
        "pool p 10.0.0.0/24 28\nnode a 1\nagent a 1.20.2\nclaim 10.0.0.0/28 a 1 Releasing/Reclaimed @31";
    cluster(&format!("{text}\nciliumnode a @90 need=8 has=10.9.0.0/28 asked=31")).expect("a", "nothing");
    let empty = format!("{text}\nciliumnode a @90 need=8 asked=31");
    cluster(&empty).expect("a", "hold 10.0.0.0/28 for node a again");
}

#[test]
fn a_block_of_a_deleted_pool_is_removed() {
    let pools = POOLS.replace("draining", "deleting");
    let mut cluster = Cluster::in_pools(&pools, "Held @31", &format!("need=8 {BOTH}"));
    cluster.looked(&[]);
    cluster.expect("a", RELEASE);
}

#[test]
fn a_block_in_which_a_pod_is_or_may_be_stays() {
    let mut used = Cluster::removing("Held @31", &format!("need=8 {BOTH}"));
    used.looked(&[("10.1.0.3", "apps/web")]);
    used.expect("a", "finding: DrainWaits");
    used.pass(60);
    used.looked(&[]);
    used.expect("a", RELEASE);
    let mut starting = Cluster::removing("Held @31", &format!("need=8 {BOTH}"));
    starting.looked_at(&[], 1);
    starting.expect("a", "nothing");
    let mut own = Cluster::removing("Held @31", &format!("need=8 {BOTH} agents=10.1.0.9"));
    own.expect("a", "finding: DrainWaits");
}

/// Another replica claims what the agent has, or this one does.
#[test]
fn pods_that_were_read_before_the_claim_of_their_block_count() {
    let pools = POOLS.replace("draining", "deleting");
    let mut cluster = Cluster::in_pools(&pools, "Held @31", &format!("need=8 {BOTH},10.2.0.0/28"));
    cluster.looked(&[("10.1.0.3", "apps/one"), ("10.2.0.3", "apps/other")]);
    cluster.expect("a", "finding: DrainWaits");
    cluster.observe("claim 10.2.0.0/28 a 1 Held @101 of=q");
    cluster.expect("a", "finding: DrainWaits; finding: DrainWaits");
}

/// What was found a while ago may have changed.
#[test]
fn pods_are_read_again_before_the_block_is_removed() {
    let mut cluster = Cluster::removing("Held @31", &format!("need=8 {BOTH}"));
    cluster.looked(&[]);
    cluster.pass(10);
    cluster.looked(&[]);
    cluster.expect("a", RELEASE);
    cluster.shows("claim 10.1.0.0/28 a 1 Releasing/Reclaimed @110 of=q");
    cluster.pass(10);
    cluster.looked(&[("10.1.0.3", "apps/web")]);
    cluster.expect("a", "drain 10.1.0.0/28 of node a");
}

#[test]
fn nothing_is_removed_without_an_agent_or_while_reclaim_is_frozen() {
    let text = format!("{POOLS}\n{NODE}\nclaim {SECOND} a 1 Held @31 of=q\nciliumnode a @90 need=8 {BOTH}");
    cluster(&text.replace("1.20.2", "1.20.2 unready")).expect("a", "finding: DrainWaits");
    cluster(&text.replace("1.20.2", "unknown")).expect("a", "finding: DrainWaits");
    let mut frozen = cluster(&text);
    frozen.world.set_freeze(Freeze::of([(Switch::Reclaim, "a test".to_owned())]));
    frozen.expect("a", "nothing");
    let withdrawn = text.replace("Held @31", "Releasing/Reclaimed @31");
    let mut stopped = cluster(&withdrawn);
    stopped.world.set_freeze(Freeze::of([(Switch::Reclaim, "a test".to_owned())]));
    stopped.expect("a", "hold 10.1.0.0/28 for node a again");
}

/// What the node needs in its place is claimed before, and published in the same write.
#[test]
fn room_comes_first_and_is_published_with_it() {
    let mut cluster = Cluster::removing("Held @31", &format!("need=16 {BOTH}"));
    cluster.looked(&[]);
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a under default; finding: DrainWaits");
    cluster.shows("claim 10.0.0.16/28 a 1 Held @110");
    cluster.observe("claim 10.0.0.0/28 a 1 Held @111");
    // Beside both, its agent would give back what is more than it needs.
    cluster.expect("a", RELEASE);
    cluster.shows("claim 10.1.0.0/28 a 1 Releasing/Reclaimed @115 of=q");
    cluster.observe("claim 10.0.0.16/28 a 1 Held @116");
    assert_eq!(
        written(&cluster, "a"),
        "default [10.0.0.0/28, 10.0.0.16/28] {\"of\":\"default\"}; {\"pool\":\"default\"} and asks as of 115"
    );
}

#[test]
fn a_block_that_nobody_replaces_stays() {
    let mut cluster = Cluster::in_pools(FULL, "Held @31", &format!("need=16 {BOTH}"));
    cluster.looked(&[]);
    cluster.expect("a", "finding: DrainWaits");
}

/// Its node has come to need it while it was on its way off.
#[test]
fn a_withdrawn_block_that_nobody_replaces_is_held_again() {
    let mut cluster = Cluster::in_pools(FULL, "Releasing/Reclaimed @31", &format!("need=16 {BOTH}"));
    cluster.looked(&[]);
    let unmet = "unmet: no pool of the node has a free ipv4 block of the Cilium pool default";
    cluster.expect("a", &format!("hold 10.1.0.0/28 for node a again; {unmet}"));
    cluster.shows("claim 10.1.0.0/28 a 1 Held @121 of=q");
    cluster.pass(60);
    cluster.looked(&[]);
    cluster.expect("a", "finding: DrainWaits");
}

/// The same where nobody is there to take it off from.
#[test]
fn a_withdrawn_block_that_is_needed_is_held_again_while_its_agent_is_down() {
    let node = NODE.replace("1.20.2", "1.20.2 unready");
    let text = |need: &str| {
        format!(
            "{FULL}\n{node}\nclaim {SECOND} a 1 Releasing/Reclaimed @31 of=q\nciliumnode a @90 {need} {BOTH}"
        )
    };
    let unmet = "unmet: no pool of the node has a free ipv4 block of the Cilium pool default";
    cluster(&text("need=16")).expect("a", &format!("hold 10.1.0.0/28 for node a again; {unmet}"));
    cluster(&text("need=8")).expect("a", "nothing");
}

/// Its agent gives no more of it to new pods, so it is no capacity, and is taken off again later and ever more seldom.
#[test]
fn a_block_that_its_agent_goes_on_with_drains_and_is_tried_again() {
    let mut cluster = Cluster::removed();
    cluster.observe(&format!("ciliumnode a @120 need=16 {BOTH}"));
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a under default");
    let more = "10.0.0.16/28";
    cluster.shows(&format!("claim {more} a 1 Held @121"));
    cluster.observe(&format!("ciliumnode a @122 need=16 {BOTH},{more}"));
    cluster.expect("a", "drain 10.1.0.0/28 of node a");
    cluster.shows("claim 10.1.0.0/28 a 1 Draining @123 of=q");
    cluster.expect("a", "finding: DrainWaits");
    cluster.observe(&format!("ciliumnode a @125 need=16 {BOTH},{more}"));
    cluster.pass(60);
    cluster.looked(&[]);
    cluster.expect("a", &format!("{RELEASE}; finding: DrainWaits"));
    cluster.shows("claim 10.1.0.0/28 a 1 Releasing/Reclaimed @130 of=q");
    for line in [format!("claim {FIRST} a 1 Held @131"), format!("claim {more} a 1 Held @132")] {
        cluster.observe(&line);
    }
    cluster.expect("a", "remove [10.1.0.0/28] from CiliumNode a");
    cluster.shows(&format!("ciliumnode a @135 need=16 has={FIRST},{more} asked=130"));
    cluster.observe(&format!("ciliumnode a @140 need=16 {BOTH},{more}"));
    cluster.expect("a", "drain 10.1.0.0/28 of node a");
    cluster.shows("claim 10.1.0.0/28 a 1 Draining @141 of=q");
    cluster.pass(60);
    cluster.expect("a", "finding: DrainWaits");
    cluster.pass(60);
    cluster.looked(&[]);
    cluster.expect("a", &format!("{RELEASE}; finding: DrainWaits"));
}

#[test]
fn a_refused_block_that_its_agent_releases_later_is_not_published_again() {
    let mut cluster = Cluster::removed();
    let more = "10.0.0.16/28";
    cluster.observe(&format!("claim {more} a 1 Held @115"));
    cluster.observe(&format!("ciliumnode a @122 need=16 {BOTH},{more}"));
    cluster.expect("a", "drain 10.1.0.0/28 of node a");
    cluster.shows("claim 10.1.0.0/28 a 1 Draining @123 of=q");
    cluster.observe(&format!("ciliumnode a @125 need=16 has={FIRST},{more}"));
    assert_eq!(cluster.rules("a"), [Rule::AgentReleased]);
    cluster.expect("a", RELEASE);
}

#[test]
fn a_refused_block_is_held_again_when_its_pool_or_its_agent_is_another() {
    let state = "Draining @80";
    let mut back = Cluster::removing(state, &format!("need=8 {BOTH}"));
    back.observe("pool q 10.1.0.0/24 28 @101");
    back.expect("a", "hold 10.1.0.0/28 for node a again");
    let mut restarted = Cluster::removing(state, &format!("need=8 {BOTH}"));
    let mut pod = agent("agent a 1.20.2 restarts=1");
    pod.started = Some(ContainerStart { at: Timestamp::default() + Duration::from_secs(9), n_restarts: 1 });
    restarted.observe_agents(AgentNews::Applied(pod));
    restarted.expect("a", "hold 10.1.0.0/28 for node a again");
    Cluster::removing(state, "need=8 has=10.0.0.0/28").expect("a", RELEASE);
}

/// Somebody has given it up while nobody may say that its agent uses nothing of it.
#[test]
fn a_withdrawn_block_of_a_pool_that_keeps_it_is_held_again() {
    let pools = POOLS.replace(" draining", "");
    Cluster::in_pools(&pools, "Releasing/Reclaimed @31", &format!("need=8 {BOTH}"))
        .expect("a", "hold 10.1.0.0/28 for node a again");
}

/// A person gave up one of two blocks.
const GIVEN_UP: &str = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.16/28 a 1 Held @70\n\
     claim 10.0.0.0/28 a 1 Releasing/Unused deleting @80";

/// A hand may have taken off what its agent goes on with.
#[test]
fn a_block_that_a_person_gave_up_is_off_after_an_answer_only() {
    let mut cluster = cluster(&format!("{GIVEN_UP}\nciliumnode a @90 need=8 has=10.0.0.16/28"));
    assert_eq!(written(&cluster, "a"), "{\"pool\":\"default\"} and asks as of 80");
    cluster.observe("ciliumnode a @110 need=8 has=10.0.0.16/28 asked=80");
    assert!(cluster.plan("a").findings[0].message.contains("when its CiliumNode, its agent and the pods"));
    cluster.expect("a", "finding: ClaimBeingDeleted");
    cluster.observe("ciliumnode a @120 need=8 has=10.0.0.16/28");
    cluster.expect("a", "read the pods of node a; finding: ClaimBeingDeleted");
}

/// Its agent may have it from an earlier CiliumNode, and writes it back with its first report.
#[test]
fn a_block_that_a_person_gave_up_waits_for_the_first_report_of_the_agent() {
    let mut cluster = cluster(&format!("{GIVEN_UP}\nciliumnode a @90"));
    let waits = "waits: one of its blocks may be in use and can't be published";
    cluster.expect("a", &format!("finding: ClaimBeingDeleted; finding: Blocked; {waits}"));
    cluster.observe("ciliumnode a @100 need=8");
    assert_eq!(written(&cluster, "a"), "{\"pool\":\"default\"} and asks as of 80");
}
