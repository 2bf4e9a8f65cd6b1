//! The mode of Cilium that a cluster runs, and what a CiliumNode shows in whatever mode.
//!
//! The judges look at all fields at once: in a sound cluster only those of its own mode are used.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cilium_node_ipam::model::node::CiliumNode;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family, address};
use cilium_node_ipam::publisher::Publisher;
use cilium_node_ipam::publisher::crd::Crd;
use cilium_node_ipam::publisher::multi_pool::MultiPool;

/// The Cilium pool of Pods that ask for none.
pub(super) const POOL: &str = "default";
/// The one that each third Pod asks for, and of which nothing is kept in reserve.
pub(super) const OTHER_POOL: &str = "mars";
/// The names under which blocks of ours are carried.
pub(super) const POOLS: [&str; 2] = [POOL, OTHER_POOL];

/// The mode of Cilium that a cluster runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Crd,
    MultiPool,
}

impl Mode {
    /// How blocks are carried to agents that run these families.
    pub(super) fn publisher(self, families: &BTreeSet<Family>) -> Publisher {
        let families = families.clone();
        match self {
            Self::Crd => Publisher::Crd(Crd { families, infrastructure: vec!["router", "health"] }),
            Self::MultiPool => Publisher::MultiPool(MultiPool { families, default_pool: POOL.into() }),
        }
    }
}

/// The blocks that a CiliumNode lists.
pub(super) fn blocks(seen: &CiliumNode) -> Vec<Cidr> {
    let allocated = seen.pools.allocated.iter().flat_map(|entry| &entry.cidrs);
    seen.crd.pod_cidrs.iter().chain(allocated).copied().collect()
}

/// The addresses that its agent may give to pods.
pub(super) fn offered(seen: &CiliumNode) -> AddressSet {
    let mut offered = seen.crd.pool.clone();
    let allocated = seen.pools.allocated.iter().flat_map(|entry| &entry.cidrs);
    offered.extend_with(&allocated.flat_map(|cidr| given_of(*cidr)).collect());
    offered
}

/// The addresses of a CIDR that an agent in multi-pool mode gives to pods.
pub(super) fn given_of(cidr: Cidr) -> impl Iterator<Item = IpAddr> {
    let ends = u128::from(cidr.size() > 2);
    (cidr.first() + ends..=cidr.last() - ends).map(address)
}
