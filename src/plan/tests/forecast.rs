//! Tests of the forecast: a cluster and a change go in, and the difference comes out as text.

use super::*;
use crate::forecast::change::{Change, Impossible, Ranges as Named};
use crate::forecast::outlook::{Outlook, outlook};
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::settings::{Settings, from_config};
use crate::publisher::static_mode::NodeField;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn of(cluster: &Cluster, changes: &[Change]) -> Result<Outlook, Impossible> {
    outlook(&cluster.world, changes, Policy::DEFAULT, cluster.now)
}

/// What each pool holds and has free before and after, the blocks that nodes get, and the problems that appear.
fn shown(outlook: &Outlook) -> String {
    let pools = |overview: &crate::view::overview::Overview| -> Vec<String> {
        overview.pools.iter().map(|row| format!("{} {}+{}", row.name, row.held, row.free)).collect()
    };
    let mut parts =
        vec![format!("{} to {}", pools(&outlook.before).join(" "), pools(&outlook.after).join(" "))];
    parts.extend(outlook.grants.iter().map(|grant| format!("{} gets {}", grant.node, grant.pool)));
    parts.extend(
        outlook.appearing.iter().map(|problem| format!("{} {}", problem.kind, problem.subjects.join(","))),
    );
    parts.join("; ")
}

fn drain(range: &str) -> Change {
    Change::State(Named::Within(range.parse().unwrap()), RangeState::Draining)
}

/// Changes one pool of the cluster.
fn pool(cluster: &Cluster, name: &str, change: impl FnOnce(&mut Pool)) -> Change {
    let mut pool = cluster.world.pool(&name.into()).expect("the pool exists").clone();
    change(&mut pool);
    Change::Pool(Box::new(pool))
}

const THREE: &str = "
    pool p 10.0.0.0/26 28 zone=a
    node a 1 zone=a
    ciliumnode a @50 10.0.0.0/28 used=0
    claim 10.0.0.0/28 a 1 Held @40
    node b 2 zone=b
    ciliumnode b @50";

#[test]
fn a_new_pool_that_an_older_one_overlaps_is_a_problem() {
    let cluster = Cluster::of("pool p 10.0.0.0/24 28\njoined a @50 10.0.0.0/28 used=3");
    let new = pool(&cluster, "p", |pool| pool.name = "q".into());
    let found = shown(&of(&cluster, &[new]).unwrap());
    assert!(found.ends_with("; Overlapping q"), "{found}");
}

#[test]
fn added_nodes_get_blocks_until_their_pool_runs_out() {
    let cluster = Cluster::of(THREE);
    let added = of(&cluster, &[Change::AddNodes(4, labels(&[("zone", "a")]))]).unwrap();
    assert_eq!(shown(&added), "p 1+3 to p 4+0; new-1 gets p; new-2 gets p; new-3 gets p; NoCapacity new-4");
    let room = added.room.unwrap();
    assert_eq!((room.n_nodes, room.is_enough), (3, false));
    assert_eq!(added.after.nodes.served, 4, "what is granted is also published");
    let lost = of(&cluster, &[Change::AddNodes(1, labels(&[("zone", "c")]))]).unwrap();
    assert_eq!(shown(&lost), "p 1+3 to p 1+3; NoPool new-1");
    assert_eq!(lost.room.map(|room| (room.n_nodes, room.pools)), Some((0, Vec::new())));
}

/// Two nodes of 14 addresses each, in a pool with one more block.
const TWO: &str = "
    pool p 10.0.0.0/26 28 zone=a exclude=10.0.0.48/28
    node a 1 zone=a
    ciliumnode a @50 10.0.0.0/28 used=1
    claim 10.0.0.0/28 a 1 Held @40
    node b 2 zone=a
    ciliumnode b @50 10.0.0.16/28 used=1
    claim 10.0.0.16/28 b 2 Held @40";

#[test]
fn more_use_makes_nodes_grow_until_their_pool_runs_out() {
    let cluster = Cluster::of(TWO);
    let low = of(&cluster, &[Change::Use(30)]).unwrap();
    assert_eq!((shown(&low).as_str(), &low.first_full), ("p 2+1 to p 2+1", &None));
    let high = of(&cluster, &[Change::Use(90)]).unwrap();
    assert!(shown(&high).starts_with("p 2+1 to p 3+0; a gets p; NoCapacity b"), "{}", shown(&high));
    // 13 of 16 addresses are more than 80 %.
    let first = high.first_full.unwrap();
    assert_eq!((first.percent, first.pools, first.n_nodes), (76, vec!["p".into()], 1));
    let more = pool(&cluster, "p", |pool| {
        for ranges in pool.families.values_mut() {
            ranges.exclude.clear();
        }
    });
    let enough = of(&cluster, &[Change::Use(90), more]).unwrap();
    assert_eq!((shown(&enough).as_str(), enough.first_full), ("p 2+1 to p 4+0; a gets p; b gets p", None));
}

#[test]
fn nodes_that_join_use_their_addresses_too() {
    let cluster = Cluster::of(&TWO.replace(" exclude=10.0.0.48/28", ""));
    let joined = of(&cluster, &[Change::AddNodes(1, labels(&[("zone", "a")])), Change::Use(90)]).unwrap();
    assert_starts(&shown(&joined), "p 2+2 to p 4+0; a gets p; new-1 gets p; NoCapacity ");
}

#[test]
fn use_brings_no_block_where_a_node_has_one_for_its_life() {
    let settings = Settings { modes: [IpamMode::ClusterPool].into(), ..Settings::default() };
    let config = [("ipam".to_owned(), "cluster-pool".to_owned())].into();
    let cluster = Cluster::in_mode(from_config(&config, &settings), TWO);
    let refused = of(&cluster, &[Change::Use(90)]).unwrap_err();
    assert_eq!(refused, Impossible::NoGrowth("cluster-pool"));
}

#[test]
fn in_multi_pool_mode_agents_ask_for_more() {
    let cluster = Cluster::serving(
        "multi-pool v4",
        "
        pool p 10.0.0.0/26 28
        node a 1
        ciliumnode a @50 need=8 has=10.0.0.0/28
        claim 10.0.0.0/28 a 1 Held @40",
    );
    assert_eq!(shown(&of(&cluster, &[Change::Use(50)]).unwrap()), "p 1+3 to p 1+3");
    assert_eq!(shown(&of(&cluster, &[Change::Use(90)]).unwrap()), "p 1+3 to p 2+2; a gets p");
}

#[test]
fn a_label_moves_a_node_to_another_pool_and_its_blocks_stay() {
    let cluster = Cluster::of(THREE);
    let relabel = |node: &str, zone: Option<&str>| {
        let value = zone.map(ToOwned::to_owned);
        Change::Relabel(node.into(), [("zone".to_owned(), value)].into())
    };
    let gained = of(&cluster, &[relabel("b", Some("a"))]).unwrap();
    assert_eq!(shown(&gained), "p 1+3 to p 2+2; b gets p");
    assert_eq!(gained.resolved.iter().map(|found| found.kind).collect::<Vec<_>>(), ["NoPool"]);
    let lost = of(&cluster, &[relabel("a", None)]).unwrap();
    assert_eq!(shown(&lost).split("; ").next(), Some("p 1+3 to p 1+3"));
    assert_eq!(lost.final_effects, ["node a keeps its 1 block with other labels"]);
    assert_eq!(of(&cluster, &[relabel("x", None)]).unwrap_err(), Impossible::NoNode("x".into()));
}

#[test]
fn a_deleted_pool_gives_nothing_and_keeps_its_blocks() {
    let cluster = Cluster::of(&format!("{THREE}\nnode c 3 zone=a\nciliumnode c @50"));
    let deleted = of(&cluster, &[Change::DeletePool("p".into())]).unwrap();
    assert!(shown(&deleted).starts_with("p 2+2 to p 1+"), "{}", shown(&deleted));
    assert!(deleted.appearing.iter().any(|found| found.subjects == ["c"]), "{:?}", deleted.appearing);
    assert!(deleted.final_effects[0].contains("its 1 block"), "{:?}", deleted.final_effects);
    let nothing = of(&cluster, &[Change::DeletePool("q".into())]);
    assert_eq!(nothing.unwrap_err(), Impossible::NoPool("q".into()));
}

#[test]
fn a_drain_says_when_each_block_can_leave() {
    let cluster = Cluster::of(
        "pool p 10.0.0.0/26 28
        node a 1
        agent a 1.16.1
        ciliumnode a @50 10.0.0.0/28 10.0.0.16/28 10.0.0.32/28 used=10.0.0.16/31
        claim 10.0.0.0/28 a 1 Held @40
        claim 10.0.0.16/28 a 1 Held @41
        claim 10.0.0.32/28 a 1 Held @42",
    );
    let drained = of(&cluster, &[drain("10.0.0.0/8")]).unwrap();
    let when: Vec<String> =
        drained.departures.iter().map(|leaves| format!("{} {}", leaves.cidr, leaves.when)).collect();
    assert_eq!(
        when,
        [
            "10.0.0.0/28 when the node rejoins (reboot): the first block of a node stays",
            "10.0.0.16/28 when the pods with 2 addresses of it are deleted",
            "10.0.0.32/28 when its agent consents: no pod uses it",
        ]
    );
    assert_eq!(drained.nodes_without_replacement, [NodeName::from("a")].into());
    let part = of(&cluster, &[drain("10.0.0.0/27")]).unwrap_err();
    assert!(matches!(part, Impossible::PartOfRange(..)), "{part}");
    let other = of(&cluster, &[drain("10.9.0.0/27")]).unwrap_err();
    assert!(matches!(other, Impossible::NoRange(_)), "{other}");
    // Another pool of the node has room for it when it joins again.
    let other = pool(&cluster, "p", |pool| {
        pool.name = "q".into();
        let v4 = pool.families.get_mut(&Family::V4).unwrap();
        v4.cidrs = [("10.1.0.0/24".parse().unwrap(), RangeState::Active)].into();
    });
    let drained = of(&cluster, &[other, drain("10.0.0.0/16")]).unwrap();
    assert_eq!(drained.nodes_without_replacement, [].into());
}

#[test]
fn a_pool_that_the_server_would_refuse_is_refused() {
    let cluster = Cluster::of(THREE);
    let named = Cluster::of(&THREE.replace("pool p 10.0.0.0/26 28", "pool p 10.0.0.0/26 28 under=mars"));
    let size = pool(&named, "p", |pool| {
        pool.families.get_mut(&Family::V4).unwrap().block_prefix = 27;
    });
    let size = of(&named, &[size]).unwrap_err();
    assert!(matches!(size, Impossible::BlockSize(_, 28, 27)), "{size}");
    let family = pool(&cluster, "p", |pool| {
        let v4 = pool.families.remove(&Family::V4).unwrap();
        pool.families.insert(Family::V6, v4);
    });
    let family = of(&cluster, &[family]).unwrap_err();
    assert!(matches!(family, Impossible::FamilyRemoved(_, Family::V4)), "{family}");
    let wider = pool(&cluster, "p", |pool| {
        let v4 = pool.families.get_mut(&Family::V4).unwrap();
        v4.cidrs.insert("10.1.0.0/26".parse().unwrap(), RangeState::Active);
    });
    assert_eq!(shown(&of(&cluster, &[wider]).unwrap()), "p 1+3 to p 1+7");
}

#[test]
fn nodes_are_served_in_every_mode() {
    let settings = |mode: &str, field: NodeField| {
        let config = [
            ("ipam".to_owned(), mode.to_owned()),
            ("enable-ipv4".to_owned(), "true".to_owned()),
            ("enable-ipv6".to_owned(), "false".to_owned()),
            ("annotate-k8s-node".to_owned(), "true".to_owned()),
        ];
        let modes = IpamMode::ALL.into();
        from_config(&config.into(), &Settings { modes, node_field: field, ..Settings::default() })
    };
    for mode in [
        mode("multi-pool v4"),
        settings("crd", NodeField::Spec),
        settings("cluster-pool", NodeField::Spec),
        settings("kubernetes", NodeField::Spec),
        settings("kubernetes", NodeField::Annotations),
    ] {
        let named = format!("{mode:?}");
        let cluster = Cluster::in_mode(mode, "pool p 10.0.0.0/26 28");
        let added = of(&cluster, &[Change::AddNodes(2, BTreeMap::new())]).unwrap();
        assert_eq!(shown(&added), "p 0+4 to p 2+2; new-1 gets p; new-2 gets p", "{named}");
        assert_eq!((added.after.nodes.served, added.appearing.len()), (2, 0), "{named}");
    }
}

#[test]
fn a_freeze_hides_nothing_of_what_will_be() {
    let mut cluster = Cluster::of(THREE);
    cluster.world.set_freeze(Freeze::of([(Switch::Writes, String::new())]));
    let added = of(&cluster, &[Change::AddNodes(1, labels(&[("zone", "a")]))]).unwrap();
    assert_eq!(shown(&added), "p 1+3 to p 2+2; new-1 gets p");
    assert_eq!(added.room.map(|room| room.n_nodes), Some(3));
}
