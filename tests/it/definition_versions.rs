//! The move of our own kinds to another version, rehearsed: `v1beta1` is served beside `v1alpha1`, becomes the stored
//! version, and the stored objects are rewritten. Each phase has a failure, a new node is served after each failure, and
//! at the end everything moves back.
//!
//! Both versions have the same schema, and the API server converts between them by the name alone (`None`). The last
//! phase, in which `v1alpha1` disappears, is only asked of the API server: this program reads `v1alpha1`.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::scene::{PROMPT, SOON, join, join_one, wait_ready};
use crate::support::agent::FakeAgent;
use crate::support::control_plane::{ControlPlane, Options, tool};
use crate::support::controller::Controller;
use crate::support::eventually::eventually;
use crate::support::kubectl::{apply, kubectl, run};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::proxy::{Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::{Rig, under_oracle};

const ALPHA: &str = "v1alpha1";
const BETA: &str = "v1beta1";

/// Our definitions, and the short names of their kinds.
const DEFINITIONS: [&str; 2] = ["nodeippools", "nodeipblocks"];

/// The role of a version in the definitions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum As {
    Stored,
    Served,
    /// It is defined, and the API server answers no requests of it.
    Unserved,
}

/// Both definitions with these versions, for `kubectl apply`.
fn definitions(versions: &[(&str, As)]) -> Result<String> {
    let mut all = Vec::new();
    for name in DEFINITIONS {
        let text = std::fs::read_to_string(format!("crds/{name}.nodeipam.io.yaml"))?;
        let mut definition: Value = serde_saphyr::from_str(&text)?;
        let ours = definition["spec"]["versions"][0].clone();
        ensure!(ours["name"] == ALPHA, "{name} has {}", ours["name"]);
        let version = |(name, state): &(&str, As)| {
            let mut version = ours.clone();
            version["name"] = json!(name);
            version["served"] = json!(*state != As::Unserved);
            version["storage"] = json!(*state == As::Stored);
            version
        };
        definition["spec"]["versions"] = versions.iter().map(version).collect();
        all.push(definition.to_string());
    }
    Ok(all.join("\n---\n"))
}

/// Defines these versions, and returns when the API server serves those that it should, and no other.
async fn define(rig: &Rig, versions: &[(&str, As)]) -> Result<()> {
    let plane = &rig.control_plane;
    apply(plane, &definitions(versions)?).await?;
    for (version, state) in versions {
        for name in DEFINITIONS {
            let kind = format!("{name}.{version}.nodeipam.io");
            eventually(SOON, async || {
                let is_served = kubectl(plane, &["get", &kind]).await.is_ok();
                ensure!(is_served == (*state != As::Unserved), "{kind} is served: {is_served}");
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}

/// Fails if the API server accepts these versions. Returns its reason.
async fn refused(rig: &Rig, versions: &[(&str, As)]) -> Result<String> {
    match apply(&rig.control_plane, &definitions(versions)?).await {
        Ok(()) => anyhow::bail!("the API server has accepted it"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// The number of objects in the store, by the version that they are stored in.
async fn stored(plane: &ControlPlane) -> Result<BTreeMap<String, usize>> {
    let mut command = Command::new(tool("NODEIPAM_ETCDCTL", "etcdctl"));
    let endpoint = plane.ready["etcd"].as_str().unwrap_or_default();
    command.args([
        "--endpoints",
        endpoint,
        "get",
        "--prefix",
        "/registry/nodeipam.io/",
        "--print-value-only",
    ]);
    let mut counts = BTreeMap::new();
    for line in run(plane, command).await?.lines().filter(|line| !line.is_empty()) {
        let object: Value = serde_json::from_str(line)?;
        let version = object["apiVersion"].as_str().unwrap_or_default();
        *counts.entry(version.trim_start_matches("nodeipam.io/").to_owned()).or_default() += 1;
    }
    ensure!(!counts.is_empty(), "the store has none of our objects");
    Ok(counts)
}

/// Returns when the API server stores objects of both kinds in this version.
async fn wait_stores(rig: &Rig, version: &str) -> Result<()> {
    let plane = &rig.control_plane;
    let mut n = 0;
    eventually(SOON, async || {
        let before = stored(plane).await?.get(version).copied().unwrap_or_default();
        n += 1;
        // A write of one object of each kind.
        for (kind, name) in [("nodeippools", "p"), ("nodeipblocks", "10.1.0.0-28")] {
            let annotation = format!("example.com/touched={version}-{n}");
            kubectl(plane, &["annotate", "--overwrite", kind, name, &annotation]).await?;
        }
        let after = stored(plane).await?.get(version).copied().unwrap_or_default();
        ensure!(after >= before.max(2), "{after} objects are stored in {version}");
        Ok(())
    })
    .await
}

/// The command of docs/versions.md that rewrites all objects. It fails if the controller has written one of them
/// meanwhile.
async fn rewrite(plane: &ControlPlane) -> Result<()> {
    let mut command = Command::new("bash");
    command
        .arg("-c")
        .arg("set -o pipefail; $KUBECTL get nodeippools,nodeipblocks -o json | $KUBECTL replace -f -");
    command.env("KUBECTL", tool("NODEIPAM_KUBECTL", "kubectl"));
    run(plane, command).await.map(drop)
}

/// Repeats [`rewrite`] until no object is stored in another version.
async fn rewrite_all(plane: &ControlPlane, version: &str) -> Result<()> {
    eventually(SOON, async || {
        rewrite(plane).await?;
        let counts = stored(plane).await?;
        ensure!(counts.keys().eq([version]), "{counts:?}");
        Ok(())
    })
    .await
}

/// Starts the rewrite, and kills it when it is about to write the claim of this name.
async fn rewrite_killed_at(rig: &Rig, claim: &str) -> Result<()> {
    let plane = &rig.control_plane;
    let proxy = Proxy::start_as(plane, &plane.admin_kubeconfig, rig.cluster.bell.clone()).await?;
    let stalled =
        proxy.plant(Requests::new(Verb::Update, Kind::Block).of(claim), Fault::Stall, Often::Always);
    let file = plane.dir().join("objects.json");
    std::fs::write(&file, kubectl(plane, &["get", "nodeippools,nodeipblocks", "-o", "json"]).await?)?;
    let mut job = Command::new(tool("NODEIPAM_KUBECTL", "kubectl"))
        .arg("replace")
        .arg("-f")
        .arg(&file)
        .env("KUBECONFIG", proxy.kubeconfig())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    eventually(SOON, async || {
        ensure!(stalled.fired() > 0, "the job has not reached {claim}");
        Ok(())
    })
    .await?;
    job.kill().await?;
    // Its last request is not forwarded any more.
    drop(proxy);
    Ok(())
}

/// Says which versions the store has objects of. The API server believes it.
async fn set_stored_versions(plane: &ControlPlane, versions: &[&str]) -> Result<()> {
    let patch = json!({"status": {"storedVersions": versions}}).to_string();
    for name in DEFINITIONS {
        let name = format!("crd/{name}.nodeipam.io");
        kubectl(plane, &["patch", &name, "--subresource=status", "--type=merge", "-p", &patch]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_served_through_every_phase_of_a_move_to_another_version() -> Result<()> {
    let options = Options { manifests: vec!["manifests/install.yaml".into()], ..Options::default() };
    under_oracle(options, async |rig| {
        let plane = &rig.control_plane;
        plane.keep_to_this_test();
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/22"])).await?;
        let controller = Controller::start_ready(plane, PROMPT).await?;
        let names: Vec<_> = (0..8).map(|number| NodeSpec::new(format!("n{number}"))).collect();
        let mut agents = join(rig, &names).await?;
        wait_ready(rig, &agents).await?;

        // Both are served. A mistake in the definition changes nothing.
        let said = refused(rig, &[(ALPHA, As::Stored), (BETA, As::Stored)]).await?;
        ensure!(said.contains("exactly one version marked as storage"), "{said}");
        agents.push(serve(rig, "after-two-stored").await?);
        define(rig, &[(ALPHA, As::Stored), (BETA, As::Served)]).await?;
        agents.push(serve(rig, "both-served").await?);
        let later = json!({
            "apiVersion": "nodeipam.io/v1beta1", "kind": "NodeIPPool", "metadata": {"name": "later"},
            "spec": {
                "nodeSelector": {"matchLabels": {"zone": "later"}}, "priority": 10,
                "ipv4": {"blockSize": 28, "cidrs": [{"cidr": "10.2.0.0/24"}]},
            },
        });
        apply(plane, &later.to_string()).await?;
        agents.push(join_one(rig, NodeSpec::new("later").label("zone", "later")).await?);
        let blocks = rig.cluster.published("later").unwrap_or_default().pod_cidrs;
        ensure!(blocks == ["10.2.0.0/28"], "{blocks:?}");
        // The policies of the chart count for both. The pool has blocks on nodes when its status says so.
        let delete = ["delete", "--dry-run=server", "nodeippools.v1beta1.nodeipam.io", "later"];
        eventually(SOON, async || {
            let deleted = kubectl(plane, &delete).await;
            let said =
                deleted.map_or_else(|error| format!("{error:#}"), |_| "it would be deleted".to_owned());
            ensure!(said.contains("confirm-delete"), "{said}");
            Ok(())
        })
        .await?;

        // The new version is stored. Neither the former definitions nor those without the former version are accepted.
        define(rig, &[(ALPHA, As::Served), (BETA, As::Stored)]).await?;
        wait_stores(rig, BETA).await?;
        agents.push(serve(rig, "beta-stored").await?);
        let counts = stored(plane).await?;
        ensure!(counts.contains_key(ALPHA) && counts.contains_key(BETA), "{counts:?}");
        let former = ["apply", "--server-side", "--force-conflicts", "-f", "crds"];
        for said in [
            refused(rig, &[(BETA, As::Stored)]).await?,
            format!("{:#}", kubectl(plane, &former).await.expect_err("v1beta1 is stored")),
        ] {
            ensure!(
                said.contains("status.storedVersions") && said.contains("missing from spec.versions"),
                "{said}"
            );
        }
        agents.push(serve(rig, "after-two-refusals").await?);

        // The job that rewrites the objects is killed, and another one starts from the first object.
        rewrite_killed_at(rig, "10.1.0.64-28").await?;
        let halfway = stored(plane).await?;
        ensure!(halfway.contains_key(ALPHA) && halfway[BETA] > counts[BETA], "{counts:?} became {halfway:?}");
        agents.push(serve(rig, "after-the-job").await?);
        rewrite_all(plane, BETA).await?;
        eprintln!("{counts:?} became {halfway:?} and {:?}", stored(plane).await?);
        agents.push(serve(rig, "rewritten").await?);

        // Only now may the former version disappear.
        set_stored_versions(plane, &[BETA]).await?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("definitions.yaml");
        std::fs::write(&file, definitions(&[(BETA, As::Stored)])?)?;
        let file = file.to_string_lossy();
        let without = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", &file];
        kubectl(plane, &without).await?;

        // The former version is not served while this program needs it. Nodes keep their blocks, and a new one waits.
        let before = carriers(rig);
        define(rig, &[(ALPHA, As::Unserved), (BETA, As::Stored)]).await?;
        let mut waiting = join(rig, &[NodeSpec::new("too-early")]).await?;
        controller.wait_logged("404", SOON).await?;
        define(rig, &[(ALPHA, As::Served), (BETA, As::Stored)]).await?;
        wait_ready(rig, &waiting).await?;
        agents.append(&mut waiting);
        let after = carriers(rig);
        ensure!(before.iter().all(|carrier| after.contains(carrier)), "{before:?} became {after:?}");

        // And back.
        define(rig, &[(ALPHA, As::Stored), (BETA, As::Served)]).await?;
        wait_stores(rig, ALPHA).await?;
        agents.push(serve(rig, "alpha-stored").await?);
        rewrite_all(plane, ALPHA).await?;
        set_stored_versions(plane, &[ALPHA]).await?;
        kubectl(plane, &former).await?;
        agents.push(serve(rig, "back").await?);
        Ok((controller, agents))
    })
    .await
}

/// A new node, which is served.
async fn serve(rig: &Rig, name: &str) -> Result<FakeAgent> {
    join_one(rig, NodeSpec::new(name)).await
}

/// Each CiliumNode with its blocks.
fn carriers(rig: &Rig) -> Vec<(String, Vec<String>)> {
    let nodes = rig.cluster.objects(Kind::CiliumNode);
    let names = nodes.iter().filter_map(|node| node.metadata.name.clone());
    names.map(|name| (name.clone(), rig.cluster.published(&name).unwrap_or_default().pod_cidrs)).collect()
}
