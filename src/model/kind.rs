//! The kinds of object that the world is made of.

use super::stable_names;

stable_names! {
    /// The kinds that the world is made of, named as Kubernetes names them.
    #[derive(Hash)]
    pub enum Kind {
        /// Node.
        Node,
        /// CiliumNode.
        CiliumNode,
        /// NodeIPPool.
        Pool => "NodeIPPool",
        /// NodeIPBlock.
        Claim => "NodeIPBlock",
    }
}

impl Kind {
    /// Every kind, in the order in which lists are taken in at the start: CiliumNodes after claims (safety rule 6).
    pub const AS_LISTED: [Self; 4] = [Self::Pool, Self::Node, Self::Claim, Self::CiliumNode];
}
