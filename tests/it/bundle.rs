//! `bundle` on a real API server: the commands answer from the file as from the cluster, and names can be replaced.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use regex::Regex;
use serde_json::{Value, json};

use crate::answers::{Said, ask, sixty_nodes};
use crate::scene::versions;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::objects::{Kind, PoolSpec};
use crate::support::proxy::{Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::without_product;

/// The cluster of the documents as files, for a look without any server. With `UPDATE_DOCS=1` it is written anew.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cluster");

/// The files in an archive.
fn files(path: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(flate2::read::GzDecoder::new(File::open(path)?)).entries()? {
        let mut entry = entry?;
        let (name, mut text) = (entry.path()?.display().to_string(), String::new());
        entry.read_to_string(&mut text)?;
        files.insert(name, text);
    }
    Ok(files)
}

/// Writes the objects of a bundle to `examples/cluster`, in place of the former ones.
fn write_example(files: &BTreeMap<String, String>) -> Result<()> {
    let folder = Path::new(EXAMPLE);
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir(folder)?;
    for (name, text) in files {
        let path = Path::new(name);
        if path.extension().is_some_and(|ending| ending == "json") {
            std::fs::write(folder.join(path.file_name().context("it has an ending")?), text)?;
        }
    }
    Ok(())
}

/// A preflight from the file says the same of each point that a file can show: neither rights, nor the webhooks and
/// policies that can stop writes.
async fn same_preflight(plane: &ControlPlane, file: &str) -> Result<()> {
    let lines = async |more: &[&str]| -> Result<Vec<Value>> {
        let object = ask(plane, &[&["preflight", "-o", "json"], more].concat()).await?.json()?;
        let mut items = object["items"].as_array().cloned().unwrap_or_default();
        let is_live = |point: &str| point.ends_with("-rights") || point == "admission";
        items.retain(|item| !item["point"].as_str().is_some_and(is_live));
        Ok(items)
    };
    let (live, from) = (lines(&[]).await?, lines(&["--from", file]).await?);
    ensure!(live == from && live.len() > 15, "from the cluster: {live:#?}\nfrom the bundle: {from:#?}");
    Ok(())
}

/// A kind that can't be listed is left out and named, and the rest is written.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_can_not_be_read_is_left_out() -> Result<()> {
    without_product(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let proxy = Proxy::start_as(plane, &plane.admin_kubeconfig, rig.cluster.bell.clone()).await?;
        let _refused = proxy.plant(Requests::new(Verb::Read, Kind::Block), Fault::Status(403), Often::Always);
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("bundle.tar.gz");
        let (named, kubeconfig) = (file.display().to_string(), proxy.kubeconfig().display().to_string());
        let written = ask(plane, &["bundle", "-o", &named, "--kubeconfig", &kubeconfig]).await?;
        ensure!(written.code == Some(0), "{:?} {}", written.code, written.errors);
        for line in [
            "left out: NodeIPBlocks, because they can't be listed: the proxy says 403 (403)",
            "left out: plan.txt, because NodeIPBlocks can't be listed: ",
        ] {
            ensure!(written.errors.contains(line), "{line}: {}", written.errors);
        }
        let contents = files(&file)?;
        let has = |name: &str| contents.keys().any(|file| file.contains(name));
        ensure!(has("nodeippools") && !has("nodeipblocks-") && !has("plan.txt"), "{:?}", contents.keys());
        let check = ask(plane, &["check", "--from", &named]).await?;
        ensure!(check.text.contains("Not checked: NodeIPBlocks"), "{}{}", check.text, check.errors);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_answers_like_its_cluster() -> Result<()> {
    without_product(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        plane.allow("cidr-without-claim", None, None).await?;
        sixty_nodes(rig).await?;
        let pods: Api<Pod> = Api::default_namespaced(plane.admin.clone());
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "confidential", "annotations": {"note": "sesame-1"}},
            "spec": {"containers": [{"name": "app", "image": "app", "args": ["sesame-2"],
                                     "env": [{"name": "TOKEN", "value": "sesame-3"}]}]},
        }))?;
        pods.create(&PostParams::default(), &pod).await?;
        // Characters that a reader of YAML refuses, and a token.
        let annotations =
            json!({"example.com/odd": "\u{7f}\u{85}\u{fffe}", "example.com/token": "parsley-1"});
        let nodes: Api<Node> = Api::all(plane.admin.clone());
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        nodes.patch("f09", &PatchParams::default(), &patch).await?;
        let settings: Api<ConfigMap> = Api::namespaced(plane.admin.clone(), "kube-system");
        let patch = Patch::Merge(json!({"data": {"kvstore-opt": "parsley-2"}}));
        settings.patch("cilium-config", &PatchParams::default(), &patch).await?;
        let before = versions(rig, &Kind::ALL).await?;
        let folder = tempfile::tempdir()?;
        let whole = folder.path().join("whole.tar.gz");
        let named = whole.display().to_string();
        let written = ask(plane, &["bundle", "-o", &named]).await?;
        ensure!(written.code == Some(0), "{:?} {}", written.code, written.errors);
        ensure!(
            written
                .errors
                .contains("left out: metrics, /readyz and logs of the controller, because namespace"),
            "{}",
            written.errors
        );
        // The file is a moment older than the cluster.
        let age = Regex::new(r"\(\d+[smhd]\)")?;
        for command in [
            &["status"][..],
            &["check"],
            &["why", "f09"],
            &["who", "10.1.0.5", "10.2.0.241", "10.4.2.7"],
            &["routes"],
            &["plan", "--add-nodes", "3", "--labels", "zone=e"],
            &["plan"],
        ] {
            let (live, from) =
                (ask(plane, command).await?, ask(plane, &[command, &["--from", &named]].concat()).await?);
            let dated = |text: &str| age.replace_all(text, "(AGE)").into_owned();
            ensure!(
                (dated(&live.text), live.code) == (dated(&from.text), from.code),
                "{command:?} from the cluster:\n{}{}from the bundle:\n{}{}",
                live.text,
                live.errors,
                from.text,
                from.errors
            );
        }
        same_preflight(plane, &named).await?;
        if std::env::var_os("UPDATE_DOCS").is_some() {
            write_example(&files(&whole)?)?;
        }
        let again = ask(plane, &["bundle", "-o", &named]).await?;
        ensure!(again.code == Some(2) && again.errors.contains("can't create"), "{}", again.errors);
        let contents = files(&whole)?;
        let about = contents.get("bundle/bundle.json").context("a bundle has a description")?;
        ensure!(about.contains("metrics, /readyz and logs of the controller"), "{about}");
        let plan = contents.get("bundle/plan.txt").context("a bundle has the findings")?;
        ensure!(plan.contains("5 nodes without a pool"), "{plan}");
        for (name, text) in &contents {
            ensure!(!text.contains("sesame"), "{name} has confidential data of a Pod: {text}");
        }

        // With other names.
        let redacted = folder.path().join("redacted.tar.gz");
        let named = redacted.display().to_string();
        let written = ask(plane, &["bundle", "--redact", "-o", &named]).await?;
        ensure!(written.code == Some(0), "{:?} {}", written.code, written.errors);
        for (name, text) in files(&redacted)? {
            for known in ["lost01", "\"f09\"", "web-1", "confidential", "parsley"] {
                ensure!(!text.contains(known), "{name} has {known}: {text}");
            }
        }
        let screen = ask(plane, &["status", "--from", &named]).await?;
        ensure!(screen.code == Some(1), "{:?} {}", screen.code, screen.errors);
        screen.assert_lines(&["full Exhausted 14 8/8 0 6/0 - -"])?;
        ensure!(screen.text.contains("next: cilium-node-ipam why node-"), "{}", screen.text);
        ensure!(versions(rig, &Kind::ALL).await? == before, "a command wrote something");
        Ok(())
    })
    .await
}

/// Without a control plane: a directory is read like an archive.
#[test]
fn a_bundle_opens_without_its_unreadable_parts() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let run = |arguments: &[&str]| -> Result<Said> {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"))
            .args(arguments)
            .args(["--from", &folder.path().display().to_string()])
            .output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Said { text: text(&output.stdout), errors: text(&output.stderr), code: output.status.code() })
    };
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
    // Of a cluster in which neither pools nor claims could be listed.
    let left_out = [
        "NodeIPPools, because you are not allowed to list them",
        "NodeIPBlocks, because they can't be listed: x",
    ];
    let about = json!({"apiVersion": "cli.nodeipam.io/v1", "kind": "Bundle", "metadata": {"name": "bundle"},
                       "time": "2026-01-01T00:00:00Z", "hasLease": false, "leftOut": left_out});
    write("bundle.json", &about.to_string())?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "uid": "a", "resourceVersion": "1"}});
    write("nodes-0001.json", &json!({"apiVersion": "v1", "kind": "List", "items": [node]}).to_string())?;
    write("nodes-0002.json", "{\"kind\": \"List\"")?;
    write("pods-0001.json", "[")?;
    for command in [
        &["status"][..],
        &["check"],
        &["why", "a"],
        &["who", "10.0.0.1"],
        &["routes"],
        &["plan"],
        &["preflight"],
    ] {
        let said = run(command)?;
        ensure!(matches!(said.code, Some(0 | 1)), "{command:?}: {}{}", said.text, said.errors);
        ensure!(said.errors.contains("nodes-0002.json:1: no JSON: EOF"), "{command:?}: {}", said.errors);
        ensure!(said.errors.contains("2 unreadable files skipped"), "{command:?}: {}", said.errors);
    }
    let said = run(&["status"])?;
    for kind in
        ["NodeIPPools, because you", "NodeIPBlocks, because they", "Nodes, because they can't be listed: "]
    {
        ensure!(said.errors.contains(&format!("not in the bundle: {kind}")), "{kind}: {}", said.errors);
    }
    let said = run(&["check"])?;
    ensure!(said.text.contains("Not checked: Pods, because they can't be listed: "), "{}", said.text);
    Ok(())
}
