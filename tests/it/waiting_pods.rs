//! The Pods that are bound to a node and have no address, as `status` and `why` name them on a real API server. There is
//! neither a controller nor a kubelet.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::answers::ask;
use crate::support::control_plane::Options;
use crate::support::kubectl::apply;
use crate::support::kubelet::create_running;
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::rig::without_product;

/// Rights to everything that `status` reads, except Pods.
const BLIND: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: blind}
rules:
- {apiGroups: [""], resources: [nodes, configmaps], verbs: [get, list]}
- {apiGroups: [nodeipam.io, cilium.io], resources: ["*"], verbs: [get, list]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: blind}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: blind}
subjects: [{kind: User, name: blind}]
"#;

/// Creates a Pod with this specification, which was bound so many seconds ago and is starting.
async fn create_starting(pods: &Api<Pod>, name: &str, spec: Value, bound_for: i64) -> Result<()> {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "app", "image": "app"}]);
    let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
    pods.create(&PostParams::default(), &pod).await?;
    let since = (Timestamp::now() - SignedDuration::from_secs(bound_for)).to_string();
    let bound = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": since});
    let status = json!({"status": {"phase": "Pending", "conditions": [bound]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_without_an_address_are_named_a_minute_after_their_binding() -> Result<()> {
    without_product(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/26"])).await?;
        for name in ["n1", "n2"] {
            rig.cluster.create_node(&NodeSpec::new(name)).await?;
        }
        let pods: Api<Pod> = Api::namespaced(plane.admin.clone(), "default");
        create_running(&pods, "runs", "n1", &["10.1.0.5".parse()?]).await?;
        create_starting(&pods, "hangs-1", json!({"nodeName": "n1"}), 300).await?;
        create_starting(&pods, "hangs-2", json!({"nodeName": "n1"}), 90).await?;
        create_starting(&pods, "new", json!({"nodeName": "n1"}), 0).await?;
        create_starting(&pods, "host", json!({"nodeName": "n2", "hostNetwork": true}), 300).await?;
        create_starting(&pods, "unbound", json!({}), 300).await?;
        create_starting(&pods, "lost", json!({"nodeName": "no-such-node"}), 300).await?;

        let status = ask(plane, &["status"]).await?;
        let said =
            "WaitingPods: 2 pods on 1 node without an address, more than 60 s after the binding: n1 (2)";
        ensure!(status.code == Some(1) && status.says(said), "{}{}", status.text, status.errors);
        status.assert_lines(&["next: cilium-node-ipam why n1"])?;
        let object = ask(plane, &["status", "-o", "json"]).await?.json()?;
        let problems = object["problems"].as_array().context("no problems")?;
        let found = problems.iter().find(|problem| problem["kind"] == "WaitingPods").context("none")?;
        ensure!(found["severity"] == "warning" && found["subjects"] == json!(["n1"]), "{found}");
        ensure!(object["skipped"] == json!([]), "{object}");

        let why = ask(plane, &["why", "n1"]).await?;
        let said = "problem WaitingPods: 2 pods without an address, more than 60 s after the binding: \
                    default/hangs-1, default/hangs-2";
        ensure!(why.says(said), "{}{}", why.text, why.errors);
        why.assert_lines(&["run kubectl get pods -A -o wide --field-selector spec.nodeName=n1"])?;
        let reason = ask(plane, &["why", "n1", "-o", "json"]).await?.json()?;
        ensure!(reason["waitingPods"][1]["name"] == "default/hangs-2", "{reason}");
        let other = ask(plane, &["why", "n2", "-o", "json"]).await?.json()?;
        ensure!(other["waitingPods"] == json!([]), "{other}");

        // A user who may not list Pods reads that, and sees all the rest.
        apply(plane, BLIND).await?;
        let blind = ask(plane, &["status", "--as", "blind"]).await?;
        let unseen = "Not seen: Pods, because you are not allowed to list them.";
        ensure!(blind.code == Some(1) && !blind.says("WaitingPods"), "{}{}", blind.text, blind.errors);
        blind.assert_lines(&[unseen])?;
        let blind = ask(plane, &["why", "n1", "--as", "blind"]).await?;
        ensure!(blind.says("labels none") && !blind.says("WaitingPods"), "{}{}", blind.text, blind.errors);
        ensure!(blind.errors.contains("not seen: Pods"), "{}", blind.errors);
        Ok(())
    })
    .await
}
