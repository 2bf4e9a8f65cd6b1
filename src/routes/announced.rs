//! The routes of nodes: per node and family the prefixes of its published blocks. Adjacent blocks share one prefix.
//!
//! Does not know how routes are announced. Keeps two invariants: the prefixes of a node have exactly the addresses of
//! its announced blocks, and no address is announced for two nodes. Where the claims of two nodes overlap and both
//! are published, neither is announced: a router would send traffic to the wrong machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use crate::model::claim::{Claim, ClaimState};
use crate::model::community::Community;
use crate::model::names::NodeName;
use crate::model::node::{AddressKind, Node};
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::plan::evidence::is_carried;
use crate::world::World;
use crate::world::exporter::Exporter;

/// The communities of the pool of a block; `None` if that can't be read.
pub type Communities = Option<BTreeSet<Community>>;

/// The routes of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeRoutes {
    /// The prefixes, in numeric order.
    pub prefixes: BTreeSet<Cidr>,
    /// The communities of the prefixes that have some; `None` if the pool can't be read.
    pub communities: BTreeMap<Cidr, Communities>,
    /// Its blocks that are not announced, each with the reason. Cooling blocks are no longer blocks of the node.
    pub not_announced: BTreeMap<Cidr, NotAnnounced>,
}

/// Why a block is not announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAnnounced {
    /// Its carrier does not have it.
    Unpublished,
    /// Its Node does not exist.
    NodeMissing,
    /// Another node announces this block, which overlaps it.
    Overlap(NodeName, Cidr),
}

impl NotAnnounced {
    /// Whether a person has to act.
    #[must_use]
    pub const fn is_wrong(&self) -> bool {
        match self {
            Self::Unpublished => false,
            Self::NodeMissing | Self::Overlap(..) => true,
        }
    }
}

impl fmt::Display for NotAnnounced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpublished => f.write_str("it is not published"),
            Self::NodeMissing => f.write_str("its Node does not exist"),
            Self::Overlap(node, other) => write!(f, "it overlaps {other} of node {node}"),
        }
    }
}

/// The routes of every node with a claim.
#[must_use]
pub fn announced(world: &World) -> BTreeMap<NodeName, NodeRoutes> {
    let is_candidate = |claim: &Claim| world.node(&claim.node).is_some() && may_be_announced(world, claim);
    let candidates: BTreeSet<Cidr> = world
        .claims()
        .map(|known| &known.claim)
        .filter(|claim| is_candidate(claim))
        .map(|c| c.cidr)
        .collect();
    let mut blocks: BTreeMap<&NodeName, Blocks> = BTreeMap::new();
    let mut routes: BTreeMap<NodeName, NodeRoutes> = BTreeMap::new();
    for claim in world.claims().map(|known| &known.claim) {
        if matches!(claim.state, ClaimState::Cooling(_)) {
            continue;
        }
        let of_node = routes.entry(claim.node.clone()).or_default();
        let mut others = world.overlapping(claim).map(|known| &known.claim);
        let rival = others.find(|other| other.node != claim.node && candidates.contains(&other.cidr));
        let reason = match rival {
            _ if world.node(&claim.node).is_none() => NotAnnounced::NodeMissing,
            _ if !candidates.contains(&claim.cidr) => NotAnnounced::Unpublished,
            Some(rival) => NotAnnounced::Overlap(rival.node.clone(), rival.cidr),
            None => {
                let communities = world.pool(&claim.pool).map(|pool| pool.communities.clone());
                blocks.entry(&claim.node).or_default().add(claim, communities);
                continue;
            }
        };
        of_node.not_announced.insert(claim.cidr, reason);
    }
    for (node, blocks) in blocks {
        let of_node = routes.entry(node.clone()).or_default();
        of_node.communities = blocks.prefixes();
        of_node.prefixes = of_node.communities.keys().copied().collect();
        of_node.communities.retain(|_, communities| communities.as_ref().is_none_or(|some| !some.is_empty()));
    }
    routes
}

/// Whether the state of a claim and its carrier let its node announce it.
///
/// - A block is announced from its publication on.
/// - An announced block remains so while its node has it: an agent whose carrier is deleted keeps using it.
/// - A released block is announced while its carrier has it, because its agent may still use it. It is never added: a
///   replica's view of carriers may be old.
fn may_be_announced(world: &World, claim: &Claim) -> bool {
    match claim.state {
        ClaimState::Held | ClaimState::Draining(_) => {
            is_carried(world, claim) || is_exported(world, claim) == Some(true)
        }
        ClaimState::Releasing(_) => is_carried(world, claim) && is_exported(world, claim) != Some(false),
        ClaimState::Cooling(_) => false,
    }
}

/// Whether the exporter announces the block of a claim for its node now; `None` where nothing is exported.
fn is_exported(world: &World, claim: &Claim) -> Option<bool> {
    match world.exporter()? {
        Exporter::FrrK8s(frr) => Some(frr.of_node(&claim.node).is_some_and(|found| found.covers(claim.cidr))),
        Exporter::Gobgp(gobgp) => {
            let hop =
                world.node(&claim.node).and_then(|node| next_hops(world, node).remove(&claim.cidr.family()));
            Some(gobgp.rib().is_ok_and(|rib| hop.is_some_and(|hop| rib.leads_to(claim.cidr, hop))))
        }
    }
}

/// The addresses of a node itself to which a router sends the traffic of its prefixes, one per family: the first
/// `InternalIP` that no other Node lists, or else the first. A virtual address of several machines leads to one of them.
#[must_use]
pub fn next_hops(world: &World, node: &Node) -> BTreeMap<Family, IpAddr> {
    let internal = node.addresses.iter().filter(|address| address.kind == AddressKind::Internal);
    let internal = internal.map(|address| address.address);
    let (shared, own): (Vec<IpAddr>, Vec<IpAddr>) =
        internal.partition(|address| is_shared(world, node, *address));
    let mut hops = BTreeMap::new();
    for address in own.into_iter().chain(shared) {
        hops.entry(Family::of(address)).or_insert(address);
    }
    hops
}

/// Whether another Node lists an address of this node as its own.
#[must_use]
pub fn is_shared(world: &World, node: &Node, address: IpAddr) -> bool {
    world.addresses_of_nodes_in(Cidr::single(address)).any(|(_, other)| *other != node.name)
}

/// The announced blocks of one node.
#[derive(Debug, Clone, Default)]
struct Blocks {
    /// The addresses of the blocks that stay, by family and communities. Prefixes that differ in these are never
    /// merged.
    staying: BTreeMap<(Family, Communities), AddressSet>,
    /// The blocks that are leaving.
    leaving: BTreeMap<Cidr, Communities>,
}

impl Blocks {
    fn add(&mut self, claim: &Claim, communities: Communities) {
        if claim.state == ClaimState::Held {
            self.staying.entry((claim.cidr.family(), communities)).or_default().insert_cidr(claim.cidr);
        } else {
            self.leaving.insert(claim.cidr, communities);
        }
    }

    /// The fewest prefixes for the blocks that stay, and one prefix for each leaving block. So the withdrawal of a
    /// leaving block changes no prefix of a block that stays.
    fn prefixes(mut self) -> BTreeMap<Cidr, Communities> {
        let mut staying = BTreeMap::new();
        for ((_, communities), addresses) in self.staying {
            staying.extend(addresses.cidrs().map(|prefix| (prefix, communities.clone())));
        }
        self.leaving.retain(|block, _| !staying.keys().any(|prefix: &Cidr| prefix.covers(*block)));
        staying.into_iter().chain(self.leaving).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks(staying: &[Cidr], leaving: &[Cidr]) -> Blocks {
        let mut blocks = Blocks::default();
        blocks.leaving.extend(leaving.iter().map(|block| (*block, None)));
        for block in staying {
            blocks.staying.entry((block.family(), None)).or_default().insert_cidr(*block);
        }
        blocks
    }

    fn rendered(staying: &str, leaving: &str) -> String {
        let parse =
            |text: &str| -> Vec<Cidr> { text.split_whitespace().map(|text| text.parse().unwrap()).collect() };
        let prefixes = blocks(&parse(staying), &parse(leaving)).prefixes();
        prefixes.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn adjacent_blocks_become_one_prefix_as_far_as_they_make_one() {
        assert_eq!(rendered("10.0.0.0/26 10.0.0.64/26", ""), "10.0.0.0/25");
        assert_eq!(rendered("10.0.0.64/26 10.0.0.128/26", ""), "10.0.0.64/26 10.0.0.128/26");
        assert_eq!(rendered("10.0.0.0/26 10.0.0.64/26 10.0.0.128/26", ""), "10.0.0.0/25 10.0.0.128/26");
        assert_eq!(rendered("10.0.0.0/26 fd00::/120 fd00::100/120", ""), "10.0.0.0/26 fd00::/119");
    }

    #[test]
    fn a_leaving_block_is_a_prefix_of_its_own() {
        assert_eq!(rendered("10.0.0.0/26", "10.0.0.64/26"), "10.0.0.0/26 10.0.0.64/26");
        assert_eq!(rendered("", "10.0.0.0/26 10.0.0.64/26"), "10.0.0.0/26 10.0.0.64/26");
        assert_eq!(
            rendered("10.0.0.0/24", "10.0.0.64/26"),
            "10.0.0.0/24",
            "the wider block has its addresses"
        );
    }

    /// Blocks of one size in a small range, so that many of them are adjacent.
    fn some_blocks() -> impl Strategy<Value = Vec<Cidr>> {
        let parse = |text: String| Cidr::parse_lenient(&text).unwrap();
        let block = (0u8..64).prop_map(move |number| parse(format!("10.0.0.{}/30", number * 4)));
        let wide = (0u16..16).prop_map(move |number| parse(format!("fd00::{:x}/124", number * 16)));
        prop::collection::vec(prop_oneof![block, wide], 0..40)
    }

    proptest! {
        #[test]
        fn prefixes_have_exactly_the_addresses_of_the_blocks(staying in some_blocks(), leaving in some_blocks()) {
            let prefixes = blocks(&staying, &leaving).prefixes();
            let expected: AddressSet = staying.iter().chain(&leaving).copied().collect();
            prop_assert_eq!(prefixes.keys().copied().collect::<AddressSet>(), expected);
        }

        #[test]
        fn no_two_prefixes_of_staying_blocks_make_one(staying in some_blocks()) {
            let prefixes = blocks(&staying, &[]).prefixes();
            for prefix in prefixes.keys() {
                prop_assert!(prefix.buddy().is_none_or(|buddy| !prefixes.contains_key(&buddy)), "{:?}", prefixes);
            }
        }
    }
}
