//! Other names for nodes, pods and namespaces, the same name for the same object everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use regex::Regex;
use serde_json::Value;

/// Words with a meaning of their own: an object with such a name keeps it.
const WORDS: [&str; 22] = [
    "active",
    "all",
    "annotations",
    "cilium",
    "cluster-pool",
    "cordoned",
    "crd",
    "default",
    "draining",
    "false",
    "held",
    "ipv4",
    "ipv6",
    "kubernetes",
    "linux",
    "multi-pool",
    "node",
    "pod",
    "pool",
    "ready",
    "true",
    "windows",
];

/// The replacements.
pub(super) struct Redactor {
    names: BTreeMap<String, String>,
    token: Regex,
}

impl Redactor {
    /// Replaces these names, in their order, so that lists keep their order. `kept` are namespaces that keep their
    /// names.
    pub(super) fn of(
        nodes: &BTreeSet<String>,
        pods: &BTreeSet<String>,
        namespaces: &BTreeSet<String>,
        kept: &[&str],
    ) -> Self {
        let mut names = BTreeMap::new();
        for (word, of_kind) in [("pod", pods), ("namespace", namespaces), ("node", nodes)] {
            for (index, name) in of_kind.iter().enumerate() {
                if !kept.contains(&name.as_str()) && !WORDS.contains(&name.as_str()) {
                    names.insert(name.clone(), format!("{word}-{:05}", index + 1));
                }
            }
        }
        let token =
            Regex::new("[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?").expect("the pattern is well formed");
        Self { names, token }
    }

    /// The text with the other names.
    pub(super) fn text(&self, text: &str) -> String {
        let replaced = |found: &regex::Captures<'_>| {
            let found = &found[0];
            // A node may be named by its address, and addresses stay.
            if found.parse::<IpAddr>().is_ok() {
                return found.to_owned();
            }
            // The name of an Event, or a domain name, has that of its object in front.
            let starts = found.match_indices('.').map(|(end, _)| end).chain([found.len()]);
            let known = starts.rev().find_map(|end| Some((self.names.get(&found[..end])?, end)));
            known.map_or_else(|| found.to_owned(), |(name, end)| format!("{name}{}", &found[end..]))
        };
        self.token.replace_all(text, replaced).into_owned()
    }

    /// The object with the other names. Names of fields stay.
    pub(super) fn object(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.object(item)),
            Value::Object(fields) => {
                // The key of a label in a selector is a name of a field elsewhere.
                let stays = |key: &str| ["kind", "apiVersion", "key"].contains(&key);
                let named = fields.iter_mut().filter(|(key, _)| !stays(key));
                named.for_each(|(_, field)| self.object(field));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redactor() -> Redactor {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Redactor::of(
            &set(&["ip-10-0-0-1.internal", "crd", "b"]),
            &set(&["web-1"]),
            &set(&["shop", "kube-system"]),
            &["kube-system"],
        )
    }

    #[test]
    fn a_name_is_replaced_alike_everywhere_and_only_as_a_whole() {
        let text = "pod shop/web-1 on ip-10-0-0-1.internal: web-10 is not web-1, b2 is not b.";
        let expected =
            "pod namespace-00002/pod-00001 on node-00003: web-10 is not pod-00001, b2 is not node-00001.";
        assert_eq!(redactor().text(text), expected);
        assert_eq!(redactor().text("kube-system ipam: crd"), "kube-system ipam: crd");
        assert_eq!(redactor().text("web-1.17a8b2 ip-10-0-0-1.internal.x"), "pod-00001.17a8b2 node-00003.x");
    }

    #[test]
    fn values_are_replaced_and_fields_stay() {
        let mut object = json!({"kind": "Pod", "b": {"nodeName": "b", "list": ["web-1", 1]}});
        redactor().object(&mut object);
        assert_eq!(object, json!({"kind": "Pod", "b": {"nodeName": "node-00001", "list": ["pod-00001", 1]}}));
    }
}
