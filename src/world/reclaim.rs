//! Draining blocks in the world: the blocks that must leave, the nodes whose agents are being asked to release
//! addresses, and the rate of drains.

use std::time::Duration;

use super::World;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::names::NodeName;
use crate::model::pool::RangeState;

impl World {
    /// Whether a block leaves its node as soon as the node can do without it: its pool is being deleted, or its range
    /// of the pool drains. `false` if the pool was deleted without its finalizer.
    #[must_use]
    pub fn must_leave(&self, claim: &Claim) -> bool {
        let Some(object) = self.pool_object(&claim.pool) else {
            return false;
        };
        let drains = || {
            let pool = object.pool.as_ref().ok()?;
            let ranges = &pool.families.get(&claim.cidr.family())?.cidrs;
            ranges.iter().find(|(range, _)| range.covers(claim.cidr)).map(|(_, state)| *state)
        };
        object.deleting || drains() == Some(RangeState::Draining)
    }

    /// The cause that keeps a draining block on its carrier, as far as objects show it: something on the carrier, or an
    /// agent that does not run and so can't consent.
    #[must_use]
    pub fn why_kept(&self, carrier: Carrier<'_>, claim: &Claim) -> Option<String> {
        let stays =
            self.reader_of(&claim.node).may_leave(carrier, claim).err().map(|stays| stays.to_string());
        stays.or_else(|| self.agent_on(&claim.node).err().map(|why| why.to_string()))
    }

    /// The number of nodes whose agents are being asked to release addresses.
    #[must_use]
    pub fn n_in_handshake(&self) -> usize {
        self.pace.in_handshake.len()
    }

    /// Whether the agent of a node is being asked to release addresses.
    #[must_use]
    pub fn is_in_handshake(&self, node: &NodeName) -> bool {
        self.pace.in_handshake.contains(node)
    }

    /// The number of blocks that this process started to reclaim within the last minute.
    #[must_use]
    pub fn n_starts_of_reclaim(&self, now: Duration) -> usize {
        self.pace.n_begun(now)
    }

    /// Since when no block starts draining, because too many did within a minute. This lasts until reclaim is frozen or
    /// unfrozen, or the process exits.
    #[must_use]
    pub fn reclaim_stopped_since(&self) -> Option<Duration> {
        self.pace.stopped
    }

    /// The carrier of a node has changed, or was deleted.
    pub(super) fn update_handshake(&mut self, node: &NodeName) {
        if self.carrier(node).is_some_and(|carrier| self.reader_of(node).is_in_handshake(carrier)) {
            self.pace.in_handshake.insert(node.clone());
        } else {
            self.pace.in_handshake.remove(node);
        }
    }
}
