//! The ledger compared with a model of it in random cases, and tests of single cases.

mod model;

use proptest::prelude::*;

use self::model::{Model, Step, apply, at, cidr_of, compare_all, occupant, part, pool_parts, step, universe};
use super::*;
use crate::ledger::grid::tests::pool;
use crate::model::pool::RangeState;

proptest! {
    /// After every step, the ledger has the contents that the definitions demand and that a new ledger would compute.
    /// In other systems, editing a pool lost track of blocks that were held.
    #[test]
    fn agrees_with_a_list_that_is_searched(
        universe in universe(),
        pools in proptest::collection::vec(pool_parts(), 1..4),
        steps in proptest::collection::vec((step(), proptest::collection::vec(part(), 0..4)), 0..30),
    ) {
        let (mut ledger, mut model) = (Ledger::default(), Model::default());
        apply(&mut ledger, &mut model, universe, Step::Pools(pools))?;
        for (step, mine) in steps {
            apply(&mut ledger, &mut model, universe, step)?;
            let mine: Vec<Cidr> = mine.into_iter().map(|part| cidr_of(universe, part)).collect();
            compare_all(&ledger, &model, universe, &mine)?;
        }

        // After a restart the same objects, seen in another order, give the same ledger.
        let mut rebuilt = Ledger::default();
        for (node, carried) in model.carried.iter().rev() {
            rebuilt.set_carried(node, carried.clone());
        }
        for (cidr, occupant) in model.taken.iter().rev() {
            rebuilt.take(*cidr, occupant.clone());
        }
        rebuilt.set_pools(model.pools.values(), &model.reserved);
        prop_assert_eq!(&rebuilt, &ledger);
    }

    #[test]
    fn release_is_the_inverse_of_take(
        universe in universe(),
        pools in proptest::collection::vec(pool_parts(), 1..4),
        steps in proptest::collection::vec(step(), 0..20),
        taken in proptest::collection::vec((part(), occupant()), 1..8),
    ) {
        let (mut ledger, mut model) = (Ledger::default(), Model::default());
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
        // Released in the order in which they were taken, not in reverse: the order must not matter.
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
    let free_blocks = ledger.levels(&pool.into(), Family::V4).next().unwrap();
    free_blocks.iter().map(|block| block.to_string()).collect::<Vec<_>>().join(" ")
}

/// All blocks of a pool of one size, and the free ones.
fn counts(ledger: &Ledger, pool: &str, family: Family) -> (u128, u128) {
    let free_blocks = ledger.levels(&pool.into(), family).next().unwrap();
    (free_blocks.total_count(), free_blocks.free_count())
}

#[test]
fn the_older_pool_keeps_the_whole_of_its_ranges() {
    let mut older = pool("older", 27, &["10.0.0.64/26"]);
    older.families.get_mut(&Family::V4).unwrap().cidrs.insert(cidr("10.0.1.0/28"), RangeState::Draining);
    let newcomer = Pool { created: at(1), ..pool("newcomer", 26, &["10.0.0.0/24", "10.0.1.0/25"]) };
    let mut ledger = Ledger::default();
    ledger.set_pools(&[older.clone(), newcomer.clone()], []);
    assert_eq!(free(&ledger, "older"), "10.0.0.64/27 10.0.0.96/27");
    assert_eq!(free(&ledger, "newcomer"), "10.0.0.0/26 10.0.0.128/26 10.0.0.192/26 10.0.1.64/26");
    let lost = |mine, theirs| Overlap { mine: cidr(mine), older: "older".into(), theirs: cidr(theirs) };
    assert_eq!(ledger.overlaps(&"older".into()), []);
    assert_eq!(
        ledger.overlaps(&"newcomer".into()),
        [lost("10.0.0.0/24", "10.0.0.64/26"), lost("10.0.1.0/25", "10.0.1.0/28")]
    );
    // A pool that is being deleted gives out nothing, and still keeps its ranges, because nodes may hold blocks of it.
    older.deleting = true;
    ledger.set_pools(&[older, newcomer.clone()], []);
    assert_eq!(free(&ledger, "older"), "");
    assert_eq!(ledger.overlaps(&"newcomer".into()).len(), 2);
    ledger.set_pools(&[newcomer], []);
    assert_eq!(ledger.overlaps(&"newcomer".into()), []);
    assert_eq!(counts(&ledger, "newcomer", Family::V4), (6, 6));
    assert_eq!(ledger.levels(&"older".into(), Family::V4).next(), None);
}

/// A pool that can't be read keeps its age and its ranges, and takes nothing from an older one. In other systems one
/// invalid field of a pool threw away all that it had allocated.
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
    let mut before = Ledger::default();
    before.take(cidr("10.0.0.64/27"), Occupant::Claim);
    before.set_pools(&[oldest.clone(), invalid.clone(), youngest.clone()], []);
    let mut ledger = before.clone();
    ledger.set_pools(&[oldest.clone(), youngest.clone()], [&reserved]);
    assert_eq!(free(&ledger, "oldest"), "10.0.0.0/27 10.0.0.32/27");
    assert_eq!(ledger.levels(&"invalid".into(), Family::V4).next(), None);
    assert_eq!(free(&ledger, "youngest"), "10.0.0.128/27 10.0.0.160/27 10.0.0.192/27 10.0.0.224/27");
    assert_eq!(ledger.overlaps(&"youngest".into()), before.overlaps(&"youngest".into()));
    // A block that is released meanwhile stays reserved, and is free again when its pool can be read.
    ledger.release(cidr("10.0.0.64/27"), &Occupant::Claim);
    ledger.take(cidr("10.0.0.64/27"), Occupant::Claim);
    assert_eq!(ledger.check(&[oldest.clone(), youngest.clone()], [&reserved]), []);
    ledger.set_pools(&[oldest, invalid, youngest], []);
    assert_eq!(ledger, before);
}

#[test]
fn a_block_held_in_a_range_that_gives_out_no_more_still_counts() {
    let mut cordoned = pool("a", 27, &["10.0.0.0/26", "10.0.0.64/26"]);
    let mut ledger = Ledger::default();
    ledger.set_pools(&[cordoned.clone()], []);
    ledger.take(cidr("10.0.0.64/27"), Occupant::Claim);
    assert_eq!(counts(&ledger, "a", Family::V4), (4, 3));
    cordoned.families.get_mut(&Family::V4).unwrap().cidrs.insert(cidr("10.0.0.64/26"), RangeState::Cordoned);
    ledger.set_pools(&[cordoned], []);
    assert_eq!(counts(&ledger, "a", Family::V4), (3, 2));
    ledger.release(cidr("10.0.0.64/27"), &Occupant::Claim);
    assert_eq!(counts(&ledger, "a", Family::V4), (2, 2));
}

#[test]
fn nothing_is_free_while_a_claim_passes_from_pending_to_held() {
    let block = cidr("10.0.0.0/27");
    let mut ledger = Ledger::default();
    ledger.set_pools(&[pool("a", 27, &["10.0.0.0/26"])], []);
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
    let mut sound = Ledger::default();
    sound.set_pools(pools.values(), []);
    sound.set_carried(&node, AddressSet::from_iter([block]));
    let check = |damage: fn(&mut Ledger), expected: &str| {
        let mut ledger = sound.clone();
        damage(&mut ledger);
        let found: Vec<String> = ledger.check(pools.values(), []).iter().map(ToString::to_string).collect();
        assert_eq!(found.join("; "), expected);
    };
    check(|_| {}, "");
    check(
        |ledger| {
            let free_blocks = levels_mut(&mut ledger.pools, &"a".into(), Family::V4).next().unwrap();
            free_blocks.vacate(cidr("10.0.0.0/27"), std::iter::empty());
        },
        "ipv4 /27 of pool a: a taken block counts as free",
    );
    check(
        |ledger| {
            levels_mut(&mut ledger.pools, &"a".into(), Family::V4)
                .next()
                .unwrap()
                .occupy(cidr("10.0.0.32/27"));
        },
        "ipv4 /27 of pool a: a free block counts as taken",
    );
    check(
        |ledger| {
            levels_mut(&mut ledger.pools, &"a".into(), Family::V4).next().unwrap().hold(cidr("10.0.0.0/27"));
        },
        "ipv4 /27 of pool a: the free blocks are in the wrong order",
    );
    check(
        |ledger| ledger.set_pools([], []),
        "the index of declared ranges does not match the pools; ipv4 /27 of pool a: free blocks exist for closed \
         ranges, or do not exist for open ones",
    );
    check(
        |ledger| {
            ledger.carried.clear();
        },
        "the ranges on CiliumNode n do not match the ledger",
    );
}

/// An object that can't be read may name any range, however large.
#[test]
fn the_largest_range_takes_and_frees_a_pool_of_the_smallest_blocks() {
    let range = "fd00::/64".parse::<Cidr>().unwrap();
    let pools: BTreeMap<PoolName, Pool> = [("p".into(), pool("p", 128, &["fd00::/64"]))].into();
    let mut ledger = Ledger::default();
    ledger.set_pools(pools.values(), []);
    for cidr in [range, range.enlarged(1), "::/0".parse().unwrap()] {
        let occupant = Occupant::unreadable(Kind::Claim, "odd");
        assert!(ledger.take(cidr, occupant.clone()));
        assert_eq!(counts(&ledger, "p", Family::V6), (1 << 64, 0));
        assert!(ledger.release(cidr, &occupant));
        assert_eq!(counts(&ledger, "p", Family::V6), (1 << 64, 1 << 64));
    }
    assert_eq!(ledger.check(pools.values(), []), []);
}
