//! Objects as a watch shows them: Nodes, CiliumNodes, pools, claims, Pods and ConfigMaps with any content.
#![no_main]

use cilium_node_ipam::wire::block::Claims;
use cilium_node_ipam::wire::check::{check_document, offline_pool, warnings};
use cilium_node_ipam::wire::cilium_node::CiliumNodes;
use cilium_node_ipam::wire::freeze::freeze_of;
use cilium_node_ipam::wire::node::Nodes;
use cilium_node_ipam::wire::node_pods::pods_on_node;
use cilium_node_ipam::wire::pool::Pools;
use cilium_node_ipam::wire::watched::Watched;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|json: &str| {
    // An object that can't be read is a value too.
    drop(serde_json::from_str::<Watched<Nodes>>(json).map(Watched::into_object));
    drop(serde_json::from_str::<Watched<CiliumNodes>>(json).map(Watched::into_object));
    drop(serde_json::from_str::<Watched<Pools>>(json).map(Watched::into_object));
    drop(serde_json::from_str::<Watched<Claims>>(json).map(Watched::into_object));
    if let Ok(pod) = serde_json::from_str::<Pod>(json) {
        drop(pods_on_node(&[pod], "kube-system"));
    }
    if let Ok(map) = serde_json::from_str::<ConfigMap>(json) {
        drop(freeze_of(Some(&map), "kube-system"));
    }
    if let Ok(document) = serde_json::from_str::<Value>(json) {
        let accepted = check_document(&document).is_empty();
        let pool = offline_pool(&document);
        drop(warnings(&document));
        let is_pool = document["kind"] == "NodeIPPool" && document["apiVersion"] == "nodeipam.io/v1alpha1";
        assert!(!accepted || !is_pool || pool.is_some(), "a pool that the server accepts can't be read: {json}");
    }
});
