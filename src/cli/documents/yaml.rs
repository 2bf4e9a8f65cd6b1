//! Documents in YAML.

use std::fmt;

use serde::de::value::Error as PlainError;
use serde::de::{IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Error, Spanned};

use super::content::{Content, Fields, Placed, Refusal};
use super::limits::{MAX_DEPTH, MAX_VALUES, too_deep, too_many_values};

/// The most documents in one file.
const MAX_DOCUMENTS: usize = 1024;

/// The most times that a file may define or repeat an anchor.
const MAX_ANCHORS: usize = 50_000;

/// The documents in a text; or the line and the cause for which it can't be read.
pub(super) fn documents(text: &str) -> Result<Vec<Placed>, Refusal> {
    // As kubectl reads it: 027 means 23 (YAML 1.1), and the server receives 23. Of a key that is set twice, the server
    // receives the last value.
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true, with_snippet: false, duplicate_keys: DuplicateKeyPolicy::PassThrough,
        budget: serde_saphyr::budget! {
            max_documents: MAX_DOCUMENTS, max_depth: MAX_DEPTH, max_aliases: MAX_ANCHORS, max_anchors: MAX_ANCHORS,
            // The size of the file limits them.
            max_nodes: MAX_VALUES, max_events: 4 * MAX_VALUES, max_total_scalar_bytes: usize::MAX,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| (error.location().map(|at| at.line()), cause(&error)))
}

/// The cause in words. A limit is named with its remedy.
fn cause(error: &Error) -> String {
    match error {
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            format!("the file has more than {MAX_DOCUMENTS} documents; split it into several files")
        }
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => too_deep(),
        Error::Budget { breach: BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. }, .. } => {
            too_many_values()
        }
        Error::Budget {
            breach:
                BudgetBreach::Aliases { .. }
                | BudgetBreach::Anchors { .. }
                | BudgetBreach::AliasAnchorRatio { .. }
                | BudgetBreach::RecordedAnchorEvents { .. }
                | BudgetBreach::RecordedAnchorBytes { .. }
                | BudgetBreach::MergeKeys { .. },
            ..
        }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "anchors and aliases (`&name`, `*name`) repeat more than the limit allows; write the values out"
                .to_owned()
        }
        Error::AliasError { error, .. } => cause(error),
        // The parser of flow collections has a limit of its own, and no kind of error for it.
        other if other.to_string().starts_with("recursion limit exceeded") => too_deep(),
        other => format!("neither YAML nor JSON: {other}"),
    }
}

fn line_of<T>(spanned: &Spanned<T>) -> u64 {
    spanned.referenced.line()
}

impl<'de> Deserialize<'de> for Placed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self { line: line_of(&spanned), content: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl ContentVisitor {
    /// `serde_json` decides the value of a scalar.
    fn scalar<'de, E: serde::de::Error>(value: impl IntoDeserializer<'de, PlainError>) -> Result<Content, E> {
        Value::deserialize(value.into_deserializer()).map(Content::Scalar).map_err(E::custom)
    }
}

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Content, E> {
        Self::scalar(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Content, E> {
        Self::scalar(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Content, E> {
        Self::scalar(value)
    }

    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<Content, E> {
        Self::scalar(value)
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Content, E> {
        Self::scalar(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Content, E> {
        Self::scalar(value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Content, E> {
        Self::scalar(value)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        Content::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Content, A::Error> {
        let mut fields = Fields::default();
        while let Some((name, value)) = object.next_entry::<Spanned<String>, Placed>()? {
            fields.add(line_of(&name), name.value, value);
        }
        Ok(Content::Object(fields))
    }
}
