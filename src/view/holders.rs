//! The holders of a full pool's blocks, and the remedy that fits.

use std::collections::BTreeMap;
use std::fmt;

use super::remedy::Remedy;
use super::tally;
use super::unclaimed_occupants::UnclaimedOccupants;
use crate::model::claim::{ClaimState, Reason};
use crate::model::counted::{counted, shown};
use crate::model::names::PoolName;
use crate::model::pool::Pool;
use crate::model::status::FamilyCounts;
use crate::model::time::Timestamp;
use crate::net::cidr::Family;
use crate::world::World;

/// The holders of the blocks of a full family of a pool.
#[derive(Debug)]
pub(super) struct Holders {
    counts: FamilyCounts,
    /// Held blocks of nodes that do not exist any more. Their CiliumNodes keep the blocks.
    of_deleted_nodes: usize,
    /// The time at which the next block has cooled, and the setting of that time.
    next_free: Option<(Timestamp, &'static str)>,
    /// The occupants of the unavailable blocks.
    occupants: Vec<String>,
    /// The remedy for that.
    remedy_for_occupants: Remedy,
}

/// The most specific remedy for a full pool. Costs a pass over its nodes and claims.
pub(super) fn remedy(world: &World, name: &PoolName) -> Remedy {
    let Some(pool) = world.pool(name) else { return Remedy::AddCidr };
    if !world.ledger().gives_out(name) && !world.ledger().overlaps(name).is_empty() {
        return Remedy::RemoveOverlap;
    }
    let families = tally::of(world, name).families;
    let occupants = UnclaimedOccupants::of_unavailable(world, pool, &families);
    let full = of_full_families(world, pool, &families, occupants.as_ref());
    full.values().map(Holders::remedy).min().unwrap_or(Remedy::AddCidr)
}

/// The holders of each family of the pool that gives out blocks and has no free one. Costs a pass over the claims of
/// the pool for each.
pub(super) fn of_full_families(
    world: &World,
    pool: &Pool,
    families: &BTreeMap<Family, FamilyCounts>,
    occupants: Option<&UnclaimedOccupants<'_>>,
) -> BTreeMap<Family, Holders> {
    let is_full =
        |(family, counts): &(&Family, &FamilyCounts)| counts.free == 0 && world.gives_out_of(pool, **family);
    let full = families.iter().filter(is_full);
    full.map(|(family, counts)| (*family, Holders::of(world, pool, *family, *counts, occupants))).collect()
}

impl Holders {
    /// Costs a pass over the claims of the pool.
    fn of(
        world: &World,
        pool: &Pool,
        family: Family,
        counts: FamilyCounts,
        occupants: Option<&UnclaimedOccupants<'_>>,
    ) -> Self {
        let claims = world.claims_of_pool(&pool.name).map(|known| &known.claim);
        let (mut of_deleted_nodes, mut next_free) = (0, None);
        for claim in claims.filter(|claim| claim.cidr.family() == family) {
            match claim.state {
                ClaimState::Cooling(reason) => {
                    let setting =
                        if reason == Reason::NodeGone { "reuseAfterNodeLoss" } else { "reuseAfter" };
                    let found = world.cooled_at(claim).map(|until| (until, setting));
                    next_free = next_free.into_iter().chain(found).min();
                }
                ClaimState::Held if !world.has_node(&claim.node) => of_deleted_nodes += 1,
                ClaimState::Held | ClaimState::Draining(_) | ClaimState::Releasing(_) => {}
            }
        }
        let occupants =
            occupants.filter(|_| counts.unavailable > 0).map(|occupants| occupants.of_family(family));
        Self {
            counts,
            of_deleted_nodes,
            next_free,
            occupants: occupants.as_ref().map(|occupants| occupants.lines(world)).unwrap_or_default(),
            remedy_for_occupants: occupants.map_or(Remedy::AddCidr, |occupants| occupants.remedy()),
        }
    }

    /// The most specific remedy.
    pub(super) fn remedy(&self) -> Remedy {
        if self.of_deleted_nodes > 0 && self.of_deleted_nodes as u64 >= self.counts.cooling {
            Remedy::DeleteCarriers
        } else if self.counts.cooling > 0 {
            Remedy::Wait
        } else if self.counts.unavailable > self.counts.held {
            self.remedy_for_occupants
        } else {
            Remedy::AddCidr
        }
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FamilyCounts { blocks, held, draining, cooling, unavailable, .. } = self.counts;
        write!(f, "0 of {} free ({} held", counted(blocks, "block"), shown(held))?;
        if self.of_deleted_nodes > 0 {
            write!(f, ", {} of them by deleted nodes", self.of_deleted_nodes)?;
        }
        if draining > 0 {
            write!(f, ", {} draining", shown(draining))?;
        }
        match self.next_free {
            Some((until, setting)) => {
                write!(f, ", {} cooling: the first is free at {until:.0} by {setting}", shown(cooling))?;
            }
            None if cooling > 0 => {
                write!(f, ", {} cooling", shown(cooling))?;
            }
            None => {}
        }
        if unavailable > 0 {
            write!(f, ", {} unavailable: {}", shown(unavailable), self.occupants.join("; "))?;
        }
        f.write_str(")")
    }
}
