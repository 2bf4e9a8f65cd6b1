//! Tests that the pages of `docs/reference`, the table of states in `docs/invariants.md`, and the alerts say what the program
//! says.
//!
//! Names, defaults and moves are compared in both directions, so that the documents and the code can't disagree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use regex::Regex;

use crate::cli::{Command, explain};
use crate::model::availability::Availability;
use crate::model::claim::Reason;
use crate::model::finding::FindingKind;
use crate::model::status::ConditionReason;
use crate::model::transitions::{Move, State};
use crate::plan;
use crate::telemetry::event_reason::EventReason;
use crate::telemetry::metrics::tests::{Described, described};
use crate::view::audit::catalog::Check;
use crate::view::block_event::{Cause, Step};

/// The alerts, as the chart renders them.
const ALERTS: &str = include_str!("../manifests/alerts.yaml");

/// The Grafana dashboard.
const DASHBOARD: &str = include_str!("../manifests/chart/cilium-node-ipam/files/dashboard.json");

/// The labels that Prometheus adds to the metrics of a replica.
const OF_SCRAPES: [&str; 4] = ["cluster", "namespace", "job", "instance"];

/// The rows of every table of a page whose first column is called `column`: the code in their first cell, and all
/// cells.
fn rows(page: &str, column: &str) -> BTreeMap<String, Vec<String>> {
    let mut is_wanted = false;
    let mut rows = BTreeMap::new();
    for line in page.lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else {
            continue;
        };
        let cells: Vec<String> = row.split(" | ").map(str::to_owned).collect();
        if let Some(name) = cells[0].strip_prefix('`').and_then(|cell| cell.strip_suffix('`')) {
            if is_wanted {
                assert!(rows.insert(name.to_owned(), cells.clone()).is_none(), "{name} has two rows");
            }
        } else {
            is_wanted = cells[0] == column;
        }
    }
    rows
}

/// Compares the names of a table with those of the program, and returns the table.
fn check<'a>(
    page: &str,
    column: &str,
    names: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, Vec<String>> {
    let rows = rows(page, column);
    let documented: BTreeSet<&str> = rows.keys().map(String::as_str).collect();
    assert_eq!(documented, names.collect::<BTreeSet<&str>>(), "left: {column}, right: the program");
    rows
}

/// The texts about the names of a kind, as `explain` has them.
fn entries(kind: &str) -> BTreeMap<&'static str, &'static str> {
    let entries: Vec<_> = explain::entries().into_iter().filter(|entry| entry.kind == kind).collect();
    let by_name: BTreeMap<_, _> = entries.iter().map(|entry| (entry.name, entry.text)).collect();
    assert_eq!(entries.len(), by_name.len(), "a name has two entries");
    assert!(by_name.values().all(|text| !text.is_empty()));
    by_name
}

/// Compares the names of a kind with those of the program, and returns the texts about them. Each has a remedy.
fn check_entries<'a>(
    kind: &str,
    names: impl Iterator<Item = &'a str>,
) -> BTreeMap<&'static str, &'static str> {
    let entries = entries(kind);
    let documented: BTreeSet<&str> = entries.keys().copied().collect();
    assert_eq!(documented, names.collect::<BTreeSet<&str>>(), "left: the page, right: the program");
    for (name, text) in &entries {
        assert!(text.contains("\nRemedy: "), "{name} has no remedy");
    }
    entries
}

/// The name of a flag and of its value, as a table of the document has it, and its default and environment.
fn described_flag(flag: &clap::Arg) -> (String, (String, String)) {
    let code = |text: &std::ffi::OsStr| format!("`{}`", text.to_str().unwrap());
    let mut name = format!("--{}", flag.get_long().unwrap());
    if flag.get_action().takes_values() {
        name = format!("{name} {}", flag.get_value_names().unwrap()[0]);
    }
    let default = flag.get_default_values().first().filter(|_| flag.get_action().takes_values());
    let default = default.map_or("none".to_owned(), |default| code(default));
    (name, (default, flag.get_env().map_or("none".to_owned(), code)))
}

#[test]
fn every_flag_of_the_controller_has_an_entry_with_its_default() {
    let command = Command::command();
    let run = command.find_subcommand("run").unwrap();
    let expected: BTreeMap<_, _> = run.get_arguments().map(described_flag).collect();
    let documented: BTreeMap<_, _> = rows(include_str!("../docs/reference/flags.md"), "flag of `run`")
        .into_iter()
        .map(|(name, cells)| (name, (cells[1].clone(), cells[2].clone())))
        .collect();
    assert_eq!(documented, expected, "left: the document, right: clap");
}

#[test]
fn every_condition_has_an_entry() {
    let documented = entries("condition of a pool");
    let expected: BTreeSet<&str> =
        ConditionReason::ALL.iter().map(|reason| reason.condition().as_str()).collect();
    assert_eq!(documented.keys().copied().collect::<BTreeSet<_>>(), expected);
    let reasons =
        check_entries("reason of a condition", ConditionReason::ALL.iter().map(|reason| reason.as_str()));
    for reason in ConditionReason::ALL {
        let (name, condition) = (reason.as_str(), reason.condition().as_str());
        let first = format!("`{condition}` is {}. ", if reason.holds() { "True" } else { "False" });
        assert!(reasons[name].starts_with(&first), "{name}: {first}");
    }
}

/// The page about the condition of Nodes has its reasons, each with the status.
#[test]
fn every_reason_of_the_node_condition_has_an_entry() {
    let page = include_str!("../docs/how-to/node-condition.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows: Vec<(&str, &str)> =
        rows.filter_map(|(reason, rest)| Some((reason, rest.split_once(" | ")?.0))).collect();
    assert_eq!(rows, Availability::ALL.map(|reason| (reason.as_str(), reason.status())));
}

#[test]
fn every_event_has_an_entry() {
    let events = check_entries("event", EventReason::all().map(EventReason::as_str));
    for reason in EventReason::all() {
        let first = format!("{:?} event on: ", reason.tone());
        assert!(events[reason.as_str()].starts_with(&first), "{}: {first}", reason.as_str());
    }
}

#[test]
fn every_finding_has_an_entry() {
    check_entries("finding", FindingKind::ALL.iter().map(|kind| kind.as_str()));
}

#[test]
fn every_step_and_reason_of_the_log_has_an_entry() {
    let page = include_str!("../docs/reference/log-lines.md");
    check(page, "step", Step::ALL.iter().map(|step| step.as_str()));
    check(page, "log reason", Cause::ALL.iter().map(|cause| cause.as_str()));
}

#[test]
fn every_metric_has_an_entry_with_its_type_labels_and_values() {
    let described = described();
    let page = include_str!("../docs/reference/metrics.md");
    let rows = check(page, "name", described.keys().map(String::as_str));
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
    for (name, label) in [
        ("cilium_node_ipam_writes_total", "kind"),
        ("cilium_node_ipam_serving", "reason"),
        ("cilium_node_ipam_pool_nodes_without_addresses", "reason"),
        ("cilium_node_ipam_blocks_granted_total", "reason"),
        ("cilium_node_ipam_blocks_returned_total", "reason"),
    ] {
        for value in described[name].labels[label].iter().filter(|value| !value.is_empty()) {
            assert!(rows[name][3].contains(&format!("`{value}`")), "{name}: {value}");
        }
    }
}

/// Checks that metrics, labels and values in an expression exist; how many metrics it names.
fn check_expression(described: &BTreeMap<String, Described>, expression: &str) -> usize {
    let metric = Regex::new(r"((?:cilium_node_ipam|process)_[a-z_]+)(?:\{([^}]*)\})?").unwrap();
    let matcher = Regex::new(r#"([a-z]+)!?=(~?)"([^"]*)""#).unwrap();
    let mut n_metrics = 0;
    for found in metric.captures_iter(expression) {
        n_metrics += 1;
        let Described { labels, .. } = metric_of(described, &found[1]);
        let matchers = found.get(2).map_or("", |matchers| matchers.as_str());
        for found in matcher.captures_iter(matchers) {
            let (label, values) = (&found[1], &found[3]);
            // A variable of the dashboard.
            if values.starts_with('$') {
                assert!(
                    labels.contains_key(label) || OF_SCRAPES.contains(&label),
                    "{}: no {label}",
                    &found[0]
                );
                continue;
            }
            for value in if found[2].is_empty() { vec![values] } else { values.split('|').collect() } {
                let known = labels.get(label).is_some_and(|known| known.contains(value));
                assert!(known, "{}: no {label} {value}", &found[0]);
            }
        }
    }
    n_metrics
}

/// The metric to which series of this name belong.
fn metric_of<'a>(described: &'a BTreeMap<String, Described>, series: &str) -> &'a Described {
    let of_histogram = ["_bucket", "_count"].iter().find_map(|suffix| series.strip_suffix(suffix));
    let histogram = of_histogram.and_then(|name| described.get(name));
    histogram
        .filter(|metric| metric.kind == "histogram")
        .or_else(|| described.get(series))
        .unwrap_or_else(|| panic!("no {series}"))
}

/// An alert on a name with a typing error never fires.
#[test]
fn alerts_use_metrics_labels_and_values_that_exist() {
    let n_metrics = check_expression(&described(), ALERTS);
    assert!(n_metrics > 20, "{n_metrics}");
}

/// A panel with a typing error stays empty.
#[test]
fn dashboard_uses_metrics_labels_and_values_that_exist() {
    let grouping = Regex::new(r"\bby \(([^)]*)\)").unwrap();
    let name = Regex::new(r"(?:cilium_node_ipam|process)_[a-z_]+").unwrap();
    let placeholder = Regex::new(r"\{\{([^}]*)\}\}").unwrap();
    let described = described();
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array());
    let mut n_metrics = 0;
    for target in targets.flatten() {
        let (expression, legend) =
            (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
        n_metrics += check_expression(&described, expression);
        let mut labels: BTreeSet<&str> = OF_SCRAPES.into();
        for found in name.find_iter(expression) {
            labels.extend(metric_of(&described, found.as_str()).labels.keys().map(String::as_str));
        }
        // The first group is the outermost one, whose labels the result has.
        let groups: Vec<Vec<&str>> = grouping
            .captures_iter(expression)
            .map(|found| found.extract::<1>().1[0].split(", ").collect())
            .collect();
        for label in groups.iter().flatten().filter(|label| **label != "le") {
            assert!(labels.contains(label), "{expression}: no {label}");
        }
        let result = groups.first().map_or(labels, |group| group.iter().copied().collect());
        for found in placeholder.captures_iter(legend) {
            assert!(result.contains(&found[1]), "{expression}: the result has no {}", &found[1]);
        }
    }
    assert!(n_metrics > 40, "{n_metrics}");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let query = Regex::new(r"^label_values\((.*), ([a-z]+)\)$").unwrap();
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        let found = query.captures(variable["query"].as_str().unwrap()).unwrap();
        assert_eq!(check_expression(&described, &found[1]), 1);
        let metric = metric_of(&described, name.find(&found[1]).unwrap().as_str());
        assert!(metric.labels.contains_key(&found[2]) || OF_SCRAPES.contains(&&found[2]), "{}", &found[0]);
    }
}

#[test]
fn each_finding_has_the_check_and_the_alert_of_its_table() {
    let selector = Regex::new(r#"cilium_node_ipam_findings\{kind=~?"([^"]*)"\}"#).unwrap();
    let mut alerted = BTreeSet::new();
    for rule in ALERTS.split("- alert: CiliumNodeIPAM").skip(1) {
        let alert = rule.lines().next().unwrap();
        for found in selector.captures_iter(rule) {
            alerted.extend(found.get(1).unwrap().as_str().split('|').map(|kind| (kind, alert)));
        }
    }
    let of_table = FindingKind::ALL.iter().filter_map(|kind| Some((kind.as_str(), kind.alert()?)));
    assert_eq!(alerted, of_table.collect(), "left: the alerts, right: the table of findings");
    for kind in FindingKind::ALL {
        assert_eq!(Check::of(kind).id(), kind.check_id());
    }
}

/// Each id has a section, so that the link in the output leads to it.
#[test]
fn every_check_has_a_section_with_its_severity_title_and_remedy() {
    let sections = entries("id of check");
    let ids: BTreeSet<&str> = Check::ALL.iter().map(|check| check.id()).collect();
    assert_eq!(sections.keys().copied().collect::<BTreeSet<&str>>(), ids, "left: the page");
    for check in Check::ALL {
        let section = format!("{}\n", sections[check.id()]);
        let first = format!("`{}`: {}\n", check.severity().as_str(), check.title());
        assert!(section.starts_with(&first), "{}: {first}", check.id());
        let remedy = format!("\nRemedy: {}\n", check.remedy());
        assert!(section.contains(&remedy), "{}: {remedy}", check.id());
    }
}

/// The reasons of all moves from one state to another: those of the state before, and those that the move adds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reasons {
    before: BTreeSet<String>,
    after: BTreeSet<String>,
}

type Moves = BTreeMap<(String, String), Reasons>;

/// The texts between backticks.
fn code(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// The moves of the table `| state | on the CiliumNode | goes to | when |` in `docs/invariants.md`. Each row goes to
/// states in backticks, perhaps with `/` and a reason, or is a deletion. The last cell names the reasons before.
fn documented_moves() -> Moves {
    let is_reason = |name: &String| {
        [Reason::Reclaimed, Reason::NodeGone, Reason::Unused].iter().any(|reason| reason.as_str() == name)
    };
    let text = include_str!("../docs/invariants.md");
    let table =
        text.lines().skip_while(|line| !line.starts_with("| state | on the CiliumNode | goes to | when"));
    let (mut from, mut moves) = (String::new(), Moves::new());
    for row in table.skip(2).map_while(|line| line.strip_prefix('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [state, _, goes_to, when, ""] = cells[..] else { panic!("not four cells: {row}") };
        if let Some(state) = code(state).next() {
            from = state;
        }
        for target in goes_to.split(", ") {
            let mut names = code(target);
            let to = names.next().unwrap_or_else(|| target.to_owned());
            let reasons = moves.entry((from.clone(), to)).or_default();
            reasons.after.extend(names.filter(is_reason));
            reasons.before.extend(code(when).filter(is_reason));
        }
    }
    moves
}

/// A move that the document gives no reason for is made with any reason.
#[test]
fn the_table_of_states_is_that_of_the_program() {
    let mut made = Moves::new();
    for from in State::ALL {
        for target in from.moves() {
            let (to, after) = match target {
                Move::To(to) => (to.name(), to.reason()),
                Move::Delete => ("deleted", None),
            };
            let reasons = made.entry((from.name().to_owned(), to.to_owned())).or_default();
            reasons.before.extend(from.reason().map(|reason| reason.to_string()));
            // A reason that the claim already had is not added by the move.
            reasons.after.extend(after.filter(|_| from.reason().is_none()).map(|reason| reason.to_string()));
        }
    }
    let documented = documented_moves();
    let names = |moves: &Moves| moves.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&documented), names(&made), "left: the document, right: the program");
    for (key, Reasons { before, after }) in &documented {
        assert!(before.is_empty() || *before == made[key].before, "{key:?} from {before:?}: {:?}", made[key]);
        assert!(after.is_empty() || *after == made[key].after, "{key:?} with {after:?}: {:?}", made[key]);
    }
}

/// The fields that k9s has for a plugin (`internal/config/json/schemas/plugins.json`). The first four are required.
const OF_K9S: [&str; 10] = [
    "shortCut",
    "description",
    "scopes",
    "command",
    "args",
    "background",
    "confirm",
    "dangerous",
    "override",
    "overwriteOutput",
];

/// The words of the command of this program that a plugin of k9s runs.
fn words_of(plugin: &serde_json::Value) -> Vec<String> {
    let args = plugin["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    if plugin["command"] == "kubectl-nodeipam" {
        return std::iter::once("kubectl-nodeipam").chain(args).map(ToOwned::to_owned).collect();
    }
    assert_eq!(plugin["command"], "sh");
    let script = args.skip_while(|arg| *arg == "-c").collect::<Vec<_>>().join(" ");
    let command = script.split('|').next().unwrap();
    command.split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect()
}

#[test]
fn plugins_of_k9s_have_its_fields_and_run_commands_that_exist() {
    let text = include_str!("../manifests/k9s/plugins.yaml");
    let file: serde_json::Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(file.as_object().unwrap().keys().collect::<Vec<_>>(), ["plugins"]);
    let mut keys = BTreeSet::new();
    for (name, plugin) in file["plugins"].as_object().unwrap() {
        for field in plugin.as_object().unwrap().keys() {
            assert!(OF_K9S.contains(&field.as_str()), "{name}: {field}");
        }
        assert!(OF_K9S[..4].iter().all(|field| plugin.get(*field).is_some()), "{name}");
        for scope in plugin["scopes"].as_array().unwrap() {
            let key = (scope.as_str().unwrap(), plugin["shortCut"].as_str().unwrap());
            assert!(keys.insert(key), "{name}: {key:?} is that of another plugin");
        }
        let words = words_of(plugin);
        // k9s sets variables, and a column has the name of an address.
        let words = words.iter().map(|word| if word.starts_with("$COL-") { "10.0.0.1" } else { word });
        Command::command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(keys.len() >= 6, "{keys:?}");
}

/// `UPDATE_DOCS=1` writes the rows into the document.
#[test]
fn the_document_has_the_rows_of_the_table_of_claims() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/invariants.md");
    let page = fs::read_to_string(&path).expect("the page is there");
    let mut table = String::from("| from | when | to | row |\n|---|---|---|---|\n");
    for [from, when, to, row] in plan::table() {
        writeln!(table, "| {from} | {when} | {to} | {row} |").expect("a text takes every line");
    }
    let (before, rest) = page.split_once("<!-- rows -->\n").expect("the page marks its rows");
    let (_, after) = rest.split_once("<!-- end of rows -->").expect("the page marks their end");
    let updated = format!("{before}<!-- rows -->\n{table}<!-- end of rows -->{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, updated).expect("the page can be written");
    } else {
        assert!(page == updated, "docs/invariants.md lacks these rows; UPDATE_DOCS=1 writes them:\n{table}");
    }
}
