//! The readers of files and kubeconfigs, for the fuzzers in `fuzz`. Only their builds have this file.

use serde_json::Value;

use super::documents::{Depth, Input, Places};
use super::{access, validate};
use crate::wire::import::{Settings, convert};

/// How the bytes of an archive are written.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// As a tar archive.
    Plain,
    /// As a tar archive that gzip has packed.
    Packed,
}

/// Reads a file with this name, checks its documents as `validate` does, and converts them as `import` does.
pub fn read_file(name: &str, content: &[u8]) {
    let mut input = Input::of(&[], Depth::All, Places::Noted, |document| !document.is_null());
    input.add_text(name, content);
    examine(&input);
}

/// Reads an archive as a bundle.
pub fn read_archive(form: Form, content: &[u8]) {
    let mut input = Input::of(&[], Depth::All, Places::Dropped, Value::is_object);
    input.add_archive("a.tar.gz", content, matches!(form, Form::Packed));
    examine(&input);
}

/// Reads the address of a proxy.
pub fn read_proxy(text: &str) {
    access::parse_proxy(text);
}

fn examine(input: &Input) {
    let settings = Settings::of(input.documents.iter().map(|document| &document.value));
    for document in &input.documents {
        drop((document.place(), document.name()));
        drop(convert(&document.value, &settings));
    }
    drop(validate::report(&input.documents));
    for file in &input.unreadable {
        drop(format!("{:#}", file.error));
    }
}
