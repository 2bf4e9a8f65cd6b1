//! Schemas that a derive can't write: text with CEL rules, and the last changes that make a generated schema readable
//! and fit the server's cost budget.
//!
//! Everything has a `maxLength` or `maxItems`: the server estimates the cost of a rule from them and refuses the
//! CustomResourceDefinition where it can't.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::{MAX_COUNT, rules};
use crate::model::pool::widest_block;
use crate::net::cidr::Family;

/// DNS-1123 subdomains, the names of objects.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Label keys, without the limit on the length of the prefix, which a pattern can't express.
pub(super) const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
/// Label values.
pub(super) const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";

/// Standard communities: two numbers up to 65535.
pub(super) const COMMUNITY: &str = "^(0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]):(0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$";

/// One CEL rule.
pub(super) fn rule(expression: &str, message: &str) -> Value {
    json!({ "rule": expression, "message": message })
}

pub(super) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": rules::MAX_DURATION_TEXT,
        "pattern": rules::DURATION_PATTERN,
        "x-kubernetes-validations": [
            // Beyond 292 years the conversion itself fails, on the server as here, and that is a refusal too.
            rule(&format!("duration(self) <= duration('{}s')", rules::MAX_DURATION_SECONDS), rules::DURATION)
        ],
    })
}

pub(super) fn label_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": rules::MAX_LABEL_KEY,
        "pattern": LABEL_KEY,
        "x-kubernetes-validations": [
            rule(&format!("self.indexOf('/') <= {}", rules::MAX_LABEL_PREFIX), rules::LABEL_KEY)
        ],
    })
}

pub(super) fn label_values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": rules::MAX_SELECTOR_VALUES,
        "x-kubernetes-list-type": "atomic",
        "items": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
    })
}

pub(super) fn match_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": rules::MAX_SELECTOR_TERMS,
        "additionalProperties": { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE },
        "x-kubernetes-validations": [rule(
            &format!(
                "self.all(k, k.matches('{LABEL_KEY}') && k.indexOf('/') <= {})",
                rules::MAX_LABEL_PREFIX
            ),
            rules::LABEL_KEYS,
        )],
    })
}

pub(super) fn communities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": rules::MAX_COMMUNITIES,
        "x-kubernetes-list-type": "atomic",
        "items": { "type": "string", "maxLength": 11, "pattern": COMMUNITY },
    })
}

/// A count that every JSON reader holds exactly.
pub(super) fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": MAX_COUNT })
}

/// The name of an object.
pub(super) fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 253, "pattern": SUBDOMAIN })
}

/// The same, and fixed when the object is created.
pub(super) fn immutable_object_name(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = object_name(generator);
    schema.insert("x-kubernetes-validations".into(), json!([rule("self == oldSelf", rules::IMMUTABLE)]));
    schema
}

/// The name of a CiliumPodIPPool. It may not start like a usage query, because the two could not be distinguished.
pub(super) fn pod_ip_pool(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = object_name(generator);
    let is_no_question = rule("!self.startsWith('nodeipam.io-')", rules::POD_IP_POOL);
    schema.insert("x-kubernetes-validations".into(), json!([is_no_question]));
    schema
}

/// The uid of an object.
pub(super) fn uid(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 64 })
}

pub(super) fn timestamp(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "maxLength": 64 })
}

pub(super) fn claimed_cidr(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": rules::MAX_IPV6_CIDR_TEXT,
        "x-kubernetes-validations": [
            rule("isCIDR(self) && string(cidr(self).masked()) == self", rules::CANONICAL_CIDR),
            rule(
                &format!(
                    "!isCIDR(self) || cidr(self).prefixLength() >= (cidr(self).ip().family() == 4 ? {} : {})",
                    widest_block(Family::V4),
                    widest_block(Family::V6)
                ),
                rules::BLOCK_BOUND,
            ),
            rule("self == oldSelf", rules::IMMUTABLE),
        ],
    })
}

pub(super) fn excluded(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": rules::MAX_EXCLUDED,
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": [rule("self == oldSelf", rules::IMMUTABLE)],
        "items": {
            "type": "string",
            "maxLength": rules::MAX_IPV6_CIDR_TEXT,
            "x-kubernetes-validations": [rule(
                "isIP(self) ? ip.isCanonical(self) : isCIDR(self) && string(cidr(self).masked()) == self",
                rules::EXCLUDED_TEXT,
            )],
        },
    })
}

/// `metav1.Condition` with the bounds that Kubernetes' own types declare.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": { "type": "string", "maxLength": 316, "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$" },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0, "maximum": MAX_COUNT },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "reason": { "type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$" },
                "message": { "type": "string", "maxLength": 32768 },
            },
        },
    })
}

/// Makes a generated CustomResourceDefinition read like a written one.
///
/// `nullable` is removed: an absent field is absent, and the server treats `null` as it does everywhere in Kubernetes.
/// Whole numbers lose the fraction that passing through `f64` gave them. The name of the object gets a `maxLength`
/// where a rule reads it, without which the server can't estimate the cost of the rule.
pub(super) fn tidy(crd: &mut Value, max_name: Option<u32>) {
    tidy_node(crd);
    if let Some(max_name) = max_name {
        let properties = crd
            .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties")
            .and_then(Value::as_object_mut)
            .expect("a derived schema has properties");
        properties.insert(
            "metadata".into(),
            json!({ "type": "object", "properties": { "name": { "type": "string", "maxLength": max_name } } }),
        );
    }
}

fn tidy_node(node: &mut Value) {
    match node {
        Value::Object(fields) => {
            // A property may be called `nullable`; the keyword is a boolean.
            fields.retain(|key, value| !(key == "nullable" && value.is_boolean()));
            if let Some(Value::Array(values)) = fields.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            fields.values_mut().for_each(tidy_node);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_node),
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0) {
                #[allow(clippy::cast_possible_truncation, reason = "bounds of our schemas end at 2^53")]
                let whole = whole as i64;
                *number = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
