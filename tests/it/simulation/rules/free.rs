//! The blocks that pools give out, and the free ones among them, counted from the objects alone.

use std::net::IpAddr;

use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::{NodeName, PodIpPoolName};
use cilium_node_ipam::model::node::{CiliumNode, Node};
use cilium_node_ipam::model::pool::{Pool, RangeState, Ranges};
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::publisher::carried_by_cilium_node;
use kube_core::SelectorExt;

use super::super::mode::{Mode, POOL, blocks, given_of, offered};
use super::super::store::Store;
use super::Taint;

/// The pools that select a node, in the order in which it asks them.
pub(super) fn pools_of<'a>(store: &'a Store, node: &Node) -> Vec<&'a Pool> {
    let mut pools: Vec<&Pool> = store.pools().filter(|pool| pool.selector.matches(&node.labels)).collect();
    pools.sort_by_key(|pool| (-i64::from(pool.priority), pool.name.clone()));
    pools
}

/// Whether a pool gives out blocks of a range around this address.
pub(in super::super) fn is_given_out(store: &Store, address: IpAddr) -> bool {
    store.pools().any(|pool| {
        pool.families
            .values()
            .flat_map(|ranges| &ranges.cidrs)
            .any(|(range, state)| *state == RangeState::Active && range.contains(address))
    })
}

/// The blocks of every size that a pool gives out, free or not.
pub(in super::super) fn blocks_of(store: &Store, pool: &Pool, family: Family) -> Vec<Cidr> {
    let sizes = pool.families.get(&family).map(Ranges::sizes).unwrap_or_default();
    sizes.into_iter().flat_map(|size| blocks_of_size(store, pool, family, size)).collect()
}

/// The blocks of a prefix length that a pool gives out, free or not.
fn blocks_of_size(store: &Store, pool: &Pool, family: Family, size: u8) -> Vec<Cidr> {
    let Some(ranges) = pool.families.get(&family) else { return Vec::new() };
    if pool.deleting {
        return Vec::new();
    }
    let older: Vec<Cidr> = store
        .pools()
        .filter(|other| (other.created, &other.uid) < (pool.created, &pool.uid))
        .flat_map(|other| other.families.values().flat_map(|ranges| ranges.cidrs.keys().copied()))
        .collect();
    let mut blocks = Vec::new();
    for range in
        ranges.cidrs.iter().filter(|(_, state)| **state == RangeState::Active).map(|(range, _)| range)
    {
        let mut block = Cidr::containing(range.first_address(), size);
        while let Some(candidate) = block.filter(|candidate| range.covers(*candidate)) {
            let offers = candidate.size() > pool.excluded(candidate, &AddressSet::new()).count_in(candidate);
            if offers && older.iter().all(|other| !other.overlaps(candidate)) {
                blocks.push(candidate);
            }
            block = candidate.last().checked_add(1).map(|next| candidate.same_size_at(next));
        }
    }
    blocks
}

/// Whether a CIDR without a claim on a carrier can become a claim: it is a block of a pool, and nothing else has any
/// address of it.
pub(super) fn is_adoptable(store: &Store, seen: &CiliumNode, cidr: Cidr) -> bool {
    let is_of_name = |pool: &Pool| {
        let name = pool.pod_ip_pool.as_ref().map_or(POOL, PodIpPoolName::as_str);
        let mut under = seen.pools.allocated.iter().filter(|entry| entry.cidrs.contains(&cidr));
        store.modes.of_all != Mode::MultiPool || under.all(|entry| entry.pool == name)
    };
    let is_block = |pool: &&Pool| blocks_of(store, pool, cidr.family()).contains(&cidr);
    is_nowhere_else(store, &seen.name, cidr)
        && blocks(seen).iter().all(|other| *other == cidr || !other.overlaps(cidr))
        && !own_addresses(store).intersects(cidr)
        && offered(seen).intersects(cidr)
        && store.pools().filter(is_block).any(is_of_name)
}

/// Whether no claim has an address of a CIDR, and no carrier or CiliumNode of another node.
pub(in super::super) fn is_nowhere_else(store: &Store, node: &NodeName, cidr: Cidr) -> bool {
    store.names(Kind::Claim).len() == store.claims().count()
        && store.claims().all(|claim| !claim.cidr.overlaps(cidr))
        && store
            .cilium_nodes()
            .all(|other| other.name == *node || !carried_by_cilium_node(other).intersects(cidr))
        && store
            .nodes()
            .all(|other| other.name == *node || !store.shown_anywhere(&other.name).intersects(cidr))
        && store
            .carriers()
            .iter()
            .all(|other| other.name == *node || blocks(other).iter().all(|theirs| !theirs.overlaps(cidr)))
}

/// How many addresses each free block of a pool offers a node.
pub(super) fn free_blocks(
    store: &Store,
    taint: &Taint,
    node: &Node,
    pool: &Pool,
    family: Family,
) -> Vec<u128> {
    let own = own_addresses(store);
    let offered = |block: Cidr| block.size() - pool.excluded(block, &own).count_in(block);
    let free = free_of(store, taint, node, pool, family).into_iter().map(offered);
    free.filter(|offered| *offered > 0).collect()
}

/// The same of each free block that has no excluded address, and no address of a node itself.
pub(super) fn free_whole_blocks(
    store: &Store,
    taint: &Taint,
    node: &Node,
    pool: &Pool,
    family: Family,
) -> Vec<u128> {
    let own = own_addresses(store);
    let is_whole = |block: &Cidr| {
        let excluded = pool.excluded(*block, &own);
        given_of(*block).all(|address| !excluded.contains(address))
    };
    let free = free_of(store, taint, node, pool, family).into_iter().filter(is_whole);
    free.map(|block| given_of(block).count() as u128).collect()
}

/// The addresses of nodes themselves.
fn own_addresses(store: &Store) -> AddressSet {
    let of_nodes = store.nodes().flat_map(|node| node.addresses.iter().map(|address| address.address));
    of_nodes.chain(store.cilium_nodes().flat_map(|seen| seen.addresses.iter().copied())).collect()
}

/// The free blocks of a pool for a node, without those that a tainted node may have.
fn free_of(store: &Store, taint: &Taint, node: &Node, pool: &Pool, family: Family) -> Vec<Cidr> {
    let mut taken: Vec<Cidr> = store.claims().map(|claim| claim.cidr).collect();
    taken.extend(
        store.cilium_nodes().flat_map(|seen| carried_by_cilium_node(seen).cidrs().collect::<Vec<_>>()),
    );
    taken.extend(store.carriers().iter().flat_map(|seen| blocks(seen)));
    taken.extend(store.nodes().flat_map(|node| store.shown_anywhere(&node.name).cidrs().collect::<Vec<_>>()));
    let is_free = |block: &Cidr| !taint.reaches(*block) && taken.iter().all(|other| !other.overlaps(*block));
    let Some((size, _)) = pool.size_for(node, family) else { return Vec::new() };
    blocks_of_size(store, pool, family, size).into_iter().filter(is_free).collect()
}
