//! Measures the cost of a claim and its release in pools of very different sizes: one of 16 blocks, half of them free,
//! and large ones that are 99 % full. Only the ratios are of interest; they are in `docs/performance.md`.
//!
//! `first_block` claims a block for a node without one. It is the same block every time, so only the work is measured.
//! `next_block` claims the buddy of a random block, so access to the machine's memory is measured too.

mod setup;

use std::hint::black_box;

use cilium_node_ipam::ledger::free_blocks::FreeBlocks;
use cilium_node_ipam::ledger::grid::{Declared, Grid};
use cilium_node_ipam::ledger::{Ledger, Occupant};
use cilium_node_ipam::model::pool::ByMaxPods;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family, address};
use criterion::{Criterion, criterion_group, criterion_main};

/// A repeatable sequence of numbers below 2^`bits`.
struct Random {
    state: u64,
    bits: u8,
}

impl Random {
    fn next(&mut self) -> u64 {
        // The multiplier of Knuth's MMIX; the upper bits are the random ones.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state >> (64 - self.bits)
    }

    fn of(&mut self, blocks: &[Cidr]) -> Cidr {
        let place = usize::try_from(self.next()).expect("at most 32 bits are asked for");
        blocks[place % blocks.len()]
    }
}

/// The length of the blocks: each is one address, so that 2^24 of them fit into a /8.
const BLOCK_PREFIX: u8 = 32;

/// Which blocks of a pool are free: about `n_free`, in random places. Claims hold the rest.
struct Fill {
    range: Cidr,
    claimed: AddressSet,
    free: AddressSet,
}

impl Fill {
    fn new(bits: u8, n_free: u32) -> Self {
        let range = Cidr::containing([10, 0, 0, 0].into(), 32 - bits).expect("24 bits are fewer than 32");
        let mut claimed = AddressSet::from_iter([range]);
        let mut random = Random { state: 42, bits };
        for _ in 0..n_free {
            let place = range.first() + u128::from(random.next());
            claimed.remove(address(place));
        }
        let mut free = AddressSet::from_iter([range]);
        free.remove_all(&claimed);
        Self { range, claimed, free }
    }

    /// The claimed blocks whose buddy is free, so that their nodes can grow into it.
    fn growing(&self) -> Vec<Cidr> {
        let buddies = self.free.iter().filter_map(|member| Cidr::single(member).buddy());
        buddies.filter(|buddy| self.claimed.intersects(*buddy)).collect()
    }
}

/// The free blocks of one pool alone. Nothing is kept about the occupants of the others, so the pool can be of any
/// size.
fn free_blocks(criterion: &mut Criterion) {
    let sizes = [("2^4", 4, 9), ("2^16", 16, (1 << 16) / 100), ("2^24", 24, (1 << 24) / 100)];
    for (size, bits, n_free) in sizes {
        let fill = Fill::new(bits, n_free);
        let growing = fill.growing();
        let pool = setup::pool("bench", fill.range, BLOCK_PREFIX);
        let level = (Family::V4, BLOCK_PREFIX);
        let grid = Grid::of(&pool, level, &Declared::default()).expect("it has the family");
        let mut free_blocks = FreeBlocks::new(grid);
        for cidr in fill.claimed.cidrs() {
            free_blocks.occupy(cidr);
        }
        // Of the claims, only those next to a free block matter to the order of offers.
        for claim in &growing {
            free_blocks.hold(*claim);
        }
        let mut claim_and_release = |mine: &[Cidr]| {
            let block = free_blocks.candidates(mine).next().expect("some are free");
            free_blocks.occupy(block);
            free_blocks.hold(block);
            free_blocks.unhold(black_box(block));
            free_blocks.vacate(block, std::iter::empty());
        };
        criterion.bench_function(&format!("free_blocks/first_block/{size}"), |bencher| {
            bencher.iter(|| claim_and_release(&[]));
        });
        let mut random = Random { state: 7, bits: 32 };
        criterion.bench_function(&format!("free_blocks/next_block/{size}"), |bencher| {
            bencher.iter(|| claim_and_release(&[random.of(&growing)]));
        });
    }
}

/// The whole ledger, with a claim for each block that is not free. A Kubernetes store holds fewer than 2^17 claims.
fn ledger(criterion: &mut Criterion) {
    for (size, bits, n_free) in [("2^4", 4, 9), ("2^17", 17, (1 << 17) / 100)] {
        let fill = Fill::new(bits, n_free);
        let growing = fill.growing();
        let pool = setup::pool("bench", fill.range, BLOCK_PREFIX);
        let name = pool.name.clone();
        let mut ledger = Ledger::default();
        ledger.set_pools([&pool], []);
        for member in fill.claimed.iter() {
            ledger.take(Cidr::single(member), Occupant::Claim);
        }
        let mut claim_and_release = |mine: &[Cidr]| {
            let block = ledger.candidates(&name, Family::V4, BLOCK_PREFIX, mine).next();
            let block = block.expect("some are free");
            ledger.take(block, Occupant::Claim);
            ledger.release(black_box(block), &Occupant::Claim);
        };
        criterion.bench_function(&format!("ledger/first_block/{size}"), |bencher| {
            bencher.iter(|| claim_and_release(&[]));
        });
        let mut random = Random { state: 7, bits: 32 };
        criterion.bench_function(&format!("ledger/next_block/{size}"), |bencher| {
            bencher.iter(|| claim_and_release(&[random.of(&growing)]));
        });
    }
}

/// A pool of blocks from /28 to /32 in a range that is 99 % full, beside one whose blocks are all /32. The free space is in
/// whole /28 and in single addresses, half of each.
fn five_sizes(criterion: &mut Criterion) {
    for (size, bits) in [("2^10", 10), ("2^20", 20)] {
        let range = Cidr::containing([10, 0, 0, 0].into(), 32 - bits).expect("20 bits are fewer than 32");
        let mut claimed = AddressSet::from_iter([range]);
        let mut random = Random { state: 42, bits };
        for place in 0..(1u32 << bits) / 200 {
            let member = address(range.first() + u128::from(random.next()));
            claimed.remove(member);
            if place % 16 == 0 {
                let wide = address(range.first() + u128::from(random.next()));
                claimed.remove_cidr(Cidr::containing(wide, 28).expect("28 is a prefix length"));
            }
        }
        for (sizes, is_mixed) in [("one", false), ("five", true)] {
            let mut pool = setup::pool("bench", range, BLOCK_PREFIX);
            if let Some(ranges) = pool.families.get_mut(&Family::V4).filter(|_| is_mixed) {
                ranges.by_max_pods = Some(ByMaxPods { headroom: 0, smallest: 32, largest: 28 });
            }
            let name = pool.name.clone();
            let mut ledger = Ledger::default();
            ledger.set_pools([&pool], []);
            for member in claimed.iter() {
                ledger.take(Cidr::single(member), Occupant::Claim);
            }
            for prefix in if is_mixed { [28, 30, 32].as_slice() } else { &[32] } {
                criterion.bench_function(&format!("sizes/{sizes}/{size}/{prefix}"), |bencher| {
                    bencher.iter(|| {
                        let block = ledger.candidates(&name, Family::V4, *prefix, &[]).next();
                        let block = block.expect("some are free");
                        ledger.take(block, Occupant::Claim);
                        ledger.release(black_box(block), &Occupant::Claim);
                    });
                });
            }
        }
    }
}

criterion_group!(benches, free_blocks, ledger, five_sizes);
criterion_main!(benches);
