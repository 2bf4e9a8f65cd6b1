//! News of the objects of a kind beside the world.

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
