//! The habits that make a text hard to read, as patterns, and the texts that may keep one.

use std::ops::Range;

use regex::Regex;

/// A habit, as CONTRIBUTING.md numbers them under Words.
#[derive(Debug)]
pub(super) struct Habit {
    pub(super) name: &'static str,
    /// What to write in its place.
    pub(super) remedy: &'static str,
    pattern: Regex,
}

/// Name, pattern and remedy. Patterns ignore case and stand between word boundaries.
const HABITS: [(&str, &str, &str); 8] = [
    (
        "clause for a noun",
        r"what|whatever|that which",
        "use the noun: the carrier, a draining block, its shortage",
    ),
    (
        "anonymous actor",
        r"somebody|someone|anybody|anyone|nobody|whoever|whichever|whom|he|his|him|hands?",
        "name the actor: the user, the agent, another writer, another replica",
    ),
    ("is to", r"(is|are|was|were) (not |then |also )?to (be|[a-z]+)", "write will, must, should or is due"),
    (
        "bare verb",
        r"goes|go on|gone on|going on|ends|ended|stands|begins?|begun|began",
        "write exits, is deleted, exists, starts, keeps using",
    ),
    ("front-loaded relative", r"(of|for|as|from|under|in) (whose|whom)|of which", "write two sentences"),
    (
        "double negation",
        r"no [a-z]+ that (no|not|nobody|none)|not without|none but|nothing but",
        "say the thing itself",
    ),
    ("telling", r"told|tells?", "write reports, says in the status, or the effect itself"),
    (
        "word of the dialect",
        r"held back|hold back|withheld|taken off|took off|take off|on its way|way out|probes?|lets? [a-z ]*go|heard of|to leave|lookers",
        "use the glossary of CONTRIBUTING.md",
    ),
];

/// All habits.
pub(super) fn all() -> Vec<Habit> {
    let habit = |(name, pattern, remedy): (&'static str, &str, &'static str)| Habit {
        name,
        remedy,
        pattern: Regex::new(&format!(r"(?i)\b({pattern})\b")).expect("the pattern is well formed"),
    };
    HABITS.into_iter().map(habit).collect()
}

impl Habit {
    /// Where the text has the habit.
    pub(super) fn places<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        self.pattern.find_iter(text).map(|found| found.range())
    }
}

/// The maximum number of words in a sentence.
pub(super) const LONGEST: usize = 25;

/// The sentences of a text with more words than that. A colon or semicolon ends a sentence, as a reader pauses there.
pub(super) fn too_long(text: &str) -> Vec<(usize, &str)> {
    let ends = Regex::new(r"[.;:!?]\s|\n\s*\n|\n\s*[-*|]").expect("the pattern is well formed");
    let count = |sentence: &str| {
        sentence
            .split_whitespace()
            .filter(|word| word.contains(|c: char| c.is_alphanumeric() || c == '{'))
            .count()
    };
    let sentences = ends.split(text).map(|sentence| (count(sentence), sentence));
    sentences.filter(|(n_words, _)| *n_words > LONGEST).collect()
}

/// Words that no identifier may have, with the words of the glossary for them.
pub(super) const NOT_IN_IDENTIFIERS: [(&str, &str); 9] = [
    ("told|tell|tells|telling|untold", "report, description, label"),
    ("withheld|withhold|withholds", "excluded"),
    ("homeless", "nodes_without_replacement"),
    ("stranger|strangers|takers", "unclaimed, occupants"),
    ("vain", "ineffective"),
    ("somebody|someone|anybody|anyone|whoever|whom", "the actor: another_writer, any_pod"),
    ("lookers|standing", "passive, api_health"),
    ("carries", "lists"),
    ("taken_off|takes_off|take_off|lets_go", "removed, removes, remove, releases"),
];

/// The words of an identifier, between underscores: `RouteWithheld` is `_route_withheld_`.
pub(super) fn words_of(identifier: &str) -> String {
    let mut words = String::from("_");
    let mut before = '_';
    for letter in identifier.chars() {
        if letter.is_uppercase() && before.is_lowercase() {
            words.push('_');
        }
        words.extend(letter.to_lowercase());
        before = letter;
    }
    words + "_"
}
