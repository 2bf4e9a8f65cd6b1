//! Everything that can cause work, as one closed enum. What is no variant here triggers nothing.

use crate::model::observation::Observation;
use crate::model::request::Outcome;
use crate::publisher::Mode;

/// A cause of work.
#[derive(Debug)]
pub enum Input {
    /// A watch or list has something to say.
    Observed(Observation),
    /// Cilium's configuration is known, or has changed.
    Mode(Mode),
    /// A write has come to its end.
    Finished(Box<Outcome>),
}

/// How many inputs may wait. A list of 5,000 objects is one input; an agent writes at most every 15 s
/// (`docs/cilium.md`, Use), so 5,000 nodes bring some 330 a second, and this is three seconds of it. When it is full
/// the watches wait, and the API server buffers for them.
pub const CAPACITY: usize = 1024;
