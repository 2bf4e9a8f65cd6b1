//! Routes: which prefixes each node announces, so that routers send the traffic of its pods to it.
//!
//! Does not know how they are announced. Keeps one invariant: no address is announced for two nodes.

pub mod announced;

pub use announced::{NodeRoutes, NotAnnounced, announced, next_hops};
