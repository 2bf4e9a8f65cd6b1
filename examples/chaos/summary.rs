//! The counts of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts by name. Clones are one summary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary(Arc<Mutex<BTreeMap<String, u64>>>);

impl Summary {
    /// One more of these.
    pub(crate) fn count(&self, what: &str) {
        self.add(what, 1);
    }

    pub(crate) fn add(&self, what: &str, count: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what.to_owned()).or_default() += count;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | how often |\n|---|---|")?;
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().try_for_each(|(what, count)| writeln!(f, "| {what} | {count} |"))
    }
}
