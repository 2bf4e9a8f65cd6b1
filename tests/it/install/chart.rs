//! The facts about the chart agree: versions with the crate, values with their schema, and with their table in the
//! documents. Needs no Helm.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::docs::generated;

const CHART: &str = "manifests/chart/cilium-node-ipam";

/// Values of a parent chart, which this chart accepts and does not read.
const FOR_PARENTS: [&str; 2] = ["enabled", "global"];

/// Longer defaults are not in the table, which refers to the file instead.
const LONGEST_DEFAULT: usize = 50;

fn source(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

fn chart(name: &str) -> Value {
    serde_saphyr::from_str(&source(&format!("{CHART}/{name}"))).unwrap()
}

#[test]
fn chart_has_the_version_of_the_crate() {
    let chart = chart("Chart.yaml");
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
    let dependency = concat!("    version: ", env!("CARGO_PKG_VERSION"), "\n");
    assert!(source("docs/install.md").contains(dependency), "{dependency}");
    let image = concat!("registry.example.com/cilium-node-ipam:", env!("CARGO_PKG_VERSION"));
    for command in ["make image IMAGE=", "docker push "] {
        assert!(source("README.md").contains(&format!("\n{command}{image}\n")), "{command}");
    }
}

#[test]
fn every_value_is_in_the_schema_and_the_reverse() {
    let (values, schema) = (chart("values.yaml"), chart("values.schema.json"));
    let mut differences = Vec::new();
    compare("", &values, &schema, &mut differences);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Compares objects whose keys the schema names. Others, such as labels, have keys of the user's choice.
fn compare(path: &str, values: &Value, schema: &Value, differences: &mut Vec<String>) {
    let (Some(values), Some(properties)) = (values.as_object(), schema["properties"].as_object()) else {
        return;
    };
    if schema["additionalProperties"] != false {
        differences.push(format!("{path:?} accepts unknown keys"));
    }
    for key in values.keys().filter(|key| !properties.contains_key(*key)) {
        differences.push(format!("{path}{key} is not in the schema"));
    }
    for (key, schema) in properties {
        match values.get(key) {
            Some(value) => compare(&format!("{path}{key}."), value, schema, differences),
            // Parts of objects of Kubernetes have none either.
            None if FOR_PARENTS.contains(&key.as_str()) || ["resources.", "affinity."].contains(&path) => {}
            None => differences.push(format!("{path}{key} has no default")),
        }
    }
}

#[test]
fn table_of_values_is_what_the_values_are() {
    let expected = table(&source(&format!("{CHART}/values.yaml")));
    for page in ["docs/reference/values.md", "manifests/chart/cilium-node-ipam/README.md"] {
        generated::compare(page, "values", &expected);
    }
}

#[test]
fn schema_has_the_meaning_of_every_value() {
    let schema = chart("values.schema.json");
    for (name, _, words) in meanings(&source(&format!("{CHART}/values.yaml"))) {
        // The thresholds of all alerts have one schema.
        if name.ends_with(".threshold") {
            continue;
        }
        let path = format!("/properties/{}/description", name.replace('.', "/properties/"));
        assert_eq!(schema.pointer(&path), Some(&Value::from(words)), "{name}");
    }
}

/// A table of the values without a group, and one of each group: the values below one key.
fn table(source: &str) -> String {
    let mut groups: Vec<(String, String)> = Vec::new();
    for (name, value, words) in meanings(source) {
        let default = match value.to_string() {
            long if long.len() > LONGEST_DEFAULT => "see values.yaml".to_owned(),
            short => format!("`{short}`"),
        };
        let group = name.split_once('.').map_or("General", |(group, _)| group);
        let at = groups.iter().position(|(other, _)| other == group).unwrap_or_else(|| {
            groups.push((group.to_owned(), String::new()));
            groups.len() - 1
        });
        let _ = writeln!(groups[at].1, "| `{name}` | {default} | {words} |");
    }
    groups.sort_by_key(|(group, _)| group != "General");
    let tables = groups
        .into_iter()
        .map(|(group, rows)| format!("### {group}\n\n| value | default | meaning |\n|---|---|---|\n{rows}"));
    tables.collect::<Vec<_>>().join("\n")
}

/// The name, the default and the meaning of each value, from the comments directly above their keys.
fn meanings(source: &str) -> Vec<(String, Value, String)> {
    let values: Value = serde_saphyr::from_str(source).unwrap();
    let mut meanings = Vec::new();
    let (mut path, mut comment, mut seen) = (Vec::<(usize, String)>::new(), None, BTreeSet::new());
    for line in source.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(words) = text.strip_prefix("# ") {
            comment = Some(words.to_owned());
            continue;
        }
        let comment = comment.take();
        let Some((key, _)) = text.split_once(':').filter(|_| !text.starts_with("- ")) else { continue };
        path.retain(|(depth, _)| *depth < indent);
        path.push((indent, key.to_owned()));
        let names: Vec<&str> = path.iter().map(|(_, name)| name.as_str()).collect();
        let Some(value) = values.pointer(&format!("/{}", names.join("/"))) else { continue };
        let name = names.join(".");
        if let Some(words) = comment {
            seen.insert(name.clone());
            meanings.push((name, value.clone(), words));
        } else if !value.is_object() {
            let is_reported = (1..names.len()).any(|depth| seen.contains(&names[..depth].join(".")));
            assert!(is_reported, "{name} has no comment");
        }
    }
    meanings
}

#[test]
fn table_is_read_from_comments() {
    let values = "# Head.\n\na:\n  # One.\n  b: 1\n# Two.\nc:\n  d: [x]\n";
    assert_eq!(
        table(values),
        "### General\n\n| value | default | meaning |\n|---|---|---|\n| `c` | `{\"d\":[\"x\"]}` | Two. |\n\n\
         ### a\n\n| value | default | meaning |\n|---|---|---|\n| `a.b` | `1` | One. |\n"
    );
}
