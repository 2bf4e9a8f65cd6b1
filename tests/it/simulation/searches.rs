//! How searches run: a cluster, random scripts from consecutive seeds, and the shortest script that fails.
//!
//! Each search is of one suite (`promises`, `other_writers`). `make check` runs a few seeds of each, and `make soak`
//! thousands. `make mutants` runs those of *Promises* until one notices that a rule is missing.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cilium_node_ipam::model::transitions::Rule;
use cilium_node_ipam::net::cidr::Family;
use cilium_node_ipam::publisher::static_mode::NodeField;
use proptest::strategy::{BoxedStrategy, Strategy};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use super::cluster::{Cluster, Pace, Setting, Step, Suite};
use super::mode::{Mode, Modes};
use super::other_writers::OTHER_WRITERS;
use super::promises::PROMISES;
use super::replica::RULES;
use super::script::{Events, Moving, script};

/// The number of seeds between two lines of a long search.
const PROGRESS: u64 = 500;

/// The families of a search.
pub(super) const V4: &[Family] = &[Family::V4];
pub(super) const BOTH: &[Family] = &Family::ALL;
/// [`Search::setting`] gives some seeds the other field.
pub(super) const KUBERNETES: Mode = Mode::Kubernetes(NodeField::Spec);

/// One search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    /// The test that runs it.
    pub(super) name: &'static str,
    pub(super) suite: Suite,
    pub(super) mode: Mode,
    /// The mode of some nodes, if it is another one.
    pub(super) beside: Option<Mode>,
    pub(super) n_replicas: usize,
    pub(super) families: &'static [Family],
    pub(super) events: Events,
    /// The length of its scripts: half of their maximum number of pieces.
    pub(super) length: usize,
    /// How many seeds `make check` runs.
    pub(super) n_cases: u64,
}

/// A search of *Promises* with one replica that nothing disturbs.
pub(super) const fn calm(name: &'static str, mode: Mode, families: &'static [Family]) -> Search {
    Search { events: Events::Calm, length: 60, ..wild(name, mode, 1, families) }
}

/// A search of *Promises*.
pub(super) const fn wild(
    name: &'static str,
    mode: Mode,
    n_replicas: usize,
    families: &'static [Family],
) -> Search {
    let (suite, events, length) = (Suite::Promises, Events::Wild, 200 + 100 * n_replicas);
    Search { name, suite, mode, beside: None, n_replicas, families, events, length, n_cases: 20 }
}

/// A search of *Promises* in which claims come to overlap.
pub(super) const fn forced(
    name: &'static str,
    mode: Mode,
    n_replicas: usize,
    families: &'static [Family],
) -> Search {
    Search { events: Events::Forced, length: 400, ..wild(name, mode, n_replicas, families) }
}

/// The same search, in a cluster whose nodes have two modes and change them.
pub(super) const fn mixed(search: Search, beside: Mode) -> Search {
    Search { beside: Some(beside), ..search }
}

/// A number from the environment.
pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A sound cluster in crd mode.
pub(super) fn setting(suite: Suite, n_replicas: usize, pace: Pace, families: &[Family]) -> Setting {
    let families: BTreeSet<Family> = families.iter().copied().collect();
    Setting { modes: Mode::Crd.into(), n_replicas, families, pace, defect: None, suite }
}

impl Search {
    /// The cluster of a seed. In kubernetes mode every third has its blocks in annotations, unless nodes have several
    /// modes. Then every second has the mode of the others in `cilium-config`.
    pub(super) fn setting(&self, seed: u64) -> Setting {
        let modes = match (self.mode, self.beside) {
            (Mode::Kubernetes(_), None) if seed % 3 == 2 => Mode::Kubernetes(NodeField::Annotations).into(),
            (mode, Some(beside)) if seed % 2 == 1 => Modes { of_all: beside, of_labelled: Some(mode) },
            (of_all, of_labelled) => Modes { of_all, of_labelled },
        };
        let pace = if self.events == Events::Calm { Pace::Calm } else { Pace::Wild };
        Setting { modes, ..setting(self.suite, self.n_replicas, pace, self.families) }
    }

    pub(super) fn scripts(&self) -> BoxedStrategy<Vec<Step>> {
        let moving = if self.beside.is_some() { Moving::Nodes } else { Moving::Nothing };
        script(self.events, self.suite, moving, self.length).boxed()
    }

    /// Runs the search called `name`, and panics with the failure that it finds.
    pub(super) fn hold(name: &str) {
        let mut searches = PROMISES.iter().chain(&OTHER_WRITERS);
        let search = searches.find(|search| search.name == name).expect("each test has a search");
        let n_cases = number("SIM_CASES").unwrap_or(search.n_cases);
        let failure = first_failure(name, |seed| search.setting(seed), &search.scripts(), n_cases, 3000);
        assert!(failure.is_none(), "{}", failure.unwrap_or_default());
    }
}

/// Runs scripts from consecutive seeds. Returns the first failure as text, with the shortest script that has it.
pub(super) fn first_failure(
    name: &str,
    setting_of: impl Fn(u64) -> Setting,
    scripts: &BoxedStrategy<Vec<Step>>,
    n_cases: u64,
    max_shrink_iters: u32,
) -> Option<String> {
    let first = number("SIM_SEED").unwrap_or(0);
    for seed in first..first + n_cases {
        let setting = setting_of(seed);
        if let Some(script) = failing_script(&setting, scripts, seed, max_shrink_iters) {
            return Some(reported(&setting, seed, &script));
        }
        let n_done = seed - first + 1;
        if n_done.is_multiple_of(PROGRESS) {
            // Written past the harness, which keeps the output of a running test.
            let _ = writeln!(std::io::stderr(), "{name}: {n_done} of {n_cases} seeds");
        }
    }
    None
}

/// The script of a seed if it fails, made as short as `max_shrink_iters` tries allow. Each shorter script fails in the
/// same way, because another failure is another finding.
pub(super) fn failing_script(
    setting: &Setting,
    scripts: &BoxedStrategy<Vec<Step>>,
    seed: u64,
    max_shrink_iters: u32,
) -> Option<Vec<Step>> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config {
        cases: 1,
        failure_persistence: None,
        max_shrink_iters,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let first = RefCell::new(None);
    let result = runner.run(scripts, |script| {
        let Some(why) = failure(&script, &mut Cluster::new(setting.clone())) else { return Ok(()) };
        let kind = kind(&why);
        if first.borrow_mut().get_or_insert_with(|| kind.clone()) == &kind {
            Err(TestCaseError::fail(why))
        } else {
            Ok(())
        }
    });
    match result {
        Err(TestError::Fail(_, script)) => Some(script),
        Err(TestError::Abort(_)) | Ok(()) => None,
    }
}

/// A failure without its nodes, addresses and numbers.
fn kind(why: &str) -> String {
    let line = why.lines().next().unwrap_or_default();
    let words = line.split_whitespace().filter(|word| !word.contains(|letter: char| letter.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// The failure of a script; a panic is one too.
pub(super) fn failure(script: &[Step], cluster: &mut Cluster) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| run(script, cluster))) {
        Ok(Ok(())) => None,
        Ok(Err(why)) => Some(why),
        Err(panic) => {
            let why = panic.downcast_ref::<String>().cloned();
            Some(why.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
        }
    }
}

/// Runs a script, and then brings the cluster to rest. With one replica, the order of news is also judged.
fn run(script: &[Step], cluster: &mut Cluster) -> Result<(), String> {
    for step in script {
        cluster.step(step)?;
    }
    cluster.rest()?;
    if cluster.setting.n_replicas == 1 {
        cluster.any_order_decides_alike(&[3, 1, 0, 2, 2, 1])?;
    }
    Ok(())
}

/// Runs a failing script once more. Returns its events and its failure, for a person.
fn reported(setting: &Setting, seed: u64, script: &[Step]) -> String {
    let mut cluster = Cluster::new(setting.clone());
    cluster.trace = Some(Vec::new());
    let why = failure(script, &mut cluster).unwrap_or_default();
    let mut reported =
        format!("{why}\n\nSIM_SEED={seed} SIM_CASES=1; {setting:?}; {} steps:\n", script.len());
    for line in cluster.trace.unwrap_or_default() {
        let _ = writeln!(reported, "{line}");
    }
    let _ = write!(reported, "\n{why}");
    reported
}

/// The number of seeds of each search within which every row of the table of claims applies.
const SEEDS_FOR_ALL_ROWS: u64 = 40;

/// A row that no script reaches is dead, or not judged. The other searches judge the scripts, and the rows that scripts
/// reach too rarely have tests of their own (`Rule::RARE`).
#[test]
fn every_row_of_the_table_of_claims_is_reached() {
    let mut missing: BTreeSet<Rule> = Rule::ALL.into();
    missing.retain(|rule| !Rule::RARE.contains(rule));
    for seed in 0..SEEDS_FOR_ALL_ROWS {
        for search in PROMISES.iter().chain(&OTHER_WRITERS) {
            let _ = failing_script(&search.setting(seed), &search.scripts(), seed, 0);
            RULES.with_borrow(|reached| missing.retain(|rule| !reached.contains(rule)));
            if missing.is_empty() {
                return;
            }
        }
    }
    panic!("no script reaches {missing:?}");
}
