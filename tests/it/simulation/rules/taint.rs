//! The one excuse of the judge: nodes that another writer has touched.

use std::collections::BTreeSet;

use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::net::cidr::Cidr;

/// The nodes that another writer has touched, from the first edit of one of their objects until nothing of them is
/// left.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Taint {
    pub(in super::super) nodes: BTreeSet<NodeName>,
    /// Every range that such a node had meanwhile. A process may keep it taken although no object shows why.
    pub(in super::super) ranges: BTreeSet<Cidr>,
}

impl Taint {
    /// Whether nothing is promised of a node.
    pub(in super::super) fn is(&self, node: &NodeName) -> bool {
        self.nodes.contains(node)
    }

    /// Whether a tainted node may have an address of a range.
    pub(super) fn reaches(&self, cidr: Cidr) -> bool {
        self.ranges.iter().any(|range| range.overlaps(cidr))
    }

    /// Whether another writer has touched anything in this script.
    pub(in super::super) fn is_any(&self) -> bool {
        !self.nodes.is_empty() || !self.ranges.is_empty()
    }
}
