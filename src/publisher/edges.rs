//! The addresses of a block that agents can give to pods, in the modes whose agents choose them by themselves.

use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// The first and the last address of a block, if there are others. Agents give them to no pod (`docs/cilium.md`,
/// cluster-pool and kubernetes).
pub(crate) fn edge_addresses(block: Cidr) -> AddressSet {
    let edges = [block.first_address(), block.last_address()];
    edges.into_iter().filter(|_| block.size() > 2).collect()
}

/// How many addresses of a block an agent gives to pods.
pub(super) fn n_assignable(block: Cidr) -> u128 {
    block.size() - edge_addresses(block).len()
}

/// The same number if these addresses are unavailable. A block offers nothing if any other than its first and last
/// address is unavailable.
pub(super) fn n_offered(block: Cidr, excluded: &AddressSet) -> u128 {
    let mut others = excluded.within(block);
    others.remove_all(&edge_addresses(block));
    if others.is_empty() { n_assignable(block) } else { 0 }
}
