//! How many pods a node can ever give addresses to, and whether kubelet allows more.
//!
//! kubelet accepts pods up to `status.allocatable.pods` of its Node, because it does not know addresses. The pods beyond
//! the addresses of the node hang. The bound follows from the sizes of blocks and the limits of pools alone: whether a pool has a
//! free block now is another question. Keeps one invariant: a node never has more addresses for pods than its bound.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::audit::catalog::Check;
use super::headroom::block_of;
use super::tally::readable_carrier;
use crate::model::address_class::AddressClass;
use crate::model::claim::{Claim, ClaimState};
use crate::model::counted::counted;
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PodIpPoolName, PoolName};
use crate::model::pool::{MAX_ADDRESSES_PER_NODE, Pool};
use crate::net::cidr::{Cidr, Family};
use crate::publisher::Publisher;
use crate::world::World;

/// The kind of a problem of nodes on which kubelet allows more pods than they can have addresses for.
pub const MAX_PODS: &str = "MaxPods";

/// The maximum number of addresses that a node can ever have for pods. Of several families it is that with the fewest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bound {
    /// The family.
    pub family: Family,
    /// The number of addresses, without those that the agent takes for itself.
    pub n_addresses: u128,
    /// The rule behind the bound.
    pub limit: Limit,
}

/// The rule behind a bound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// The node has one block for its life.
    OneBlock,
    /// `perNode` of its first pool.
    PerNode(PoolName),
    /// No pool gives it another block.
    NoPool,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneBlock => f.write_str("it keeps one block for its life"),
            Self::PerNode(pool) => write!(f, "perNode of pool {pool} does not allow more"),
            Self::NoPool => f.write_str("no pool gives it another block"),
        }
    }
}

/// A node on which kubelet allows more pods than it can ever have addresses for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Excess {
    /// The number of pods that kubelet allows.
    pub max_pods: u32,
    /// The number of pods that can have an address.
    pub bound: Bound,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_pods, bound: Bound { family, n_addresses, limit } } = self;
        let addresses = counted(*n_addresses, &format!("{family} address"));
        let pods = counted(*max_pods, "pod");
        write!(f, "kubelet allows {pods}, and the node can have at most {addresses} for pods: {limit}")
    }
}

impl Excess {
    /// The remedy for an administrator.
    #[must_use]
    pub const fn remedy() -> &'static str {
        Check::MaxPods.remedy()
    }
}

/// The excess of a node; `None` if each pod can have an address, or if one of the two numbers is not known.
#[must_use]
pub fn excess(world: &World, node: &NodeName) -> Option<Excess> {
    let max_pods = world.node(node)?.max_pods?;
    let bound = bound(world, node)?;
    (u128::from(max_pods) > bound.n_addresses).then_some(Excess { max_pods, bound })
}

/// The nodes with an excess, those with the same one together. Costs a pass over the nodes.
#[must_use]
pub fn by_excess(world: &World) -> BTreeMap<Excess, Vec<&NodeName>> {
    let mut found: BTreeMap<Excess, Vec<&NodeName>> = BTreeMap::new();
    for node in world.nodes() {
        if let Some(excess) = excess(world, &node.name) {
            found.entry(excess).or_default().push(&node.name);
        }
    }
    found
}

/// The bound of a node. `None` if it gets no blocks, if it has addresses of another writer, or if its objects can't be
/// read.
#[must_use]
pub fn bound(world: &World, name: &NodeName) -> Option<Bound> {
    let bounds = bounds(world, name)?.into_iter();
    let bounds = bounds.map(|(family, (n_addresses, limit))| Bound { family, n_addresses, limit });
    bounds.min_by_key(|bound| bound.n_addresses)
}

/// How many pods some nodes can run, by the addresses that they have and can get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodCapacity {
    /// The number of these nodes that have addresses.
    pub n_nodes: usize,
    /// The number of pods that have an address in the blocks that these nodes have.
    pub now: u128,
    /// The maximum number of pods after these nodes have got all blocks that their limits and their pools allow. Never
    /// less than `now`.
    pub most: u128,
    /// The number of pods that kubelet allows on each other node of the same first pool, if all of them have the same
    /// one. Then no node counts for more.
    pub max_pods: Option<u32>,
}

/// The capacity of these nodes. `None` if none of them has addresses.
#[must_use]
pub fn capacity(world: &World, nodes: &[&NodeName]) -> Option<PodCapacity> {
    let first = nodes.iter().find_map(|node| world.pools_of(node).next())?;
    let others = world.nodes_of_pool(&first.name).filter(|node| !nodes.contains(node));
    let allowed: BTreeSet<u32> =
        others.filter_map(|node| world.node(node).and_then(|node| node.max_pods)).collect();
    let max_pods = allowed.first().copied().filter(|_| allowed.len() == 1);
    let capped = |n_addresses: u128| max_pods.map_or(n_addresses, |most| n_addresses.min(most.into()));
    let (mut n_nodes, mut now, mut most) = (0, 0u128, 0u128);
    let mut free: BTreeMap<Family, u128> = BTreeMap::new();
    for node in nodes {
        let Some(bounds) = bounds(world, node) else { continue };
        let publisher = world.reader_of(node);
        let own = publisher.n_own_addresses();
        let held = |family: &Family| {
            let claims = world.claims_of(node).map(|known| &known.claim);
            let of_family = claims.filter(|claim| is_held(claim) && claim.cidr.family() == *family);
            let n_held = of_family
                .map(|claim| publisher.n_offered(claim.cidr, &claim.excluded))
                .fold(0, u128::saturating_add);
            n_held.saturating_sub(own)
        };
        let Some(of_node) = bounds.keys().map(held).min().filter(|n_held| *n_held > 0) else { continue };
        n_nodes += 1;
        now = now.saturating_add(capped(of_node));
        let bound = bounds.values().map(|(n_addresses, _)| *n_addresses).min().unwrap_or_default();
        most = most.saturating_add(capped(bound));
        if free.is_empty() && !publisher.traits().gives_one_block {
            free.extend(bounds.keys().map(|family| (*family, free_addresses(world, node, *family))));
        }
    }
    let free = free.values().min().copied().unwrap_or_default();
    let most = most.min(now.saturating_add(free)).max(now);
    (n_nodes > 0).then_some(PodCapacity { n_nodes, now, most, max_pods })
}

/// The addresses of the free blocks of all pools of a node.
fn free_addresses(world: &World, node: &NodeName, family: Family) -> u128 {
    let publisher = world.reader_of(node);
    let of_pool = |pool: &Pool| {
        let size = world.size_for(node, pool, family)?;
        let free = world.ledger().free_blocks(&pool.name, family, size)?.free_count();
        Some(free.saturating_mul(block_of(publisher, pool, family, size)?))
    };
    world.pools_of(node).filter_map(of_pool).fold(0, u128::saturating_add)
}

/// The maximum number of addresses for pods in each family that the agent of a node runs, and the rule behind it.
fn bounds(world: &World, name: &NodeName) -> Option<BTreeMap<Family, (u128, Limit)>> {
    let (node, publisher) = (world.node(name)?, world.publisher_of(name)?);
    let gets_nothing = node.deleting || !node.runs_linux() || world.set_aside(name).is_some();
    if gets_nothing || world.is_unreadable(Kind::Node, name.as_str()) || has_blocks_of_others(world, name) {
        return None;
    }
    let of_family = |family: &Family| {
        let mut sum: Option<(u128, Limit)> = None;
        for class in classes(world, name, publisher, *family) {
            let Some((n_addresses, limit)) = of_class(world, name, publisher, &class) else { continue };
            let n_before = sum.map_or(0, |(n_before, _)| n_before);
            sum = Some((n_before.saturating_add(n_addresses), limit));
        }
        let (n_addresses, limit) = sum?;
        Some((*family, (n_addresses.saturating_sub(publisher.n_own_addresses()), limit)))
    };
    let bounds: Option<BTreeMap<_, _>> = publisher.families().iter().map(of_family).collect();
    bounds.filter(|bounds| !bounds.is_empty())
}

/// Whether the carrier has blocks without a claim of the node, or claims that can't be read.
fn has_blocks_of_others(world: &World, name: &NodeName) -> bool {
    let is_claimed = |block: &Cidr| world.claims_of(name).any(|known| known.claim.cidr == *block);
    let carrier = world.carrier(name);
    let listed = carrier.map(|carrier| world.reader_of(name).blocks(carrier)).unwrap_or_default();
    !listed.iter().all(is_claimed)
        || world.unreadable_claims_of(name).next().is_some()
        || (carrier.is_some() && readable_carrier(world, name).is_none())
}

/// The classes of a node in one family: a class for each Pod IP pool of its pools and claims.
fn classes(world: &World, name: &NodeName, publisher: &Publisher, family: Family) -> Vec<AddressClass> {
    let names: BTreeSet<Option<PodIpPoolName>> = if publisher.traits().has_pod_ip_pools {
        let of_pools = world.pools_of(name).map(|pool| publisher.pod_ip_pool_of(pool).cloned());
        of_pools.chain(world.claims_of(name).map(|known| name_of(world, &known.claim))).collect()
    } else {
        [None].into()
    };
    names.into_iter().map(|pod_ip_pool| AddressClass { family, pod_ip_pool }).collect()
}

/// The Pod IP pool under which a claim is published.
fn name_of(world: &World, claim: &Claim) -> Option<PodIpPoolName> {
    match world.carrier(&claim.node) {
        Some(carrier) => world.reader_of(&claim.node).pool_name_on(carrier, claim),
        None => claim.pod_ip_pool.clone(),
    }
}

fn is_held(claim: &Claim) -> bool {
    claim.state == ClaimState::Held
}

/// The maximum number of addresses of a class, with those that the agent takes for itself. `None` if the node has no
/// block of it, and no pool gives it one.
fn of_class(
    world: &World,
    name: &NodeName,
    publisher: &Publisher,
    class: &AddressClass,
) -> Option<(u128, Limit)> {
    let is_of_class = |claim: &&Claim| {
        is_held(claim)
            && claim.cidr.family() == class.family
            && (!publisher.traits().has_pod_ip_pools || name_of(world, claim) == class.pod_ip_pool)
    };
    let held: Vec<u128> = world
        .claims_of(name)
        .map(|known| &known.claim)
        .filter(is_of_class)
        .map(|claim| publisher.n_offered(claim.cidr, &claim.excluded))
        .collect();
    let giving = || world.pools_for(name, class).filter(|pool| world.gives_out_of(pool, class.family));
    let of_pool = |pool: &Pool| {
        let size = world.size_for(name, pool, class.family)?;
        block_of(publisher, pool, class.family, size)
    };
    let blocks: BTreeSet<u128> = giving().filter_map(of_pool).collect();
    if publisher.traits().gives_one_block {
        // A node that has several claims of a family gets one of them.
        let n_addresses = held.iter().max().or(blocks.last())?;
        return Some((*n_addresses, Limit::OneBlock));
    }
    let capacity = held.iter().copied().fold(0, u128::saturating_add);
    let (Some(first), Some(largest)) = (giving().next(), blocks.last()) else {
        return (!held.is_empty()).then_some((capacity, Limit::NoPool));
    };
    let most = u128::from(first.per_node.max_addresses.min(MAX_ADDRESSES_PER_NODE));
    let room = most.saturating_sub(capacity);
    let n_more = (first.per_node.max_blocks as usize).saturating_sub(held.len()) as u128;
    let more = if blocks.len() == 1 {
        n_more.min(room / largest).saturating_mul(*largest)
    } else {
        // Which pool gives the next block depends on the free blocks of each.
        n_more.saturating_mul(*largest).min(room)
    };
    Some((capacity.saturating_add(more), Limit::PerNode(first.name.clone())))
}
