//! The documents in files of YAML or JSON, each with the line of every field in it.
//!
//! Knows no rule of the objects: the caller says which documents are wanted. A file that can't be read does not hide
//! the content of the others.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::Value;

use crate::wire::FieldError;
use content::{Lines, Placed, Refusal};
use limits::{MAX_JSON, MAX_SUM, MAX_YAML, size};

mod content;
mod json;
mod limits;
mod yaml;

/// One object and where it was found.
pub(super) struct Document {
    file: String,
    pub(super) value: Value,
    /// Empty if they were not wanted.
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
        self.lines.line_of(error)
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

/// Whether the lines of the documents are needed.
#[derive(Clone, Copy)]
pub(super) enum Places {
    Noted,
    /// They would need more memory than the documents.
    Dropped,
}

/// A file that could not be read.
pub(super) struct Unreadable {
    /// The name of the file; in an archive, its name there.
    pub(super) file: String,
    /// The cause, with the name.
    pub(super) error: anyhow::Error,
}

/// The documents that were read, and the files that could not be read.
pub(super) struct Input {
    depth: Depth,
    places: Places,
    is_wanted: fn(&Value) -> bool,
    /// How many bytes the next files may have.
    left: u64,
    pub(super) documents: Vec<Document>,
    pub(super) unreadable: Vec<Unreadable>,
}

impl Input {
    /// The objects in these files that `is_wanted` accepts.
    pub(super) fn of(paths: &[PathBuf], depth: Depth, places: Places, is_wanted: fn(&Value) -> bool) -> Self {
        let (documents, unreadable) = (Vec::new(), Vec::new());
        let mut input = Self { depth, places, is_wanted, left: MAX_SUM, documents, unreadable };
        for path in paths {
            input.read(path);
        }
        input
    }

    /// Reads a file, a directory, or standard input for `-`. A user may name a pipe.
    fn read(&mut self, path: &Path) {
        let name = path.display().to_string();
        let outcome = if path == Path::new("-") {
            self.read_text("-", std::io::stdin().lock())
        } else if path.is_dir() {
            self.read_directory(path)
        } else if is_archive(path) {
            self.read_archive(path)
        } else {
            let opened = File::open(path).with_context(|| format!("can't read {name}"));
            opened.and_then(|file| self.read_text(&name, file))
        };
        self.note(&name, outcome);
    }

    fn note(&mut self, file: &str, outcome: anyhow::Result<()>) {
        let failed = outcome.err().map(|error| Unreadable { file: file.to_owned(), error });
        self.unreadable.extend(failed);
    }

    fn read_directory(&mut self, path: &Path) -> anyhow::Result<()> {
        let list = || std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect();
        let entries: std::io::Result<Vec<PathBuf>> = list();
        let mut entries = entries.with_context(|| format!("can't read {}", path.display()))?;
        entries.sort();
        for entry in entries {
            let wanted =
                if entry.is_dir() { matches!(self.depth, Depth::All) } else { is_of_objects(&entry) };
            if wanted && !entry.is_dir() && !entry.is_file() {
                let name = entry.display().to_string();
                self.note(&name, Err(anyhow!("can't read {name}: it is no regular file")));
            } else if wanted {
                self.read(&entry);
            }
        }
        Ok(())
    }

    /// The files in an archive, without unpacking it. A file that can't be read does not hide those behind it.
    fn read_archive(&mut self, path: &Path) -> anyhow::Result<()> {
        let unreadable = || format!("can't read {}", path.display());
        regular(path)?;
        let file = File::open(path).with_context(unreadable)?;
        self.read_unpacked(&path.display().to_string(), flate2::read::GzDecoder::new(file))
    }

    fn read_unpacked(&mut self, name: &str, unpacked: impl Read) -> anyhow::Result<()> {
        // Its other files count too: they must be unpacked to find the next one.
        let mut archive = tar::Archive::new(unpacked.take(MAX_SUM));
        let outcome = self.read_entries(&mut archive).with_context(|| format!("can't read {name}"));
        if archive.into_inner().limit() == 0 {
            bail!("can't read all of {name}: unpacked it has more than {}", size(MAX_SUM));
        }
        outcome
    }

    fn read_entries(&mut self, archive: &mut tar::Archive<impl Read>) -> std::io::Result<()> {
        for entry in archive.entries()? {
            let entry = entry?;
            let name = entry.path()?.into_owned();
            if is_of_objects(&name) && entry.header().entry_type().is_file() {
                let name = name.display().to_string();
                let outcome = self.read_text(&name, entry);
                self.note(&name, outcome);
            }
        }
        Ok(())
    }

    fn read_text(&mut self, file: &str, from: impl Read) -> anyhow::Result<()> {
        let limit = MAX_JSON.min(self.left);
        let mut bytes = Vec::new();
        from.take(limit + 1).read_to_end(&mut bytes).with_context(|| format!("can't read {file}"))?;
        let length = bytes.len() as u64;
        if length > limit && limit < MAX_JSON {
            bail!(
                "can't read {file}: all files together have more than {}; read fewer of them",
                size(MAX_SUM)
            );
        }
        if length > limit {
            bail!("can't read {file}: it has more than {}; split it into several files", size(MAX_JSON));
        }
        self.left -= length;
        // A byte order mark decides the encoding, which is UTF-8 without one. Other bytes are replaced.
        let (text, _, _) = encoding_rs::UTF_8.decode(&bytes);
        // Of files that a shell has joined, the later ones have marks too.
        self.parse(file, &text.replace("\n\u{feff}", "\n"))
    }

    /// JSON is read as JSON. A text that is none may be YAML: that has objects in braces too. It accepts all that kubectl
    /// accepts.
    fn parse(&mut self, file: &str, text: &str) -> anyhow::Result<()> {
        let refused = |(line, why): Refusal| {
            anyhow!("{file}{}: {why}", line.map(|line| format!(":{line}")).unwrap_or_default())
        };
        let found = match json::is_likely(text).then(|| json::documents(text)) {
            Some(Ok(found)) => found,
            of_json => {
                let of_json = of_json.and_then(Result::err).filter(|_| is_json(file));
                if text.len() as u64 > MAX_YAML {
                    let too_large = || {
                        anyhow!(
                            "can't read {file}: it has more than {} of YAML; split it into several files, or write it \
                             as JSON",
                            size(MAX_YAML)
                        )
                    };
                    return Err(of_json.map_or_else(too_large, refused));
                }
                refuse_markers(file, text)?;
                yaml::documents(text).map_err(|of_yaml| refused(of_json.unwrap_or(of_yaml)))?
            }
        };
        for item in found.into_iter().flat_map(Placed::into_items) {
            let (lines, value) = match self.places {
                Places::Noted => Lines::of(item),
                Places::Dropped => (Lines::default(), item.into_value()),
            };
            if (self.is_wanted)(&value) {
                self.documents.push(Document { file: file.to_owned(), value, lines });
            }
        }
        Ok(())
    }
}

/// For the fuzzers.
#[cfg(fuzzing)]
impl Input {
    pub(super) fn add_text(&mut self, name: &str, content: &[u8]) {
        let outcome = self.read_text(name, content);
        self.note(name, outcome);
    }

    pub(super) fn add_archive(&mut self, name: &str, content: &[u8], is_packed: bool) {
        let outcome = if is_packed {
            self.read_unpacked(name, flate2::read::GzDecoder::new(content))
        } else {
            self.read_unpacked(name, content)
        };
        self.note(name, outcome);
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

/// Refuses anything but a regular file, such as a pipe or a device: a read of it may never end.
pub(super) fn regular(path: &Path) -> anyhow::Result<()> {
    let unreadable = || format!("can't read {}", path.display());
    if !std::fs::metadata(path).with_context(unreadable)?.is_file() {
        bail!("{}: it is no regular file", unreadable());
    }
    Ok(())
}

fn is_archive(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".tar.gz") || name.ends_with(".tgz")
}

fn is_of_objects(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
}

fn is_json(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|ending| ending == "json")
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::Write as _;

    use super::*;

    fn read(paths: &[PathBuf]) -> Input {
        Input::of(paths, Depth::All, Places::Noted, Value::is_object)
    }

    fn causes(input: &Input) -> Vec<String> {
        input.unreadable.iter().map(|file| format!("{:#}", file.error)).collect()
    }

    /// Reads one file with this name and content.
    fn of(name: &str, content: &str) -> Input {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let mut input = read(&[path]);
        for file in &mut input.unreadable {
            let text = format!("{:#}", file.error);
            file.error = anyhow!("{}", text.replace(&folder.path().display().to_string(), ""));
        }
        input
    }

    #[test]
    fn json_has_every_character_that_the_server_stores() {
        for char in ['\u{7f}', '\u{85}', '\u{9b}', '\u{2028}', '\u{202e}', '\u{feff}', '\u{fffe}', '\u{ffff}']
        {
            for text in [format!("{{\"a\": \"{char}\"}}"), serde_json::json!({"a": char}).to_string()] {
                let input = of("a.json", &text);
                assert_eq!(causes(&input), [""; 0], "{char:?}");
                assert_eq!(input.documents[0].value["a"], char.to_string());
            }
        }
    }

    #[test]
    fn a_mistake_in_json_has_its_line() {
        let refused = |text: &str| causes(&of("a.json", text));
        assert_eq!(refused("{\"a\": 1,\n\"b\" 2}"), ["/a.json:2: no JSON: expected `:` at line 2 column 5"]);
        let repeated = of("a.json", "{\"a\": {\"b\": 1,\n\"b\": 2}}");
        let repeated: Vec<String> =
            repeated.documents[0].repeated().iter().map(ToString::to_string).collect();
        assert_eq!(repeated, ["a.b: 2: is set twice: the server gets only this value, not that of line 1"]);
        // Objects in braces may be YAML.
        assert_eq!(of("a.yaml", "{a: 1}\n---\n{b: 2}\n").documents.len(), 2);
    }

    #[test]
    fn a_limit_is_named_with_its_remedy() {
        // With the stack of a main thread. Without optimization a level of YAML needs tens of kilobytes.
        let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(limits_are_named).unwrap();
        thread.join().unwrap();
    }

    fn limits_are_named() {
        let cause = |name: &str, text: &str| causes(&of(name, text)).join("; ");
        assert!(
            cause("a.yaml", &"a: 1\n---\n".repeat(1025))
                .ends_with(": the file has more than 1024 documents; split it into several files")
        );
        let deep = ": a value is nested more than 64 levels deep; leave this document out";
        let nested = format!("{{\"a\": {}1{}}}", "[".repeat(1000), "]".repeat(1000));
        assert!(cause("a.json", &nested).ends_with(deep));
        let in_blocks = (0..70).fold(String::new(), |mut text, level| {
            writeln!(text, "{}a:", " ".repeat(level)).unwrap();
            text
        });
        for text in [nested, in_blocks] {
            let cause = cause("a.yaml", &text);
            assert!(cause.ends_with(deep), "{cause}");
        }
        let repeated = format!("a: &a 1\nb: [{}]\n", ["*a"; 200].join(", "));
        let cause = cause("a.yaml", &repeated);
        assert!(cause.ends_with("more than the limit allows; write the values out"), "{cause}");
    }

    #[test]
    fn a_large_file_is_refused_before_it_is_parsed() {
        let text = format!("a: {}", "x".repeat(usize::try_from(MAX_YAML).unwrap()));
        assert_eq!(
            causes(&of("a.yaml", &text)),
            [
                "can't read /a.yaml: it has more than 64 MiB of YAML; split it into several files, or write it as JSON"
            ]
        );
        assert_eq!(
            causes(&read(&["/dev/zero".into()])),
            ["can't read /dev/zero: it has more than 128 MiB; split it into several files"]
        );
        let mut rest = read(&[]);
        rest.left = 3;
        for text in ["{}", "{}", "{}"] {
            let outcome = rest.read_text(text, text.as_bytes());
            rest.note(text, outcome);
        }
        assert_eq!(rest.documents.len(), 1);
        let sum = "can't read {}: all files together have more than 1024 MiB; read fewer of them";
        assert_eq!(causes(&rest), [sum, sum]);
    }

    #[test]
    fn a_member_that_can_not_be_read_does_not_hide_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let gzip = flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
        let mut archive = tar::Builder::new(gzip);
        for (name, content) in
            [("a.json", &b"{]"[..]), ("b.json", &b"{\xff"[..]), ("c.json", &b"{\"a\": 1}"[..])]
        {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap().flush().unwrap();
        let input = read(&[path]);
        assert_eq!(input.documents.len(), 1);
        let names: Vec<&str> = input.unreadable.iter().map(|file| file.file.as_str()).collect();
        assert_eq!(names, ["a.json", "b.json"]);
        assert!(causes(&input)[1].starts_with("b.json:1: no JSON: "), "{:?}", causes(&input));
    }

    #[test]
    fn a_pipe_in_a_directory_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let causes = causes(&read(&[folder.path().to_owned()]));
        assert!(causes[0].ends_with("a.json: it is no regular file"), "{causes:?}");
        assert!(regular(&path).is_err());
    }
}
