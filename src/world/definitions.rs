//! The definitions of pools and claims that are not as they should be. No decision uses them; they are reported.

use std::collections::BTreeMap;

use crate::model::definition::{DefinitionNews, DefinitionState};

/// The known definitions that are being deleted or missing. A definition whose state is unknown is not here.
#[derive(Debug, Clone, Default)]
pub(super) struct Definitions(BTreeMap<String, DefinitionState>);

impl Definitions {
    pub(super) fn observe(&mut self, DefinitionNews { name, state }: DefinitionNews) {
        match state {
            DefinitionState::Kept => drop(self.0.remove(&name)),
            DefinitionState::Deleting | DefinitionState::Missing => drop(self.0.insert(name, state)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, DefinitionState)> {
        self.0.iter().map(|(name, state)| (name.as_str(), *state))
    }
}
