//! The questions to a publisher and its answers, which are the same for every mode.

use std::net::IpAddr;

use super::demand::Demand;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::outcome::Presence;
use crate::model::request::{BumpVersion, Read, Request, UsageProbe, Write};
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;

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
    /// As of which revision the latest question was asked that the agent of this carrier has answered without the block.
    pub answered: Option<Revision>,
}

impl Removal<'_> {
    /// The proof where a version of the CiliumNode is enough: one without the block, later than the claim, or none at all
    /// as of a later revision.
    #[must_use]
    pub fn shown_by_version(self) -> Absence {
        let Self { claim, carrier, is_carried, absent_as_of, .. } = self;
        match carrier {
            None if absent_as_of.is_some_and(|as_of| as_of >= claim.revision) => Absence::Proven,
            None => Absence::Provable(Read::CiliumNode(claim.node.clone()).into()),
            Some(_) if is_carried => Absence::NotYet,
            Some(carrier) if carrier.revision().within() > Some(claim.revision) => Absence::Proven,
            Some(carrier) => {
                Absence::Provable(Write::BumpVersion(BumpVersion::of(carrier, claim.revision)).into())
            }
        }
    }
}

/// Whether a block is known to be off its node as of a time after its claim moved to Releasing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "it is made for a released claim and taken apart at once")]
pub enum Absence {
    /// It is known to be off.
    Proven,
    /// This request may prove it.
    Provable(Request),
    /// Something else has to happen first.
    NotYet,
}

/// What keeps a block on its carrier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// It is the first of its family, which the datapath of the node takes as its own.
    #[error(
        "the first block of a node stays; drain the node, delete its Node and CiliumNode, and let it join again"
    )]
    Primary,
    /// In the mode a node has one block of each family for its life, and a node that returns gets it again.
    #[error(
        "the only block of a node stays; drain the node, delete its Node and CiliumNode, and let it join again \
         after reuseAfterNodeLoss of the pool"
    )]
    ForLife,
    /// The carrier does not show exactly what the claim offers.
    #[error("the CiliumNode does not match its claim")]
    Incomplete,
    /// An address is kept for somebody, who would get it whatever its agent has agreed to.
    #[error("{0} is reserved for {1}")]
    Owned(IpAddr, String),
    /// The agent has an address of it for itself, and takes it again when it starts.
    #[error("the agent uses {0} for its {1}; drain the node, reboot it, and delete its Node and CiliumNode")]
    AgentsOwn(IpAddr, &'static str),
    /// An address is on its way off by another hand, or by an earlier try.
    #[error("{0} has a release mark of another drain")]
    Marked(IpAddr),
    /// The agent has given the address to a pod.
    #[error("the agent keeps {0}")]
    Refused(IpAddr),
    /// An address is in use although its agent has let it go.
    #[error("{0} is in use")]
    Used(IpAddr),
    /// Without it the agent would not start again.
    #[error("spec.ipam.min-allocate is {0}, and the node would have fewer addresses")]
    MinAllocate(u32),
}

/// How far a block has come whose claim is Draining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drain {
    /// Its agent may give its addresses to new pods.
    Open,
    /// No new pod gets an address of it, as soon as its agent has seen that; these are in use.
    Closed(AddressSet),
    /// Its agent was asked to let each address go, and has not answered for all of them.
    Asked,
    /// Its agent lets every address go, and uses none.
    Consented,
    /// It can't leave.
    Stays(Stays),
}

/// How far a block has come whose claim is Releasing because its agent has let it go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// The agent lets every address go, and is to be told that they are released.
    Consented,
    /// It can be taken off.
    CanGo,
    /// It is off, and the agent has not said that it knows.
    Confirmed,
    /// It is off, and something of the steps is left that its agent does not remove.
    LeftOver,
    /// Nothing of it is left.
    Off,
    /// It is there, and this version does not show that the agent lets it go.
    NoConsent,
    /// The same, and this version is older than the claim as it is now: a later one is to come.
    NotSeen,
}

/// Whether an agent was asked which addresses it uses, and the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeState {
    /// It was not asked; this asks it.
    Askable(UsageProbe),
    /// It was asked and has not answered; this ends the question.
    Asked(UsageProbe),
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
