//! One node that has a carrier: its classes of addresses, and the pools and claims of each.

use std::collections::BTreeMap;
use std::ops::Deref;

use super::facts::Facts;
use crate::model::address_class::AddressClass;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::node::Node;
use crate::model::pool::Pool;

/// The pool whose `expand` and `perNode` size a node in one class.
#[derive(Debug, Clone, Copy)]
pub(super) enum FirstPool<'a> {
    /// It can give blocks of the class.
    Gives(&'a Pool),
    /// None of the node's pools can give a block of the class, and the node asks this one first. The pool only says
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

/// One node that has a carrier.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) node: &'a Node,
    pub(super) carrier: Carrier<'a>,
}

impl<'a> Subject<'a> {
    /// `None` without a Node or a carrier.
    pub(super) fn of(facts: &'a Facts<'a>) -> Option<Self> {
        Some(Self { facts, node: facts.node?, carrier: facts.carrier? })
    }

    /// The claims that the carrier may carry.
    pub(super) fn publishable(&self) -> Vec<&'a Claim> {
        let publishable = self.facts.claims.iter().filter(|facts| facts.is_publishable());
        publishable.map(|facts| facts.claim).collect()
    }

    /// The claims of the node, in every state.
    pub(super) fn claims(&self) -> impl Iterator<Item = &'a Claim> + use<'a> {
        self.facts.claims.iter().map(|facts| facts.claim)
    }

    /// The claims that count for this node: held or draining.
    pub(super) fn occupied(&self) -> impl Iterator<Item = &'a Claim> + use<'a> {
        self.claims().filter(|claim| claim.is_published_state())
    }

    /// Of the occupied claims, those whose blocks give the node addresses.
    pub(super) fn offering(&self) -> impl Iterator<Item = &'a Claim> + use<'a> {
        self.facts.claims.iter().filter(|facts| facts.is_offering()).map(|facts| facts.claim)
    }

    /// The classes of the blocks with which the agent of the node is served.
    pub(super) fn classes(&self) -> &'a [AddressClass] {
        &self.facts.classes
    }

    /// Whether a claim is of this class.
    pub(super) fn is_of(&self, claim: &Claim, class: &AddressClass) -> bool {
        claim.cidr.family() == class.family
            && self.publisher.pool_name_on(self.carrier, claim) == class.pod_ip_pool
    }

    /// The node's first pool of a class, whose `expand` and `perNode` size the node there. It is the first that
    /// selects the node and can give blocks of the class, even if all of them are taken. `None` if no such pool
    /// selects the node.
    pub(super) fn first_pool(&self, class: &AddressClass) -> Option<FirstPool<'a>> {
        let (world, family) = (self.world, class.family);
        let pools = || world.pools_for(&self.node.name, class);
        let gives = pools().find(|pool| world.gives_out_of(pool, family)).map(FirstPool::Gives);
        let declares = || pools().find(|pool| pool.families.contains_key(&family));
        gives.or_else(|| declares().or_else(|| pools().next()).map(FirstPool::Closed))
    }

    /// Whether an agent that finds these claims can start. It stops waiting as soon as it has addresses of any
    /// family, and fails if one of its families has none.
    pub(super) fn can_start_with(&self, claims: &[&Claim]) -> bool {
        let mut offered: BTreeMap<AddressClass, u128> =
            self.classes().iter().map(|class| (class.clone(), 0)).collect();
        for claim in claims {
            let pod_ip_pool = self.publisher.pool_name_on(self.carrier, claim);
            let offered =
                offered.entry(AddressClass { family: claim.cidr.family(), pod_ip_pool }).or_default();
            *offered = offered.saturating_add(claim.offered_count());
        }
        self.publisher.can_start_with(self.carrier, &offered)
    }
}

impl<'a> Deref for Subject<'a> {
    type Target = Facts<'a>;

    fn deref(&self) -> &Self::Target {
        self.facts
    }
}
