//! The questions to a publisher and its answers, which are the same for every mode.

use super::demand::Demand;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::outcome::Presence;
use crate::model::request::{Request, UsageProbe};
use crate::model::revision::Revision;

/// What is known of a block that is being taken off a node.
#[derive(Debug, Clone, Copy)]
pub struct Removal<'a> {
    /// The claim of the block; its state is Releasing.
    pub claim: &'a Claim,
    /// The carrier of its node, if there is one.
    pub carrier: Option<Carrier<'a>>,
    /// Whether the carrier has anything of the block.
    pub is_carried: bool,
    /// The latest revision as of which its CiliumNode is known not to exist.
    pub absent_as_of: Option<Revision>,
    /// Whether its Node exists, at some time after the claim got to where it is; `None` where that has to be read.
    pub presence: Option<&'a Presence>,
}

/// Whether a block is known to be off its node as of a time after its claim moved to Releasing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absence {
    /// It is known to be off.
    Proven,
    /// This request may prove it.
    Provable(Request),
    /// Something else has to happen first.
    NotYet,
}

/// Whether an agent was asked which addresses it uses, and the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeState {
    /// It was not asked; this asks it.
    Askable(UsageProbe),
    /// It was asked and has not answered.
    Asked,
    /// It was asked and has answered; this removes the question.
    Answered(UsageProbe),
    /// In this mode agents are not asked.
    None,
}

/// What a node holds of one family: the question is whether that is enough.
#[derive(Debug, Clone, Copy)]
pub struct Holding {
    /// How many blocks.
    pub n_blocks: usize,
    /// Its addresses, and how many of them are used.
    pub demand: Demand,
    /// Whether the first grant is over.
    pub phase: Phase,
}

/// Whether the first grant of a node is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is not: the carrier has no block of ours yet.
    FirstGrant,
    /// It is: the carrier has a block of ours.
    Served,
}
