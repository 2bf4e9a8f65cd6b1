//! No wake-up is lost: whenever a decision would come out differently, the node or pool is put on the agenda.
//!
//! Nothing here names what a decision depends on. Every object is changed in turn, in worlds in which nodes wait for
//! every kind of thing, and in random ones. After each change the loop decides for whom it finds on the agenda. Then
//! every plan is computed again, also those of nodes that were not on it: each must be the one that was decided last.

mod multi_pool;
mod reclaim;
pub(super) mod settled;
mod static_mode;
mod worlds;

use proptest::prelude::*;

use super::node_configs::node_config;
use super::pod_ip_pools::{CREATING, pod_ip_pool};
use super::*;
use crate::model::node_config::NodeConfigNews;
use crate::model::plan::PoolPlan;
use crate::model::pod_ip_pool::{PodIpPool, PodIpPoolNews};
use crate::model::request::{ClaimChange, Read};
use crate::plan::pool;
use settled::Settled;
use worlds::{
    BLOCKS, NODES, WORLDS, agent_lines, all_lines, cilium_node_lines, claim_lines, node_lines, pool_lines,
};

/// The forms of the mode kubernetes: podCIDRs alone, or annotations, which agents read.
const KUBERNETES: [&str; 2] = ["kubernetes v4", "kubernetes v4 annotate annotations"];

/// Something that happens to a cluster.
#[derive(Debug, Clone)]
enum Change {
    /// A watch shows the object in this line, at the next revision.
    Shown(String),
    /// A watch shows that the object of this line is deleted.
    Deleted(String),
    /// A list of this kind has everything but this object, as numbered among those that are known.
    NotListed(Kind, usize),
    /// Cilium runs in the mode of these words ([`mode`]).
    Mode(&'static str),
    /// This switch of the freeze is on, and no other.
    Freeze(Option<Switch>),
    /// One of the requests in flight ends: the server did what it asks for, or the same without telling, or refused.
    Ends(usize, End),
    /// Something is told of the agents' Pods.
    Agents(AgentNews),
    /// Something is told of CiliumPodIPPools.
    PodIpPools(PodIpPoolNews),
    /// Something is told of CiliumNodeConfigs.
    NodeConfigs(NodeConfigNews),
    /// Time passes.
    Passes(u64),
}

#[derive(Debug, Clone, Copy)]
enum End {
    Applied,
    Silent,
    Conflict,
}

impl Change {
    /// The change in these words.
    fn named(text: &'static str) -> Self {
        match text.split_once(' ') {
            Some(("delete", line)) => Self::Deleted(line.to_owned()),
            Some(("wait", seconds)) => Self::Passes(seconds.parse().unwrap()),
            Some(("show", line)) => Self::Shown(line.to_owned()),
            _ if text == "end" => Self::Ends(0, End::Applied),
            _ if text == "freeze" => Self::Freeze(Some(Switch::Writes)),
            _ if text == "freeze reclaim" => Self::Freeze(Some(Switch::Reclaim)),
            Some(("agent", _)) => Self::Agents(AgentNews::Applied(agent(text))),
            Some(("podippools", lines)) => {
                Self::PodIpPools(PodIpPoolNews::Listed(lines.split('\n').map(pod_ip_pool).collect()))
            }
            Some(("mode", words)) => Self::Mode(words),
            _ => panic!("no change: {text}"),
        }
    }
}

/// A pool tells of what lies in its ranges, and only that wakes it.
#[test]
fn a_pool_tells_of_nothing_beside_its_ranges() {
    let mut settled = Settled::of("crd v4", "", &[]);
    for line in [
        "pool p 10.0.0.0/30 30",
        "ciliumnode a 10.0.0.0/30 10.0.0.4/30",
        "unreadable NodeIPBlock 10.0.0.4-31 10.0.0.4/31",
    ] {
        assert_eq!(settled.lost_after(&Change::Shown(line.to_owned())), [""; 0], "after {line}");
    }
}

/// Blocks of another pool may be too wide for the mode, so that nobody gets them.
#[test]
fn a_pool_without_nodes_looks_again_when_a_family_that_it_lacks_begins_or_ends_to_be_given_out() {
    let none = "zone=nowhere";
    let world = format!("pool p 10.0.0.0/24 28 {none}\npool q fd00::/48 64 {none}");
    let mut settled = Settled::of("crd v4 v6", &world, &[]);
    let gives = format!("pool r fd01::/112 122 {none}");
    assert_eq!(settled.lost_after(&Change::Shown(gives.clone())), [""; 0]);
    assert_eq!(settled.lost_after(&Change::Deleted(gives)), [""; 0]);
}

/// Every change of one object.
fn single_changes() -> Vec<Change> {
    let deleted =
        [deletions_of_claims(&BLOCKS), deletions_of_pools(&["p 10.0.0.0/28 30", "q 10.0.0.0/28 30"])];
    [shown(all_lines()), deleted.concat(), common_changes(&["none", "crd v4", "crd v4 v6"])].concat()
}

/// Every change of one object in the mode multi-pool.
fn single_changes_in_multi_pool() -> Vec<Change> {
    let mut changes = shown(
        [node_lines(), multi_pool::cilium_node_lines(), multi_pool::pool_lines(), multi_pool::claim_lines()]
            .concat(),
    );
    changes.extend(deletions_of_claims(&multi_pool::BLOCKS));
    changes.extend(deletions_of_pools(&["p 10.0.0.0/24 28", "q 10.0.0.0/24 28"]));
    changes.extend(pod_ip_pool_news().into_iter().map(Change::PodIpPools));
    changes.extend(node_config_news().into_iter().map(Change::NodeConfigs));
    changes.extend(common_changes(&["multi-pool v4 bgp", "multi-pool v4"]));
    changes
}

/// Every change of one object in the mode cluster-pool.
fn single_changes_in_cluster_pool() -> Vec<Change> {
    let modes = ["none", "cluster-pool v4", "cluster-pool v4 v6"];
    single_changes_in_static_mode(static_mode::cluster_pool_lines(), &modes)
}

/// Every change of one object in the mode kubernetes.
fn single_changes_in_kubernetes() -> Vec<Change> {
    let modes = ["none", KUBERNETES[0], KUBERNETES[1], "kubernetes v4 v6 annotate"];
    single_changes_in_static_mode(static_mode::kubernetes_lines(), &modes)
}

/// The same where a node has one block of each family, and its objects may have these versions.
fn single_changes_in_static_mode(lines_of_nodes: Vec<String>, modes: &[&'static str]) -> Vec<Change> {
    let deleted = [
        deletions_of_claims(&static_mode::BLOCKS),
        deletions_of_pools(&["p 10.0.0.0/29 30", "q fd00::/126 126"]),
    ];
    [shown(lines_of_nodes), shown(static_mode::other_lines()), deleted.concat(), common_changes(modes)]
        .concat()
}

fn shown(lines: Vec<String>) -> Vec<Change> {
    lines.into_iter().map(Change::Shown).collect()
}

fn deletions_of_claims(blocks: &[&str]) -> Vec<Change> {
    blocks.iter().map(|cidr| Change::Deleted(format!("claim {cidr} a 1 Held"))).collect()
}

fn deletions_of_pools(pools: &[&str]) -> Vec<Change> {
    pools.iter().map(|pool| Change::Deleted(format!("pool {pool}"))).collect()
}

/// Changes that are the same in every mode, and one to each of these modes.
fn common_changes(modes: &[&'static str]) -> Vec<Change> {
    let mut changes = Vec::new();
    for name in NODES {
        changes.push(Change::Deleted(format!("node {name} 1")));
        changes.push(Change::Deleted(format!("ciliumnode {name}")));
    }
    for kind in Kind::ALL {
        changes.extend((0..3).map(|omitted| Change::NotListed(kind, omitted)));
    }
    changes.extend(modes.iter().copied().map(Change::Mode));
    changes.extend([None, Some(Switch::Reclaim), Some(Switch::Writes)].map(Change::Freeze));
    for place in 0..2 {
        changes.extend([End::Applied, End::Silent, End::Conflict].map(|end| Change::Ends(place, end)));
    }
    changes.extend(agent_news().into_iter().map(Change::Agents));
    changes.extend([1, 40, 7200].map(Change::Passes));
    changes
}

/// Everything that may be told of CiliumPodIPPools.
fn pod_ip_pool_news() -> Vec<PodIpPoolNews> {
    let objects = || multi_pool::OBJECTS.iter().map(|line| pod_ip_pool(line));
    let mut news: Vec<PodIpPoolNews> = objects().map(PodIpPoolNews::Applied).collect();
    news.extend(["default", "mars"].map(|name| PodIpPoolNews::Deleted(pod_ip_pool(name))));
    news.extend(objects().map(|object| PodIpPoolNews::Listed(vec![object])));
    news.extend([PodIpPoolNews::Listed(Vec::new()), PodIpPoolNews::Unlisted("of a test".to_owned())]);
    news
}

/// Everything that may be told of CiliumNodeConfigs.
fn node_config_news() -> Vec<NodeConfigNews> {
    let configs = || {
        ["ipam-default-ip-pool=mars", "enable-bgp-control-plane=false", "ipam=crd", "enable-ipv6=true"]
            .into_iter()
            .flat_map(|set| ["all", "zone=x"].map(|nodes| node_config(&format!("one {nodes} {set}"))))
    };
    let mut news: Vec<NodeConfigNews> = configs().map(NodeConfigNews::Applied).collect();
    news.extend(configs().map(|config| NodeConfigNews::Listed(vec![config])));
    news.extend([
        NodeConfigNews::Deleted(node_config("one all")),
        NodeConfigNews::Unlisted("of a test".to_owned()),
    ]);
    news
}

/// The same at this revision.
fn numbered(news: PodIpPoolNews, revision: u64) -> PodIpPoolNews {
    let revision = Revision::of(revision);
    let at = |object: PodIpPool| PodIpPool { revision, ..object };
    match news {
        PodIpPoolNews::Applied(object) => PodIpPoolNews::Applied(at(object)),
        PodIpPoolNews::Listed(objects) => PodIpPoolNews::Listed(objects.into_iter().map(at).collect()),
        PodIpPoolNews::Deleted(object) => PodIpPoolNews::Deleted(at(object)),
        PodIpPoolNews::Unlisted(why) => PodIpPoolNews::Unlisted(why),
    }
}

/// Everything that may be told of the agents' Pods.
fn agent_news() -> Vec<AgentNews> {
    let pods = || agent_lines().into_iter().map(|line| agent(&line));
    let mut news: Vec<AgentNews> = pods().map(AgentNews::Applied).collect();
    news.extend(pods().map(AgentNews::Deleted));
    news.extend(pods().map(|pod| AgentNews::Listed(vec![pod])));
    news.push(AgentNews::Listed(Vec::new()));
    news.extend(["1.13.10", "1.17.8", "1.20.2"].map(|release| AgentNews::Vouched(release.parse().unwrap())));
    news
}

/// In each of these worlds and after each of these changes everybody decides again who decides differently.
#[track_caller]
fn check(mode: &str, worlds: &[&[(&str, &'static str)]], changes: &[Change]) {
    let mut lost = Vec::new();
    for (what, story) in worlds.iter().copied().flatten() {
        let mut parts = story.split("\nthen ");
        let text = parts.next().unwrap_or_default();
        let before: Vec<Change> = parts.map(Change::named).collect();
        let settled = Settled::of(mode, text, &before);
        assert_eq!(settled.lost(), [""; 0], "one who waits for {what}");
        for change in changes {
            let mut settled = settled.clone();
            let found = settled.lost_after(change);
            lost.extend(found.into_iter().map(|lost| format!("one waits for {what}, {change:?}: {lost}")));
        }
    }
    assert!(lost.is_empty(), "{} wake-ups are lost:\n{}", lost.len(), lost.join("\n"));
}

#[test]
fn every_change_of_one_object_wakes_all_that_decide_differently_then() {
    check("crd v4", &[WORLDS, reclaim::WORLDS], &single_changes());
}

#[test]
fn every_change_of_one_object_in_multi_pool_mode_wakes_all_that_decide_differently_then() {
    check("multi-pool v4 bgp", &[multi_pool::WORLDS], &single_changes_in_multi_pool());
}

#[test]
fn every_change_of_one_object_in_cluster_pool_mode_wakes_all_that_decide_differently_then() {
    check("cluster-pool v4", &[static_mode::CLUSTER_POOL_WORLDS], &single_changes_in_cluster_pool());
}

/// Of a Node count its podCIDRs, and where agents read them its annotations.
#[test]
fn every_change_of_one_object_in_kubernetes_mode_wakes_all_that_decide_differently_then() {
    for mode in KUBERNETES {
        check(mode, &[static_mode::KUBERNETES_WORLDS], &single_changes_in_kubernetes());
    }
}

/// Whether its node is still gone is read before it is free, which counts for a minute; while writes are frozen that
/// minute would pass again and again.
#[test]
fn a_block_that_has_cooled_while_writes_are_frozen_waits_for_nothing_else() {
    let cooling = "pool p 10.0.0.0/28 30\nclaim 10.0.0.0/30 b 1 Cooling/NodeGone @40";
    let mut settled = Settled::of("crd v4", cooling, &[Change::named("freeze")]);
    for change in [
        Change::Passes(1_000_000),
        Change::Passes(60),
        Change::Ends(0, End::Applied),
        Change::Passes(40),
        Change::Passes(40),
    ] {
        assert_eq!(settled.lost_after(&change), [""; 0], "after {change:?}");
    }
}

/// It keeps the history that the next controller's forecast is made of.
#[test]
fn a_passive_controller_writes_the_next_sample_of_a_pool_when_it_is_due() {
    let mut settled = Settled::of("crd v4", "pool p 10.0.0.0/28 30", &[]);
    for change in ["show claim 10.0.0.0/30 a 1 Held", "mode none", "wait 7200"].map(Change::named) {
        assert_eq!(settled.lost_after(&change), [""; 0], "after {change:?}");
    }
}

/// The finding about an overlap names the ranges that a carrier lists, and their addresses stay the same.
#[test]
fn a_carrier_that_lists_the_same_addresses_otherwise_wakes_whoever_overlaps_them() {
    let overlapped = "node b 1\nclaim 10.0.0.4/30 b 1 Held @40\nciliumnode b @51 bare 10.0.0.4/30\n\
                      ciliumnode c @52 bare 10.0.0.0/29";
    let mut settled = Settled::of("cluster-pool v4", overlapped, &[]);
    let listed = Change::named("show ciliumnode c bare 10.0.0.0/30 10.0.0.4/30");
    assert_eq!(settled.lost_after(&listed), [""; 0]);
}

fn change() -> impl Strategy<Value = Change> {
    let shown = |lines: Vec<String>| prop::sample::select(lines).prop_map(Change::Shown);
    prop_oneof![
        4 => shown(node_lines()),
        6 => shown(cilium_node_lines()),
        2 => shown(reclaim::cilium_node_lines()),
        6 => shown(claim_lines()),
        3 => shown(pool_lines()),
        4 => prop::sample::select(all_lines()).prop_map(Change::Deleted),
        2 => (prop::sample::select(Kind::ALL.to_vec()), 0..8usize).prop_map(|(kind, omitted)| Change::NotListed(kind, omitted)),
        1 => prop::sample::select(vec!["none", "crd v4", "crd v4 v6"]).prop_map(Change::Mode),
        2 => prop::sample::select(vec![None, Some(Switch::Reclaim), Some(Switch::Writes)]).prop_map(Change::Freeze),
        4 => (0..8usize, prop::sample::select(vec![End::Applied, End::Silent, End::Conflict]))
            .prop_map(|(place, end)| Change::Ends(place, end)),
        2 => prop::sample::select(agent_news()).prop_map(Change::Agents),
        2 => prop::sample::select(vec![1u64, 40, 7200]).prop_map(Change::Passes),
    ]
}

/// After each of these changes, which happen to an empty cluster, everybody decides again who decides differently.
fn no_wake_up_is_lost(mode: &str, changes: &[Change]) -> Result<(), TestCaseError> {
    let mut settled = Settled::of(mode, "", &[]);
    for change in changes {
        prop_assert_eq!(settled.lost_after(change), [""; 0], "after {:?}", change);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_change_wakes_all_that_decide_differently_then(changes in prop::collection::vec(change(), 1..24)) {
        no_wake_up_is_lost("crd v4", &changes)?;
    }

    #[test]
    fn any_change_in_multi_pool_mode_wakes_all_that_decide_differently_then(
        changes in prop::collection::vec(prop::sample::select(single_changes_in_multi_pool()), 1..24)
    ) {
        no_wake_up_is_lost("multi-pool v4 bgp", &changes)?;
    }

    #[test]
    fn any_change_in_cluster_pool_mode_wakes_all_that_decide_differently_then(
        changes in prop::collection::vec(prop::sample::select(single_changes_in_cluster_pool()), 1..24)
    ) {
        no_wake_up_is_lost("cluster-pool v4", &changes)?;
    }

    #[test]
    fn any_change_in_kubernetes_mode_wakes_all_that_decide_differently_then(
        mode in prop::sample::select(KUBERNETES.to_vec()),
        changes in prop::collection::vec(prop::sample::select(single_changes_in_kubernetes()), 1..24)
    ) {
        no_wake_up_is_lost(mode, &changes)?;
    }
}
