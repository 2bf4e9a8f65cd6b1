//! Views of the world for people: counts, conditions, snapshots and block events.
//!
//! All of it is derived from the world, and no decision about a node depends on it.

pub mod agents;
pub mod audit;
pub mod block_event;
pub mod conditions;
pub mod definitions;
pub mod departures;
pub mod drains;
pub mod duplicates;
pub mod failures;
pub mod findings;
pub mod forecast;
pub mod free;
mod headroom;
mod holders;
mod in_the_way;
pub mod late;
mod left_over;
pub mod map;
pub mod max_pods;
pub mod moving;
pub mod orphans;
pub mod overview;
pub mod pod_ip_pools;
pub mod preflight;
pub mod rejoin;
mod remedy;
pub mod snapshot;
pub mod tally;
mod unclaimed_occupants;
pub mod waiting_pods;
pub mod waits;
pub mod who;
