//! The seam: what is true of one mode of Cilium only is named behind it, in `publisher`, where the model defines it, and
//! where `wire` reads and writes it.

use super::Finding;
use super::source::Sources;

const SEAM: &str = "a word of Cilium's crd mode, which only these rooms name:";
const STALE: &str = "no longer named here: remove it from this file's entry in `NOT_YET`";

/// The words of Cilium's crd mode, in the fields and types of the model.
const WORDS: [&str; 8] = [
    "ReleaseMark",
    "UNSPECIFIED",
    "infrastructure",
    "marks",
    "min_allocate",
    "owners",
    "pod_cidrs",
    "release_ips",
];

/// Which room may name which of these words.
const MAY_NAME: [(&str, &[&str]); 4] = [
    // Defines what the publisher and the world say to each other.
    ("model", &WORDS),
    ("publisher", &WORDS),
    // Reads them from the objects and writes them there.
    ("wire", &WORDS),
    // An address as an example of its family; not the one that an agent is asked about to see whether it answers.
    ("ledger", &["UNSPECIFIED"]),
];

/// A file that names such words although its room may not, and the words.
type Exception = (&'static str, &'static [&'static str]);

/// What is not behind the seam yet.
pub(super) const NOT_YET: [Exception; 9] = [
    ("src/controller/report.rs", &["infrastructure"]),
    ("src/plan/growth.rs", &["infrastructure", "owners", "pod_cidrs"]),
    ("src/plan/lifecycle.rs", &["ReleaseMark", "marks"]),
    ("src/plan/mod.rs", &["min_allocate", "pod_cidrs"]),
    ("src/plan/publication.rs", &["ReleaseMark", "marks"]),
    ("src/view/block_event.rs", &["pod_cidrs"]),
    ("src/view/tally.rs", &["pod_cidrs"]),
    ("src/world/absence.rs", &["owners", "pod_cidrs"]),
    ("src/world/mod.rs", &["pod_cidrs"]),
];

/// Every word of the seam that is named outside, and every exception that is not needed.
pub(super) fn words_outside(sources: &Sources, exceptions: &[Exception]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut needed = Vec::new();
    for source in sources.files() {
        let Some(room) = source.room() else { continue };
        let may_name = MAY_NAME.iter().find(|(may, _)| *may == room).map_or(&[][..], |(_, words)| words);
        for word in source.words.iter().filter(|word| !word.in_test) {
            let text = word.text.as_str();
            if !WORDS.contains(&text) || may_name.contains(&text) {
                continue;
            }
            let is_exception = |(file, words): &&Exception| *file == source.file && words.contains(&text);
            if exceptions.iter().any(|exception| is_exception(&exception)) {
                needed.push((source.file.as_str(), text));
            } else {
                found.push(Finding::new(&source.file, word.line, text, &rule(text)));
            }
        }
    }
    for (file, words) in exceptions {
        for word in words.iter().filter(|word| !needed.contains(&(file, word))) {
            found.push(Finding::of_file(file, word, STALE));
        }
    }
    found
}

fn rule(word: &str) -> String {
    let rooms = MAY_NAME.iter().filter(|(_, words)| words.contains(&word)).map(|(room, _)| *room);
    format!("{SEAM} {}", rooms.collect::<Vec<_>>().join(", "))
}

#[test]
fn every_word_of_the_seam_is_found_outside_of_it() {
    for word in WORDS {
        let source = format!(
            "// {word}\nconst TEXT: &str = \"{word}\";\nfn f(x: X) {{ format!(\"\", x.{word}) }}\n\
             #[cfg(test)]\nmod tests {{ fn f(x: X) {{ x.{word} }} }}"
        );
        let sources = |file| Sources::of_texts(&[(file, &source)]);
        for file in ["world/mod.rs", "plan/mod.rs", "view/mod.rs", "controller/mod.rs"] {
            let expected =
                Finding { file: format!("src/{file}"), line: 3, named: word.to_owned(), rule: rule(word) };
            assert_eq!(words_outside(&sources(file), &[]), [expected]);
        }
        for file in ["model/mod.rs", "publisher/mod.rs", "wire/mod.rs"] {
            assert_eq!(words_outside(&sources(file), &[]), []);
        }
    }
    assert_eq!(rule("UNSPECIFIED"), format!("{SEAM} model, publisher, wire, ledger"));
}

#[test]
fn an_exception_must_be_needed() {
    let sources = Sources::of_texts(&[("plan/mod.rs", "fn f(x: X) { x.owners; x.marks }")]);
    assert_eq!(words_outside(&sources, &[("src/plan/mod.rs", &["marks", "owners"])]), []);
    assert_eq!(
        words_outside(
            &sources,
            &[("src/plan/mod.rs", &["marks", "owners", "pod_cidrs"]), ("src/plan/gone.rs", &["marks"])]
        ),
        [
            Finding::of_file("src/plan/mod.rs", "pod_cidrs", STALE),
            Finding::of_file("src/plan/gone.rs", "marks", STALE)
        ]
    );
}
