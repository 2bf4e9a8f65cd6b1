//! The error with which the process exits when the self-check has found a difference.

use crate::model::counted::counted;
use crate::world::check::Inconsistency;

/// How many differences an error names; the log has a line for each.
const NAMED_DIFFERENCES: usize = 5;

/// The world differs from the objects that it has seen, by a defect of this program.
///
/// It is unknown since when, so the process stops writing. A restarted process builds its world from lists. If that
/// differs too, the process exits again, and the kubelet waits longer before each start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "internal state differs from the objects in {}: {}; the process exits and must restart from lists",
    counted(.differences.len(), "way"),
    .differences.iter().take(NAMED_DIFFERENCES).map(ToString::to_string).collect::<Vec<_>>().join("; ")
)]
pub struct BrokenInvariant {
    /// The differences.
    pub differences: Vec<Inconsistency>,
}

impl BrokenInvariant {
    /// The verdict on a self-check: an error if it found any difference.
    pub fn of(differences: Vec<Inconsistency>) -> Result<(), Self> {
        if differences.is_empty() { Ok(()) } else { Err(Self { differences }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_a_few_differences_and_counts_all() {
        let node = |number: u8| format!("n{number}").as_str().into();
        let differences = (0..9).map(|number| Inconsistency::Selection(node(number))).collect();
        let text = BrokenInvariant { differences }.to_string();
        assert!(text.contains("in 9 ways: the index of pools of node n0 does not match"), "{text}");
        assert!(text.contains("node n4 does not match the selectors; the process exits"), "{text}");
    }
}
