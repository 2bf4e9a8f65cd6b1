//! Tests of nodes whose agent ran in another mode of Cilium before the crd mode, and of maps that another writer empties.

use super::*;

/// The agent of node a ran with 10.1.0.0/24, and waits for its map.
const BEFORE: &str = "pool p 10.0.0.0/24 26\nnode a 1\nciliumnode a @50 10.1.0.0/24 bare agents=10.1.0.9\n\
                      agent a 1.20.2 unready";

const WAITS: &str = "waits: its pods may have addresses of the mode in which its agent ran before";

fn blocked() -> String {
    format!("finding: FormerMode; {WAITS}")
}

/// Reads of the Pods until the node gets a block, which find no pod.
fn found_quiet(cluster: &mut Cluster) {
    cluster.looked(&[]);
    cluster.expect_for(59, "a", WAITS);
    cluster.pass(1);
    cluster.looked(&[]);
}

#[test]
fn a_node_with_pods_of_a_former_mode_gets_nothing_and_they_are_named() {
    let mut cluster = Cluster::of(BEFORE);
    cluster.looked(&[("10.1.0.20", "apps/db"), ("10.0.0.9", "apps/elsewhere")]);
    cluster.expect("a", &blocked());
    assert_eq!(
        message(&cluster.plan("a")),
        "Node a: its agent ran in another mode of Cilium with 10.1.0.0/24 (no block of a pool); 2 pods would lose \
         their network: apps/db, apps/elsewhere; it gets no addresses until no agent is Ready and no pod has such an \
         address; to keep the pods, set the former mode again and let the controller claim these blocks first \
         (docs/migration.md); to give the pods up, annotate the Node with nodeipam.io/ignore-former-mode=cn-a"
    );
    // When they no longer exist, two reads must show that.
    cluster.pass(60);
    found_quiet(&mut cluster);
    cluster.expect("a", "claim 10.0.0.0/26 of pool p for node a");
}

/// A machine that returns may have run in another mode since the last read.
#[test]
fn reads_of_the_pods_count_for_one_ciliumnode() {
    for is_seen_to_go in [false, true] {
        let mut cluster = Cluster::of(BEFORE);
        found_quiet(&mut cluster);
        cluster.pass(1);
        if is_seen_to_go {
            cluster.delete(Kind::CiliumNode, "a", 59);
        }
        cluster.observe("ciliumnode a @60 10.1.0.0/24 bare agents=10.1.0.9 recreated");
        cluster.expect("a", "read the pods of node a");
    }
}

/// The news of an agent may come all at once, so that no decision sees it Ready.
#[test]
fn an_agent_that_was_ready_for_a_moment_starts_the_wait_anew() {
    let news: [&[&str]; 3] = [&["", "unready"], &["named=cilium-other unready"], &["unready"]];
    for (news, expected) in news.into_iter().zip([true, true, false]) {
        let mut cluster = Cluster::of(BEFORE);
        found_quiet(&mut cluster);
        cluster.pass(1);
        for words in news {
            cluster.observe_agents(AgentNews::Applied(agent(&format!("agent a 1.20.2 {words}"))));
        }
        let expected =
            if expected { "read the pods of node a" } else { "claim 10.0.0.0/26 of pool p for node a" };
        cluster.expect("a", expected);
    }
}

/// It can give an address to a pod right after any read.
#[test]
fn a_node_waits_while_an_agent_of_the_former_mode_is_ready() {
    let mut cluster = Cluster::of(&BEFORE.replace(" unready", ""));
    cluster.looked(&[]);
    cluster.expect_for(299, "a", &blocked());
    let text = message(&cluster.plan("a"));
    assert_has(&text, "its agent is Ready and may start pods there");
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 unready")));
    // The last read still found it Ready.
    cluster.pass(1);
    found_quiet(&mut cluster);
    cluster.expect("a", "claim 10.0.0.0/26 of pool p for node a");
}

#[test]
fn an_agent_that_becomes_ready_between_the_two_reads_starts_the_wait_anew() {
    let mut cluster = Cluster::of(BEFORE);
    cluster.looked(&[]);
    cluster.expect_for(30, "a", WAITS);
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2")));
    cluster.expect("a", &blocked());
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.20.2 unready")));
    found_quiet(&mut cluster);
    cluster.expect("a", "claim 10.0.0.0/26 of pool p for node a");
}

/// On a fresh node some always wait, and both would wait for each other.
#[test]
fn pods_that_wait_for_an_address_do_not_keep_a_node_from_its_map() {
    let mut cluster = Cluster::of(BEFORE);
    cluster.looked_at(&[], 3);
    cluster.expect_for(59, "a", WAITS);
    cluster.pass(1);
    cluster.looked_at(&[], 3);
    cluster.expect("a", "claim 10.0.0.0/26 of pool p for node a");
}

#[test]
fn without_the_right_to_read_pods_only_a_person_lets_the_node_get_blocks() {
    let mut cluster = Cluster::of(BEFORE);
    let refuse = |cluster: &mut Cluster| {
        let plan = cluster.plan("a");
        assert_starts(&rendered(&plan), "read the pods of node a");
        cluster.begin(&plan);
        let request = cluster.in_flight.remove(0);
        let answer = Answer::Refused("forbidden".to_owned(), None);
        cluster.world.finish(Outcome { request, answer, seen: Seen::Nothing }, cluster.now);
    };
    refuse(&mut cluster);
    cluster.expect_for(59, "a", &blocked());
    assert_has(&message(&cluster.plan("a")), "its Pods can't be read (forbidden)");
    // The word was about another CiliumNode.
    cluster.observe("node a 1 ignores=cn-b @60");
    cluster.expect("a", &blocked());
    cluster.observe("node a 1 ignores=cn-a @61");
    cluster.expect("a", "claim 10.0.0.0/26 of pool p for node a");
}

#[test]
fn a_map_that_covers_everything_of_the_former_mode_is_published_at_once() {
    let shown = "ciliumnode a @50 10.1.0.0/24 bare agents=10.1.0.9 has=10.1.0.0/25";
    let text = format!("pool p 10.1.0.0/16 24\nnode a 1\n{shown}\nclaim 10.1.0.0/24 a 1 Held @40 for=nobody");
    Cluster::of(&text).expect("a", "publish [] and 256 addresses on ciliumnode a");
}

#[test]
fn each_sign_of_a_former_mode_counts() {
    let signs = ["10.1.0.0/24 bare", "bare agents=10.1.0.9", "bare has=10.1.0.0/28"];
    for sign in signs {
        let text = format!("pool p 10.0.0.0/24 26\nnode a 1\nciliumnode a @50 {sign}");
        let plan = Cluster::of(&text).plan("a");
        assert_starts(&rendered(&plan), "read the pods of node a");
        // An agent that has found addresses has started with them.
        let text = format!("{text}\nclaim 10.0.0.0/26 a 1 Held @40").replace("bare", "10.0.0.0/26");
        let plan = Cluster::of(&text).plan("a");
        assert!(!rendered(&plan).contains("pods"), "{}", rendered(&plan));
    }
    // A claim of a part of the former range is not enough.
    let text =
        "pool p 10.1.0.0/16 25\nnode a 1\nciliumnode a @50 10.1.0.0/24 bare\nclaim 10.1.0.0/25 a 1 Held @40";
    assert_starts(&rendered(&Cluster::of(text).plan("a")), "read the pods of node a");
}

#[test]
fn the_pods_of_a_node_that_no_pool_selects_are_not_read() {
    let mut cluster = Cluster::of(&BEFORE.replace("26\n", "26 zone=z\n"));
    cluster.expect("a", "finding: NoPool");
}

#[test]
fn in_other_modes_agents_lose_no_pod_by_further_blocks() {
    let text = "pool p 10.0.0.0/24 26\nnode a 1\nciliumnode a @50 bare agents=10.1.0.9 need=8";
    Cluster::serving("multi-pool v4", text)
        .expect("a", "claim 10.0.0.0/26 of pool p for node a under default");
}

/// A CiliumNode that was deleted and recreated bare shows nothing.
#[test]
fn the_pods_are_read_before_the_first_map_of_a_ciliumnode_that_is_much_younger_than_its_node() {
    let text = |age: u32| {
        format!("pool p 10.0.0.0/24 26\nnode a 1 created=100\nciliumnode a @50 bare created={}", 100 + age)
    };
    Cluster::of(&text(299)).expect("a", "claim 10.0.0.0/26 of pool p for node a");
    let mut cluster = Cluster::of(&text(300));
    cluster.looked(&[("10.9.0.1", "apps/db")]);
    cluster.expect_for(59, "a", &blocked());
    cluster.pass(1);
    found_quiet(&mut cluster);
    cluster.expect("a", "claim 10.0.0.0/26 of pool p for node a");
    // With a claim the rule of complete sets applies.
    let mut cluster = Cluster::of(&format!("{}\nclaim 10.0.0.0/26 a 1 Held @40", text(900)));
    cluster.expect("a", "publish [10.0.0.0/26] and 64 addresses on ciliumnode a");
}

/// A cluster in which Cilium was installed late looks the same.
#[test]
fn without_the_right_to_read_pods_a_young_ciliumnode_gets_its_map_and_a_finding() {
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/24 26\nnode a 1 created=100\nciliumnode a @50 bare created=999");
    let plan = cluster.plan("a");
    cluster.begin(&plan);
    let request = cluster.in_flight.remove(0);
    let answer = Answer::Refused("forbidden".to_owned(), None);
    cluster.world.finish(Outcome { request, answer, seen: Seen::Nothing }, cluster.now);
    cluster.expect("a", "claim 10.0.0.0/26 of pool p for node a; finding: PodsUnchecked");
}

/// The agent may restart at any time, and must find all of its blocks then.
#[test]
fn a_carrier_whose_map_is_emptied_gets_all_blocks_again_or_none() {
    let claims = "claim 10.0.0.0/28 a 1 Held @40\nclaim 10.0.0.16/28 a 1 Held @41";
    let emptied =
        "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @50 10.0.0.0/28 10.0.0.16/28 bare agents=10.0.0.1";
    let all = "publish [] and 32 addresses on ciliumnode a";
    Cluster::of(&format!("{emptied}\n{claims}")).expect("a", all);
    // One of them can't be published, although podCIDRs list both.
    let mut cluster = Cluster::of(&format!("{emptied}\n{claims}"));
    cluster.observe("ciliumnode x @110 10.0.0.20/32");
    let overlaps =
        "finding: Overlap; finding: Blocked; waits: one of its blocks may be in use and can't be published";
    cluster.expect("a", overlaps);
    // A draining block is held again first.
    let mut cluster = Cluster::of(&format!("{emptied}\n{}", claims.replace("Held @41", "Draining @41")));
    cluster.expect("a", "hold 10.0.0.16/28 for node a again");
    cluster.carried_out("claim 10.0.0.16/28 a 1 Held @111");
    cluster.expect("a", all);
}

#[test]
fn a_block_that_is_too_wide_keeps_the_other_family_back_although_both_are_listed() {
    let mut cluster = Cluster::serving(
        "crd v4 v6",
        "pool p 10.1.0.0/16 24\npool q fd00::/48 64\nnode a 1\nciliumnode a @50 10.1.0.0/24 fd00::/64 bare\n\
         claim 10.1.0.0/24 a 1 Held @40\nclaim fd00::/64 a 1 Held of=q @41",
    );
    cluster.expect(
        "a",
        "finding: BlockTooWide; finding: Blocked; waits: one of its blocks may be in use and can't be published",
    );
}

/// An unknown use counts as none, and more blocks could not be given back without loss.
#[test]
fn a_served_node_grows_only_when_its_agent_has_reported_its_use() {
    let text = |used: &str| {
        format!("pool p 10.0.0.0/24 28 freeBelow=20\njoined a @50 10.0.0.0/28 used={used}\nagent a 1.20.2")
    };
    let mut cluster = Cluster::of(&text("unknown"));
    cluster.expect_for(29, "a", "waits: its agent has not reported which addresses it uses");
    cluster.pass(1);
    cluster.expect("a", "send a usage query to the agent of node a");
    Cluster::of(&text("1")).expect("a", "claim 10.0.0.16/28 of pool p for node a");
}

/// The replacement of a block that must leave is a further block too.
#[test]
fn a_silent_agent_gets_no_replacement_of_a_block_that_must_leave() {
    let blocks =
        "pool p 10.0.0.0/24 28 draining\npool q 10.1.0.0/24 28\njoined a @50 10.1.0.0/28 10.0.0.0/28";
    let mut cluster = Cluster::of(&format!("{blocks} used=unknown\nagent a 1.20.2"));
    cluster.expect("a", "send a usage query to the agent of node a");
}

/// The use that an agent listed before it went back to another mode stays on the CiliumNode.
#[test]
fn with_several_modes_a_node_grows_only_when_this_process_has_seen_its_agent_report() {
    let policy = Policy { growth: GrowthProof::Seen, ..Policy::DEFAULT };
    let mut cluster =
        Cluster::of("pool p 10.0.0.0/24 28 freeBelow=20\njoined a @50 10.0.0.0/28 used=1\nagent a 1.20.2");
    let plan = |cluster: &Cluster| node(&cluster.world, &"a".into(), policy, cluster.now);
    let first = plan(&cluster);
    assert_eq!(rendered(&first), "waits: its agent has not reported which addresses it uses");
    cluster.begin(&first);
    cluster.pass(30);
    let query = plan(&cluster);
    assert_eq!(rendered(&query), "send a usage query to the agent of node a");
    cluster.begin(&query);
    cluster.carried_out("ciliumnode a @110 10.0.0.0/28 used=1 ping=marked");
    cluster.observe("ciliumnode a @111 10.0.0.0/28 used=1 ping=answered");
    cluster.pass(2);
    let cleared = plan(&cluster);
    cluster.begin(&cleared);
    cluster.carried_out("ciliumnode a @112 10.0.0.0/28 used=1");
    assert_eq!(rendered(&plan(&cluster)), "claim 10.0.0.16/28 of pool p for node a");
}
