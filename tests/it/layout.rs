//! The layout of the crate. Its rooms are floors, and the files of a room import each other in one direction. The code
//! that decides is pure, and facts of a single mode of Cilium are behind its seam.
//!
//! Reads the sources with `syn`. It needs no control plane.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use source::Sources;

mod circles;
mod purity;
mod reading;
mod rooms;
mod scope;
mod seam;
mod source;
mod tokens;

/// Code in a place where it does not belong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    file: String,
    line: usize,
    named: String,
    rule: String,
}

impl Finding {
    fn new(file: &str, line: usize, named: &str, rule: &str) -> Self {
        Self { file: file.to_owned(), line, named: named.to_owned(), rule: rule.to_owned() }
    }

    /// About a file or directory as a whole.
    fn of_file(file: &str, named: &str, rule: &str) -> Self {
        Self::new(file, 1, named, rule)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: `{}`: {}", self.file, self.line, self.named, self.rule)
    }
}

/// Fails with the findings, one per line.
fn assert_none(found: &[Finding]) {
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(shown.is_empty(), "\n{}", shown.join("\n"));
}

#[test]
fn the_rooms_are_those_of_the_table() {
    assert_none(&rooms::differences(Sources::of_this_crate()));
}

#[test]
fn a_room_names_only_the_rooms_below_it() {
    assert_none(&rooms::upward_names(Sources::of_this_crate()));
}

#[test]
fn the_files_of_a_room_import_each_other_in_one_direction() {
    assert_none(&circles::circles(Sources::of_this_crate(), &circles::ALLOWED));
}

#[test]
fn what_decides_is_pure() {
    assert_none(&purity::offences(Sources::of_this_crate()));
}

#[test]
fn words_of_one_mode_are_named_behind_the_seam() {
    assert_none(&seam::words_outside(Sources::of_this_crate()));
}

/// The judge asks the store and the agents, and never relies on the view of a process.
#[test]
fn the_judge_of_the_simulation_knows_no_world() {
    let simulation = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/simulation");
    let rules = fs::read_dir(simulation.join("rules")).expect("the folder is there");
    let mut judges: Vec<PathBuf> = rules.map(|entry| entry.expect("it can be read").path()).collect();
    judges.extend(["rules.rs", "cluster/taint.rs"].map(|file| simulation.join(file)));
    assert!(judges.len() > 3, "{judges:?}");
    for file in judges {
        let text = fs::read_to_string(&file).expect("it can be read");
        assert!(!text.contains("cilium_node_ipam::world"), "{} names the world", file.display());
    }
}
