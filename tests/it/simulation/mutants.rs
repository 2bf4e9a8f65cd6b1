//! `make mutants`: each rule of the program is switched off in turn, and random scripts have to notice; those of the modes
//! with one block for life once more by the scripts of each of these modes alone.
//!
//! The scripts are those of the usual tests, from seed 0 on. A rule that no script misses within its stated number of
//! seeds is not guarded by the simulation, and fails.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind, set_hook, take_hook};
use std::time::Instant;

use cilium_node_ipam::model::guard::Guard;
use cilium_node_ipam::publisher::static_mode::NodeField;

use super::cluster::{Cluster, Setting};
use super::mode::Mode;
use super::searches::{SEARCHES, failing_script, failure};

/// Within how many seeds of every search the absence of a rule is found: several times what it took when that was set,
/// so that a change of the scripts does not fail it by chance.
const fn within(guard: Guard) -> u64 {
    match guard {
        Guard::PatchUid => 10,
        Guard::LeftAlone
        | Guard::NodeUid
        | Guard::OneBlock
        | Guard::OneWritePerObject
        | Guard::PatchVersion
        | Guard::Presence
        | Guard::Untouched
        | Guard::WriteInterval => 50,
        Guard::Answer | Guard::Pause | Guard::Question => 100,
        Guard::Absence
        | Guard::Adoption
        | Guard::BothFamilies
        | Guard::Carried
        | Guard::Cooling
        | Guard::LostClaims
        | Guard::Overlap => 400,
        // Two claims have to overlap and be seen in different orders.
        Guard::Freshness | Guard::Shown => 1000,
    }
}

/// The rules whose absence is found in the modes in which a node has one block of each family, by the searches of each of
/// these modes alone.
const WITH_ONE_BLOCK: [Guard; 5] =
    [Guard::OneBlock, Guard::Untouched, Guard::BothFamilies, Guard::Adoption, Guard::LeftAlone];

/// Runs seeds until one fails with this rule off. Returns how many it took, and what was said.
///
/// A script that fails with no rule switched off says nothing of the rule; it goes to `unsound`, in words.
fn search_for(guard: Guard, mode: Option<Mode>, unsound: &mut BTreeSet<String>) -> Option<(u64, String)> {
    let searches = SEARCHES.iter().filter(|search| mode.is_none_or(|mode| search.mode == mode));
    let searches: Vec<_> = searches.map(|search| (search, search.scripts())).collect();
    for seed in 0..within(guard) {
        for (search, scripts) in &searches {
            let mutant = Setting { off: Some(guard), ..search.setting(seed) };
            let Some(script) = failing_script(&mutant, scripts, seed, 0) else { continue };
            let sound = search.setting(seed);
            if let Some(why) = failure(&sound, &script, &mut Cluster::new(sound.clone())) {
                let why = why.lines().next().unwrap_or_default();
                unsound.insert(format!("{}: seed {seed}: {why}", search.name));
                continue;
            }
            let why = failure(&mutant, &script, &mut Cluster::new(mutant.clone())).unwrap_or_default();
            let why = why.lines().next().unwrap_or_default();
            return Some((seed + 1, format!("{}: {why}", search.name)));
        }
    }
    None
}

#[test]
fn random_scripts_notice_each_rule_that_is_switched_off() {
    are_noticed(&Guard::ALL, None);
}

#[test]
fn scripts_of_cluster_pool_notice_its_rules() {
    are_noticed(&WITH_ONE_BLOCK, Some(Mode::ClusterPool));
}

#[test]
fn scripts_of_kubernetes_notice_its_rules() {
    are_noticed(&WITH_ONE_BLOCK, Some(Mode::Kubernetes(NodeField::Spec)));
}

fn are_noticed(guards: &[Guard], mode: Option<Mode>) {
    let only = std::env::var("SIM_MUTANT").ok();
    let is_chosen = |guard: &Guard| only.as_ref().is_none_or(|only| format!("{guard:?}") == *only);
    let of_mode = mode.map_or(String::new(), |mode| format!(" in {mode:?}"));
    let mut missed = Vec::new();
    let mut unsound = BTreeSet::new();
    for guard in guards.iter().copied().filter(is_chosen) {
        let started = Instant::now();
        // A panic is a failure like any other here, and thousands of them are no news.
        let hook = take_hook();
        set_hook(Box::new(|_| {}));
        let found = catch_unwind(AssertUnwindSafe(|| search_for(guard, mode, &mut unsound)));
        set_hook(hook);
        let found = found.unwrap_or_else(|panic| resume_unwind(panic));
        let seconds = started.elapsed().as_secs();
        let told = if let Some((n_seeds, why)) = found {
            format!("found after {n_seeds} seeds ({why})")
        } else {
            missed.push(guard);
            format!("NOT FOUND within {} seeds", within(guard))
        };
        // Past the harness, which keeps what a test prints until it ends.
        writeln!(std::io::stderr(), "{guard:?}{of_mode}: {told}, {seconds} s").expect("somebody reads it");
    }
    assert!(unsound.is_empty(), "scripts fail with no rule switched off: {unsound:#?}");
    assert!(missed.is_empty(), "no random script{of_mode} noticed that these rules were off: {missed:?}");
}
