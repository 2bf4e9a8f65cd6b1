//! The error with which the process ends when the self-check has found something.

/// How many differences an error names; the log has a line for each.
const NAMED_DIFFERENCES: usize = 5;

/// The world is not what its objects say, by a defect of this program.
///
/// Since when can't be known, so nothing is written any more. A process that starts again has its world from lists. One
/// that finds the same at once ends again, and the kubelet lets it wait longer each time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the bookkeeping is not what the objects say, in {} ways: {}; this process ends and has to start again from lists",
    .differences.len(),
    .differences.iter().take(NAMED_DIFFERENCES).map(String::as_str).collect::<Vec<_>>().join("; ")
)]
pub struct BrokenInvariant {
    /// In which ways.
    pub differences: Vec<String>,
}

impl BrokenInvariant {
    /// The verdict on what a self-check found: an error unless that is nothing.
    pub fn of(differences: Vec<String>) -> Result<(), Self> {
        if differences.is_empty() { Ok(()) } else { Err(Self { differences }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_a_few_differences_and_counts_all() {
        let differences = (0..9).map(|number| format!("difference {number}")).collect();
        let text = BrokenInvariant { differences }.to_string();
        assert!(text.contains("in 9 ways: difference 0; "), "{text}");
        assert!(text.contains("difference 4; this process ends"), "{text}");
    }
}
