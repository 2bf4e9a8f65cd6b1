//! The occupants of blocks of a pool that are not its claims, in words for a person, with the remedy that fits.
//!
//! Knows neither who holds the other blocks nor how many are free.

use std::collections::{BTreeMap, BTreeSet};

use super::free;
use super::remedy::Remedy;
use crate::ledger::Occupant;
use crate::model::claim::Claim;
use crate::model::names::{NodeName, ten_by_number, ten_of};
use crate::model::pool::Pool;
use crate::model::status::FamilyCounts;
use crate::net::cidr::{Cidr, Family};
use crate::world::World;

/// The occupants of blocks of a pool that are not its claims.
#[derive(Debug, Clone)]
pub(super) struct UnclaimedOccupants<'a> {
    /// Addresses without a claim, by the object that has them.
    unclaimed: BTreeMap<&'a Occupant, Vec<Cidr>>,
    /// Free blocks that no node gets, because of excluded or reserved addresses.
    useless: Vec<Cidr>,
    /// Claims of another pool.
    claims: BTreeMap<Cidr, &'a Claim>,
}

impl<'a> UnclaimedOccupants<'a> {
    /// Those of a pool with unavailable blocks; `None` without any.
    pub(super) fn of_unavailable(
        world: &'a World,
        pool: &Pool,
        families: &BTreeMap<Family, FamilyCounts>,
    ) -> Option<Self> {
        families.values().any(|counts| counts.unavailable > 0).then(|| Self::of(world, pool))
    }

    /// Costs a pass over all that is taken in the ranges of the pool.
    fn of(world: &'a World, pool: &Pool) -> Self {
        let mut unclaimed = free::unclaimed(world, pool);
        for cidrs in unclaimed.values_mut() {
            cidrs.retain(|cidr| free::takes_blocks_of(world, pool, *cidr));
        }
        unclaimed.retain(|_, cidrs| !cidrs.is_empty());
        let useless = pool.families.keys().flat_map(|family| {
            let free_blocks =
                pool.block_prefix(*family).and_then(|prefix| free::free_blocks(world, pool, *family, prefix));
            free_blocks.map(|free| free::useless_blocks(world, pool, *family, &free)).unwrap_or_default()
        });
        Self { unclaimed, useless: useless.collect(), claims: free::other_claims(world, pool) }
    }

    /// Those of one family.
    pub(super) fn of_family(&self, family: Family) -> Self {
        let is_of = |cidr: &Cidr| cidr.family() == family;
        let mut occupants = self.clone();
        occupants.unclaimed.values_mut().for_each(|cidrs| cidrs.retain(is_of));
        occupants.unclaimed.retain(|_, cidrs| !cidrs.is_empty());
        occupants.useless.retain(is_of);
        occupants.claims.retain(|cidr, _| is_of(cidr));
        occupants
    }

    /// The remedy for the most specific of them.
    pub(super) fn remedy(&self) -> Remedy {
        let mut unclaimed = self.unclaimed.keys();
        if unclaimed.clone().any(|occupant| matches!(occupant, Occupant::Carried(_))) {
            Remedy::RemoveForeign
        } else if unclaimed.any(|occupant| matches!(occupant, Occupant::Unreadable(..))) {
            Remedy::CorrectUnreadable
        } else if !self.useless.is_empty() {
            Remedy::LeaveNodeNetwork
        } else {
            Remedy::AddCidr
        }
    }

    /// One text for each sort of them.
    pub(super) fn lines(&self, world: &World) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.unclaimed.is_empty() {
            let named = self.unclaimed.iter().map(|(occupant, cidrs)| match cidrs.as_slice() {
                [cidr] => format!("{} ({cidr})", world.name_of(occupant)),
                [cidr, more @ ..] => {
                    format!("{} ({cidr} and {} more)", world.name_of(occupant), more.len())
                }
                [] => world.name_of(occupant),
            });
            lines.push(format!("addresses without a claim: {}", ten_of(named)));
        }
        if !self.useless.is_empty() {
            let which = if world.reader().traits().gives_whole_blocks {
                "excluded or reserved addresses"
            } else {
                "only reserved addresses"
            };
            let nodes: BTreeSet<&NodeName> =
                self.useless.iter().flat_map(|block| world.nodes_in(*block)).collect();
            let of = match nodes.len() {
                0 => String::new(),
                1 => format!(" (node {})", ten_by_number(nodes)),
                _ => format!(" (nodes {})", ten_by_number(nodes)),
            };
            lines.push(format!("{which} in {}{of}", ten_of(&self.useless)));
        }
        if !self.claims.is_empty() {
            let named = self.claims.values().map(|claim| format!("{} of pool {}", claim.cidr, claim.pool));
            lines.push(format!("claims of another pool: {}", ten_of(named)));
        }
        lines
    }
}
