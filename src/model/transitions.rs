//! The table of the states of a claim: which state may follow which, and which of these moves this version makes.
//!
//! It is the one source of that table. The rule that the API server enforces is generated from it (`wire/block.rs`).
//! Tests compare it with the moves that plans make and with `docs/invariants.md`, The states of a claim.

use std::fmt;

use crate::model::claim::{ClaimState, Reason};
use crate::model::request::ClaimChange;
use crate::model::stable_names;

use Reason::{NodeGone, Reclaimed, Unused};
use State::{Cooling, Draining, Held, Releasing};

stable_names! {
    /// Why a claim moves or stays: a row of the table of claims. `docs/invariants.md` has the table.
    #[expect(missing_docs, reason = "each row of plan/claims.rs says when it applies")]
    pub enum Rule {
        NodeLost,
        NodeRecreated,
        CarrierRemains,
        AgentReleased,
        DrainNotShown,
        GivenUp,
        NeverPublished,
        Terminating,
        NodeReturned,
        LostMeanwhile,
        NotGivenUp,
        CarrierLost,
        RemovalDue,
        ConsentWithdrawn,
        Absent,
        Cooled,
        DrainStarts,
        DrainEnds,
        Consented,
        PodFound,
        Unneeded,
        RemovalStarts,
        Refused,
        NeededAgain,
    }
}

impl Rule {
    /// The rows that the scripts of the simulation reach too rarely to wait for. Each has a test of its own.
    pub const RARE: [Self; 3] = [Self::AgentReleased, Self::Terminating, Self::PodFound];
}

/// A state with its reason, but without its other data: a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// See [`ClaimState::Held`].
    Held,
    /// See [`ClaimState::Draining`].
    Draining,
    /// See [`ClaimState::Releasing`].
    Releasing(Reason),
    /// See [`ClaimState::Cooling`].
    Cooling(Reason),
}

/// The target of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// To this state.
    To(State),
    /// Out of the table: the claim is deleted.
    Delete,
}

impl State {
    /// Every state, in the order of the table.
    pub const ALL: [Self; 8] = [
        Held,
        Draining,
        Releasing(Reclaimed),
        Releasing(NodeGone),
        Releasing(Unused),
        Cooling(Reclaimed),
        Cooling(NodeGone),
        Cooling(Unused),
    ];

    /// The states in which a write may leave a claim of this state; each may stay as it is.
    ///
    /// The server enforces this. It is wider than [`State::moves`], so that a version with further moves needs no other
    /// definition in the cluster. Deletions are not in it: no rule of a schema sees them.
    #[must_use]
    pub const fn may_follow(self) -> &'static [Self] {
        match self {
            Held => &[Held, Draining, Releasing(Reclaimed), Releasing(NodeGone), Releasing(Unused)],
            Draining => &[Draining, Held, Releasing(Reclaimed), Releasing(NodeGone)],
            Releasing(Reclaimed) => &[Releasing(Reclaimed), Cooling(Reclaimed), Held, Draining],
            Releasing(NodeGone) => &[Releasing(NodeGone), Cooling(NodeGone), Held],
            Releasing(Unused) => &[Releasing(Unused), Cooling(Unused), Held],
            Cooling(Reclaimed) => &[Cooling(Reclaimed), Held],
            Cooling(NodeGone) => &[Cooling(NodeGone), Held],
            Cooling(Unused) => &[Cooling(Unused), Held],
        }
    }

    /// The moves that this version makes from here. Beside these, a claim in any state stays in it and gets our
    /// finalizer back if it lost it ([`ClaimChange::Keep`]).
    #[must_use]
    pub const fn moves(self) -> &'static [Move] {
        use Move::{Delete, To};
        match self {
            // A move to Held itself records the uid of a Node that was recreated.
            // An agent that returns blocks by itself does so without a drain.
            Held => &[
                To(Held),
                To(Draining),
                To(Releasing(Reclaimed)),
                To(Releasing(NodeGone)),
                To(Releasing(Unused)),
            ],
            Draining => &[To(Held), To(Releasing(Reclaimed)), To(Releasing(NodeGone))],
            // An agent that keeps using a removed block gives no more of it to new pods.
            Releasing(Reclaimed) => &[To(Held), To(Draining), To(Cooling(Reclaimed))],
            Releasing(NodeGone) => &[To(Held), To(Cooling(NodeGone))],
            Releasing(Unused) => &[To(Held), To(Cooling(Unused))],
            Cooling(NodeGone) => &[To(Held), Delete],
            Cooling(Reclaimed | Unused) => &[Delete],
        }
    }

    /// The move that a change makes from here; `None` if it is impossible from this state.
    #[must_use]
    pub const fn after(self, change: &ClaimChange) -> Option<Move> {
        match (change, self) {
            (ClaimChange::Hold(_), _) => Some(Move::To(Held)),
            (ClaimChange::Keep, state) => Some(Move::To(state)),
            (ClaimChange::Drain(_), Held | Releasing(Reclaimed)) => Some(Move::To(Draining)),
            (ClaimChange::Release(reason), _) => Some(Move::To(Releasing(*reason))),
            (ClaimChange::Cool, Releasing(reason) | Cooling(reason)) => Some(Move::To(Cooling(reason))),
            (ClaimChange::Cool, Held | Draining)
            | (ClaimChange::Drain(_), Draining | Releasing(_) | Cooling(_)) => None,
            (ClaimChange::Delete, _) => Some(Move::Delete),
        }
    }

    /// The name of the state without its reason.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Held => "Held",
            Draining => "Draining",
            Releasing(_) => "Releasing",
            Cooling(_) => "Cooling",
        }
    }

    /// Why a claim in this state left its node, if it did.
    #[must_use]
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Held | Draining => None,
            Releasing(reason) | Cooling(reason) => Some(reason),
        }
    }
}

impl From<&ClaimState> for State {
    fn from(state: &ClaimState) -> Self {
        match state {
            ClaimState::Held => Held,
            ClaimState::Draining(_) => Draining,
            ClaimState::Releasing(reason) => Releasing(*reason),
            ClaimState::Cooling(reason) => Cooling(*reason),
        }
    }
}

/// The key of the state in the schema: `Held`, `Releasing/NodeGone`.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.reason().map_or(Ok(()), |reason| write!(f, "/{reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_move_that_is_made_is_allowed() {
        for from in State::ALL {
            assert_eq!(from.may_follow().first(), Some(&from), "a claim may stay as it is");
            for made in from.moves() {
                match made {
                    Move::To(to) => assert!(from.may_follow().contains(to), "{from} to {to}"),
                    Move::Delete => {}
                }
            }
        }
    }

    #[test]
    fn a_reason_is_kept_until_the_claim_is_published_again() {
        for from in State::ALL.into_iter().filter(|state| state.reason().is_some()) {
            for to in from.may_follow().iter().filter(|to| to.reason().is_some()) {
                assert_eq!(from.reason(), to.reason(), "{from} to {to}");
            }
        }
    }

    #[test]
    fn states_are_named_as_the_api_writes_them() {
        let states = [
            ClaimState::Held,
            ClaimState::Draining("c".into()),
            ClaimState::Releasing(NodeGone),
            ClaimState::Cooling(Unused),
        ];
        for state in &states {
            assert_eq!(
                (State::from(state).name(), State::from(state).reason()),
                (state.as_str(), state.reason())
            );
        }
    }
}
