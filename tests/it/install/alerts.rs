//! The alerts agree with their values, their pages and their tests. `src/docs.rs` compares them with the metrics, and
//! `make test-alerts` evaluates them. Needs neither Helm nor Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

const CHART: &str = "manifests/chart/cilium-node-ipam";
const PREFIX: &str = "CiliumNodeIPAM";

fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&source(name)).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The names of the fields of an object.
fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The rules that are rendered with the default values.
fn rules() -> Vec<Value> {
    yaml("manifests/alerts.yaml")["groups"][0]["rules"].as_array().unwrap().clone()
}

#[test]
fn every_alert_has_values_and_a_schema() {
    let (alerts, values) =
        (yaml(&format!("{CHART}/files/alerts.yaml")), yaml(&format!("{CHART}/values.yaml")));
    let schema = yaml(&format!("{CHART}/values.schema.json"));
    let values = &values["prometheusRule"]["alerts"];
    assert_eq!(keys(&alerts), keys(values));
    let schema = &schema["properties"]["prometheusRule"]["properties"]["alerts"]["properties"];
    assert_eq!(keys(values), keys(schema));
    for (name, alert) in alerts.as_object().unwrap() {
        let has_threshold = !values[name]["threshold"].is_null();
        assert_eq!(text(&alert["expr"]).contains("THRESHOLD"), has_threshold, "{name}");
        let definition = if has_threshold { "alertWithThreshold" } else { "alert" };
        assert_eq!(schema[name]["$ref"], format!("#/definitions/{definition}"), "{name}");
    }
    let rendered: BTreeSet<String> = rules().iter().map(|rule| text(&rule["alert"]).to_owned()).collect();
    assert_eq!(rendered, keys(&alerts).into_iter().map(|name| format!("{PREFIX}{name}")).collect());
}

#[test]
fn every_alert_says_what_an_alert_has_to_say() {
    for rule in rules() {
        let name = text(&rule["alert"]);
        for annotation in ["summary", "description"] {
            let words = text(&rule["annotations"][annotation]);
            assert!(words.ends_with('.') && words.len() > 20, "{name}: {annotation}: {words}");
            assert!(!words.contains("THRESHOLD") && !words.contains("DURATION"), "{name}: {words}");
        }
        // A replica by itself, or an installation: its labels stay apart.
        let expression = text(&rule["expr"]);
        let aggregates = expression.contains(" by (cluster, namespace, job");
        let is_whole =
            ["cilium_node_ipam_ready ==", "cilium_node_ipam_watch_lapse_seconds >", "absent(", "changes("]
                .iter()
                .any(|whole| expression.starts_with(whole));
        assert!(aggregates || is_whole, "{name}: {expression}");
    }
}

#[test]
fn every_alert_has_a_page_and_a_row() {
    let pages = yaml(&format!("{CHART}/files/alerts.yaml"));
    let mut rows = String::new();
    for rule in rules() {
        let (name, annotations) = (text(&rule["alert"]), &rule["annotations"]);
        let short = name.strip_prefix(PREFIX).unwrap();
        assert_eq!(text(&annotations["runbook"]), format!("cilium-node-ipam explain {short}"));
        let page = format!("{}.md", text(&pages[short]["page"]));
        let document = source(&format!("docs/how-to/{page}"));
        assert!(document.contains(&format!("`{name}`")), "{page} does not name {name}");
        for section in ["## Meaning", "## Look at", "## Remedy"] {
            assert!(document.contains(&format!("\n{section}\n")), "{page} has no {section}");
        }
        let title = document.lines().next().unwrap().strip_prefix("# ").unwrap();
        let (severity, duration) = (text(&rule["labels"]["severity"]), text(&rule["for"]));
        writeln!(rows, "| `{name}` | {severity} | {duration} | [{title}]({page}) |").unwrap();
    }
    let table = format!("| alert | severity | for | page |\n|---|---|---|---|\n{rows}\n");
    assert!(
        source("docs/how-to/alerts.md").contains(&table),
        "docs/how-to/alerts.md needs this table:\n\n{table}"
    );
}

/// Each alert is evaluated at three times at least: before, while and after its cause is there.
#[test]
fn every_alert_is_seen_silent_firing_and_resolved() {
    let tests = yaml("tests/prometheus/alerts.test.yaml");
    let mut seen = BTreeMap::<String, String>::new();
    for test in tests["tests"].as_array().unwrap() {
        for case in test["alert_rule_test"].as_array().unwrap() {
            let name = text(&case["alertname"]);
            assert_eq!(name.strip_prefix(PREFIX), test["name"].as_str());
            let fires = case["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty());
            seen.entry(name.to_owned()).or_default().push(if fires { '!' } else { '.' });
        }
    }
    let names: BTreeSet<String> = rules().iter().map(|rule| text(&rule["alert"]).to_owned()).collect();
    assert_eq!(seen.keys().cloned().collect::<BTreeSet<_>>(), names);
    for (name, order) in seen {
        assert!(order.contains(".!") && order.contains("!."), "{name}: {order}");
    }
}
