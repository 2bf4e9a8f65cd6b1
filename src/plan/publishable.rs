//! Which claims may be published on the carrier of their node.

use std::collections::BTreeSet;

use crate::ledger::Occupant;
use crate::model::address_class::AddressClass;
use crate::model::claim::ClaimState;
use crate::model::names::{PodIpPoolName, ten_of};
use crate::model::node::Node;
use crate::model::pod_ip_pool::Misfit;
use crate::net::cidr::Cidr;
use crate::world::{KnownClaim, World};

/// Why a claim may not be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotPublishable {
    /// It is not held, or only an answer to a request has shown it.
    State,
    /// It is held for an earlier Node object of the same name.
    OtherNodeObject,
    /// These ranges overlap it, each with its occupant.
    Overlaps(Vec<(Cidr, Occupant)>),
    /// A block of this mode of Cilium has at least this prefix length.
    TooWide(u8),
    /// The CiliumPodIPPool of this name does not fit it, and that would harm its agent.
    PodIpPool(PodIpPoolName, Misfit),
}

/// Whether the claim may be published on the CiliumNode of `node` (safety rules 2, 3 and 6). All of these must hold:
///
/// - It is held for this very Node object.
/// - A watch or a list has shown it.
/// - The mode of Cilium can carry it.
/// - Nothing else overlaps it.
/// - It does not harm its agent.
///
/// Whether the claim is known as of a late enough revision (safety rule 4) depends on the version of the CiliumNode
/// in the patch. The decision about the patch checks that.
pub fn may_publish(world: &World, node: &Node, known: &KnownClaim) -> Result<(), NotPublishable> {
    let claim = &known.claim;
    if claim.state != ClaimState::Held || !known.shown {
        return Err(NotPublishable::State);
    }
    if claim.node_uid != node.uid {
        return Err(NotPublishable::OtherNodeObject);
    }
    let widest = world.reader_of(&node.name).widest_block(claim.cidr.family());
    if claim.cidr.prefix_len() < widest {
        return Err(NotPublishable::TooWide(widest));
    }
    let overlapping = world.ledger().overlapping(claim.cidr);
    let mut foreign = overlapping
        .filter(|(cidr, occupant)| match occupant {
            Occupant::Claim | Occupant::Pending => *cidr != claim.cidr,
            Occupant::Carried(holder) => *holder != node.name,
            Occupant::LostClaim(_) | Occupant::Unreadable(..) => true,
        })
        .peekable();
    if foreign.peek().is_some() {
        let ranges = foreign.map(|(cidr, occupant)| (cidr, occupant.clone())).collect();
        return Err(NotPublishable::Overlaps(ranges));
    }
    why_harmful(world, node, known).map_or(Ok(()), Err)
}

/// The ranges that overlap a block, for a person.
pub(super) fn describe_overlaps(world: &World, block: Cidr, overlaps: &[(Cidr, Occupant)]) -> String {
    let ranges: BTreeSet<String> =
        overlaps.iter().flat_map(|(cidr, occupant)| ranges_of(world, block, *cidr, occupant)).collect();
    ten_of(ranges)
}

/// The ranges of an occupant that overlap a block, as its object lists them. The ledger has the addresses of a
/// carrier in other ranges than the carrier lists.
fn ranges_of(world: &World, block: Cidr, range: Cidr, occupant: &Occupant) -> Vec<String> {
    let listed = match occupant {
        Occupant::Carried(holder) => world.carrier(holder),
        Occupant::Claim | Occupant::Pending | Occupant::LostClaim(_) | Occupant::Unreadable(..) => None,
    };
    let blocks = listed.map(|carrier| (carrier, world.reader_of(carrier.name()).blocks(carrier)));
    let ranges = blocks.into_iter().flat_map(|(carrier, blocks)| {
        let overlapping = blocks.into_iter().filter(|listed| listed.overlaps(block));
        overlapping.map(move |cidr| format!("{cidr} ({} {})", carrier.kind().as_str(), carrier.name()))
    });
    let ranges: Vec<String> = ranges.collect();
    if ranges.is_empty() { vec![format!("{range} ({})", world.name_of(occupant))] } else { ranges }
}

/// Why a claim that is not on the carrier of its node yet would harm the agent there.
fn why_harmful(world: &World, node: &Node, known: &KnownClaim) -> Option<NotPublishable> {
    let (claim, reader) = (&known.claim, world.reader_of(&node.name));
    let carrier = world.carrier(&node.name)?;
    let pod_ip_pool = reader.pool_name_on(carrier, claim);
    if pod_ip_pool.is_none() || reader.lists(carrier, claim.cidr) {
        return None;
    }
    let class = AddressClass { family: claim.cidr.family(), pod_ip_pool };
    let misfit = world.harmful_misfit(&node.name, &class, claim.cidr.prefix_len())?;
    Some(NotPublishable::PodIpPool(class.pod_ip_pool?, misfit))
}
