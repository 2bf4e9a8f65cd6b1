//! `status`, `why` and `who` on a real API server: a cluster with a full pool, an unselected node, a draining range, a
//! foreign CIDR, and no controller. Nothing is written.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::scene::{cilium_node, versions};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::objects::{Kind, NodeSpec, PoolSpec, claim};
use crate::support::rig::{Rig, without_product};

/// What a command printed, and its exit code.
struct Said {
    text: String,
    errors: String,
    code: Option<i32>,
}

async fn ask(plane: &ControlPlane, arguments: &[&str]) -> Result<Said> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
    command.args(arguments).env("KUBECONFIG", &plane.admin_kubeconfig).stdin(Stdio::null());
    let output = command.output().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { text: text(&output.stdout), errors: text(&output.stderr), code: output.status.code() })
}

impl Said {
    /// Fails unless each of these lines was printed. Runs of spaces count as one, so that columns may move.
    fn assert_lines(&self, expected: &[&str]) -> Result<()> {
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = self.text.lines().map(squeezed).collect();
        for line in expected {
            ensure!(lines.contains(&squeezed(line)), "no line {line:?} in:\n{}{}", self.text, self.errors);
        }
        Ok(())
    }

    fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.text).with_context(|| format!("{}{}", self.text, self.errors))
    }
}

/// Fails unless `docs/commands.md` shows this output behind the command. With `UPDATE_DOCS=1` it writes that there.
fn documented(command: &str, said: &Said) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    let document = std::fs::read_to_string(&path)?;
    let (opening, closing) = (format!("```console\n$ cilium-node-ipam {command}\n"), "```\n");
    let (before, rest) = document.split_once(&opening).with_context(|| format!("no example of {command}"))?;
    let (shown, after) = rest.split_once(closing).context("an example without an end")?;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{opening}{}{closing}{after}", said.text))?;
        return Ok(());
    }
    ensure!(shown == said.text, "docs/commands.md shows another output of `{command}`:\n{}", said.text);
    Ok(())
}

/// A Node of a zone, with its CiliumNode and what that carries.
async fn node(rig: &Rig, name: &str, zone: &str, blocks: &[(&str, &str)], used: &[&str]) -> Result<()> {
    rig.cluster.create_node(&NodeSpec::new(name).label("zone", zone)).await?;
    let uid = rig.cluster.read(Kind::Node, name).await?.metadata.uid.unwrap_or_default();
    for (cidr, pool) in blocks {
        rig.cluster.create(&claim(cidr, pool, name, &uid, "Held"), Kind::Block).await?;
    }
    let cidrs: Vec<&str> = blocks.iter().map(|(cidr, _)| *cidr).collect();
    let addresses = |cidr: &str| {
        let base = cidr.rsplit_once('.').map(|(base, _)| base.to_owned()).unwrap_or_default();
        let first: u8 = cidr.rsplit(['.', '/']).nth(1).and_then(|last| last.parse().ok()).unwrap_or_default();
        (first..=first + 15).map(move |last| format!("{base}.{last}"))
    };
    let pool: serde_json::Map<String, Value> =
        cidrs.iter().flat_map(|cidr| addresses(cidr)).map(|address| (address, json!({}))).collect();
    let spec = json!({"podCIDRs": cidrs, "pool": pool});
    rig.cluster.create(&cilium_node(name, &spec), Kind::CiliumNode).await?;
    let used: serde_json::Map<String, Value> =
        used.iter().map(|address| ((*address).to_owned(), json!({"owner": "ns/pod"}))).collect();
    let status = json!({"status": {"ipam": {"used": used}}});
    let api = Kind::CiliumNode.api(&rig.control_plane.admin);
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_answers_each_question() -> Result<()> {
    without_product(Options::default(), async |rig| {
        let (plane, cluster) = (&rig.control_plane, &rig.cluster);
        plane.allow("cidr-without-claim", None, None).await?;
        let pool =
            |name: &str, zone: &str, cidr: &str| PoolSpec::new(name).select("zone", zone).ipv4(28, &[cidr]);
        cluster.create_pool(&pool("full", "f", "10.1.0.0/27")).await?;
        cluster.create_pool(&pool("edge", "e", "10.2.0.0/24").with("reuseAfterNodeLoss", "30m")).await?;
        let mut draining = pool("draining", "d", "10.3.0.0/24");
        draining.spec["ipv4"]["cidrs"][0]["state"] = "Draining".into();
        cluster.create_pool(&draining).await?;
        node(rig, "f1", "f", &[("10.1.0.0/28", "full")], &["10.1.0.5"]).await?;
        node(rig, "f2", "f", &[("10.1.0.16/28", "full")], &[]).await?;
        for name in ["f3", "f4", "f5"] {
            node(rig, name, "f", &[], &[]).await?;
        }
        node(rig, "d1", "d", &[("10.3.0.0/28", "draining")], &[]).await?;
        node(rig, "e1", "e", &[("10.2.0.0/28", "edge")], &[]).await?;
        node(rig, "lost", "nowhere", &[], &[]).await?;
        // Another writer has put a range of the pool onto a CiliumNode.
        cluster.create_node(&NodeSpec::new("odd").label("zone", "other")).await?;
        let foreign = json!({"podCIDRs": ["10.2.0.64/28"], "pool": {}});
        cluster.create(&cilium_node("odd", &foreign), Kind::CiliumNode).await?;
        let before = versions(rig, &Kind::ALL).await?;

        // Is anything wrong, which pool is full, and who has nothing?
        let status = ask(plane, &["status"]).await?;
        documented("status", &status)?;
        ensure!(status.code == Some(1), "{:?} {}", status.code, status.errors);
        status.assert_lines(&[
            "controller no leader: Lease kube-system/cilium-node-ipam does not exist, mode crd, not frozen",
            "nodes 9: 4 served, 3 WITHOUT ADDRESSES, 0 want growth, 2 without a pool, 0 not Linux",
            "full Exhausted 5 2/2 0 3/0",
        ])?;
        ensure!(
            status.text.contains(
                "3 nodes can't start pods: no free block in full; add a CIDR: kubectl edit nip full"
            ),
            "{}",
            status.text
        );
        ensure!(status.text.contains("next: cilium-node-ipam why f3"), "{}", status.text);
        ensure!(status.text.lines().all(|line| !line.contains('\u{1b}')), "colour without a terminal");
        let object = ask(plane, &["status", "-o", "json"]).await?.json()?;
        ensure!(object["apiVersion"] == "cli.nodeipam.io/v1" && object["kind"] == "Status", "{object}");
        ensure!(object["nodes"]["withoutAddresses"] == 3 && object["nodes"]["noPool"] == 2, "{object}");

        // Why has this node nothing?
        let why = ask(plane, &["why", "f3"]).await?;
        documented("why f3", &why)?;
        ensure!(why.code == Some(1), "{:?} {}", why.code, why.errors);
        why.assert_lines(&["node f3", "labels zone=f", "pools full (priority 0)", "The node has no blocks."])?;
        ensure!(why.text.contains("pool full gives no ipv4 block: all blocks are taken"), "{}", why.text);
        let why = ask(plane, &["why", "lost"]).await?;
        ensure!(why.code == Some(1) && why.text.contains("zone=nowhere"), "{}", why.text);
        let nobody = ask(plane, &["why", "nobody"]).await?;
        ensure!(
            nobody.code == Some(2) && nobody.errors.contains("neither Node nobody"),
            "{}",
            nobody.errors
        );

        // Who has this address?
        let asked = ["10.1.0.5", "10.1.0.6", "10.2.0.64", "10.2.0.200", "10.3.0.100", "192.168.0.1"];
        let who = ask(plane, &[&["who"][..], &asked].concat()).await?;
        documented(&format!("who {}", asked.join(" ")), &who)?;
        ensure!(who.code == Some(1), "{:?} {}", who.code, who.errors);
        who.assert_lines(&[
            "10.1.0.5 used f1 full the agent of node f1 reports it as used in 10.1.0.0/28",
            "10.1.0.6 free f1 full the agent of node f1 may give it to the next pod in 10.1.0.0/28",
            "10.2.0.64 foreign odd edge node odd has 10.2.0.64/28 without a claim",
            "10.2.0.200 available - edge pool edge gives it in blocks of /28 from 10.2.0.0/24",
            "10.3.0.100 closed - draining pool draining has 10.3.0.0/24 Draining: nodes get no more blocks of it",
            "192.168.0.1 outside - - no pool declares it",
        ])?;
        let range = ask(plane, &["who", "10.2.0.0/24", "-o", "json"]).await?.json()?;
        let words: Vec<&str> =
            range["items"].as_array().into_iter().flatten().filter_map(|item| item["is"].as_str()).collect();
        ensure!(words == ["held", "foreign", "available"], "{range}");
        let wrong = ask(plane, &["who", "10.2.0"]).await?;
        ensure!(
            wrong.code == Some(2) && wrong.errors.contains("neither an address nor a CIDR"),
            "{}",
            wrong.errors
        );

        // The same binary as a plugin of kubectl.
        let folder = tempfile::tempdir()?;
        let plugin = folder.path().join("kubectl-nodeipam");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cilium-node-ipam"), &plugin)?;
        let help = Command::new(&plugin).args(["status", "--help"]).output().await?;
        ensure!(String::from_utf8_lossy(&help.stdout).contains("Usage: kubectl nodeipam status"), "{help:?}");

        ensure!(versions(rig, &Kind::ALL).await? == before, "a command wrote something");
        Ok(())
    })
    .await
}
