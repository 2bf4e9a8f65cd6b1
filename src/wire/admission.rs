//! Webhooks and policies of admission that cover the objects of the controller and fail closed.
//!
//! Selectors and conditions are not evaluated, except that a condition which names the controller counts as an
//! exemption of its account.

use std::collections::BTreeSet;

use serde_json::Value;

use super::installation::is_of_chart;
use super::json::{text, texts};
use super::watched::Wire;
use super::{CiliumNodes, Claims, Nodes, Pools};
use crate::model::installation::Guard;

/// The kinds of configurations of webhooks, with their names in paths.
pub const WEBHOOKS: [(&str, &str); 2] = [
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
];

/// The kind of a policy, and that of its binding, with their names in paths.
pub const POLICIES: [(&str, &str); 2] = [
    ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
];

/// The name of the controller, which is in the name of its account.
const OURS: &str = "cilium-node-ipam";

/// The resources that the controller writes, each with its group.
const WRITTEN: [(&str, &str); 4] = [
    (Pools::GROUP, Pools::PLURAL),
    (Claims::GROUP, Claims::PLURAL),
    (CiliumNodes::GROUP, CiliumNodes::PLURAL),
    (Nodes::GROUP, Nodes::PLURAL),
];

/// The webhooks of a configuration that can stop writes of the controller.
pub fn webhooks(object: &Value) -> impl Iterator<Item = Guard> {
    let (kind, name) = (text(&object["kind"]).to_owned(), text(&object["metadata"]["name"]).to_owned());
    let webhooks = object["webhooks"].as_array().into_iter().flatten();
    webhooks.filter(|webhook| fails_closed(webhook)).filter_map(move |webhook| {
        let name = format!("{name} ({})", text(&webhook["name"]));
        guard(&kind, name, &webhook["rules"], &webhook["matchConditions"])
    })
}

/// The policies that can stop writes of the controller, of these and their bindings.
#[must_use]
pub fn policies(policies: &[Value], bindings: &[Value]) -> Vec<Guard> {
    let denies =
        |binding: &&Value| texts(&binding["spec"]["validationActions"]).any(|action| action == "Deny");
    let bound: BTreeSet<&str> =
        bindings.iter().filter(denies).map(|binding| text(&binding["spec"]["policyName"])).collect();
    let in_force = policies.iter().filter(|policy| {
        bound.contains(text(&policy["metadata"]["name"]))
            && fails_closed(&policy["spec"])
            && !is_of_chart(policy)
    });
    let guards = in_force.filter_map(|policy| {
        let (name, spec) = (text(&policy["metadata"]["name"]).to_owned(), &policy["spec"]);
        guard(POLICIES[0].0, name, &spec["matchConstraints"]["resourceRules"], &spec["matchConditions"])
    });
    guards.collect()
}

/// Whether an error of it refuses the write, which is the default.
fn fails_closed(object: &Value) -> bool {
    object["failurePolicy"] != "Ignore"
}

fn guard(kind: &str, name: String, rules: &Value, conditions: &Value) -> Option<Guard> {
    let is_exempt = conditions.to_string().contains(OURS);
    let covers = |(group, plural): &(&str, &str)| {
        rules.as_array().into_iter().flatten().any(|rule| is_covered(rule, group, plural))
    };
    let resources: Vec<String> =
        WRITTEN.iter().filter(|written| covers(written)).map(|(_, plural)| (*plural).to_owned()).collect();
    (!is_exempt && !resources.is_empty()).then(|| Guard { kind: kind.to_owned(), name, resources })
}

/// Whether a rule covers a write of a resource, which has no namespace.
fn is_covered(rule: &Value, group: &str, plural: &str) -> bool {
    let has = |field: &str, wanted: &[&str]| texts(&rule[field]).any(|value| wanted.contains(&value));
    let status = format!("{plural}/status");
    let any = format!("{plural}/*");
    has("apiGroups", &[group, "*"])
        && has("resources", &[plural, &status, &any, "*", "*/*", "*/status"])
        && has("operations", &["CREATE", "UPDATE", "DELETE", "*"])
        && rule["scope"] != "Namespaced"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(group: &str, resource: &str) -> Value {
        json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": [resource]})
    }

    fn found(guards: impl IntoIterator<Item = Guard>) -> Vec<String> {
        guards.into_iter().map(|guard| format!("{}: {}", guard.name, guard.resources.join(" "))).collect()
    }

    #[test]
    fn a_webhook_that_covers_our_kinds_and_fails_closed_is_found() {
        let check = |webhook: Value, expected: &[&str]| {
            let mut webhook = webhook;
            webhook["name"] = "h".into();
            let object = json!({"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "w"},
                                "webhooks": [webhook]});
            assert_eq!(found(webhooks(&object)), expected, "{object}");
        };
        check(json!({"rules": [rule("nodeipam.io", "nodeipblocks")]}), &["w (h): nodeipblocks"]);
        check(json!({"rules": [rule("*", "*")]}), &["w (h): nodeippools nodeipblocks ciliumnodes nodes"]);
        check(json!({"rules": [rule("cilium.io", "ciliumnodes/status")]}), &["w (h): ciliumnodes"]);
        check(json!({"failurePolicy": "Ignore", "rules": [rule("*", "*")]}), &[]);
        check(json!({"rules": [rule("apps", "*")]}), &[]);
        let mut namespaced = rule("*", "*");
        namespaced["scope"] = "Namespaced".into();
        check(json!({"rules": [namespaced]}), &[]);
        let account = "request.userInfo.username != 'system:serviceaccount:kube-system:cilium-node-ipam'";
        let conditions = json!([{"name": "others", "expression": account}]);
        check(json!({"rules": [rule("*", "*")], "matchConditions": conditions}), &[]);
    }

    #[test]
    fn a_policy_counts_where_a_binding_denies() {
        let policy = |labels: Value| {
            let constraints = json!({"resourceRules": [rule("nodeipam.io", "*")]});
            json!({"metadata": {"name": "p", "labels": labels}, "spec": {"matchConstraints": constraints}})
        };
        let binding = |action: &str| json!({"spec": {"policyName": "p", "validationActions": [action]}});
        let others = [policy(json!({}))];
        assert_eq!(found(policies(&others, &[binding("Deny")])), ["p: nodeippools nodeipblocks"]);
        assert_eq!(found(policies(&others, &[binding("Warn")])), [""; 0]);
        let ours = [policy(json!({"app.kubernetes.io/name": OURS}))];
        assert_eq!(found(policies(&ours, &[binding("Deny")])), [""; 0]);
    }
}
