//! The log lines of findings: the first of a kind in words, and of many at once their number.
//!
//! A start or a new pool can bring the same finding of every node. All of them are in the log at level debug.

use std::collections::{BTreeMap, BTreeSet};

use tracing::{debug, info, warn};

use crate::model::finding::{self, Finding};
use crate::model::names::{NodeName, PoolName};

/// The maximum number of lines about one reason between two summaries.
const MAX_LINES: usize = 3;

/// How many findings were logged since the last summary, by reason.
#[derive(Debug, Default)]
pub(super) struct FindingLog {
    counts: BTreeMap<&'static str, Count>,
}

/// The changes of one reason.
#[derive(Debug, Default)]
struct Count {
    n_changes: usize,
    /// Whether one of them is a new problem.
    has_problem: bool,
}

impl FindingLog {
    /// Replaces findings, and logs which are new and which are resolved.
    pub(super) fn replace(&mut self, before: &mut BTreeSet<Finding>, found: BTreeSet<Finding>) {
        found.difference(before).for_each(|finding| self.found(finding));
        finding::ended(before, &found).for_each(|finding| self.resolved(finding));
        *before = found;
    }

    /// Logs a new finding.
    pub(super) fn found(&mut self, finding: &Finding) {
        let (kind, subject) = (finding.kind.as_str(), finding.subject.as_str());
        match (self.is_one_of_many(kind, finding.kind.is_wrong()), finding.kind.is_wrong()) {
            (true, _) => debug!(finding = kind, kind = subject, name = finding.name, "{}", finding.message),
            (false, true) => {
                warn!(finding = kind, kind = subject, name = finding.name, "{}", finding.message);
            }
            (false, false) => {
                info!(finding = kind, kind = subject, name = finding.name, "{}", finding.message);
            }
        }
    }

    /// Logs that a node waits for a block.
    pub(super) fn waits(&mut self, node: &NodeName, message: &str) {
        if self.is_one_of_many("NoCapacity", true) {
            debug!(%node, "{message}");
        } else {
            warn!(%node, "{message}");
        }
    }

    /// Logs that many nodes wait for a block of a pool.
    pub(super) fn many_wait(&mut self, pool: &PoolName, message: &str) {
        if self.is_one_of_many("NoCapacity", true) {
            debug!(%pool, "{message}");
        } else {
            warn!(%pool, "{message}");
        }
    }

    /// Logs that a finding is resolved.
    pub(super) fn resolved(&mut self, finding: &Finding) {
        let (kind, subject) = (finding.kind.as_str(), finding.subject.as_str());
        if self.is_one_of_many(kind, false) {
            debug!(finding = kind, kind = subject, name = finding.name, "resolved: {}", finding.message);
        } else {
            info!(finding = kind, kind = subject, name = finding.name, "resolved: {}", finding.message);
        }
    }

    /// Logs the numbers of lines that were left out since the last call.
    pub(super) fn summarize(&mut self) {
        for (reason, count) in std::mem::take(&mut self.counts) {
            let n_more = count.n_changes.saturating_sub(MAX_LINES);
            let details = "details: `cilium-node-ipam status`, or RUST_LOG=debug";
            match (n_more > 0, count.has_problem) {
                (true, true) => warn!(finding = reason, "{n_more} more changes of {reason}; {details}"),
                (true, false) => info!(finding = reason, "{n_more} more changes of {reason}; {details}"),
                (false, _) => {}
            }
        }
    }

    fn is_one_of_many(&mut self, reason: &'static str, is_problem: bool) -> bool {
        let count = self.counts.entry(reason).or_default();
        count.n_changes += 1;
        count.has_problem |= is_problem;
        count.n_changes > MAX_LINES
    }
}
