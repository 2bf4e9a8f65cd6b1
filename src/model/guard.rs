//! The guards that a test can switch off, so that `make mutants` shows that random scripts of the simulation notice
//! when one is missing.
//!
//! Here, in the room that `world` and `plan` share, because both ask: a switch is a value in the world, not a static,
//! which what decides must not have. Keeps one invariant: without the cargo feature `mutants`, every guard holds, and
//! the compiler removes the question.

/// A rule of the program whose absence random scripts have to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// A claim that something overlaps is not published (safety rule 2).
    Overlap,
    /// A claim that only an answer has shown is not published (safety rule 2).
    Shown,
    /// A claim is published only if it is known as of the version that the patch carries (safety rule 4).
    Freshness,
    /// A block is off its node only if a later version of the CiliumNode proves it (safety rule 3).
    Absence,
    /// A block cools before another node gets it.
    Cooling,
    /// Each patch carries the uid of its object (safety rule 4).
    PatchUid,
    /// Each patch carries the version of its object (safety rule 4).
    PatchVersion,
    /// The block of a lost claim stays taken (safety rule 6).
    LostClaims,
    /// What a CiliumNode carries without a claim is taken (safety rule 6).
    Carried,
    /// A Node is read before its claims move.
    Presence,
    /// A claim is published only for the very Node object that holds it.
    NodeUid,
    /// A node or pool whose writes fail waits.
    Pause,
    /// A CiliumNode is not patched more often than once per interval.
    WriteInterval,
    /// One write about an object is in flight at a time.
    OneWritePerObject,
    /// An agent is asked to let addresses go only behind a fence that it has seen, and that is known to run (safety rule
    /// 7).
    Answer,
    /// Where agents give blocks back by themselves, one is off only when a question that is later than its claim's move was
    /// answered (safety rule 3).
    Question,
    /// Where a node has one block of each family, it gets no second.
    OneBlock,
    /// Where a node has one block of each family, a carrier that shows any is never changed (safety rule 5).
    Untouched,
    /// The first blocks of a node are of all its families, or there are none.
    BothFamilies,
    /// What a carrier has without a claim becomes one, where it is a block of a pool.
    Adoption,
    /// Where a node has one block of each family, nothing is claimed for one whose carrier shows CIDRs that can't be its
    /// blocks.
    LeftAlone,
}

impl Guard {
    /// Every guard.
    pub const ALL: [Self; 21] = [
        Self::Overlap,
        Self::Shown,
        Self::Freshness,
        Self::Absence,
        Self::Cooling,
        Self::PatchUid,
        Self::PatchVersion,
        Self::LostClaims,
        Self::Carried,
        Self::Presence,
        Self::NodeUid,
        Self::Pause,
        Self::WriteInterval,
        Self::OneWritePerObject,
        Self::Answer,
        Self::Question,
        Self::OneBlock,
        Self::Untouched,
        Self::BothFamilies,
        Self::Adoption,
        Self::LeftAlone,
    ];
}

/// Which guards hold: all of them, but for one that a test has switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Guards {
    #[cfg(feature = "mutants")]
    off: Option<Guard>,
}

impl Guards {
    /// All guards but this one.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn without(guard: Guard) -> Self {
        Self { off: Some(guard) }
    }

    /// Whether a guard is switched off.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn is_off(self, guard: Guard) -> bool {
        self.off == Some(guard)
    }

    /// Whether a guard is switched off; never.
    #[cfg(not(feature = "mutants"))]
    #[must_use]
    #[inline(always)]
    #[allow(
        clippy::unused_self,
        clippy::inline_always,
        reason = "it has to cost nothing where it decides nothing"
    )]
    pub const fn is_off(self, _: Guard) -> bool {
        false
    }
}
