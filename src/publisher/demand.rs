//! How many of its addresses a node uses, and whether the two thresholds of a pool's `expand` ask for more.

use crate::model::pool::Expand;

/// How many addresses of one family a node has, and how many of them it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Offered addresses, published or about to be.
    pub capacity: u128,
    /// Of these, addresses in use.
    pub used: u128,
    /// Of these, addresses that are not used and that no new pod can get: they are in a release handshake, or kept for
    /// an owner.
    pub unavailable: u128,
}

impl Demand {
    /// Addresses that a new pod could get.
    #[must_use]
    pub const fn free(&self) -> u128 {
        self.capacity.saturating_sub(self.used).saturating_sub(self.unavailable)
    }

    /// Whether neither threshold asks for more: use is at most `used_above` percent, and at least `free_below`
    /// addresses are free.
    #[must_use]
    pub fn is_met(&self, expand: Expand) -> bool {
        self.used.saturating_mul(100) <= self.capacity.saturating_mul(u128::from(expand.used_above))
            && self.free() >= u128::from(expand.free_below)
    }

    /// The same use of `addresses` more addresses.
    #[must_use]
    pub const fn grown_by(mut self, addresses: u128) -> Self {
        self.capacity = self.capacity.saturating_add(addresses);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXPAND: Expand = Expand { used_above: 80, free_below: 8 };

    #[test]
    fn either_threshold_triggers() {
        for (capacity, used, unavailable, met) in [
            (0, 0, 0, false),
            (30, 22, 0, true),
            (30, 23, 0, false), // 7 free
            (100, 80, 0, true),
            (100, 81, 0, false), // 81 %
            (30, 20, 2, true),
            (30, 20, 3, false), // 7 free
            (10, 12, 0, false), // use outside what is offered never wraps
        ] {
            let demand = Demand { capacity, used, unavailable };
            assert_eq!(demand.is_met(EXPAND), met, "{demand:?}");
        }
    }

    proptest! {
        #[test]
        fn more_addresses_never_ask_for_more(
            capacity in 0u128..5000, used in 0u128..5000, unavailable in 0u128..50, more in 0u128..5000,
            used_above in 1u32..=100, free_below in 0u32..100,
        ) {
            let expand = Expand { used_above, free_below };
            let demand = Demand { capacity, used, unavailable };
            prop_assert!(!demand.is_met(expand) || demand.grown_by(more).is_met(expand));
        }
    }
}
