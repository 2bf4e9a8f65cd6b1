//! The decisions, as data: claims to create or to move, blocks to publish, reads to send first, statuses to write.
//!
//! Pure, total and deterministic: a plan takes the world and the time, never fails, and reports every problem. It is
//! for one node at a time, because each decision enters the world before the next is made (`World::begin`). So the
//! cost of a decision does not grow with the cluster (`docs/decisions/0002-one-node-at-a-time.md`).
//!
//! - [`mod@node`]: the plan for one node, as a list of steps; `steps`: those of a node with a carrier.
//! - [`lifecycle`]: the states of a node's claims, safety rules 1 to 3.
//! - [`publication`]: when blocks are published, safety rules 3 to 5; `publishable`: which may be.
//! - [`growth`]: which blocks to claim.
//! - `reclaim`: which blocks are reclaimed from nodes that still exist, and how.
//! - `withdrawal`: whether the route of a block is gone, before the block cools.
//! - `stopped_requests`: requests that a freeze or a standby stops.
//! - [`mod@pool`]: status and finalizers of a pool; `pod_ip_pools`: Cilium's own object of its name.

mod abandoned;
mod agent_version;
mod draft;
pub mod evidence;
mod first_publication;
mod foreign;
mod former_mode;
pub mod growth;
mod late_labels;
pub mod lifecycle;
pub mod node;
mod pod_ip_pools;
pub mod policy;
pub mod pool;
pub mod publication;
pub mod publishable;
mod reasons;
mod reclaim;
mod recreation;
mod released_by_agent;
mod returning;
mod steps;
mod stopped_requests;
mod subject;
#[cfg(test)]
mod tests;
mod withdrawal;

pub use node::{explain, node, still_lacks_pool};
pub use policy::{CiliumNodeOrigin, GrowthProof, PodIpPoolOrigin, Policy, ReclaimPolicy};
pub use pool::pool;
pub use reasons::{why_no_block, why_no_pool};
