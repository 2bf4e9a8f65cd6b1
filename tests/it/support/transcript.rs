//! The sequence of versions of one CiliumNode, in words that are the same for every node and every draw of addresses.
//!
//! It omits which address was drawn; the block of the address remains. It also omits how many writes of the status a
//! growing or shrinking `used` took, because writers may batch as they like. Every other difference between the
//! versions remains, in the order of the writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use ipnet::IpNet;
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use tokio::task::JoinSet;

use super::alarm::Bell;
use super::cluster::Cluster;
use super::objects::Kind;

/// Which versions of a part are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steps {
    Each,
    Last,
}

/// Records every version of one CiliumNode from before it exists.
pub(crate) struct Recorder {
    node: String,
    versions: Arc<Mutex<Vec<DynamicObject>>>,
    /// The last version of the previous part.
    last: BTreeSet<String>,
    /// The words for CIDRs.
    names: Vec<(IpNet, String)>,
    text: String,
    _watch: JoinSet<()>,
}

impl Recorder {
    pub(crate) fn start(client: &Client, bell: Bell, node: &str) -> Self {
        let versions = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(record(client.clone(), bell, node.to_owned(), Arc::clone(&versions)));
        Self {
            node: node.to_owned(),
            versions,
            last: BTreeSet::new(),
            names: Vec::new(),
            text: String::new(),
            _watch: tasks,
        }
    }

    /// Names a CIDR with this word from now on, with its family before it.
    pub(crate) fn name(&mut self, cidr: IpNet, word: &str) {
        let family = if cidr.addr().is_ipv4() { "IPv4" } else { "IPv6" };
        self.names.push((cidr, format!("{family} {word}")));
    }

    /// Completes a part of the script: writes down the versions since the last part.
    pub(crate) async fn part(&mut self, cluster: &Cluster, title: &str) -> Result<()> {
        self.end(cluster, title, Steps::Each).await
    }

    /// As [`Self::part`], where the writer may reach the same result in several ways. Writes down only the difference
    /// to the previous part.
    pub(crate) async fn outcome(&mut self, cluster: &Cluster, title: &str) -> Result<()> {
        self.end(cluster, title, Steps::Last).await
    }

    async fn end(&mut self, cluster: &Cluster, title: &str, steps: Steps) -> Result<()> {
        let newest = version(&cluster.read(Kind::CiliumNode, &self.node).await?)?;
        cluster
            .wait_until("the recorder", Duration::from_secs(30), async || {
                // The next write may have followed already.
                let last = self.versions().last().map(version).transpose()?;
                Ok(last.is_some_and(|last| last >= newest))
            })
            .await?;
        writeln!(self.text, "== {title}")?;
        let mut states: Vec<_> = self.versions().iter().map(|object| self.describe(object)).collect();
        if steps == Steps::Last {
            states.drain(..states.len().saturating_sub(1));
        }
        let mut before = self.last.clone();
        for (index, state) in states.iter().enumerate() {
            let same_write = |next: &BTreeSet<String>| only_used(&before, state) && only_used(state, next);
            if before == *state || states.get(index + 1).is_some_and(same_write) {
                continue;
            }
            let gone = before.difference(state).map(|line| format!("- {line}"));
            let come = state.difference(&before).map(|line| format!("+ {line}"));
            writeln!(self.text, "{}\n", gone.chain(come).collect::<Vec<_>>().join("\n"))?;
            before.clone_from(state);
        }
        self.last = states.last().cloned().context("nothing was recorded")?;
        let keep = self.versions().len() - 1;
        // The last version stays: a part without writes needs it.
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).drain(..keep);
        Ok(())
    }

    /// Notes something that is not on the CiliumNode.
    pub(crate) fn note(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn versions(&self) -> Vec<DynamicObject> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The version as a set of facts.
    fn describe(&self, object: &DynamicObject) -> BTreeSet<String> {
        let mut facts = BTreeSet::new();
        let metadata = &object.metadata;
        for owner in metadata.owner_references.iter().flatten() {
            facts.insert(format!("owner {} {}", owner.kind, self.word(&owner.name)));
        }
        for (what, map) in [("label", &metadata.labels), ("annotation", &metadata.annotations)] {
            facts.extend(map.iter().flatten().map(|(key, value)| format!("{what} {key}={value}")));
        }
        let (spec, status) = (&object.data["spec"], &object.data["status"]["ipam"]);
        for address in spec["addresses"].as_array().into_iter().flatten() {
            let text = |field: &str| address[field].as_str().unwrap_or_default();
            facts.insert(format!("address {} {}", text("type"), self.word(text("ip"))));
        }
        for field in ["health", "ingress", "bootid", "encryption"] {
            leaves(field, &spec[field], &mut |path, value| {
                let value = if field == "bootid" { "set".to_owned() } else { self.word(value) };
                facts.insert(format!("{path} {value}"));
            });
        }
        for cidr in spec["ipam"]["podCIDRs"].as_array().into_iter().flatten() {
            facts.insert(format!("podCIDR {}", self.word(cidr.as_str().unwrap_or_default())));
        }
        facts.extend(
            self.counted("pool", &spec["ipam"]["pool"], |entry| entry["owner"].as_str().unwrap_or("")),
        );
        facts.extend(self.counted("release", &status["release-ips"], |state| state.as_str().unwrap_or("")));
        for (address, entry) in status["used"].as_object().into_iter().flatten() {
            facts.insert(format!(
                "{USED} {} by {}",
                self.word(address),
                entry["owner"].as_str().unwrap_or("")
            ));
        }
        facts
    }

    /// The number of addresses of each block with the same value.
    fn counted(&self, what: &str, map: &Value, value: impl Fn(&Value) -> &str) -> Vec<String> {
        let mut counts = BTreeMap::<_, usize>::new();
        for (address, entry) in map.as_object().into_iter().flatten() {
            *counts.entry((self.word(address), value(entry).to_owned())).or_default() += 1;
        }
        counts
            .into_iter()
            .map(|((block, value), n)| format!("{what} {n} of {block} {value}").trim_end().to_owned())
            .collect()
    }

    /// A word for the node, a CIDR or an address.
    fn word(&self, text: &str) -> String {
        if text == self.node {
            return "the node".to_owned();
        }
        let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        let named = net.ok().and_then(|net| self.names.iter().find(|(cidr, _)| cidr.contains(&net)));
        named.map_or_else(|| text.to_owned(), |(_, word)| word.clone())
    }
}

const USED: &str = "used";

/// Versions are numbers that grow, by <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>.
fn version(object: &DynamicObject) -> Result<u64> {
    Ok(object.metadata.resource_version.as_deref().unwrap_or_default().parse()?)
}

/// Whether two versions differ in `used` alone.
fn only_used(before: &BTreeSet<String>, after: &BTreeSet<String>) -> bool {
    before.symmetric_difference(after).all(|fact| fact.starts_with(USED))
}

/// Every value below `value` that is not empty, with its path.
fn leaves(path: &str, value: &Value, found: &mut impl FnMut(&str, &str)) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(field, value)| leaves(&format!("{path}.{field}"), value, found));
        }
        Value::String(text) if !text.is_empty() => found(path, text),
        Value::Number(number) if number.as_i64() != Some(0) => found(path, &number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| leaves(path, item, found)),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Number(_) => {}
    }
}

async fn record(client: Client, bell: Bell, node: String, versions: Arc<Mutex<Vec<DynamicObject>>>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let mut events = pin!(watcher(Kind::CiliumNode.api(&client), config));
    while let Some(event) = events.next().await {
        // An error would show as a part that is never complete.
        if let Ok(Event::Apply(object) | Event::InitApply(object)) = event {
            versions.lock().unwrap_or_else(PoisonError::into_inner).push(object);
            bell.ring();
        }
    }
}
