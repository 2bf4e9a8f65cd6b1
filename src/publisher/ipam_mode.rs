//! The names of Cilium's modes, as `cilium-config` has them.

use std::fmt;
use std::str::FromStr;

use crate::model::stable_names;

/// The key of `cilium-config` that names the mode.
pub const IPAM_KEY: &str = "ipam";

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

impl IpamMode {
    /// Whether a node may have this mode in a cluster whose other nodes have that one. Names of Pod IP pools mean
    /// nothing to agents in other modes, so the mode multi-pool is for all nodes or none.
    #[must_use]
    pub const fn may_be_beside(self, other: Self) -> bool {
        !matches!((self, other), (Self::MultiPool, _) | (_, Self::MultiPool))
    }
}

impl fmt::Display for IpamMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
