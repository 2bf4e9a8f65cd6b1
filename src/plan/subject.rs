//! One node that has a carrier, with everything that a decision about it needs.

use super::evidence;
use super::publishable::may_publish;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::node::Node;
use crate::model::pool::Pool;
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

/// The pool whose `expand` and `perNode` size a node in one family.
#[derive(Debug, Clone, Copy)]
pub(super) enum FirstPool<'a> {
    /// It can give blocks of the family.
    Gives(&'a Pool),
    /// None of the node's pools can give a block of the family, and this one is asked first. It says only whether the node needs more:
    /// the node can get nothing, so no limit is to blame.
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
    /// The node's first pool of a family, whose `expand` and `perNode` size the node there: the first that selects it and
    /// can give blocks of the family, be they all taken. `None` if no pool selects the node.
    pub(super) fn first_pool(&self, family: Family) -> Option<FirstPool<'a>> {
        let world = self.world;
        let pools = || world.pools_of(&self.node.name);
        let gives =
            pools().find(|pool| world.ledger().gives_out_of(&pool.name, family)).map(FirstPool::Gives);
        let declares = || pools().find(|pool| pool.families.contains_key(&family));
        gives.or_else(|| declares().or_else(|| pools().next()).map(FirstPool::Closed))
    }

    pub(super) fn serving(&self) -> Option<&'a Serving> {
        self.world.serving(&self.node.name)
    }

    /// The claims that count for this node: held or draining.
    pub(super) fn held(&self) -> impl Iterator<Item = &'a Claim> {
        self.world
            .claims_of(&self.node.name)
            .map(|known| &known.claim)
            .filter(|claim| claim.is_published_state())
    }

    /// Of these, the claims that are on the carrier or may be published there. A claim that overlaps something, and is
    /// not carried, gives the node no addresses.
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

    /// Whether the carrier has a block of ours, so that the first grant is over.
    pub(super) fn is_served(&self) -> bool {
        self.world.is_served(&self.node.name)
    }
}
