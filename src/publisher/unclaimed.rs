//! The ranges and addresses that an agent shows on a CiliumNode in any mode, against claims.

use std::net::IpAddr;

use crate::model::claim::Claim;
use crate::model::node::CiliumNode;
use crate::net::cidr::Cidr;

/// The addresses that the agent of a CiliumNode has for itself, in any mode.
pub fn own_addresses_on(cilium_node: &CiliumNode) -> impl Iterator<Item = IpAddr> {
    cilium_node.pools.own.iter().map(|(address, _)| address)
}

/// A mark of the use that a CiliumNode shows: another use has another mark. `None` if it shows none.
#[must_use]
pub fn use_mark(cilium_node: &CiliumNode) -> Option<u64> {
    // FNV-1a, with the offset and the prime of its definition: the same in every version of the program.
    let cidrs = cilium_node.crd.used.as_ref()?.cidrs();
    let bytes = cidrs.flat_map(|cidr| format!("{cidr} ").into_bytes());
    Some(
        bytes.fold(0xcbf2_9ce4_8422_2325, |mark, byte| {
            (mark ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }),
    )
}

/// The ranges and addresses that an agent shows on a CiliumNode in any mode, beyond those that these claims offer.
#[must_use]
pub fn unclaimed_on(cilium_node: &CiliumNode, claims: &[&Claim]) -> Vec<Cidr> {
    let listed = cilium_node.crd.pod_cidrs.iter().copied().chain(cilium_node.pools.listed());
    let mut ranges: Vec<Cidr> =
        listed.filter(|cidr| !claims.iter().any(|claim| claim.cidr.covers(*cidr))).collect();
    for address in own_addresses_on(cilium_node) {
        let is_offered = claims.iter().any(|claim| claim.offers(address));
        if !is_offered && !ranges.iter().any(|range| range.contains(address)) {
            ranges.push(Cidr::single(address));
        }
    }
    ranges
}
