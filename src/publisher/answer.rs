//! The queries to a publisher and its answers, which are the same for every mode.

use std::net::IpAddr;

use super::demand::Demand;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::outcome::Presence;
use crate::model::request::{BumpVersion, Read, Request, UsageQuery, Write};
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;

/// The evidence about a block that is being removed from a node.
#[derive(Debug, Clone, Copy)]
pub struct Removal<'a> {
    /// The claim of the block; its state is Releasing.
    pub claim: &'a Claim,
    /// The carrier of its node, if there is one.
    pub carrier: Option<Carrier<'a>>,
    /// Whether the carrier has any part of the block.
    pub is_carried: bool,
    /// The latest revision at which its CiliumNode is known to be absent.
    pub absent_as_of: Option<Revision>,
    /// Whether its Node exists, at some time after the claim came to its present state. `None` if a read must show
    /// that first.
    pub presence: Option<&'a Presence>,
    /// The revision of the latest usage query that the agent of this carrier has answered without the block.
    pub answered: Option<Revision>,
}

impl Removal<'_> {
    /// The proof where a version of the CiliumNode suffices: one without the block, later than the claim, or its
    /// absence at a later revision.
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

/// Whether a block is known to be absent from its node, as of a time after its claim moved to Releasing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "it is made for a released claim and taken apart at once")]
pub enum Absence {
    /// It is known to be absent.
    Proven,
    /// This request may prove it.
    Provable(Request),
    /// Something else must happen first.
    NotYet,
}

/// The reason why a block stays on its carrier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// It is the first of its family, which the datapath of the node uses as its own.
    #[error(
        "the first block of a node stays until the node rejoins, with a reboot: cilium-node-ipam migrate rejoin NODE"
    )]
    Primary,
    /// In this mode a node has one block of each family for its life, and a node that returns gets it again.
    #[error(
        "the only block of a node stays; drain the node, turn its machine off, delete its Node and CiliumNode, \
         and let it join again after reuseAfterNodeLoss of the pool"
    )]
    ForLife,
    /// The carrier does not show exactly the addresses that the claim offers.
    #[error("the CiliumNode does not match its claim")]
    Incomplete,
    /// An address is kept for an owner, who would get it even if the agent had agreed to release it.
    #[error("{0} is reserved for {1}")]
    Owned(IpAddr, String),
    /// The agent uses an address of it for itself, and will use it again when it restarts.
    #[error("the agent uses {0} for its {1}; drain the node, reboot it, and delete its Node and CiliumNode")]
    AgentsOwn(IpAddr, &'static str),
    /// The same in a mode in which a node that rejoins gets another block in front, and its agent an address there.
    #[error(
        "the agent uses {0} for its {1} until the node rejoins, with a reboot: cilium-node-ipam migrate rejoin NODE"
    )]
    AgentsOwnUntilRejoin(IpAddr, &'static str),
    /// Another writer is removing an address, or an earlier attempt of ours has left its mark.
    #[error("{0} has a release mark of another drain")]
    Marked(IpAddr),
    /// The agent has given the address to a pod.
    #[error("the agent keeps {0}")]
    Refused(IpAddr),
    /// An address is in use although its agent has consented to release it.
    #[error("{0} is in use")]
    Used(IpAddr),
    /// These fields are those of another mode. Its agent may still run there, and knows nothing of this drain then.
    #[error(
        "the CiliumNode has fields of another mode in spec.ipam: {0}; when its agent runs in the present mode, remove \
         them (docs/migration.md)"
    )]
    OtherMode(&'static str),
    /// The agent could not start again without it.
    #[error("spec.ipam.min-allocate is {0}, and the node would have fewer addresses")]
    MinAllocate(u32),
}

/// The progress of a block whose claim is Draining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drain {
    /// Its agent may give its addresses to new pods.
    Open,
    /// No new pod gets an address of it, once its agent has seen that. These addresses are in use.
    Closed(AddressSet),
    /// Its agent was asked to release each address, and has not answered for all of them.
    Asked,
    /// Its agent has answered ready-for-release for every address, and uses none.
    Consented,
    /// It can't leave.
    Stays(Stays),
}

/// The progress of a block whose claim is Releasing because its agent has released the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// The agent consents to release every address; the controller must confirm that next.
    Consented,
    /// It can be removed.
    Removable,
    /// It is removed, and the agent has not acknowledged that.
    Confirmed,
    /// It is removed, and a mark of the handshake remains that its agent does not remove.
    LeftOver,
    /// Neither the block nor a mark remains.
    Off,
    /// It is on the carrier, and this version does not show the consent of the agent.
    NoConsent,
    /// The same, and this version is older than the present version of the claim. A later one will come.
    NotSeen,
}

impl Leaving {
    /// That of a block that this version of the carrier shows without the consent of the agent.
    #[must_use]
    pub fn without_consent(carrier: Carrier<'_>, claim: &Claim) -> Self {
        if carrier.revision().within() > Some(claim.revision) { Self::NoConsent } else { Self::NotSeen }
    }
}

/// Whether there is a usage query to the agent, and the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryState {
    /// There is none; this sends one.
    Possible(UsageQuery),
    /// There is one without an answer; this removes it.
    Open(UsageQuery),
    /// There is one with an answer; this removes it.
    Answered(UsageQuery),
    /// Agents of this mode do not report which addresses they use, and are not asked.
    None,
}

/// The holding of a node in one family, to decide whether it suffices.
#[derive(Debug, Clone, Copy)]
pub struct Holding {
    /// How many blocks.
    pub n_blocks: usize,
    /// Its addresses, and how many of them are used.
    pub demand: Demand,
    /// Whether the first grant is complete.
    pub phase: Phase,
}

/// Whether the first grant of a node is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is not: the carrier has no block of ours yet.
    FirstGrant,
    /// It is: the carrier has a block of ours.
    Served,
}
