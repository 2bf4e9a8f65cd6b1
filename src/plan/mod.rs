//! The decisions, as data: claims to create or to move, blocks to publish, reads to send first, statuses to write.
//!
//! Pure, total and deterministic: a plan takes the world and the time, never fails, and reports every problem. It is
//! for one node at a time, because each decision enters the world before the next is made (`World::begin`). So the
//! cost of a decision does not grow with the cluster (`docs/decisions/0002-one-node-at-a-time.md`).
//!
//! A decision has three parts, and each can be read alone:
//!
//! 1. Facts. `facts`: the values that the decision takes from the world, derived once. `subject` is a node with a
//!    carrier, and its classes of addresses. `evidence`, `publishable` and `pods` have the facts of carriers, claims and
//!    Pods.
//! 2. Moves. `claims`: the table by which each claim moves, safety rules 1 to 3; `guards` has the guard of each row.
//! 3. Steps. [`mod@node`] has the steps in their order, and `steps` those of a node with a carrier. Each returns its
//!    requests (`draft`), and none sees those of another.
//!
//! The steps by their subject:
//!
//! - which blocks to claim: [`needs`], `recreation`, `returning`, `late_labels`;
//! - when to publish them, safety rules 3 to 5: [`publication`], `first_publication`, `former_mode`, `foreign`,
//!   `agent_version`;
//! - how blocks leave: `drain`, `released_by_agent`, `abandoned`, `route_withdrawal`.
//!
//! A node that leaves or returns needs no step of its own: the first rows of the table move its claims.
//!
//! `stopped_requests` drops the requests that a freeze or a standby stops. `availability` says whether a node can give
//! addresses to pods. `reasons` says why a pool gives nothing. [`mod@pool`] is the plan of one pool, and `pod_ip_pools`
//! that of Cilium's own object of its name.

mod abandoned;
mod agent_version;
mod availability;
mod claims;
mod draft;
mod drain;
pub mod evidence;
mod facts;
mod first_publication;
mod foreign;
mod former_mode;
mod guards;
mod late_labels;
pub mod needs;
pub mod node;
mod pod_ip_pools;
mod pods;
pub mod policy;
pub mod pool;
pub mod publication;
pub mod publishable;
mod reasons;
mod recreation;
mod released_by_agent;
mod returning;
mod route_withdrawal;
mod scaling;
mod steps;
mod stopped_requests;
mod subject;
#[cfg(test)]
mod tests;

pub use availability::next_condition;
#[cfg(test)]
pub use claims::table;
pub use claims::when;
pub use node::{explain, node, still_lacks_pool};
pub use policy::{CiliumNodeOrigin, GrowthProof, NodeConditions, PodIpPoolOrigin, Policy, ReclaimPolicy};
pub use pool::pool;
pub use publication::starts_or_restores;
pub use reasons::{why_no_block, why_no_pool};
pub use scaling::{ScalingPolicy, SetLimits};
