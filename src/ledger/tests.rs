//! The ledger against a model that keeps a list of what is taken and looks at every address of a small universe.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::ledger::grid::tests::pool;
use crate::model::pool::{FirstLast, RangeState, Ranges};
use crate::net::cidr::address;

/// Bits of the universe: 128 addresses.
const BITS: u8 = 7;

/// The universes: ordinary ones, and both ends of the number line of either family, where a sum may overflow.
/// So many seconds after the epoch.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn universe() -> impl Strategy<Value = Cidr> {
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

/// An object that can't be read may name any range.
#[test]
fn the_largest_range_takes_and_frees_a_pool_of_the_smallest_blocks() {
    let range = "fd00::/64".parse::<Cidr>().unwrap();
    let pools: BTreeMap<PoolName, Pool> = [("p".into(), pool("p", 128, &["fd00::/64"]))].into();
    let mut ledger = Ledger::new();
    ledger.set_pools(&pools, []);
    for cidr in [range, range.enlarged(1), "::/0".parse().unwrap()] {
        let occupant = Occupant::Unreadable("NodeIPBlock".to_owned());
        assert!(ledger.take(cidr, occupant.clone()));
        assert_eq!(ledger.counts(&"p".into(), Family::V6), Some(Counts { total: 1 << 64, free: 0 }));
        assert!(ledger.release(cidr, &occupant));
        assert_eq!(ledger.counts(&"p".into(), Family::V6), Some(Counts { total: 1 << 64, free: 1 << 64 }));
    }
    assert_eq!(ledger.check(&pools, []), []);
}

/// A prefix in the universe: where, and how many bits of it are the host's.
type Part = (u8, u8);

fn part() -> impl Strategy<Value = Part> {
    (any::<u8>(), 0..=BITS)
}

fn cidr_of(universe: Cidr, (place, bits): Part) -> Cidr {
    let member = address(universe.first() + u128::from(place & 0x7f));
    Cidr::containing(member, universe.family().bits() - bits).unwrap()
}

#[derive(Debug, Clone)]
struct PoolParts {
    block_bits: u8,
    ranges: Vec<(Part, RangeState)>,
    exclude: Vec<Part>,
    first_last: FirstLast,
    created: i64,
    deleting: bool,
    readable: bool,
}

fn pool_parts() -> impl Strategy<Value = PoolParts> {
    let state = prop_oneof![
        4 => Just(RangeState::Active),
        1 => Just(RangeState::Cordoned),
        1 => Just(RangeState::Draining)
    ];
    (
        0u8..=4,
        proptest::collection::vec((part(), state), 0..5),
        proptest::collection::vec((any::<u8>(), 0u8..=4), 0..4),
        prop_oneof![Just(FirstLast::Offered), Just(FirstLast::Withheld)],
        0i64..3,
        proptest::bool::weighted(0.1),
        proptest::bool::weighted(0.8),
    )
        .prop_map(|(block_bits, ranges, exclude, first_last, created, deleting, readable)| PoolParts {
            block_bits,
            ranges,
            exclude,
            first_last,
            created,
            deleting,
            readable,
        })
}

/// Pools `a` and `b` and so on, and what remains of those that can't be read; `a` always can. `b` has the smaller uid,
/// so that the uid and not the name decides between equal ages.
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
        let ranges = Ranges {
            block_prefix: family.bits() - part.block_bits,
            cidrs,
            exclude: part.exclude.iter().map(|exclusion| cidr_of(universe, *exclusion)).collect(),
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
enum Step {
    Take(Part, Occupant),
    Release(Index),
    Stand(u8, Vec<Part>),
    /// The next block of a pool for a node with some of the blocks that are claimed.
    Grant(Index, Vec<Index>),
    Pools(Vec<PoolParts>),
}

fn occupant() -> impl Strategy<Value = Occupant> {
    prop_oneof![
        3 => Just(Occupant::Claim),
        1 => Just(Occupant::Pending),
        1 => (1u64..3).prop_map(|revision| Occupant::LostClaim(Revision(revision))),
        1 => Just(Occupant::Unreadable("x".into())),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let small = || (any::<u8>(), 0u8..=5);
    prop_oneof![
        4 => (small(), occupant()).prop_map(|(part, occupant)| Step::Take(part, occupant)),
        4 => any::<Index>().prop_map(Step::Release),
        2 => (0u8..3, proptest::collection::vec(small(), 0..4))
            .prop_map(|(node, parts)| Step::Stand(node, parts)),
        6 => (any::<Index>(), proptest::collection::vec(any::<Index>(), 0..3))
            .prop_map(|(pool, mine)| Step::Grant(pool, mine)),
        1 => proptest::collection::vec(pool_parts(), 1..4).prop_map(Step::Pools),
    ]
}

/// What is taken and which pools there are, as they were told, and nothing else.
#[derive(Debug, Default)]
struct Model {
    pools: BTreeMap<PoolName, Pool>,
    reserved: Vec<Reservation>,
    taken: BTreeSet<(Cidr, Occupant)>,
    carried: BTreeMap<NodeName, AddressSet>,
}

impl Model {
    /// All that is taken, with what stands on CiliumNodes as single addresses.
    fn is_taken(&self, block: Cidr) -> bool {
        self.taken.iter().any(|(cidr, _)| cidr.overlaps(block))
            || self.carried.values().any(|carried| carried.intersects(block))
    }

    fn is_held(&self, block: Cidr) -> bool {
        [Occupant::Claim, Occupant::Pending]
            .into_iter()
            .any(|occupant| self.taken.contains(&(block, occupant)))
    }

    /// The state of the range that the block lies wholly in, if no address of it is an older pool's.
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
        let withholds_ends =
            block.family() == Family::V4 && pool.first_last == FirstLast::Withheld && block.size() > 2;
        let offers = |member| {
            let is_excluded = ranges.exclude.iter().any(|exclusion| exclusion.contains(member));
            !is_excluded && (!withholds_ends || !ends.contains(&member))
        };
        !pool.deleting
            && self.own_state(pool, block) == Some(RangeState::Active)
            && (block.first()..=block.last()).any(|position| offers(address(position)))
    }

    fn free(&self, universe: Cidr, pool: &Pool) -> Vec<Cidr> {
        blocks(universe, pool)
            .filter(|block| self.is_usable(pool, *block) && !self.is_taken(*block))
            .collect()
    }

    fn total(&self, universe: Cidr, pool: &Pool) -> u128 {
        let counts = |block: &Cidr| {
            self.is_usable(pool, *block) || self.own_state(pool, *block).is_some() && self.is_held(*block)
        };
        blocks(universe, pool).filter(counts).count() as u128
    }

    /// The order of offers, by its definition.
    fn candidates(&self, universe: Cidr, pool: &Pool, mine: &[Cidr]) -> Vec<Cidr> {
        let mut free = self.free(universe, pool);
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

fn blocks(universe: Cidr, pool: &Pool) -> impl Iterator<Item = Cidr> {
    let prefix = pool.families[&universe.family()].block_prefix;
    let first = Cidr::containing(universe.first_address(), prefix).unwrap();
    (0..universe.size() / first.size()).map(move |n| first.same_size_at(universe.first() + n * first.size()))
}

fn apply(ledger: &mut Ledger, model: &mut Model, universe: Cidr, step: Step) -> Result<(), TestCaseError> {
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
        Step::Stand(node, parts) => {
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
            let space = ledger.free_blocks(name, universe.family()).unwrap();
            if let Some(block) = space.candidates(&mine).next() {
                // Never overlapping: whatever was granted before, and by whichever pool.
                prop_assert!(!model.is_taken(block), "{} is taken", block);
                prop_assert_eq!(ledger.overlapping_claims(block).next(), None);
                ledger.take(block, Occupant::Claim);
                model.taken.insert((block, Occupant::Claim));
            }
        }
        Step::Pools(parts) => {
            (model.pools, model.reserved) = pools_of(universe, &parts);
            ledger.set_pools(&model.pools, &model.reserved);
        }
    }
    Ok(())
}

/// Every pool's free blocks, counts and order of offers are those of the model: nothing overlaps, nothing is lost.
fn compare_all(ledger: &Ledger, model: &Model, universe: Cidr, mine: &[Cidr]) -> Result<(), TestCaseError> {
    for pool in model.pools.values() {
        let space = ledger.free_blocks(&pool.name, universe.family()).unwrap();
        let free = model.free(universe, pool);
        prop_assert_eq!(&space.iter().collect::<Vec<_>>(), &free);
        let counts = ledger.counts(&pool.name, universe.family());
        let total = model.total(universe, pool);
        prop_assert_eq!(counts, Some(Counts { total, free: free.len() as u128 }));
        for mine in [&[], mine] {
            let order: Vec<Cidr> = space.candidates(mine).collect();
            prop_assert_eq!(&order, &model.candidates(universe, pool, mine), "mine: {:?}", mine);
        }
        for block in blocks(universe, pool) {
            prop_assert_eq!(space.is_free(block), free.contains(&block));
            prop_assert_eq!(ledger.is_taken(block), model.is_taken(block));
        }
    }
    prop_assert_eq!(ledger.check(&model.pools, &model.reserved), vec![]);
    Ok(())
}

proptest! {
    /// Traps 5 and 21: what is kept step by step is what the definition says at every step, and what is computed anew.
    #[test]
    fn agrees_with_a_list_that_is_searched(
        universe in universe(),
        pools in proptest::collection::vec(pool_parts(), 1..4),
        steps in proptest::collection::vec((step(), proptest::collection::vec(part(), 0..4)), 0..30),
    ) {
        let (mut ledger, mut model) = (Ledger::new(), Model::default());
        apply(&mut ledger, &mut model, universe, Step::Pools(pools))?;
        for (step, mine) in steps {
            apply(&mut ledger, &mut model, universe, step)?;
            let mine: Vec<Cidr> = mine.into_iter().map(|part| cidr_of(universe, part)).collect();
            compare_all(&ledger, &model, universe, &mine)?;
        }

        // A restart: the same objects, seen in another order, give the same ledger.
        let mut rebuilt = Ledger::new();
        for (node, carried) in model.carried.iter().rev() {
            rebuilt.set_carried(node, carried.clone());
        }
        for (cidr, occupant) in model.taken.iter().rev() {
            rebuilt.take(*cidr, occupant.clone());
        }
        rebuilt.set_pools(&model.pools, &model.reserved);
        prop_assert_eq!(&rebuilt, &ledger);
    }

    #[test]
    fn release_is_the_inverse_of_take(
        universe in universe(),
        pools in proptest::collection::vec(pool_parts(), 1..4),
        steps in proptest::collection::vec(step(), 0..20),
        taken in proptest::collection::vec((part(), occupant()), 1..8),
    ) {
        let (mut ledger, mut model) = (Ledger::new(), Model::default());
        apply(&mut ledger, &mut model, universe, Step::Pools(pools))?;
        for step in steps {
            apply(&mut ledger, &mut model, universe, step)?;
        }
        let before = ledger.clone();
        let mut noted = Vec::new();
        for (part, occupant) in taken {
            let cidr = cidr_of(universe, part);
            if ledger.take(cidr, occupant.clone()) {
                noted.push((cidr, occupant));
            }
        }
        // In the order in which they were taken, not in reverse: the order must not matter.
        for (cidr, occupant) in noted {
            prop_assert!(ledger.release(cidr, &occupant));
        }
        prop_assert_eq!(ledger, before);
    }
}

fn pools(pools: impl IntoIterator<Item = Pool>) -> BTreeMap<PoolName, Pool> {
    pools.into_iter().map(|pool| (pool.name.clone(), pool)).collect()
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

/// Renders the free blocks of a pool.
fn free(ledger: &Ledger, pool: &str) -> String {
    let space = ledger.free_blocks(&pool.into(), Family::V4).unwrap();
    space.iter().map(|block| block.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_older_pool_keeps_the_whole_of_its_ranges() {
    let mut older = pool("older", 27, &["10.0.0.64/26"]);
    older.families.get_mut(&Family::V4).unwrap().cidrs.insert(cidr("10.0.1.0/28"), RangeState::Draining);
    let newcomer = Pool { created: at(1), ..pool("newcomer", 26, &["10.0.0.0/24", "10.0.1.0/25"]) };
    let mut ledger = Ledger::new();
    ledger.set_pools(&pools([older.clone(), newcomer.clone()]), []);
    assert_eq!(free(&ledger, "older"), "10.0.0.64/27 10.0.0.96/27");
    assert_eq!(free(&ledger, "newcomer"), "10.0.0.0/26 10.0.0.128/26 10.0.0.192/26 10.0.1.64/26");
    let lost = |mine, theirs| Overlap { mine: cidr(mine), older: "older".into(), theirs: cidr(theirs) };
    assert_eq!(ledger.overlaps(&"older".into()), []);
    assert_eq!(
        ledger.overlaps(&"newcomer".into()),
        [lost("10.0.0.0/24", "10.0.0.64/26"), lost("10.0.1.0/25", "10.0.1.0/28")]
    );
    // A pool that is being deleted gives out nothing, and still keeps its ranges: blocks of it may be held.
    older.deleting = true;
    ledger.set_pools(&pools([older, newcomer.clone()]), []);
    assert_eq!(free(&ledger, "older"), "");
    assert_eq!(ledger.overlaps(&"newcomer".into()).len(), 2);
    ledger.set_pools(&pools([newcomer]), []);
    assert_eq!(ledger.overlaps(&"newcomer".into()), []);
    assert_eq!(ledger.counts(&"newcomer".into(), Family::V4), Some(Counts { total: 6, free: 6 }));
    assert_eq!(ledger.free_blocks(&"older".into(), Family::V4), None);
}

/// Trap 18: a pool that can't be read keeps its age and its ranges, and takes nothing from an older one.
#[test]
fn the_ranges_of_a_pool_that_cannot_be_read_are_kept_from_younger_ones_only() {
    let oldest = pool("oldest", 27, &["10.0.0.0/26"]);
    let invalid = Pool { created: at(1), ..pool("invalid", 27, &["10.0.0.0/25"]) };
    let youngest = Pool { created: at(2), ..pool("youngest", 27, &["10.0.0.0/24"]) };
    let reserved = Reservation {
        name: invalid.name.clone(),
        uid: invalid.uid.clone(),
        created: invalid.created,
        cidrs: [cidr("10.0.0.0/25")].into(),
    };
    let mut before = Ledger::new();
    before.take(cidr("10.0.0.64/27"), Occupant::Claim);
    before.set_pools(&pools([oldest.clone(), invalid.clone(), youngest.clone()]), []);
    let mut ledger = before.clone();
    ledger.set_pools(&pools([oldest.clone(), youngest.clone()]), [&reserved]);
    assert_eq!(free(&ledger, "oldest"), "10.0.0.0/27 10.0.0.32/27");
    assert_eq!(ledger.free_blocks(&"invalid".into(), Family::V4), None);
    assert_eq!(free(&ledger, "youngest"), "10.0.0.128/27 10.0.0.160/27 10.0.0.192/27 10.0.0.224/27");
    assert_eq!(ledger.overlaps(&"youngest".into()), before.overlaps(&"youngest".into()));
    // What nobody holds any more stays reserved, and is the pool's when it can be read again.
    ledger.release(cidr("10.0.0.64/27"), &Occupant::Claim);
    ledger.take(cidr("10.0.0.64/27"), Occupant::Claim);
    assert_eq!(ledger.check(&pools([oldest.clone(), youngest.clone()]), [&reserved]), []);
    ledger.set_pools(&pools([oldest, invalid, youngest]), []);
    assert_eq!(ledger, before);
}

#[test]
fn a_block_held_in_a_range_that_gives_out_no_more_still_counts() {
    let mut cordoned = pool("a", 27, &["10.0.0.0/26", "10.0.0.64/26"]);
    let mut ledger = Ledger::new();
    ledger.set_pools(&pools([cordoned.clone()]), []);
    ledger.take(cidr("10.0.0.64/27"), Occupant::Claim);
    assert_eq!(ledger.counts(&"a".into(), Family::V4), Some(Counts { total: 4, free: 3 }));
    cordoned.families.get_mut(&Family::V4).unwrap().cidrs.insert(cidr("10.0.0.64/26"), RangeState::Cordoned);
    ledger.set_pools(&pools([cordoned]), []);
    assert_eq!(ledger.counts(&"a".into(), Family::V4), Some(Counts { total: 3, free: 2 }));
    ledger.release(cidr("10.0.0.64/27"), &Occupant::Claim);
    assert_eq!(ledger.counts(&"a".into(), Family::V4), Some(Counts { total: 2, free: 2 }));
}

#[test]
fn nothing_is_free_while_a_claim_passes_from_pending_to_held() {
    let block = cidr("10.0.0.0/27");
    let mut ledger = Ledger::new();
    ledger.set_pools(&pools([pool("a", 27, &["10.0.0.0/26"])]), []);
    ledger.take(block, Occupant::Pending);
    ledger.take(block, Occupant::Claim);
    assert_eq!(ledger.overlapping_claims(cidr("10.0.0.0/8")).collect::<Vec<_>>(), [block]);
    ledger.release(block, &Occupant::Pending);
    ledger.take(cidr("10.0.0.4/30"), Occupant::Carried("n".into()));
    ledger.release(block, &Occupant::Claim);
    assert_eq!(free(&ledger, "a"), "10.0.0.32/27");
}

#[test]
fn the_check_names_what_is_wrong() {
    let pools = pools([pool("a", 27, &["10.0.0.0/26"])]);
    let (block, node) = (cidr("10.0.0.0/27"), NodeName::from("n"));
    let mut sound = Ledger::new();
    sound.set_pools(&pools, []);
    sound.set_carried(&node, AddressSet::from_iter([block]));
    let check = |damage: fn(&mut Ledger), expected: &str| {
        let mut ledger = sound.clone();
        damage(&mut ledger);
        let found: Vec<String> = ledger.check(&pools, []).iter().map(ToString::to_string).collect();
        assert_eq!(found.join("; "), expected);
    };
    check(|_| {}, "");
    check(
        |ledger| {
            let space = ledger.free_blocks_mut(&"a".into(), Family::V4).unwrap();
            space.vacate(cidr("10.0.0.0/27"), std::iter::empty());
        },
        "ipv4 of pool a: a block counts as free that is taken",
    );
    check(
        |ledger| {
            ledger.free_blocks_mut(&"a".into(), Family::V4).unwrap().occupy(cidr("10.0.0.32/27"));
        },
        "ipv4 of pool a: a block counts as taken that is free",
    );
    check(
        |ledger| ledger.free_blocks_mut(&"a".into(), Family::V4).unwrap().hold(cidr("10.0.0.0/27")),
        "ipv4 of pool a: the order of the free blocks is not what they imply",
    );
    check(
        |ledger| ledger.set_pools(&BTreeMap::new(), []),
        "ipv4 of pool a: there is a space where none should be, or none where one should",
    );
    check(
        |ledger| {
            ledger.carried.clear();
        },
        "what is noted for CiliumNode n is not what is taken for it",
    );
}
