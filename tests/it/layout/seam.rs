//! The seam: only three places name facts of a single mode of Cilium. They are `publisher`, the definitions in the
//! model, and `wire`, which reads and writes them.

use super::Finding;
use super::source::Sources;

const SEAM: &str = "a word of one mode of Cilium, which only these name:";

/// The words of Cilium's modes, in the fields and types of the model.
const WORDS: [&str; 17] = [
    "CrdChange",
    "CrdFields",
    "FormerCrd",
    "MarkChange",
    "PoolsChange",
    "PoolsFields",
    "QUERY_ADDRESS",
    "ReleaseMark",
    "UNSPECIFIED",
    "asked_as_of",
    "infrastructure",
    "marks",
    "min_allocate",
    "operator_error",
    "owners",
    "pod_cidrs",
    "release_ips",
];

/// The paths below which some of these words may be named.
const MAY_NAME: [(&str, &[&str]); 7] = [
    // One variant per mode.
    ("src/model/carrier.rs", &["CrdChange", "FormerCrd", "PoolsChange"]),
    ("src/model/node.rs", &["CrdFields", "PoolsFields", "pod_cidrs"]),
    // Defines them.
    ("src/model/crd.rs", &WORDS),
    ("src/model/multi_pool.rs", &WORDS),
    ("src/publisher/", &WORDS),
    // Reads them from the objects and writes them there.
    ("src/wire/", &WORDS),
    // An address as an example of its family; not the address of a usage query.
    ("src/ledger/", &["UNSPECIFIED"]),
];

/// Every word of the seam that is named outside.
pub(super) fn words_outside(sources: &Sources) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in sources.files() {
        let may = MAY_NAME.iter().find(|(path, _)| source.file.starts_with(path));
        let may_name = may.map_or(&[][..], |(_, words)| words);
        for word in source.words.iter().filter(|word| !word.in_test) {
            let text = word.text.as_str();
            if WORDS.contains(&text) && !may_name.contains(&text) {
                found.push(Finding::new(&source.file, word.line, text, &rule(text)));
            }
        }
    }
    found
}

fn rule(word: &str) -> String {
    let paths = MAY_NAME.iter().filter(|(_, words)| words.contains(&word)).map(|(path, _)| *path);
    format!("{SEAM} {}", paths.collect::<Vec<_>>().join(", "))
}

#[test]
fn every_word_of_the_seam_is_found_outside_of_it() {
    for word in WORDS {
        let source = format!(
            "// {word}\nconst TEXT: &str = \"{word}\";\nfn f(x: X) {{ format!(\"\", x.{word}) }}\n\
             #[cfg(test)]\nmod tests {{ fn f(x: X) {{ x.{word} }} }}"
        );
        let sources = |file| Sources::of_texts(&[(file, &source)]);
        for file in ["model/mod.rs", "world/mod.rs", "plan/mod.rs", "view/mod.rs", "controller/mod.rs"] {
            let expected =
                Finding { file: format!("src/{file}"), line: 3, named: word.to_owned(), rule: rule(word) };
            assert_eq!(words_outside(&sources(file)), [expected]);
        }
        for file in ["publisher/mod.rs", "wire/mod.rs"] {
            assert_eq!(words_outside(&sources(file)), []);
        }
        let model = Sources::of_texts(&[("model/mod.rs", "pub mod crd;"), ("model/crd.rs", &source)]);
        assert_eq!(words_outside(&model), []);
    }
    assert_eq!(
        rule("UNSPECIFIED"),
        format!("{SEAM} src/model/crd.rs, src/model/multi_pool.rs, src/publisher/, src/wire/, src/ledger/")
    );
}
