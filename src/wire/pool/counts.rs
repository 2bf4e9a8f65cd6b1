//! Counts in the status of a pool: whole numbers that every JSON reader holds exactly.

use crate::wire::MAX_COUNT;

/// A count as the world has it. Only the controller writes it, and never a negative one.
pub(super) fn from_wire(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// A count as the API writes it. The world has capped it already.
pub(super) fn to_wire(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(MAX_COUNT).min(MAX_COUNT)
}
