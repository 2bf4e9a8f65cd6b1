//! The sources of a crate as the rules of the layout see them: its files, the modules they form, and the names in them.
//!
//! Follows the `mod` declarations from `lib.rs` as the compiler does. So it knows the module of a file, and whether it
//! is compiled for tests only. It knows no rule.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::reading::{Name, read};
use super::scope::{ModulePath, Scopes, Target};
use super::tokens::Word;

/// One file, and the names in it.
pub(super) struct Source {
    /// Its path, as `src/wire/pool.rs`.
    pub(super) file: String,
    /// Its module. The root of the crate has an empty path.
    pub(super) module: ModulePath,
    /// The paths in it, in order.
    pub(super) names: Vec<Name>,
    /// Every word of it, in order, without comments and texts.
    pub(super) words: Vec<Word>,
}

impl Source {
    /// The room that the file is in; `None` for the root of the crate.
    pub(super) fn room(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }
}

/// All files of a crate.
pub(super) struct Sources {
    files: Vec<Source>,
    scopes: Scopes,
    /// The modules that the root declares, in order, without those that are for tests.
    pub(super) rooms: Vec<String>,
    /// The directories beside `lib.rs`.
    pub(super) directories: BTreeSet<String>,
    /// The files to which no `mod` leads.
    pub(super) orphans: Vec<String>,
}

impl Sources {
    /// The sources of this crate, read once per process.
    pub(super) fn of_this_crate() -> &'static Self {
        static SOURCES: LazyLock<Sources> = LazyLock::new(|| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            let mut texts = BTreeMap::new();
            let mut open = vec![root.clone()];
            while let Some(path) = open.pop() {
                if path.is_dir() {
                    let entries = fs::read_dir(&path).expect("a directory of the sources can be read");
                    open.extend(entries.map(|entry| entry.expect("an entry of it can be read").path()));
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = fs::read_to_string(&path).expect("a source can be read");
                    let path =
                        path.strip_prefix(&root).expect("the file was found below the root").to_owned();
                    texts.insert(path, text);
                }
            }
            // A crate of its own, which uses the library as any other crate does.
            texts.remove(Path::new("main.rs"));
            Sources::of(&texts)
        });
        &SOURCES
    }

    /// A crate of one file per pair of a path below `src` and its text.
    ///
    /// Every module that a text declares needs a file. Modules that `lib.rs` lacks are declared for it, in order.
    pub(super) fn of_texts(texts: &[(&str, &str)]) -> Self {
        let rooms: BTreeSet<&str> =
            texts.iter().filter_map(|(file, _)| file.split(['/', '.']).next()).collect();
        let root: Vec<String> = rooms.iter().map(|room| format!("pub mod {room};\n")).collect();
        let mut texts: BTreeMap<PathBuf, String> =
            texts.iter().map(|(file, text)| (PathBuf::from(file), (*text).to_owned())).collect();
        texts.entry("lib.rs".into()).or_insert(root.concat());
        Self::of(&texts)
    }

    /// A crate of these texts, by their paths below `src`.
    fn of(texts: &BTreeMap<PathBuf, String>) -> Self {
        let mut sources = Self {
            files: Vec::new(),
            scopes: Scopes::default(),
            rooms: Vec::new(),
            directories: BTreeSet::new(),
            orphans: Vec::new(),
        };
        let mut reached = BTreeSet::new();
        let mut open = VecDeque::from([(ModulePath::new(), PathBuf::from("lib.rs"), false)]);
        while let Some((module, path, is_test)) = open.pop_front() {
            let file = format!("src/{}", path.display());
            let reading = read(&file, &module, is_test, &texts[&path]);
            for declared in reading.declared {
                let inline = &declared.path[module.len()..declared.path.len() - 1];
                let place = directory_of(&path).join(inline.iter().collect::<PathBuf>());
                let name = declared.path.last().expect("a declared module has a name");
                let candidates = [place.join(format!("{name}.rs")), place.join(name).join("mod.rs")];
                let child = candidates.into_iter().find(|path| texts.contains_key(path));
                let child = child.unwrap_or_else(|| panic!("{file}: there is no file for `mod {name}`"));
                if module.is_empty() && !declared.is_test {
                    sources.rooms.push(name.clone());
                }
                open.push_back((declared.path, child, declared.is_test));
            }
            sources.scopes.extend(reading.scopes);
            sources.files.push(Source { file, module, names: reading.names, words: reading.words });
            reached.insert(path);
        }
        sources.files.sort_by(|a, b| a.file.cmp(&b.file));
        for path in texts.keys() {
            if !reached.contains(path) {
                sources.orphans.push(format!("src/{}", path.display()));
            }
            if let Some(directory) = path.iter().rev().nth(1).and_then(|_| path.iter().next()) {
                sources.directories.insert(directory.to_string_lossy().into_owned());
            }
        }
        sources
    }

    /// Every file, in the order of their paths.
    pub(super) fn files(&self) -> impl Iterator<Item = &Source> {
        self.files.iter()
    }

    /// The meaning of a name in the module in which it is written.
    pub(super) fn target(&self, name: &Name) -> Target {
        self.scopes.resolve(&name.module, &name.written)
    }

    /// The file in which a module is.
    pub(super) fn file_of(&self, module: &ModulePath) -> &str {
        self.scopes.file_of(module)
    }
}

/// The directory of the modules that this file declares.
fn directory_of(file: &Path) -> PathBuf {
    if file.ends_with("mod.rs") || file == Path::new("lib.rs") {
        file.parent().unwrap_or(Path::new("")).to_owned()
    } else {
        file.with_extension("")
    }
}
