//! Why a pool gives a node nothing. This is computed only if reasons are asked for.

use kube_core::SelectorExt;

use super::draft::Draft;
use crate::ledger::free_blocks::FreeBlocks;
use crate::model::names::NodeName;
use crate::model::plan::WhyNot;
use crate::model::pool::{Pool, RangeState};
use crate::net::cidr::Family;
use crate::world::World;

/// Notes each pool that is not asked at all, because it can't be read or does not select the node.
pub(super) fn of_pools_not_asked(world: &World, node: &NodeName, draft: &mut Draft) {
    let Some(node) = world.node(node) else {
        return;
    };
    for object in world.pool_objects() {
        match &object.pool {
            Err(_) => draft.refuse(&object.name, None, || WhyNot::Invalid),
            Ok(pool) => {
                let failed = pool.selector.clone().into_iter().find(|term| !term.matches(&node.labels));
                if let Some(term) = failed {
                    draft.refuse(&object.name, None, || WhyNot::NotSelected(term.to_string()));
                }
            }
        }
    }
}

/// Why a pool has no free block of a family that it declares.
pub(super) fn of_no_free_block(world: &World, pool: &Pool, family: Family) -> WhyNot {
    let ranges = pool.families.get(&family);
    let is_active =
        ranges.is_some_and(|ranges| ranges.cidrs.values().any(|state| *state == RangeState::Active));
    let has_range = ranges.is_some_and(|ranges| !ranges.cidrs.is_empty());
    let has_usable = world.ledger().free_blocks(&pool.name, family).is_some_and(FreeBlocks::has_usable);
    let kept_by = || {
        let overlaps = world.ledger().overlaps(&pool.name).iter();
        overlaps.filter(|overlap| overlap.mine.family() == family).map(|overlap| overlap.older.clone()).next()
    };
    if pool.deleting {
        WhyNot::Deleting
    } else if has_range && !is_active {
        WhyNot::Cordoned
    } else if has_usable {
        WhyNot::Full
    } else {
        kept_by().map_or(WhyNot::Empty, WhyNot::Reserved)
    }
}
