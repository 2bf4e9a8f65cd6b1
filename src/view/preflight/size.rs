//! The size of the cluster, for which each mode of Cilium and each block size has a limit.
//!
//! Every agent keeps every CiliumNode, and receives each version of it.

use super::points::{Lines, Point};
use crate::model::counted::counted;
use crate::model::kind::Kind;
use crate::net::cidr::Family;
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::mode::Mode;
use crate::world::World;

/// The number of nodes up to which the mode crd is the right one, also with small blocks. Beyond it, the reports
/// of use by the agents themselves are too many.
const MOST_IN_CRD: usize = 5_000;

/// The number of nodes up to which any mode with CiliumNodes is.
const MOST: usize = 20_000;

/// The bytes of all CiliumNodes that an agent may have to list. All agents may list them at the same time.
const MOST_BYTES: usize = 20_000_000;

/// The bytes of a CiliumNode beside its addresses, and for each address of a block with four fifths in use
/// (`docs/performance.md`).
const BYTES_OF_NODE: usize = 1_000;
const BYTES_OF_ADDRESS: usize = 75;

/// How to make CiliumNodes smaller.
const SMALLER: &str =
    "Use Cilium's mode multi-pool, or smaller blocks: docs/performance.md#size-of-a-ciliumnode.";

pub(super) fn look(world: &World, lines: &mut Lines) {
    let n_nodes = world.n_objects(Kind::Node).max(world.n_objects(Kind::CiliumNode));
    let Mode::Active(publisher) = world.mode() else { return };
    let ranges = world.readable_pools().filter_map(|pool| pool.families.get(&Family::V4));
    let widest = ranges.filter_map(|ranges| ranges.sizes().first().copied()).min();
    if let Some((text, remedy)) = too_large(n_nodes, publisher.ipam_mode(), widest) {
        lines.warn(Point::Size, text, remedy);
    }
}

/// Why a cluster with blocks of this prefix length is too large for its mode, and the remedy.
fn too_large(n_nodes: usize, mode: IpamMode, widest: Option<u8>) -> Option<(String, &'static str)> {
    let nodes = counted(n_nodes, "node");
    if n_nodes > MOST {
        let text =
            format!("{nodes}: every agent watches every CiliumNode, and {MOST} nodes are the limit of that");
        return Some((text, "Split the cluster: docs/decisions/0057-beyond-20000-nodes.md."));
    }
    if mode != IpamMode::Crd {
        return None;
    }
    if n_nodes > MOST_IN_CRD {
        let text = format!(
            "{nodes} in the mode crd, whose limit is {MOST_IN_CRD}: all agents receive the use of each"
        );
        return Some((text, SMALLER));
    }
    let prefix = widest?;
    let n_addresses = 1usize.checked_shl(u32::from(32u8.saturating_sub(prefix))).unwrap_or(usize::MAX);
    let each = BYTES_OF_NODE.saturating_add(n_addresses.saturating_mul(BYTES_OF_ADDRESS));
    let all = n_nodes.saturating_mul(each);
    (all > MOST_BYTES).then(|| {
        let text = format!(
            "{nodes} in the mode crd with blocks of /{prefix}: all CiliumNodes have about {} MB, which each agent keeps \
             twice",
            all / 1_000_000
        );
        (text, SMALLER)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_too_large_by_nodes_mode_and_block_size() {
        let check = |n_nodes, mode, prefix, expected: &str| {
            let found = too_large(n_nodes, mode, Some(prefix)).map(|(text, _)| text).unwrap_or_default();
            assert!(found.starts_with(expected) && found.is_empty() == expected.is_empty(), "{found}");
        };
        check(900, IpamMode::Crd, 24, "");
        check(1_100, IpamMode::Crd, 24, "1100 nodes in the mode crd with blocks of /24");
        check(4_000, IpamMode::Crd, 28, "");
        check(5_001, IpamMode::Crd, 28, "5001 nodes in the mode crd, whose limit is 5000");
        check(20_000, IpamMode::MultiPool, 24, "");
        check(20_001, IpamMode::ClusterPool, 24, "20001 nodes: every agent watches every CiliumNode");
    }
}
