//! The verdict of the API server on a NodeIPPool or NodeIPBlock, without a server.
//!
//! Checks in the order of the server: unknown fields, defaults, the structural schema, then the CEL rules of the
//! definitions that are installed. The strict reading of the controller comes last. Knows nothing of other objects,
//! such as pools that overlap.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::crds::{self, Definition};
pub use super::pool::advice::blocks_beside;
use super::pool::{advice, forms};
use super::{FieldError, GROUP, NodeIPBlock, NodeIPPool, VERSION, labels, rules, structural};
use crate::model::claim::Claim;
use crate::model::pool::Pool;

/// Whether the document claims to be of this API group, in any version or kind.
///
/// Also true for our kinds under a misspelt group: such a document is meant for us and must not be skipped.
#[must_use]
pub fn is_ours(document: &Value) -> bool {
    let group = document["apiVersion"].as_str().and_then(|version| version.split('/').next());
    group == Some(GROUP) || crds::all().iter().any(|definition| document["kind"] == definition.kind)
}

/// Everything that is wrong with a new object, in the order of its fields; nothing if the server would create it.
#[must_use]
pub fn check_document(document: &Value) -> Vec<FieldError> {
    check(document, None)
}

/// Everything that is wrong with an update of `old` to `new`: rules of one object, and rules between the two.
#[must_use]
pub fn check_update(old: &Value, new: &Value) -> Vec<FieldError> {
    check(new, Some(old))
}

/// The pool that the document describes, if it is one and nothing is wrong with it.
///
/// Its uid and time of creation, which only the server knows, are invented: use the pool to look at its ranges only.
#[must_use]
pub fn offline_pool(document: &Value) -> Option<Pool> {
    read_pool(document).map(|(_, pool)| pool)
}

/// Settings of a pool that the server accepts and that will not work as written; nothing if a rule is broken.
#[must_use]
pub fn warnings(document: &Value) -> Vec<FieldError> {
    read_pool(document).map(|(wire, pool)| advice::warnings(&wire, &pool)).unwrap_or_default()
}

fn read_pool(document: &Value) -> Option<(NodeIPPool, Pool)> {
    let definition = definition_of(document).ok().filter(|definition| definition.kind == "NodeIPPool")?;
    let wire: NodeIPPool = serde_json::from_value(with_server_fields(prepared(definition, document))).ok()?;
    let pool = Pool::try_from(&wire).ok()?;
    Some((wire, pool))
}

fn check(document: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let definition = match definition_of(document) {
        Ok(definition) => definition,
        Err(error) => return vec![error],
    };
    let mut errors = Vec::new();
    structural::unknown_fields(definition.schema(), document, "", &mut errors);
    check_metadata(document, &mut errors);
    let document = prepared(definition, document);
    let violations = structural::validate(definition.schema(), &document);
    let blocked: BTreeSet<String> = violations
        .iter()
        .filter(|violation| violation.blocking)
        .map(|violation| violation.error.field.clone())
        .collect();
    errors.extend(violations.into_iter().map(|violation| with_form(violation.error, &document)));
    let read = |document: &Value| match definition.kind {
        "NodeIPPool" => errors_of(document, |pool: &NodeIPPool| Pool::try_from(pool).map(drop)),
        _ => errors_of(document, |block: &NodeIPBlock| Claim::try_from(block).map(drop)),
    };
    if blocked.is_empty() {
        let old = old.map(|old| prepared(definition, old));
        let read = read(&document);
        // One cause is reported once: first by the schema, then by the strict reading. The latter knows the value, and
        // a CEL rule only the list around it.
        let unreadable = read.iter().any(|error| error.field.is_empty());
        if !unreadable || errors.is_empty() {
            add_unless_reported(&mut errors, read);
        }
        add_unless_reported(&mut errors, cel_errors(definition, &document, old.as_ref()));
    } else {
        // The server stops here. A user wants all errors in one run, so the other fields are read too.
        let mut mended = document;
        structural::mend(definition.schema(), &mut mended);
        let is_apart = |error: &FieldError| {
            let field = error.field.as_str();
            !field.is_empty() && !blocked.iter().any(|path| is_within(field, path) || is_within(path, field))
        };
        add_unless_reported(&mut errors, read(&mended).into_iter().filter(is_apart).collect());
    }
    errors.sort();
    errors.dedup();
    errors
}

/// Whether a path is another one or lies below it.
fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Adds the right form of the value to an error, if its meaning is certain.
fn with_form(mut error: FieldError, document: &Value) -> FieldError {
    let value = value_at(document, &error.field);
    if let Some(form) = value.and_then(|value| forms::of_wrong_type(&error.field, value)) {
        error.rule = format!("{}; {form}", error.rule);
    }
    error
}

fn add_unless_reported(errors: &mut Vec<FieldError>, more: Vec<FieldError>) {
    let reported: BTreeSet<String> = errors.iter().map(|error| error.field.clone()).collect();
    errors.extend(more.into_iter().filter(|error| !reported.contains(&error.field)));
}

fn definition_of(document: &Value) -> Result<&'static Definition, FieldError> {
    let version = format!("{GROUP}/{VERSION}");
    let Some(definition) = crds::all().iter().find(|definition| document["kind"] == definition.kind) else {
        return Err(FieldError::new("kind", &document["kind"], "must be NodeIPPool or NodeIPBlock"));
    };
    if document["apiVersion"] != version.as_str() {
        return Err(FieldError::new("apiVersion", &document["apiVersion"], format!("must be {version}")));
    }
    Ok(definition)
}

/// The object as the rules see it: with defaults, and without its status, which a write of the object does not change.
fn prepared(definition: &Definition, document: &Value) -> Value {
    let mut document = document.clone();
    if let Some(fields) = document.as_object_mut() {
        fields.remove("status");
    }
    structural::apply_defaults(definition.schema(), &mut document);
    document
}

/// Adds stand-ins for the fields of the server, so that an object can be read like a stored one.
fn with_server_fields(mut document: Value) -> Value {
    if let Some(metadata) = document["metadata"].as_object_mut() {
        metadata.insert("uid".into(), "offline".into());
        metadata.insert("resourceVersion".into(), "1".into());
        metadata.insert("creationTimestamp".into(), "1970-01-01T00:00:00Z".into());
    }
    document
}

fn errors_of<T: DeserializeOwned>(
    document: &Value,
    read: impl FnOnce(&T) -> Result<(), super::InvalidObject>,
) -> Vec<FieldError> {
    match serde_json::from_value::<T>(with_server_fields(document.clone())) {
        Ok(object) => read(&object).err().map(|invalid| invalid.errors).unwrap_or_default(),
        // An unreadable object breaks the schema, which has reported the field; this error knows none.
        Err(error) => vec![FieldError::absent("", format!("can't be read: {error}"))],
    }
}

static COMPILED: LazyLock<[CompiledSchema; 2]> =
    LazyLock::new(|| crds::all().each_ref().map(|definition| compile_schema(definition.schema())));

fn cel_errors(definition: &Definition, document: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let index = usize::from(definition.kind != crds::all()[0].kind);
    let verdict = Validator::new().validate_compiled(&COMPILED[index], document, old);
    let errors = verdict.err().into_iter().flatten().map(|error| {
        // The path of a rule of the root with a fieldPath starts with a dot.
        let field = error.field_path.trim_start_matches('.');
        match value_at(document, field) {
            Some(value) => FieldError::new(field, value, error.message),
            None => FieldError::absent(field, error.message),
        }
    });
    errors.collect()
}

/// The value at a path such as `spec.ipv4.cidrs[0].cidr`.
pub(super) fn value_at<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(document, |value, segment| {
        let mut parts = segment.split('[');
        let value = value.get(parts.next()?)?;
        parts.try_fold(value, |value, index| value.get(index.trim_end_matches(']').parse::<usize>().ok()?))
    })
}

/// The checks that the server makes for every kind, as far as they make sense for a file.
fn check_metadata(document: &Value, errors: &mut Vec<FieldError>) {
    const KNOWN: [&str; 15] = [
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    let metadata = &document["metadata"];
    let Some(fields) = metadata.as_object() else {
        errors.push(FieldError::new("metadata", metadata, "must be an object with a name"));
        return;
    };
    for (name, value) in fields {
        if !KNOWN.contains(&name.as_str()) {
            errors.push(FieldError::new(format!("metadata.{name}"), value, "unknown field"));
        }
    }
    match metadata["name"].as_str() {
        Some(name) if labels::is_subdomain(name) => {}
        Some(name) => errors.push(FieldError::new(
            "metadata.name",
            name,
            "must be a DNS subdomain: lower-case letters, digits, `-` and `.`, at most 253 characters",
        )),
        None if metadata["generateName"].is_string() && metadata["name"].is_null() => {}
        None => errors.push(FieldError::absent("metadata.name", "must be set")),
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        if !labels::is_key(key) {
            errors.push(FieldError::new("metadata.labels", key, rules::LABEL_KEYS));
        }
        if !value.as_str().is_some_and(labels::is_value) {
            errors.push(FieldError::new("metadata.labels", &json!({ key: value }), rules::LABEL_VALUE));
        }
    }
}
