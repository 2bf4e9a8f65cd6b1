//! The Grafana dashboard can be read by a person, and works in every Grafana. `src/docs.rs` compares its queries with
//! the metrics, and `tests/it/install/queries.rs` runs them. Needs neither Helm nor Grafana.

mod picture;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

const DASHBOARD: &str = "manifests/chart/cilium-node-ipam/files/dashboard.json";
const RENDERED: &str = "tests/it/install/rendered/everything.yaml";

/// The width of a dashboard, in the units of Grafana.
const WIDTH: u64 = 24;

/// The most words of a sentence.
const MOST_WORDS: usize = 25;

fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn dashboard() -> Value {
    serde_json::from_str(&source(DASHBOARD)).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The panels that show something, so without the rows above them.
fn panels() -> Vec<Value> {
    let dashboard = dashboard();
    list(&dashboard["panels"]).iter().filter(|panel| panel["type"] != "row").cloned().collect()
}

/// The expressions of all panels, with the values of variables that Grafana would put there.
pub(super) fn expressions() -> Vec<String> {
    let values = [
        ("$__rate_interval", "5m"),
        ("$cluster", ""),
        ("$job", "cilium-node-ipam"),
        ("$pool", ".*"),
        ("$family", "ipv4"),
    ];
    let expression = |target: &Value| {
        let expression = text(&target["expr"]).to_owned();
        values.iter().fold(expression, |expression, (name, value)| expression.replace(name, value))
    };
    panels()
        .iter()
        .flat_map(|panel| list(&panel["targets"]).iter().map(expression).collect::<Vec<_>>())
        .collect()
}

#[test]
fn every_panel_has_a_title_words_and_a_unit() {
    let mut titles = BTreeSet::new();
    for panel in panels() {
        let title = text(&panel["title"]);
        assert!(titles.insert(title.to_owned()), "{title} is the title of two panels");
        let words = text(&panel["description"]);
        assert!(
            words.starts_with(|first: char| first.is_ascii_uppercase()) && words.ends_with('.'),
            "{title}: {words}"
        );
        for sentence in words.split(". ") {
            assert!(sentence.split(' ').count() <= MOST_WORDS, "{title}: {sentence}");
        }
        assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{title} has no unit");
        assert!(!list(&panel["targets"]).is_empty(), "{title} shows nothing");
    }
    assert!(titles.len() > 30, "{titles:?}");
}

/// A duration in seconds, and bytes, are shown in the unit that fits their size.
#[test]
fn units_are_those_of_the_metrics() {
    for panel in panels() {
        let unit = text(&panel["fieldConfig"]["defaults"]["unit"]);
        for target in list(&panel["targets"]) {
            let expression = text(&target["expr"]);
            let expected: &[&str] = if expression.starts_with("changes(") {
                &["short"]
            } else if expression.contains("_seconds") {
                &["s"]
            } else if expression.contains("_bytes") {
                &["bytes"]
            } else if expression.contains("rate(") {
                &["reqps", "wps", "eps", "cps"]
            } else if expression.contains(" / ") {
                &["percentunit"]
            } else {
                &["short", "none"]
            };
            assert!(expected.contains(&unit), "{}: {unit} is not one of {expected:?}", panel["title"]);
        }
    }
}

#[test]
fn every_query_uses_the_data_source_that_the_user_chooses() {
    let chosen = json!({"type": "prometheus", "uid": "${datasource}"});
    let dashboard = dashboard();
    let (first, others) = list(&dashboard["templating"]["list"]).split_first().unwrap();
    assert_eq!((&first["name"], &first["type"]), (&json!("datasource"), &json!("datasource")));
    for variable in others {
        assert_eq!(variable["datasource"], chosen, "{}", variable["name"]);
    }
    for panel in panels() {
        assert_eq!(panel["datasource"], chosen, "{}", panel["title"]);
        for target in list(&panel["targets"]) {
            assert_eq!(target["datasource"], chosen, "{}", panel["title"]);
        }
    }
}

/// A fixed one would overwrite a dashboard or point at a data source of another Grafana.
#[test]
fn nothing_has_a_fixed_id() {
    fn check(path: &str, value: &Value) {
        if let Some(object) = value.as_object() {
            for (key, value) in object {
                let path = format!("{path}.{key}");
                let is_free = match key.as_str() {
                    "uid" => value.is_null() || value == "${datasource}",
                    // The ids of matchers and of properties are names.
                    "id" => value.is_null() || value.is_string(),
                    "version" | "iteration" | "gnetId" => false,
                    _ => true,
                };
                assert!(is_free, "{path}: {value}");
                check(&path, value);
            }
        }
        value.as_array().into_iter().flatten().for_each(|value| check(path, value));
    }
    let dashboard = dashboard();
    assert!(dashboard["uid"].is_null() && dashboard["id"].is_null());
    check("", &dashboard);
}

/// One Prometheus may scrape several clusters, and other programs.
#[test]
fn every_selector_names_the_cluster_and_the_job() {
    let metric = regex::Regex::new(r"(?:cilium_node_ipam|process)_[a-z_]+(\{[^}]*\})?").unwrap();
    let mut n_selectors = 0;
    for panel in panels() {
        for target in list(&panel["targets"]) {
            for found in metric.captures_iter(text(&target["expr"])) {
                n_selectors += 1;
                let matchers = found.get(1).map_or("", |matchers| matchers.as_str());
                let expected = r#"{cluster="$cluster", job="$job""#;
                assert!(matchers.starts_with(expected), "{}: {}", panel["title"], &found[0]);
            }
        }
    }
    assert!(n_selectors > 40, "{n_selectors}");
}

#[test]
fn panels_do_not_overlap() {
    let mut taken = BTreeSet::new();
    for panel in list(&dashboard()["panels"]) {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= WIDTH && h > 0, "{}", panel["title"]);
        for (x, y) in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert((x, y)), "{} overlaps another panel at {x}, {y}", panel["title"]);
        }
    }
}

#[test]
fn the_config_map_has_the_dashboard_as_it_is() {
    let rendered = source(RENDERED);
    let document = rendered
        .split("\n---\n")
        .find(|document| document.contains("kind: ConfigMap") && document.contains("dashboard"))
        .unwrap();
    let config_map: Value = serde_saphyr::from_str(document).unwrap();
    let data = config_map["data"].as_object().unwrap();
    assert_eq!(data.len(), 1);
    let carried: Value = serde_json::from_str(text(&data["cilium-node-ipam.json"])).unwrap();
    assert_eq!(carried, dashboard());
    assert_eq!(config_map["metadata"]["namespace"], "monitoring");
    assert_eq!(config_map["metadata"]["labels"]["grafana_dashboard"], "network");
    assert_eq!(config_map["metadata"]["annotations"], json!({"grafana_folder": "Network"}));
}
