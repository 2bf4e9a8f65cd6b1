//! A stand-in for the Node Readiness Controller of kubernetes-sigs, whose Go module is not published.
//!
//! It follows the documented contract of that controller for a rule with `enforcementMode: continuous`: a node that the
//! rule selects has the taint while one of the conditions has another status than the required one. A condition that is
//! missing counts as Unknown. The rule is that of `manifests/examples`, and is read from the file.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{Selector, SelectorExt as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::objects::Kind;
use crate::support::rig::Rig;

/// The rule that users apply.
const RULE: &str = include_str!("../../../manifests/examples/node-readiness-rule.yaml");

/// A rule of the Node Readiness Controller.
pub(super) struct Rule {
    selector: Selector,
    /// Type and required status.
    conditions: Vec<(String, String)>,
    taint: Value,
}

impl Rule {
    pub(super) fn of_examples() -> Result<Self> {
        let object: Value = serde_saphyr::from_str(RULE)?;
        let spec = &object["spec"];
        ensure!(object["kind"] == "NodeReadinessRule" && spec["enforcementMode"] == "continuous", "{object}");
        let selector: LabelSelector = serde_json::from_value(spec["nodeSelector"].clone())?;
        let conditions = spec["conditions"].as_array().context("no conditions")?.iter().map(|condition| {
            let text = |field: &str| condition[field].as_str().map(str::to_owned).context("no text");
            Ok((text("type")?, text("requiredStatus")?))
        });
        let conditions = conditions.collect::<Result<Vec<_>>>()?;
        Ok(Self { selector: selector.try_into()?, conditions, taint: spec["taint"].clone() })
    }

    /// Whether a node has its taint.
    pub(super) fn has_tainted(&self, node: &DynamicObject) -> bool {
        let taints = node.data["spec"]["taints"].as_array().into_iter().flatten();
        taints
            .into_iter()
            .any(|taint| ["key", "effect"].iter().all(|field| taint[field] == self.taint[field]))
    }

    fn is_met(&self, node: &DynamicObject) -> bool {
        let shown = node.data["status"]["conditions"].as_array();
        self.conditions.iter().all(|(kind, required)| {
            let found = shown.into_iter().flatten().find(|condition| condition["type"] == kind.as_str());
            found.is_some_and(|condition| condition["status"] == required.as_str())
        })
    }

    fn is_its_taint(&self, taint: &Value) -> bool {
        ["key", "effect"].iter().all(|field| taint[field] == self.taint[field])
    }

    /// The taints of a node whose taints do not follow from its conditions.
    fn taints(&self, node: &DynamicObject) -> Option<Vec<Value>> {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let is_met = self.is_met(node);
        if !self.selector.matches(&labels) || self.has_tainted(node) != is_met {
            return None;
        }
        let others = node.data["spec"]["taints"].as_array().into_iter().flatten();
        let mut taints: Vec<Value> = others.filter(|taint| !self.is_its_taint(taint)).cloned().collect();
        taints.extend((!is_met).then(|| self.taint.clone()));
        Some(taints)
    }
}

/// Keeps the taints of all nodes as the rule says, until it is dropped.
pub(super) fn start(rig: &Rig) -> Result<JoinSet<()>> {
    let rule = Rule::of_examples()?;
    let api = Kind::Node.api(&rig.cluster.client);
    let (cache, alarm) = (std::sync::Arc::clone(rig.cluster.cache()), rig.cluster.alarm.clone());
    let mut news = rig.cluster.bell.listen();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            news.mark_unchanged();
            for node in cache.objects(Kind::Node) {
                let (Some(taints), Some(name)) = (rule.taints(&node), node.metadata.name.as_deref()) else {
                    continue;
                };
                // The server replaces the list of taints as a whole.
                let version = &node.metadata.resource_version;
                let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
                match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
                    Ok(_) => {}
                    // The watch shows the newer version, and the rule is applied to it.
                    Err(kube::Error::Api(status)) if status.is_conflict() => {}
                    Err(error) => {
                        alarm.raise(format!("can't taint {name}: {error}"));
                        return;
                    }
                }
            }
            if news.changed().await.is_err() {
                return;
            }
        }
    });
    Ok(tasks)
}

#[test]
fn a_missing_condition_taints_a_node_that_the_rule_selects() -> Result<()> {
    let rule = Rule::of_examples()?;
    let (kind, required) = &rule.conditions[0];
    let node = |os: &str, status: Option<&str>, taints: Value| {
        let conditions: Vec<Value> =
            status.map(|status| json!({"type": kind, "status": status})).into_iter().collect();
        let data = json!({"spec": {"taints": taints}, "status": {"conditions": conditions}});
        let mut node = Kind::Node.object("n", data);
        node.metadata.labels = Some([("kubernetes.io/os".to_owned(), os.to_owned())].into());
        node
    };
    let other = json!({"key": "other", "effect": "NoSchedule"});
    let (tainted, bare) = (json!([other, rule.taint]), json!([other]));
    for (node, expected) in [
        (node("linux", None, bare.clone()), Some(&tainted)),
        (node("linux", Some("Unknown"), bare.clone()), Some(&tainted)),
        (node("linux", Some("False"), tainted.clone()), None),
        (node("linux", Some(required), tainted.clone()), Some(&bare)),
        (node("linux", Some(required), bare.clone()), None),
        (node("windows", None, bare.clone()), None),
    ] {
        ensure!(rule.taints(&node).map(Value::from).as_ref() == expected, "{node:?}");
    }
    Ok(())
}
