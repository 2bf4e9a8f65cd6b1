//! Tests of the multi-pool mode: the agent says what it needs, takes whole CIDRs, and gives them back by itself.

mod names;
mod removal;

use super::*;
use crate::model::address_class::AddressClass;
use crate::model::multi_pool::{Allocated, Entry, PoolsChange, PoolsFields, Question, Requested};
use crate::plan::{why_no_block, why_no_pool};
use crate::publisher::settings::{Settings, from_config};
use crate::view::tally;

/// A node with a claim, with a second one, and with a second one that its agent has released.
const ONE: &str = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80";
const TWO: &str =
    "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80\nclaim 10.0.0.16/28 a 1 Held @81";
const LEAVING: &str = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80\n\
                       claim 10.0.0.16/28 a 1 Releasing/Reclaimed @95";

fn cluster(text: &str) -> Cluster {
    Cluster::serving("multi-pool v4", text)
}

/// What a line of a CiliumNode says of its pools.
pub(super) fn fields(words: &[&str]) -> PoolsFields {
    let requested = |pool: &str, needed: &[(Family, u128)], asked: Option<u64>| Requested {
        pool: pool.to_owned(),
        needed: needed.iter().copied().collect(),
        asked_as_of: asked.map(Revision::of),
        entry: Entry(format!("{{\"pool\":\"{pool}\"}}")),
    };
    let need = value(words, "need=").map(|need| match need.split_once('+') {
        Some((v4, v6)) => vec![(Family::V4, v4.parse().unwrap()), (Family::V6, v6.parse().unwrap())],
        None => vec![(Family::V4, need.parse().unwrap())],
    });
    let need = need.map(|need| requested("default", &need, None));
    let of_mars =
        value(words, "mars=").map(|need| requested("mars", &[(Family::V4, need.parse().unwrap())], None));
    let asked = value(words, "asked=").map(|asked| requested("asked", &[], Some(asked.parse().unwrap())));
    let allocated = [("mars", "others="), ("default", "has=")].into_iter().filter_map(|(pool, key)| {
        let cidrs = cidrs(value(words, key)?).collect();
        Some(Allocated { pool: pool.to_owned(), cidrs, entry: Entry(format!("{{\"of\":\"{pool}\"}}")) })
    });
    PoolsFields {
        requested: need.into_iter().chain(of_mars).chain(asked).collect(),
        allocated: allocated.collect(),
        own: value(words, "agents=").map(|own| (own.parse().unwrap(), "router")).into_iter().collect(),
        operator_error: value(words, "operator=").map(ToOwned::to_owned),
    }
}

/// What the only write of a node's plan makes of `allocated` or `requested`.
#[track_caller]
fn written(cluster: &Cluster, node: &str) -> String {
    let plan = cluster.plan(node);
    let change = match plan.requests() {
        [Request::Write(Write::Publish(publication))] => &publication.change,
        [Request::Write(Write::UsageQuery(query))] => &query.change,
        [Request::Write(Write::Withdraw(withdrawal))] => &withdrawal.change,
        other => panic!("{other:?}"),
    };
    let listed = |allocated: &[Allocated]| {
        let entries =
            allocated.iter().map(|entry| format!("{} {:?} {}", entry.pool, entry.cidrs, entry.entry.0));
        entries.collect::<Vec<_>>().join("; ")
    };
    let asked = |Question { others, as_of }: &Question| {
        let others: Vec<&str> = others.iter().map(|entry| entry.0.as_str()).collect();
        format!("{} and asks as of {as_of}", others.join(" "))
    };
    match change {
        CarrierChange::MultiPool(PoolsChange::Allocate(allocated)) => listed(allocated),
        CarrierChange::MultiPool(PoolsChange::Ask(question)) => asked(question),
        CarrierChange::MultiPool(PoolsChange::Remove { allocated, question, .. }) => {
            format!("{}; {}", listed(allocated), asked(question))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_gets_what_its_agent_needs_once_it_has_said_so() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28\njoined a @90");
    cluster.expect("a", &format!("waits: {}", Wait::Request));
    cluster.observe("ciliumnode a @101 need=16");
    // A /28 gives an agent 14 addresses.
    cluster.expect(
        "a",
        "claim 10.0.0.0/28 of pool p for node a under default; claim 10.0.0.16/28 of pool p \
         for node a under default",
    );
}

#[test]
fn an_agent_that_does_not_take_part_gets_nothing_until_it_is_upgraded() {
    const WAITS: &str = "finding: UnsupportedCilium; waits: its agent version is not supported";
    let mut cluster = cluster("pool p 10.0.0.0/24 28\njoined a @90 need=8\nagent a 1.16.9");
    cluster.expect("a", WAITS);
    assert_eq!(cluster.drain(), [""; 0]);
    let of_pool = cluster.condition("p", ConditionType::Ready);
    assert_starts(
        &of_pool,
        "UnsupportedCilium false: agents of Cilium 1.16.9 do not confirm in multi-pool mode",
    );
    cluster.observe_agents(AgentNews::Applied(agent("agent a 1.17.8 named=new")));
    assert_eq!(rendered(&cluster.plan("a")), WAITS, "the old one is not gone");
    cluster.observe_agents(AgentNews::Deleted(agent("agent a 1.16.9")));
    assert_eq!(cluster.world.next_node(), Some(&"a".into()));
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a under default");
}

/// The agent removes the use of crd mode after it has reported its need, and a conflict would cost it a minute.
#[test]
fn the_first_publication_waits_for_the_agent_to_remove_the_use_of_crd_mode() {
    let waits = "waits: its agent is about to remove the use of its former mode from its CiliumNode";
    let mut cluster = cluster(&format!("{ONE}\nciliumnode a @90 used=10.0.0.1/32"));
    // The agent still runs in crd mode.
    cluster.expect_for(60, "a", "nothing");
    cluster.observe("ciliumnode a @95 need=8 used=10.0.0.1/32");
    cluster.expect("a", waits);
    cluster.observe("ciliumnode a @101 need=8 used=0");
    cluster.expect("a", "read the claims of node a");

    // An agent before 1.20 never removes it.
    cluster = self::cluster(&format!("{ONE}\nciliumnode a @90 need=8 used=10.0.0.1/32"));
    cluster.expect_for(4, "a", waits);
    cluster.pass(1);
    assert_eq!(cluster.world.next_node().map(NodeName::as_str), Some("a"), "time alone wakes it");
    assert_eq!(written(&cluster, "a"), "default [10.0.0.0/28] {}");

    // A node that is served does not wait.
    let served = format!("{TWO}\nciliumnode a @90 need=20 has=10.0.0.0/28 used=10.0.0.1/32");
    assert_eq!(
        written(&self::cluster(&served), "a"),
        "default [10.0.0.0/28, 10.0.0.16/28] {\"of\":\"default\"}"
    );
}

/// Without pre-allocation an agent requests nothing before it has addresses.
#[test]
fn an_agent_that_requests_nothing_is_a_finding_after_a_minute() {
    let waits = format!("waits: {}", Wait::Request);
    let mut silent = cluster("pool p 10.0.0.0/24 28\njoined a @90\nagent a 1.20.2");
    silent.expect_for(59, "a", &waits);
    silent.pass(1);
    assert_eq!(silent.world.next_node().map(NodeName::as_str), Some("a"), "time alone wakes it");
    silent.expect("a", &format!("finding: NothingRequested; {waits}"));
    assert_has(&silent.plan("a").findings[0].message, "`ipam-multi-pool-pre-allocation`");
    // The question of the controller is no request of the agent.
    silent.observe("ciliumnode a @101 asked=90");
    silent.expect("a", &format!("finding: NothingRequested; {waits}"));
    silent.observe("ciliumnode a @102 need=8");
    silent.expect("a", "claim 10.0.0.0/28 of pool p for node a under default");

    // Without an agent, or without a pool, the node lacks more than a request.
    cluster("pool p 10.0.0.0/24 28\njoined a @90").expect_for(3600, "a", &waits);
    cluster("joined a @90\nagent a 1.20.2").expect("a", "finding: NoPool");
    // An agent that has a CIDR of another writer has started.
    let has_cidr = "pool p 10.0.0.0/24 28\njoined a @90 others=10.9.0.0/24\nagent a 1.20.2";
    cluster(has_cidr).expect("a", "nothing");
}

#[test]
fn a_publication_keeps_what_is_of_other_pools() {
    let text = "pool p 10.0.0.0/24 28\njoined a @90 need=8 others=10.9.0.0/24\n\
                claim 10.0.0.0/28 a 1 Held @80";
    let cluster = cluster(text);
    assert_eq!(written(&cluster, "a"), "mars [10.9.0.0/24] {\"of\":\"mars\"}; default [10.0.0.0/28] {}");
}

#[test]
fn a_served_node_grows_with_its_demand_alone() {
    let mut cluster = cluster(&format!("{ONE}\nciliumnode a @90 need=14 has=10.0.0.0/28"));
    cluster.expect("a", "nothing");
    cluster.observe("ciliumnode a @101 need=15 has=10.0.0.0/28");
    cluster.expect("a", "claim 10.0.0.16/28 of pool p for node a under default");
}

#[test]
fn both_families_or_none() {
    Cluster::serving("multi-pool v4 v6", "pool p 10.0.0.0/24 28\njoined a @90 need=8+8")
        .expect("a", "unmet: no pool of the node has a free ipv6 block of the Cilium pool default");
}

/// An agent would give an excluded address to a pod.
#[test]
fn a_block_with_an_exclusion_in_it_is_not_given() {
    let text = "pool p 10.0.0.0/27 28 exclude=10.0.0.5/32\njoined a @90 need=8";
    cluster(text).expect("a", "claim 10.0.0.16/28 of pool p for node a under default");
}

/// An agent that had both would give one address to two pods.
#[test]
fn a_part_of_a_cidr_that_the_agent_has_is_not_published_beside_it() {
    let text = "joined a @90 need=8 has=10.0.0.0/28\nclaim 10.0.0.12/30 a 1 Held @80";
    cluster(text).expect("a", "nothing");
}

/// A restored store can leave a claim of a part of what its agent has. No answer is without that part, so none is asked
/// for.
#[test]
fn no_question_is_asked_about_a_part_of_what_the_agent_has() {
    let text = "joined a @90 need=16 has=10.0.0.48/28,10.0.0.128/28\n\
                claim 10.0.0.48/29 a 1 Releasing/Reclaimed @80\nclaim 10.0.0.128/28 a 1 Held @71";
    cluster(text).expect("a", "nothing");
}

/// Two pools cut the same blocks, and give them under two names.
#[test]
fn what_an_agent_has_is_claimed_of_the_pool_that_gives_under_its_name() {
    let text = "pool a 10.0.0.0/24 29 under=mars\npool p 10.0.0.0/24 29\n\
                joined a @90 need=6 has=10.0.0.0/29";
    cluster(text).expect("a", "claim 10.0.0.0/29 of pool p for node a under default");
}

/// A restored store can leave an agent with a block and a part of it. It counts both, and releases
/// any other block that it gets.
#[test]
fn a_block_and_its_part_count_as_their_agent_counts_them() {
    let text = "joined a @90 need=16 has=10.0.0.0/28,10.0.0.0/29\nclaim 10.0.0.0/28 a 1 Held @80\n\
                claim 10.0.0.16/30 a 1 Held @81";
    cluster(text).expect("a", "release 10.0.0.16/30 of node a (Reclaimed)");
}

#[test]
fn a_block_that_the_agent_let_go_is_published_again_where_it_is_needed() {
    let cluster = cluster(&format!("{TWO}\nciliumnode a @90 need=20 has=10.0.0.0/28"));
    assert_eq!(written(&cluster, "a"), "default [10.0.0.0/28, 10.0.0.16/28] {\"of\":\"default\"}");
}

/// A replica with an old view may have released a block that the agent has. Without the CiliumNode nothing shows that
/// the agent released it. Its machine may still run without its Node, so the block cools as that of a lost node.
#[test]
fn a_block_whose_agent_has_not_answered_is_the_nodes_when_that_goes() {
    cluster("claim 10.0.0.0/28 a 1 Releasing/Reclaimed @80").expect("a", "hold 10.0.0.0/28 for node a again");
}

/// A restored store can leave a node with nothing but a CIDR that is now another node's. Its agent releases
/// the blocks that it does not need beside that, and would do so each time.
#[test]
fn a_block_that_is_not_needed_beside_what_is_not_ours_goes_back() {
    let text = "node a 1\nnode b 2\nclaim 10.0.0.0/28 b 2 Held @70\nclaim 10.0.0.160/30 a 1 Held @80\n\
                ciliumnode b @80 need=8 has=10.0.0.0/28\nciliumnode a @90 need=8 has=10.0.0.0/28";
    cluster(text).expect("a", "release 10.0.0.160/30 of node a (Reclaimed)");
}

/// The same where it was all that the node had: its agent does not need it, and no Pod has an address of it.
#[test]
fn the_only_block_of_a_node_goes_back_when_its_agent_lets_it_go() {
    let text = "pool p 10.0.0.0/24 28 under=mars\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80 under=mars";
    let mut cluster = cluster(&format!("{text}\nciliumnode a @90 need=8 others=10.0.0.0/28"));
    cluster.observe("ciliumnode a @115 need=8");
    let mut in_use = cluster.clone();
    let mut starting = cluster.clone();
    cluster.looked(&[]);
    cluster.expect("a", "release 10.0.0.0/28 of node a (Reclaimed)");
    // A pod has an address of it, or may have.
    in_use.looked(&[("10.0.0.3", "apps/web")]);
    in_use.expect("a", "read the claims of node a");
    starting.looked_at(&[], 1);
    starting.expect("a", "read the claims of node a");
    // Somebody took all of it off, and the agent needs a part: its pods may be in any of it.
    cluster = self::cluster(&format!("{TWO}\nciliumnode a @90 need=8 has=10.0.0.0/28,10.0.0.16/28"));
    cluster.observe("ciliumnode a @115 need=8");
    cluster.expect("a", "read the claims of node a");
    // A process that began later decides the same.
    cluster = self::cluster(&format!("{text}\nciliumnode a @90 need=8"));
    cluster.looked(&[]);
    cluster.expect("a", "release 10.0.0.0/28 of node a (Reclaimed)");
}

#[test]
fn a_block_that_the_agent_let_go_cools_when_it_has_answered() {
    let mut cluster = cluster(&format!("{TWO}\nciliumnode a @90 need=8 has=10.0.0.0/28"));
    cluster.expect("a", "release 10.0.0.16/28 of node a (Reclaimed)");
    cluster.answered_with("claim 10.0.0.16/28 a 1 Releasing/Reclaimed @110");
    // The version without it, be it a later one, is no proof: the agent is asked.
    cluster.observe("ciliumnode a @115 need=8 has=10.0.0.0/28");
    assert_eq!(written(&cluster, "a"), "{\"pool\":\"default\"} and asks as of 110");
    // While a question is open, nothing is asked.
    cluster.observe("ciliumnode a @120 need=8 has=10.0.0.0/28 asked=110");
    cluster.expect("a", "nothing");
    // Its update without the question is the answer.
    cluster.observe("ciliumnode a @130 need=8 has=10.0.0.0/28");
    // Nothing says that nobody took it off, and a pod may have got an address before that.
    cluster.looked(&[("10.0.0.17", "apps/left")]);
    cluster.expect("a", "finding: DrainWaits");
    cluster.pass(60);
    cluster.looked(&[]);
    cluster.expect("a", "cool 10.0.0.16/28 of node a");
}

/// Without the right to read Pods nobody takes a block off: an agent gave it back.
#[test]
fn a_block_that_the_agent_let_go_cools_though_pods_can_not_be_read() {
    let held = "pool p 10.0.0.0/24 28\nnode a 1\nclaim 10.0.0.0/28 a 1 Held @80\nclaim 10.0.0.16/28 a 1 \
         Releasing/Reclaimed @81";
    let mut cluster = cluster(&format!("{held}\nciliumnode a @90 need=8 has=10.0.0.0/28 asked=81"));
    cluster.expect("a", "nothing");
    cluster.observe("ciliumnode a @130 need=8 has=10.0.0.0/28");
    let plan = cluster.plan("a");
    assert_eq!(rendered(&plan), "read the pods of node a");
    cluster.begin(&plan);
    let request = cluster.in_flight.remove(0);
    let answer = Answer::Refused("forbidden".to_owned(), None);
    cluster.world.finish(Outcome { request, answer, seen: Seen::Nothing }, cluster.now);
    cluster.pass(2);
    cluster.expect("a", "cool 10.0.0.16/28 of node a");
}

/// An agent writes its CiliumNode too, and a conflict with a patch of ours costs it a minute.
#[test]
fn a_question_keeps_the_interval_between_writes() {
    let mut cluster = cluster(&format!("{TWO}\nciliumnode a @90 need=20 has=10.0.0.0/28"));
    cluster.expect("a", "publish [10.0.0.16/28] and 14 addresses on ciliumnode a");
    cluster.settle(&Target::CiliumNode("a".into()), Seen::Nothing);
    cluster.observe("claim 10.0.0.32/28 a 1 Releasing/Reclaimed @105");
    cluster.observe("ciliumnode a @110 need=20 has=10.0.0.0/28,10.0.0.16/28");
    cluster.pass(1);
    cluster.expect("a", "waits: its carrier was patched less than --min-write-interval ago");
    cluster.pass(1);
    assert_eq!(written(&cluster, "a"), "{\"pool\":\"default\"} and asks as of 105");
}

#[test]
fn an_answer_to_an_earlier_question_proves_nothing() {
    let mut cluster = cluster(&format!("{LEAVING}\nciliumnode a @96 need=8 has=10.0.0.0/28 asked=94"));
    cluster.expect("a", "nothing");
    cluster.observe("ciliumnode a @120 need=8 has=10.0.0.0/28");
    assert_eq!(written(&cluster, "a"), "{\"pool\":\"default\"} and asks as of 95");
}

/// What the answer still showed is given back later, and the agent may have missed that.
#[test]
fn an_answer_that_shows_the_block_does_not_prove_what_came_later() {
    let both = "has=10.0.0.0/28,10.0.0.16/28";
    let mut cluster = cluster(&format!("{LEAVING}\nciliumnode a @96 need=8 {both} asked=95"));
    cluster.observe(&format!("ciliumnode a @120 need=8 {both}"));
    cluster.observe("ciliumnode a @125 need=8 has=10.0.0.0/28");
    assert_eq!(written(&cluster, "a"), "{\"pool\":\"default\"} and asks as of 95");
}

/// The answer may be among the versions that were missed, and may still have shown the block.
#[test]
fn a_version_after_others_that_were_missed_is_no_answer() {
    let asked = cluster(&format!("{LEAVING}\nciliumnode a @96 need=8 has=10.0.0.0/28 asked=95"));
    let later = "ciliumnode a @125 need=8 has=10.0.0.0/28";
    let listed = |cluster: &mut Cluster| cluster.lists_only(later, 130);
    let read = |cluster: &mut Cluster| {
        let Object::CiliumNode(found) = object(later) else { unreachable!() };
        cluster.finish(Read::CiliumNode("a".into()).into(), Seen::CiliumNode(Box::new(found)));
    };
    let unreadable = |cluster: &mut Cluster| {
        cluster.observe("unreadable CiliumNode a @120");
        cluster.observe(later);
    };
    let list: &dyn Fn(&mut Cluster) = &listed;
    for (what, miss) in [("a list", list), ("a read", &read), ("an unreadable version", &unreadable)] {
        let mut cluster = asked.clone();
        miss(&mut cluster);
        cluster.pass(2);
        assert_eq!(written(&cluster, "a"), "{\"pool\":\"default\"} and asks as of 95", "{what}");
        // The next answer counts.
        cluster.observe("ciliumnode a @135 need=8 has=10.0.0.0/28 asked=95");
        cluster.observe("ciliumnode a @140 need=8 has=10.0.0.0/28");
        cluster.expect("a", "read the pods of node a");
    }
}

/// What the answer itself gives back the agent takes again by itself as long as it has not heard of its own update.
#[test]
fn an_answer_that_gives_the_block_back_does_not_prove_that_it_is_off() {
    let both = "has=10.0.0.0/28,10.0.0.16/28";
    let mut cluster = cluster(&format!("{LEAVING}\nciliumnode a @96 need=8 {both} asked=95"));
    cluster.observe("ciliumnode a @120 need=8 has=10.0.0.0/28");
    assert_eq!(written(&cluster, "a"), "{\"pool\":\"default\"} and asks as of 95");
    cluster.observe("ciliumnode a @125 need=8 has=10.0.0.0/28 asked=95");
    cluster.observe("ciliumnode a @130 need=8 has=10.0.0.0/28");
    cluster.expect("a", "read the pods of node a");
}

#[test]
fn a_released_block_that_comes_back_is_held_again() {
    let leaving = "claim 10.0.0.16/28 a 1 Releasing/Reclaimed @85";
    cluster(&format!("{ONE}\n{leaving}\nciliumnode a @90 need=8 has=10.0.0.0/28,10.0.0.16/28"))
        .expect("a", "hold 10.0.0.16/28 for node a again");
}

/// It goes on with its CIDRs, and writes them back.
#[test]
fn a_living_agent_without_a_ciliumnode_keeps_what_it_let_go() {
    let leaving = "node a 1\nclaim 10.0.0.16/28 a 1 Releasing/Reclaimed @85";
    cluster(leaving).expect("a", "hold 10.0.0.16/28 for node a again");
}

/// A watch of Nodes that is behind shows the one before.
#[test]
fn a_block_that_is_held_again_without_a_ciliumnode_stays_with_its_node() {
    let mut cluster = cluster("node a 1\nclaim 10.0.0.16/28 a 2 Releasing/Reclaimed @85");
    cluster.expect("a", "hold 10.0.0.16/28 for node a again");
    let [Request::Write(Write::UpdateClaim(update))] = &cluster.in_flight[..] else { unreachable!() };
    assert_eq!(update.change, ClaimChange::Hold("2".into()));
}

#[test]
fn nothing_is_written_where_an_operator_allocates_too() {
    cluster("pool p 10.0.0.0/24 28\njoined a @90 need=8 operator=pool-not-found")
        .expect("a", "finding: SecondAllocator; waits: another allocator serves it");
}

#[test]
fn what_another_has_put_there_counts_for_the_node() {
    cluster("pool p 10.0.0.0/24 28\njoined a @90 need=8 has=10.8.0.0/28").expect("a", "nothing");
}

/// A cluster can be taken over with what its nodes have.
#[test]
fn a_cidr_that_is_a_block_of_a_pool_is_claimed() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28\njoined a @90 need=8 has=10.0.0.32/28");
    cluster.expect("a", "claim 10.0.0.32/28 of pool p for node a under default");
}

/// An agent that starts finds all that its pods may have, or it restores only some of them.
#[test]
fn a_recreated_ciliumnode_gets_every_block_back() {
    let mut cluster = cluster(&format!("{TWO}\nciliumnode a @90 recreated"));
    cluster.expect("a", "nothing");
    cluster.observe("ciliumnode a @101 recreated need=8");
    cluster.expect("a", "read the claims of node a");
    let cluster = super::multi_pool::cluster(&format!("{TWO}\nciliumnode a @90 recreated need=8"));
    assert_eq!(written(&cluster, "a"), "default [10.0.0.0/28, 10.0.0.16/28] {}");
}

/// Our patch drops the names of all writers, so the name of an operator is of a later write. Beside CIDRs that were
/// there before us it may be of long ago, and counts too: an operator at work takes off what we would add.
#[test]
fn the_name_of_an_operator_stops_a_node_whatever_it_has() {
    let pool = "pool p 10.0.0.0/24 28\nnode a 1";
    let named = "ciliumnode a @90 need=40 manager=cilium-operator";
    let stopped = "finding: SecondAllocator; waits: another allocator serves it";
    for objects in [
        format!("{pool}\n{named}"),
        format!("{pool}\nclaim 10.0.0.0/28 a 1 Held @80\n{named}"),
        format!("{pool}\nclaim 10.0.0.0/28 a 1 Held @80\n{named} has=10.0.0.0/28"),
        // Blocks of ours that can become claims, and CIDRs that can't.
        format!("{pool}\n{named} has=10.0.0.16/28"),
        format!("{pool}\n{named} has=10.8.0.0/28"),
    ] {
        cluster(&objects).expect("a", stopped);
    }
}

/// Agents change their mode when they restart, one by one.
#[test]
fn a_change_of_the_mode_stops_a_process_until_it_is_undone_or_restarted() {
    let mut cluster = cluster("pool p 10.0.0.0/24 28\njoined a @90 need=8");
    let of_config = |ipam: &str| {
        let settings = Settings::of_every_mode();
        from_config(
            &[("ipam".to_owned(), ipam.to_owned()), ("enable-ipv6".to_owned(), "false".to_owned())].into(),
            &settings,
        )
    };
    cluster.world.set_mode(of_config("crd"));
    cluster.expect("a", "waits: the controller is passive");
    let Mode::Passive(why) = cluster.world.mode() else { panic!("{:?}", cluster.world.mode()) };
    assert!(why.contains("from `ipam: multi-pool` to `ipam: crd`"), "{why}");
    cluster.world.set_mode(of_config("eni"));
    cluster.world.set_mode(of_config("crd"));
    cluster.expect("a", "waits: the controller is passive");
    cluster.world.set_mode(of_config("multi-pool"));
    cluster.expect("a", "claim 10.0.0.0/28 of pool p for node a under default");
}

/// Its pool may have no other.
#[test]
fn a_block_that_the_agent_let_go_is_held_again_when_it_needs_more() {
    let held = "node a 1\nclaim 10.0.0.0/28 a 1 Held @80\nclaim 10.0.0.16/28 a 1 Releasing/Reclaimed @81";
    let shown = "ciliumnode a @90 need=20 has=10.0.0.0/28 asked=85";
    let mut cluster = cluster(&format!("pool p 10.0.0.0/27 28\n{held}\n{shown}"));
    cluster.expect("a", "hold 10.0.0.16/28 for node a again");
    // What a cordoned pool got back it keeps.
    super::multi_pool::cluster(&format!("pool p 10.0.0.0/27 28 cordoned\n{held}\n{shown}"))
        .expect("a", "unmet: no pool of the node has a free ipv4 block of the Cilium pool default");
}

/// While a cluster changes to this mode, agents of the mode before go on with what their CiliumNodes have.
#[test]
fn what_a_node_has_of_another_mode_stays_its_own() {
    for carried in ["bare 10.0.0.0/28", "10.0.0.0/28"] {
        let text = format!(
            "pool p 10.0.0.0/24 28\nnode a 1\nciliumnode a @90 {carried}\nclaim 10.0.0.0/28 a 1 Held @80"
        );
        cluster(&text).expect_for(3600, "a", "nothing");
        let mut cluster = self::cluster(&format!("{text}\nnode b 2\nciliumnode b @91 need=8"));
        cluster.expect("b", "claim 10.0.0.32/28 of pool p for node b under default");
        cluster.pass(3600);
        cluster.expect("a", "nothing");
    }
}
