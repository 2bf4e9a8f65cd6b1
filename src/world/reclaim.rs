//! What the world knows of blocks that leave nodes that live: which are to leave, on how many nodes agents are being
//! asked, and how fast it goes.

use std::time::Duration;

use super::World;
use crate::model::carrier::Carrier;
use crate::model::claim::Claim;
use crate::model::names::NodeName;
use crate::model::pool::RangeState;

impl World {
    /// Whether a block is to leave its node as soon as that can do without it: its pool is being deleted, or its range of
    /// the pool drains. A pool that is gone without its finalizer says nothing.
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

    /// The cause that keeps a draining block on its carrier, as far as objects say: something on the carrier, or an agent
    /// that does not run and so can't consent.
    #[must_use]
    pub fn why_kept(&self, carrier: Carrier<'_>, claim: &Claim) -> Option<String> {
        let stays =
            self.reader_of(&claim.node).may_leave(carrier, claim).err().map(|stays| stays.to_string());
        stays.or_else(|| self.agent_on(&claim.node).err().map(|why| why.to_string()))
    }

    /// On how many nodes agents are being asked to let addresses go.
    #[must_use]
    pub fn n_in_handshake(&self) -> usize {
        self.pace.in_handshake.len()
    }

    /// Whether the agent of a node is being asked.
    #[must_use]
    pub fn is_in_handshake(&self, node: &NodeName) -> bool {
        self.pace.in_handshake.contains(node)
    }

    /// How many blocks this process began to take back within the last minute.
    #[must_use]
    pub fn n_starts_of_reclaim(&self, now: Duration) -> usize {
        self.pace.n_begun(now)
    }

    /// Since when no more blocks begin to leave, because too many did within a minute. It ends when a freeze of reclaim
    /// begins or ends, or with the process.
    #[must_use]
    pub fn reclaim_stopped_since(&self) -> Option<Duration> {
        self.pace.stopped
    }

    /// One more block begins to leave.
    pub(super) fn begins_to_leave(&mut self, now: Duration) {
        self.pace.begins(now);
    }

    /// No more blocks begin to leave from now on.
    pub(super) fn stop_reclaim(&mut self, now: Duration) {
        self.pace.stopped.get_or_insert(now);
    }

    /// More blocks may begin to leave.
    pub(super) fn resume_reclaim(&mut self) {
        self.pace.resume();
    }

    /// An agent is about to be asked.
    pub(super) fn enters_handshake(&mut self, node: &NodeName) {
        self.pace.in_handshake.insert(node.clone());
    }

    /// The carrier of a node is another, or gone.
    pub(super) fn update_handshake(&mut self, node: &NodeName) {
        if self.carrier(node).is_some_and(|carrier| self.reader.is_in_handshake(carrier)) {
            self.enters_handshake(node);
        } else {
            self.pace.in_handshake.remove(node);
        }
    }
}
