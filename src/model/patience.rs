//! How long a node may lack addresses before people must hear of it: one table for all waits.
//!
//! Knows no objects and no clock: the caller measures the time. A wait with a name has a bound of its own, so that a
//! cluster in which machines come and go has no problem all the time.

use std::time::Duration;

use super::plan::{Verdict, Wait};

/// A node has addresses this long after its carrier was created, and a carrier shows a claim this long after the claim
/// was made. Usually both take less than a second.
pub const DONE_WITHIN: Duration = Duration::from_secs(15);

/// How long an agent may request nothing (multi-pool). A starting agent requests its addresses within seconds. It
/// repeats an update that conflicts within a minute (`docs/cilium.md`).
pub const REQUESTS_WITHIN: Duration = Duration::from_secs(60);

/// The longest wait for startup taints, unless the command line says otherwise. Cloud controllers take seconds. A Node
/// whose taint stays must not stay without pods.
pub const INITIALIZATION: Duration = Duration::from_secs(60);

/// The time between the two reads of a node's Pods that find no address of its former mode. The first addresses of a
/// node that changes its mode come after the second.
pub const READS_APART: Duration = Duration::from_secs(60);

/// When a wait of a node without addresses is a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// At once: the wait lasts until a person acts.
    AtOnce,
    /// When the carrier of the node has existed for this long.
    Within(Duration),
    /// Never by itself: another problem names the cause for all nodes, or no agent asks for addresses.
    Endless,
}

impl Patience {
    /// The patience with a node for which this was decided.
    #[must_use]
    pub const fn with(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Wait(wait) => wait.patience(),
            // The node has nothing yet, and no intention of the plan changes that.
            Verdict::Act(_) | Verdict::AtRest => Self::Within(DONE_WITHIN),
        }
    }
}

impl Wait {
    /// The table.
    #[must_use]
    pub const fn patience(self) -> Patience {
        match self {
            Self::Readable(_)
            | Self::Correction(_)
            | Self::OtherAllocator
            | Self::Settings
            | Self::CompleteSet
            | Self::Upgrade => Patience::AtOnce,
            Self::Answer
            | Self::Pause
            | Self::Interval
            | Self::Pace
            | Self::Lead
            | Self::Deletion
            | Self::Completion
            | Self::Use
            | Self::FormerUse => Patience::Within(DONE_WITHIN),
            Self::FormerMode => Patience::Within(READS_APART.saturating_add(DONE_WITHIN)),
            Self::Initialization(_) | Self::MaxPods => {
                Patience::Within(INITIALIZATION.saturating_add(DONE_WITHIN))
            }
            Self::Request => Patience::Within(REQUESTS_WITHIN),
            // The first three are the problems `Passive`, `Frozen` and `NoCapacity`. Without a CiliumNode, no agent has
            // started.
            Self::Mode | Self::Thaw | Self::Capacity | Self::Existence(_) | Self::Linux => Patience::Endless,
        }
    }
}
