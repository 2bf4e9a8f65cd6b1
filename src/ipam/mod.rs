//! The allocation core: which block goes to which node.
//!
//! Pure: no Kubernetes client, no tokio, no clock, no randomness, no order that depends on hashing. A test reads
//! these sources and enforces it (`tests/it/layout.rs`).

pub mod account;
pub mod addresses;
pub mod block;
pub mod claim;
pub mod expand;
pub mod finding;
pub mod grid;
pub mod ledger;
pub mod names;
pub mod plan;
pub mod pool;
pub mod prefixes;
pub mod report;
pub mod snapshot;
pub mod space;
mod stable;
pub mod tally;

pub(crate) use stable::stable_names;
