//! Pod address blocks for the nodes of a Cilium cluster (`ipam: crd`), from pools that select nodes by label.
//!
//! The library behind the `cilium-node-ipam` binary. `docs/architecture.md` is the map of it.
//!
//! The modules below are the rooms of the program, listed from the bottom up: a room imports only rooms that are listed
//! before it. So `net` imports no other room, and `cli` may import all of them. `tests/it/layout.rs` enforces this.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "`cli::screen` escapes the texts of other writers"
)]

// CIDRs, and sets and indexes of addresses.
pub mod net;

// The vocabulary: objects, observations, requests, outcomes, plans, findings.
pub mod model;

// Which blocks there are, and who occupies which addresses.
pub mod ledger;

// What one mode of Cilium demands, and nothing else does.
pub mod publisher;

// What is known of the cluster: takes in observations and outcomes, and decides nothing.
pub mod world;

// What is told about the world: counts, conditions, snapshots, block events.
pub mod view;

// The decisions: what to do for one node or one pool.
pub mod plan;

// The future of a world, by the same decisions.
pub mod forecast;

// Which prefixes each node announces, and by which writes.
pub mod routes;

// The Kubernetes objects: their types and schemas, and their conversion into the model.
pub mod wire;

// Views as pages for a browser.
pub mod page;

// What the process tells about itself: metrics, readiness, event reasons, logs.
pub mod telemetry;

// The loop, and everything that talks to an API server.
pub mod controller;

// The commands and their arguments.
pub mod cli;

// Tests that the documents say what the program says.
#[cfg(test)]
mod docs;
