//! One node that has a carrier, with everything that a decision about it needs.

use std::collections::BTreeSet;

use super::evidence;
use super::publishable::may_publish;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::names::PodIpPoolName;
use crate::model::node::Node;
use crate::model::pool::Pool;
use crate::model::share::Share;
use crate::net::cidr::Family;
use crate::publisher::Publisher;
use crate::world::{Serving, World};

/// One node that has a carrier, with everything that a decision about it needs.
pub(super) struct Subject<'a> {
    pub(super) world: &'a World,
    pub(super) node: &'a Node,
    pub(super) carrier: Carrier<'a>,
    pub(super) publisher: &'a Publisher,
}

/// The pool whose `expand` and `perNode` size a node in one share.
#[derive(Debug, Clone, Copy)]
pub(super) enum FirstPool<'a> {
    /// It can give blocks of the share.
    Gives(&'a Pool),
    /// None of the node's pools can give a block of the share, and the node asks this one first. The pool only says
    /// whether the node needs more. The node can get nothing, so a limit is not the cause.
    Closed(&'a Pool),
}

impl<'a> FirstPool<'a> {
    pub(super) const fn pool(self) -> &'a Pool {
        match self {
            Self::Gives(pool) | Self::Closed(pool) => pool,
        }
    }

    /// The maximum number of blocks, where a limit counts.
    pub(super) const fn max_blocks(self) -> Option<u32> {
        match self {
            Self::Gives(pool) => Some(pool.per_node.max_blocks),
            Self::Closed(_) => None,
        }
    }
}

impl<'a> Subject<'a> {
    /// The shares of the blocks with which the agent of the node is served.
    pub(super) fn shares(&self) -> BTreeSet<Share> {
        let names = self.names();
        let families = self.publisher.families().iter();
        let of_family = |family: &Family| {
            let family = *family;
            names.iter().map(move |name| Share { family, pod_ip_pool: name.clone() })
        };
        families.flat_map(of_family).collect()
    }

    /// The names under which pools give the node blocks, or under which its claims are published.
    fn names(&self) -> BTreeSet<Option<PodIpPoolName>> {
        if !self.publisher.traits().has_pod_ip_pools {
            return [None].into();
        }
        let pools = self.world.pools_of(&self.node.name);
        let of_pools = pools.map(|pool| self.publisher.pod_ip_pool_of(pool).cloned());
        of_pools.chain(self.claims().map(|claim| self.publisher.carried_under(self.carrier, claim))).collect()
    }

    /// Whether a claim is of this share.
    pub(super) fn is_of(&self, claim: &Claim, share: &Share) -> bool {
        claim.cidr.family() == share.family
            && self.publisher.carried_under(self.carrier, claim) == share.pod_ip_pool
    }

    /// The node's first pool of a share, whose `expand` and `perNode` size the node there. It is the first that
    /// selects the node and can give blocks of the share, even if all of them are taken. `None` if no such pool
    /// selects the node.
    pub(super) fn first_pool(&self, share: &Share) -> Option<FirstPool<'a>> {
        let (world, family) = (self.world, share.family);
        let pools = || world.pools_for(&self.node.name, share);
        let gives = pools().find(|pool| world.gives_out_of(pool, family)).map(FirstPool::Gives);
        let declares = || pools().find(|pool| pool.families.contains_key(&family));
        gives.or_else(|| declares().or_else(|| pools().next()).map(FirstPool::Closed))
    }

    /// The claims that the carrier may carry.
    pub(super) fn publishable(&self) -> Vec<&'a Claim> {
        let claims = self.world.claims_of(&self.node.name);
        let publishable = claims.filter(|known| may_publish(self.world, self.node, known).is_ok());
        publishable.map(|known| &known.claim).collect()
    }

    pub(super) fn serving(&self) -> Option<&'a Serving> {
        self.world.serving(&self.node.name)
    }

    /// The claims of the node, in every claim state.
    pub(super) fn claims(&self) -> impl Iterator<Item = &'a Claim> {
        self.world.claims_of(&self.node.name).map(|known| &known.claim)
    }

    /// The claims that count for this node: held or draining.
    pub(super) fn occupied(&self) -> impl Iterator<Item = &'a Claim> {
        self.claims().filter(|claim| claim.is_published_state())
    }

    /// Of the occupied claims, those that are on the carrier or may be published there. A claim that overlaps
    /// something and is not published gives the node no addresses.
    pub(super) fn offering(&self) -> impl Iterator<Item = &'a Claim> {
        self.world
            .claims_of(&self.node.name)
            .filter(|known| {
                evidence::is_carried(self.world, &known.claim)
                    || may_publish(self.world, self.node, known).is_ok()
            })
            .map(|known| &known.claim)
            .filter(|claim| claim.is_published_state())
    }

    /// Whether the carrier has a block of ours, so that the first grant is complete.
    pub(super) fn is_served(&self) -> bool {
        self.world.is_served(&self.node.name)
    }
}
