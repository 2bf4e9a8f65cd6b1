//! How far the controller supports an agent version, in any mode.

use crate::model::stable_names;

stable_names! {
    /// How far an agent version works with this controller, the weakest first.
    pub enum Support {
        /// They do not take part in the protocol of the mode, so nothing is published for them.
        None => "none",
        /// They are older than the oldest supported version. They are served, and nothing is reclaimed from them.
        Outdated => "outdated",
        /// Their version is not known. They are served as supported, and reclaim is opt-in.
        Unknown => "unknown",
        /// Everything works.
        Full => "full",
    }
}

/// When blocks may be reclaimed from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaiming {
    /// Wherever a pool asks for it.
    Allowed,
    /// Only if an administrator has opted in for agents of unknown version.
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
            Self::Outdated | Self::Unknown | Self::Full => true,
        }
    }

    /// Whether an agent is known to be too old, which is the finding `UnsupportedCilium`.
    #[must_use]
    pub const fn is_too_old(self) -> bool {
        match self {
            Self::None | Self::Outdated => true,
            Self::Unknown | Self::Full => false,
        }
    }

    /// When blocks may be reclaimed from the node of such an agent.
    #[must_use]
    pub const fn reclaiming(self) -> Reclaiming {
        match self {
            Self::None | Self::Outdated => Reclaiming::Never,
            Self::Unknown => Reclaiming::OptIn,
            Self::Full => Reclaiming::Allowed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weaker_support_never_allows_more() {
        let rank = |reclaiming| match reclaiming {
            Reclaiming::Never => 0,
            Reclaiming::OptIn => 1,
            Reclaiming::Allowed => 2,
        };
        for pair in Support::ALL.windows(2) {
            let [weaker, stronger] = pair else { panic!("two") };
            assert!(weaker < stronger);
            assert!(weaker.publishes() <= stronger.publishes(), "{weaker:?}");
            assert!(weaker.is_too_old() >= stronger.is_too_old(), "{weaker:?}");
            assert!(rank(weaker.reclaiming()) <= rank(stronger.reclaiming()), "{weaker:?}");
        }
        assert!(!Support::None.publishes() && Support::Outdated.publishes());
        assert_eq!(Support::Full.reclaiming(), Reclaiming::Allowed);
    }
}
