//! Whether to create or extend a CiliumPodIPPool, where an administrator leaves that to the controller.
//!
//! One pool writes for all pools that give blocks under a name: the one that nodes ask first. The controller extends
//! only objects that it has created. It never removes or changes a range: agents may be announcing it.

use super::policy::{PodIpPoolOrigin, Policy};
use crate::model::names::PodIpPoolName;
use crate::model::observation::PoolObject;
use crate::model::pod_ip_pool::{PodIpPool, PodIpRange, PodIpRanges};
use crate::model::request::{PodIpPoolWrite, Target};
use crate::view::pod_ip_pools::{in_order, to_be};
use crate::world::World;

/// The writes of this pool to the CiliumPodIPPools of its names.
pub(super) fn writes_due<'a>(
    world: &'a World,
    object: &'a PoolObject,
    policy: Policy,
) -> impl Iterator<Item = PodIpPoolWrite> + 'a {
    let pool = match policy.pod_ip_pools {
        PodIpPoolOrigin::Administrator => None,
        PodIpPoolOrigin::Controller => world.publisher().and(object.pool.as_ref().ok()),
    };
    let names = pool.into_iter().flat_map(|pool| world.names_of_pool(pool));
    names.filter_map(|name| write_due(world, object, name))
}

/// The write of this pool to the CiliumPodIPPool of one name, if one is due.
fn write_due(world: &World, object: &PoolObject, name: &PodIpPoolName) -> Option<PodIpPoolWrite> {
    if in_order(world, name).first()?.name != object.name
        || world.is_in_flight(&Target::PodIpPool(name.clone()))
    {
        return None;
    }
    let found = world.pod_ip_pool(name).ok()?;
    if found.is_some_and(|found| !found.is_ours) || (found.is_none() && has_second_allocator(world, object)) {
        return None;
    }
    let families = to_be(world, name).into_iter().filter_map(|(family, (mask_size, cidrs))| {
        let before = found.and_then(|found| found.families.get(&family));
        let has =
            |cidr: &String| before.is_some_and(|before| before.cidrs.iter().any(|range| range.cidr == *cidr));
        let lacking = cidrs.iter().map(ToString::to_string).filter(|cidr| !has(cidr));
        let lacking: Vec<PodIpRange> = lacking.map(PodIpRange::from).collect();
        let ranges = match before {
            None => PodIpRanges { mask_size, cidrs: lacking },
            Some(before) if !lacking.is_empty() => {
                let cidrs = before.cidrs.iter().cloned().chain(lacking).collect();
                PodIpRanges { mask_size: before.mask_size, cidrs }
            }
            Some(_) => return None,
        };
        Some((family, ranges))
    });
    let write = PodIpPoolWrite {
        pool: object.name.clone(),
        name: PodIpPoolName::clone(name),
        on: found.map(|found: &PodIpPool| (found.uid.clone(), found.revision)),
        families: families.collect(),
    };
    (!write.families.is_empty()).then_some(write)
}

/// Whether another allocator gives addresses to a node of the pool. Where the allocator of cilium-operator runs, it
/// assigns the ranges of every CiliumPodIPPool, so it must not find any.
fn has_second_allocator(world: &World, object: &PoolObject) -> bool {
    let mut carriers = world.nodes_of_pool(&object.name).filter_map(|node| world.carrier(node));
    carriers.any(|carrier| world.reader().second_allocator(carrier).is_some())
}
