//! Whether this process, of several that run, may write.

/// Whether this process, of several that run, may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// It leads: it writes.
    Leads,
    /// It is on standby: it keeps its world in step and plans, and sends nothing.
    StandsBy,
}
