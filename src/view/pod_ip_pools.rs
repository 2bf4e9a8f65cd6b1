//! Whether the CiliumPodIPPool of a name fits the blocks that pools give under that name, in words for a person: the
//! problem, the consequence for agents, and the remedy.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::address_class::AddressClass;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PodIpPoolName};
use crate::model::pod_ip_pool::Misfit;
use crate::model::pool::Pool;
use crate::model::status::ConditionReason;
use crate::net::cidr::{Cidr, Family};
use crate::world::World;

/// The pools that give blocks under a name and are not being deleted, in the order in which a node asks them.
#[must_use]
pub fn in_order<'a>(world: &'a World, name: &'a PodIpPoolName) -> Vec<&'a Pool> {
    let mut pools: Vec<&Pool> = world.pools_under(name).filter(|pool| !pool.deleting).collect();
    pools.sort_by_key(|pool| (Reverse(pool.priority), &pool.name));
    pools
}

/// The ranges and block size that the CiliumPodIPPool of a name should have per family, as its pools say. Where they
/// have blocks of several sizes, the size is that of the pool that nodes ask first.
#[must_use]
pub fn to_be(world: &World, name: &PodIpPoolName) -> BTreeMap<Family, (u8, BTreeSet<Cidr>)> {
    let mut families: BTreeMap<Family, (u8, BTreeSet<Cidr>)> = BTreeMap::new();
    for pool in in_order(world, name) {
        for (family, ranges) in &pool.families {
            let (_, cidrs) = families.entry(*family).or_insert((ranges.block_prefix, BTreeSet::new()));
            cidrs.extend(ranges.cidrs.keys().copied());
        }
    }
    // A CiliumPodIPPool needs a CIDR in each family, and a pool may have none.
    families.retain(|_, (_, cidrs)| !cidrs.is_empty());
    families
}

/// How the CiliumPodIPPool of this name does not fit the blocks that the pool gives under it. Only misfits that
/// matter to an agent of the pool's nodes count. Costs a pass over these nodes.
fn misfits(world: &World, pool: &Pool, name: &PodIpPoolName) -> Vec<Misfit> {
    let Ok(object) = world.pod_ip_pool(name) else { return Vec::new() };
    let run = run_by_nodes_of(world, pool);
    let ranges = pool.families.iter().filter(|(family, _)| run.contains(family));
    let sizes = ranges.flat_map(|(family, ranges)| ranges.sizes().into_iter().map(|size| (*family, size)));
    let found: BTreeSet<Misfit> =
        sizes.filter_map(|(family, size)| Misfit::of(object, family, size)).collect();
    let is_minded = |misfit: &Misfit| {
        world.is_of_another_size_of(pool, *misfit)
            || world.is_minded(world.nodes_of_pool(&pool.name), *misfit)
    };
    found.into_iter().filter(is_minded).collect()
}

/// The families that agents run: most of them, and those of the pool's nodes for which a CiliumNodeConfig says
/// otherwise. Costs a pass over these nodes.
fn run_by_nodes_of(world: &World, pool: &Pool) -> BTreeSet<Family> {
    let nodes = world.nodes_of_pool(&pool.name);
    let of_nodes = nodes.flat_map(|node| world.reader_of(node).families());
    of_nodes.chain(world.reader().families()).copied().collect()
}

/// The condition of a pool whose CiliumPodIPPool is missing, does not fit or is unknown.
pub(super) fn unfit(world: &World, pool: &Pool) -> Option<(ConditionReason, String)> {
    let names = world.names_of_pool(pool);
    let name = names.first()?;
    if let Err(why) = world.pod_ip_pool(name) {
        return Some((
            ConditionReason::PodIPPoolUnknown,
            format!("CiliumPodIPPool {name} is unknown: {why}"),
        ));
    }
    let of_name = |name| misfits(world, pool, name).into_iter().map(move |misfit| (name, misfit));
    let misfits: Vec<(&PodIpPoolName, Misfit)> = names.iter().flat_map(|name| of_name(*name)).collect();
    let (_, first) = misfits.iter().min_by_key(|(_, misfit)| *misfit)?;
    let reason = match first {
        Misfit::Missing => ConditionReason::PodIPPoolMissing,
        Misfit::Family(_) => ConditionReason::PodIPPoolLacksFamily,
        Misfit::MaskSize { .. } => ConditionReason::PodIPPoolOtherMaskSize,
    };
    let reported: Vec<String> =
        misfits.iter().map(|(name, misfit)| description(world, pool, name, *misfit)).collect();
    Some((reason, reported.join("; ")))
}

/// That the pool can give blocks of a family to none of these nodes: its CiliumPodIPPool does not fit, and the blocks
/// would harm their agents. Without nodes it is unknown which agents will join.
pub(super) fn keeps_all_blocks(world: &World, pool: &Pool, nodes: &[&NodeName]) -> Option<String> {
    let misfit = pool.families.keys().find_map(|family| {
        let of_node = |node: &&NodeName| {
            let name = world.reader_of(node).pod_ip_pool_of(pool)?.clone();
            let class = AddressClass { family: *family, pod_ip_pool: Some(name.clone()) };
            Some((name, world.misfit_of_new_block(node, &class, pool)?))
        };
        let found: Option<Vec<_>> = nodes.iter().map(of_node).collect();
        found?.into_iter().next()
    });
    misfit.map(|(name, misfit)| {
        format!("CiliumPodIPPool {name} {misfit}: a node that joins gets nothing; see the condition UnfitPodIPPool")
    })
}

/// The findings about all pools.
pub fn findings(world: &World) -> impl Iterator<Item = Finding> {
    world.readable_pools().filter_map(|pool| {
        let (reason, message) = unfit(world, pool)?;
        let finding = || Finding::new(FindingKind::UnfitPodIPPool, Kind::Pool, pool.name.as_str(), message);
        reason.holds().then(finding)
    })
}

fn description(world: &World, pool: &Pool, name: &PodIpPoolName, misfit: Misfit) -> String {
    let should_have = |family: Family| {
        let declared = pool.families.get(&family);
        let cidr = declared.and_then(|ranges| ranges.cidrs.keys().next()).map(ToString::to_string);
        format!(
            "spec.{family}: {{cidrs: [{}], maskSize: {}}}",
            cidr.unwrap_or_else(|| "a CIDR of the pool".to_owned()),
            declared.map(|ranges| ranges.block_prefix).unwrap_or_default()
        )
    };
    let announces = world.reader().traits().announces
        || world.nodes_of_pool(&pool.name).any(|node| world.reader_of(node).traits().announces);
    match misfit {
        Misfit::Missing => {
            let run = run_by_nodes_of(world, pool);
            let families = pool.families.keys().filter(|family| run.contains(family));
            let families: Vec<String> = families.map(|family| should_have(*family)).collect();
            format!(
                "CiliumPodIPPool {name} does not exist; agents of Cilium 1.19 and newer get no blocks until it \
                 exists, because they can't start without it; Cilium's BGP announces no blocks without it; \
                 create it with {}, or set --create-podippools",
                families.join(" and ")
            )
        }
        Misfit::Family(family) => format!(
            "CiliumPodIPPool {name} {misfit}, and this pool gives {family} blocks; an agent with Cilium's BGP \
             crashes if an advertisement selects the object and its node has such a block; {}; add {}",
            if announces {
                "nodes get no more of them until then"
            } else {
                "BGP is off (enable-bgp-control-plane in cilium-config), so nodes get them"
            },
            should_have(family)
        ),
        Misfit::MaskSize { family, found, .. } if world.is_of_another_size_of(pool, misfit) => format!(
            "CiliumPodIPPool {name} {misfit}; maskSize is immutable, so nodes get no blocks of another size of this \
             pool; set spec.{family}.blockSize back to {found}, or create a pool with another podIPPool for the other \
             size"
        ),
        Misfit::MaskSize { family, of_blocks, .. } => format!(
            "CiliumPodIPPool {name} {misfit}: agents use these blocks, but Cilium's BGP does not announce \
             them; maskSize is immutable in Cilium 1.20; recreate the object with spec.{family}.maskSize: \
             {of_blocks}, or create pools with another podIPPool"
        ),
    }
}
