//! The effects of another block size on a pool: the blocks that keep their size, and the room for blocks of the new one.

use super::change::Change;
use crate::model::counted::counted;
use crate::model::pool::{Pool, Ranges};
use crate::net::cidr::Family;
use crate::view::tally;
use crate::world::World;

/// A sentence for each family of each pool whose sizes these changes alter. `after` is the world with the changes.
pub(super) fn effects(changes: &[Change], before: &World, after: &World) -> Vec<String> {
    let pools = changes.iter().filter_map(|change| match change {
        Change::Pool(pool) => Some((before.pool(&pool.name)?, after.pool(&pool.name)?)),
        _ => None,
    });
    pools
        .flat_map(|(old, new)| {
            new.families.keys().filter_map(|family| effect(*family, (before, old), (after, new)))
        })
        .collect()
}

/// Whether the same nodes get blocks of the same sizes.
fn has_same_sizes(a: &Ranges, b: &Ranges) -> bool {
    (a.block_prefix, &a.sized, a.by_max_pods) == (b.block_prefix, &b.sized, b.by_max_pods)
}

fn effect(family: Family, (before, old): (&World, &Pool), (after, new): (&World, &Pool)) -> Option<String> {
    let (before_change, ranges) = (old.families.get(&family)?, new.families.get(&family)?);
    if has_same_sizes(before_change, ranges) {
        return None;
    }
    let (tally, prefix) = (tally::of(after, &new.name), new.block_prefix(family)?);
    let of_sizes = tally.sizes.get(&family)?;
    let kept = of_sizes.counts.iter().filter(|(size, counts)| **size != prefix && counts.on_nodes > 0);
    let kept: Vec<String> =
        kept.map(|(size, counts)| format!("{} of /{size}", counted(counts.on_nodes, "block"))).collect();
    let kept = if kept.is_empty() { String::new() } else { format!("nodes keep {}; ", kept.join(" and ")) };
    let free = |world: &World, pool: &Pool| {
        let prefix = pool.block_prefix(family)?;
        let free = world.ledger().free_blocks(&pool.name, family, prefix)?;
        Some(free.free_count().saturating_mul(family.size_of(prefix)))
    };
    let lost = free(before, old)?.saturating_sub(free(after, new)?);
    let counts = tally.families.get(&family)?;
    Some(format!(
        "{family} of pool {}: {kept}{} of /{prefix}, for {} that join; {} in no such block",
        new.name,
        counted(counts.free, "free block"),
        counted(counts.headroom.nodes, "node"),
        if lost == 1 { "1 free address is".to_owned() } else { format!("{lost} free addresses are") }
    ))
}
