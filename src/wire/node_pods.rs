//! The Pods of one node on the wire: their addresses, and which of them are Cilium's agents.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

use super::agent_pod::SELECTOR;
use super::side_watched::SideWatched;
use crate::model::agent::{AgentPod, PodsOnNode};

/// The field by which the Pods of one node are listed.
pub const NODE_FIELD: &str = "spec.nodeName";

/// The facts in all Pods that are bound to one node. `namespace` is that of Cilium.
#[must_use]
pub fn pods_on_node(pods: &[Pod], namespace: &str) -> PodsOnNode {
    let mut found = PodsOnNode::default();
    for pod in pods {
        let agent = agent_in(pod, namespace);
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let addresses = addresses_of(pod);
        found.n_starting += usize::from(needs_address(pod) && addresses.is_empty() && agent.is_none());
        for address in addresses {
            found.holders.insert(address, format!("{namespace}/{name}"));
        }
        found.agents.extend(agent);
    }
    found
}

/// The agent in a Pod, by the label and the namespace by which the controller finds agents.
fn agent_in(pod: &Pod, namespace: &str) -> Option<AgentPod> {
    let (key, value) = SELECTOR.split_once('=')?;
    let is_agent = pod.metadata.namespace.as_deref() == Some(namespace)
        && pod.metadata.labels.as_ref()?.get(key).is_some_and(|found| found == value);
    let json = is_agent.then(|| serde_json::to_value(pod).ok())??;
    serde_json::from_value::<SideWatched<_>>(json).ok()?.into_value()
}

/// Whether a Pod has an address of its own, or waits for one. A Pod on the network of its host has the addresses of the
/// node, and a finished Pod has none.
fn needs_address(pod: &Pod) -> bool {
    let on_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !on_host && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The addresses that a Pod has of its own.
fn addresses_of(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = pod.status.as_ref().filter(|_| needs_address(pod)) else {
        return Vec::new();
    };
    let listed = status.pod_ips.iter().flatten().map(|found| found.ip.as_str());
    let texts = listed.chain(status.pod_ip.as_deref());
    texts.filter_map(|text| text.parse::<IpAddr>().ok()).map(|address| address.to_canonical()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found(pods: Value) -> String {
        let pods: Vec<Pod> = serde_json::from_value(pods).unwrap();
        let found = pods_on_node(&pods, "kube-system");
        let agents = found.agents.iter().map(|agent| format!("agent {}", agent.name));
        let holders = found.holders.iter().map(|(address, pod)| format!("{address} {pod}"));
        let starting = (found.n_starting > 0).then(|| format!("{} starting", found.n_starting));
        agents.chain(holders).chain(starting).collect::<Vec<_>>().join(", ")
    }

    fn pod(name: &str, spec: &Value, status: &Value) -> Value {
        json!({ "metadata": { "namespace": "apps", "name": name }, "spec": spec, "status": status })
    }

    #[test]
    fn a_pod_holds_its_addresses_unless_it_has_ended_or_is_on_the_host() {
        let spec = json!({ "nodeName": "n", "containers": [] });
        let on_host = json!({ "nodeName": "n", "hostNetwork": true, "containers": [] });
        let both = json!({ "phase": "Running", "podIP": "10.0.0.5",
                           "podIPs": [{ "ip": "10.0.0.5" }, { "ip": "fd00::5" }] });
        let one = |phase: &str, ip: &str| json!({ "phase": phase, "podIP": ip });
        let pods = json!([
            pod("a", &spec, &both),
            pod("going", &spec, &one("Running", "10.0.0.6")),
            pod("done", &spec, &one("Succeeded", "10.0.0.7")),
            pod("host", &on_host, &one("Running", "192.168.0.1")),
            pod("new", &spec, &json!({ "phase": "Pending" })),
            pod("pending", &spec, &one("Pending", "::ffff:10.0.0.8")),
        ]);
        assert_eq!(
            found(pods),
            "10.0.0.5 apps/a, 10.0.0.6 apps/going, 10.0.0.8 apps/pending, fd00::5 apps/a, 1 starting"
        );
    }

    #[test]
    fn an_agent_is_one_by_its_label_in_the_namespace_of_cilium() {
        let agent = |namespace: &str, label: &str| {
            json!({
                "metadata": { "namespace": namespace, "name": label, "labels": { "k8s-app": label } },
                "spec": { "nodeName": "n", "hostNetwork": true,
                          "containers": [{ "name": "cilium-agent", "image": "cilium:v1.20.2" }] },
            })
        };
        let pods = json!([
            agent("kube-system", "cilium"),
            agent("kube-system", "cilium-operator"),
            agent("other", "cilium")
        ]);
        assert_eq!(found(pods), "agent cilium");
    }
}
