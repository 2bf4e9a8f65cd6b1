//! One conversion of an object of another system: it collects pools, and names all settings that are not used.
//!
//! Knows no system. Every field that a converter does not read is a note or an error.

use serde_json::{Map, Value, json};

use super::predicate::Requirements;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;
use crate::net::notation::Span;
use crate::wire::check::value_at;
use crate::wire::json::text;
use crate::wire::{FieldError, GROUP, VERSION};

/// The result of the conversion of one object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    /// The NodeIPPools. A pool with an error is left out.
    pub pools: Vec<Value>,
    /// Settings that have no counterpart here and do not change who gets which addresses, a sentence each.
    pub notes: Vec<String>,
    /// Settings that a NodeIPPool can't express.
    pub errors: Vec<FieldError>,
}

/// A conversion that is in progress.
pub(super) struct Conversion<'a> {
    document: &'a Value,
    pub(super) imported: Imported,
}

/// The spec of a pool that is being made.
#[derive(Default)]
pub(super) struct Draft(pub(super) Map<String, Value>);

/// The fields of a document that are read, or that only the server sets.
const DOCUMENT: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// The same of its metadata.
const METADATA: [&str; 7] =
    ["name", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"];

/// Annotations by which tools remember their last write.
const BOOKKEEPING: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "projectcalico.org/metadata"];

/// The reason why a field is left out that no converter reads.
pub(super) const UNKNOWN: &str = "import does not know this field";

impl<'a> Conversion<'a> {
    pub(super) fn of(document: &'a Value) -> Self {
        let mut conversion = Self { document, imported: Imported::default() };
        conversion.note_others("", &DOCUMENT, UNKNOWN);
        let annotations = conversion.at("metadata.annotations").as_object();
        let is_kept =
            annotations.is_some_and(|all| all.keys().all(|key| BOOKKEEPING.contains(&key.as_str())));
        let known: Vec<&str> = METADATA.into_iter().chain(is_kept.then_some("annotations")).collect();
        conversion.note_others("metadata", &known, "only the name of an object is taken");
        conversion
    }

    /// The value at a path such as `spec.ipv4.cidrs[0]`; null if there is none.
    pub(super) fn at(&self, path: &str) -> &'a Value {
        if path.is_empty() { self.document } else { value_at(self.document, path).unwrap_or(&Value::Null) }
    }

    /// The elements of a list, each with its path.
    pub(super) fn list(&self, path: &str) -> Vec<(String, &'a Value)> {
        let items = self.at(path).as_array().into_iter().flatten();
        items.enumerate().map(|(index, item)| (format!("{path}[{index}]"), item)).collect()
    }

    pub(super) fn refuse(&mut self, field: &str, rule: &str) {
        let value = self.at(field);
        self.imported.errors.push(if value.is_null() {
            FieldError::absent(field, rule)
        } else {
            FieldError::new(field, value, rule)
        });
    }

    /// Notes a setting without a counterpart.
    pub(super) fn note(&mut self, field: &str, why: &str) {
        self.imported.notes.push(format!("{field} is left out: {why}"));
    }

    /// Notes a setting without a counterpart if it is turned on.
    pub(super) fn note_if_on(&mut self, field: &str, why: &str) {
        let value = self.at(field);
        if !matches!(value, Value::Null | Value::Bool(false))
            && !["Never", "None", "Disabled"].contains(&text(value))
        {
            self.note(field, why);
        }
    }

    /// Notes each field of the object at `path`, which is empty for the document, that is not among `known`.
    pub(super) fn note_others(&mut self, path: &str, known: &[&str], why: &str) {
        let fields = self.at(path).as_object().into_iter().flat_map(Map::keys);
        for field in fields.filter(|field| !known.contains(&field.as_str())) {
            let dot = if path.is_empty() { "" } else { "." };
            self.note(&format!("{path}{dot}{field}"), why);
        }
    }

    /// The entries of `cidrs`; a range from one address to another becomes the CIDRs that are exactly this range.
    pub(super) fn cidrs(&mut self, field: &str, value: &Value) -> Vec<String> {
        let written = text(value).trim();
        let Some((from, to)) = written.split_once(['-', '–']) else { return vec![written.to_owned()] };
        let ends = from.trim().parse().ok().zip(to.trim().parse().ok());
        let Some(span) = ends.and_then(|(from, to)| Span::between(from, to)) else {
            let rule = "a range is FIRST-LAST, two addresses of one family";
            self.imported.errors.push(FieldError::new(field, written, rule));
            return Vec::new();
        };
        span.cidrs().iter().map(ToString::to_string).collect()
    }

    /// Adds a pool, unless there was an error while its spec was made.
    pub(super) fn add(&mut self, name: &str, draft: impl FnOnce(&mut Self) -> Draft) {
        let n_errors = self.imported.errors.len();
        let Draft(spec) = draft(self);
        if self.imported.errors.len() == n_errors {
            self.imported.pools.push(json!({
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "NodeIPPool", "metadata": {"name": name}, "spec": spec,
            }));
        }
    }

    /// Lets the pool select the nodes that meet a condition, or refuses the field that has it.
    pub(super) fn select(&mut self, draft: &mut Draft, field: &str, found: Result<Requirements, String>) {
        match found {
            Ok(found) => {
                if found.select_nothing {
                    self.imported.notes.push(format!("{field} selects no node, and neither does the pool"));
                }
                if !found.expressions.is_empty() {
                    draft.0.insert("nodeSelector".to_owned(), json!({"matchExpressions": found.expressions}));
                }
            }
            Err(why) => self.refuse(field, &why),
        }
    }
}

impl Draft {
    /// Sets the ranges of one family.
    pub(super) fn family(&mut self, family: &str, size: &Value, cidrs: Vec<String>, state: Option<&str>) {
        let entry = |cidr: String| match state {
            None => json!({"cidr": cidr}),
            Some(state) => json!({"cidr": cidr, "state": state}),
        };
        let cidrs: Vec<Value> = cidrs.into_iter().map(entry).collect();
        self.0.insert(family.to_owned(), json!({"blockSize": size, "cidrs": cidrs}));
    }

    /// Keeps these addresses from pods, as far as the CIDRs of a family have them.
    pub(super) fn exclude(&mut self, family: &str, reserved: &AddressSet) {
        let Some(ranges) = self.0.get_mut(family) else { return };
        let listed = ranges["cidrs"].as_array().into_iter().flatten();
        let declared = listed.filter_map(|entry| text(&entry["cidr"]).parse::<Cidr>().ok());
        let mut excluded = AddressSet::new();
        for cidr in declared {
            excluded.extend_with(&reserved.within(cidr));
        }
        if !excluded.is_empty() {
            ranges["exclude"] = excluded.cidrs().map(|cidr| cidr.to_string()).collect();
        }
    }
}
