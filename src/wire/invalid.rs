//! The errors of an object of this API: one value per broken rule, at the field where the server reports it.

use std::fmt;

/// One broken rule: the field, its value, and the rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// The path of the field as the API server prints it, `spec.ipv4.cidrs[0].cidr`.
    pub field: String,
    /// The value found there, as JSON; empty if there is none.
    pub value: String,
    /// The rule that it breaks.
    pub rule: String,
}

impl FieldError {
    /// An error about a value that is present.
    pub(crate) fn new<V: serde::Serialize + ?Sized>(
        field: impl Into<String>,
        value: &V,
        rule: impl Into<String>,
    ) -> Self {
        let value = serde_json::to_string(value).unwrap_or_default();
        Self { field: field.into(), value: shortened(value), rule: rule.into() }
    }

    /// An error about a value that is absent.
    pub(crate) fn absent(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { field: field.into(), value: String::new(), rule: rule.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}: {}", self.field, self.rule)
        } else {
            write!(f, "{}: {}: {}", self.field, self.value, self.rule)
        }
    }
}

/// An object that can't be used, with every rule that it breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidObject {
    /// The broken rules; never empty.
    pub errors: Vec<FieldError>,
}

impl fmt::Display for InvalidObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        f.write_str(&errors.join("; "))
    }
}

impl std::error::Error for InvalidObject {}

/// Keeps an error on one line: a whole object as a value would not be read.
fn shortened(mut value: String) -> String {
    const LONGEST: usize = 120;
    if value.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| value.is_char_boundary(*end)).unwrap_or(0);
        value.truncate(end);
        value.push('…');
    }
    value
}
