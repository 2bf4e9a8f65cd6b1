//! Pod address blocks for the nodes of a Cilium cluster (`ipam: crd`), from pools that select nodes by label.
//!
//! The library behind the `cilium-node-ipam` binary. `docs/architecture.md` is the map of it.
//!
//! The rooms, from the bottom; each imports only rooms above it in this list, and `tests/it/layout.rs` enforces it.

pub mod net;

pub mod model;

pub mod ledger;

pub mod publisher;

pub mod world;

pub mod view;

pub mod plan;

pub mod wire;

pub mod telemetry;

pub mod controller;

pub mod cli;

#[cfg(test)]
mod docs;
