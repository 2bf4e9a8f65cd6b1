//! One timeline (safety rule 8): revisions never decrease.
//!
//! They do decrease when the store is restored from a backup. Then no knowledge of this process can be trusted, so it
//! exits and starts again from lists.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::observation::Object;
use crate::model::revision::{AnyRevision, Revision};

/// The highest revision of custom resources that this process has seen.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Its number; zero where none was seen.
    highest: AtomicU64,
}

/// The store answered with a revision below one that had been seen before the request was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server answered with revision {answered} after revision {seen}: its store was restored from a \
     backup; the process exits and must restart from lists"
)]
pub struct StoreRewound {
    /// The revision of the answer.
    pub answered: Revision,
    /// A higher one that was seen earlier.
    pub seen: Revision,
}

impl Timeline {
    /// Notes a revision that an object, a list or an answer had.
    pub fn saw(&self, revision: Revision) {
        self.highest.fetch_max(revision.number(), Ordering::SeqCst);
    }

    /// Notes the revision of an object that a list or watch showed. Nodes may live in another store, and say nothing.
    pub fn saw_object(&self, object: &Object) {
        if let Some(revision) = object.revision().and_then(AnyRevision::within) {
            self.saw(revision);
        }
    }

    /// The highest revision seen so far. Ask for it before a consistent read is sent.
    #[must_use]
    pub fn highest(&self) -> Option<Revision> {
        NonZeroU64::new(self.highest.load(Ordering::SeqCst)).map(Revision::new)
    }

    /// Takes in the revision of a consistent read that was sent when `before` was the highest.
    pub fn read(&self, answered: Revision, before: Option<Revision>) -> Result<(), StoreRewound> {
        if let Some(seen) = before.filter(|seen| answered < *seen) {
            return Err(StoreRewound { answered, seen });
        }
        self.saw(answered);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_is_older_than_what_was_seen_before_it_is_refused() {
        let timeline = Timeline::default();
        timeline.saw(Revision::of(20));
        let before = timeline.highest();
        timeline.saw(Revision::of(30));
        assert_eq!(timeline.read(Revision::of(25), before), Ok(()), "sent before 30 was seen");
        assert_eq!(timeline.highest(), Some(Revision::of(30)));
        assert_eq!(
            timeline.read(Revision::of(29), timeline.highest()),
            Err(StoreRewound { answered: Revision::of(29), seen: Revision::of(30) })
        );
    }
}
