//! The admission policies of the chart on a real API server, both ways: they refuse and warn as they should, and
//! the controller serves nodes under them in each mode.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::helm::{CHART, program};
use super::{NAME, NAMESPACE, SOON};
use crate::support::agent::Release;
use crate::support::control_plane::Options;
use crate::support::eventually::eventually;
use crate::support::families::Families;
use crate::support::kubectl::kubectl;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, without_product};
use crate::{multi_pool, reclaim, static_modes};

const CONFIRMATION: &str = "nodeipam.io/confirm-delete";

/// The options with the policies that the chart renders for these modes, in a file below the directory.
fn with_policies(modes: &str, options: Options) -> Result<(TempDir, Options)> {
    let folder = tempfile::tempdir()?;
    let output = Command::new(program("3"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .args(["template", NAME, CHART, "--namespace", NAMESPACE, "--set", &format!("modes={{{modes}}}")])
        .args(["--show-only", "templates/admission.yaml"])
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let file = folder.path().join("policies.yaml");
    std::fs::write(&file, output.stdout)?;
    let mut options = options;
    options.manifests.push(file);
    Ok((folder, options))
}

/// A patch that is not persisted; the message if the server refuses it.
async fn refusal(
    client: &Client,
    kind: Kind,
    name: &str,
    subresource: &str,
    patch: Value,
) -> Result<Option<String>> {
    let (api, params) = (kind.api(client), PatchParams { dry_run: true, ..PatchParams::default() });
    let answer = match subresource {
        "status" => api.patch_status(name, &params, &Patch::Merge(patch)).await,
        _ => api.patch(name, &params, &Patch::Merge(patch)).await,
    };
    match answer {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.message.contains("ValidatingAdmissionPolicy") => {
            Ok(Some(status.message.clone()))
        }
        Err(error) => Err(error).context("neither allowed nor refused by a policy"),
    }
}

/// Returns when the server has taken in the policies, as the check shows. It takes them in by itself, without news.
async fn wait_active(is_active: impl AsyncFn() -> Result<bool>) -> Result<()> {
    eventually(SOON, async || {
        ensure!(is_active().await?, "the policies are not active");
        Ok(())
    })
    .await
}

/// Returns when the server has taken in the policies for the account of the controller.
async fn wait_limited(rig: &Rig, node: &str) -> Result<()> {
    wait_active(async || {
        let patch = json!({"metadata": {"labels": {"a": "b"}}});
        Ok(refusal(&rig.control_plane.controller, Kind::CiliumNode, node, "", patch).await?.is_some())
    })
    .await
}

/// Whether a deletion that is not persisted is refused, and with which message.
async fn deletion(rig: &Rig, pool: &str) -> Result<Option<String>> {
    match Kind::Pool.api(&rig.control_plane.admin).delete(pool, &DeleteParams::default().dry_run()).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_blocks_is_deleted_after_a_confirmation_only() -> Result<()> {
    let (_folder, options) = with_policies("crd", Options::default())?;
    without_product(options, async |rig| {
        let cluster = &rig.cluster;
        for name in ["held", "draining", "cooling", "new"] {
            cluster.create_pool(&PoolSpec::new(name).select("zone", name).ipv4(28, &["10.1.0.0/24"])).await?;
        }
        for (name, field) in [("held", "held"), ("draining", "draining"), ("cooling", "cooling")] {
            let mut blocks = json!({"total": 16, "held": 0, "draining": 0, "cooling": 0, "free": 15});
            blocks[field] = json!(1);
            let addresses = json!({"published": 0, "free": 0});
            let status =
                json!({"status": {"conditions": [], "ipv4": {"blocks": blocks, "addresses": addresses}}});
            cluster.patch_status(Kind::Pool, name, status).await?;
        }
        let refused = async || Ok(deletion(rig, "held").await?.is_some());
        wait_active(refused).await?;
        let message = deletion(rig, "held").await?.context("it is refused")?;
        for part in [
            "cilium-node-ipam plan --delete-pool held",
            "kubectl annotate nip held nodeipam.io/confirm-delete=yes",
        ] {
            ensure!(message.contains(part), "{message}");
        }
        ensure!(deletion(rig, "draining").await?.is_some(), "a draining block is on a node");
        for name in ["cooling", "new"] {
            ensure!(deletion(rig, name).await?.is_none(), "{name}: {:?}", deletion(rig, name).await?);
        }
        let confirmed =
            json!({"metadata": {"annotations": {CONFIRMATION: "yes"}, "finalizers": ["example.com/stays"]}});
        cluster.patch(Kind::Pool, "held", confirmed).await?;
        cluster.delete(Kind::Pool, "held").await?;
        // A second deletion needs no confirmation.
        let undone = json!({"metadata": {"annotations": {CONFIRMATION: null}}});
        cluster.patch(Kind::Pool, "held", undone).await?;
        ensure!(deletion(rig, "held").await?.is_none(), "{:?}", deletion(rig, "held").await?);
        cluster.patch(Kind::Pool, "held", json!({"metadata": {"finalizers": null}})).await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_is_deleted_after_a_confirmation_only() -> Result<()> {
    let (_folder, options) = with_policies("crd", Options::default())?;
    without_product(options, async |rig| {
        let plane = &rig.control_plane;
        let delete = async |name: &str| {
            let arguments = ["delete", "crd", name, "--dry-run=server", "--wait=false"];
            Ok::<_, anyhow::Error>(kubectl(plane, &arguments).await.err().map(|error| format!("{error:#}")))
        };
        for name in ["nodeippools.nodeipam.io", "nodeipblocks.nodeipam.io"] {
            wait_active(async || Ok(delete(name).await?.is_some())).await?;
            let message = delete(name).await?.context("it is refused")?;
            let remedy = format!("kubectl annotate crd {name} nodeipam.io/confirm-delete=yes");
            ensure!(message.contains(&remedy), "{message}");
            kubectl(plane, &["annotate", "crd", name, "nodeipam.io/confirm-delete=yes"]).await?;
            ensure!(delete(name).await?.is_none(), "{:?}", delete(name).await?);
            kubectl(plane, &["annotate", "crd", name, "nodeipam.io/confirm-delete-"]).await?;
        }
        ensure!(delete("ciliumnodes.cilium.io").await?.is_none(), "definitions of others are not protected");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_for_every_node_and_a_public_range_bring_warnings() -> Result<()> {
    let (folder, options) = with_policies("crd", Options::default())?;
    without_product(options, async |rig| {
        let plane = &rig.control_plane;
        let file = folder.path().join("pool.yaml");
        let named = file.to_string_lossy();
        // kubectl fails with the text of a warning.
        let apply = ["apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "-f", &named];
        let warnings = async |spec: &str| -> Result<String> {
            let text = format!(
                "apiVersion: nodeipam.io/v1alpha1\nkind: NodeIPPool\nmetadata: {{name: p}}\nspec: {spec}\n"
            );
            std::fs::write(&file, text)?;
            Ok(kubectl(plane, &apply).await.err().map(|error| error.to_string()).unwrap_or_default())
        };
        let every_node = "the pool serves every node at once";
        let everywhere = "{ipv4: {blockSize: 28, cidrs: [{cidr: 10.1.0.0/24}]}}";
        let warned = async || Ok(warnings(everywhere).await?.contains(every_node));
        wait_active(warned).await?;
        let select = "nodeSelector: {matchLabels: {zone: a}}";
        let public = warnings(&format!(
            "{{{select}, ipv4: {{blockSize: 28, cidrs: [{{cidr: 10.1.0.0/24}}, {{cidr: 8.8.8.0/24}}]}}}}"
        ))
        .await?;
        ensure!(
            public.contains("8.8.8.0/24: public address space") && !public.contains(every_node),
            "{public}"
        );
        for range in ["10.0.0.0/8", "172.16.0.0/16", "192.168.7.0/24", "100.64.0.0/12"] {
            let none =
                warnings(&format!("{{{select}, ipv4: {{blockSize: 28, cidrs: [{{cidr: {range}}}]}}}}"))
                    .await?;
            ensure!(none.is_empty(), "{range}: {none}");
        }
        let of_ipv6 =
            warnings(&format!("{{{select}, ipv6: {{blockSize: 120, cidrs: [{{cidr: '2001:db8::/112'}}]}}}}"))
                .await?;
        ensure!(of_ipv6.is_empty(), "{of_ipv6}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_can_change_only_the_fields_of_its_mode() -> Result<()> {
    for (modes, allowed) in [("crd", "crd"), ("multi-pool", "multi-pool"), ("cluster-pool", "cluster-pool")] {
        let (_folder, options) = with_policies(modes, Options::default())?;
        without_product(options, async |rig| {
            rig.cluster.create_node(&NodeSpec::new("n")).await?;
            let spec = json!({"spec": {"addresses": [{"type": "InternalIP", "ip": "192.0.2.1"}]}});
            rig.cluster.create(&Kind::CiliumNode.object("n", spec), Kind::CiliumNode).await?;
            wait_limited(rig, "n").await?;
            let ours = &rig.control_plane.controller;
            let ipam = |fields: Value| json!({"spec": {"ipam": fields}});
            let marks = json!({"status": {"ipam": {"release-ips": {"0.0.0.0": "marked-for-release"}}}});
            for (subresource, patch, by) in [
                ("", json!({"metadata": {"annotations": {"nodeipam.io/later-than": "5"}}}), "any"),
                ("", json!({"metadata": {"managedFields": [{}]}}), "any"),
                ("", ipam(json!({"podCIDRs": ["10.1.0.0/28"]})), "crd cluster-pool"),
                ("", ipam(json!({"pool": {"10.1.0.1": {}}})), "crd"),
                ("", ipam(json!({"pools": {"allocated": [{"pool": "p", "cidrs": ["10.1.0.0/28"]}]}})), "multi-pool"),
                ("status", marks, "crd"),
                ("", ipam(json!({"min-allocate": 9})), ""),
                ("", json!({"spec": {"addresses": null}}), ""),
                ("", json!({"spec": {"encryption": {"key": 1}}}), ""),
                ("", json!({"metadata": {"labels": {"zone": "a"}}}), ""),
                ("", json!({"metadata": {"annotations": {"other": "5"}}}), ""),
                ("", json!({"metadata": {"finalizers": ["example.com/f"]}}), ""),
                ("status", json!({"status": {"ipam": {"used": {"10.1.0.1": {"owner": "x"}}}}}), ""),
                ("status", json!({"metadata": {"labels": {"zone": "a"}}, "status": {"ipam": {"operator-status": {"error": "x"}}}}), ""),
            ] {
                let refused = refusal(ours, Kind::CiliumNode, "n", subresource, patch.clone()).await?;
                let is_allowed = by == "any" || by.split(' ').any(|mode| mode == allowed);
                ensure!(refused.is_none() == is_allowed, "{modes}: {patch}: {refused:?}");
                // Only the account of the controller is limited.
                let other = refusal(&rig.control_plane.admin, Kind::CiliumNode, "n", subresource, patch.clone()).await?;
                ensure!(other.is_none(), "{patch}: {other:?}");
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_can_change_only_the_pod_cidrs_of_nodes() -> Result<()> {
    let (_folder, mut options) =
        with_policies("kubernetes", Options { ipam: "kubernetes", ..Options::default() })?;
    options
        .manifests
        .push(Path::new(env!("CARGO_MANIFEST_DIR")).join(crate::support::preparation::KUBERNETES_MODE));
    without_product(options, async |rig| {
        rig.cluster.create_node(&NodeSpec::new("n").label("zone", "a")).await?;
        rig.cluster.create(&Kind::CiliumNode.object("n", json!({"spec": {}})), Kind::CiliumNode).await?;
        wait_limited(rig, "n").await?;
        let ours = &rig.control_plane.controller;
        let annotation = |key: &str| json!({"metadata": {"annotations": {key: "10.1.0.0/28"}}});
        for (patch, is_allowed) in [
            (json!({"spec": {"podCIDR": "10.1.0.0/28", "podCIDRs": ["10.1.0.0/28"]}}), true),
            (annotation("network.cilium.io/ipv4-pod-cidr"), true),
            (annotation("nodeipam.io/later-than"), true),
            (annotation("example.com/other"), false),
            (json!({"spec": {"unschedulable": true}}), false),
            (json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}), false),
            (json!({"metadata": {"labels": {"zone": "b"}}}), false),
            (json!({"metadata": {"labels": {"zone": null}}}), false),
        ] {
            let refused = refusal(ours, Kind::Node, "n", "", patch.clone()).await?;
            ensure!(refused.is_none() == is_allowed, "{patch}: {refused:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_can_change_only_its_finalizer_and_the_status_of_a_pool() -> Result<()> {
    let (_folder, options) = with_policies("crd", Options::default())?;
    without_product(options, async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/24"])).await?;
        let other = json!({"metadata": {"finalizers": ["example.com/stays"], "annotations": {"a": "b"}}});
        rig.cluster.patch(Kind::Pool, "p", other).await?;
        let ours = &rig.control_plane.controller;
        let finalizers = |names: &[&str]| json!({"metadata": {"finalizers": names}});
        let spec = json!({"spec": {"priority": 7}});
        wait_active(async || Ok(refusal(ours, Kind::Pool, "p", "", spec.clone()).await?.is_some())).await?;
        for (subresource, patch, is_allowed) in [
            ("", finalizers(&["example.com/stays", "nodeipam.io/pool"]), true),
            ("", finalizers(&["nodeipam.io/pool", "example.com/stays"]), true),
            ("", finalizers(&["nodeipam.io/pool"]), false),
            ("", finalizers(&["example.com/stays", "example.com/another"]), false),
            ("", json!({"metadata": {"labels": {"zone": "a"}}}), false),
            ("", json!({"metadata": {"annotations": {"nodeipam.io/confirm-delete": "yes"}}}), false),
            ("", json!({"metadata": {"annotations": null}}), false),
            ("", json!({"spec": {"nodeSelector": null}}), false),
            ("status", json!({"status": {"conditions": []}}), true),
        ] {
            let refused = refusal(ours, Kind::Pool, "p", subresource, patch.clone()).await?;
            ensure!(refused.is_none() == is_allowed, "{patch}: {refused:?}");
            // Only the account of the controller is limited.
            let other =
                refusal(&rig.control_plane.admin, Kind::Pool, "p", subresource, patch.clone()).await?;
            ensure!(other.is_none(), "{patch}: {other:?}");
        }
        rig.cluster.patch(Kind::Pool, "p", json!({"metadata": {"finalizers": null}})).await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controller_can_write_only_its_own_lease() -> Result<()> {
    let (_folder, options) = with_policies("crd", Options::default())?;
    without_product(options, async |rig| {
        let leases: Api<Lease> = Api::namespaced(rig.control_plane.controller.clone(), NAMESPACE);
        let lease = |name: &str| {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            Lease { metadata, ..Lease::default() }
        };
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let refused = async |name: &str| match leases.create(&dry, &lease(name)).await {
            Ok(_) => Ok(false),
            Err(kube::Error::Api(status)) if status.message.contains("ValidatingAdmissionPolicy") => Ok(true),
            Err(error) => Err(error.into()),
        };
        wait_active(async || refused("kube-scheduler").await).await?;
        ensure!(!refused(NAME).await?, "its own");
        let mut own = leases.create(&PostParams::default(), &lease(NAME)).await?;
        own.spec = Some(LeaseSpec { holder_identity: Some("me".to_owned()), ..LeaseSpec::default() });
        leases.replace(NAME, &PostParams::default(), &own).await?;
        let admins: Api<Lease> = Api::namespaced(rig.control_plane.admin.clone(), NAMESPACE);
        admins.create(&dry, &lease("kube-scheduler")).await?;
        Ok(())
    })
    .await
}

/// The policies are on while blocks are published, drained, reclaimed and given back.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_served_under_the_policies_of_crd() -> Result<()> {
    let (_folder, options) = with_policies("crd", Options::default())?;
    reclaim::goes_back_in_five_writes(options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_served_under_the_policies_of_multi_pool() -> Result<()> {
    let (_folder, options) = with_policies("multi-pool", multi_pool::multi_pool())?;
    multi_pool::grows_gives_back_and_restarts(Release::Newest, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_served_under_the_policies_of_cluster_pool() -> Result<()> {
    let (_folder, options) =
        with_policies("cluster-pool", Options { ipam: "cluster-pool", ..Options::of(Families::Dual) })?;
    static_modes::serves_a_node_for_its_life(Release::Newest, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_served_under_the_policies_of_kubernetes() -> Result<()> {
    for annotations in [false, true] {
        let options = Options { ipam: "kubernetes", annotations, ..Options::of(Families::Dual) };
        let (_folder, options) = with_policies("kubernetes", options)?;
        static_modes::serves_a_node_for_its_life(Release::Newest, options).await?;
    }
    Ok(())
}
