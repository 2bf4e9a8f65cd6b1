//! What a publisher is asked with and answers, in every mode alike.

use super::demand::Demand;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::request::{Presence, Request, UsageProbe};
use crate::model::revision::Revision;

/// What is known of a block that is being taken off a node.
#[derive(Debug, Clone, Copy)]
pub struct Removal<'a> {
    /// The claim of the block, in Releasing.
    pub claim: &'a Claim,
    /// The carrier of its node, where there is one.
    pub carrier: Option<Carrier<'a>>,
    /// Whether the carrier has anything of the block.
    pub is_carried: bool,
    /// The latest revision as of which its CiliumNode is known not to exist.
    pub absent_as_of: Option<Revision>,
    /// Whether its Node exists, at some time after the claim got to where it is; `None` where that has to be read.
    pub presence: Option<&'a Presence>,
}

/// Whether a block is known to be off its node, later than its claim's move to Releasing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absence {
    /// It is.
    Proven,
    /// This request may prove it.
    Provable(Request),
    /// Something else has to happen first.
    NotYet,
}

/// What an agent has been asked of its use, and what may be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeState {
    /// It may be asked by this.
    Askable(UsageProbe),
    /// It was asked and has not answered.
    Asked,
    /// It has answered; this removes the question.
    Answered(UsageProbe),
    /// There is nothing to ask in this mode.
    None,
}

/// What a node holds of one family, for the question whether that is enough.
#[derive(Debug, Clone, Copy)]
pub struct Holding {
    /// How many blocks.
    pub n_blocks: usize,
    /// Its addresses, and how many of them are used.
    pub demand: Demand,
    /// Whether the carrier has blocks of ours: the first grant is over.
    pub phase: Phase,
}

/// Whether the first grant of a node is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing of ours is carried yet.
    FirstGrant,
    /// Something is.
    Served,
}
