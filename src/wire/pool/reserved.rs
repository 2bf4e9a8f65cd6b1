//! What a pool that can't be read keeps from younger ones: every range in it that can be read.
//!
//! Knows nothing of why the pool can't be read, and relies on no form of the declaration but its names: another version
//! of the schema may have let it through. Looks at nothing but the object
//! (`docs/decisions/0014-an-invalid-pool-keeps-its-ranges.md`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::convert::unusable;
use crate::net::cidr::{Cidr, Family};

/// The ranges that a declaration names: every prefix in the `cidrs` of either family, in whatever form, but those that
/// no pool may have.
///
/// A range such as 0.0.0.0/0 is a slip: it would keep all younger pools from serving, and no pool ever gave it out.
pub(super) fn ranges(spec: &Value) -> BTreeSet<Cidr> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Value> = Family::ALL.iter().map(|family| &spec[family.as_str()]["cidrs"]).collect();
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => found.extend(Cidr::parse_lenient(text)),
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                found.extend(fields.keys().filter_map(|key| Cidr::parse_lenient(key)));
                open.extend(fields.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    found.retain(|range| !unusable(range.family()).any(|unusable| unusable.overlaps(*range)));
    found
}
