//! One node that has a carrier, with everything that a decision about it needs.

use super::evidence;
use super::publishable::may_publish;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::node::Node;
use crate::publisher::Publisher;
use crate::world::{Serving, World};

/// One node that has a carrier, with everything that a decision about it needs.
pub(super) struct Subject<'a> {
    pub(super) world: &'a World,
    pub(super) node: &'a Node,
    pub(super) carrier: Carrier<'a>,
    pub(super) publisher: &'a Publisher,
}

impl<'a> Subject<'a> {
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
