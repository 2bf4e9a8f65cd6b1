//! The controller's own ConfigMap, by which an administrator freezes it.
//!
//! A user who writes into this ConfigMap wants to stop something. So an unknown value of a switch counts as `true`, an
//! unknown key freezes all writes, and the text of the [`Freeze`] names the correction.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::model::freeze::{Freeze, Switch};
use crate::model::names::ten_of;

/// The name of the ConfigMap.
pub const CONFIG_MAP: &str = "cilium-node-ipam";

/// The key of the reason, which is shown wherever the freeze is.
pub const REASON: &str = "reason";

/// The maximum number of characters of a text of another writer that are shown: a line of a log or of an event.
const LONGEST_TEXT: usize = 256;

/// The key of a switch.
#[must_use]
pub const fn key_of(switch: Switch) -> &'static str {
    match switch {
        Switch::Writes => "freeze-writes",
        Switch::Reclaim => "freeze-reclaim",
    }
}

/// The freeze that the ConfigMap in this namespace sets. Without a ConfigMap nothing is frozen.
#[must_use]
pub fn freeze_of(found: Option<&ConfigMap>, namespace: &str) -> Freeze {
    let Some(found) = found else {
        return Freeze::default();
    };
    let texts = found.data.iter().flatten().map(|(key, value)| (key.as_str(), value.trim()));
    // Values that are not UTF-8 text.
    let binary = found.binary_data.iter().flatten().map(|(key, _)| (key.as_str(), "(binary data)"));
    let values: BTreeMap<&str, &str> = texts.chain(binary).collect();
    let name = format!("ConfigMap {namespace}/{CONFIG_MAP}");
    let reason = values.get(REASON).map(|text| shortened(text)).filter(|text| !text.is_empty());
    let reason = reason.map(|text| format!("; reason: {text}")).unwrap_or_default();
    let mut on: BTreeMap<Switch, String> = BTreeMap::new();
    for switch in Switch::ALL {
        let key = key_of(switch);
        match values.get(key) {
            None | Some(&"false") => {}
            Some(&"true") => {
                on.insert(switch, format!("{name} says `{key}: true`{reason}"));
            }
            Some(other) => {
                let other = shortened(other);
                let rule = "which is neither `true` nor `false` and counts as `true`";
                on.insert(switch, format!("{name} says `{key}: {other}`, {rule}{reason}"));
            }
        }
    }
    let is_known = |key: &str| key == REASON || Switch::ALL.iter().any(|switch| key_of(*switch) == key);
    let unknown: Vec<&str> = values.keys().copied().filter(|key| !is_known(key)).collect();
    if !unknown.is_empty() {
        let keys = format!("`{}`, `{}` and `{REASON}`", key_of(Switch::Writes), key_of(Switch::Reclaim));
        on.entry(Switch::Writes).or_insert_with(|| {
            format!(
                "{name} has unknown keys ({}); correct or remove them; the keys are {keys}; an unknown key \
                 counts as `{}: true`{reason}",
                ten_of(unknown),
                key_of(Switch::Writes)
            )
        });
    }
    Freeze::of(on)
}

/// A text of another writer in one line, cut if it is long.
fn shortened(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(content: &Value, expected: &[&str]) {
        let config_map: ConfigMap = serde_json::from_value(content.clone()).unwrap();
        let freeze = freeze_of(Some(&config_map), "kube-system");
        let reported: Vec<String> =
            Switch::ALL.into_iter().filter_map(|switch| freeze.description(switch)).collect();
        assert_eq!(reported, expected, "{content}");
    }

    #[test]
    fn nothing_is_frozen_without_a_switch_that_is_on() {
        assert_eq!(freeze_of(None, "kube-system"), Freeze::default());
        check(&json!({}), &[]);
        check(&json!({"data": {"reason": "nothing yet"}}), &[]);
        check(&json!({"data": {"freeze-writes": "false", "freeze-reclaim": "false\n"}}), &[]);
    }

    #[test]
    fn a_switch_is_on_with_its_reason() {
        check(
            &json!({"data": {"freeze-writes": " true\n", "reason": "etcd is\n being restored "}}),
            &[
                "no claim, CiliumNode, Node, CiliumPodIPPool, FRRConfiguration or finalizer is written: ConfigMap \
                 kube-system/cilium-node-ipam says `freeze-writes: true`; reason: etcd is being restored",
            ],
        );
        check(
            &json!({"data": {"freeze-reclaim": "true", "freeze-writes": "false", "reason": ""}}),
            &["no block is reclaimed: ConfigMap kube-system/cilium-node-ipam says \
               `freeze-reclaim: true`"],
        );
    }

    #[test]
    fn what_is_neither_true_nor_false_is_on() {
        for value in ["", "True", "no", "0", "off", "tru"] {
            check(
                &json!({"data": {"freeze-writes": value}}),
                &[&format!(
                    "no claim, CiliumNode, Node, CiliumPodIPPool, FRRConfiguration or finalizer is written: ConfigMap \
                     kube-system/cilium-node-ipam says `freeze-writes: {value}`, which is neither `true` nor \
                     `false` and counts as `true`"
                )],
            );
        }
        check(
            &json!({"binaryData": {"freeze-reclaim": "/w=="}}),
            &["no block is reclaimed: ConfigMap kube-system/cilium-node-ipam says \
               `freeze-reclaim: (binary data)`, which is neither `true` nor `false` and counts as `true`"],
        );
    }

    #[test]
    fn an_unknown_key_may_be_a_misspelt_switch() {
        let reported = "no claim, CiliumNode, Node, CiliumPodIPPool, FRRConfiguration or finalizer is written: ConfigMap \
             kube-system/cilium-node-ipam has unknown keys (freeze_writes, frozen); correct or remove them; \
             the keys are `freeze-writes`, `freeze-reclaim` and `reason`; an unknown key counts as \
             `freeze-writes: true`; reason: upgrade";
        check(&json!({"data": {"freeze_writes": "true", "frozen": "x", "reason": "upgrade"}}), &[reported]);
        // A switch that is off says nothing about the other key.
        check(
            &json!({"data": {"freeze_writes": "true", "frozen": "x", "reason": "upgrade", "freeze-writes": "false"}}),
            &[reported],
        );
    }

    #[test]
    fn long_texts_are_cut() {
        let config_map: ConfigMap =
            serde_json::from_value(json!({"data": {"freeze-writes": "true", "reason": "x".repeat(9999)}}))
                .unwrap();
        let reported = freeze_of(Some(&config_map), "kube-system").description(Switch::Writes).unwrap();
        assert!(reported.len() < 2 * LONGEST_TEXT, "{reported}");
    }
}
