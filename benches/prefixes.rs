//! Counts the prefixes that nodes announce, with the order in which the ledger offers blocks and with the order of
//! addresses, in pools that are filled to different degrees. It measures no time: `docs/performance.md` has its table.
//!
//! A pool has 2^12 blocks, and each node at most eight. Nodes join, grow by a block, give one back, and leave, all at
//! random, while the pool stays as full as the row says. The numbers are averages over that time.

mod setup;

use std::collections::BTreeMap;

use cilium_node_ipam::ledger::{Ledger, Occupant};
use cilium_node_ipam::model::names::PoolName;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family};

const BLOCK_PREFIX: u8 = 28;
const N_BLOCKS: usize = 1 << 12;
const MAX_BLOCKS: usize = 8;
/// Changes before the first count, and from count to count.
const WARM_UP: usize = 40_000;
const BETWEEN: usize = 500;
const N_COUNTS: usize = 100;

/// Which of the free blocks a node gets.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Addresses,
    Ledger,
}

/// The fleet of one row, and the pool that it shares.
struct Fleet {
    order: Order,
    pool: PoolName,
    ledger: Ledger,
    nodes: BTreeMap<usize, Vec<Cidr>>,
    n_joined: usize,
    n_held: usize,
    random: fastrand::Rng,
}

/// Sums over all counts.
#[derive(Default)]
struct Sums {
    nodes: usize,
    blocks: usize,
    prefixes: usize,
    free: usize,
    free_in_pairs: usize,
}

impl Fleet {
    fn new(order: Order) -> Self {
        let range = Cidr::containing([10, 0, 0, 0].into(), 16).expect("16 is a prefix length");
        let pool = setup::pool("bench", range, BLOCK_PREFIX);
        let mut ledger = Ledger::default();
        ledger.set_pools([&pool], []);
        let random = fastrand::Rng::with_seed(7);
        Self { order, pool: pool.name, ledger, nodes: BTreeMap::new(), n_joined: 0, n_held: 0, random }
    }

    /// One change that keeps about `target` blocks held: a node joins or grows, or it leaves or gives a block back.
    fn change(&mut self, target: usize) {
        let adds = if self.n_held == target { self.random.bool() } else { self.n_held < target };
        let at = self.random.usize(..self.nodes.len().max(1));
        let node = self.nodes.keys().nth(at).copied();
        // Half of the blocks come with nodes of their own.
        let is_whole_node = self.random.u8(..4) == 0;
        match node {
            Some(node) if adds && !is_whole_node && self.nodes[&node].len() < MAX_BLOCKS => self.grow(node),
            _ if adds => {
                self.n_joined += 1;
                self.grow(self.n_joined);
            }
            Some(node) if is_whole_node => {
                let blocks = self.nodes.remove(&node).unwrap_or_default();
                self.n_held -= blocks.len();
                for block in blocks {
                    self.ledger.release(block, &Occupant::Claim);
                }
            }
            // The primary block stays.
            Some(node) => {
                let blocks = self.nodes.get_mut(&node).filter(|blocks| blocks.len() > 1);
                if let Some(block) = blocks.and_then(Vec::pop) {
                    self.n_held -= 1;
                    self.ledger.release(block, &Occupant::Claim);
                }
            }
            None => {}
        }
    }

    fn grow(&mut self, node: usize) {
        let mine = self.nodes.entry(node).or_default();
        let block = {
            let mut offers = self.ledger.candidates(&self.pool, Family::V4, BLOCK_PREFIX, mine);
            if self.order == Order::Ledger { offers.next() } else { offers.min() }
        };
        if let Some(block) = block {
            self.ledger.take(block, Occupant::Claim);
            mine.push(block);
            self.n_held += 1;
        }
    }

    fn count(&self, sums: &mut Sums) {
        sums.nodes += self.nodes.len();
        sums.blocks += self.n_held;
        for blocks in self.nodes.values() {
            sums.prefixes += blocks.iter().copied().collect::<AddressSet>().cidrs().count();
        }
        let free = self.ledger.free_blocks(&self.pool, Family::V4, BLOCK_PREFIX).expect("it has this level");
        let free: Vec<Cidr> = free.candidates(&[]).collect();
        sums.free += free.len();
        let of_free: AddressSet = free.into_iter().collect();
        let whole = of_free.cidrs().filter(|cidr| cidr.prefix_len() < BLOCK_PREFIX);
        sums.free_in_pairs += whole.map(|cidr| 1usize << (BLOCK_PREFIX - cidr.prefix_len())).sum::<usize>();
    }
}

fn main() {
    println!("| full | order | blocks per node | prefixes per node | free blocks in whole pairs |");
    println!("|---|---|---|---|---|");
    for percent in [50, 80, 95, 99] {
        for (order, name) in [(Order::Addresses, "addresses"), (Order::Ledger, "ledger")] {
            let target = N_BLOCKS * percent / 100;
            let mut fleet = Fleet::new(order);
            let mut sums = Sums::default();
            for _ in 0..WARM_UP {
                fleet.change(target);
            }
            for _ in 0..N_COUNTS {
                for _ in 0..BETWEEN {
                    fleet.change(target);
                }
                fleet.count(&mut sums);
            }
            #[expect(clippy::cast_precision_loss, reason = "the sums are far below 2^52")]
            let per = |part: usize, of: usize| part as f64 / of as f64;
            println!(
                "| {percent} % | {name} | {:.2} | {:.2} | {:.0} % |",
                per(sums.blocks, sums.nodes),
                per(sums.prefixes, sums.nodes),
                100.0 * per(sums.free_in_pairs, sums.free),
            );
        }
    }
}
