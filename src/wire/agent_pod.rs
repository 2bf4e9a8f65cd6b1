//! The Pods of Cilium's agents on the wire: the node of an agent, whether it is Ready, when it started, and its
//! version. Nothing else of a Pod is kept.
//!
//! Reading one never fails. Nothing is known of a Pod that can't be read or is bound to no node, nor of an agent in it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::side_watched::{KindPath, SideKind};
use super::watched::Meta;
use crate::model::agent::{AgentPod, ContainerStart};
use crate::model::cilium_version::CiliumVersion;
use crate::model::time::Timestamp;

/// The label of the agents' Pods, in every chart and manifest of Cilium since 1.0.
pub const SELECTOR: &str = "k8s-app=cilium";

/// The name in paths.
pub const PLURAL: &str = "pods";

/// The container of the agent in its Pod.
const CONTAINER: &str = "cilium-agent";

/// The label that names the agent version if the image does not. Helm sets it by `podLabels`.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";

impl SideKind for AgentPod {
    type Served = ();

    fn path((): &()) -> KindPath {
        KindPath { group: "", version: "v1", kind: "Pod", plural: PLURAL }
    }

    /// The agent in it; `None` if the Pod can't be read, or is bound to no node yet.
    fn read(json: &str, meta: &Meta) -> Option<Self> {
        agent_in(serde_json::from_str(json).ok()?, meta)
    }
}

fn agent_in(pod: Pod, meta: &Meta) -> Option<AgentPod> {
    let node = pod.spec.node_name.filter(|node| !node.is_empty())?;
    let image = pod.spec.containers.into_iter().find(|container| container.name == CONTAINER)?.image;
    let runs = pod.status.container_statuses.into_iter().flatten().find(|status| status.name == CONTAINER);
    let is_ready = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
    let named = |text: &String| text.parse().ok();
    let release = CiliumVersion::of_image(&image)
        // The name under which the node pulled a digest, if it knows one.
        .or_else(|| runs.as_ref().and_then(|status| CiliumVersion::of_image(&status.image)))
        .or_else(|| pod.metadata.labels.as_ref()?.get(VERSION_LABEL).and_then(named));
    Some(AgentPod {
        name: meta.name.as_str().into(),
        uid: meta.uid.as_str().into(),
        node: node.into(),
        deleting: meta.is_deleting(),
        ended: matches!(pod.status.phase.as_str(), "Succeeded" | "Failed"),
        ready: pod.status.conditions.iter().flatten().any(is_ready),
        started: runs.and_then(|status| {
            let at: Timestamp = status.state.running?.started_at?.parse().ok()?;
            Some(ContainerStart { at, n_restarts: status.restart_count })
        }),
        release,
    })
}

#[derive(Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: PodMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
struct PodMeta {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    #[serde(default)]
    image: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    #[serde(default)]
    phase: String,
    conditions: Option<Vec<Condition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    image: String,
    #[serde(default)]
    restart_count: u32,
    #[serde(default)]
    state: ContainerState,
}

#[derive(Default, Deserialize)]
struct ContainerState {
    running: Option<Running>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Running {
    started_at: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::side_watched::tests;
    use super::*;

    fn read(pod: &Value) -> Option<AgentPod> {
        tests::read(pod)
    }

    /// A Pod as Cilium's chart and the kubelet make it, with only the fields that are read and a few others.
    fn pod() -> Value {
        json!({
            "metadata": {
                "name": "cilium-x7k2p", "uid": "u", "resourceVersion": "7", "namespace": "kube-system",
                "labels": {"k8s-app": "cilium", "app.kubernetes.io/name": "cilium-agent"},
            },
            "spec": {
                "nodeName": "n0", "hostNetwork": true,
                "containers": [
                    {"name": "sidecar", "image": "registry.example.com/log:v9.9.9"},
                    {"name": "cilium-agent", "image": "quay.io/cilium/cilium:v1.17.8@sha256:00ff", "env": []},
                ],
            },
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": "PodReadyToStartContainers", "status": "True"},
                    {"type": "Ready", "status": "True", "lastProbeTime": null},
                ],
                "containerStatuses": [
                    {"name": "sidecar", "image": "log", "restartCount": 9, "state": {"waiting": {}}},
                    {"name": "cilium-agent", "image": "quay.io/cilium/cilium:v1.17.8", "restartCount": 2, "ready": true,
                     "state": {"running": {"startedAt": "2026-11-22T06:31:33Z"}},
                     "lastState": {"terminated": {"exitCode": 1}}},
                ],
            },
        })
    }

    /// The Pod, with this value at this place.
    fn with(place: &str, value: &Value) -> Value {
        let mut pod = pod();
        *pod.pointer_mut(place).unwrap() = value.clone();
        pod
    }

    #[test]
    fn a_pod_tells_where_its_agent_runs_since_when_and_which_release() {
        let expected = AgentPod {
            name: "cilium-x7k2p".into(),
            uid: "u".into(),
            node: "n0".into(),
            deleting: false,
            ended: false,
            ready: true,
            started: Some(ContainerStart { at: "2026-11-22T06:31:33Z".parse().unwrap(), n_restarts: 2 }),
            release: Some(CiliumVersion::new(1, 17, 8)),
        };
        assert_eq!(read(&pod()), Some(expected));
    }

    #[test]
    fn a_pod_that_does_not_run_its_agent_says_so() {
        let not_ready = read(&with("/status/conditions/1/status", &json!("False"))).unwrap();
        assert!(!not_ready.ready);
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let crashing = read(&with("/status/containerStatuses/1/state", &waiting)).unwrap();
        assert_eq!((crashing.started, crashing.release), (None, Some(CiliumVersion::new(1, 17, 8))));
        for phase in ["Succeeded", "Failed"] {
            assert!(read(&with("/status/phase", &json!(phase))).unwrap().ended);
        }
        let pending = read(&with("/status", &json!({"phase": "Pending"}))).unwrap();
        assert_eq!((pending.ready, pending.ended, pending.started), (false, false, None));
        let mut going = pod();
        going["metadata"]["deletionTimestamp"] = json!("2026-11-22T07:00:00Z");
        assert!(read(&going).unwrap().deleting);
    }

    #[test]
    fn the_release_is_that_of_the_image_else_what_was_pulled_else_a_label() {
        let digest = json!("registry.example.com:5000/cilium@sha256:00ff");
        let by_digest = with("/spec/containers/1/image", &digest);
        assert_eq!(read(&by_digest).unwrap().release, Some(CiliumVersion::new(1, 17, 8)));
        let mut unnamed = by_digest;
        unnamed["status"]["containerStatuses"][1]["image"] = digest;
        assert_eq!(read(&unnamed).unwrap().release, None);
        unnamed["metadata"]["labels"][VERSION_LABEL] = json!("v1.16.3");
        assert_eq!(read(&unnamed).unwrap().release, Some(CiliumVersion::new(1, 16, 3)));
        unnamed["metadata"]["labels"][VERSION_LABEL] = json!("latest");
        assert_eq!(read(&unnamed).unwrap().release, None);
    }

    #[test]
    fn of_a_pod_without_a_node_or_an_agent_nothing_is_known() {
        let mut unbound = pod();
        unbound["spec"].as_object_mut().unwrap().remove("nodeName");
        assert_eq!(read(&unbound), None);
        assert_eq!(read(&with("/spec/nodeName", &json!(""))), None);
        assert_eq!(read(&with("/spec/containers", &json!([{"name": "other", "image": "x:v1.2.3"}]))), None);
        assert_eq!(read(&with("/spec/containers", &json!(5))), None);
        assert_eq!(read(&json!({"metadata": {"name": 5}})), None);
    }
}
