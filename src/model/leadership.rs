//! Whether this process may write, of several that run.

/// Whether this process may write, of several that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// It leads: it writes.
    Leads,
    /// It stands by: it keeps its world in step and plans, and sends nothing.
    StandsBy,
}
