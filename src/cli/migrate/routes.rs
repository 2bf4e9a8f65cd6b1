//! Whether the routes of nodes are exported: an agent that restarts in the mode crd withdraws those of its own.
//!
//! Reads the FRRNodeStates. The table of a GoBGP daemon is read by `routes --compare`, which gets its address.

use std::collections::BTreeMap;

use crate::cli::answers::{Listed, Live};
use crate::controller::routes::read_node_states;
use crate::model::names::NodeName;
use crate::routes::announced;
use crate::routes::compare;

/// `exported` or `missing` for each node with blocks; empty where nothing says that routes are exported.
pub(super) async fn exported(listed: &Listed) -> BTreeMap<NodeName, &'static str> {
    let Live::Cluster(clients) = &listed.live else { return BTreeMap::new() };
    // Most clusters have no such kind.
    let Ok(states) = read_node_states(clients).await else { return BTreeMap::new() };
    let networks = states.into_iter().map(|state| (state.node, state.networks.unwrap_or_default()));
    let found = compare::exported(&announced(&listed.world), &networks.collect());
    found
        .into_iter()
        .map(|(node, is_exported)| (node, if is_exported { "exported" } else { "missing" }))
        .collect()
}
