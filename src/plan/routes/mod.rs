//! Routes: which prefixes each node announces, so that routers send the traffic of its pods to it.
//!
//! - [`announced()`]: the prefixes of every node, and why a block is not announced.
//! - [`frr_k8s`]: the FRRConfigurations by which they are announced.
//! - [`compare`]: the routes that daemons run, compared with them.
//! - `withdrawal`: whether the route of a block is gone, before the block cools.
//!
//! Keeps one invariant: no address is announced for two nodes.

pub mod announced;
pub mod compare;
pub mod frr_k8s;
pub(super) mod withdrawal;

pub use announced::{NodeRoutes, NotAnnounced, announced, next_hops};
pub use frr_k8s::routes;
