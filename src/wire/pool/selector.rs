//! The selector of nodes, and its schema.

#![allow(unreachable_pub, reason = "`KubeSchema` generates a public copy of each struct inside a function")]

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::{rules, schema};

/// A label selector; both parts must hold.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    /// Labels that a node must have, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::match_labels")]
    pub match_labels: BTreeMap<String, String>,

    /// Expressions that must match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = rules::MAX_SELECTOR_TERMS))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub match_expressions: Vec<Requirement>,
}

/// One expression of a label selector.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)")
        .message(rules::OPERATOR_WITH_VALUES)
        .field_path(".values"),
    validation = Rule::new("!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0")
        .message(rules::OPERATOR_WITHOUT_VALUES)
        .field_path(".values")
)]
pub struct Requirement {
    /// The label key.
    #[schemars(schema_with = "schema::label_key")]
    pub key: String,

    /// In and NotIn need values. Exists and DoesNotExist have no values.
    pub operator: Operator,

    /// The values for In and NotIn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_values")]
    pub values: Vec<String>,
}

/// How a requirement compares.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(inline)]
#[allow(
    missing_docs,
    reason = "comments on variants make schemars write a `oneOf`, which no structural schema has"
)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}
