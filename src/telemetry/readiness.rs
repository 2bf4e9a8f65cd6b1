//! Whether the controller serves, for those who ask from outside.

/// Whether the controller serves, for those who ask from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It does not yet, or may not, for this reason.
    NotReady(String),
    /// It does.
    Ready,
}
