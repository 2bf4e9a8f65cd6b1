//! How fast blocks are reclaimed: the number that started within a minute, and the nodes whose agents are being asked
//! to release addresses.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::model::names::NodeName;

/// The time over which starts are counted.
const COUNTED_OVER: Duration = Duration::from_secs(60);

/// How fast blocks are reclaimed.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    /// When this process started to reclaim each of the last blocks.
    begun: VecDeque<Duration>,
    /// Since when no block starts draining, because too many did within a minute.
    pub(super) stopped: Option<Duration>,
    /// The nodes whose carriers show that their agents are being asked to release addresses.
    pub(super) in_handshake: BTreeSet<NodeName>,
}

impl Pace {
    /// The number of blocks whose reclaim started within the last minute.
    pub(super) fn n_begun(&self, now: Duration) -> usize {
        self.begun.iter().filter(|begun| **begun + COUNTED_OVER > now).count()
    }

    /// The reclaim of one more block starts.
    pub(super) fn begins(&mut self, now: Duration) {
        self.begun.retain(|begun| *begun + COUNTED_OVER > now);
        self.begun.push_back(now);
    }

    /// Blocks may start draining again, and the count restarts.
    pub(super) fn resume(&mut self) {
        self.stopped = None;
        self.begun.clear();
    }
}
