//! Everything that a decision about one node takes from the world, derived once.
//!
//! [`Facts`] has the objects of the node, and [`ClaimFacts`] for each of its claims. Steps take these values, and none
//! sees the requests of another.

use std::collections::BTreeSet;

use super::evidence::is_carried;
use super::publishable::{NotPublishable, may_publish};
use crate::model::address_class::AddressClass;
use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState};
use crate::model::names::{NodeName, PodIpPoolName};
use crate::model::node::Node;
use crate::model::request::Request;
use crate::net::cidr::Family;
use crate::publisher::Publisher;
use crate::publisher::answer::{Drain, Leaving};
use crate::publisher::traits::Traits;
use crate::world::{KnownClaim, NodeProgress, World};

/// One node, with the facts that its decision relies on.
pub(super) struct Facts<'a> {
    pub(super) world: &'a World,
    pub(super) name: &'a NodeName,
    pub(super) publisher: &'a Publisher,
    pub(super) traits: Traits,
    pub(super) node: Option<&'a Node>,
    pub(super) carrier: Option<Carrier<'a>>,
    /// Whether the carrier has a block of ours, so that the first grant is complete.
    pub(super) is_served: bool,
    /// The claims of the node, in every state.
    pub(super) claims: Vec<ClaimFacts<'a>>,
    /// The classes of the blocks with which its agent is served; none without a carrier.
    pub(super) classes: Vec<AddressClass>,
}

/// One claim of the node.
pub(super) struct ClaimFacts<'a> {
    pub(super) known: &'a KnownClaim,
    pub(super) claim: &'a Claim,
    /// Whether the carrier shows any address because of this claim.
    pub(super) is_carried: bool,
    /// Whether the carrier shows an address of the block in a field of another mode, in which its agent may run.
    pub(super) is_shown_by_other_mode: bool,
    /// Whether its pool wants the block back: it is being deleted, or its range drains.
    pub(super) must_leave: bool,
    /// Whether the carrier may get it. `None` without a Node.
    pub(super) publishable: Option<Result<(), NotPublishable>>,
    /// The progress of a claim that drains on this carrier.
    pub(super) drain: Option<Drain>,
    /// The progress of a claim that is Releasing(Reclaimed): its agent has released it, or is asked after its removal.
    pub(super) leaving: Option<Leaving>,
}

/// Whether something about a claim is so.
#[derive(Debug)]
pub(super) enum Answer {
    No,
    Yes,
    /// It is unknown, and an event, a time or a later step will show it.
    Unknown,
    /// It is unknown, and this request may show it.
    First(Box<Request>),
}

impl Answer {
    /// Unknown until this request is answered.
    pub(super) fn first(request: impl Into<Request>) -> Self {
        Self::First(Box::new(request.into()))
    }
}

impl<'a> Facts<'a> {
    /// The facts about a node.
    pub(super) fn of(world: &'a World, name: &'a NodeName, publisher: &'a Publisher) -> Self {
        let (node, carrier) = (world.node(name), world.carrier(name));
        let claim_facts = |known: &'a KnownClaim| {
            let claim = &known.claim;
            let drain = carrier.filter(|carrier| claim.state == ClaimState::Draining(carrier.uid().clone()));
            let is_shown_by_other_mode =
                carrier.is_some_and(|carrier| publisher.is_shown_by_other_mode(carrier, claim.cidr));
            let leaving = carrier.filter(|_| claim.is_reclaimed()).map(|carrier| {
                if is_shown_by_other_mode {
                    Leaving::without_consent(carrier, claim)
                } else {
                    publisher.leaving(carrier, claim)
                }
            });
            ClaimFacts {
                known,
                claim,
                is_carried: is_carried(world, claim),
                is_shown_by_other_mode,
                must_leave: world.must_leave(claim),
                publishable: node.map(|node| may_publish(world, node, known)),
                drain: drain.map(|carrier| publisher.drain(carrier, claim)),
                leaving,
            }
        };
        Self {
            world,
            name,
            publisher,
            traits: publisher.traits(),
            node,
            carrier,
            is_served: world.is_served(name),
            claims: world.claims_of(name).map(claim_facts).collect(),
            classes: carrier.map(|carrier| classes(world, name, publisher, carrier)).unwrap_or_default(),
        }
    }

    /// Whether an administrator has stopped reclaim, everywhere or for this node.
    pub(super) fn stops_reclaim(&self) -> bool {
        self.world.freeze().stops_reclaim() || self.node.is_some_and(|node| node.growth_hold.is_some())
    }

    /// The memory of this process of its decisions about the node.
    pub(super) fn serving(&self) -> Option<&'a NodeProgress> {
        self.world.serving(self.name)
    }
}

/// The classes of a node: each family of its agents, under each name of a Pod IP pool under which pools give the node
/// blocks or its claims are published.
fn classes(world: &World, name: &NodeName, publisher: &Publisher, carrier: Carrier<'_>) -> Vec<AddressClass> {
    let names: BTreeSet<Option<PodIpPoolName>> = if publisher.traits().has_pod_ip_pools {
        let of_pools = world.pools_of(name).map(|pool| publisher.pod_ip_pool_of(pool).cloned());
        let claims = world.claims_of(name);
        of_pools.chain(claims.map(|known| publisher.pool_name_on(carrier, &known.claim))).collect()
    } else {
        [None].into()
    };
    let of_family = |family: &Family| {
        let family = *family;
        names.iter().map(move |name| AddressClass { family, pod_ip_pool: name.clone() })
    };
    publisher.families().iter().flat_map(of_family).collect()
}

impl ClaimFacts<'_> {
    pub(super) fn is_publishable(&self) -> bool {
        self.publishable == Some(Ok(()))
    }

    /// Whether the claim is held or draining, and its block is on the carrier or may be published there. A claim that
    /// overlaps something and is not published gives the node no addresses.
    pub(super) fn is_offering(&self) -> bool {
        self.claim.is_published_state() && (self.is_carried || self.is_publishable())
    }
}
