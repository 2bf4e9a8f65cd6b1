//! Pools against the ranges of Services, load balancers and the nodes themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::catalog::Check;
use super::found::Found;
use crate::model::counted::counted;
use crate::model::kind::Kind;
use crate::model::names::ten_of;
use crate::model::pool::Pool;
use crate::model::surroundings::{OtherRange, RangeOwner};
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::world::World;

const POOL: &str = Kind::Pool.as_str();

pub(super) fn look(world: &World, ranges: &[OtherRange], found: &mut Found) {
    for pool in world.readable_pools() {
        let offered = offered(pool);
        for shared in shared(ranges, &offered) {
            let check = match shared.owner {
                RangeOwner::Services => Check::ServiceRange,
                RangeOwner::LoadBalancers => Check::LoadBalancerRange,
                RangeOwner::Devices => Check::DeviceRange,
            };
            let verb = if shared.names.len() == 1 { "has" } else { "have" };
            let cause = format!("{} {verb} addresses of the pool", shared.holders());
            found.add(check, POOL, pool.name.as_str(), cause, ten_of(&shared.cidrs));
        }
        let of_nodes: BTreeSet<IpAddr> = offered
            .cidrs()
            .flat_map(|range| world.addresses_of_nodes_in(range).map(|(address, _)| address))
            .collect();
        if !of_nodes.is_empty() {
            let cause = "its ranges have addresses of nodes themselves: pods do not get them".to_owned();
            found.add(Check::NodeAddresses, POOL, pool.name.as_str(), cause, ten_of(of_nodes));
        }
    }
}

/// The objects of one kind and owner that have addresses which a pool offers too.
pub(in crate::view) struct Shared<'a> {
    owner: RangeOwner,
    kind: &'static str,
    names: BTreeSet<&'a str>,
    /// The addresses, as CIDRs.
    pub(in crate::view) cidrs: BTreeSet<Cidr>,
}

impl Shared<'_> {
    /// The objects for a person, such as `Service a/web` or `2 Services (a/web, b/web)`.
    pub(in crate::view) fn holders(&self) -> String {
        match self.names.len() {
            1 => format!("{} {}", self.kind, ten_of(&self.names)),
            n => format!("{} ({})", counted(n, self.kind), ten_of(&self.names)),
        }
    }
}

/// The objects that have some of these addresses, those of one kind and owner together.
pub(in crate::view) fn shared<'a>(ranges: &'a [OtherRange], offered: &AddressSet) -> Vec<Shared<'a>> {
    // Where the ranges of Services are known, their single addresses say nothing more.
    let knows_ranges = ranges.iter().any(|range| range.kind == "ServiceCIDR");
    let is_known =
        |range: &OtherRange| knows_ranges && range.owner == RangeOwner::Services && range.kind == "Service";
    let mut all: BTreeMap<(RangeOwner, &'static str), Shared<'a>> = BTreeMap::new();
    for range in ranges.iter().filter(|range| !is_known(range)) {
        let cidrs = range.shared_with(offered);
        if !cidrs.is_empty() {
            let (owner, kind) = (range.owner, range.kind);
            let of_kind = all.entry((owner, kind));
            let none = || Shared { owner, kind, names: BTreeSet::new(), cidrs: BTreeSet::new() };
            let of_kind = of_kind.or_insert_with(none);
            of_kind.names.insert(&range.name);
            of_kind.cidrs.extend(cidrs);
        }
    }
    all.into_values().collect()
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
