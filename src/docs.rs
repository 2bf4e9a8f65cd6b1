//! A test: `docs/operations.md` says what the program says. Names and defaults are compared in both directions, so
//! neither can go stale (trap 25: documents and code that disagree on defaults).

use std::collections::{BTreeMap, BTreeSet};

use clap::CommandFactory as _;

use crate::cli::Command;
use crate::model::finding::FindingKind;
use crate::model::status::ConditionReason;
use crate::telemetry::event_reason::EventReason;
use crate::telemetry::metrics::tests::{Described, described};
use crate::view::block_event::{Cause, Step};

/// The rows of every table under `## {heading}` whose first column is called `column`: the code in their first cell,
/// and all cells.
fn rows(heading: &str, column: &str) -> BTreeMap<String, Vec<String>> {
    let text = include_str!("../docs/operations.md");
    let section = text.split("\n## ").find(|section| section.lines().next() == Some(heading)).unwrap();
    let mut is_wanted = false;
    let mut rows = BTreeMap::new();
    for line in section.lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else {
            continue;
        };
        let cells: Vec<String> = row.split(" | ").map(str::to_owned).collect();
        if let Some(name) = cells[0].strip_prefix('`').and_then(|cell| cell.strip_suffix('`')) {
            if is_wanted {
                assert!(rows.insert(name.to_owned(), cells.clone()).is_none(), "{name} stands twice");
            }
        } else {
            is_wanted = cells[0] == column;
        }
    }
    rows
}

/// Compares the names of a table with those of the program, and returns the table.
fn check<'a>(
    heading: &str,
    column: &str,
    names: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, Vec<String>> {
    let rows = rows(heading, column);
    let documented: BTreeSet<&str> = rows.keys().map(String::as_str).collect();
    assert_eq!(documented, names.collect::<BTreeSet<&str>>(), "left: {heading}, right: the program");
    rows
}

/// The name of a flag and of its value, as a table of the document has it, and its default and environment.
fn described_flag(flag: &clap::Arg) -> (String, (String, String)) {
    let code = |text: &std::ffi::OsStr| format!("`{}`", text.to_str().unwrap());
    let mut name = format!("--{}", flag.get_long().unwrap());
    if let Some(short) = flag.get_short() {
        name = format!("-{short}, {name}");
    }
    if flag.get_action().takes_values() {
        // A bar would end the cell.
        name = format!("{name} {}", flag.get_value_names().unwrap()[0].replace('|', "\\|"));
    }
    let default = flag.get_default_values().first().filter(|_| flag.get_action().takes_values());
    let otherwise = if flag.is_required_set() { "required" } else { "none" };
    let default = default.map_or(otherwise.to_owned(), |default| code(default));
    (name, (default, flag.get_env().map_or("none".to_owned(), code)))
}

#[test]
fn every_flag_has_an_entry_with_its_default() {
    for subcommand in Command::command().get_subcommands() {
        let column = format!("flag of `{}`", subcommand.get_name());
        let expected: BTreeMap<String, (String, String)> =
            subcommand.get_arguments().map(described_flag).collect();
        let documented: BTreeMap<String, (String, String)> = rows("Flags", &column)
            .into_iter()
            .map(|(name, cells)| (name, (cells[1].clone(), cells[2].clone())))
            .collect();
        assert_eq!(documented, expected, "{column}; left: the document, right: clap");
    }
}

#[test]
fn every_condition_has_an_entry() {
    let rows = check("Conditions", "reason", ConditionReason::ALL.iter().map(|reason| reason.as_str()));
    for reason in ConditionReason::ALL {
        let cells = &rows[reason.as_str()];
        assert_eq!(cells[1], format!("`{}`", reason.condition().as_str()));
        assert_eq!(cells[2], if reason.holds() { "True" } else { "False" }, "{}", reason.as_str());
    }
}

#[test]
fn every_event_has_an_entry() {
    let rows = check("Events", "reason", EventReason::ALL.iter().map(|reason| reason.as_str()));
    for reason in EventReason::ALL {
        assert_eq!(rows[reason.as_str()][2], reason.tone_name(), "{}", reason.as_str());
    }
}

#[test]
fn every_finding_has_an_entry() {
    check("Findings", "finding", FindingKind::ALL.iter().map(|kind| kind.as_str()));
}

#[test]
fn every_step_and_reason_of_the_log_has_an_entry() {
    check("Log lines", "step", Step::ALL.iter().map(|step| step.as_str()));
    check("Log lines", "log reason", Cause::ALL.iter().map(|cause| cause.as_str()));
}

#[test]
fn every_metric_has_an_entry_with_its_type_labels_and_values() {
    let described = described();
    let rows = check("Metrics", "name", described.keys().map(String::as_str));
    for (name, Described { kind, labels, .. }) in &described {
        let cells = &rows[name];
        assert_eq!(cells[1], *kind, "{name}");
        assert_eq!(cells.len(), 5, "{name} without what to do");
        let documented: BTreeSet<&str> = cells[2]
            .split(", ")
            .map(|label| label.trim_matches('`'))
            .filter(|label| *label != "none")
            .collect();
        assert_eq!(documented, labels.keys().map(String::as_str).collect(), "{name}");
        for (label, values) in
            labels.iter().filter(|(label, _)| ["state", "outcome"].contains(&label.as_str()))
        {
            for value in values {
                assert!(cells[3].contains(&format!("`{value}`")), "{name}: {label} {value} is not explained");
            }
        }
    }
    for value in &described["cilium_node_ipam_writes_total"].labels["kind"] {
        assert!(rows["cilium_node_ipam_writes_total"][3].contains(&format!("`{value}`")), "{value}");
    }
}
