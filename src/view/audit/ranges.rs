//! Pools against the ranges of Services, load balancers and the nodes themselves.

use super::catalog::Check;
use super::found::Found;
use crate::model::kind::Kind;
use crate::model::names::ten_of;
use crate::model::pool::Pool;
use crate::model::surroundings::{OtherRange, RangeOwner};
use crate::net::addresses::AddressSet;
use crate::world::World;

const POOL: &str = Kind::Pool.as_str();

pub(super) fn look(world: &World, ranges: &[OtherRange], found: &mut Found) {
    // Where the ranges of Services are known, their single addresses say nothing more.
    let knows_ranges = ranges.iter().any(|range| range.kind == "ServiceCIDR");
    for pool in world.readable_pools() {
        let offered = offered(pool);
        for range in ranges.iter().filter(|range| !knows_ranges || range.kind != "Service") {
            let shared = range.shared_with(&offered);
            if !shared.is_empty() {
                let check = match range.owner {
                    RangeOwner::Services => Check::ServiceRange,
                    RangeOwner::LoadBalancers => Check::LoadBalancerRange,
                };
                let cause = if range.kind == "Service" {
                    "Services have addresses of the pool".to_owned()
                } else {
                    format!("{} {} has addresses of the pool", range.kind, range.name)
                };
                found.add(check, POOL, pool.name.as_str(), cause, ten_of(shared));
            }
        }
        let of_nodes: Vec<_> = offered
            .cidrs()
            .flat_map(|range| world.node_addresses_in(range).iter().collect::<Vec<_>>())
            .collect();
        if !of_nodes.is_empty() {
            let cause = "its ranges have addresses of nodes themselves: pods do not get them".to_owned();
            found.add(Check::NodeAddresses, POOL, pool.name.as_str(), cause, ten_of(of_nodes));
        }
    }
}

/// The addresses that a pool declares and does not exclude.
pub(in crate::view) fn offered(pool: &Pool) -> AddressSet {
    let mut offered = AddressSet::new();
    for ranges in pool.families.values() {
        for cidr in ranges.cidrs.keys() {
            offered.insert_cidr(*cidr);
        }
        for excluded in &ranges.exclude {
            offered.remove_cidr(*excluded);
        }
    }
    offered
}
