//! The CustomResourceDefinitions of this project, as far as a definition endangers its objects.

/// The state of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DefinitionState {
    /// It exists, and its objects stay.
    Kept,
    /// It is being deleted, and all its objects with it. That can't be undone.
    Deleting,
    /// It does not exist, and so none of its objects does.
    Missing,
}

/// A definition and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionNews {
    /// Its name, such as `nodeippools.nodeipam.io`.
    pub name: String,
    /// Its state.
    pub state: DefinitionState,
}
