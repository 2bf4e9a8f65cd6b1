//! The comparison of revisions where carriers are in one store with claims.

use crate::model::carrier::Carrier;
use crate::model::revision::Revision;

/// Whether a claim that is known as of `known_at` may be published on this version of its carrier.
pub(super) fn is_fresh(known_at: Revision, carrier: Carrier<'_>) -> bool {
    carrier.revision().within().is_some_and(|revision| known_at >= revision)
}

/// Whether this version of a carrier is later than a revision.
pub(super) fn shows_later(carrier: Carrier<'_>, than: Revision) -> bool {
    carrier.revision().within() > Some(than)
}
