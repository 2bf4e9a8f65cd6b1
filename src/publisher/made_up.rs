//! A publisher for a mode that does not exist. It shows in the unit tests that the seam fits other modes than crd.
//!
//! A Node has one block per family, for its whole life, as the value of a label. Its agent takes the block off by
//! removing the label; we never do. The Node may be in another store than the claims, so a proof of absence compares
//! uids, and not revisions.

#![allow(
    clippy::unused_self,
    reason = "every mode has the same methods, and not every mode needs all it is given"
)]

use std::collections::BTreeSet;
use std::fmt;

use super::answer::{Absence, Drain, Holding, Leaving, ProbeState, Removal, Stays};
use super::demand::Demand;
use super::support::Support;
use crate::model::carrier::{Carrier, CarrierChange, FormerCarrier};
use crate::model::claim::Claim;
use crate::model::finding::Finding;
use crate::model::kind::Kind;
use crate::model::node::Node;
use crate::model::outcome::Presence;
use crate::model::pool::{Expand, Pool};
use crate::model::release::Release;
use crate::model::request::{Publication, Read, Request, Withdrawal, WithdrawalStep};
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

/// The label that has the block as its value.
pub(crate) const LABEL: &str = "made-up";

/// The made-up mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeUp {
    pub(crate) families: BTreeSet<Family>,
}

impl fmt::Display for MadeUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("made up")
    }
}

fn block(node: &Node) -> Option<Cidr> {
    node.labels.get(LABEL)?.parse().ok()
}

fn block_of(carrier: Carrier<'_>) -> Option<Cidr> {
    match carrier {
        Carrier::Node(node) => block(node),
        Carrier::CiliumNode(_) => None,
    }
}

/// What a Node carries.
pub(super) fn carried(node: &Node) -> AddressSet {
    block(node).into_iter().collect()
}

impl MadeUp {
    pub(super) fn carrier_kind(&self) -> Kind {
        Kind::Node
    }

    pub(super) fn families(&self) -> &BTreeSet<Family> {
        &self.families
    }

    pub(super) fn gives_one_block(&self) -> bool {
        false
    }

    pub(super) fn agents_ask(&self) -> bool {
        false
    }

    pub(super) fn shows_use(&self) -> bool {
        true
    }

    pub(super) fn gives_whole_blocks(&self) -> bool {
        false
    }

    /// What others have put on a CiliumNode is kept, and what can be claimed of it is claimed.
    pub(super) fn foreign_hand(
        &self,
        _: Carrier<'_>,
        _: &dyn Fn(Cidr) -> bool,
        _: &dyn Fn(Cidr) -> Option<String>,
    ) -> Option<Finding> {
        None
    }

    pub(super) fn carries(&self, carrier: Carrier<'_>, cidr: Cidr) -> bool {
        block_of(carrier) == Some(cidr)
    }

    pub(super) fn offered_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> AddressSet {
        block_of(carrier).filter(|block| block.overlaps(cidr)).into_iter().collect()
    }

    pub(super) fn n_published_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> u128 {
        self.offered_in(carrier, cidr).count_in(cidr)
    }

    pub(super) fn used_in(&self, _: Carrier<'_>, _: Cidr) -> AddressSet {
        AddressSet::new()
    }

    pub(super) fn n_used_in(&self, _: Carrier<'_>, _: Cidr) -> u128 {
        0
    }

    pub(super) fn blocks(&self, carrier: Carrier<'_>) -> Vec<Cidr> {
        block_of(carrier).into_iter().collect()
    }

    pub(super) fn withheld_in(&self, _: Carrier<'_>, _: Cidr) -> AddressSet {
        AddressSet::new()
    }

    pub(super) fn n_offered(&self, block: Cidr, withheld: &AddressSet) -> u128 {
        block.size() - withheld.count_in(block)
    }

    pub(super) fn agent_lets_go(&self, _: Carrier<'_>) -> bool {
        false
    }

    pub(super) fn answered(&self, _: Carrier<'_>, _: Carrier<'_>) -> Option<Revision> {
        None
    }

    pub(super) fn second_allocator(&self, _: Carrier<'_>) -> Option<Finding> {
        None
    }

    pub(super) fn families_of(&self, _: Carrier<'_>) -> &BTreeSet<Family> {
        &self.families
    }

    pub(super) fn minimum_for_start(&self, _: Carrier<'_>, _: Family) -> u128 {
        1
    }

    pub(super) fn demand<'a>(
        &self,
        _: Carrier<'_>,
        _: Family,
        blocks: impl Iterator<Item = &'a Claim>,
    ) -> Demand {
        blocks.fold(Demand::default(), |demand, claim| demand.grown_by(claim.offered_count()))
    }

    pub(super) fn is_enough(&self, _: Carrier<'_>, _: Family, holding: Holding, _: &Pool) -> bool {
        holding.n_blocks >= 1
    }

    pub(super) fn is_short(&self, _: Demand, _: Expand) -> bool {
        false
    }

    pub(super) fn publication(
        &self,
        carrier: Carrier<'_>,
        claims: &[&Claim],
        _: Option<&FormerCarrier>,
    ) -> Option<Publication> {
        let claim = claims.first().filter(|_| block_of(carrier).is_none())?;
        Some(Publication {
            node: carrier.name().clone(),
            uid: carrier.uid().clone(),
            revision: carrier.revision(),
            added: vec![claim.cidr],
            completed: Vec::new(),
            n_addresses: 0,
            change: CarrierChange::MadeUp(claim.cidr),
        })
    }

    pub(super) fn is_fresh(&self, _: Revision, _: Carrier<'_>) -> bool {
        true
    }

    pub(super) fn absence(&self, removal: Removal<'_>) -> Absence {
        match (removal.carrier, removal.presence) {
            (Some(carrier), _) if *carrier.uid() == removal.claim.node_uid && removal.is_carried => {
                Absence::NotYet
            }
            // The Node is the carrier: with it goes what it carried.
            (Some(_), _) | (None, Some(Presence::Gone)) => Absence::Proven,
            (None, Some(Presence::Is(_) | Presence::Unreadable)) => Absence::NotYet,
            (None, None) => {
                Absence::Provable(Read::Node(removal.claim.node.clone(), removal.claim.revision).into())
            }
        }
    }

    pub(super) fn later_version(&self, _: Carrier<'_>, _: Revision) -> Option<Request> {
        None
    }

    pub(super) fn use_is_known(&self, _: Carrier<'_>) -> bool {
        true
    }

    pub(super) fn probe(&self, _: Carrier<'_>) -> ProbeState {
        ProbeState::None
    }

    pub(super) fn wrote_use(&self, _: Carrier<'_>, _: Carrier<'_>) -> bool {
        false
    }

    pub(super) fn may_leave(&self, _: Carrier<'_>, _: &Claim) -> Result<(), Stays> {
        Err(Stays::Primary)
    }

    pub(super) fn drain(&self, _: Carrier<'_>, _: &Claim) -> Drain {
        Drain::Stays(Stays::Primary)
    }

    pub(super) fn leaving(&self, carrier: Carrier<'_>, claim: &Claim) -> Leaving {
        if self.carries(carrier, claim.cidr) { Leaving::NoConsent } else { Leaving::Off }
    }

    pub(super) fn has_stale_marks(&self, _: Carrier<'_>, _: Cidr) -> bool {
        false
    }

    pub(super) fn withdrawal(&self, _: Carrier<'_>, _: WithdrawalStep, _: &[Cidr]) -> Option<Withdrawal> {
        None
    }

    pub(super) fn is_in_handshake(&self, _: Carrier<'_>) -> bool {
        false
    }

    pub(super) fn support(&self, _: Option<Release>) -> Support {
        Support::Full
    }

    pub(super) fn why_unsupported(&self, release: Release) -> String {
        format!("{release} works")
    }

    pub(super) fn finding(&self, _: Carrier<'_>) -> Option<Finding> {
        None
    }
}
