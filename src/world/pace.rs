//! How fast blocks are taken back from nodes that live: how many began to leave within a minute, and on which nodes
//! agents are being asked.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::model::names::NodeName;

/// Over which time it is counted how many blocks began to leave.
const COUNTED_OVER: Duration = Duration::from_secs(60);

/// How fast blocks are taken back.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    /// When this process began to take back each of the last blocks.
    begun: VecDeque<Duration>,
    /// Since when no more begin, because too many began at once.
    pub(super) stopped: Option<Duration>,
    /// The nodes whose carriers show that their agents are being asked to let addresses go.
    pub(super) in_handshake: BTreeSet<NodeName>,
}

impl Pace {
    /// How many began to leave within the last minute.
    pub(super) fn n_begun(&self, now: Duration) -> usize {
        self.begun.iter().filter(|begun| **begun + COUNTED_OVER > now).count()
    }

    /// One more begins to leave.
    pub(super) fn begins(&mut self, now: Duration) {
        self.begun.retain(|begun| *begun + COUNTED_OVER > now);
        self.begun.push_back(now);
    }

    /// More may begin to leave, and the count starts anew.
    pub(super) fn resume(&mut self) {
        self.stopped = None;
        self.begun.clear();
    }
}
