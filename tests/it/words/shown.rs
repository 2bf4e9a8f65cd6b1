//! Everything that a user may read: literals of the code, `--help`, descriptions in the CRDs, the notes of the chart,
//! and the alerts.

use std::fs;
use std::path::Path;
use std::process::Command;

use regex::Regex;

use super::{Text, root, sources};

/// The texts that the program or its chart can show.
pub(super) fn texts() -> Vec<Text> {
    let mut texts = sources::texts(root());
    texts.extend(helps());
    texts.extend(descriptions());
    texts.extend(annotations());
    let notes = "manifests/chart/cilium-node-ipam/templates/NOTES.txt";
    texts.push(Text { place: notes.to_owned(), text: read(notes) });
    texts
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The paragraphs of `--help` of each command.
fn helps() -> Vec<Text> {
    let help = |command: &str| {
        let mut process = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
        let output =
            process.args(command.split_whitespace()).arg("--help").output().expect("the program starts");
        String::from_utf8(output.stdout).expect("the help is text")
    };
    let top = help("");
    let commands =
        top.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<String> = commands
        .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
        .filter(|name| name != "help")
        .collect();
    assert!(commands.contains(&"run".to_owned()), "{top}");
    let pages = [String::new()].into_iter().chain(commands).map(|command| (help(&command), command));
    let texts = pages.flat_map(|(page, command)| paragraphs(&format!("{command} --help"), &page));
    // The list of commands repeats the first sentence of each page.
    texts.filter(|text| !text.text.starts_with("Commands: ")).collect()
}

/// The descriptions of the fields, and the messages of the rules.
fn descriptions() -> Vec<Text> {
    let directory = fs::read_dir(root().join("crds")).expect("the directory can be read");
    let names = directory.map(|entry| entry.expect("an entry can be read").file_name());
    names
        .flat_map(|name| {
            let path = format!("crds/{}", name.to_string_lossy());
            let crd: serde_json::Value = serde_saphyr::from_str(&read(&path)).expect("a CRD is YAML");
            let mut texts = Vec::new();
            described(&path, &crd, &mut texts);
            texts
        })
        .collect()
}

fn described(place: &str, value: &serde_json::Value, texts: &mut Vec<Text>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let place = format!("{place}.{name}");
                match value.as_str() {
                    Some(text) if name == "description" || name == "message" => {
                        texts.extend(paragraphs(&place, text));
                    }
                    _ => described(&place, value, texts),
                }
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| described(place, value, texts)),
        _ => {}
    }
}

/// The summaries and descriptions of the alerts.
fn annotations() -> Vec<Text> {
    let alerts = "manifests/alerts.yaml";
    let rules: serde_json::Value = serde_saphyr::from_str(&read(alerts)).expect("the alerts are YAML");
    let rules = rules["groups"][0]["rules"].as_array().expect("the rules are a list");
    let texts = rules.iter().flat_map(|rule| {
        let annotation = |name: &str| {
            let text = rule["annotations"][name].as_str().expect("every alert has it").to_owned();
            Text { place: format!("{alerts}: {}", rule["alert"]), text }
        };
        ["summary", "description"].map(annotation)
    });
    texts.collect()
}

/// The documents for users, without their blocks of code and without the targets of links, which name files.
pub(super) fn documents(root: &Path) -> Vec<Text> {
    let mut paths = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    let mut open = vec![root.join("docs")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("a directory can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    let target = Regex::new(r"\]\([^)]*\)").expect("the pattern is well formed");
    let text = |path: std::path::PathBuf| {
        let page = fs::read_to_string(&path).expect("a document can be read");
        // Every second part is between the fences of a block of code.
        let text: String = page.split("```").step_by(2).collect();
        let text = target.replace_all(&text, "]").into_owned();
        Text { place: path.display().to_string(), text }
    };
    paths.into_iter().map(text).collect()
}

fn paragraphs(place: &str, page: &str) -> Vec<Text> {
    let texts = page.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    texts.map(|text| Text { place: place.to_owned(), text }).collect()
}
