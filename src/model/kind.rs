//! The kinds of object in the world.

use super::stable_names;

stable_names! {
    /// The kinds of object in the world, named as Kubernetes names them.
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

/// The kind of an object that is written or reported: a kind of the world, or one beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A kind of the world.
    World(Kind),
    /// CiliumPodIPPool, which pools have in multi-pool mode.
    PodIpPool,
    /// FRRConfiguration, which announces routes.
    FrrConfiguration,
    /// A GoBGP daemon, whose table announces routes. Its name is its address.
    Gobgp,
    /// CustomResourceDefinition.
    Definition,
    /// A machine.
    Machine,
}

impl ObjectKind {
    /// The name, as Kubernetes has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::World(kind) => kind.as_str(),
            Self::PodIpPool => "CiliumPodIPPool",
            Self::FrrConfiguration => "FRRConfiguration",
            Self::Gobgp => "GoBGP",
            Self::Definition => "CustomResourceDefinition",
            Self::Machine => "machine",
        }
    }
}

impl From<Kind> for ObjectKind {
    fn from(kind: Kind) -> Self {
        Self::World(kind)
    }
}

impl Kind {
    /// Every kind, in the order in which lists are taken in at the start: CiliumNodes after claims (safety rule 6).
    pub const AS_LISTED: [Self; 4] = [Self::Pool, Self::Node, Self::Claim, Self::CiliumNode];
}
