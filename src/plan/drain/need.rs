//! Which blocks a node needs: the use of the remaining blocks against its thresholds.

use std::collections::BTreeSet;

use crate::model::address_class::AddressClass;
use crate::model::claim::{Claim, ClaimState};
use crate::model::pool::{Expand, Reclaim};
use crate::net::cidr::Cidr;
use crate::plan::subject::{FirstPool, Subject};
use crate::publisher::demand::Demand;

impl<'a> Subject<'a> {
    /// The thresholds of the node in a class. They are those of its first pool, or the defaults if no pool selects
    /// it.
    pub(super) fn expand_of(&self, class: &AddressClass) -> Expand {
        self.first_pool(class).map(FirstPool::pool).map_or(Expand::DEFAULT, |pool| pool.expand)
    }

    /// The held blocks of a class that must leave as soon as the node can do without them: their pool is being
    /// deleted, or their range drains.
    pub(in crate::plan) fn held_that_must_leave(
        &self,
        class: &AddressClass,
    ) -> impl Iterator<Item = &'a Claim> {
        self.occupied()
            .filter(move |claim| claim.state == ClaimState::Held && self.is_of(claim, class))
            .filter(|claim| self.world.must_leave(claim))
    }

    /// Of these, the blocks that can leave a node that still exists.
    pub(in crate::plan) fn can_leave_of(&self, class: &AddressClass) -> impl Iterator<Item = &'a Claim> {
        self.held_that_must_leave(class).filter(|claim| self.publisher.may_leave(self.carrier, claim).is_ok())
    }

    /// Whether the remaining blocks suffice without these: for an agent that starts, and by the thresholds of the
    /// node.
    pub(super) fn can_do_without(&self, class: &AddressClass, blocks: &BTreeSet<Cidr>) -> bool {
        let rest = self.demand_without(class, blocks);
        rest.capacity >= self.publisher.minimum_for_start(self.carrier, class)
            && !self.publisher.is_short(rest, self.expand_of(class))
    }

    /// As many of these blocks of a class as the node can do without, in this order, when it lacks `gone` too.
    pub(super) fn dispensable_of(
        &self,
        class: &AddressClass,
        blocks: &[&'a Claim],
        mut gone: BTreeSet<Cidr>,
    ) -> Vec<&'a Claim> {
        let mut dispensable = Vec::new();
        for claim in blocks {
            gone.insert(claim.cidr);
            if self.can_do_without(class, &gone) {
                dispensable.push(*claim);
            } else {
                gone.remove(&claim.cidr);
            }
        }
        dispensable
    }
}

/// Whether a node with this demand in a class has a surplus block that offers this number of addresses. All addresses
/// in use count, also those of that block.
pub(super) fn is_surplus(demand: Demand, offered: u128, reclaim: Reclaim, expand: Expand) -> bool {
    let rest = Demand { capacity: demand.capacity.saturating_sub(offered), ..demand };
    rest.used.saturating_mul(100) < rest.capacity.saturating_mul(u128::from(reclaim.used_below))
        && rest.free() > u128::from(expand.free_below).saturating_mul(2)
        && rest.is_met(expand)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::model::pool::ReclaimMode;

    const EXPAND: Expand = Expand::DEFAULT;

    fn reclaim(used_below: u32) -> Reclaim {
        Reclaim { mode: ReclaimMode::Enabled, used_below, after: Duration::from_secs(600) }
    }

    #[test]
    fn a_block_is_surplus_where_little_of_the_rest_would_be_used() {
        let demand = |capacity, used| Demand { capacity, used, unavailable: 0 };
        for (capacity, used, offered, surplus) in [
            (64, 12, 32, true),
            (64, 13, 32, false), // 40.6 % of 32
            (32, 2, 16, false),  // 14 free, and twice 8 are to stay
            (34, 1, 16, true),
            (32, 0, 32, false),
        ] {
            let found = is_surplus(demand(capacity, used), offered, reclaim(40), EXPAND);
            assert_eq!(found, surplus, "{used} of {capacity} without {offered}");
        }
    }

    /// The numbers of `docs/planning/sizing.md`: a /28 has 14 addresses for pods, and a /27 has 30.
    #[test]
    fn a_second_small_block_is_surplus_with_a_low_threshold_only() {
        for (offered, used, free_below, surplus) in [
            (14, 5, 8, false), // 9 stay free, and more than 16 must
            (14, 0, 8, false),
            (14, 0, 7, false),
            (14, 5, 4, true),  // 9 free, and 36 % of 14
            (14, 6, 4, false), // 43 % of 14
            (30, 5, 8, true),
            (30, 12, 8, false), // 40 % of 30
        ] {
            let demand = Demand { capacity: 2 * offered, used, unavailable: 0 };
            let expand = Expand { free_below, ..EXPAND };
            let found = is_surplus(demand, offered, reclaim(40), expand);
            assert_eq!(found, surplus, "{used} of twice {offered} with freeBelow {free_below}");
        }
    }

    proptest! {
        /// What is taken back is not needed again at the same use, nor at a little more.
        #[test]
        fn what_is_taken_back_is_not_asked_for_again(
            capacity in 0u128..5000, used in 0u128..5000, offered in 0u128..1024, more in 0u128..9,
            used_below in 0u32..80,
        ) {
            let demand = Demand { capacity, used, unavailable: 0 };
            if is_surplus(demand, offered, reclaim(used_below), EXPAND) {
                let rest = Demand { capacity: capacity - offered, used: used + more, unavailable: 0 };
                prop_assert!(rest.free() >= u128::from(EXPAND.free_below));
                let as_before = Demand { used, ..rest };
                prop_assert!(as_before.is_met(EXPAND));
            }
        }
    }
}
