//! The modes of Cilium in which the demo can be played, and which scenes each of them has.

use std::fmt;

use clap::ValueEnum;

/// A mode of Cilium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Crd,
    MultiPool,
    ClusterPool,
    Kubernetes,
}

/// How the blocks of a node change with its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// The controller sees the use, gives blocks, and reclaims them with the consent of the agent.
    ByUse,
    /// The agent asks for addresses, and releases blocks by itself.
    ByRequest,
    /// A node has one block for its life.
    Never,
}

impl Mode {
    /// As `cilium-config` names it.
    pub(crate) const fn ipam(self) -> &'static str {
        match self {
            Self::Crd => "crd",
            Self::MultiPool => "multi-pool",
            Self::ClusterPool => "cluster-pool",
            Self::Kubernetes => "kubernetes",
        }
    }

    pub(crate) const fn growth(self) -> Growth {
        match self {
            Self::Crd => Growth::ByUse,
            Self::MultiPool => Growth::ByRequest,
            Self::ClusterPool | Self::Kubernetes => Growth::Never,
        }
    }

    /// Why there is no scene in which nodes grow.
    pub(crate) fn without_growth(self) -> String {
        format!(
            "Left out in mode {self}: growth, because agents read their CIDRs once, so a node has one block for its life."
        )
    }

    /// Why there is no scene in which a deleted pool gets its blocks back.
    pub(crate) fn without_undoing(self) -> String {
        match self.growth() {
            Growth::ByRequest => format!(
                "Left out in mode {self}: a pool made by mistake, because its blocks leave when agents have no pod in \
                 them, and which block a pod is in is the agent's choice."
            ),
            Growth::ByUse | Growth::Never => format!(
                "Left out in mode {self}: a pool made by mistake, because its blocks stay for the life of their nodes."
            ),
        }
    }

    /// Why there is no scene in which blocks are reclaimed.
    pub(crate) fn without_taking_back(self) -> String {
        format!(
            "Left out in mode {self}: blocks that are not needed, because nobody takes the block of a node that lives."
        )
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.ipam())
    }
}
