//! Removes settings and annotations that the program does not read from objects: any of them may hold a password.

use serde_json::{Map, Value};

use crate::model::node::POD_CIDR_ANNOTATIONS;
use crate::wire::GROUP;

/// The keys of `cilium-config`, and so of CiliumNodeConfigs, that the controller or a command reads.
const SETTINGS: [&str; 31] = [
    "annotate-k8s-node",
    "auto-create-cilium-node-resource",
    "auto-direct-node-routes",
    "cluster-pool-ipv4-cidr",
    "cluster-pool-ipv6-cidr",
    "egress-masquerade-interfaces",
    "enable-bgp-control-plane",
    "enable-bpf-masquerade",
    "enable-endpoint-health-checking",
    "enable-endpoint-routes",
    "enable-envoy-config",
    "enable-gateway-api",
    "enable-health-checking",
    "enable-ingress-controller",
    "enable-ipsec",
    "enable-ipv4",
    "enable-ipv4-masquerade",
    "enable-ipv6",
    "enable-ipv6-masquerade",
    "ipam",
    "ipam-default-ip-pool",
    "ipam-static-ip-tags",
    "ipv4-native-routing-cidr",
    "ipv4-range",
    "ipv6-native-routing-cidr",
    "k8s-require-ipv4-pod-cidr",
    "k8s-require-ipv6-pod-cidr",
    "kvstore",
    "native-routing-cidr",
    "routing-mode",
    "tunnel",
];

/// Removes them from an object, or from each object of a list.
pub(super) fn remove_unread(object: &mut Value) {
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        remove_unread(item);
    }
    let settings = match object["kind"].as_str() {
        Some("ConfigMap") if object["metadata"]["name"] == "cilium-config" => Some("/data"),
        Some("CiliumNodeConfig") => Some("/spec/defaults"),
        Some(_) | None => None,
    };
    if let Some(settings) = settings.and_then(|path| object.pointer_mut(path)).and_then(Value::as_object_mut)
    {
        settings.retain(|key, _| SETTINGS.contains(&key.as_str()));
    }
    let Some(fields) = object.as_object_mut() else { return };
    // No program of ours reads one.
    fields.remove("binaryData");
    let annotations = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        retain_read(annotations);
    }
}

fn retain_read(annotations: &mut Map<String, Value>) {
    annotations.retain(|key, _| {
        let is_ours = key.split_once('/').is_some_and(|(group, _)| group == GROUP);
        is_ours || POD_CIDR_ANNOTATIONS.iter().any(|(_, read)| read == key)
    });
}

#[cfg(test)]
mod tests {
    use regex::Regex;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_read_settings_and_annotations_stay() {
        let annotations = json!({
            "nodeipam.io/ignore-former-mode": "10.0.0.0/24", "network.cilium.io/ipv4-pod-cidr": "10.0.0.0/24",
            "csi.volume.kubernetes.io/nodeid": "sesame", "kubeadm.alpha.kubernetes.io/cri-socket": "sesame",
        });
        let settings = json!({"ipam": "crd", "kvstore": "etcd", "kvstore-opt": "sesame", "debug": "sesame"});
        let mut list = json!({"kind": "List", "items": [
            {"kind": "Node", "metadata": {"name": "n", "annotations": annotations}, "spec": {"podCIDR": "10.0.0.0/24"}},
            {"kind": "CiliumNodeConfig", "spec": {"defaults": settings, "nodeSelector": {}}},
            {"kind": "ConfigMap", "metadata": {"name": "cilium-config"}, "data": settings, "binaryData": {"a": "sesame"}},
            {"kind": "ConfigMap", "metadata": {"name": "cilium-node-ipam"}, "data": {"reason": "a test"}},
        ]});
        remove_unread(&mut list);
        let settings = json!({"ipam": "crd", "kvstore": "etcd"});
        let expected = json!({"kind": "List", "items": [
            {"kind": "Node", "spec": {"podCIDR": "10.0.0.0/24"}, "metadata": {"name": "n", "annotations": {
                "nodeipam.io/ignore-former-mode": "10.0.0.0/24", "network.cilium.io/ipv4-pod-cidr": "10.0.0.0/24",
            }}},
            {"kind": "CiliumNodeConfig", "spec": {"defaults": settings, "nodeSelector": {}}},
            {"kind": "ConfigMap", "metadata": {"name": "cilium-config"}, "data": settings},
            {"kind": "ConfigMap", "metadata": {"name": "cilium-node-ipam"}, "data": {"reason": "a test"}},
        ]});
        assert_eq!(list, expected);
    }

    #[test]
    fn every_setting_that_the_code_names_is_kept() {
        let sources = [
            include_str!("../../publisher/settings.rs"),
            include_str!("../../publisher/overrides.rs"),
            include_str!("../../view/preflight/cilium.rs"),
            include_str!("../../view/preflight/node_ranges.rs"),
        ];
        // A key has a hyphen, or is looked up by a word.
        let named = Regex::new(r#""([a-z0-9]+(?:-[a-z0-9]+)+)"|get\("([a-z0-9]+)"\)"#).unwrap();
        let modes = ["cluster-pool", "multi-pool"];
        for source in sources {
            for found in named.captures_iter(source) {
                let key = found.get(1).or_else(|| found.get(2)).unwrap().as_str();
                assert!(SETTINGS.contains(&key) || modes.contains(&key), "{key} is not kept");
            }
        }
    }
}
