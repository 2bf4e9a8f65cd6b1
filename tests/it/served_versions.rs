//! Cilium's kinds in other versions than those of its newest release: the controller finds the version that the server
//! serves, and follows it when that changes.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::agent_pods::create_agent_pod;
use crate::multi_pool::multi_pool;
use crate::node_configs::{RACK, wait_findings};
use crate::pod_ip_pools::{self, wait_fits, wait_reported};
use crate::scene::{PROMPT, SOON, cilium_node, insist};
use crate::support::controller::Controller;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

const V2: &str = "v2";
const V2ALPHA1: &str = "v2alpha1";
/// The answer to a request in the earlier version, where both are served.
const WARNING: &str = "cilium.io/v2alpha1 of this kind is deprecated; use cilium.io/v2";

/// A kind of Cilium's.
#[derive(Clone, Copy)]
struct Definition {
    name: &'static str,
    kind: &'static str,
    namespace: Option<&'static str>,
}

const POOLS: Definition =
    Definition { name: "ciliumpodippools.cilium.io", kind: "CiliumPodIPPool", namespace: None };
const CONFIGS: Definition = Definition {
    name: "ciliumnodeconfigs.cilium.io",
    kind: "CiliumNodeConfig",
    namespace: Some("kube-system"),
};

fn definitions(rig: &Rig) -> (Api<DynamicObject>, ApiResource) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let resource = ApiResource::from_gvk(&kind);
    (Api::all_with(rig.cluster.client.clone(), &resource), resource)
}

impl Definition {
    fn api(self, rig: &Rig, version: &str) -> (Api<DynamicObject>, ApiResource) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cilium.io", version, self.kind));
        let client = rig.cluster.client.clone();
        let api = match self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        (api, resource)
    }

    async fn create(self, rig: &Rig, version: &str, name: &str, labels: Value, spec: Value) -> Result<()> {
        let (api, resource) = self.api(rig, version);
        let mut object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        object.metadata.labels = serde_json::from_value(labels)?;
        api.create(&PostParams::default(), &object).await.with_context(|| format!("creating {name}"))?;
        Ok(())
    }

    /// Makes the server serve the kind in these versions and in no other, and returns when it does.
    async fn serve(self, rig: &Rig, served: &[&str]) -> Result<()> {
        rig.control_plane.keep_to_this_test();
        let definitions = definitions(rig).0;
        let before = definitions.get(self.name).await?.data["spec"]["versions"].clone();
        let patch = json!({"spec": {"versions": versions(&before, served)}});
        definitions.patch(self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        self.wait_served(rig, served).await
    }

    async fn wait_served(self, rig: &Rig, served: &[&str]) -> Result<()> {
        for version in [V2, V2ALPHA1] {
            let api = self.api(rig, version).0;
            insist(rig, async || {
                let is_served = api.list(&ListParams::default()).await.is_ok();
                ensure!(is_served == served.contains(&version), "{version} is served: {is_served}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

/// Both versions of a kind; only the given ones are served. As on Cilium's main branch the later version of a pool has
/// one more field, and the earlier one is deprecated beside it.
fn versions(before: &Value, served: &[&str]) -> Value {
    let before = before.as_array().into_iter().flatten();
    let of = |name: &str| before.clone().find(|version| version["name"] == name);
    let versions = [V2, V2ALPHA1].map(|name| {
        let mut version = of(name).or(before.clone().next()).expect("it has a version").clone();
        let is_deprecated = name == V2ALPHA1 && served.contains(&V2);
        version["name"] = json!(name);
        version["served"] = json!(served.contains(&name));
        version["storage"] = json!(name == V2);
        version["deprecated"] = json!(is_deprecated);
        version["deprecationWarning"] = if is_deprecated { json!(WARNING) } else { Value::Null };
        let families =
            version.pointer_mut("/schema/openAPIV3Schema/properties/spec/properties/ipv4/properties");
        if let Some(fields) = families.filter(|_| name == V2) {
            let entry = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            fields["pool"] = json!({"type": "array", "items": entry});
        }
        version
    });
    Value::Array(versions.into())
}

/// A node whose agent requests addresses, without the agent: no Cilium version in these tests knows the later version.
async fn join(rig: &Rig, node: NodeSpec, pool: &str) -> Result<()> {
    let name = node.name.clone();
    let requested = json!([{"pool": pool, "needed": {"ipv4-addrs": 8}}]);
    rig.cluster.create_node(&node).await?;
    create_agent_pod(rig, &format!("cilium-{name}"), &name, "1.20.2").await?;
    rig.cluster
        .create(&cilium_node(&name, &json!({"pools": {"requested": requested}})), Kind::CiliumNode)
        .await?;
    Ok(())
}

async fn wait_served(rig: &Rig, node: &str) -> Result<()> {
    rig.cluster.wait_published(node, "a block", SOON, |seen| !seen.pod_cidrs.is_empty()).await.map(drop)
}

/// A pool whose blocks are for the Cilium pool of this name.
fn pool(name: &str, cidr: &str) -> PoolSpec {
    PoolSpec::new(name).ipv4(28, &[cidr]).with("podIPPool", name)
}

/// A version of Cilium that has dropped the earlier version of the kind.
#[tokio::test(flavor = "multi_thread")]
async fn with_the_later_version_alone_nodes_are_served_and_missing_pools_are_created() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        POOLS.serve(rig, &[V2]).await?;
        let reserved =
            json!([{"cidr": "10.9.0.0/24", "reservedRanges": [{"start": "10.9.0.1", "end": "10.9.0.5"}]}]);
        let ours = json!({"app.kubernetes.io/managed-by": "cilium-node-ipam"});
        let spec = json!({"ipv4": {"cidrs": ["10.9.0.0/24"], "maskSize": 28, "pool": reserved}});
        POOLS.create(rig, V2, "mars", ours, spec).await?;
        rig.cluster.create_pool(&pool("mars", "10.1.0.0/24")).await?;
        rig.cluster.create_pool(&pool("venus", "10.2.0.0/24")).await?;
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", pod_ip_pools::CREATING];
        kubectl(&rig.control_plane, &apply).await?;
        let flags = [PROMPT, &["--create-podippools"]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        wait_fits(rig, "mars").await?;
        wait_fits(rig, "venus").await?;
        join(rig, NodeSpec::new("m"), "mars").await?;
        join(rig, NodeSpec::new("v"), "venus").await?;
        wait_served(rig, "m").await?;
        wait_served(rig, "v").await?;

        let found = async |name: &str| anyhow::Ok(POOLS.api(rig, V2).0.get(name).await?.data["spec"].clone());
        insist(rig, async || {
            let ranges = found("mars").await?["ipv4"]["cidrs"].clone();
            ensure!(ranges == json!(["10.9.0.0/24", "10.1.0.0/24"]), "{ranges}");
            Ok(())
        })
        .await?;
        // The field of the later version is unchanged.
        ensure!(found("mars").await?["ipv4"]["pool"] == reserved, "{}", found("mars").await?);
        let created = found("venus").await?["ipv4"].clone();
        ensure!(created == json!({"cidrs": ["10.2.0.0/24"], "maskSize": 28}), "{created}");
        Ok(controller)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_ends_is_replaced_by_the_one_that_is_served() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        POOLS.serve(rig, &[V2ALPHA1]).await?;
        let spec = json!({"ipv4": {"cidrs": ["10.1.0.0/24"], "maskSize": 28}});
        POOLS.create(rig, V2ALPHA1, "mars", Value::Null, spec.clone()).await?;
        rig.cluster.create_pool(&pool("mars", "10.1.0.0/24")).await?;
        rig.cluster.create_pool(&pool("venus", "10.2.0.0/24")).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        join(rig, NodeSpec::new("m"), "mars").await?;
        wait_served(rig, "m").await?;
        wait_reported(rig, "venus", "PodIPPoolMissing").await?;

        // Cilium is upgraded.
        POOLS.serve(rig, &[V2ALPHA1, V2]).await?;
        controller.wait_logged(WARNING, SOON).await?;
        POOLS.serve(rig, &[V2]).await?;
        POOLS.create(rig, V2, "venus", Value::Null, spec.clone()).await?;
        wait_fits(rig, "venus").await?;
        join(rig, NodeSpec::new("v"), "venus").await?;
        wait_served(rig, "v").await?;
        let log = std::fs::read_to_string(controller.log())?;
        ensure!(log.matches(WARNING).count() == 1, "it is not logged once: {log}");

        // And back.
        POOLS.serve(rig, &[V2ALPHA1]).await?;
        let delete = DeleteParams::default();
        POOLS.api(rig, V2ALPHA1).0.delete("venus", &delete).await?;
        wait_reported(rig, "venus", "PodIPPoolMissing").await?;
        Ok(controller)
    })
    .await
}

/// An administrator has given one node another mode.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_for_a_node_is_followed_through_all_versions_and_the_end_of_the_kind() -> Result<()> {
    under_oracle(multi_pool(), async |rig| {
        let spec = json!({"ipv4": {"cidrs": ["10.1.0.0/24"], "maskSize": 28}});
        POOLS.create(rig, V2ALPHA1, "mars", Value::Null, spec).await?;
        rig.cluster.create_pool(&pool("mars", "10.1.0.0/24")).await?;
        CONFIGS.serve(rig, &[V2ALPHA1]).await?;
        let set = |ipam: &str| {
            json!({"nodeSelector": {"matchLabels": {(RACK.0): RACK.1}}, "defaults": {"ipam": ipam}})
        };
        CONFIGS.create(rig, V2ALPHA1, "a", Value::Null, set("multi-pool")).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        join(rig, NodeSpec::new("n").label(RACK.0, RACK.1), "mars").await?;
        wait_served(rig, "n").await?;
        wait_findings(rig, &controller, 0).await?;

        CONFIGS.serve(rig, &[V2]).await?;
        let other_mode = Patch::Merge(json!({"spec": set("cluster-pool")}));
        CONFIGS.api(rig, V2).0.patch("a", &PatchParams::default(), &other_mode).await?;
        wait_findings(rig, &controller, 1).await?;

        let (definitions, resource) = definitions(rig);
        let definition = definitions.get(CONFIGS.name).await?;
        definitions.delete(CONFIGS.name, &DeleteParams::default()).await?;
        wait_findings(rig, &controller, 0).await?;
        CONFIGS.wait_served(rig, &[]).await?;

        let again = DynamicObject::new(CONFIGS.name, &resource).data(json!({"spec": definition.data["spec"]}));
        insist(rig, async || Ok(definitions.create(&PostParams::default(), &again).await?)).await?;
        CONFIGS.wait_served(rig, &[V2]).await?;
        CONFIGS.create(rig, V2, "a", Value::Null, set("cluster-pool")).await?;
        wait_findings(rig, &controller, 1).await?;
        CONFIGS.api(rig, V2).0.delete("a", &DeleteParams::default()).await?;
        wait_findings(rig, &controller, 0).await?;
        Ok(controller)
    })
    .await
}
