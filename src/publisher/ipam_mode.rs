//! The names of Cilium's modes, as `cilium-config` has them.

use std::str::FromStr;

use crate::model::stable_names;

stable_names! {
    /// A mode of Cilium, as `ipam` of `cilium-config` names it, in which nodes can get blocks of pools.
    pub enum IpamMode {
        /// Blocks and each of their addresses on the CiliumNode.
        Crd => "crd",
        /// CIDRs per Cilium pool name on the CiliumNode.
        MultiPool => "multi-pool",
        /// One CIDR of each family on the CiliumNode, for the life of the node.
        ClusterPool => "cluster-pool",
        /// One CIDR of each family on the Node, for the life of the node.
        Kubernetes => "kubernetes",
    }
}

impl FromStr for IpamMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|mode| mode.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not one of {names}"))
    }
}
