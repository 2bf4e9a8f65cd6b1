//! The documents in files of YAML or JSON, each with the line of every field in it.
//!
//! Knows no rule of the objects: the caller says which documents are wanted. A file that can't be read does not hide
//! the content of the others.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use serde::de::value::Error as PlainError;
use serde::de::{IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::Spanned;

use crate::wire::FieldError;

/// The largest file in an archive, in bytes: an archive may be made to fill the memory.
const MAX_ENTRY: u64 = 1 << 30;

/// One object and where it was found.
pub(super) struct Document {
    file: String,
    pub(super) value: Value,
    lines: Lines,
}

impl Document {
    /// The kind and the name of the object.
    pub(super) fn name(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        format!("{}/{}", text(&self.value["kind"]), text(&self.value["metadata"]["name"]))
    }

    /// The line that the error is about.
    pub(super) fn line_of(&self, error: &FieldError) -> u64 {
        self.lines.of(error)
    }

    /// File and line of the object.
    pub(super) fn place(&self) -> String {
        self.place_of(&FieldError::absent("", ""))
    }

    /// File and line of the error's field, as compilers print them.
    pub(super) fn place_of(&self, error: &FieldError) -> String {
        format!("{}:{}", self.file, self.line_of(error))
    }
}

/// How deep below a directory files are looked for.
#[derive(Clone, Copy)]
pub(super) enum Depth {
    One,
    All,
}

/// The documents that were read, and the errors of files that could not be read.
pub(super) struct Input {
    depth: Depth,
    is_wanted: fn(&Value) -> bool,
    pub(super) documents: Vec<Document>,
    pub(super) unreadable: Vec<anyhow::Error>,
}

impl Input {
    /// The objects in these files that `is_wanted` accepts.
    pub(super) fn of(paths: &[PathBuf], depth: Depth, is_wanted: fn(&Value) -> bool) -> Self {
        let mut input = Self { depth, is_wanted, documents: Vec::new(), unreadable: Vec::new() };
        for path in paths {
            input.read(path);
        }
        input
    }

    /// Reads a file, a directory, or standard input for `-`.
    fn read(&mut self, path: &Path) {
        let outcome = if path == Path::new("-") {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text).context("can't read standard input");
            read.and_then(|_| self.parse("-", &text))
        } else if path.is_dir() {
            self.read_directory(path)
        } else if is_archive(path) {
            self.read_archive(path)
        } else {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(|| format!("can't read {name}"));
            text.and_then(|text| self.parse(&name, &text))
        };
        self.unreadable.extend(outcome.err());
    }

    fn read_directory(&mut self, path: &Path) -> anyhow::Result<()> {
        let list = || std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect();
        let entries: std::io::Result<Vec<PathBuf>> = list();
        let mut entries = entries.with_context(|| format!("can't read {}", path.display()))?;
        entries.sort();
        for entry in entries {
            let wanted =
                if entry.is_dir() { matches!(self.depth, Depth::All) } else { is_of_objects(&entry) };
            if wanted {
                self.read(&entry);
            }
        }
        Ok(())
    }

    /// The files in an archive, without unpacking it.
    fn read_archive(&mut self, path: &Path) -> anyhow::Result<()> {
        let unreadable = || format!("can't read {}", path.display());
        let file = std::fs::File::open(path).with_context(unreadable)?;
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
        for entry in archive.entries().with_context(unreadable)? {
            let mut entry = entry.with_context(unreadable)?;
            let name = entry.path().with_context(unreadable)?.into_owned();
            if !is_of_objects(&name) {
                continue;
            }
            let mut text = String::new();
            // More than any page of a bundle has.
            let limited =
                entry.by_ref().take(MAX_ENTRY).read_to_string(&mut text).with_context(unreadable)?;
            if limited as u64 == MAX_ENTRY {
                bail!("can't read {}: {} has more than {MAX_ENTRY} bytes", path.display(), name.display());
            }
            self.parse(&name.display().to_string(), &text)?;
        }
        Ok(())
    }

    /// JSON is YAML, so one parser reads both.
    fn parse(&mut self, file: &str, text: &str) -> anyhow::Result<()> {
        // As kubectl reads it: 027 means 23 (YAML 1.1), and the server receives 23.
        // A page of a large cluster is one document: 500 Nodes with their images, or CiliumNodes with their addresses.
        let options = serde_saphyr::options! {
            legacy_octal_numbers: true, with_snippet: false,
            budget: serde_saphyr::budget! {
                max_nodes: 20_000_000, max_events: 80_000_000, max_total_scalar_bytes: 1 << 30,
            },
        };
        let found: Vec<Spanned<Content>> =
            serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
                let place = error.location().map(|at| format!(":{}", at.line())).unwrap_or_default();
                anyhow!("{file}{place}: neither YAML nor JSON: {error}")
            })?;
        for document in found {
            for item in items_of(document) {
                let mut lines = Lines::default();
                let line = line_of(&item);
                let value = lines.note(item.value, String::new(), line);
                if (self.is_wanted)(&value) {
                    self.documents.push(Document { file: file.to_owned(), value, lines });
                }
            }
        }
        Ok(())
    }
}

fn is_archive(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".tar.gz") || name.ends_with(".tgz")
}

fn is_of_objects(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
}

/// The objects of a List, or the one object that the document is.
fn items_of(document: Spanned<Content>) -> Vec<Spanned<Content>> {
    let Content::Object(fields) = &document.value else { return vec![document] };
    let is_list = fields.iter().any(|(key, value)| {
        key.value == "kind"
            && matches!(&value.value, Content::Scalar(Value::String(kind)) if kind.ends_with("List"))
    });
    let has_items = |(key, value): &(Spanned<String>, Spanned<Content>)| {
        key.value == "items" && matches!(value.value, Content::List(_))
    };
    match fields.iter().position(has_items) {
        Some(index) if is_list => {
            let Content::Object(mut fields) = document.value else { unreachable!("it was one above") };
            let Content::List(items) = fields.swap_remove(index).1.value else {
                unreachable!("it was a list above")
            };
            items
        }
        Some(_) | None => vec![document],
    }
}

fn line_of<T>(spanned: &Spanned<T>) -> u64 {
    spanned.referenced.line()
}

/// The line of every field of a document, by the path that the API server gives it.
#[derive(Default)]
struct Lines {
    /// The root has the empty path.
    lines: BTreeMap<String, Line>,
}

/// The line of a field, and the value if that is no list and no object.
struct Line {
    number: u64,
    scalar: Option<Value>,
}

impl Lines {
    /// Notes the lines of the value at `path` and of everything inside it, and returns it as a plain value.
    fn note(&mut self, content: Content, path: String, number: u64) -> Value {
        let mut scalar = None;
        let value = match content {
            Content::Scalar(value) => {
                scalar = Some(value.clone());
                value
            }
            Content::List(items) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| {
                    let line = line_of(&item);
                    self.note(item.value, format!("{path}[{index}]"), line)
                })
                .collect(),
            Content::Object(fields) => fields
                .into_iter()
                .map(|(key, field)| {
                    let at =
                        if path.is_empty() { key.value.clone() } else { format!("{path}.{}", key.value) };
                    // A field is on the line of its name: its value may start on the next line.
                    let value = self.note(field.value, at, line_of(&key));
                    (key.value, value)
                })
                .collect(),
        };
        self.lines.insert(path, Line { number, scalar });
        value
    }

    /// The line of the field that the error is about. If that field is missing, the line of the object that should
    /// have it. A rule over a list is reported at the list: then it is the line of the value in it that the error
    /// names.
    fn of(&self, error: &FieldError) -> u64 {
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

/// A document as it is written: values with their places.
enum Content {
    Scalar(Value),
    List(Vec<Spanned<Content>>),
    Object(Vec<(Spanned<String>, Spanned<Content>)>),
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
        let mut fields = Vec::new();
        while let Some(field) = object.next_entry()? {
            fields.push(field);
        }
        Ok(Content::Object(fields))
    }
}
