//! The routes that a daemon runs, compared with those that its node should announce.
//!
//! A daemon also runs routes of other writers, such as Services. Only those in the ranges of pools or blocks count.

use std::collections::BTreeSet;

use super::announced::NodeRoutes;
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
        let is_known = |network: &Cidr| {
            world.ledger().pools_over(*network).next().is_some()
                || world.ledger().overlapping_claims(*network).next().is_some()
        };
        let others = networks.difference(&routes.prefixes).copied();
        Self {
            missing: routes.prefixes.difference(networks).copied().collect(),
            unexpected: others.filter(is_known).collect(),
        }
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty()
    }
}
