//! Documents in JSON.
//!
//! A reader of YAML refuses characters that JSON allows in strings: U+007F, C1 controls and U+FFFE. An API server
//! stores all of them.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Error, Value};

use super::content::{self, Content, Placed, Refusal};
use super::limits::{MAX_DEPTH, MAX_VALUES, too_deep, too_many_values};

/// Whether a text can be JSON: it is an object.
pub(super) fn is_likely(text: &str) -> bool {
    text.trim_start().starts_with('{')
}

/// The documents in a text, one behind the other; or the line and the cause for which it can't be read.
pub(super) fn documents(text: &str) -> Result<Vec<Placed>, Refusal> {
    check_limits(text)?;
    let mut places = Places { text, offset: 0, line: 1 };
    let found = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    found
        .map(|raw| {
            let raw = raw.map_err(|error| (Some(error.line() as u64), format!("no JSON: {error}")))?;
            places.placed(raw).map_err(|(line, why)| (Some(line), why))
        })
        .collect()
}

/// Refuses a text with too many values or too deep ones. It is no reader: other mistakes are found later.
fn check_limits(text: &str) -> Result<(), Refusal> {
    let (mut depth, mut n_values, mut line) = (0usize, 0usize, 1u64);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            b'\n' => line += 1,
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                n_values += 1;
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            b',' if !in_string => n_values += 1,
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err((Some(line), too_deep()));
        }
        if n_values > MAX_VALUES {
            return Err((Some(line), too_many_values()));
        }
    }
    Ok(())
}

/// A position in the text, for the lines of values that are visited in their order.
struct Places<'a> {
    text: &'a str,
    offset: usize,
    line: u64,
}

impl<'a> Places<'a> {
    /// The line of a part of the text that is not before the last one.
    fn line_of(&mut self, part: &str) -> u64 {
        let offset = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let between = self.text.get(self.offset..offset).unwrap_or_default();
        self.line += between.matches('\n').count() as u64;
        self.offset = offset.max(self.offset);
        self.line
    }

    fn placed(&mut self, raw: &'a RawValue) -> Result<Placed, (u64, String)> {
        let line = self.line_of(raw.get());
        let refused = |error: Error| (line, format!("no JSON: {error}"));
        let content = match raw.get().as_bytes().first() {
            Some(b'{') => {
                let Fields(raw_fields) = serde_json::from_str(raw.get()).map_err(refused)?;
                let mut fields = content::Fields::default();
                for (raw_name, raw_value) in raw_fields {
                    let line = self.line_of(raw_name.get());
                    let name: String = serde_json::from_str(raw_name.get()).map_err(refused)?;
                    fields.add(line, name, self.placed(raw_value)?);
                }
                Content::Object(fields)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(refused)?;
                Content::List(items.into_iter().map(|item| self.placed(item)).collect::<Result<_, _>>()?)
            }
            Some(_) | None => Content::Scalar(serde_json::from_str::<Value>(raw.get()).map_err(refused)?),
        };
        Ok(Placed { line, content })
    }
}

/// The fields of an object, in their order.
struct Fields<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = object.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}
