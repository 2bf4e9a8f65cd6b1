//! Texts for users are in plain words: a pattern for each habit that CONTRIBUTING.md lists, looked for in every text
//! that the program can show.
//!
//! Texts that may keep a habit are listed with the reason. Comments and documents are counted, and the counts may only
//! fall. None of it needs a control plane.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use habits::Habit;
use regex::Regex;

mod allowed;
mod habits;
mod shown;
mod sources;

/// Something that a user may read, and where it comes from.
#[derive(Debug, Clone)]
struct Text {
    place: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn texts_that_the_program_can_show_have_no_habit() {
    let texts = shown::texts();
    assert!(texts.len() > 700, "a user can read more than {} texts", texts.len());
    let habits = habits::all();
    let mut unused: Vec<_> = allowed::ALLOWED.iter().collect();
    let mut complaints = String::new();
    for Text { place, text } in &texts {
        for habit in &habits {
            for found in habit.places(text) {
                let allowed = |entry: &&(&str, &str)| {
                    let mut copies = text.match_indices(entry.0);
                    copies.any(|(at, _)| at <= found.start && found.end <= at + entry.0.len())
                };
                if let Some(entry) = allowed::ALLOWED.iter().find(allowed) {
                    unused.retain(|other| *other != entry);
                } else {
                    let Habit { name, remedy, .. } = habit;
                    let word = &text[found];
                    writeln!(complaints, "{place}: `{word}` ({name}): {remedy}\n    {text:?}")
                        .expect("a string");
                }
            }
        }
        for (n_words, sentence) in habits::too_long(text) {
            writeln!(complaints, "{place}: {n_words} words, at most {}\n    {sentence:?}", habits::LONGEST)
                .expect("a string");
        }
    }
    for (text, _) in unused {
        writeln!(complaints, "tests/it/words/allowed.rs: no text needs the entry {text:?}")
            .expect("a string");
    }
    assert!(complaints.is_empty(), "{} complaints\n{complaints}", complaints.matches(": `").count());
}

#[test]
fn habits_are_found_in_the_examples_of_the_style() {
    let names = |text: &str| -> Vec<&'static str> {
        let habits = habits::all();
        habits.iter().filter(|habit| habit.places(text).next().is_some()).map(|habit| habit.name).collect()
    };
    assert_eq!(names("the carrier of a node's blocks"), [] as [&str; 0]);
    assert_eq!(names("what carries a node's blocks"), ["clause for a noun"]);
    assert_eq!(names("somebody removed it"), ["anonymous actor"]);
    assert_eq!(names("the block is to leave"), ["is to", "word of the dialect"]);
    assert_eq!(names("its agent goes on with it"), ["bare verb"]);
    assert_eq!(names("nodes of whose agents"), ["front-loaded relative"]);
    assert_eq!(names("no block that nobody wants"), ["anonymous actor", "double negation"]);
    let long = "one ".repeat(26);
    assert_eq!(habits::too_long(&long).len(), 1);
    assert_eq!(habits::too_long(&format!("{}. {}", "one ".repeat(20), "two ".repeat(20))), []);
}

#[test]
fn comments_and_documents_have_no_more_habits_than_before() {
    let mut counts = BTreeMap::<(&str, &str), usize>::new();
    let habits = habits::all();
    for (area, texts) in [("comments", sources::comments(root())), ("documents", shown::documents(root()))] {
        for habit in &habits {
            let n_found: usize = texts.iter().map(|text| habit.places(&text.text).count()).sum();
            counts.insert((area, habit.name), n_found);
        }
    }
    let table: Vec<String> =
        counts.iter().map(|((area, name), count)| format!("{area}: {name}: {count}")).collect();
    println!("{}", table.join("\n"));
    let more: Vec<String> = allowed::COUNTS
        .iter()
        .filter_map(|(area, name, most)| {
            let count = counts.get(&(*area, *name)).copied().unwrap_or(0);
            (count > *most).then(|| format!("{area}: {name}: {count}, and {most} before"))
        })
        .collect();
    assert!(
        more.is_empty(),
        "write in plain words, as CONTRIBUTING.md says under Words:\n{}",
        more.join("\n")
    );
    assert_eq!(allowed::COUNTS.len(), counts.len(), "each habit has a count in both areas");
}

#[test]
fn identifiers_have_the_words_of_the_glossary() {
    let words: Vec<(Regex, &str)> = habits::NOT_IN_IDENTIFIERS
        .iter()
        .map(|(words, remedy)| {
            (Regex::new(&format!("_({words})_")).expect("the pattern is well formed"), *remedy)
        })
        .collect();
    let mut unused: Vec<&str> = allowed::IDENTIFIERS.iter().map(|(name, _)| *name).collect();
    let mut complaints = Vec::new();
    for (identifier, place) in sources::identifiers(root()) {
        let split = habits::words_of(&identifier);
        let Some((_, remedy)) = words.iter().find(|(word, _)| word.is_match(&split)) else { continue };
        if allowed::IDENTIFIERS.iter().any(|(name, _)| *name == identifier) {
            unused.retain(|name| *name != identifier);
        } else {
            complaints.push(format!("{place}: {identifier}: write {remedy}"));
        }
    }
    complaints
        .extend(unused.iter().map(|name| format!("tests/it/words/allowed.rs: no identifier is {name}")));
    assert!(complaints.is_empty(), "{} complaints\n{}", complaints.len(), complaints.join("\n"));
    assert_eq!(habits::words_of("RouteWithheld"), "_route_withheld_");
}
