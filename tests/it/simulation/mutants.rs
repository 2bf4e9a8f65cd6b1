//! `make mutants`: one rule is missing in the program, and random scripts must notice.
//!
//! `scripts/mutants` removes the rule from a copy of the tree (`tests/mutants`), and builds the test below there. It
//! also runs the script that noticed on the program with all its rules. The scripts are those of *Promises*, from seed
//! 0.

use std::io::Write as _;
use std::panic::{set_hook, take_hook};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cluster::Cluster;
use super::promises::PROMISES;
use super::searches::{Search, failing_script, failure, number};

/// A failure: its place in the order of all runs, the search, the seed, and the message.
type Found = (usize, &'static str, u64, String);

/// Prints the first search and seed that fail, in the line `found:`. `SIM_SEARCHES` selects searches by the start of
/// their names.
#[test]
#[ignore = "fails where no rule is missing; scripts/mutants runs it"]
fn a_missing_rule_is_noticed() {
    let n_seeds = number("SIM_CASES").expect("SIM_CASES says within how many seeds");
    let begin = std::env::var("SIM_SEARCHES").unwrap_or_default();
    let searches: Vec<&Search> = PROMISES.iter().filter(|search| search.name.starts_with(&begin)).collect();
    assert!(!searches.is_empty(), "no search begins with {begin}");
    let n_runs = usize::try_from(n_seeds).expect("a few hundred") * searches.len();

    // A panic is a failure like any other here, and thousands of them are no news.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let (next, found) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || {
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= n_runs || found.lock().expect("no thread panics with it").is_some() {
                return;
            }
            let (search, seed) = (searches[run % searches.len()], (run / searches.len()) as u64);
            if let Some(why) = noticed(search, seed) {
                let mut found = found.lock().expect("no thread panics with it");
                let earlier = found.take().filter(|(other, ..): &Found| *other < run);
                *found = earlier.or(Some((run, search.name, seed, why)));
            }
        }
    };
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..n_threads).for_each(|_| drop(scope.spawn(work))));
    set_hook(hook);

    let found = found.into_inner().expect("no thread panicked");
    let (_, name, seed, why) = found.expect("a search that fails");
    // Written past the harness, which keeps the output of a test that passes.
    writeln!(std::io::stderr(), "found: promises::{name} {seed} {why}").expect("somebody reads it");
}

/// The failure of the script of a seed, in one line.
fn noticed(search: &Search, seed: u64) -> Option<String> {
    let setting = search.setting(seed);
    let script = failing_script(&setting, &search.scripts(), seed, 0)?;
    let why = failure(&script, &mut Cluster::new(setting)).unwrap_or_default();
    Some(why.lines().next().unwrap_or_default().to_owned())
}
