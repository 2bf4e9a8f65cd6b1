//! The pool that all benches start from. Each bench changes the fields for which it needs other values.

use std::time::Duration;

use cilium_node_ipam::model::pool::{
    Expand, FirstLast, PerNode, Pool, RangeState, Ranges, Reclaim, ReclaimMode,
};
use cilium_node_ipam::model::time::Timestamp;
use cilium_node_ipam::net::cidr::Cidr;

/// A pool of one range that selects every node.
pub(crate) fn pool(name: &str, range: Cidr, block_prefix: u8) -> Pool {
    let ranges = Ranges::of_blocks(block_prefix, [(range, RangeState::Active)].into());
    Pool {
        name: name.into(),
        uid: name.into(),
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        priority: 0,
        selector: kube_core::Selector::default(),
        pod_ip_pool: None,
        families: [(range.family(), ranges)].into(),
        first_last: FirstLast::Offered,
        per_node: PerNode { initial_blocks: 1, max_blocks: 16, max_addresses: 1024 },
        expand: Expand { used_above: 80, free_below: 2 },
        reclaim: Reclaim { mode: ReclaimMode::DryRun, used_below: 40, after: Duration::from_secs(600) },
        reuse_after: Duration::from_secs(300),
        reuse_after_node_loss: Duration::from_secs(3600),
        communities: std::collections::BTreeSet::default(),
    }
}
