//! The table of claims covers every state, and makes exactly the moves that are allowed.

use std::collections::BTreeSet;

use super::*;
use crate::model::transitions::Move;
use crate::plan::claims::{ROWS, Then};

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
