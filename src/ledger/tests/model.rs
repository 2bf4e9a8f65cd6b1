//! A model of the ledger, and random steps to compare the two. It keeps a list of taken ranges, and searches that for
//! every block of a small universe.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::ledger::grid::tests::pool;
use crate::ledger::*;
use crate::model::pool::{FirstLast, Pool, RangeState, Ranges, Reservation, SizedNodes};
use crate::model::time::Timestamp;
use crate::net::cidr::address;

/// Bits of the universe: 128 addresses.
const BITS: u8 = 7;

/// The universes: ordinary ones, and the start and the end of the number line of either family, where a sum may
/// overflow.
pub(super) fn universe() -> impl Strategy<Value = Cidr> {
    proptest::sample::select(vec![
        "10.0.0.0/25",
        "0.0.0.0/25",
        "255.255.255.128/25",
        "2001:db8::/121",
        "::/121",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff80/121",
    ])
    .prop_map(|text| text.parse().unwrap())
}

/// A point in time this many seconds after the epoch.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// A prefix in the universe: its place, and the number of its host bits.
pub(super) type Part = (u8, u8);

pub(super) fn part() -> impl Strategy<Value = Part> {
    (any::<u8>(), 0..=BITS)
}

pub(super) fn cidr_of(universe: Cidr, (place, bits): Part) -> Cidr {
    let member = address(universe.first() + u128::from(place & 0x7f));
    Cidr::containing(member, universe.family().bits() - bits).unwrap()
}

#[derive(Debug, Clone)]
pub(super) struct PoolParts {
    block_bits: u8,
    /// The size of the blocks of some nodes.
    other_bits: Option<u8>,
    ranges: Vec<(Part, RangeState)>,
    exclude: Vec<Part>,
    first_last: FirstLast,
    created: i64,
    deleting: bool,
    readable: bool,
}

pub(super) fn pool_parts() -> impl Strategy<Value = PoolParts> {
    let state = prop_oneof![
        4 => Just(RangeState::Active),
        1 => Just(RangeState::Cordoned),
        1 => Just(RangeState::Draining)
    ];
    (
        (0u8..=4, proptest::option::weighted(0.4, 0u8..=5)),
        proptest::collection::vec((part(), state), 0..5),
        proptest::collection::vec((any::<u8>(), 0u8..=4), 0..4),
        prop_oneof![Just(FirstLast::Offered), Just(FirstLast::Excluded)],
        0i64..3,
        proptest::bool::weighted(0.1),
        proptest::bool::weighted(0.8),
    )
        .prop_map(
            |((block_bits, other_bits), ranges, exclude, first_last, created, deleting, readable)| {
                PoolParts { block_bits, other_bits, ranges, exclude, first_last, created, deleting, readable }
            },
        )
}

/// The pools `a`, `b` and `c`, and the reservations of those that can't be read; `a` always can. `b` has the smallest
/// uid, so that the uid and not the name decides between equal ages.
fn pools_of(universe: Cidr, parts: &[PoolParts]) -> (BTreeMap<PoolName, Pool>, Vec<Reservation>) {
    let family = universe.family();
    let (mut pools, mut reserved) = (BTreeMap::new(), Vec::new());
    for (name, part) in ["a", "b", "c"].into_iter().zip(parts) {
        let uid = if name == "b" { "uid-0" } else { name };
        if !part.readable && name != "a" {
            reserved.push(Reservation {
                name: name.into(),
                uid: uid.into(),
                created: at(part.created),
                cidrs: part.ranges.iter().map(|(range, _)| cidr_of(universe, *range)).collect(),
            });
            continue;
        }
        let mut cidrs = BTreeMap::new();
        for (range, state) in &part.ranges {
            let range = cidr_of(universe, *range);
            if !cidrs.keys().any(|other: &Cidr| other.overlaps(range)) {
                cidrs.insert(range, *state);
            }
        }
        let sized = part.other_bits.map(|bits| SizedNodes {
            selector: kube_core::Selector::default(),
            block_prefix: family.bits() - bits,
        });
        let ranges = Ranges {
            sized: sized.into_iter().collect(),
            exclude: part.exclude.iter().map(|exclusion| cidr_of(universe, *exclusion)).collect(),
            ..Ranges::of_blocks(family.bits() - part.block_bits, cidrs)
        };
        let pool = Pool {
            uid: uid.into(),
            created: at(part.created),
            deleting: part.deleting,
            families: [(family, ranges)].into(),
            first_last: part.first_last,
            ..pool(name, 32, &[])
        };
        pools.insert(pool.name.clone(), pool);
    }
    (pools, reserved)
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Take(Part, Occupant),
    Release(Index),
    Carry(u8, Vec<Part>),
    /// A node with some of the claimed blocks gets its next block from a pool.
    Grant(Index, Vec<Index>),
    Pools(Vec<PoolParts>),
}

pub(super) fn occupant() -> impl Strategy<Value = Occupant> {
    prop_oneof![
        3 => Just(Occupant::Claim),
        1 => Just(Occupant::Pending),
        1 => Just(Occupant::LostClaim(None)),
        1 => Just(Occupant::LostClaim(Some("x".into()))),
        1 => Just(Occupant::unreadable(Kind::Node, "x")),
    ]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let small = || (any::<u8>(), 0u8..=5);
    prop_oneof![
        4 => (small(), occupant()).prop_map(|(part, occupant)| Step::Take(part, occupant)),
        4 => any::<Index>().prop_map(Step::Release),
        2 => (0u8..3, proptest::collection::vec(small(), 0..4))
            .prop_map(|(node, parts)| Step::Carry(node, parts)),
        6 => (any::<Index>(), proptest::collection::vec(any::<Index>(), 0..3))
            .prop_map(|(pool, mine)| Step::Grant(pool, mine)),
        1 => proptest::collection::vec(pool_parts(), 1..4).prop_map(Step::Pools),
    ]
}

/// The taken ranges and the pools, exactly as the ledger gets them, and nothing derived.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) pools: BTreeMap<PoolName, Pool>,
    pub(super) reserved: Vec<Reservation>,
    pub(super) taken: BTreeSet<(Cidr, Occupant)>,
    pub(super) carried: BTreeMap<NodeName, AddressSet>,
}

impl Model {
    /// Whether an occupant or a CiliumNode has an address of the block.
    fn is_taken(&self, block: Cidr) -> bool {
        self.taken.iter().any(|(cidr, _)| cidr.overlaps(block))
            || self.carried.values().any(|carried| carried.intersects(block))
    }

    fn is_held(&self, block: Cidr) -> bool {
        [Occupant::Claim, Occupant::Pending]
            .into_iter()
            .any(|occupant| self.taken.contains(&(block, occupant)))
    }

    /// The state of the range that contains the whole block, if no older pool declares an address of it.
    fn own_state(&self, pool: &Pool, block: Cidr) -> Option<RangeState> {
        let age = |pool: &Pool| (pool.created, pool.uid.clone());
        let is_older = |other: &&Pool| age(other) < age(pool);
        let declares = |other: &Pool| {
            other.families.values().any(|ranges| ranges.cidrs.keys().any(|range| range.overlaps(block)))
        };
        let is_reserved = self.reserved.iter().any(|reserved| {
            (reserved.created, reserved.uid.clone()) < age(pool)
                && reserved.cidrs.iter().any(|range| range.overlaps(block))
        });
        if is_reserved || self.pools.values().filter(is_older).any(declares) {
            return None;
        }
        let ranges = &pool.families[&block.family()];
        ranges.cidrs.iter().find(|(range, _)| range.covers(block)).map(|(_, state)| *state)
    }

    fn is_usable(&self, pool: &Pool, block: Cidr) -> bool {
        let ranges = &pool.families[&block.family()];
        let ends = [block.first_address(), block.last_address()];
        let excludes_edges =
            block.family() == Family::V4 && pool.first_last == FirstLast::Excluded && block.size() > 2;
        let offers = |member| {
            let is_excluded = ranges.exclude.iter().any(|exclusion| exclusion.contains(member));
            !is_excluded && (!excludes_edges || !ends.contains(&member))
        };
        !pool.deleting
            && self.own_state(pool, block) == Some(RangeState::Active)
            && (block.first()..=block.last()).any(|position| offers(address(position)))
    }

    fn free(&self, universe: Cidr, pool: &Pool, prefix: u8) -> Vec<Cidr> {
        blocks(universe, prefix)
            .filter(|block| self.is_usable(pool, *block) && !self.is_taken(*block))
            .collect()
    }

    fn total(&self, universe: Cidr, pool: &Pool, prefix: u8) -> u128 {
        let counts = |block: &Cidr| {
            self.is_usable(pool, *block) || self.own_state(pool, *block).is_some() && self.is_held(*block)
        };
        blocks(universe, prefix).filter(counts).count() as u128
    }

    /// The order of offers, by its definition.
    fn candidates(&self, universe: Cidr, pool: &Pool, prefix: u8, mine: &[Cidr]) -> Vec<Cidr> {
        let sizes = pool.families[&universe.family()].sizes();
        let widest = *sizes.first().unwrap();
        if prefix == widest {
            return self.of_one_size(universe, pool, prefix, mine);
        }
        let free = self.free(universe, pool, prefix);
        // The free blocks of a size whose buddy is not free: those that no claim grows into, and the others.
        let unpaired = |prefix: u8| -> [Vec<Cidr>; 2] {
            let all = self.free(universe, pool, prefix);
            let alone = all.iter().copied().filter(|block| !all.contains(&block.buddy().unwrap()));
            let (held, free) = alone.partition(|block| self.is_held(block.buddy().unwrap()));
            [free, held]
        };
        let part = |wide: &Cidr| Cidr::containing(wide.first_address(), prefix).unwrap();
        let [holes, next_of_holders] = unpaired(prefix);
        let mut order: Vec<Cidr> =
            free.iter().copied().filter(|block| mine.contains(&block.buddy().unwrap())).collect();
        order.extend(holes);
        for wider in (widest + 1..prefix).rev() {
            order.extend(unpaired(wider).concat().iter().map(part));
        }
        order.extend(next_of_holders);
        order.extend(unpaired(widest)[0].iter().map(part));
        order.extend(self.of_one_size(universe, pool, widest, &[]).iter().map(part));
        order.extend(self.of_one_size(universe, pool, prefix, mine));
        let mut offered = BTreeSet::new();
        order.retain(|block| {
            free.contains(block) && !mine.iter().any(|own| own.overlaps(*block)) && offered.insert(*block)
        });
        order
    }

    fn of_one_size(&self, universe: Cidr, pool: &Pool, prefix: u8, mine: &[Cidr]) -> Vec<Cidr> {
        let mut free = self.free(universe, pool, prefix);
        free.retain(|block| !mine.iter().any(|own| own.overlaps(*block)));
        let kind = |block: Cidr| {
            let buddy = block.buddy().unwrap();
            if mine.contains(&buddy) {
                1
            } else if free.contains(&buddy) {
                if block < buddy { 2 } else { 5 }
            } else if self.is_held(buddy) {
                4
            } else {
                3
            }
        };
        let mut order = free.clone();
        order.sort_by_key(|block| (kind(*block), *block));
        order
    }
}

fn blocks(universe: Cidr, prefix: u8) -> impl Iterator<Item = Cidr> {
    let first = Cidr::containing(universe.first_address(), prefix).unwrap();
    (0..universe.size() / first.size()).map(move |n| first.same_size_at(universe.first() + n * first.size()))
}

pub(super) fn apply(
    ledger: &mut Ledger,
    model: &mut Model,
    universe: Cidr,
    step: Step,
) -> Result<(), TestCaseError> {
    match step {
        Step::Take(part, occupant) => {
            let cidr = cidr_of(universe, part);
            prop_assert_eq!(ledger.take(cidr, occupant.clone()), model.taken.insert((cidr, occupant)));
        }
        Step::Release(index) => {
            if !model.taken.is_empty() {
                let (cidr, occupant) = index.get(&model.taken.iter().collect::<Vec<_>>()).to_owned().clone();
                model.taken.remove(&(cidr, occupant.clone()));
                prop_assert!(ledger.release(cidr, &occupant));
                prop_assert!(!ledger.release(cidr, &occupant));
            }
        }
        Step::Carry(node, parts) => {
            let node = NodeName::from(format!("node-{node}"));
            let carried: AddressSet = parts.into_iter().map(|part| cidr_of(universe, part)).collect();
            ledger.set_carried(&node, carried.clone());
            prop_assert_eq!(ledger.carried(&node), Some(&carried).filter(|carried| !carried.is_empty()));
            model.carried.insert(node, carried);
        }
        Step::Grant(pool, mine) => {
            let claims: Vec<Cidr> = model
                .taken
                .iter()
                .filter(|(_, occupant)| *occupant == Occupant::Claim)
                .map(|(cidr, _)| *cidr)
                .collect();
            let mine: Vec<Cidr> =
                mine.iter().filter(|_| !claims.is_empty()).map(|index| *index.get(&claims)).collect();
            let names: Vec<_> = model.pools.keys().cloned().collect();
            let name = pool.get(&names);
            let sizes = model.pools[name].families[&universe.family()].sizes();
            let prefix = if mine.is_empty() { sizes.first() } else { sizes.last() };
            let candidate = ledger.candidates(name, universe.family(), *prefix.unwrap(), &mine).next();
            if let Some(block) = candidate {
                // It never overlaps a block that any pool granted before.
                prop_assert!(!model.is_taken(block), "{} is taken", block);
                prop_assert_eq!(ledger.overlapping_claims(block).next(), None);
                ledger.take(block, Occupant::Claim);
                model.taken.insert((block, Occupant::Claim));
            }
        }
        Step::Pools(parts) => {
            let mut one_by_one = ledger.clone();
            let before = declarations(model);
            (model.pools, model.reserved) = pools_of(universe, &parts);
            ledger.set_pools(model.pools.values(), &model.reserved);
            change_one_by_one(&mut one_by_one, before, &declarations(model));
            prop_assert_eq!(&one_by_one, &*ledger);
        }
    }
    Ok(())
}

/// The declaration of each pool, readable or not.
type Declarations = BTreeMap<PoolName, Result<Pool, Reservation>>;

fn declarations(model: &Model) -> Declarations {
    let reserved = model.reserved.iter().map(|reserved| (reserved.name.clone(), Err(reserved.clone())));
    model.pools.iter().map(|(name, pool)| (name.clone(), Ok(pool.clone()))).chain(reserved).collect()
}

/// Replaces the declarations of the pools, one after the other.
fn change_one_by_one(ledger: &mut Ledger, mut declared: Declarations, after: &Declarations) {
    let names: BTreeSet<PoolName> = declared.keys().chain(after.keys()).cloned().collect();
    for name in names {
        match after.get(&name) {
            Some(declaration) => drop(declared.insert(name.clone(), declaration.clone())),
            None => drop(declared.remove(&name)),
        }
        ledger.set_pool(&name, |name| declared.get(name).map(Result::as_ref));
    }
}

/// Compares every pool's free blocks, counts and order of offers with those of the model.
pub(super) fn compare_all(
    ledger: &Ledger,
    model: &Model,
    universe: Cidr,
    mine: &[Cidr],
) -> Result<(), TestCaseError> {
    for pool in model.pools.values() {
        let family = universe.family();
        let sizes = pool.families[&family].sizes();
        for prefix in *sizes.first().unwrap()..=*sizes.last().unwrap() {
            let free_blocks = ledger.free_blocks(&pool.name, family, prefix).unwrap();
            let free = model.free(universe, pool, prefix);
            prop_assert_eq!(&free_blocks.iter().collect::<Vec<_>>(), &free);
            prop_assert_eq!(free_blocks.total_count(), model.total(universe, pool, prefix));
            prop_assert_eq!(free_blocks.free_count(), free.len() as u128);
            for mine in [&[], mine] {
                let order: Vec<Cidr> = ledger.candidates(&pool.name, family, prefix, mine).collect();
                let expected = model.candidates(universe, pool, prefix, mine);
                prop_assert_eq!(&order, &expected, "/{}, mine: {:?}", prefix, mine);
            }
            for block in blocks(universe, prefix) {
                prop_assert_eq!(free_blocks.is_free(block), free.contains(&block));
                prop_assert_eq!(ledger.is_taken(block), model.is_taken(block));
            }
        }
    }
    prop_assert_eq!(ledger.check(model.pools.values(), &model.reserved), vec![]);
    Ok(())
}
