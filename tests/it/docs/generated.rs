//! The parts of the reference that are generated: the flags of the commands, and the fields of the CRDs.
//!
//! A page has such a part between two marks. `UPDATE_DOCS=1` writes it.

use std::fmt::Write as _;
use std::path::Path;

use cilium_node_ipam::cli::Command;
use cilium_node_ipam::cli::access::Access;
use clap::{Args as _, CommandFactory as _};
use serde_json::Value;

/// Compares the part of a page between two marks, or writes it.
pub(crate) fn compare(page: &str, mark: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let present = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let (first, last) = (format!("<!-- {mark} -->\n"), format!("<!-- end of {mark} -->"));
    let (before, rest) = present.split_once(&first).unwrap_or_else(|| panic!("{page} has no mark {mark}"));
    let (_, after) = rest.split_once(&last).unwrap_or_else(|| panic!("{page} has no end of {mark}"));
    let updated = format!("{before}{first}\n{text}\n{last}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, updated).unwrap_or_else(|error| panic!("{page}: {error}"));
    } else {
        assert!(present == updated, "{page} is old; UPDATE_DOCS=1 writes this:\n{text}");
    }
}

/// The page of a command.
fn page(command: &str) -> String {
    let name = match command {
        "uncordon" | "drain" => "cordon",
        "unfreeze" => "freeze",
        "crd" | "man" | "completion" => "others",
        own => own,
    };
    format!("docs/commands/{name}.md")
}

/// A text in a cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn is_of(access: &clap::Command, argument: &clap::Arg) -> bool {
    access.get_arguments().any(|other| other.get_id() == argument.get_id())
}

/// A table of arguments. An argument without a flag comes first.
fn table<'a>(arguments: impl Iterator<Item = &'a clap::Arg>) -> String {
    let mut table = "| argument | default | meaning |\n|---|---|---|\n".to_owned();
    for argument in arguments.filter(|argument| !argument.is_hide_set()) {
        let value = argument.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
        let name = match (argument.get_short(), argument.get_long()) {
            (Some(short), Some(long)) => format!("-{short}, --{long}"),
            (_, Some(long)) => format!("--{long}"),
            (_, None) => String::new(),
        };
        let takes_value = argument.get_action().takes_values();
        let name = if takes_value { format!("{name} {value}") } else { name };
        let default = argument.get_default_values().first().filter(|_| takes_value);
        let default = match default {
            Some(default) => format!("`{}`", default.to_string_lossy()),
            None if argument.is_required_set() => "required".to_owned(),
            None => "none".to_owned(),
        };
        let help = argument.get_long_help().or(argument.get_help()).expect("each argument has a help");
        let values = argument.get_possible_values();
        let values: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        let values = if takes_value && !values.is_empty() {
            format!(" One of {}.", values.join(", "))
        } else {
            String::new()
        };
        let help = format!("{}.{values}", help.to_string().trim_end_matches('.'));
        let _ = writeln!(table, "| `{}` | {default} | {} |", cell(&name), cell(&help));
    }
    table
}

#[test]
fn each_command_has_a_table_of_its_flags() {
    let access = Access::augment_args(clap::Command::new("any"));
    compare("docs/commands.md", "flags of each command", &table(access.get_arguments()));
    for command in Command::command().get_subcommands().filter(|command| command.get_name() != "run") {
        let name = command.get_name();
        let text = if command.has_subcommands() {
            let of_each = command.get_subcommands().map(|subcommand| {
                format!("## Flags of {name} {}\n\n{}", subcommand.get_name(), flags(&access, subcommand))
            });
            of_each.collect::<Vec<_>>().join("\n")
        } else {
            flags(&access, command)
        };
        compare(&page(name), &format!("flags of {name}"), &text);
    }
}

/// The table of a command's arguments. Those of each command are elsewhere.
fn flags(access: &clap::Command, command: &clap::Command) -> String {
    let asks = access.get_arguments().all(|flag| is_of(command, flag));
    let own: Vec<_> = command.get_arguments().filter(|argument| !(asks && is_of(access, argument))).collect();
    let positional = own.iter().filter(|argument| argument.is_positional());
    let flags = own.iter().filter(|argument| !argument.is_positional());
    let mut text = table(positional.chain(flags).copied());
    if asks {
        text += "\nThe [flags of each command](../commands.md#access) choose the cluster.\n";
    }
    text
}

fn yaml(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    serde_saphyr::from_str(&std::fs::read_to_string(path).expect("the file is there")).expect("it is YAML")
}

/// A field of an object.
struct Field<'a> {
    path: String,
    schema: &'a Value,
    can_change: bool,
    is_required: bool,
    example: Option<&'a Value>,
}

/// The fields below a schema, with those of objects in lists. A rule of the field, or of the object around it, makes it
/// immutable.
fn fields<'a>(path: &str, schema: &'a Value, example: Option<&'a Value>, found: &mut Vec<Field<'a>>) {
    if let Some(items) = schema.get("items") {
        return fields(&format!("{path}[]"), items, example.and_then(|example| example.get(0)), found);
    }
    let Some(properties) = schema["properties"].as_object() else { return };
    for (name, schema_of) in properties {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let own = rules(schema_of).any(|(_, message)| message.starts_with("is immutable"));
        let field = format!(".{name}");
        let above =
            rules(schema).any(|(of, message)| of == Some(&*field) && message.starts_with("is immutable"));
        let example = example.and_then(|example| example.get(name));
        let can_change = !(own || above);
        let is_required =
            schema["required"].as_array().is_some_and(|required| required.iter().any(|field| field == name));
        found.push(Field { path: path.clone(), schema: schema_of, can_change, is_required, example });
        fields(&path, schema_of, example, found);
    }
}

/// The rules of a schema: the field that they are about, and the message.
fn rules(schema: &Value) -> impl Iterator<Item = (Option<&str>, &str)> {
    let rules = schema["x-kubernetes-validations"].as_array();
    rules
        .into_iter()
        .flatten()
        .map(|rule| (rule["fieldPath"].as_str(), rule["message"].as_str().unwrap_or("")))
}

/// The type of a field in words.
fn kind(schema: &Value) -> String {
    let text = |name: &str| schema[name].as_str();
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<_> =
            values.iter().filter_map(Value::as_str).map(|value| format!("`{value}`")).collect();
        return values.join(", ");
    }
    match text("type").expect("each field has a type") {
        "integer" => match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
            (Some(least), Some(most)) if most < 1 << 31 => format!("integer, {least} to {most}"),
            _ => "integer".to_owned(),
        },
        "string" if text("format") == Some("date-time") => "time".to_owned(),
        "string" if text("pattern").is_some_and(|pattern| pattern.contains("h|m|s")) => "duration".to_owned(),
        "array" => {
            let of = if schema["items"]["type"] == "object" { "objects" } else { "strings" };
            match schema["maxItems"].as_i64() {
                Some(most) => format!("list of {of}, at most {most}"),
                None => format!("list of {of}"),
            }
        }
        "object" if schema.get("additionalProperties").is_some() => "map of strings".to_owned(),
        other => other.to_owned(),
    }
}

/// The value of a field without fields of its own, as JSON.
fn value(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(value) => format!("`{}`", cell(&value.to_string())),
    }
}

fn is_leaf(schema: &Value) -> bool {
    schema.get("properties").is_none() && schema["items"].get("properties").is_none()
}

#[test]
fn each_field_of_a_pool_and_of_a_claim_has_a_row() {
    let example = yaml("manifests/examples/every-field.yaml");
    // A pool has no name of Cilium beside blocks of several sizes.
    let of_sizes = yaml("manifests/examples/block-sizes.yaml");
    for (plural, page) in [("nodeippools", "nodeippool"), ("nodeipblocks", "nodeipblock")] {
        let definition = yaml(&format!("crds/{plural}.nodeipam.io.yaml"));
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            let has_examples = (plural, part) == ("nodeippools", "spec");
            let mut found = Vec::new();
            fields("", &schema[part], has_examples.then_some(&example[part]), &mut found);
            let mut other = Vec::new();
            fields("", &schema[part], has_examples.then_some(&of_sizes[part]), &mut other);
            for (field, other) in found.iter_mut().zip(other) {
                field.example = field.example.or(other.example);
            }
            let mut text = if has_examples {
                "| field | type | default | can change | example | meaning |\n|---|---|---|---|---|---|\n"
                    .to_owned()
            } else {
                "| field | type | meaning |\n|---|---|---|\n".to_owned()
            };
            for Field { path, schema, can_change, is_required, example } in found {
                let meaning = cell(schema["description"].as_str().unwrap_or_default());
                let kind = kind(schema);
                if has_examples {
                    let leaf = is_leaf(schema);
                    assert!(!leaf || example.is_some(), "the examples lack {path}");
                    let (default, example) = if leaf {
                        (value(schema.get("default")), value(example))
                    } else {
                        Default::default()
                    };
                    let default = if is_required { "required".to_owned() } else { default };
                    let can_change = if can_change { "yes" } else { "no" };
                    let _ = writeln!(
                        text,
                        "| `{path}` | {kind} | {default} | {can_change} | {example} | {meaning} |"
                    );
                } else {
                    let _ = writeln!(text, "| `{path}` | {kind} | {meaning} |");
                }
            }
            compare(&format!("docs/reference/{page}.md"), &format!("fields of {part}"), &text);
        }
    }
}
