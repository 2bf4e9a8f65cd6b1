//! The patches that `make mutants` applies to a copy of the tree: each removes one rule from the program.
//!
//! To show that a missing rule is noticed takes hours. This test shows that the patches still apply.

use std::path::{Path, PathBuf};
use std::process::Command;

fn patches() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutants");
    let patches = folder.read_dir().expect("the folder is there");
    patches.map(|entry| entry.expect("it can be read").path()).collect()
}

#[test]
fn every_patch_that_takes_a_rule_out_still_applies() {
    let patches = patches();
    assert!(patches.len() > 15, "{patches:?}");
    // This one is noticed by packets alone (CONTRIBUTING.md).
    let of_datapath = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/datapath/late-pod-cidrs.patch");
    for patch in patches.into_iter().chain([of_datapath]) {
        let mut apply = Command::new("git");
        apply.args(["apply", "--check"]).arg(&patch).current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = apply.output().expect("git is installed");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} does not apply: {why}", patch.display());
    }
}

/// `scripts/mutants` reads the rule and the number of seeds there.
#[test]
fn every_patch_says_which_rule_it_takes_out_of_the_program_and_within_how_many_seeds_that_is_found() {
    for patch in patches() {
        let name = patch.display();
        let text = std::fs::read_to_string(&patch).expect("it can be read");
        let (rule, _) = text.split_once('\n').expect("it has lines");
        assert!(rule.ends_with('.'), "{name} begins with {rule:?}");
        let n_seeds = text.lines().find_map(|line| line.strip_prefix("Seeds: ")?.parse::<u64>().ok());
        assert!(n_seeds.is_some_and(|n_seeds| n_seeds > 0), "{name} says no number of seeds");
        let mut changed = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        assert!(changed.all(|file| file.starts_with("src/")), "{name} changes more than the program");
    }
}
