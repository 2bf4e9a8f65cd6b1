//! A write that fails for as long as its cause lasts, in the server's words, and the nodes and pools that wait for it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::names::{NodeName, PoolName};
use super::time::{Timestamp, whole_seconds};

/// How long a write fails before it is reported. A server that starts refuses everything for a moment.
pub const REPORTED_AFTER: Duration = Duration::from_secs(10);

/// The time between two attempts of all that wait for the same cause. The first attempts come sooner.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// A write that has failed for [`REPORTED_AFTER`], with one cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Failure {
    /// When it first failed.
    pub since: Timestamp,
    /// The action that fails, such as `create NodeIPBlock`.
    pub action: String,
    /// The answer of the server, or that there was none.
    pub words: String,
    /// The nodes that wait for it. One that was read from the Lease names the first of them only.
    pub nodes: BTreeSet<NodeName>,
    /// The pools that wait for it, and those of the nodes.
    pub pools: BTreeSet<PoolName>,
    /// The number of nodes that wait for it.
    pub n_nodes: usize,
}

impl Failure {
    /// The failure in a sentence for a person. It stays the same as long as the cause does.
    #[must_use]
    pub fn description(&self) -> String {
        format!(
            "\"{}\" has failed since {}: {}; the controller tries again every {} s",
            self.action,
            whole_seconds(self.since),
            self.words,
            PROBE_INTERVAL.as_secs()
        )
    }
}
