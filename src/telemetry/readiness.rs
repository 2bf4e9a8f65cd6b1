//! Whether the controller serves, as `/readyz` shows it.

/// Whether the controller serves, as `/readyz` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It does not serve yet, or no longer, for this reason.
    NotReady(String),
    /// It may not serve, because Cilium is in another mode, for this reason.
    Passive(String),
    /// It serves.
    Ready,
}
