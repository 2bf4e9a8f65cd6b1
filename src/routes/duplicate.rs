//! Blocks that Cilium's own BGP announces too. A block that one of the two withdraws keeps the route of the other.

use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::ObjectKind;
use crate::model::names::ten_of;
use crate::world::World;

/// The finding about the exporter, if Cilium announces blocks too.
pub(super) fn announced_twice(world: &World, (kind, name): (ObjectKind, &str)) -> Option<Finding> {
    let can = world.publisher().is_some_and(|publisher| publisher.traits().may_announce_blocks);
    let announcing = world.speakers().announcing();
    if !can || announcing.is_empty() {
        return None;
    }
    let speakers = announcing.iter().map(|(kind, name)| format!("{} {name}", kind.as_str()));
    let why = format!(
        "Cilium announces blocks by BGP too, because of {}; a block that leaves its node may keep a route there. \
         During a move to the mode crd this is expected. Otherwise remove these advertisements, or set --routes \
         remove",
        ten_of(speakers)
    );
    Some(Finding::new(FindingKind::RouteAnnouncedTwice, kind, name, why))
}
