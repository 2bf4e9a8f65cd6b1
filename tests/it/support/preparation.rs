//! The steps of an administrator before the controller serves a cluster, in the modes of Cilium that need some.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;

use super::kubectl::kubectl;
use super::rig::Rig;

/// The rights that the chart renders for the mode kubernetes, such as that to patch Nodes.
pub(crate) const KUBERNETES_MODE: &str = "tests/it/install/rendered/kubernetes-rights.yaml";

/// Does the steps that the mode of this cluster needs, where blocks have this size.
pub(crate) async fn prepare(rig: &Rig, block_size: u8) -> Result<()> {
    match rig.control_plane.options.ipam {
        "multi-pool" => create_default_pool(&rig.cluster.client, block_size).await,
        "kubernetes" => {
            if rig.control_plane.options.annotations {
                have_agents_annotate(rig).await?;
            }
            grant(rig).await
        }
        _ => Ok(()),
    }
}

/// Cilium's own object of the default pool, without which an agent of 1.20 does not start.
pub(crate) async fn create_default_pool(client: &Client, block_size: u8) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cilium.io", "v2alpha1", "CiliumPodIPPool"));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let spec = json!({"ipv4": {"cidrs": ["10.0.0.0/8"], "maskSize": block_size}});
    let pool = DynamicObject::new("default", &resource).data(json!({"spec": spec}));
    api.create(&PostParams::default(), &pool).await.context("creating the CiliumPodIPPool")?;
    Ok(())
}

/// Makes agents annotate their Nodes, and read the annotations of other writers.
async fn have_agents_annotate(rig: &Rig) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(rig.cluster.client.clone(), "kube-system");
    let patch = Patch::Merge(json!({"data": {"annotate-k8s-node": "true"}}));
    api.patch("cilium-config", &PatchParams::default(), &patch).await.context("changing cilium-config")?;
    Ok(())
}

/// The right to patch Nodes, which only one mode has.
async fn grant(rig: &Rig) -> Result<()> {
    // The server has been given the manifests already, by another field manager.
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", KUBERNETES_MODE];
    kubectl(&rig.control_plane, &apply).await.map(drop)
}
