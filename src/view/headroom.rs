//! How many nodes and pods the free blocks of a pool can serve, for the limits of autoscalers.
//!
//! It follows from numbers of blocks and the fields of the pool. Keeps one invariant: a pod that starts on a node changes
//! no number here.

use crate::model::pool::Pool;
use crate::model::status::{Headroom, capped_count};
use crate::net::cidr::{Cidr, Family};
use crate::publisher::Publisher;

/// The nodes and pods that a number of free blocks, with this number of addresses, can serve.
pub(super) fn headroom(
    reader: &Publisher,
    pool: &Pool,
    family: Family,
    free: u128,
    addresses: u128,
) -> Headroom {
    let block = pool.block_prefix(family).and_then(|prefix| block_of(reader, pool, family, prefix));
    let per_node = block.map_or(1, |n_offered| {
        let limits = pool.per_node;
        let most = u128::from(limits.max_blocks).min(u128::from(limits.max_addresses) / n_offered);
        reader.n_first_blocks(pool, n_offered).min(most).max(1)
    });
    let n_nodes = free / per_node;
    let n_pods = addresses.saturating_sub(n_nodes.saturating_mul(reader.n_own_addresses()));
    Headroom { nodes: capped_count(n_nodes), pods: capped_count(n_pods) }
}

/// The number of addresses that a block of a pool of this prefix length offers, without exclusions and addresses of nodes
/// in it. `None` if it offers none, or if no node of this publisher gets such a block.
pub(super) fn block_of(publisher: &Publisher, pool: &Pool, family: Family, prefix: u8) -> Option<u128> {
    let ranges = pool.families.get(&family)?;
    if prefix < publisher.widest_block(family) {
        return None;
    }
    let declared = ranges.cidrs.keys().find(|declared| declared.prefix_len() <= prefix)?;
    let block = Cidr::containing(declared.first_address(), prefix)?;
    Some(publisher.n_offered(block, &pool.excluded_edges(block))).filter(|n_offered| *n_offered > 0)
}
