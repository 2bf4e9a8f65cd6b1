//! The addresses of a block that agents give to nobody, in the modes in which they give out a block by themselves.

use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// The first and the last address of a block, if there are others (`docs/cilium.md`, cluster-pool and kubernetes).
pub(super) fn ends(block: Cidr) -> AddressSet {
    let ends = [block.first_address(), block.last_address()];
    ends.into_iter().filter(|_| block.size() > 2).collect()
}
