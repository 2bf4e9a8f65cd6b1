//! The routes that a daemon runs, compared with those that its node should announce.
//!
//! A daemon also runs routes of other writers, such as Services. Only those in the ranges of pools or blocks count. In
//! the table of a central daemon the exporter's own paths count.

use std::collections::{BTreeMap, BTreeSet};

use super::announced::{NodeRoutes, next_hops};
use crate::model::gobgp::Rib;
use crate::model::names::NodeName;
use crate::net::cidr::Cidr;
use crate::world::World;

/// The difference between a daemon and its node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    /// The prefixes of the node that its daemon does not run.
    pub missing: BTreeSet<Cidr>,
    /// The networks of the daemon in ranges of pools or blocks that the node should not announce.
    pub unexpected: BTreeSet<Cidr>,
}

impl Difference {
    /// The difference for a daemon that runs these networks.
    #[must_use]
    pub fn of(world: &World, routes: &NodeRoutes, networks: &BTreeSet<Cidr>) -> Self {
        let others = networks.difference(&routes.prefixes).copied();
        Self {
            missing: routes.prefixes.difference(networks).copied().collect(),
            unexpected: others.filter(|network| is_known(world, *network)).collect(),
        }
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty()
    }
}

/// Whether the daemon of each node runs all of its prefixes, for nodes that have some. Empty if no daemon runs a prefix
/// of its node: then these daemons announce for other writers.
#[must_use]
pub fn exported(
    routes: &BTreeMap<NodeName, NodeRoutes>,
    networks: &BTreeMap<NodeName, BTreeSet<Cidr>>,
) -> BTreeMap<NodeName, bool> {
    let none = BTreeSet::new();
    let runs = |node: &NodeName| networks.get(node).unwrap_or(&none);
    let with_prefixes = || routes.iter().filter(|(_, routes)| !routes.prefixes.is_empty());
    if with_prefixes().all(|(node, routes)| routes.prefixes.is_disjoint(runs(node))) {
        return BTreeMap::new();
    }
    with_prefixes().map(|(node, routes)| (node.clone(), routes.prefixes.is_subset(runs(node)))).collect()
}

/// Whether a network is in the ranges of pools or blocks.
fn is_known(world: &World, network: Cidr) -> bool {
    world.ledger().pools_over(network).next().is_some()
        || world.ledger().overlapping_claims(network).next().is_some()
}

/// The exporter's paths in the table of a central daemon, by node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Led {
    /// The prefixes that lead to each node with blocks.
    pub to_nodes: BTreeMap<NodeName, BTreeSet<Cidr>>,
    /// The paths that lead to no node with blocks, or that are in no range of a pool. Each has the address that it
    /// leads to.
    pub astray: BTreeMap<Cidr, String>,
}

impl Led {
    /// The paths of a table, for nodes with these routes. A path that leads to an address of several nodes counts
    /// for the one that should announce it.
    #[must_use]
    pub fn of(world: &World, routes: &BTreeMap<NodeName, NodeRoutes>, rib: &Rib) -> Self {
        let mut led = Self::default();
        for (prefix, path) in &rib.own {
            let hop = match path {
                Ok(path) => path.next_hop,
                Err(why) => {
                    led.astray.insert(*prefix, why.clone());
                    continue;
                }
            };
            let has_hop = |name: &NodeName| {
                world.node(name).is_some_and(|node| next_hops(world, node).values().any(|own| *own == hop))
            };
            let mut nodes = routes.iter().filter(|(name, _)| has_hop(name)).peekable();
            let first = nodes.peek().map(|(name, _)| *name);
            let announcing = nodes.find(|(_, routes)| routes.prefixes.contains(prefix)).map(|(name, _)| name);
            match announcing.or(first.filter(|_| is_known(world, *prefix))) {
                Some(name) => drop(led.to_nodes.entry(name.clone()).or_default().insert(*prefix)),
                None => drop(led.astray.insert(*prefix, hop.to_string())),
            }
        }
        led
    }
}
