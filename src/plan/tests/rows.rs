//! The table of claims: it covers every state, makes exactly the moves that are allowed, and is the one of the document.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::model::transitions::{Move, Rule};
use crate::plan::claims::{ROWS, Then};

thread_local! {
    /// The rows that the plans of this thread have applied.
    pub(super) static REACHED: RefCell<BTreeSet<Rule>> = const { RefCell::new(BTreeSet::new()) };
}

/// The move of a row from one of its states; `None` if the claim stays.
fn made(from: State, then: Then) -> Option<Move> {
    let change = match then {
        Then::Stay => return None,
        Then::Hold | Then::HoldForItsNode => ClaimChange::Hold("n".into()),
        Then::Drain => ClaimChange::Drain("c".into()),
        Then::Release(reason) => ClaimChange::Release(reason),
        Then::Cool => ClaimChange::Cool,
        Then::Delete => ClaimChange::Delete,
    };
    Some(from.after(&change).unwrap_or_else(|| panic!("{from} allows no {change:?}")))
}

#[test]
fn the_rows_make_exactly_the_moves_of_the_table_of_states() {
    for from in State::ALL {
        let rows = ROWS.iter().filter(|row| row.from.contains(&from));
        let made: BTreeSet<Move> = rows.filter_map(|row| made(from, row.then)).collect();
        assert_eq!(made, from.moves().iter().copied().collect(), "from {from}");
    }
}

#[test]
fn each_rule_has_one_row() {
    let rules: Vec<Rule> = ROWS.iter().map(|row| row.rule).collect();
    assert_eq!(rules, Rule::ALL);
}

/// The other rows are reached by the simulation (`every_row_of_the_table_of_claims_is_reached`).
#[test]
fn the_rows_that_scripts_reach_too_rarely_have_a_test() {
    drain::steps::a_pod_that_the_agent_does_not_list_keeps_its_block();
    leaving::a_node_that_returns_is_served_though_its_cooling_claim_is_being_deleted();
    multi_pool::removal::a_refused_block_that_its_agent_releases_later_is_not_published_again();
    for rule in Rule::RARE {
        assert!(REACHED.with_borrow(|reached| reached.contains(&rule)), "{}", rule.as_str());
    }
}

/// `UPDATE_DOCS=1` writes the rows into the document.
#[test]
fn the_document_has_the_rows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/invariants.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let mut table = String::from("| from | when | to | row |\n|---|---|---|---|\n");
    for row in ROWS {
        let from: Vec<String> = row.from.iter().map(|state| format!("`{state}`")).collect();
        let to = match row.then {
            Then::Stay => "stays".to_owned(),
            Then::Hold | Then::HoldForItsNode => format!("`{}`", State::Held),
            Then::Drain => format!("`{}`", State::Draining),
            Then::Release(reason) => format!("`{}`", State::Releasing(reason)),
            Then::Cool => "`Cooling`, for the same reason".to_owned(),
            Then::Delete => "deleted".to_owned(),
        };
        writeln!(table, "| {} | {} | {to} | `{}` |", from.join(", "), row.when, row.rule.as_str())
            .expect("a text takes every line");
    }
    let (before, rest) = page.split_once("<!-- rows -->\n").expect("the page marks its rows");
    let (_, after) = rest.split_once("<!-- end of rows -->").expect("the page marks their end");
    let updated = format!("{before}<!-- rows -->\n{table}<!-- end of rows -->{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, updated).expect("the page can be written");
    } else {
        assert!(page == updated, "docs/invariants.md lacks these rows; UPDATE_DOCS=1 writes them:\n{table}");
    }
}
