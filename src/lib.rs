//! Pod address blocks for the nodes of a Cilium cluster (`ipam: crd`), from pools that select nodes by label.
//!
//! The library behind the `cilium-node-ipam` binary. `docs/architecture.md` is the map of it.

pub mod api;
pub mod cilium;
pub mod cli;
pub mod controller;
pub mod ipam;
pub mod telemetry;
pub mod world;

#[cfg(test)]
mod docs;
