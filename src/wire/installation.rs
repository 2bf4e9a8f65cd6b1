//! The objects that show whether the controller can be installed: DaemonSets, Deployments and Pods with their
//! arguments, APIServices, and our definitions.
//!
//! Knows no rule about them. A field that can't be read counts as absent: most of these objects are not ours.

use serde_json::Value;

use super::json::{text, texts};
use super::surroundings::{namespaced, old_definition};
use crate::model::installation::{ApiService, DaemonSet, Definition, Process};

/// A DaemonSet.
#[must_use]
pub fn daemon_set(object: &Value) -> DaemonSet {
    let images = containers(&object["spec"]["template"]["spec"]);
    let images = images.filter_map(|container| Some(container["image"].as_str()?.to_owned()));
    DaemonSet { name: namespaced(object), images: images.collect() }
}

/// The process in a Deployment of cilium-operator; `None` for another Deployment.
#[must_use]
pub fn cilium_operator(object: &Value) -> Option<Process> {
    let is_named =
        object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("cilium-operator"));
    let is_labelled = object["metadata"]["labels"]["io.cilium/app"] == "operator";
    (is_named || is_labelled).then(|| process("Deployment", object, &object["spec"]["template"]["spec"]))
}

/// The value of `--routes` in the Deployment of the controller; `None` for another Deployment, and without the flag.
#[must_use]
pub fn exporter(object: &Value) -> Option<String> {
    let process = process("Deployment", object, &object["spec"]["template"]["spec"]);
    process.flag("routes").filter(|_| is_of_chart(object)).map(ToOwned::to_owned)
}

/// Whether the chart of the controller has created the object.
pub(super) fn is_of_chart(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/name"] == "cilium-node-ipam"
}

/// The process in a Pod of kube-controller-manager; `None` for another Pod, and for a Pod without arguments.
#[must_use]
pub fn controller_manager(object: &Value) -> Option<Process> {
    let labels = &object["metadata"]["labels"];
    let is_labelled = ["component", "k8s-app"].iter().any(|key| labels[*key] == "kube-controller-manager");
    let process = process("Pod", object, &object["spec"]);
    (is_labelled && !process.arguments.is_empty()).then_some(process)
}

/// An APIService that is not available.
#[must_use]
pub fn unavailable(object: &Value) -> Option<ApiService> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let available = conditions.into_iter().find(|condition| condition["type"] == "Available")?;
    (available["status"] != "True").then(|| ApiService {
        name: text(&object["metadata"]["name"]).to_owned(),
        reason: available["reason"].as_str().unwrap_or("no reason given").to_owned(),
    })
}

/// A definition of ours; `None` for another definition.
#[must_use]
pub fn definition(object: &Value) -> Option<Definition> {
    let name = object["metadata"]["name"].as_str()?;
    let is_ours = super::crds::all().iter().any(|ours| ours.json["metadata"]["name"] == name);
    is_ours.then(|| Definition {
        name: name.to_owned(),
        deleting: object["metadata"]["deletionTimestamp"].is_string(),
        old: old_definition(object),
    })
}

fn process(kind: &str, object: &Value, spec: &Value) -> Process {
    let containers = spec["containers"].as_array().into_iter().flatten();
    let arguments =
        containers.flat_map(|container| texts(&container["command"]).chain(texts(&container["args"])));
    Process {
        name: format!("{kind} {}", namespaced(object)),
        arguments: arguments.map(str::to_owned).collect(),
    }
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"].into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::crds;

    #[test]
    fn arguments_are_those_of_command_and_args() {
        let pod = json!({
            "metadata": {"name": "m", "namespace": "kube-system", "labels": {"component": "kube-controller-manager"}},
            "spec": {"containers": [{"command": ["kube-controller-manager", "--allocate-node-cidrs=true"], "args": ["--v=2"]}]},
        });
        let found = controller_manager(&pod).unwrap();
        assert_eq!(found.flag("allocate-node-cidrs"), Some("true"));
        assert_eq!((found.name.as_str(), found.flag("v")), ("Pod kube-system/m", Some("2")));
        assert_eq!(controller_manager(&json!({"metadata": {"name": "other"}, "spec": {}})), None);
    }

    #[test]
    fn the_exporter_is_that_of_the_controller() {
        let deployment = |name: &str, argument: &str| {
            json!({"metadata": {"name": "a", "labels": {"app.kubernetes.io/name": name}},
                   "spec": {"template": {"spec": {"containers": [{"args": ["run", argument]}]}}}})
        };
        assert_eq!(exporter(&deployment("cilium-node-ipam", "--routes=gobgp")).as_deref(), Some("gobgp"));
        assert_eq!(exporter(&deployment("cilium-node-ipam", "--modes=crd")), None);
        assert_eq!(exporter(&deployment("other", "--routes=gobgp")), None);
    }

    #[test]
    fn an_apiservice_without_its_condition_counts_as_available() {
        let service = |status: &str| {
            json!({"metadata": {"name": "v1.x"}, "status": {"conditions": [
                {"type": "Available", "status": status, "reason": "MissingEndpoints"}]}})
        };
        let expected = ApiService { name: "v1.x".to_owned(), reason: "MissingEndpoints".to_owned() };
        assert_eq!(unavailable(&service("False")), Some(expected));
        assert_eq!(unavailable(&service("True")), None);
        assert_eq!(unavailable(&json!({"metadata": {"name": "v1"}})), None);
    }

    #[test]
    fn our_definitions_are_known_by_their_names() {
        for ours in crds::all() {
            let found = definition(&ours.json).unwrap();
            assert_eq!((found.deleting, found.old), (false, None));
        }
        assert_eq!(definition(&json!({"metadata": {"name": "other.example.com"}})), None);
    }
}
