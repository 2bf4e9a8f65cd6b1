//! Pools from objects of the kind ClusterCIDR.

use serde_json::{Value, json};

use super::conversion::{Conversion, Draft, UNKNOWN};
use super::predicate::Predicate;
use crate::wire::json::{text, texts};

/// The pool of a ClusterCIDR.
pub(super) fn pool(conversion: &mut Conversion<'_>) -> Draft {
    const SELECTOR: &str = "spec.nodeSelector";
    let mut draft = Draft::default();
    conversion.note_others("spec", &["perNodeHostBits", "ipv4", "ipv6", "nodeSelector"], UNKNOWN);
    let Some(bits) = conversion.at("spec.perNodeHostBits").as_u64() else {
        conversion.refuse("spec.perNodeHostBits", "must be a number");
        return draft;
    };
    for (family, length) in [("ipv4", 32u64), ("ipv6", 128)] {
        let field = format!("spec.{family}");
        let cidr = conversion.at(&field);
        if !text(cidr).is_empty() {
            let cidrs = conversion.cidrs(&field, cidr);
            draft.family(family, &json!(length.saturating_sub(bits)), cidrs, None);
        }
    }
    if !conversion.at(SELECTOR).is_null() {
        conversion.note_others(SELECTOR, &["nodeSelectorTerms"], UNKNOWN);
        let n_errors = conversion.imported.errors.len();
        let terms = conversion.list("spec.nodeSelector.nodeSelectorTerms");
        let predicates = terms.iter().map(|(path, _)| term(conversion, path)).collect();
        if conversion.imported.errors.len() == n_errors {
            // One of the terms is enough.
            let found = Predicate::Any(predicates).requirements();
            conversion.select(&mut draft, "spec.nodeSelector.nodeSelectorTerms", found);
        }
    }
    let note = "a node gets further blocks when it is nearly full: `perNode.maxBlocks: 1` keeps it at one";
    conversion.imported.notes.push(note.to_owned());
    draft
}

/// The condition of one term, or errors.
fn term(conversion: &mut Conversion<'_>, path: &str) -> Predicate {
    conversion.note_others(path, &["matchExpressions", "matchFields"], UNKNOWN);
    let fields = format!("{path}.matchFields");
    if !conversion.list(&fields).is_empty() {
        conversion.refuse(&fields, "a pool selects nodes by labels, not by fields");
    }
    let mut parts = Vec::new();
    for (path, expression) in conversion.list(&format!("{path}.matchExpressions")) {
        conversion.note_others(&path, &["key", "operator", "values"], UNKNOWN);
        if let Some(part) = requirement(expression) {
            parts.push(part);
        } else {
            let operator = format!("{path}.operator");
            conversion.refuse(&operator, "a pool knows In, NotIn, Exists and DoesNotExist");
        }
    }
    // A term without a requirement selects nothing.
    if parts.is_empty() { Predicate::Any(parts) } else { Predicate::All(parts) }
}

/// The condition of one expression; `None` if a pool does not know its operator.
pub(super) fn requirement(expression: &Value) -> Option<Predicate> {
    let key = text(&expression["key"]).to_owned();
    let values = || texts(&expression["values"]).map(str::to_owned).collect();
    Some(match text(&expression["operator"]) {
        "In" => Predicate::In(key, values()),
        "NotIn" => Predicate::In(key, values()).negated(),
        "Exists" => Predicate::Has(key),
        "DoesNotExist" => Predicate::Has(key).negated(),
        _ => return None,
    })
}
