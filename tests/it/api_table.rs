//! One table of good and bad objects, judged twice: by the real API server and by the offline check.
//!
//! Both must give the same verdict on the same field. Otherwise the cluster refuses a pool file that `validate` passes,
//! or the other way round. The tables are `tests/data/api/*.yaml`.

#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

use std::collections::BTreeSet;
use std::path::Path;

use cilium_node_ipam::model::pool::Pool;
use cilium_node_ipam::wire::check::{check_document, check_update};
use cilium_node_ipam::wire::{FieldError, NodeIPPool, crds};
use kube::Client;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::support::control_plane::{ControlPlane, Options};

/// One row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    title: String,
    /// Merged into the good object.
    #[serde(default)]
    patch: Value,
    /// As `patch`, but `null` is written as a value and removes nothing.
    #[serde(default)]
    raw: Value,
    /// A list of numbered items; `$` in them means the number.
    repeat: Option<Repeat>,
    /// The number of labels in the selector.
    labels: Option<usize>,
    /// The object before the update, as a patch of the good object.
    old: Option<Value>,
    /// The refused field. Without it the object is good.
    field: Option<String>,
    /// Further fields that are refused along with it.
    #[serde(default)]
    extra: Vec<String>,
    /// Part of the message on both sides.
    says: Option<String>,
    /// Part of the output of the offline check.
    offline: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeat {
    at: String,
    times: usize,
    item: Value,
}

/// A table, and the good object from which its rows are derived.
struct Table {
    file: &'static str,
    plural: &'static str,
    good: Value,
}

fn tables() -> [Table; 2] {
    [
        Table {
            file: "pools.yaml",
            plural: "nodeippools",
            good: json!({
                "apiVersion": "nodeipam.io/v1alpha1",
                "kind": "NodeIPPool",
                "metadata": {"name": "beijing"},
                "spec": {
                    "ipv4": {"blockSize": 27, "cidrs": [{"cidr": "10.0.0.0/19"}]},
                    "ipv6": {"blockSize": 122, "cidrs": [{"cidr": "fd00:10:1::/64"}]},
                },
            }),
        },
        Table {
            file: "blocks.yaml",
            plural: "nodeipblocks",
            good: json!({
                "apiVersion": "nodeipam.io/v1alpha1",
                "kind": "NodeIPBlock",
                "metadata": {"name": "10.0.0.32-27"},
                "spec": {
                    "cidr": "10.0.0.32/27",
                    "pool": "beijing",
                    "node": "node-7",
                    "nodeUID": "n1",
                    "excluded": ["10.0.0.32", "10.0.0.63"],
                    "state": "Held",
                    "since": "2026-11-21T03:00:00Z",
                },
            }),
        },
    ]
}

impl Table {
    fn cases(&self) -> Vec<Case> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/api").join(self.file);
        let text = std::fs::read_to_string(&path).unwrap();
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", self.file))
    }

    fn object(&self, case: &Case) -> Value {
        let mut object = self.good.clone();
        merge(&mut object, &case.patch, Nulls::Remove);
        merge(&mut object, &case.raw, Nulls::Write);
        if let Some(Repeat { at, times, item }) = &case.repeat {
            let item = item.to_string();
            let items: Vec<Value> = (0..*times)
                .map(|n| serde_json::from_str(&item.replace('$', &n.to_string())).unwrap())
                .collect();
            let (parent, name) = at.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[name] = items.into();
        }
        if let Some(n_labels) = case.labels {
            let labels: Map<String, Value> = (0..n_labels).map(|n| (format!("l{n}"), "v".into())).collect();
            object["spec"]["nodeSelector"]["matchLabels"] = labels.into();
        }
        object
    }

    fn old_object(&self, case: &Case) -> Option<Value> {
        let patch = case.old.as_ref()?;
        let mut object = self.good.clone();
        merge(&mut object, patch, Nulls::Remove);
        Some(object)
    }
}

#[derive(Clone, Copy)]
enum Nulls {
    Remove,
    Write,
}

/// RFC 7396, or the same with `null` as a value.
fn merge(object: &mut Value, patch: &Value, nulls: Nulls) {
    for (key, value) in patch.as_object().into_iter().flatten() {
        match (value, nulls) {
            (Value::Null, Nulls::Remove) => {
                object.as_object_mut().unwrap().remove(key);
            }
            (Value::Object(_), _) => {
                if !object[key].is_object() {
                    object[key] = json!({});
                }
                merge(&mut object[key], value, nulls);
            }
            _ => object[key] = value.clone(),
        }
    }
}

/// The verdict of one side: the fields that it refuses, and all its words.
struct Verdict {
    fields: BTreeSet<String>,
    text: String,
}

fn offline(table: &Table, case: &Case) -> Verdict {
    let object = table.object(case);
    let errors = match table.old_object(case) {
        Some(old) => check_update(&old, &object),
        None => check_document(&object),
    };
    Verdict {
        text: errors.iter().map(FieldError::to_string).collect::<Vec<_>>().join("\n"),
        fields: errors.into_iter().map(|error| error.field).collect(),
    }
}

async fn server(client: &Client, table: &Table, case: &Case) -> Verdict {
    let at = format!("/apis/nodeipam.io/v1alpha1/{}", table.plural);
    let strict = "fieldValidation=Strict";
    let mut object = table.object(case);
    let answer = match table.old_object(case) {
        None => request(client, "POST", &format!("{at}?{strict}&dryRun=All"), &object).await,
        Some(old) => {
            let made = request(client, "POST", &format!("{at}?{strict}"), &old).await.unwrap();
            let one = format!("{at}/{}", made["metadata"]["name"].as_str().unwrap());
            object["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
            let answer = request(client, "PUT", &format!("{one}?{strict}&dryRun=All"), &object).await;
            request(client, "DELETE", &one, &json!({})).await.unwrap();
            answer
        }
    };
    match answer {
        Ok(_) => Verdict { fields: BTreeSet::new(), text: String::new() },
        Err(kube::Error::Api(status)) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            let mut fields: BTreeSet<String> = causes.map(|cause| cause.field.clone()).collect();
            // With a wrong type the server stops, and says so in a cause without a field.
            fields.retain(|field| field != "<nil>" && !field.is_empty());
            // Unknown fields are refused before there is an object to name them in.
            fields.extend(
                status
                    .message
                    .split("unknown field \"")
                    .skip(1)
                    .filter_map(|rest| rest.split('"').next().map(str::to_owned)),
            );
            Verdict { fields, text: status.message.clone() }
        }
        Err(error) => panic!("{}: {error}", case.title),
    }
}

async fn request(client: &Client, method: &str, uri: &str, body: &Value) -> kube::Result<Value> {
    let request = http::Request::builder().method(method).uri(uri).header("content-type", "application/json");
    client.request(request.body(body.to_string().into_bytes()).unwrap()).await
}

/// The fault of a verdict, if any.
fn complaint(case: &Case, side: &str, verdict: &Verdict, parts: &[&Option<String>]) -> Option<String> {
    let expected: BTreeSet<String> = case.field.iter().chain(&case.extra).cloned().collect();
    let silent = parts.iter().filter_map(|part| part.as_deref()).find(|part| !verdict.text.contains(part));
    let problem = if verdict.fields != expected {
        format!("refuses {:?}, expected {expected:?}", verdict.fields)
    } else if verdict.text.is_empty() == case.field.is_some() {
        "refuses without a field".to_owned()
    } else {
        format!("does not say {:?}", silent?)
    };
    Some(format!("{}: the {side} {problem}\n    {}", case.title, verdict.text.replace('\n', "\n    ")))
}

#[test]
fn offline_check_agrees_with_the_table() {
    let mut complaints = Vec::new();
    for table in tables() {
        for case in table.cases() {
            complaints.extend(complaint(
                &case,
                "check",
                &offline(&table, &case),
                &[&case.says, &case.offline],
            ));
        }
    }
    assert!(complaints.is_empty(), "{} complaints\n{}", complaints.len(), complaints.join("\n"));
}

/// The server may be older than a rule: the conversion alone judges the objects that the controller reads.
#[test]
fn conversion_refuses_what_the_schema_refuses() {
    let [pools, _] = tables();
    for case in pools.cases().iter().filter(|case| case.old.is_none()) {
        let mut object = pools.object(case);
        object["metadata"]["uid"] = "p1".into();
        object["metadata"]["creationTimestamp"] = "2026-11-21T03:00:00Z".into();
        // An object that can't be decoded can't be converted either. A bad name, label or unknown field does no harm.
        let Ok(pool) = serde_json::from_value::<NodeIPPool>(object) else { continue };
        let field = case.field.as_deref().filter(|field| field.starts_with("spec"));
        let field = field.filter(|_| case.says.as_deref() != Some("unknown field"));
        let refused = Pool::try_from(&pool).err().map(|invalid| invalid.errors).unwrap_or_default();
        let found = refused.iter().any(|error| Some(error.field.as_str()) == field);
        assert_eq!((field.is_some(), !refused.is_empty()), (found, found), "{}: {refused:?}", case.title);
    }
}

/// The messages of all rules of the definitions.
fn rules(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for rule in fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten()
            {
                found.extend(rule["message"].as_str().map(str::to_owned));
            }
            fields.values().for_each(|value| rules(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| rules(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_agrees_with_the_table() -> anyhow::Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let mut complaints = Vec::new();
    let mut unheard = BTreeSet::new();
    for definition in crds::all() {
        rules(definition.schema(), &mut unheard);
    }
    for table in tables() {
        for case in table.cases() {
            let verdict = server(&control_plane.admin, &table, &case).await;
            complaints.extend(complaint(&case, "server", &verdict, &[&case.says]));
            unheard.retain(|rule| !verdict.text.contains(rule));
        }
    }
    assert!(complaints.is_empty(), "{} complaints\n{}", complaints.len(), complaints.join("\n"));
    assert!(unheard.is_empty(), "no row of the tables breaks these rules: {unheard:#?}");
    Ok(())
}
