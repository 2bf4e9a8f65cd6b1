//! Violations as they are found, and equal ones as one line.

use std::collections::BTreeMap;

use super::catalog::Check;

/// Equal violations of one or more objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The check.
    pub check: Check,
    /// The kind of the objects.
    pub kind: &'static str,
    /// The cause, in one sentence.
    pub cause: String,
    /// The names of the objects with the detail of each, by name. Never empty.
    pub objects: BTreeMap<String, String>,
}

/// Violations by their check, the kind of the objects and the cause: the names of the objects with the detail of each.
#[derive(Debug, Default)]
pub(super) struct Found(BTreeMap<(Check, &'static str, String), BTreeMap<String, String>>);

impl Found {
    /// Adds a violation of an object. `cause` has the same words for each object with the same cause, and `detail` has
    /// the addresses or fields of this object.
    pub(super) fn add(
        &mut self,
        check: Check,
        kind: &'static str,
        name: impl Into<String>,
        cause: String,
        detail: String,
    ) {
        let details = self.0.entry((check, kind, cause)).or_default().entry(name.into()).or_default();
        if details.is_empty() {
            *details = detail;
        } else if !detail.is_empty() && *details != detail {
            *details = format!("{details}, {detail}");
        }
    }
}

/// The lines of all violations: the worst first, then by how many objects it concerns.
pub(super) fn grouped(found: Found) -> Vec<Line> {
    let line = |((check, kind, cause), objects)| Line { check, kind, cause, objects };
    let mut lines: Vec<Line> = found.0.into_iter().map(line).collect();
    lines.sort_by_key(|line| (line.check.severity(), std::cmp::Reverse(line.objects.len()), line.check));
    lines
}

#[cfg(test)]
mod tests {
    use super::super::catalog::Severity;
    use super::*;

    #[test]
    fn ids_are_unique_and_in_order() {
        let ids: Vec<&str> = Check::ALL.iter().map(|check| check.id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    }

    #[test]
    fn the_worst_comes_first_and_equal_causes_are_one_line() {
        let mut found = Found::default();
        for (check, name) in [
            (Check::PodCidrOutsidePools, "n1"),
            (Check::PodOutsideClaims, "p1"),
            (Check::PodOutsideClaims, "p2"),
            (Check::ServiceRange, "pool"),
            (Check::PodOutsideClaims, "p1"),
        ] {
            found.add(check, "Object", name, "the cause".to_owned(), String::new());
        }
        let lines: Vec<(Severity, &str, usize)> = grouped(found)
            .iter()
            .map(|line| (line.check.severity(), line.check.id(), line.objects.len()))
            .collect();
        let expected = [
            (Severity::Error, "NIP0302", 2),
            (Severity::Error, "NIP0501", 1),
            (Severity::Info, "NIP0403", 1),
        ];
        assert_eq!(lines, expected);
    }
}
