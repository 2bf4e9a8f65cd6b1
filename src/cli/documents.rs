//! The documents in files of YAML or JSON, each with the line of every field in it.
//!
//! Knows no rule of the objects: the caller says which documents are wanted. A file that can't be read does not hide
//! the content of the others.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use indexmap::IndexMap;
use serde::de::value::Error as PlainError;
use serde::de::{IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_saphyr::Spanned;
use serde_saphyr::options::DuplicateKeyPolicy;

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
        name_of(&self.value)
    }

    /// The fields that are set twice. The API server gets their last value.
    pub(super) fn repeated(&self) -> &[FieldError] {
        &self.lines.repeated
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

/// The kind and the name of an object.
pub(super) fn name_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
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
            let mut bytes = Vec::new();
            let read = std::io::stdin().read_to_end(&mut bytes).context("can't read standard input");
            read.and_then(|_| self.parse("-", &bytes))
        } else if path.is_dir() {
            self.read_directory(path)
        } else if is_archive(path) {
            self.read_archive(path)
        } else {
            let name = path.display().to_string();
            let bytes = std::fs::read(path).with_context(|| format!("can't read {name}"));
            bytes.and_then(|bytes| self.parse(&name, &bytes))
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
            let mut bytes = Vec::new();
            // More than any page of a bundle has.
            let limited = entry.by_ref().take(MAX_ENTRY).read_to_end(&mut bytes).with_context(unreadable)?;
            if limited as u64 == MAX_ENTRY {
                bail!("can't read {}: {} has more than {MAX_ENTRY} bytes", path.display(), name.display());
            }
            self.parse(&name.display().to_string(), &bytes)?;
        }
        Ok(())
    }

    /// JSON is YAML, so one parser reads both. It accepts all that kubectl accepts.
    fn parse(&mut self, file: &str, bytes: &[u8]) -> anyhow::Result<()> {
        // A byte order mark decides the encoding, which is UTF-8 without one. Other bytes are replaced.
        let (text, _, _) = encoding_rs::UTF_8.decode(bytes);
        refuse_markers(file, &text)?;
        let text = joined(text);
        // As kubectl reads it: 027 means 23 (YAML 1.1), and the server receives 23. Of a key that is set twice, the server
        // receives the last value.
        // A page of a large cluster is one document: 500 Nodes with their images, or CiliumNodes with their addresses.
        let options = serde_saphyr::options! {
            legacy_octal_numbers: true, with_snippet: false, duplicate_keys: DuplicateKeyPolicy::PassThrough,
            budget: serde_saphyr::budget! {
                max_nodes: 20_000_000, max_events: 80_000_000, max_total_scalar_bytes: 1 << 30,
            },
        };
        let found: Vec<Spanned<Content>> =
            serde_saphyr::from_multiple_with_options(&text, options).map_err(|error| {
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

/// Refuses lines that YAML allows, and that kubectl does not read: it cuts a file at the lines that start with `---`.
fn refuse_markers(file: &str, text: &str) -> anyhow::Result<()> {
    for (line, number) in text.lines().zip(1..) {
        let behind = line.strip_prefix("---").map_or("", str::trim_start);
        ensure!(
            behind.is_empty() || behind.starts_with('#'),
            "{file}:{number}: kubectl reads no text behind `---`: put it on the next line"
        );
        ensure!(
            !line.starts_with('%'),
            "{file}:{number}: kubectl reads no directives such as `%YAML`: remove the line"
        );
    }
    Ok(())
}

/// Files that a shell has joined: the byte order mark of a later one is removed, and JSON documents behind each other are
/// separated.
fn joined(text: Cow<'_, str>) -> Cow<'_, str> {
    let text = if text.contains("\n\u{feff}") { text.replace("\n\u{feff}", "\n").into() } else { text };
    if !text.trim_start().starts_with('{') {
        return text;
    }
    let mut documents = serde_json::Deserializer::from_str(&text).into_iter::<IgnoredAny>();
    let (mut separated, mut end) = (String::new(), 0);
    while let Some(Ok(_)) = documents.next() {
        let start = text.len() - text[end..].trim_start().len();
        if end == 0 {
            separated.push_str(&text[..start]);
        } else {
            // Without a line break between them, the lines of the second one are counted one too high.
            let gap = &text[end..start];
            separated.push_str(if gap.contains('\n') { gap } else { "\n" });
            separated.push_str("--- ");
        }
        separated.push_str(&text[start..documents.byte_offset()]);
        end = documents.byte_offset();
    }
    if !text[end..].trim().is_empty() || separated.len() == text.trim_end().len() {
        // It is YAML, or one document.
        return text;
    }
    separated.into()
}

fn is_archive(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".tar.gz") || name.ends_with(".tgz")
}

fn is_of_objects(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
}

/// The objects of a List, or the one object that the document is.
fn items_of(mut document: Spanned<Content>) -> Vec<Spanned<Content>> {
    if let Content::Object(fields) = &mut document.value {
        let kind = fields.get("kind").map(|field| &field.value.value);
        let is_list = matches!(kind, Some(Content::Scalar(Value::String(kind))) if kind.ends_with("List"));
        let items = fields.get_mut("items").map(|field| &mut field.value.value);
        if let Some(Content::List(items)) = items.filter(|_| is_list) {
            return std::mem::take(items);
        }
    }
    vec![document]
}

fn line_of<T>(spanned: &Spanned<T>) -> u64 {
    spanned.referenced.line()
}

/// The line of every field of a document, by the path that the API server gives it.
#[derive(Default)]
struct Lines {
    /// The root has the empty path.
    lines: BTreeMap<String, Line>,
    repeated: Vec<FieldError>,
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
                    let at = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    let value = self.note(field.value.value, at.clone(), field.line);
                    if let Some(earlier) = field.earlier {
                        let rule = format!(
                            "is set twice: the server gets only this value, not that of line {earlier}"
                        );
                        self.repeated.push(FieldError::new(at, &value, rule));
                    }
                    (key, value)
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
    Object(IndexMap<String, Field>),
}

/// A field of an object as it is written.
struct Field {
    /// The line of its name: its value may start on the next line.
    line: u64,
    value: Spanned<Content>,
    /// The line of its name where it is set before, to a value that does not count.
    earlier: Option<u64>,
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
        let mut fields: IndexMap<String, Field> = IndexMap::new();
        while let Some((key, value)) = object.next_entry::<Spanned<String>, _>()? {
            let earlier = fields.get(&key.value).map(|field| field.line);
            fields.insert(key.value.clone(), Field { line: line_of(&key), value, earlier });
        }
        Ok(Content::Object(fields))
    }
}
