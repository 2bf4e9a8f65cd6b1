//! The API group `nodeipam.io`: wire types, the rules that bind them, and their conversion into domain values.
//!
//! Text becomes a value here, once; nothing behind this module parses again. Every rule exists three times and says
//! the same: in the schema, which the server enforces; in [`check`], which enforces the same schema without a
//! server; and in the conversions, which are the last word. The table in `tests/it/api_table.rs` holds them together.
//! This module talks to no server.

use std::fmt;

pub mod block;
pub mod check;
pub mod cilium_node;
pub mod crds;
mod labels;
pub mod pool;
pub mod pool_status;
pub mod rules;
mod schema;
mod structural;
pub mod watched;

pub use block::NodeIPBlock;
pub use pool::NodeIPPool;

/// The API group.
pub const GROUP: &str = "nodeipam.io";
/// The version of the group that is served and stored.
pub const VERSION: &str = "v1alpha1";
/// The largest count that the API writes: what every JSON reader holds exactly (RFC 8259 section 6).
pub const MAX_COUNT: i64 = (1 << 53) - 1;

/// One broken rule: which field, what stands there, and what should.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// The path of the field as the API server prints it, `spec.ipv4.cidrs[0].cidr`.
    pub field: String,
    /// The value found there, as JSON; empty where there is none.
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

    /// An error about a value that is not there.
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
    /// What is wrong; never empty.
    pub errors: Vec<FieldError>,
}

impl fmt::Display for InvalidObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            fmt::Display::fmt(error, f)?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidObject {}

/// Keeps one finding on one line: a whole object as a value helps nobody.
fn shortened(mut value: String) -> String {
    const LONGEST: usize = 120;
    if value.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| value.is_char_boundary(*end)).unwrap_or(0);
        value.truncate(end);
        value.push('…');
    }
    value
}
