//! Structural schemas as the API server applies them: unknown fields, defaults, values.
//!
//! Knows the keywords that our own definitions use and no others; a test fails when a definition uses another one. Why
//! this is our own and neither kube's nor a general validator:
//! `docs/decisions/0007-own-schema-walker-for-the-offline-check.md`.
//!
//! Facts about the server: kube-apiserver's `ValidateCustomResource` for the keywords, structural defaulting for
//! [`apply_defaults`], strict field validation for [`unknown_fields`].

use regex::Regex;
use serde_json::{Map, Value};

use super::json::texts;
use super::{FieldError, rules, schema};
use crate::model::counted::counted;

/// A value that breaks its schema.
pub(super) struct Violation {
    /// The field, its value, and the rule.
    pub(super) error: FieldError,
    /// Whether the server stops here and evaluates no CEL rule: it does for a wrong type, a missing value, a value that
    /// is not in the enum, and for too long texts and lists.
    pub(super) blocking: bool,
}

/// The fields that every object has, with any schema.
const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Fills in defaults, also in place of `null` and within a default.
pub(super) fn apply_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let Some(default) = property.get("default") else { continue };
                if fields.get(name).is_none_or(Value::is_null) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, field) in fields {
                if let Some(schema) = child_schema(schema, name) {
                    apply_defaults(schema, field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| apply_defaults(&schema["items"], item)),
        // kubectl turns 27.0 of a YAML file into 27 before it sends it.
        Value::Number(number) if schema["type"] == "integer" => {
            if let Some(whole) =
                number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0 && f.abs() < 9e15)
            {
                #[allow(clippy::cast_possible_truncation, reason = "it is whole and below 2^53")]
                let whole = whole as i64;
                *number = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The fields that the schema does not know. The server drops them, or with strict validation refuses the object.
pub(super) fn unknown_fields(schema: &Value, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if path.is_empty() && OBJECT_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                let path = join(path, name);
                match child_schema(schema, name) {
                    Some(schema) => unknown_fields(schema, field, &path, errors),
                    None => errors.push(FieldError::new(path, field, "unknown field")),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                unknown_fields(&schema["items"], item, &format!("{path}[{index}]"), errors);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces values that have a wrong type, and adds values that are missing, so that the object can be read.
pub(super) fn mend(schema: &Value, value: &mut Value) {
    let is_in_enum = schema["enum"].as_array().is_none_or(|allowed| allowed.contains(value));
    if !fits(schema, value) || !is_in_enum {
        *value = stand_in(schema);
    }
    match value {
        Value::Object(fields) => {
            for name in texts(&schema["required"]) {
                if let Some(schema) = child_schema(schema, name) {
                    fields.entry(name).or_insert_with(|| stand_in(schema));
                }
            }
            for (name, field) in fields {
                if let Some(schema) = child_schema(schema, name) {
                    mend(schema, field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mend(&schema["items"], item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A value of the type that the schema wants. The largest integer breaks the fewest rules that compare two fields.
fn stand_in(schema: &Value) -> Value {
    if schema["type"] == "integer" {
        return schema["maximum"].clone();
    }
    if let Some(default) = schema.get("default").or_else(|| schema["enum"].get(0)) {
        return default.clone();
    }
    match schema["type"].as_str() {
        Some("string") => Value::String(String::new()),
        Some("array") => Value::Array(Vec::new()),
        Some("boolean") => Value::Bool(false),
        _ => Value::Object(Map::new()),
    }
}

/// Whether the value has the type that the schema wants.
fn fits(schema: &Value, value: &Value) -> bool {
    let expected = schema["type"].as_str().unwrap_or("object");
    match value {
        Value::Null => false,
        Value::Bool(_) => expected == "boolean",
        Value::Number(number) => expected == "integer" && (number.is_i64() || number.is_u64()),
        Value::String(_) => expected == "string",
        Value::Array(_) => expected == "array",
        Value::Object(_) => expected == "object",
    }
}

/// Checks the values of a defaulted object.
pub(super) fn validate(schema: &Value, document: &Value) -> Vec<Violation> {
    let mut walk = Walk { violations: Vec::new() };
    walk.value(schema, document, "");
    walk.violations
}

struct Walk {
    violations: Vec<Violation>,
}

impl Walk {
    fn refuse(&mut self, path: &str, value: &Value, rule: String) {
        self.violations.push(Violation { error: FieldError::new(path, value, rule), blocking: false });
    }

    fn block(&mut self, path: &str, value: &Value, rule: String) {
        self.violations.push(Violation { error: FieldError::new(path, value, rule), blocking: true });
    }

    fn value(&mut self, schema: &Value, value: &Value, path: &str) {
        if !fits(schema, value) {
            let expected = schema["type"].as_str().unwrap_or("object");
            let article = if expected.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
            let form = schema["pattern"].as_str().and_then(in_words);
            let form = form.map(|words| format!("; it {words}")).unwrap_or_default();
            self.block(path, value, format!("must be {article} {expected}{form}"));
            return;
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
            self.block(path, value, format!("must be one of {}", allowed.join(", ")));
        }
        match value {
            Value::Number(_) => self.number(schema, value, path),
            Value::String(text) => self.text(schema, value, text, path),
            Value::Array(items) => self.items(schema, value, items, path),
            Value::Object(fields) => self.fields(schema, value, fields, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn number(&mut self, schema: &Value, value: &Value, path: &str) {
        // All our bounds are within 2^53, where f64 is exact; a value beyond that is out of bounds anyway.
        let number = value.as_f64().unwrap_or(f64::INFINITY);
        if let Some(least) = &schema["minimum"].as_f64()
            && number < *least
        {
            self.refuse(path, value, format!("must be at least {least}"));
        }
        if let Some(most) = &schema["maximum"].as_f64()
            && number > *most
        {
            self.refuse(path, value, format!("must be at most {most}"));
        }
    }

    fn text(&mut self, schema: &Value, value: &Value, text: &str, path: &str) {
        let length = text.chars().count() as u64;
        if let Some(most) = schema["maxLength"].as_u64()
            && length > most
        {
            self.block(path, value, format!("must be at most {} long", counted(most, "character")));
        }
        if let Some(least) = schema["minLength"].as_u64()
            && length < least
        {
            self.refuse(path, value, format!("must be at least {} long", counted(least, "character")));
        }
        if let Some(pattern) = schema["pattern"].as_str() {
            // The server's RE2 and this engine read our patterns alike. A pattern that can't be read refuses every
            // value; a server that can't read it has refused the definition.
            let fits = Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
            if !fits {
                self.refuse(
                    path,
                    value,
                    in_words(pattern).map_or_else(|| format!("must match {pattern}"), Into::into),
                );
            }
        }
        if schema["format"] == "date-time" && text.parse::<jiff::Timestamp>().is_err() {
            self.refuse(path, value, "must be a point in time such as 2026-11-21T03:00:00Z".into());
        }
    }

    fn items(&mut self, schema: &Value, value: &Value, items: &[Value], path: &str) {
        if let Some(most) = schema["maxItems"].as_u64()
            && items.len() as u64 > most
        {
            self.block(path, value, format!("must have at most {}", counted(most, "item")));
        }
        for (index, item) in items.iter().enumerate() {
            self.value(&schema["items"], item, &format!("{path}[{index}]"));
        }
        let keys: Vec<&str> = match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Vec::new(),
            Some("map") => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                keys.filter_map(Value::as_str).collect()
            }
            Some(_) | None => return,
        };
        let identity = |item: &Value| -> Value {
            if keys.is_empty() { item.clone() } else { keys.iter().map(|key| item[*key].clone()).collect() }
        };
        let identities: Vec<Value> = items.iter().map(identity).collect();
        for (index, item) in identities.iter().enumerate() {
            if identities[..index].contains(item) {
                self.refuse(&format!("{path}[{index}]"), &items[index], "must not be listed twice".into());
            }
        }
    }

    fn fields(&mut self, schema: &Value, value: &Value, fields: &Map<String, Value>, path: &str) {
        if let Some(most) = schema["maxProperties"].as_u64()
            && fields.len() as u64 > most
        {
            self.block(path, value, format!("must have at most {}", counted(most, "entry")));
        }
        for name in texts(&schema["required"]) {
            if !fields.contains_key(name) {
                let error = FieldError::absent(join(path, name), "must be set");
                self.violations.push(Violation { error, blocking: true });
            }
        }
        for (name, field) in fields {
            if let Some(schema) = child_schema(schema, name) {
                self.value(schema, field, &join(path, name));
            }
        }
    }
}

/// The demand of a pattern of our definitions, in words.
fn in_words(pattern: &str) -> Option<&'static str> {
    match pattern {
        rules::DURATION_PATTERN => Some(rules::DURATION),
        schema::LABEL_KEY => Some(rules::LABEL_KEY),
        schema::LABEL_VALUE => Some(rules::LABEL_VALUE),
        schema::COMMUNITY => Some(rules::COMMUNITY),
        _ => None,
    }
}

/// The schema of one field of an object.
fn child_schema<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema["properties"].get(name).or_else(|| schema.get("additionalProperties"))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::wire::crds;

    fn keywords(schema: &Value, found: &mut BTreeSet<String>) {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            found.insert(keyword.clone());
            match keyword.as_str() {
                "properties" => {
                    value.as_object().into_iter().flatten().for_each(|(_, value)| keywords(value, found));
                }
                "items" | "additionalProperties" => keywords(value, found),
                _ => {}
            }
        }
    }

    #[test]
    fn definitions_use_no_keyword_that_the_walk_does_not_know() {
        let mut found = BTreeSet::new();
        for definition in crds::all() {
            keywords(definition.schema(), &mut found);
        }
        let known = [
            // Evaluated here.
            "additionalProperties",
            "default",
            "enum",
            "format",
            "items",
            "maxItems",
            "maxLength",
            "maxProperties",
            "maximum",
            "minLength",
            "minimum",
            "pattern",
            "properties",
            "required",
            "type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-list-type",
            // Evaluated by kube-cel.
            "x-kubernetes-validations",
            // No rule.
            "description",
            "title",
        ];
        let unknown: Vec<_> = found.iter().filter(|keyword| !known.contains(&keyword.as_str())).collect();
        assert!(unknown.is_empty(), "teach src/wire/structural.rs: {unknown:?}");
    }

    #[test]
    fn every_integer_is_bounded_on_both_sides() {
        fn walk(schema: &Value, path: &str) {
            if schema["type"] == "integer" {
                assert!(schema["minimum"].is_number() && schema["maximum"].is_number(), "{path}");
            }
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                walk(property, &join(path, name));
            }
            if schema["items"].is_object() {
                walk(&schema["items"], &format!("{path}[]"));
            }
        }
        for definition in crds::all() {
            walk(definition.schema(), definition.kind);
        }
    }
}
