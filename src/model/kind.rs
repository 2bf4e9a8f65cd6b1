//! The kinds of object that the world is made of.

/// The kinds that the world is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Node.
    Node,
    /// CiliumNode.
    CiliumNode,
    /// NodeIPPool.
    Pool,
    /// NodeIPBlock.
    Claim,
}

impl Kind {
    /// Every kind, in the order in which they are listed at the start: CiliumNodes after claims (safety rule 6).
    pub const ALL: [Self; 4] = [Self::Pool, Self::Node, Self::Claim, Self::CiliumNode];

    /// As Kubernetes calls it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::CiliumNode => "CiliumNode",
            Self::Pool => "NodeIPPool",
            Self::Claim => "NodeIPBlock",
        }
    }
}
