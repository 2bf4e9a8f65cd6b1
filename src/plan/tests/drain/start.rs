//! When a block begins to leave, and which one.

use super::*;
use crate::model::finding::{Finding, FindingKind};

#[test]
fn the_load_must_be_low_for_as_long_as_the_pool_says() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 reclaim=enabled");
    cluster.expect("a", "nothing");
    cluster.pass(590);
    // 7 of 16 would be more than 40 %, for a moment.
    cluster.observe(&format!("ciliumnode a @102 {BOTH} used=10.0.0.0/30,10.0.0.4/31,10.0.0.6/32"));
    cluster.expect("a", "nothing");
    cluster.observe(&format!("ciliumnode a @103 {BOTH} used=10.0.0.0/30"));
    cluster.expect_for(20, "a", "nothing");
    cluster.pass(580);
    cluster.expect("a", DRAIN);
}

/// `docs/planning/sizing.md`: with the default threshold the 9 addresses of one /28 that would stay free are too few.
#[test]
fn a_node_keeps_two_small_blocks_with_the_default_threshold() {
    for (free_below, expected) in [("8", "nothing"), ("4", DRAIN)] {
        let pool = format!("pool p 10.0.0.0/24 28 inner reclaim=enabled freeBelow={free_below}");
        let mut cluster = Cluster::known(&pool);
        cluster.observe(&format!("ciliumnode a @102 {BOTH} used=10.0.0.1/32,10.0.0.2/31,10.0.0.4/31"));
        cluster.expect("a", "nothing");
        cluster.pass(3600);
        cluster.expect("a", expected);
    }
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
        "pool p would reclaim 10.0.0.16/28 with `spec.reclaim.mode: Enabled`"
    );
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.13.18")));
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "finding: UnsupportedCilium; finding: WouldReclaim");
    assert!(plan.findings[1].message.ends_with("; blocked by: the version of its agent is not supported"));
    cluster.observe_agents(AgentNews::Applied(agent("agent a none")));
    let message = &cluster.plan("a").findings[0].message;
    assert!(message.ends_with("is unknown, and --reclaim-unknown-agents is not set"), "{message}");
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.14.2")));
    cluster.observe("pool p 10.0.0.0/24 28 @130");
    cluster.expect("a", "nothing");
}

/// Rule 7: an agent that was not seen to write its use is asked before anything begins, and one that is not Ready is
/// waited for.
#[test]
fn nothing_begins_while_it_is_not_known_what_the_agent_uses() {
    let pool = "pool p 10.0.0.0/24 28 reclaim=enabled";
    let mut cluster = Cluster::of(&format!("{pool}\n{NODE}\nciliumnode a @50 {BOTH} used=10.0.0.0/31"));
    cluster.wait_until_surplus();
    cluster.done(ASK, &[&format!("ciliumnode a @101 {BOTH} used=10.0.0.0/31 ping=marked")]);
    cluster.expect("a", "nothing");
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 unready")));
    cluster.observe(&format!("ciliumnode a @102 {BOTH} used=unknown ping=answered"));
    cluster.done(END_QUERY, &[&format!("ciliumnode a @103 {BOTH} used=10.0.0.0/31")]);
    cluster.expect_for(1200, "a", "nothing");
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 restarts=1")));
    cluster.expect("a", ASK);
}

#[test]
fn nothing_is_reclaimed_from_agents_that_are_too_old_and_from_unknown_ones_by_opt_in() {
    const OLD: &str = "finding: UnsupportedCilium";
    for (release, expected, by_opt_in) in [
        ("1.12.19", OLD, OLD),
        ("1.13.18", OLD, OLD),
        ("1.14.1", OLD, OLD),
        ("none", "nothing", DRAIN),
        ("1.14.2", DRAIN, DRAIN),
    ] {
        let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 reclaim=enabled");
        cluster.wait_until_surplus();
        cluster.observe_agents(AgentNews::Applied(agent(&format!("agent a {release}"))));
        assert_eq!(rendered(&cluster.plan("a")), expected, "{release}");
        let reclaim = ReclaimPolicy { unknown_agents: true, ..ReclaimPolicy::DEFAULT };
        let policy = Policy { reclaim, ..Policy::DEFAULT };
        assert_eq!(rendered(&node(&cluster.world, &"a".into(), policy, cluster.now)), by_opt_in, "{release}");
    }
}

#[test]
fn a_drain_that_the_agent_version_forbids_says_so() {
    let mut cluster = Cluster::known("pool p 10.0.0.0/24 28 draining");
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.13.18")));
    let plan = cluster.plan("a");
    let waits = |finding: &&Finding| finding.kind == FindingKind::DrainWaits;
    let messages: Vec<&String> = plan.findings.iter().filter(waits).map(|found| &found.message).collect();
    let why = "can't be drained from node a yet: the version of its agent is not supported";
    assert!(messages.iter().any(|message| *message == why), "{messages:?}");
}

#[test]
fn no_more_blocks_begin_than_a_minute_allows_until_somebody_has_looked() {
    let mut cluster = Cluster::surplus();
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
        "can't be drained from node a yet: the node needs it, and its other pools have no room"
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

/// A node with a draining block has addresses. A node that joins a second later has none, and would find no free block.
#[test]
fn replacements_leave_as_many_blocks_free_as_nodes_joined_in_the_last_hour() {
    let fifteen = "10.0.0.0/29,10.0.0.8/30,10.0.0.12/31,10.0.0.14/32";
    let cluster = |spare: &str, joined: &[u32]| {
        let mut cluster = Cluster::of(&format!(
            "pool p 10.0.0.0/27 28 deleting\npool r {spare} 28\nnode a 1\nagent a 1.20.2\n\
             claim 10.0.0.0/28 a 1 Held @30\nclaim 10.0.0.16/28 a 1 Held @31\n\
             ciliumnode a @50 {BOTH} used=10.0.0.0/31"
        ));
        for (n, created) in joined.iter().enumerate() {
            cluster.observe(&format!("node j{n} 1 created={created} @10{n}"));
        }
        cluster.observe(&format!("ciliumnode a @110 {BOTH} used={fifteen}"));
        cluster.pass(10_000);
        cluster
    };
    let claim = "claim 10.0.1.0/28 of pool r for node a";
    let waits = "finding: DrainWaits; finding: DrainWaits";
    for (spare, joined, expected) in [
        ("10.0.1.0/28", &[][..], waits),
        ("10.0.1.0/27", &[], claim),
        ("10.0.1.0/27", &[6_401, 9_999], waits),
        ("10.0.1.0/26", &[6_401, 9_999], claim),
        ("10.0.1.0/27", &[6_400, 9_999], claim),
    ] {
        let plan = cluster(spare, joined).plan("a");
        assert_eq!(rendered(&plan), expected, "{spare} {joined:?}");
    }
    let mut two = cluster("10.0.1.0/27", &[6_401, 9_999]);
    let plan = two.plan("a");
    assert_eq!(
        plan.findings[1].message,
        "can't be drained from node a yet: the node needs it, and the last free blocks stay for nodes that join: \
         2 free blocks of pool r; each pool keeps as many as nodes joined in the last hour, and at least one"
    );
    assert_eq!(plan.wake, Some(two.now.uptime + Duration::from_secs(30)), "time alone wakes it");
    two.begin(&plan);
    two.pass(30);
    two.expect("a", claim);
    // The blocks stay for a node that joins.
    let mut one = cluster("10.0.1.0/28", &[]);
    one.observe("node b 1 @120");
    one.observe("ciliumnode b @121");
    one.expect("b", "claim 10.0.1.0/28 of pool r for node b");
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
fn a_primary_block_and_one_with_an_owner_are_reported() {
    let mut cluster = Cluster::of(&format!(
        "pool p 10.0.0.0/24 28 deleting\n{NODE}\nciliumnode a @50 {BOTH} owner=10.0.0.20:ns/pod used=10.0.0.0/31"
    ));
    let plan = cluster.plan("a");
    let messages: Vec<&str> = plan.findings.iter().map(|finding| finding.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "can't be drained from node a yet: the first block of a node stays until the node rejoins, with a \
             reboot: cilium-node-ipam migrate rejoin NODE",
            "can't be drained from node a yet: 10.0.0.20 is reserved for ns/pod",
        ]
    );
    cluster.begin(&plan);
}
