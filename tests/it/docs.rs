//! The code that the documents name exists. A document writes `path::name`, and that file has that name, so a reader
//! who follows a rule to its code finds it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

mod book;
pub(crate) mod generated;
mod rights;
pub(crate) mod versions;

/// The minimum number of names in all documents. Fewer would mean that the test does not read them properly.
const FEWEST: usize = 100;

/// The documents outside of `docs` that are read too.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "tests/controlplane/README.md",
    "tests/agent/README.md",
    "tests/bgp/README.md",
];

#[test]
fn what_the_documents_name_is_there() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents: Vec<PathBuf> = DOCUMENTS.iter().map(|path| root.join(path)).collect();
    documents.extend(every_page());
    let (mut n_names, mut missing) = (0, Vec::new());
    for document in &documents {
        let text = fs::read_to_string(document)?;
        for line in text.lines() {
            for (file, name) in names(line) {
                n_names += 1;
                let source = source(root, file).with_context(|| format!("{}: {file}", document.display()))?;
                if !defines(&fs::read_to_string(source)?, name) {
                    missing.push(format!("{}: {file}::{name}", document.display()));
                }
            }
        }
    }
    ensure!(missing.is_empty(), "{missing:#?}");
    ensure!(n_names >= FEWEST, "only {n_names} names");
    Ok(())
}

/// Every document below `docs`.
fn every_page() -> Vec<PathBuf> {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")];
    let mut pages = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("the directory can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The columns of pools and claims in the README are those that kubectl prints.
#[test]
fn columns_in_the_readme_are_those_of_the_definitions() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md"))?;
    for plural in ["nodeippools", "nodeipblocks"] {
        let definition = fs::read_to_string(root.join(format!("crds/{plural}.nodeipam.io.yaml")))?;
        let definition: serde_json::Value = serde_saphyr::from_str(&definition)?;
        let columns = definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array();
        let columns =
            columns.into_iter().flatten().filter(|column| column["priority"].as_i64().unwrap_or(0) == 0);
        let names = columns.filter_map(|column| column["name"].as_str()).map(str::to_uppercase);
        let header: Vec<String> = ["NAME".to_owned()].into_iter().chain(names).collect();
        let is_shown =
            readme.lines().any(|line| line.split_whitespace().eq(header.iter().map(String::as_str)));
        ensure!(is_shown, "README.md has no table of {plural} with the columns {header:?}");
    }
    Ok(())
}

/// The page of a repository shows that much of a line without a scroll bar.
#[test]
fn commands_of_the_readme_fit_the_page() {
    let readme = include_str!("../../README.md");
    let blocks: Vec<&str> =
        readme.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n")).collect();
    assert!(blocks.len() > 3, "{blocks:?}");
    for line in blocks.iter().flat_map(|block| block.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// Each rule on the page of invariants has a section of the same name in the appendix. The section names its code and
/// its tests.
#[test]
fn every_invariant_has_code_and_tests_in_the_appendix() {
    let rules: Vec<String> = include_str!("../../docs/invariants.md").lines().filter_map(rule).collect();
    assert_eq!(rules.len(), 8, "{rules:#?}");
    let appendix = include_str!("../../docs/invariants-appendix.md");
    for rule in rules {
        let section = appendix.split("\n## ").find(|section| section.lines().next() == Some(&rule));
        let section = section.unwrap_or_else(|| panic!("the appendix has no section {rule:?}"));
        assert!(section.contains("\n| kept by | |\n|---|---|\n| `"), "{rule}: no code");
        assert!(section.contains("\nTests: `"), "{rule}: no tests");
    }
}

/// Each row of the page of security about a protection names the test that shows it.
#[test]
fn everything_that_is_stopped_has_a_test() {
    let page = include_str!("../../docs/security.md");
    let (attacks, _) = page.split_once("\n## Rights\n").expect("the last section");
    let mut n_attacks = 0;
    for table in attacks.split("\n|---|---|---|\n").skip(1) {
        for row in table.lines().take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            // The table of ports has no tests.
            if cells[0].starts_with(|first: char| first.is_ascii_digit() || first == '`') {
                continue;
            }
            n_attacks += 1;
            assert!(cells.len() == 3 && cells[2].starts_with('`') && cells[2].contains(".rs"), "{row}");
        }
    }
    assert!(n_attacks >= 20, "only {n_attacks}");
}

/// The heading of the appendix for a rule that starts in this line.
fn rule(line: &str) -> Option<String> {
    let (number, rest) = line.split_once(". **")?;
    let name = rest.strip_suffix(".**")?;
    let (first, others) = name.split_at_checked(1)?;
    Some(format!("Rule {number}: {}{others}", first.to_lowercase()))
}

/// Every `file::name` in a line, and every `::name` that follows one with its file.
fn names(line: &str) -> Vec<(&str, &str)> {
    let mut file = None;
    let mut names = Vec::new();
    for code in line.split('`').skip(1).step_by(2) {
        let Some((before, name)) = code.split_once("::") else { continue };
        if is_source(before) {
            file = Some(before);
        } else if !before.is_empty() {
            continue;
        }
        names.extend(file.map(|file| (file, name)));
    }
    names
}

fn is_source(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "rs" || extension == "go")
}

/// Documents name sources below `src`, and others from the root.
fn source(root: &Path, file: &str) -> Option<PathBuf> {
    [root.join("src").join(file), root.join(file)].into_iter().find(|path| path.is_file())
}

/// Whether the last part of the name is defined in the source, as an item, a field, a variant or a method.
fn defines(source: &str, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    source.match_indices(last).any(|(at, _)| {
        let (before, after) = (&source[..at], &source[at + last.len()..]);
        let stands_alone =
            !before.bytes().next_back().is_some_and(is_part) && !after.bytes().next().is_some_and(is_part);
        let is_item = ["fn ", "struct ", "enum ", "const ", "static ", "trait ", "type ", "mod ", "func "]
            .iter()
            .any(|keyword| before.ends_with(keyword));
        // A method in Go has its receiver before its name.
        let is_method = before.ends_with(") ")
            && before.lines().next_back().is_some_and(|line| line.starts_with("func ("));
        let line = before.lines().next_back().unwrap_or_default().trim();
        let is_member = matches!(line, "" | "pub" | "pub(super)" | "pub(crate)")
            && after.starts_with([':', ',', '(', ' ']);
        stands_alone && (is_item || is_method || is_member)
    })
}

#[test]
fn names_are_read_and_looked_for() {
    let line =
        "Kept by `a/b.rs::View::grow` and `::other`, not `Kind::Node`; `c.rs` and `::third`, `d.go::Fourth`.";
    assert_eq!(
        names(line),
        [("a/b.rs", "View::grow"), ("a/b.rs", "other"), ("a/b.rs", "third"), ("d.go", "Fourth")]
    );
    let source = "struct View {\n    pub shown: bool,\n}\nimpl View {\n    fn grow(&self) {}\n}\n// growth is not here\n";
    for name in ["View", "View::grow", "View::shown"] {
        assert!(defines(source, name), "{name}");
    }
    for name in ["View::shrink", "growth", "show"] {
        assert!(!defines(source, name), "{name}");
    }
}
