//! The book that `make docs` builds from `docs`: every page is in it once, its links lead somewhere, and no page for
//! users is too long. This needs no mdBook.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use regex::Regex;

use super::every_page;

/// The pages of the root that the book has too (`scripts/book`).
const OF_THE_ROOT: [&str; 3] = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];

/// The maximum number of words of a page for users, without blocks of code.
const MAX_WORDS: usize = 1500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a page that are not in a block of code.
fn lines(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchor of a heading, as mdBook and GitHub make it.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    words.chars().filter(|c| c.is_alphanumeric() || ['-', '_'].contains(c)).collect()
}

/// The path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// The targets of the links of a page, without those to other sites: the file, and the anchor.
fn links(path: &Path) -> Vec<(PathBuf, Option<String>)> {
    let target = Regex::new(r"\]\(([^)\s]+)\)").expect("the pattern is well formed");
    let code = Regex::new("`[^`]*`").expect("the pattern is well formed");
    let folder = path.parent().expect("a page is in a folder");
    let mut links = Vec::new();
    for line in lines(&read(path)) {
        let line = code.replace_all(line, "");
        for found in target.captures_iter(&line) {
            let (file, anchor) =
                found[1].split_once('#').map_or((&found[1], None), |(file, anchor)| (file, Some(anchor)));
            if file.contains(':') {
                continue;
            }
            let file = if file.is_empty() { path.to_owned() } else { normal(&folder.join(file)) };
            links.push((file, anchor.map(ToOwned::to_owned)));
        }
    }
    links
}

/// The pages of the book: those for users, and those for contributors behind them.
fn chapters() -> (Vec<PathBuf>, Vec<PathBuf>) {
    let summary = read(&root().join("docs/SUMMARY.md"));
    let link = Regex::new(r"\]\(([^)]+)\)").expect("the pattern is well formed");
    let (users, contributors) = summary.split_once("\n# Contributing\n").expect("the part is there");
    let pages = |text: &str| -> Vec<PathBuf> {
        link.captures_iter(text).map(|found| root().join("docs").join(&found[1])).collect()
    };
    (pages(users), pages(contributors))
}

#[test]
fn the_book_has_every_page_once() {
    let (users, contributors) = chapters();
    let all: Vec<_> = users.into_iter().chain(contributors).collect();
    let chapters: BTreeSet<PathBuf> = all.iter().cloned().collect();
    assert_eq!(all.len(), chapters.len(), "a page is there twice");
    let mut expected: BTreeSet<PathBuf> = every_page().into_iter().collect();
    expected.remove(&root().join("docs/SUMMARY.md"));
    // The book has copies of these.
    expected.extend(OF_THE_ROOT.map(|name| root().join("docs").join(name)));
    assert_eq!(chapters, expected, "left: docs/SUMMARY.md, right: the files");
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let of_the_root = ["README.md"].into_iter().chain(OF_THE_ROOT).map(|name| root().join(name));
    let (mut n_links, mut broken) = (0, Vec::new());
    for path in every_page().into_iter().filter(|path| !path.ends_with("SUMMARY.md")).chain(of_the_root) {
        for (file, wanted) in links(&path) {
            n_links += 1;
            let has_it = file.exists()
                && wanted.as_ref().is_none_or(|wanted| {
                    lines(&read(&file)).any(|line| line.starts_with('#') && anchor(line) == *wanted)
                });
            if !has_it {
                broken.push(format!("{}: {} {wanted:?}", path.display(), file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(n_links > 500, "only {n_links} links");
}

/// A link of a page to a file that the book does not have would be broken on the site.
#[test]
fn links_of_the_book_stay_in_the_book() {
    let in_book = |file: &Path| {
        file.starts_with(root().join("docs")) || OF_THE_ROOT.iter().any(|name| file == root().join(name))
    };
    let mut outside = Vec::new();
    for path in every_page().into_iter().filter(|path| !path.ends_with("SUMMARY.md")) {
        let links = links(&path).into_iter().filter(|(file, _)| !in_book(file));
        outside.extend(links.map(|(file, _)| format!("{}: {}", path.display(), file.display())));
    }
    assert!(outside.is_empty(), "{outside:#?}");
}

/// The program, the chart and the tests name pages as files of the repository.
#[test]
fn pages_that_sources_name_exist() {
    let name = Regex::new(r"\bdocs/[a-z0-9/-]+\.md").expect("the pattern is well formed");
    let mut open =
        ["src", "manifests", "tests/it", "examples", "scripts"].map(|name| root().join(name)).to_vec();
    let (mut n_names, mut missing) = (0, BTreeSet::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("the directory can be read");
            open.extend(entries.map(|entry| entry.expect("an entry can be read").path()));
            continue;
        }
        // Some files, such as archives, are no text.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for found in name.find_iter(&text) {
            n_names += 1;
            if !root().join(found.as_str()).exists() {
                missing.insert(format!("{}: {}", path.display(), found.as_str()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(n_names > 100, "only {n_names}");
}

#[test]
fn no_page_for_users_is_too_long() {
    let reference = root().join("docs/reference");
    let (users, _) = chapters();
    let pages = users.iter().filter(|page| page.exists() && !page.starts_with(&reference));
    let long = pages.filter_map(|page| {
        let n_words: usize = lines(&read(page)).map(|line| line.split_whitespace().count()).sum();
        (n_words > MAX_WORDS).then(|| format!("{}: {n_words} words", page.display()))
    });
    assert_eq!(long.collect::<Vec<_>>(), [""; 0]);
}
