//! What agents give out of a block in the modes in which they do so by themselves.

use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// The first and the last address of a block, if there are others: agents give them to nobody (`docs/cilium.md`,
/// cluster-pool and kubernetes).
pub(super) fn ends(block: Cidr) -> AddressSet {
    let ends = [block.first_address(), block.last_address()];
    ends.into_iter().filter(|_| block.size() > 2).collect()
}

/// How many addresses of a block an agent gives to pods.
pub(super) fn n_given_of(block: Cidr) -> u128 {
    block.size() - ends(block).len()
}

/// The same, where these are withheld: a block of which any other than its ends is withheld is none for an agent.
pub(super) fn n_offered(block: Cidr, withheld: &AddressSet) -> u128 {
    let mut others = withheld.within(block);
    others.remove_all(&ends(block));
    if others.is_empty() { n_given_of(block) } else { 0 }
}
