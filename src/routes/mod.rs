//! Routes: which prefixes each node announces, so that routers send the traffic of its pods to it.
//!
//! - [`announced()`]: the prefixes of every node, and why a block is not announced.
//! - `frr_k8s`: the FRRConfigurations by which they are announced.
//! - `gobgp`: the paths in the table of a GoBGP daemon by which they are announced.
//! - `twice`: whether Cilium announces them too.
//! - [`compare`]: the routes that daemons run, compared with them.
//!
//! Keeps one invariant: no address is announced for two nodes.

pub mod announced;
pub mod compare;
mod duplicate;
mod frr_k8s;
mod gobgp;

pub use announced::{NodeRoutes, NotAnnounced, announced, is_shared, next_hops};

use crate::model::leadership::Leadership;
use crate::model::plan::RoutesPlan;
use crate::model::time::Now;
use crate::world::World;
use crate::world::exporter::Exporter;

/// The requests that make routers know the routes of all nodes, and the problems. Only the leader makes them.
pub fn routes(world: &World, now: Now) -> RoutesPlan {
    if world.leadership() != Leadership::Leads {
        return RoutesPlan::default();
    }
    match world.exporter() {
        Some(Exporter::FrrK8s(frr)) => frr_k8s::routes(world, frr, now),
        Some(Exporter::Gobgp(gobgp)) => gobgp::routes(world, gobgp, now),
        None => RoutesPlan::default(),
    }
}
