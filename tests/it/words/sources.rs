//! The texts in the code that a user may read: the string literals of `src` that are more than one word.
//!
//! Leaves out what no user reads: tests, doc comments (`--help` and the CRDs are read where they are shown), and the
//! proofs at `expect`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::Text;

/// The texts of all files of the crate, in the order of their paths and lines.
pub(super) fn texts(root: &Path) -> Vec<Text> {
    let files = files(root, "src").into_iter().filter(|path| !is_for_tests(path));
    files
        .flat_map(|path| {
            let source = fs::read_to_string(&path).expect("a source can be read");
            let place = path.strip_prefix(root).expect("the file was found below the root");
            of_file(&place.display().to_string(), &source)
        })
        .collect()
}

/// The comments of the sources and tests, as one text per file.
pub(super) fn comments(root: &Path) -> Vec<Text> {
    let files =
        ["src", "tests", "benches", "examples"].into_iter().flat_map(|directory| files(root, directory));
    let comments = |path: PathBuf| {
        let source = fs::read_to_string(&path).expect("a source can be read");
        let lines = source.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
        Text { place: path.display().to_string(), text: lines.collect::<Vec<_>>().join("\n") }
    };
    files.map(comments).collect()
}

/// The identifiers of the sources and tests, each with the first file that has it. Names of tests are sentences, and
/// left out.
pub(super) fn identifiers(root: &Path) -> BTreeMap<String, String> {
    let files =
        ["src", "tests", "benches", "examples"].into_iter().flat_map(|directory| files(root, directory));
    let mut found = BTreeMap::new();
    for path in files {
        let source = fs::read_to_string(&path).expect("a source can be read");
        let place = path.strip_prefix(root).expect("the file was found below the root").display().to_string();
        let tokens = source.parse().unwrap_or_else(|error| panic!("{place}: {error}"));
        add_identifiers(tokens, &place, &mut found);
    }
    found
}

fn add_identifiers(tokens: TokenStream, place: &str, found: &mut BTreeMap<String, String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => add_identifiers(group.stream(), place, found),
            TokenTree::Ident(name) => {
                let name = name.to_string();
                if name.split('_').count() < SENTENCE {
                    found.entry(name).or_insert_with(|| place.to_owned());
                }
            }
            TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// A name of so many words is a sentence: that of a test.
const SENTENCE: usize = 6;

/// The Rust files of a directory, in the order of their paths.
fn files(root: &Path, directory: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![root.join(directory)];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(path).expect("a directory of the sources can be read");
            open.extend(entries.map(|entry| entry.expect("an entry of it can be read").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The texts of one file.
pub(super) fn of_file(place: &str, source: &str) -> Vec<Text> {
    let file = syn::parse_file(source).unwrap_or_else(|error| panic!("{place}: {error}"));
    let mut literals = Literals { place, texts: Vec::new() };
    literals.visit_file(&file);
    literals.texts
}

/// `tests.rs`, what is below `tests/`, and `docs.rs`, which is a test of the documents.
fn is_for_tests(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "docs.rs")
        || path.with_extension("").iter().any(|part| part == "tests")
}

struct Literals<'a> {
    place: &'a str,
    texts: Vec<Text>,
}

impl Literals<'_> {
    fn add(&mut self, line: usize, text: &str) {
        let text = without_names(text);
        if text.split_whitespace().nth(1).is_some() {
            self.texts.push(Text { place: format!("{}:{line}", self.place), text });
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    let line = literal.span().start().line;
                    if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                        self.add(line, &text.value());
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

/// The text with `{}` in place of each `{name}`: a user sees no names of variables.
fn without_names(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
    rest.fold(first, |text, part| text + "{}" + part)
}

/// Whether something is compiled for tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        syn::Meta::NameValue(_) => false,
    })
}

impl<'ast> Visit<'ast> for Literals<'_> {
    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        if !is_test(&node.attrs) {
            visit::visit_item_mod(self, node);
        }
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        if !is_test(&node.attrs) {
            visit::visit_item_fn(self, node);
        }
    }

    fn visit_attribute(&mut self, node: &'ast syn::Attribute) {
        // `#[allow(reason = …)]` speaks to those who read the code.
        let is_for_readers =
            ["doc", "allow", "expect", "cfg_attr"].iter().any(|name| node.path().is_ident(name));
        if let syn::Meta::List(list) = &node.meta
            && !is_for_readers
        {
            self.tokens(list.tokens.clone());
        }
    }

    fn visit_expr_method_call(&mut self, node: &'ast syn::ExprMethodCall) {
        self.visit_expr(&node.receiver);
        if node.method != "expect" {
            node.args.iter().for_each(|argument| self.visit_expr(argument));
        }
    }

    fn visit_lit_str(&mut self, node: &'ast syn::LitStr) {
        self.add(node.span().start().line, &node.value());
    }

    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        let is_internal = node.path.segments.last().is_some_and(|name| {
            ["debug_assert", "debug_assert_eq", "assert", "unreachable"]
                .iter()
                .any(|macro_| name.ident == macro_)
        });
        if !is_internal {
            self.tokens(node.tokens.clone());
        }
    }
}
