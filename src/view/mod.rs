//! What is told of the world: counts, conditions, snapshots and block events. Derived from it, and never decided on.

pub mod block_event;
pub mod conditions;
pub mod snapshot;
pub mod tally;
