//! The address space as a map: the ranges of each pool, cut into blocks, and the state of every block with its node.
//!
//! It agrees with the counts of a pool ([`super::tally`]), which have the same sources. It does not know how it is
//! drawn. Runs of equal blocks are one piece, so it is as large as the number of blocks that something takes, however
//! large the ranges are.

use std::collections::BTreeMap;

use super::free;
use super::overview::{self, Problem};
use super::tally::{self, NodeState, Tally};
use crate::ledger::Occupant;
use crate::ledger::block_numbers::BlockRun;
use crate::ledger::free_blocks::FreeBlocks;
use crate::model::claim::{Claim, ClaimState};
use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName, ten_by_number};
use crate::model::plan::NodePlan;
use crate::model::pool::{Pool, RangeState};
use crate::model::stable_names;
use crate::model::status::{FamilyCounts, capped_count};
use crate::model::time::Timestamp;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::mode::Mode;
use crate::world::World;
use paint::Row;

mod paint;
#[cfg(test)]
pub(crate) mod tests;

stable_names! {
    /// The state of a block on the map.
    pub enum BlockState {
        /// The next node may get it.
        Free => "free",
        /// A node holds it.
        Held => "held",
        /// A node holds it, and its range drains or its pool is being deleted: it waits until the node can do without
        /// it.
        Leaving => "leaving",
        /// It is leaving its node, and takes no new pods.
        Draining => "draining",
        /// Its node has given it up, and that is not proven yet.
        Releasing => "releasing",
        /// It waits before another node may get it.
        Cooling => "cooling",
        /// Its CIDR is Cordoned or Draining, or its pool is being deleted or does not fit the mode: no node gets it.
        Closed => "closed",
        /// The pool excludes it, or has no address in it to offer.
        Excluded => "excluded",
        /// Something takes it that is no claim of this pool.
        Foreign => "foreign",
        /// A node holds it, and another one has addresses of it too.
        Contested => "contested",
        /// An older pool declares it as well, and keeps it.
        Older => "older",
    }
}

impl BlockState {
    /// The letter of the state, where a map is text.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Free => '.',
            Self::Held => 'h',
            Self::Leaving => 'l',
            Self::Draining => 'd',
            Self::Releasing => 'r',
            Self::Cooling => 'c',
            Self::Closed => '-',
            Self::Excluded => 'x',
            Self::Foreign => 'f',
            Self::Contested => '!',
            Self::Older => 'o',
        }
    }
}

/// The address space of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// The time of its objects.
    pub at: Timestamp,
    /// The mode of Cilium, or why the controller is passive.
    pub mode: Result<String, String>,
    /// The pools, by name.
    pub pools: Vec<PoolMap>,
    /// The nodes that a pool selects and that have no published block.
    pub waiting: Vec<NodeName>,
    /// The problems of the cluster.
    pub problems: Vec<Problem>,
}

/// The address space of one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolMap {
    /// Its name.
    pub name: PoolName,
    /// Its state in one word, as `status` shows it.
    pub state: String,
    /// Its families; none if it can't be read.
    pub families: Vec<FamilyMap>,
}

/// The ranges of a pool in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyMap {
    /// The family.
    pub family: Family,
    /// The prefix length of its blocks.
    pub block_prefix: u8,
    /// The counts, as the status of the pool has them.
    pub counts: FamilyCounts,
    /// Its ranges, in numeric order.
    pub ranges: Vec<RangeMap>,
    /// The blocks of the pool that are in none of its ranges.
    pub outside: Vec<(Cidr, Block)>,
}

/// A range of a pool, cut into blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeMap {
    /// The range as it is declared.
    pub cidr: Cidr,
    /// The state in which it is declared.
    pub declared: RangeState,
    /// Its blocks in numeric order, without a gap; none if the range is smaller than a block.
    pub pieces: Vec<Piece>,
}

/// Blocks of consecutive numbers that are alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The number of its first block within the range, from 0.
    pub first: u128,
    /// How many blocks it has.
    pub count: u128,
    /// Their state and holder.
    pub block: Block,
}

/// The state of a block, and its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its state.
    pub state: BlockState,
    /// The node that holds it, or held it.
    pub node: Option<NodeName>,
    /// Its addresses, if a node holds it and its agent reports use.
    pub usage: Option<Usage>,
    /// Since when it is in this state.
    pub since: Option<Timestamp>,
    /// When another node may get it.
    pub until: Option<Timestamp>,
    /// A remark on its state.
    pub note: String,
}

/// The addresses of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Those in use.
    pub used: u64,
    /// Those that pods can get.
    pub offered: u64,
}

impl Block {
    /// A block with a state alone.
    const fn of(state: BlockState) -> Self {
        Self { state, node: None, usage: None, since: None, until: None, note: String::new() }
    }
}

impl RangeMap {
    /// How many blocks it has.
    #[must_use]
    pub fn n_blocks(&self) -> u128 {
        self.pieces.iter().map(|piece| piece.count).fold(0, u128::saturating_add)
    }

    /// How many blocks are in each state, without those that no block is in.
    #[must_use]
    pub fn by_state(&self) -> BTreeMap<BlockState, u128> {
        let mut counts = BTreeMap::new();
        for piece in &self.pieces {
            let count: &mut u128 = counts.entry(piece.block.state).or_default();
            *count = count.saturating_add(piece.count);
        }
        counts
    }
}

/// The map of a world. Costs a pass over the nodes and the claims, and over the foreign addresses in each pool. Without
/// the plan of a node, the problems that only its plan shows are missing.
#[must_use]
pub fn map(world: &World, plans: &[NodePlan], at: Timestamp) -> Map {
    let mode = match world.mode() {
        Mode::Active(publisher) => Ok(publisher.ipam_mode().as_str().to_owned()),
        Mode::Passive(why) => Err(why.clone()),
    };
    let states = tally::node_states(world);
    let pools = tally::of_all(world, &states).into_iter();
    let pools = pools.map(|(name, tally)| of_pool(world, name, &tally)).collect();
    let is_without = |state: NodeState| matches!(state, NodeState::Waiting | NodeState::Pending);
    let waiting = states.iter().filter(|(_, state)| is_without(*state)).map(|(node, _)| (*node).clone());
    let waiting = waiting.collect();
    Map { at, mode, pools, waiting, problems: overview::overview(world, plans, at).problems }
}

fn of_pool(world: &World, name: PoolName, tally: &Tally) -> PoolMap {
    let state = overview::state(world, &name, tally);
    let families = world.pool(&name).map(|pool| {
        let of = |family: &Family| of_family(world, pool, *family, tally);
        pool.families.keys().filter_map(of).collect()
    });
    PoolMap { name, state, families: families.unwrap_or_default() }
}

fn of_family(world: &World, pool: &Pool, family: Family, tally: &Tally) -> Option<FamilyMap> {
    let ranges = pool.families.get(&family)?;
    let blocks = world.ledger().levels(&pool.name, family).last()?;
    let useless = free::useless_blocks(world, pool, family, blocks);
    let of_range = |(cidr, declared): (&Cidr, &RangeState)| RangeMap {
        cidr: *cidr,
        declared: *declared,
        pieces: of_range(world, pool, blocks, &useless, *cidr, *declared),
    };
    let claims = world.claims_of_pool(&pool.name).map(|known| &known.claim);
    let is_outside = |claim: &&Claim| {
        claim.cidr.family() == family
            && !world.is_unreadable_claim(claim.cidr)
            && !ranges.cidrs.keys().any(|range| range.overlaps(claim.cidr))
    };
    Some(FamilyMap {
        family,
        block_prefix: blocks.grid().prefix(),
        counts: tally.families.get(&family).copied().unwrap_or_default(),
        ranges: ranges.cidrs.iter().map(of_range).collect(),
        outside: claims.filter(is_outside).map(|claim| (claim.cidr, of_claim(world, claim))).collect(),
    })
}

/// The blocks of a range: first as the pool declares them, then foreign addresses, and then claims.
fn of_range(
    world: &World,
    pool: &Pool,
    blocks: &FreeBlocks,
    useless: &[Cidr],
    range: Cidr,
    declared: RangeState,
) -> Vec<Piece> {
    let (grid, family) = (blocks.grid(), range.family());
    if grid.whole(range) != range {
        return Vec::new();
    }
    let whole = grid.span(range);
    let is_open = declared == RangeState::Active && !pool.deleting && !world.is_too_wide(pool, family);
    let mut row = Row::new(whole, Block::of(BlockState::Older));
    let of_own = Block::of(if is_open { BlockState::Excluded } else { BlockState::Closed });
    for run in grid.own().runs_within(whole) {
        row.paint(run, of_own.clone());
    }
    for run in grid.usable().runs_within(whole).filter(|_| is_open) {
        row.paint(run, Block::of(BlockState::Free));
    }
    for block in useless {
        row.paint(grid.span(*block), Block::of(BlockState::Excluded));
    }
    // Foreign addresses in excluded space do not concern the pool.
    let concerned = if is_open { grid.usable() } else { grid.own() };
    for (cidr, occupant) in world.ledger().unclaimed_in(range) {
        let block = of_unclaimed(cidr, occupant);
        for run in concerned.runs_within(grid.span(cidr)) {
            row.paint(run, block.clone());
        }
    }
    for claim in world.claims_over(range).map(|known| &known.claim) {
        if world.is_unreadable_claim(claim.cidr) {
            continue;
        }
        let mut block = if claim.pool == pool.name { of_claim(world, claim) } else { of_other_claim(claim) };
        if claim.pool == pool.name && claim.cidr.prefix_len() != grid.prefix() {
            let note = std::mem::take(&mut block.note);
            block.note = if note.is_empty() {
                format!("of {}", claim.cidr)
            } else {
                format!("of {}, {note}", claim.cidr)
            };
        }
        row.paint(grid.span(claim.cidr), block);
    }
    let piece = |(run, block): (BlockRun, Block)| Piece {
        first: run.first.get() - whole.first.get(),
        count: run.count(),
        block,
    };
    row.into_pieces().into_iter().map(piece).collect()
}

/// A claim in the blocks of its own pool.
fn of_claim(world: &World, claim: &Claim) -> Block {
    let others = others(world, claim);
    let state = match &claim.state {
        ClaimState::Held | ClaimState::Draining(_) if !others.is_empty() => BlockState::Contested,
        ClaimState::Held if world.must_leave(claim) => BlockState::Leaving,
        ClaimState::Held => BlockState::Held,
        ClaimState::Draining(_) => BlockState::Draining,
        ClaimState::Releasing(_) => BlockState::Releasing,
        ClaimState::Cooling(_) => BlockState::Cooling,
    };
    let (reader, carrier) = (world.reader_of(&claim.node), world.carrier(&claim.node));
    let is_carried = carrier.is_some_and(|carrier| reader.lists(carrier, claim.cidr));
    let usage = carrier.filter(|_| is_carried && reader.traits().shows_use).map(|carrier| Usage {
        used: capped_count(reader.n_used_in(carrier, claim.cidr)),
        offered: capped_count(reader.n_offered(claim.cidr, &claim.excluded)),
    });
    let note = match &claim.state {
        ClaimState::Held | ClaimState::Draining(_) if !others.is_empty() => {
            format!("also on {}", ten_by_number(others))
        }
        ClaimState::Held if !is_carried => "not published yet".to_owned(),
        ClaimState::Held => String::new(),
        ClaimState::Draining(_) => {
            claim.status.drain.as_ref().map(|drain| drain.waiting_for.clone()).unwrap_or_default()
        }
        ClaimState::Releasing(reason) | ClaimState::Cooling(reason) => reason.as_str().to_owned(),
    };
    let until = world.cooled_at(claim);
    Block { state, node: Some(claim.node.clone()), usage, since: Some(claim.since), until, note }
}

/// The other objects that have addresses of a claimed block.
fn others(world: &World, claim: &Claim) -> Vec<String> {
    let unclaimed = world.ledger().unclaimed_in(claim.cidr);
    let is_other = |occupant: &Occupant| match occupant {
        Occupant::Carried(node) => *node != claim.node,
        Occupant::Unreadable(kind, name) => *kind == Kind::CiliumNode && name != claim.node.as_str(),
        Occupant::Claim | Occupant::Pending | Occupant::LostClaim(_) => false,
    };
    let unclaimed =
        unclaimed.filter(|(_, occupant)| is_other(occupant)).map(|(_, other)| world.name_of(other));
    let claims = world
        .overlapping(claim)
        .map(|other| format!("NodeIPBlock {} of node {}", other.claim.cidr, other.claim.node));
    let mut others: Vec<String> = unclaimed.chain(claims).collect();
    others.dedup();
    others
}

/// A claim of another pool.
fn of_other_claim(claim: &Claim) -> Block {
    let note = format!("{} of pool {} is {}", claim.cidr, claim.pool, claim.state);
    Block { node: Some(claim.node.clone()), since: Some(claim.since), note, ..Block::of(BlockState::Foreign) }
}

/// Addresses that are taken without a claim.
fn of_unclaimed(cidr: Cidr, occupant: &Occupant) -> Block {
    let (holder, note) = match occupant {
        Occupant::Carried(node) => (Some(node.clone()), format!("has {cidr} without a claim")),
        Occupant::LostClaim(node) => (node.clone(), format!("the claim of {cidr} was lost")),
        Occupant::Unreadable(..) | Occupant::Claim | Occupant::Pending => {
            (None, format!("{occupant} has {cidr}"))
        }
    };
    Block { node: holder, note, ..Block::of(BlockState::Foreign) }
}
