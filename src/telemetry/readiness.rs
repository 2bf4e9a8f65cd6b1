//! Whether the controller serves, as `/readyz` shows it.

/// Whether the controller serves, as `/readyz` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It does not serve yet, or may not, for this reason.
    NotReady(String),
    /// It serves.
    Ready,
}
