//! Counts per pool: blocks and addresses by their state, and nodes by how they are served.
//!
//! The status of a pool and the metrics show the same counts. One invariant holds for any objects: a part is never
//! more than its whole. If an object says more, either the whole is raised or the part is capped. An object that can't
//! be read any more does not count, although the world keeps its last readable content: it may say something else now.

use std::collections::BTreeMap;

use super::free;
use super::headroom::headroom;
use crate::ledger::block_numbers::{BlockNumbers, BlockRun};
use crate::ledger::free_blocks::FreeBlocks;
use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName};
use crate::model::pool::{Pool, RangeState, Ranges};
use crate::model::stable_names;
use crate::model::status::{
    BlockSizes, CidrCounts, FamilyCounts, Need, NodeCounts, SizeCounts, capped_count,
};
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};
use crate::world::{NodeProgress, World};

/// The counts of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// The nodes that it selects.
    pub nodes: NodeCounts,
    /// Its blocks and addresses, by family.
    pub families: BTreeMap<Family, FamilyCounts>,
    /// The blocks of each of its CIDRs.
    pub cidrs: BTreeMap<Cidr, CidrCounts>,
    /// The sizes of its blocks, by family.
    pub sizes: BTreeMap<Family, BlockSizes>,
}

stable_names! {
    /// How a node is served: each node counts once.
    pub enum NodeState {
        /// No pool selects it.
        Unselected => "unselected",
        /// No block of ours is published, and it asks for one that none of its pools has.
        Waiting => "waiting",
        /// Its CiliumNode has a published block of ours.
        Served => "served",
        /// A pool selects it, but its CiliumNode has no published block of ours yet, or does not exist.
        Pending => "pending",
        /// It does not run Linux, and gets nothing.
        NotLinux => "not_linux",
    }
}

/// How a node is served.
#[must_use]
pub fn node_state(world: &World, node: &NodeName) -> NodeState {
    if world.node(node).is_some_and(|node| !node.runs_linux()) && !is_served(world, node) {
        NodeState::NotLinux
    } else if world.pools_of(node).next().is_none() || world.is_unreadable(Kind::Node, node.as_str()) {
        NodeState::Unselected
    } else if is_served(world, node) {
        NodeState::Served
    } else if lacks_block(world, node) {
        NodeState::Waiting
    } else {
        NodeState::Pending
    }
}

/// Whether the node asks for a block that none of its pools has. If a claim of the node can't be read, its needs follow
/// from the claim's last readable version, which not every process has seen.
fn lacks_block(world: &World, node: &NodeName) -> bool {
    world.serving(node).is_some_and(NodeProgress::waits_for_capacity)
        && world.unreadable_claims_of(node).next().is_none()
}

stable_names! {
    /// Why a node that a pool selects has no address at all.
    pub enum Lack {
        /// It has no CiliumNode yet: its agent has not started.
        NoCarrier => "no_carrier",
        /// No pool of it has a free block.
        Waiting => "waiting",
        /// Its agent has not asked yet, the first grant is under way, or it is blocked.
        Pending => "pending",
    }
}

/// Why a node has no address for pods; `None` if it has some, no pool selects it, or it can't be read. A block of
/// another allocator counts as an address.
pub(super) fn lack(world: &World, node: &NodeName, state: NodeState) -> Option<Lack> {
    if matches!(state, NodeState::Unselected | NodeState::NotLinux | NodeState::Served) {
        return None;
    }
    let Some(carrier) = world.carrier(node) else {
        let is_unreadable = world.is_unreadable(Kind::CiliumNode, node.as_str());
        return (!is_unreadable).then_some(Lack::NoCarrier);
    };
    if world.is_unreadable(carrier.kind(), node.as_str()) || !world.reader_of(node).blocks(carrier).is_empty()
    {
        return None;
    }
    Some(if state == NodeState::Waiting { Lack::Waiting } else { Lack::Pending })
}

/// The state of a node for one pool that selects it: one that waits for blocks under other names waits for none of this
/// pool.
pub(super) fn state_for(world: &World, node: &NodeName, state: NodeState, pool: &PoolName) -> NodeState {
    if state == NodeState::Waiting && !asks_for(world, node, pool) { NodeState::Pending } else { state }
}

/// The need of a node that waits for a block of this pool; `None` if it waits for none of it.
pub(super) fn need(world: &World, node: &NodeName, pool: &PoolName) -> Option<Need> {
    need_in(world, node, state_for(world, node, node_state(world, node), pool), pool)
}

/// The same of a node in this state for the pool.
fn need_in(world: &World, node: &NodeName, state: NodeState, pool: &PoolName) -> Option<Need> {
    match state {
        NodeState::Waiting => Some(Need::First),
        NodeState::Served if lacks_block(world, node) && asks_for(world, node, pool) => Some(Need::Growth),
        NodeState::Served | NodeState::Unselected | NodeState::Pending | NodeState::NotLinux => None,
    }
}

/// Whether the node asks for a block of this pool: one that waits for blocks under other names asks for none of it.
fn asks_for(world: &World, node: &NodeName, pool: &PoolName) -> bool {
    let name = world.pool(pool).and_then(|pool| world.reader_of(node).pod_ip_pool_of(pool));
    let mut waits_for = world.serving(node).into_iter().flat_map(NodeProgress::waits_for);
    waits_for.any(|class| class.pod_ip_pool.as_ref() == name)
}

/// The carrier of a node, if it can be read.
pub(super) fn readable_carrier<'a>(world: &'a World, node: &NodeName) -> Option<Carrier<'a>> {
    world.carrier(node).filter(|of| !world.is_unreadable(of.kind(), node.as_str()))
}

/// Whether the CiliumNode has a published block of ours, by the objects that can be read.
pub(super) fn is_served(world: &World, node: &NodeName) -> bool {
    let Some(carrier) = readable_carrier(world, node) else { return false };
    let held = world.claims_of(node).map(|known| &known.claim).filter(|claim| claim.is_published_state());
    held.filter(|claim| !world.is_unreadable_claim(claim.cidr))
        .any(|claim| world.reader_of(node).lists(carrier, claim.cidr))
}

/// How every node is served. Costs a pass over the nodes.
#[must_use]
pub fn node_states(world: &World) -> Vec<(&NodeName, NodeState)> {
    world.nodes().map(|node| (&node.name, node_state(world, &node.name))).collect()
}

/// The counts of one pool. Costs a pass over the nodes that it selects and its claims.
#[must_use]
pub fn of(world: &World, name: &PoolName) -> Tally {
    let mut tally = Tally::start(world, name);
    for node in world.nodes_of_pool(name) {
        tally.add_node(world, node, node_state(world, node), name);
    }
    for known in world.claims_of_pool(name) {
        tally.add_claim(world, &known.claim);
    }
    tally.finish(world, name);
    tally
}

/// The counts of every pool, in one pass over the nodes and the claims. `states` are those of all nodes.
#[must_use]
pub fn of_all(world: &World, states: &[(&NodeName, NodeState)]) -> BTreeMap<PoolName, Tally> {
    let mut tallies: BTreeMap<PoolName, Tally> =
        world.pool_objects().map(|object| (object.name.clone(), Tally::start(world, &object.name))).collect();
    for (node, state) in states {
        for pool in world.pools_of(node) {
            if let Some(tally) = tallies.get_mut(&pool.name) {
                tally.add_node(world, node, *state, &pool.name);
            }
        }
    }
    for known in world.claims() {
        if let Some(tally) = tallies.get_mut(&known.claim.pool) {
            tally.add_claim(world, &known.claim);
        }
    }
    for (name, tally) in &mut tallies {
        tally.finish(world, name);
    }
    tallies
}

impl Tally {
    /// The families alone; nodes and claims are added one by one.
    fn start(world: &World, name: &PoolName) -> Self {
        let mut tally = Self::default();
        let used = world.reader().traits().shows_use.then_some(0);
        let Some(pool) = world.pool(name) else { return tally };
        for (family, ranges) in &pool.families {
            tally.families.insert(*family, FamilyCounts { used, ..FamilyCounts::default() });
            tally.cidrs.extend(ranges.cidrs.keys().map(|cidr| (*cidr, CidrCounts::default())));
            let sizes = world.sizes_of(pool, *family).into_iter();
            let counts = sizes.map(|prefix| (prefix, SizeCounts::default())).collect();
            tally.sizes.insert(*family, BlockSizes { counts, largest_free: None });
        }
        tally
    }

    fn add_node(&mut self, world: &World, node: &NodeName, state: NodeState, pool: &PoolName) {
        let state = state_for(world, node, state, pool);
        match state {
            NodeState::Unselected | NodeState::NotLinux => return,
            NodeState::Served => {
                self.nodes.served += 1;
                self.nodes.want_growth += u64::from(need_in(world, node, state, pool) == Some(Need::Growth));
            }
            NodeState::Waiting => self.nodes.waiting += 1,
            NodeState::Pending => {}
        }
        self.nodes.selected += 1;
    }

    fn add_claim(&mut self, world: &World, claim: &Claim) {
        let Some(counts) = self.families.get_mut(&claim.cidr.family()) else { return };
        if world.is_unreadable_claim(claim.cidr) {
            return;
        }
        // CIDRs of a pool do not overlap. So the CIDR around the block is the last one whose first address is not
        // behind the block.
        // A claim outside of the ranges adds no size: a CIDR of that size may be of another allocator.
        let is_in_range = self.cidrs.keys().any(|range| range.covers(claim.cidr));
        let around = self.cidrs.range_mut(..=claim.cidr).next_back();
        let mut in_cidr = around.filter(|(cidr, _)| cidr.covers(claim.cidr)).map(|(_, counts)| counts);
        let mut add = |of_family: &mut u64, of_cidr: fn(&mut CidrCounts) -> &mut u64| {
            *of_family += 1;
            if let Some(counts) = &mut in_cidr {
                *of_cidr(counts) += 1;
            }
        };
        if let Some(sizes) = self.sizes.get_mut(&claim.cidr.family()).filter(|_| is_in_range) {
            // A status of an earlier version has no sizes.
            let of_size = sizes.counts.entry(claim.cidr.prefix_len()).or_default();
            of_size.on_nodes += u64::from(!matches!(claim.state, ClaimState::Cooling(_)));
        }
        match claim.state {
            ClaimState::Held => add(&mut counts.held, |counts| &mut counts.held),
            ClaimState::Draining(_) | ClaimState::Releasing(_) => {
                add(&mut counts.draining, |counts| &mut counts.draining);
            }
            ClaimState::Cooling(_) => add(&mut counts.cooling, |counts| &mut counts.cooling),
        }
        let Some(carrier) = readable_carrier(world, &claim.node) else { return };
        let published = capped_count(world.reader_of(&claim.node).n_published_in(carrier, claim.cidr));
        // A node may have more addresses than a count can say, and many nodes more than the type has.
        counts.published = capped_count(u128::from(counts.published) + u128::from(published));
        if let Some(counted) = &mut counts.used {
            let used = capped_count(world.reader_of(&claim.node).n_used_in(carrier, claim.cidr));
            // An address that is no longer published may still be in use.
            *counted += used.min(published);
        }
    }

    /// Computes the counts that depend on all claims of the pool.
    fn finish(&mut self, world: &World, name: &PoolName) {
        let Some(pool) = world.pool(name) else { return };
        for (family, counts) in &mut self.families {
            // Counted whole: a huge pool has more blocks than a status can say.
            let (mut blocks, mut free, mut unpublished) = (0, 0, 0);
            let prefix = pool.block_prefix(*family).unwrap_or_default();
            if let Some(free_blocks) = free::free_blocks(world, pool, *family, prefix) {
                let useless = free::useless_blocks(world, pool, *family, &free_blocks);
                let mixed = Mixed::of(world, name, *family, &free_blocks);
                free = free_blocks.free_count().saturating_sub(useless.len() as u128);
                blocks = match &mixed {
                    None => free_blocks.total_count(),
                    Some(mixed) => mixed.total(None),
                };
                for (cidr, state) in pool.families.get(family).into_iter().flat_map(|ranges| &ranges.cidrs) {
                    if let Some(counts) = self.cidrs.get_mut(cidr) {
                        let gives_out = *state == RangeState::Active && !pool.deleting;
                        finish_cidr(counts, *cidr, gives_out, &free_blocks, &useless, mixed.as_ref());
                    }
                }
                let of_block = |block, excluded: &AddressSet| world.reader().n_offered(block, excluded);
                unpublished =
                    free_blocks.offered(pool, *family, &node_addresses(world, pool, *family), of_block);
            }
            let claimed = u128::from(counts.held + counts.draining + counts.cooling);
            // A block that can no longer be cut from the pool may still be claimed.
            let taken_or_free = claimed.saturating_add(free);
            blocks = blocks.max(taken_or_free);
            counts.blocks = capped_count(blocks);
            counts.free = capped_count(free);
            counts.unavailable = capped_count(blocks - taken_or_free);
            let unused = counts.used.map_or(0, |used| counts.published.saturating_sub(used));
            counts.addresses_free = capped_count(unpublished.saturating_add(u128::from(unused)));
            counts.headroom = headroom(world.reader(), pool, *family, free, unpublished);
            if let Some(sizes) = self.sizes.get_mut(family) {
                finish_sizes(world, pool, *family, sizes);
            }
        }
    }
}

/// The free blocks of each size, and the largest free CIDR.
fn finish_sizes(world: &World, pool: &Pool, family: Family, sizes: &mut BlockSizes) {
    let given = pool.families.get(&family).map(Ranges::sizes).unwrap_or_default();
    for (prefix, counts) in sizes.counts.iter_mut().filter(|(prefix, _)| given.contains(prefix)) {
        let free = free::free_blocks(world, pool, family, *prefix).map_or(0, |free| {
            let useless = free::useless_blocks(world, pool, family, &free);
            free.free_count().saturating_sub(useless.len() as u128)
        });
        counts.free = capped_count(free);
    }
    let narrowest = given.last().and_then(|prefix| free::free_blocks(world, pool, family, *prefix));
    sizes.largest_free = narrowest
        .and_then(|free| free::ranges(pool, family).filter_map(|range| free.largest_free_in(range)).min());
}

/// The claims of a pool that has blocks of several sizes, as the blocks of its usual size that they take.
struct Mixed<'a> {
    free_blocks: &'a FreeBlocks,
    claims: Vec<Cidr>,
    taken: BlockNumbers,
}

impl<'a> Mixed<'a> {
    /// `None` if all claims are of the usual size. Costs a pass over the claims of the pool.
    fn of(world: &World, pool: &PoolName, family: Family, free_blocks: &'a FreeBlocks) -> Option<Self> {
        let claims = world.claims_of_pool(pool).map(|known| known.claim.cidr);
        let claims = claims.filter(|cidr| cidr.family() == family && !world.is_unreadable_claim(*cidr));
        let claims: Vec<Cidr> = claims.collect();
        let grid = free_blocks.grid();
        if claims.iter().all(|cidr| cidr.prefix_len() == grid.prefix()) {
            return None;
        }
        let mut taken = BlockNumbers::default();
        for cidr in &claims {
            taken.insert(grid.span(*cidr));
        }
        Some(Self { free_blocks, claims, taken })
    }

    /// The claims, and the blocks of the usual size that no claim takes, of the whole pool or in one of its CIDRs.
    fn total(&self, within: Option<Cidr>) -> u128 {
        let is_in = |cidr: &&Cidr| within.is_none_or(|range| range.covers(**cidr));
        let n_claims = self.claims.iter().filter(is_in).count() as u128;
        let grid = self.free_blocks.grid();
        let whole = within.map(|range| grid.span(range));
        let runs = grid.usable().runs().filter_map(|run| match whole {
            Some(whole) => run.intersection(whole),
            None => Some(run),
        });
        let left = runs.map(|run| self.left_in(run));
        n_claims.saturating_add(left.fold(0, u128::saturating_add))
    }

    /// The claims in a CIDR, and its blocks of the usual size that no claim takes. It may be closed.
    fn cut(&self, within: Cidr) -> u128 {
        let n_claims = self.claims.iter().filter(|claim| within.covers(**claim)).count() as u128;
        n_claims.saturating_add(self.left_in(self.free_blocks.grid().span(within)))
    }

    fn left_in(&self, run: BlockRun) -> u128 {
        let taken = self.taken.runs_within(run).map(BlockRun::count).fold(0, u128::saturating_add);
        run.count().saturating_sub(taken)
    }
}

/// Computes the counts that depend on all claims in one CIDR of a pool. A closed CIDR has neither free nor blocked
/// blocks.
fn finish_cidr(
    counts: &mut CidrCounts,
    cidr: Cidr,
    gives_out: bool,
    free_blocks: &FreeBlocks,
    useless: &[Cidr],
    mixed: Option<&Mixed<'_>>,
) {
    let found = free_blocks.counts_in(cidr);
    let n_useless = useless.iter().filter(|block| cidr.covers(**block)).count() as u128;
    let free = found.free.saturating_sub(n_useless);
    let claimed = u128::from(counts.held + counts.draining + counts.cooling);
    let total = match mixed {
        None => found.usable.saturating_add(found.held_closed),
        Some(mixed) => mixed.total(Some(cidr)),
    };
    counts.blocks = capped_count(mixed.map_or(found.cut, |mixed| mixed.cut(cidr)));
    counts.free = capped_count(free);
    let taken = total.saturating_sub(claimed).saturating_sub(free).saturating_sub(n_useless);
    counts.foreign = capped_count(taken.saturating_add(found.cut.saturating_sub(found.own)));
    if gives_out {
        counts.excluded = capped_count(found.own.saturating_sub(found.usable).saturating_add(n_useless));
    }
}

/// The addresses of nodes themselves in the ranges of a pool. Its blocks do not offer them.
fn node_addresses(world: &World, pool: &Pool, family: Family) -> AddressSet {
    let mut found = AddressSet::new();
    for range in free::ranges(pool, family) {
        found.extend_with(&world.node_addresses_in(range));
    }
    found
}
