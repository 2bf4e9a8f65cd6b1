//! News of the objects of a kind beside the world.

use crate::model::revision::Revision;

/// News of the objects of a kind beside the world, each with the value `V`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News<V> {
    /// They can't be listed, for this reason. Sent at most once, before the first list.
    Unlisted(String),
    /// These are all. They replace the earlier ones.
    Listed(Vec<V>),
    /// One exists in this version.
    Applied(V),
    /// One was deleted, or no longer matches the selector. This was its last version.
    Deleted(V),
}

impl<V> News<V> {
    /// The latest revision that they show.
    pub fn latest(&self, revision: impl Fn(&V) -> Revision) -> Option<Revision> {
        match self {
            Self::Unlisted(_) => None,
            Self::Listed(all) => all.iter().map(revision).max(),
            Self::Applied(one) | Self::Deleted(one) => Some(revision(one)),
        }
    }
}
