//! The API group `nodeipam.io`: wire types, the rules that bind them, and their conversion into domain values.
//!
//! Text is parsed here and nowhere else. Every rule is enforced in three places: in the schema, by the server; in
//! [`check`], by the same schema without a server; and in the conversions, which have the last word. The tables of
//! `tests/it/api_table.rs` keep the three in agreement. This module talks to no server.

pub mod admission;
pub mod agent_pod;
pub mod block;
pub mod carrier_patch;
pub mod check;
pub mod cilium_bgp;
pub mod cilium_group;
pub mod cilium_node;
pub mod crds;
pub mod failures;
pub mod freeze;
pub mod frr;
pub mod gobgp;
pub mod import;
pub mod installation;
mod invalid;
mod json;
mod labels;
mod mirror;
mod multi_pool;
pub mod node;
pub mod node_config;
pub mod node_pods;
pub mod pod_ip_pool;
pub mod pool;
mod precondition;
pub mod rules;
mod schema;
pub mod side_watched;
mod structural;
pub mod surroundings;
pub mod watched;

pub use block::{Claims, NodeIPBlock};
pub use cilium_node::CiliumNodes;
pub use invalid::{FieldError, InvalidObject};
pub use node::Nodes;
pub use pool::{NodeIPPool, Pools};

/// The API group.
pub const GROUP: &str = "nodeipam.io";
/// The version of the group that is served and stored.
pub const VERSION: &str = "v1alpha1";
/// The largest count that the API writes, in the type that it writes counts in.
pub const MAX_COUNT: i64 = crate::model::status::MAX_COUNT.cast_signed();
