//! How blocks leave a node that still exists: address by address, or as a whole.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::claim::Claim;
use crate::net::cidr::Cidr;
use crate::plan::draft::{Draft, Step};
use crate::plan::subject::Subject;
use crate::publisher::answer::Drain;

/// How long a node waits for its turn while the agents of too many others are being asked.
pub(super) const TURN: Duration = Duration::from_secs(5);

/// How blocks leave a node that still exists. No method has a default.
pub(in crate::plan) trait Way {
    /// Claims the replacements of blocks that must leave, if they come before the first step of the drain.
    fn claim_replacements(&self, subject: &Subject<'_>, draft: &mut Draft) -> Step;

    /// Continues the drains of the node, and starts others.
    fn reclaim(&self, subject: &Subject<'_>, draft: &mut Draft) -> Step;

    /// Whether a draining block can't leave, or need not leave any more.
    fn stays(&self, subject: &Subject<'_>, claim: &Claim, drain: &Drain, draft: &Draft) -> bool;

    /// Whether a draining block gives addresses to new pods again as soon as its claim is held again.
    fn opens_held_blocks(&self) -> bool;

    /// The reason why a held block that must leave does not drain yet, for a person.
    fn why_held(&self, subject: &Subject<'_>, claim: &Claim) -> Option<String>;

    /// The reason why a draining block is still on its carrier, for a person.
    fn why_draining(&self, subject: &Subject<'_>, claim: &Claim, drain: &Drain) -> Option<String>;

    /// How a block that the node does not need returns to its pool, for a person.
    fn how_surplus_returns(&self) -> &'static str;

    /// Held blocks that are about to be removed, as far as this process knows. The node already has their
    /// replacements.
    fn imminent_removals(&self, subject: &Subject<'_>, draft: &Draft) -> BTreeSet<Cidr>;

    /// Held blocks that are published in the same write that removes these.
    fn replacement_blocks(&self, subject: &Subject<'_>, imminent: &BTreeSet<Cidr>) -> BTreeSet<Cidr>;
}
