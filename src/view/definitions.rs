//! The definitions of pools and claims that are being deleted or missing, as findings, and the words about them.

use crate::model::definition::DefinitionState;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::ObjectKind;
use crate::world::World;

/// The page with the remedy.
pub const PAGE: &str = "docs/how-to/definition-deleted.md";

/// One finding for each.
pub(super) fn findings(world: &World) -> impl Iterator<Item = Finding> {
    let of = |(name, state)| {
        Finding::new(FindingKind::DefinitionDeleted, ObjectKind::Definition, name, description(name, state))
    };
    world.lost_definitions().map(of)
}

/// A definition that is being deleted or missing, with its consequence and the page that has the remedy.
#[must_use]
pub fn description(name: &str, state: DefinitionState) -> String {
    let (how, consequence) = match state {
        DefinitionState::Kept => return format!("the definition {name} exists"),
        DefinitionState::Deleting => ("is being deleted", "its objects are deleted with it"),
        DefinitionState::Missing => ("is missing", "none of its objects exists"),
    };
    format!(
        "the definition {name} {how}: {consequence}, and no node can join or grow; start no controller before you \
         have followed {PAGE}"
    )
}
