//! The writes that fail, as the leader notes them on its Lease, for commands that look once.
//!
//! A text that can't be read is no note: another version of the program may have written it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::model::failure::Failure;

/// The annotation of the Lease.
pub const FAILING_WRITES: &str = "nodeipam.io/failing-writes";

/// How many nodes, and how many pools, are named for one failure. A Lease is written every few seconds.
const MAX_NAMES: usize = 10;

/// How many failures are noted.
const MAX_FAILURES: usize = 10;

/// How many characters of the server's words are noted.
const MAX_WORDS: usize = 500;

#[derive(Serialize, Deserialize)]
struct Note {
    since: String,
    action: String,
    words: String,
    #[serde(default)]
    nodes: Vec<String>,
    #[serde(default)]
    pools: Vec<String>,
    #[serde(default, rename = "nodeCount")]
    n_nodes: usize,
}

/// The text of the annotation; `None` if no write fails.
#[must_use]
pub fn noted(failures: &[Failure]) -> Option<String> {
    fn names<N: ToString>(names: &BTreeSet<N>) -> Vec<String> {
        names.iter().take(MAX_NAMES).map(ToString::to_string).collect()
    }
    let note = |failure: &Failure| Note {
        since: failure.since.to_string(),
        action: failure.action.clone(),
        words: failure.words.chars().take(MAX_WORDS).collect(),
        nodes: names(&failure.nodes),
        pools: names(&failure.pools),
        n_nodes: failure.n_nodes,
    };
    let notes: Vec<Note> = failures.iter().take(MAX_FAILURES).map(note).collect();
    (!notes.is_empty()).then(|| serde_json::to_string(&notes).unwrap_or_default())
}

/// The failures in the text of an annotation.
#[must_use]
pub fn read(text: &str) -> Vec<Failure> {
    let notes: Vec<Note> = serde_json::from_str(text).unwrap_or_default();
    let failures = notes.into_iter().filter_map(|note| {
        Some(Failure {
            since: note.since.parse().ok()?,
            action: note.action,
            words: note.words,
            nodes: note.nodes.iter().map(|name| name.as_str().into()).collect(),
            pools: note.pools.iter().map(|name| name.as_str().into()).collect(),
            n_nodes: note.n_nodes,
        })
    });
    failures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_with_the_first_names() {
        let nodes = (0..20).map(|number| format!("n{number:02}").as_str().into()).collect();
        let failure = Failure {
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
            action: "create NodeIPBlock".to_owned(),
            words: "no".to_owned(),
            nodes,
            pools: BTreeSet::from(["p".into()]),
            n_nodes: 20,
        };
        let first = failure.nodes.iter().take(MAX_NAMES).cloned().collect();
        let text = noted(std::slice::from_ref(&failure)).unwrap();
        assert_eq!(read(&text), [Failure { nodes: first, ..failure }]);
        assert_eq!((noted(&[]), read("[]"), read("odd")), (None, Vec::new(), Vec::new()));
    }
}
