//! Which claims may be on the carrier of their node.

use crate::ledger::Occupant;
use crate::model::claim::ClaimState;
use crate::model::node::Node;
use crate::net::cidr::Cidr;
use crate::world::{KnownClaim, World};

/// Why a claim may not be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotPublishable {
    /// It is on its way off the node, or known from an answer only.
    State,
    /// It was made for a Node object of the same name that is gone.
    OtherNodeObject,
    /// Something else that stands or is claimed overlaps it.
    Overlaps(Cidr, String),
}

/// Whether the claim may stand on the CiliumNode of `node`: it is held, for this very Node object, shown by a watch
/// or list, and nothing overlaps it (safety rules 2, 3 and 6).
///
/// Freshness (safety rule 4) is a matter of the version that a patch carries, and is checked where it is made.
pub fn may_publish(world: &World, node: &Node, known: &KnownClaim) -> Result<(), NotPublishable> {
    let claim = &known.claim;
    if claim.state != ClaimState::Held || !known.shown {
        return Err(NotPublishable::State);
    }
    if claim.node_uid != node.uid {
        return Err(NotPublishable::OtherNodeObject);
    }
    let foreign = world.ledger().overlapping(claim.cidr).find(|(cidr, occupant)| match occupant {
        Occupant::Claim | Occupant::Pending => *cidr != claim.cidr,
        Occupant::Carried(holder) => *holder != node.name,
        Occupant::LostClaim(_) | Occupant::Unreadable(_) => true,
    });
    match foreign {
        None => Ok(()),
        Some((cidr, occupant)) => Err(NotPublishable::Overlaps(cidr, occupant.to_string())),
    }
}
