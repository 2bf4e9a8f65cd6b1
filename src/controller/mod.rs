//! Everything that touches the network: watches in, writes out, and the loop between them that owns the world.
//!
//! ```text
//! watches, settings --> bounded channel of Input --> one owner of the World --> Executor
//!                              ^                                                   |
//!                              +------------------ Outcome ------------------------+
//! ```

mod agents;
mod backoff;
pub mod broken_invariant;
pub mod client;
pub mod clock;
#[cfg(test)]
mod cluster;
mod config_map;
pub mod connectivity;
mod definitions;
mod discovery;
pub mod dry_run;
mod event_of;
pub mod events;
pub mod execute;
mod forbidden;
pub mod freeze;
pub mod gather;
pub mod gobgp;
pub mod input;
pub mod lead;
pub mod lease;
#[cfg(test)]
mod log_lines;
pub mod mode;
mod named;
mod node_configs;
mod pacing;
mod pod_ip_pools;
mod report;
mod retry_after;
pub mod review;
pub mod routes;
pub mod run;
pub mod server_time;
mod side_watch;
pub mod tasks;
pub mod timeline;
mod waits;
mod warnings;
pub mod watch;
mod write_slots;
