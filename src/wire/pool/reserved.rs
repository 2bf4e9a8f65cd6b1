//! The ranges that an unreadable pool keeps from younger ones: every range in it that can be read.
//!
//! Does not know why the pool can't be read, and relies on the names of its fields only: another version of the schema
//! may have accepted it. Looks only at the object (`docs/decisions/0014-an-invalid-pool-keeps-its-ranges.md`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::convert::unusable;
use crate::net::cidr::{Cidr, Family};
use crate::wire::watched::each_text_in;

/// The ranges of a declaration: every prefix in the `cidrs` of either family, in any form, except those that no pool
/// may have.
///
/// A range such as 0.0.0.0/0 is a mistake: no pool ever gave a block of it, and it would keep all younger pools from
/// serving.
pub(super) fn ranges(spec: &Value) -> BTreeSet<Cidr> {
    let mut found = BTreeSet::new();
    let declared = Family::ALL.iter().map(|family| &spec[family.as_str()]["cidrs"]);
    each_text_in(declared.collect(), |text| found.extend(Cidr::parse_lenient(text)));
    found.retain(|range| !unusable(range.family()).any(|unusable| unusable.overlaps(*range)));
    found
}
