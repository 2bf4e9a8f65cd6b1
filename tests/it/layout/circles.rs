//! The circles: the files of a room import each other in one direction, unless they are one thought.
//!
//! An arrow leads from a file that names an item to the file that defines it. The calls of methods are no arrows: their
//! types are not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Finding;
use super::scope::Target;
use super::source::{Source, Sources};

const CIRCLE: &str = "the files of a room do not import each other in a circle";
const STALE: &str = "these files are no circle any more: change or remove their entry in `ALLOWED`";

/// A room, all files of one circle in it, and the reason why it is allowed.
type Allowed = (&'static str, &'static [&'static str], &'static str);

/// The allowed circles: files that are one thought. There is none.
pub(super) const ALLOWED: [Allowed; 0] = [];

/// The names by which files of one room refer to each other: the referring file, the defining file, and each name with
/// the first line that has it.
type Arrows<'a> = BTreeMap<(&'a str, &'a str), BTreeMap<String, usize>>;

/// Every circle that is not allowed, and every allowed one that does not exist.
pub(super) fn circles(sources: &Sources, allowed: &[Allowed]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut is_met = vec![false; allowed.len()];
    let rooms: BTreeSet<&str> = sources.files().filter_map(Source::room).collect();
    for room in rooms {
        let arrows = arrows(sources, room);
        for circle in circles_of(&arrows) {
            let prefix = format!("src/{room}/");
            let files: Vec<&str> =
                circle.iter().map(|file| file.strip_prefix(&prefix).unwrap_or(file)).collect();
            match allowed.iter().position(|(of, together, _)| *of == room && *together == files) {
                Some(entry) => is_met[entry] = true,
                None => found.push(Finding::of_file(circle[0], &files.join(", "), &rule(&circle, &arrows))),
            }
        }
    }
    for ((room, files, _), _) in allowed.iter().zip(is_met).filter(|(_, is_met)| !is_met) {
        found.push(Finding::of_file(&format!("src/{room}"), &files.join(", "), STALE));
    }
    found
}

/// The rule, with the arrows that make a circle.
fn rule(circle: &[&str], arrows: &Arrows<'_>) -> String {
    let mut rule = CIRCLE.to_owned();
    for ((from, to), names) in arrows {
        if circle.contains(from) && circle.contains(to) {
            for (name, line) in names {
                write!(rule, "\n    {from}:{line}: `{name}` of {to}").expect("a text takes all");
            }
        }
    }
    rule
}

/// The arrows between the files of a room. A re-export from a module below is no arrow.
fn arrows<'a>(sources: &'a Sources, room: &str) -> Arrows<'a> {
    let mut arrows = Arrows::new();
    for source in sources.files().filter(|source| source.room() == Some(room)) {
        for name in source.names.iter().filter(|name| !name.in_test) {
            let Target::Inside { module, item: Some(item), .. } = sources.target(name) else { continue };
            let is_below = module.len() > name.module.len() && module.starts_with(&name.module);
            let file = sources.file_of(&module);
            let is_in_room = module.first().is_some_and(|of| of == room);
            if is_in_room && file != source.file && !(name.is_reexport && is_below) {
                arrows.entry((source.file.as_str(), file)).or_default().entry(item).or_insert(name.line);
            }
        }
    }
    arrows
}

/// The files that lead to each other. Each circle is in the order of their names.
fn circles_of<'a>(arrows: &Arrows<'a>) -> BTreeSet<Vec<&'a str>> {
    let reached_from = |from: &'a str| {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            let next = arrows.keys().filter(|(from, _)| *from == at).map(|(_, to)| *to);
            open.extend(next.filter(|to| reached.insert(*to)));
        }
        reached
    };
    let files: BTreeSet<&str> = arrows.keys().map(|(from, _)| *from).collect();
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        files.iter().map(|file| (*file, reached_from(file))).collect();
    let circle_of = |file: &'a str| {
        let is_back = |to: &&&str| reached.get(**to).is_some_and(|reached| reached.contains(file));
        reached[file].iter().filter(is_back).copied().collect::<Vec<_>>()
    };
    files.iter().map(|file| circle_of(file)).filter(|circle| circle.len() > 1).collect()
}

#[test]
fn a_circle_is_found_with_what_makes_it() {
    let sources = Sources::of_texts(&[
        ("world/mod.rs", "mod a;\nmod b;\nmod c;\nuse a::first;\npub struct World;\nfn f() { first() }"),
        ("world/a.rs", "use super::b::Second;\npub fn first() {}"),
        ("world/b.rs", "pub struct Second(super::World);"),
        ("world/c.rs", "use super::World;"),
    ]);
    let shown: Vec<String> = circles(&sources, &[]).iter().map(ToString::to_string).collect();
    let expected = format!(
        "src/world/a.rs:1: `a.rs, b.rs, mod.rs`: {CIRCLE}
    src/world/a.rs:1: `Second` of src/world/b.rs
    src/world/b.rs:1: `World` of src/world/mod.rs
    src/world/mod.rs:4: `first` of src/world/a.rs"
    );
    assert_eq!(shown, [expected]);
}

#[test]
fn two_files_that_name_each_other_are_found_however_they_do() {
    for back in [
        "use super::b::Second;",
        "use super::*;\nfn f(_: b::Second) {}",
        "use crate::world::Second;",
        "use super::Known;",
        "use super::b::*;",
        "use super::b;\nfn f() { b::second() }",
        "fn f() { vec![super::b::second()]; }",
        "#[serde(with = \"super::b::inner\")]\nstruct X;",
    ] {
        let sources = Sources::of_texts(&[
            ("world/mod.rs", "mod a;\nmod b;\npub use b::Second;\npub use b::Second as Known;"),
            ("world/a.rs", &format!("{back}\npub struct First;")),
            ("world/b.rs", "use super::a::First;\npub struct Second;\npub fn second() {}"),
        ]);
        let named: Vec<String> = circles(&sources, &[]).into_iter().map(|found| found.named).collect();
        assert_eq!(named, ["a.rs, b.rs"], "{back}");
    }
}

#[test]
fn declarations_reexports_and_tests_make_no_circle() {
    let sources = Sources::of_texts(&[
        ("world/mod.rs", "pub mod a;\npub use a::First;\npub struct World;"),
        (
            "world/a.rs",
            "use super::World;\npub struct First;\n#[cfg(test)]\nmod tests { use super::super::b::B; }",
        ),
        ("view/mod.rs", "pub mod a;\n#[cfg(test)]\nmod tests;\npub fn f() {}"),
        ("view/a.rs", "use crate::world::a::First;"),
        ("view/tests.rs", "use super::{a, f};"),
    ]);
    assert_eq!(circles(&sources, &[]), []);
}

#[test]
fn what_is_allowed_must_be_there() {
    let sources = Sources::of_texts(&[
        ("world/mod.rs", "mod a;\nmod b;"),
        ("world/a.rs", "use super::b::Second;\npub struct First;"),
        ("world/b.rs", "use super::a::First;\npub struct Second;"),
    ]);
    assert_eq!(circles(&sources, &[("world", &["a.rs", "b.rs"], "why")]), []);
    let found = circles(&sources, &[("world", &["a.rs", "b.rs"], "why"), ("view", &["a.rs", "b.rs"], "why")]);
    assert_eq!(found, [Finding::of_file("src/view", "a.rs, b.rs", STALE)]);
}
