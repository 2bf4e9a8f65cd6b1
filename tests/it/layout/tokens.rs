//! Words that are no syntax yet: those of a whole file, and the paths among the arguments of a macro or an attribute.

use proc_macro2::{Delimiter, Ident, LineColumn, Spacing, Span, TokenStream, TokenTree};

/// A word of a source: an identifier or a keyword.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) line: usize,
    pub(super) text: String,
    /// Whether `::` is before it.
    pub(super) is_in_path: bool,
    pub(super) in_test: bool,
}

/// Every word of a source, in order. `within_tests` returns whether a place is compiled for tests only.
pub(super) fn words(tokens: TokenStream, within_tests: &dyn Fn(LineColumn) -> bool) -> Vec<Word> {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Vec::new();
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Group(group) => found.extend(words(group.stream(), within_tests)),
            TokenTree::Ident(ident) => {
                let start = ident.span().start();
                found.push(Word {
                    line: start.line,
                    text: word(ident),
                    is_in_path: is_behind_colons(&trees, at),
                    in_test: within_tests(start),
                });
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

/// The text of an identifier; a raw one without its `r#`.
pub(super) fn word(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map(str::to_owned).unwrap_or(text)
}

/// Whether a path has several parts or is the name of a type or constant.
pub(super) fn counts(path: &[String]) -> bool {
    path.len() > 1 || path.iter().any(|word| word.starts_with(char::is_uppercase))
}

/// The paths among the arguments of a macro or an attribute, each with the place where it starts.
///
/// A name without `::` counts if it is that of a type or constant, or is called. The texts in an attribute can be paths
/// too, as in `#[serde(with = "a::b")]`.
pub(super) fn paths(tokens: &TokenStream, with_texts: bool) -> Vec<(Span, Vec<String>)> {
    let trees: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        at = match tree {
            TokenTree::Ident(ident) => {
                let prefix = if is_behind_colons(&trees, at) { vec![String::new()] } else { Vec::new() };
                let (end, paths) = read_path(&trees, at, prefix);
                let before = at.checked_sub(1).and_then(|before| trees.get(before));
                // A field or method has no path, and `$x::y` is known only where the macro is used.
                let is_known = !is_mark(before, '.') && (!is_mark(before, '$') || ident == "crate");
                found.extend(paths.into_iter().filter(|_| is_known));
                end
            }
            TokenTree::Group(group) => {
                found.extend(paths(&group.stream(), with_texts));
                at + 1
            }
            TokenTree::Literal(literal) => {
                let path = with_texts.then(|| path_in_text(&literal.to_string())).flatten();
                found.extend(path.map(|path| (literal.span(), path)));
                at + 1
            }
            TokenTree::Punct(_) => at + 1,
        };
    }
    found
}

/// The path in a literal, if it has several parts.
fn path_in_text(literal: &str) -> Option<Vec<String>> {
    let text: syn::LitStr = syn::parse_str(literal).ok()?;
    let path: syn::Path = text.parse().ok()?;
    let path: Vec<String> = path.segments.iter().map(|segment| word(&segment.ident)).collect();
    (path.len() > 1).then_some(path)
}

/// Reads a path that starts at a place, or continues there after `prefix`. Also returns the place after it.
fn read_path(trees: &[TokenTree], begin: usize, prefix: Vec<String>) -> (usize, Vec<(Span, Vec<String>)>) {
    let mut path = prefix;
    let mut at = begin;
    while let Some(TokenTree::Ident(ident)) = trees.get(at) {
        path.push(word(ident));
        at += 1;
        if !trees.get(at..).is_some_and(are_colons) {
            break;
        }
        match trees.get(at + 2) {
            Some(TokenTree::Ident(_)) => at += 2,
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let parts: Vec<TokenTree> = group.stream().into_iter().collect();
                let parts = parts.split(|tree| is_mark(Some(tree), ',')).filter(|part| !part.is_empty());
                return (at + 3, parts.flat_map(|part| read_path(part, 0, path.clone()).1).collect());
            }
            Some(tree) if is_mark(Some(tree), '*') => {
                path.push("*".to_owned());
                at += 3;
                break;
            }
            _ => break,
        }
    }
    let is_called = match trees.get(at) {
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Parenthesis,
        behind => is_mark(behind, '!'),
    };
    let paths = if counts(&path) || is_called { vec![(trees[begin].span(), path)] } else { Vec::new() };
    (at.max(begin + 1), paths)
}

fn is_behind_colons(trees: &[TokenTree], at: usize) -> bool {
    at >= 2 && are_colons(&trees[at - 2..])
}

/// Whether these start with `::`.
fn are_colons(trees: &[TokenTree]) -> bool {
    let is_joint =
        |tree: &TokenTree| matches!(tree, TokenTree::Punct(mark) if mark.spacing() == Spacing::Joint);
    matches!(trees, [first, ..] if is_joint(first))
        && is_mark(trees.first(), ':')
        && is_mark(trees.get(1), ':')
}

fn is_mark(tree: Option<&TokenTree>, mark: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(found)) if found.as_char() == mark)
}
