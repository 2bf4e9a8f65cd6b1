//! How far the controller supports an agent version, in any mode.

use crate::model::stable_names;

stable_names! {
    /// How far an agent version works with this controller, the weakest first.
    pub enum Support {
        /// They undo publications, so nothing is published for them.
        None => "none",
        /// Their version is not known. They are served as supported.
        Unknown => "unknown",
        /// They give addresses of a fenced block to new pods, and reclaim is opt-in.
        WithoutFence => "without_fence",
        /// Everything works, and reclaim is opt-in.
        ReclaimOptIn => "reclaim_opt_in",
        /// Everything works.
        Full => "full",
    }
}

/// When blocks may be reclaimed from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaiming {
    /// Wherever a pool asks for it.
    Allowed,
    /// Only if an administrator has opted in for this agent version.
    OptIn,
    /// Never.
    Never,
}

impl Support {
    /// Whether blocks are published for such an agent.
    #[must_use]
    pub const fn publishes(self) -> bool {
        match self {
            Self::None => false,
            Self::Unknown | Self::WithoutFence | Self::ReclaimOptIn | Self::Full => true,
        }
    }

    /// When blocks may be reclaimed from the node of such an agent.
    #[must_use]
    pub const fn reclaiming(self) -> Reclaiming {
        match self {
            Self::None => Reclaiming::Never,
            Self::Unknown | Self::WithoutFence | Self::ReclaimOptIn => Reclaiming::OptIn,
            Self::Full => Reclaiming::Allowed,
        }
    }
}
