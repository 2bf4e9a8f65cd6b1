//! Tests of the map as text: a letter per block.

use std::collections::BTreeSet;

use super::*;
use crate::model::freeze::Freeze;
use crate::model::observation::{Listing, Object, Observation};
use crate::model::revision::AnyRevision;
use crate::publisher::Publisher;
use crate::publisher::crd::Crd;
use crate::wire::watched::{Watched, Wire};
use crate::wire::{CiliumNodes, Claims, Nodes, Pools};
use crate::world::gather::Gathering;

/// A cluster, object by object.
#[derive(Default)]
pub(crate) struct Cluster {
    objects: Vec<Object>,
}

fn object<W: Wire>(json: &str) -> Object {
    serde_json::from_str::<Watched<W>>(json).unwrap().into_object()
}

fn meta(name: &str, created: &str) -> String {
    format!(
        r#""metadata":{{"name":"{name}","uid":"{name}","resourceVersion":"5","creationTimestamp":"2026-01-{created}T00:00:00Z"}}"#
    )
}

impl Cluster {
    /// A pool; `spec` is the content of its `spec`. It is as old as `day` of January says.
    pub(crate) fn pool(&mut self, name: &str, day: &str, spec: &str) -> &mut Self {
        self.objects.push(object::<Pools>(&format!(r#"{{{},"spec":{{{spec}}}}}"#, meta(name, day))));
        self
    }

    /// A claim; `state` is its state, and its reason if there is one.
    pub(crate) fn claim(&mut self, cidr: &str, pool: &str, node: &str, state: &str) -> &mut Self {
        let (state, reason) = state.split_once('/').unwrap_or((state, ""));
        let reason = if reason.is_empty() { String::new() } else { format!(r#","reason":"{reason}""#) };
        let draining =
            if state == "Draining" { format!(r#","ciliumNodeUID":"{node}""#) } else { String::new() };
        let name = cidr.replace('/', "-");
        self.objects.push(object::<Claims>(&format!(
            r#"{{{},"spec":{{"cidr":"{cidr}","pool":"{pool}","node":"{node}","nodeUID":"{node}","excluded":[],
            "state":"{state}"{reason}{draining},"since":"2026-01-01T00:00:00Z"}}}}"#,
            meta(&name, "01")
        )));
        self
    }

    /// A Node with its CiliumNode, which carries these blocks and uses these addresses.
    pub(crate) fn node(&mut self, name: &str, blocks: &[&str], used: &[&str]) -> &mut Self {
        let list =
            |items: &[&str]| items.iter().map(|item| format!("\"{item}\"")).collect::<Vec<_>>().join(",");
        let keys = |items: &[&str]| {
            items.iter().map(|item| format!("\"{item}\":{{}}")).collect::<Vec<_>>().join(",")
        };
        self.objects.push(object::<Nodes>(&format!("{{{}}}", meta(name, "01"))));
        self.objects.push(object::<CiliumNodes>(&format!(
            r#"{{{},"spec":{{"ipam":{{"podCIDRs":[{}],"pool":{{}}}}}},"status":{{"ipam":{{"used":{{{}}}}}}}}}"#,
            meta(name, "01"),
            list(blocks),
            keys(used)
        )));
        self
    }

    pub(crate) fn world(&self) -> World {
        let mut gathering = Gathering::default();
        for kind in Kind::AS_LISTED {
            let at = AnyRevision::of(kind, 5);
            let objects = self.objects.iter().filter(|object| object.kind() == kind).cloned().collect();
            gathering.observe(Observation::Listed(Listing { kind, at_least: at, at_most: at, objects }));
        }
        let crd = Crd { families: BTreeSet::from([Family::V4]), infrastructure: Vec::new() };
        gathering.set_mode(Mode::from(Publisher::Crd(crd)));
        gathering.set_freeze(Freeze::default());
        gathering.complete().unwrap()
    }

    pub(crate) fn map(&self) -> Map {
        map(&self.world(), &[], Timestamp::default())
    }
}

/// The ranges of all pools: the blocks by their letters, and then the notes on single ones.
fn drawn(map: &Map) -> String {
    let mut lines = Vec::new();
    for pool in &map.pools {
        for family in &pool.families {
            for range in &family.ranges {
                let blocks: String = range
                    .pieces
                    .iter()
                    .flat_map(|piece| (0..piece.count).map(|_| piece.block.state.letter()))
                    .collect();
                lines.push(format!("{} {} {blocks}", pool.name, range.cidr));
                for piece in &range.pieces {
                    let Block { node, usage, note, until, .. } = &piece.block;
                    let node = node.as_ref().map(ToString::to_string).unwrap_or_default();
                    let usage = usage.map(|usage| format!(" {}/{}", usage.used, usage.offered));
                    let until = until.map(|until| format!(" until {until}"));
                    let words = [node, usage.unwrap_or_default(), until.unwrap_or_default()].concat();
                    if !words.is_empty() || !note.is_empty() {
                        lines.push(format!("  {} {words} {note}", piece.first).trim_end().to_owned());
                    }
                }
            }
            for (cidr, block) in &family.outside {
                lines.push(format!("{} outside {cidr} {}", pool.name, block.state.letter()));
            }
        }
    }
    lines.join("\n")
}

const ACTIVE: &str = r#""ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.0.0.0/24"}]}"#;

#[test]
fn every_state_of_a_claim_is_a_state_of_its_block() {
    let mut cluster = Cluster::default();
    cluster
        .pool("a", "01", ACTIVE)
        .claim("10.0.0.0/28", "a", "n1", "Held")
        .claim("10.0.0.32/28", "a", "n2", "Draining")
        .claim("10.0.0.64/28", "a", "n2", "Releasing/Reclaimed")
        .claim("10.0.0.96/28", "a", "n3", "Cooling/NodeGone")
        .node("n1", &["10.0.0.0/28"], &["10.0.0.1", "10.0.0.2"])
        .node("n2", &["10.0.0.32/28"], &[]);
    assert_eq!(
        drawn(&cluster.map()),
        "a 10.0.0.0/24 h.d.r.c.........\n\
         \x20 0 n1 2/16\n\
         \x20 2 n2 0/16\n\
         \x20 4 n2 Reclaimed\n\
         \x20 6 n3 until 2026-01-01T01:00:00Z NodeGone"
    );
}

#[test]
fn what_no_node_can_get_is_not_drawn_as_free() {
    let mut cluster = Cluster::default();
    cluster
        .pool(
            "a",
            "01",
            r#""ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.0.0.0/25"},{"cidr":"10.0.1.0/26","state":"Cordoned"},
            {"cidr":"10.0.2.0/26","state":"Draining"}],"exclude":["10.0.0.32/27"]}"#,
        )
        .pool("b", "02", r#""ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.0.0.64/26"},{"cidr":"10.0.4.0/27"}]}"#)
        .claim("10.0.1.0/28", "a", "n1", "Held")
        .node("n1", &[], &[]);
    assert_eq!(
        drawn(&cluster.map()),
        "a 10.0.0.0/25 ..xx....\n\
         a 10.0.1.0/26 h---\n\
         \x20 0 n1 not published yet\n\
         a 10.0.2.0/26 ----\n\
         b 10.0.0.64/26 oooo\n\
         b 10.0.4.0/27 .."
    );
}

#[test]
fn a_held_block_that_must_leave_differs_from_one_that_stays() {
    let mut cluster = Cluster::default();
    cluster
        .pool("a", "01", r#""ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.0.0.0/26","state":"Draining"}]}"#)
        .claim("10.0.0.0/28", "a", "n1", "Held")
        .claim("10.0.0.16/28", "a", "n2", "Draining")
        .node("n1", &["10.0.0.0/28"], &[])
        .node("n2", &["10.0.0.16/28"], &[]);
    assert!(drawn(&cluster.map()).starts_with("a 10.0.0.0/26 ld--\n"), "{}", drawn(&cluster.map()));
}

#[test]
fn waiting_nodes_and_problems_are_on_the_map() {
    let mut cluster = Cluster::default();
    cluster
        .pool("a", "01", ACTIVE)
        .pool("b", "02", ACTIVE)
        .claim("10.0.0.0/28", "a", "n1", "Held")
        .node("n1", &["10.0.0.0/28"], &[])
        .node("n2", &[], &[]);
    let map = cluster.map();
    assert_eq!(map.waiting, ["n2".into()]);
    let problems: Vec<&str> = map.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(problems, ["Overlapping"]);
}

#[test]
fn foreign_addresses_and_blocks_of_two_nodes_stand_out() {
    let mut cluster = Cluster::default();
    cluster
        .pool("a", "01", ACTIVE)
        .claim("10.0.0.0/28", "a", "n1", "Held")
        .claim("10.0.0.64/27", "a", "n2", "Held")
        .claim("10.9.0.0/28", "a", "n2", "Cooling/Unused")
        .node("n1", &["10.0.0.0/28"], &[])
        .node("n2", &["10.0.0.0/28", "10.0.0.128/26"], &[]);
    assert_eq!(
        drawn(&cluster.map()),
        "a 10.0.0.0/24 !...hh..ffff....\n\
         \x20 0 n1 0/16 also on CiliumNode n2\n\
         \x20 4 n2 of 10.0.0.64/27, not published yet\n\
         \x20 8 n2 has 10.0.0.128/26 without a claim\n\
         a outside 10.9.0.0/28 c"
    );
}

/// Only this process knows why no node gets it.
#[test]
fn the_block_of_a_lost_claim_is_drawn_with_its_node() {
    let mut world =
        Cluster::default().pool("a", "01", ACTIVE).claim("10.0.0.16/28", "a", "n1", "Held").world();
    let (kind, name) = (Kind::Claim, "10.0.0.16-28".to_owned());
    world.observe(Observation::Deleted { kind, name, revision: AnyRevision::of(kind, 9) });
    assert_eq!(
        drawn(&map(&world, &[], Timestamp::default())),
        "a 10.0.0.0/24 .f..............\n\x20 1 n1 the claim of 10.0.0.16/28 was lost"
    );
}

#[test]
fn a_range_of_many_blocks_is_few_pieces() {
    let mut cluster = Cluster::default();
    cluster.pool("a", "01", r#""ipv6":{"blockSize":122,"cidrs":[{"cidr":"fd00::/64"}]}"#).claim(
        "fd00::40/122",
        "a",
        "n1",
        "Held",
    );
    let map = cluster.map();
    let range = &map.pools[0].families[0].ranges[0];
    let pieces: Vec<(u128, u128)> = range.pieces.iter().map(|piece| (piece.first, piece.count)).collect();
    assert_eq!(pieces, [(0, 1), (1, 1), (2, (1 << 58) - 2)]);
    assert_eq!(range.n_blocks(), 1 << 58);
}

/// The map and the status of a pool would otherwise contradict each other.
#[test]
fn the_map_shows_as_many_blocks_of_each_state_as_the_status_counts() {
    let mut cluster = Cluster::default();
    cluster
        .pool(
            "a",
            "01",
            r#""ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.0.0.0/24"}],"exclude":["10.0.0.240/28"]}"#,
        )
        .claim("10.0.0.0/28", "a", "n1", "Held")
        .claim("10.0.0.32/28", "a", "n2", "Draining")
        .claim("10.0.0.64/28", "a", "n2", "Releasing/Reclaimed")
        .claim("10.0.0.96/28", "a", "n3", "Cooling/NodeGone")
        .node("n1", &["10.0.0.0/28"], &[])
        .node("n2", &["10.0.0.32/28", "10.0.0.128/27"], &[]);
    let map = cluster.map();
    let family = &map.pools[0].families[0];
    let drawn = family.ranges[0].by_state();
    let n = |states: &[BlockState]| {
        states.iter().map(|state| drawn.get(state).copied().unwrap_or_default()).sum::<u128>()
    };
    let FamilyCounts { blocks, held, draining, cooling, free, unavailable, .. } = family.counts;
    assert_eq!(
        [n(&[BlockState::Held]), n(&[BlockState::Cooling]), n(&[BlockState::Free])],
        [held.into(), cooling.into(), free.into()]
    );
    assert_eq!(n(&[BlockState::Draining, BlockState::Releasing]), draining.into());
    assert_eq!(n(&[BlockState::Foreign]), unavailable.into());
    assert_eq!(family.ranges[0].n_blocks() - n(&[BlockState::Excluded]), blocks.into());
}
