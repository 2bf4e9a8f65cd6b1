//! A document in any notation, with the line of each of its fields.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde_json::Value;

use crate::wire::FieldError;

/// The line, where it is known, and the cause for which a text can't be read.
pub(super) type Refusal = (Option<u64>, String);

/// A value and its line.
pub(super) struct Placed {
    pub(super) line: u64,
    pub(super) content: Content,
}

/// A document as it is written: values with their places.
pub(super) enum Content {
    Scalar(Value),
    List(Vec<Placed>),
    Object(Fields),
}

/// The fields of an object, in their order.
#[derive(Default)]
pub(super) struct Fields(IndexMap<String, Field>);

/// A field of an object.
struct Field {
    /// The line of its name.
    line: u64,
    value: Placed,
    /// The line of its name where it is set before, to a value that does not count.
    earlier: Option<u64>,
}

impl Fields {
    /// Adds a field, with the line of its name. Of a field that is set twice, the API server gets the last value.
    pub(super) fn add(&mut self, line: u64, name: String, value: Placed) {
        let earlier = self.0.get(&name).map(|field| field.line);
        self.0.insert(name, Field { line, value, earlier });
    }
}

impl Placed {
    /// The document as a plain value.
    pub(super) fn into_value(self) -> Value {
        match self.content {
            Content::Scalar(value) => value,
            Content::List(items) => items.into_iter().map(Self::into_value).collect(),
            Content::Object(Fields(fields)) => {
                fields.into_iter().map(|(name, field)| (name, field.value.into_value())).collect()
            }
        }
    }

    /// The objects of a List, or the one object that the document is.
    pub(super) fn into_items(mut self) -> Vec<Self> {
        if let Content::Object(Fields(fields)) = &mut self.content {
            let kind = fields.get("kind").map(|field| &field.value.content);
            let is_list =
                matches!(kind, Some(Content::Scalar(Value::String(kind))) if kind.ends_with("List"));
            let items = fields.get_mut("items").map(|field| &mut field.value.content);
            if let Some(Content::List(items)) = items.filter(|_| is_list) {
                return std::mem::take(items);
            }
        }
        vec![self]
    }
}

/// The line of every field of a document, by the path that the API server gives it.
#[derive(Default)]
pub(super) struct Lines {
    /// The root has the empty path.
    lines: BTreeMap<String, Line>,
    /// The fields that are set twice, with the value that counts.
    pub(super) repeated: Vec<FieldError>,
}

/// The line of a field, and the value if that is no list and no object.
struct Line {
    number: u64,
    scalar: Option<Value>,
}

impl Lines {
    /// The lines of everything in a document, and the document as a plain value.
    pub(super) fn of(document: Placed) -> (Self, Value) {
        let mut lines = Self::default();
        let value = lines.note(document, String::new());
        (lines, value)
    }

    /// Notes the lines of the value at `path` and of everything inside it, and returns it as a plain value.
    fn note(&mut self, placed: Placed, path: String) -> Value {
        let Placed { line: number, content } = placed;
        let mut scalar = None;
        let value = match content {
            Content::Scalar(value) => {
                scalar = Some(value.clone());
                value
            }
            Content::List(items) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| self.note(item, format!("{path}[{index}]")))
                .collect(),
            Content::Object(Fields(fields)) => fields
                .into_iter()
                .map(|(name, Field { line, value, earlier })| {
                    let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    // A field is on the line of its name: its value may start on the next line.
                    let value = self.note(Placed { line, ..value }, at.clone());
                    if let Some(earlier) = earlier {
                        let rule = format!(
                            "is set twice: the server gets only this value, not that of line {earlier}"
                        );
                        self.repeated.push(FieldError::new(at, &value, rule));
                    }
                    (name, value)
                })
                .collect(),
        };
        self.lines.insert(path, Line { number, scalar });
        value
    }

    /// The line of the field that the error is about. If that field is missing, the line of the object that should
    /// have it. A rule over a list is reported at the list: then it is the line of the value in it that the error
    /// names.
    pub(super) fn line_of(&self, error: &FieldError) -> u64 {
        let named = self.below(&error.field).find(|line| {
            line.scalar.as_ref().is_some_and(|scalar| FieldError::new("", scalar, "").value == error.value)
        });
        let mut path = error.field.as_str();
        let line = loop {
            match self.lines.get(path) {
                Some(line) => break Some(line),
                None if path.is_empty() => break None,
                None => path = path.rfind(['.', '[']).map_or("", |end| &path[..end]),
            }
        };
        named.or(line).map_or(1, |line| line.number)
    }

    /// The lines of all values inside the list or object at `path`.
    fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Line> {
        let inside = move |other: &str| {
            other.strip_prefix(path).is_some_and(|rest| path.is_empty() || rest.starts_with(['.', '[']))
        };
        let from_here = self.lines.range(path.to_owned()..);
        from_here
            .take_while(move |(other, _)| other.starts_with(path))
            .filter(move |(other, _)| inside(other))
            .map(|(_, line)| line)
    }
}
