//! `status`, `why`, `who` and `check` on a real API server with 60 nodes and 4 pools. Among them are a full pool,
//! unselected nodes, a draining range, a foreign CIDR, a podCIDR of another node and Pods of another CNI. There is no
//! controller. Nothing is written.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use regex::Regex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::docs::versions::usual_kubernetes;
use crate::scene::{SOON, cilium_node, join_one, versions};
use crate::support::control_plane::{ControlPlane, Options, asked_version};
use crate::support::controller::{Controller, ELECTED};
use crate::support::eventually::eventually;
use crate::support::kubectl::kubectl;
use crate::support::kubelet::create_running;
use crate::support::objects::{Kind, NodeSpec, PoolSpec, claim};
use crate::support::rig::{Rig, under_oracle, without_product};
use crate::support::signals::send;

/// The output of a command, and its exit code.
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) errors: String,
    pub(crate) code: Option<i32>,
}

pub(crate) async fn ask(plane: &ControlPlane, arguments: &[&str]) -> Result<Said> {
    ask_with(&plane.admin_kubeconfig, arguments).await
}

/// Runs a command with this kubeconfig.
pub(crate) async fn ask_with(kubeconfig: &Path, arguments: &[&str]) -> Result<Said> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
    command.args(arguments).env("KUBECONFIG", kubeconfig).env_remove("COLUMNS").stdin(Stdio::null());
    let output = command.output().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { text: text(&output.stdout), errors: text(&output.stderr), code: output.status.code() })
}

impl Said {
    /// Fails unless each of these lines was printed. Runs of spaces count as one, so that columns may move.
    pub(crate) fn assert_lines(&self, expected: &[&str]) -> Result<()> {
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = self.text.lines().map(squeezed).collect();
        for line in expected {
            ensure!(lines.contains(&squeezed(line)), "no line {line:?} in:\n{}{}", self.text, self.errors);
        }
        Ok(())
    }

    /// Whether this text was printed. A long text has several lines.
    pub(crate) fn says(&self, text: &str) -> bool {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        squeezed(&self.text).contains(&squeezed(text))
    }

    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.text).with_context(|| format!("{}{}", self.text, self.errors))
    }
}

/// Fails unless the page of the command in `docs/commands` shows this output after it. With `UPDATE_DOCS=1` it writes
/// the output there.
pub(crate) fn documented(command: &str, said: &Said) -> Result<()> {
    let page = format!("docs/commands/{}.md", command.split(' ').next().unwrap_or_default());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&page);
    let document = std::fs::read_to_string(&path).context(page.clone())?;
    let (opening, closing) = (format!("```console\n$ cilium-node-ipam {command}\n"), "```\n");
    let (before, rest) = document.split_once(&opening).with_context(|| format!("no example of {command}"))?;
    let (shown, after) = rest.split_once(closing).context("an example without an end")?;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{opening}{}{closing}{after}", said.text))?;
        return Ok(());
    }
    // With another version of Kubernetes, the page shows that of all other tests.
    let server = asked_version().map(|asked| Regex::new(&format!(r"\bv{}\.\d+", regex::escape(&asked))));
    let server = server.transpose()?;
    let said_text = server.map_or_else(
        || said.text.clone(),
        |server| server.replace_all(&said.text, format!("v{}", usual_kubernetes())).into_owned(),
    );
    // Objects have the time of their creation.
    let time = Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(\d+[smhd]\)")?;
    let plain = |text: &str| time.replace_all(text, "TIME").into_owned();
    let is_shown = plain(shown) == plain(&said_text);
    ensure!(is_shown, "{page} shows another output of `{command}`:\n{}", said.text);
    Ok(())
}

/// A Node of a zone, with its claims and its CiliumNode.
async fn node(rig: &Rig, name: &str, zone: &str, blocks: &[(&str, &str)], used: &[&str]) -> Result<()> {
    rig.cluster.create_node(&NodeSpec::new(name).label("zone", zone)).await?;
    let uid = rig.cluster.read(Kind::Node, name).await?.metadata.uid.unwrap_or_default();
    for (cidr, pool) in blocks {
        let as_controller =
            PostParams { field_manager: Some("cilium-node-ipam".to_owned()), ..PostParams::default() };
        let claims = Kind::Block.api(&rig.control_plane.admin);
        claims.create(&as_controller, &claim(cidr, pool, name, &uid, "Held")).await?;
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

/// The nodes of a zone: the first of them hold the blocks of /28 from this address on, one each.
async fn zone(rig: &Rig, zone: &str, n_nodes: u8, pool: &str, base: [u8; 3], n_blocks: u8) -> Result<()> {
    let [a, b, c] = base;
    for index in 0..n_nodes {
        let name = format!("{zone}{:02}", index + 1);
        let block = format!("{a}.{b}.{c}.{}/28", u16::from(index) * 16);
        let used = format!("{a}.{b}.{c}.{}", u16::from(index) * 16 + 5);
        if index < n_blocks {
            node(rig, &name, zone, &[(&block, pool)], &[&used]).await?;
        } else {
            node(rig, &name, zone, &[], &[]).await?;
        }
    }
    Ok(())
}

/// The scene of the documents.
pub(crate) async fn sixty_nodes(rig: &Rig) -> Result<()> {
    let cluster = &rig.cluster;
    let pool =
        |name: &str, zone: &str, cidr: &str| PoolSpec::new(name).select("zone", zone).ipv4(28, &[cidr]);
    cluster.create_pool(&pool("full", "f", "10.1.0.0/25")).await?;
    cluster.create_pool(&pool("edge", "e", "10.2.0.0/24").with("reuseAfterNodeLoss", "30m")).await?;
    cluster.create_pool(&pool("rack", "r", "10.4.0.0/22")).await?;
    let mut draining = pool("draining", "d", "10.3.0.0/24");
    draining.spec["ipv4"]["cidrs"][0]["state"] = "Draining".into();
    cluster.create_pool(&draining).await?;
    zone(rig, "f", 14, "full", [10, 1, 0], 8).await?;
    zone(rig, "e", 14, "edge", [10, 2, 0], 14).await?;
    zone(rig, "r", 10, "rack", [10, 4, 0], 10).await?;
    zone(rig, "d", 16, "draining", [10, 3, 0], 16).await?;
    zone(rig, "lost", 4, "none", [0, 0, 0], 0).await?;
    cluster.create_node(&NodeSpec::new("win").label("kubernetes.io/os", "windows")).await?;
    // The controller has recorded that nodes had four blocks of a pool when its last six hours started.
    let counts = json!({
        "blocks": {"total": 64, "held": 10, "draining": 0, "cooling": 0, "free": 54},
        "addresses": {"published": 160, "free": 756},
        "history": [{"time": "2026-01-02T00:00:00Z", "onNodes": 4}],
    });
    let status = Patch::Merge(json!({"status": {"ipv4": counts}}));
    let as_controller = PatchParams::apply("cilium-node-ipam");
    Kind::Pool.api(&rig.control_plane.admin).patch_status("rack", &as_controller, &status).await?;
    // Another writer has put a range of the pool onto a CiliumNode.
    cluster.create_node(&NodeSpec::new("odd").label("zone", "other")).await?;
    let foreign = json!({"podCIDRs": ["10.2.0.240/28"], "pool": {}});
    cluster.create(&cilium_node("odd", &foreign), Kind::CiliumNode).await?;
    // kube-controller-manager has given a Node the block of another one.
    let pod_cidrs = json!({"spec": {"podCIDR": "10.4.0.16/28", "podCIDRs": ["10.4.0.16/28"]}});
    cluster.patch(Kind::Node, "r01", pod_cidrs).await?;
    // Another CNI gives addresses of a pool.
    let pods: Api<Pod> = Api::default_namespaced(rig.control_plane.admin.clone());
    for index in 1..=3 {
        create_running(&pods, &format!("web-{index}"), "r01", &[[10, 4, 3, index].into()]).await?;
    }
    Ok(())
}

/// Which difference would a change make?
async fn foresees(plane: &ControlPlane) -> Result<()> {
    let added = ask(plane, &["plan", "--add-nodes", "3", "--labels", "zone=e"]).await?;
    documented("plan --add-nodes 3 --labels zone=e", &added)?;
    ensure!(added.code == Some(1), "{:?} {}", added.code, added.errors);
    added.assert_lines(&[
        "edge Ready -> Exhausted 14 -> 17 14/16 -> 15/16 1 -> 0 0/0 -> 2/0",
        "room edge can serve 1 such node, and then runs out",
    ])?;
    let rack = ask(plane, &["plan", "--add-nodes", "20", "--labels", "zone=r", "-o", "json"]).await?;
    ensure!(rack.code == Some(0), "{:?} {}", rack.code, rack.errors);
    let object = rack.json()?;
    ensure!(object["kind"] == "Plan" && object["room"]["nodes"] == 54, "{object}");
    ensure!(object["grants"].as_array().is_some_and(|grants| grants.len() == 20), "{object}");

    let deleted = ask(plane, &["plan", "--delete-pool", "edge"]).await?;
    documented("plan --delete-pool edge", &deleted)?;
    let last = "final deleting pool edge can't be undone: it gives no blocks from then on, and exists until its 14 \
                blocks are free";
    ensure!(deleted.says(last), "{}", deleted.text);
    let drained = ask(plane, &["plan", "--drain", "10.2.0.0/24"]).await?;
    documented("plan --drain 10.2.0.0/24", &drained)?;
    ensure!(
        drained.says("when the node rejoins (reboot): the first block of a node stays"),
        "{}",
        drained.text
    );
    let relabelled = ask(plane, &["plan", "--relabel", "f09", "zone=r"]).await?;
    documented("plan --relabel f09 zone=r", &relabelled)?;
    ensure!(relabelled.code == Some(0), "{:?} {}", relabelled.code, relabelled.errors);

    let used = ask(plane, &["plan", "--use", "90%"]).await?;
    documented("plan --use 90%", &used)?;
    ensure!(used.code == Some(1), "{:?} {}", used.code, used.errors);
    used.assert_lines(&["rack Ready 10 10/64 -> 20/64 54 -> 44 0/0"])?;
    let object = ask(plane, &["plan", "--use", "90%", "-o", "json"]).await?.json()?;
    ensure!(object["firstFull"]["pools"].as_array().is_some_and(|pools| !pools.is_empty()), "{object}");

    // Pools as they would be.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("full.yaml");
    let pool = |size: u8| {
        format!(
            "apiVersion: nodeipam.io/v1alpha1\nkind: NodeIPPool\nmetadata:\n  name: full\nspec:\n  \
             nodeSelector:\n    matchLabels:\n      zone: f\n  ipv4:\n    blockSize: {size}\n    cidrs:\n    - \
             cidr: 10.1.0.0/24\n"
        )
    };
    std::fs::write(&file, pool(28))?;
    let named = file.display().to_string();
    let wider = ask(plane, &["plan", "-f", &named]).await?;
    ensure!(wider.code == Some(0), "{:?} {} {}", wider.code, wider.text, wider.errors);
    wider.assert_lines(&["full Exhausted -> Ready 14 8/8 -> 14/16 0 -> 2 6/0 -> 0/0"])?;
    std::fs::write(&file, pool(29))?;
    let smaller = ask(plane, &["plan", "-f", &named]).await?;
    ensure!(smaller.code == Some(0), "{:?} {} {}", smaller.code, smaller.text, smaller.errors);
    let kept = "sizes ipv4 of pool full: nodes keep 8 blocks of /28;";
    ensure!(smaller.says(kept), "{kept}\n{}", smaller.text);
    std::fs::write(&file, pool(28).replace("  ipv4:", "  podIPPool: mars\n  ipv4:"))?;
    let refused = ask(plane, &["plan", "-f", &named]).await?;
    ensure!(
        refused.code == Some(2) && refused.errors.contains("podIPPool of pool full is immutable"),
        "{}",
        refused.errors
    );
    std::fs::write(&file, pool(99))?;
    let wrong = ask(plane, &["plan", "-f", &named]).await?;
    ensure!(wrong.code == Some(2) && wrong.errors.contains("full.yaml:10: "), "{}", wrong.errors);
    for (arguments, why) in [
        (&["--delete-pool", "none"][..], "NodeIPPool none does not exist"),
        (&["--relabel", "none", "a=b"], "Node none does not exist"),
        (&["--drain", "10.2.0.0/25"], "a state is that of a whole CIDR"),
    ] {
        let refused = ask(plane, &[&["plan"][..], arguments].concat()).await?;
        ensure!(refused.code == Some(2) && refused.errors.contains(why), "{}", refused.errors);
    }

    // Without a change: the next writes.
    let next = ask(plane, &["plan"]).await?;
    ensure!(next.code == Some(1), "{:?} {}", next.code, next.errors);
    next.assert_lines(&["5 nodes without a pool: lost01, lost02, lost03, lost04, odd"])?;
    let object = ask(plane, &["plan", "-o", "json"]).await?.json()?;
    ensure!(object["withoutPool"].as_array().is_some_and(|nodes| nodes.len() == 5), "{object}");
    Ok(())
}

/// Do the objects fit together? The answer is the same from files of them.
async fn fits_together(plane: &ControlPlane) -> Result<()> {
    lists_the_ranges_of_others(plane).await?;
    let check = ask(plane, &["check"]).await?;
    documented("check", &check)?;
    ensure!(check.code == Some(1), "{:?} {}", check.code, check.errors);
    check.assert_lines(&[
        "error NIP0302 3 Pods",
        "warning NIP0202 CiliumNode odd",
        "warning NIP0401 Node r01",
        "cause its podCIDR has addresses of node r02",
    ])?;
    let is_narrow = |line: &str| line.chars().count() <= 100;
    ensure!(check.text.lines().all(is_narrow), "{}", check.text);
    let all = ["check", "-o", "json"];
    let object = ask(plane, &all).await?.json()?;
    let ids = |object: &Value| -> Vec<String> {
        let items = object["items"].as_array().into_iter().flatten();
        items.filter_map(|item| Some(item["id"].as_str()?.to_owned())).collect()
    };
    let every = ids(&object);
    ensure!(every.contains(&"NIP0302".to_owned()), "{object}");
    let others = ask(plane, &[&all[..], &["--suppress", "NIP0302"]].concat()).await?.json()?;
    ensure!(!ids(&others).contains(&"NIP0302".to_owned()) && ids(&others).len() < every.len(), "{others}");
    // The same objects in files.
    let folder = tempfile::tempdir()?;
    let kinds = Kind::ALL.map(|kind| kind.resource().plural).join(",");
    for (file, what) in [("world.json", kinds.as_str()), ("around.yaml", "pods,configmaps,servicecidrs")] {
        let format = file.rsplit('.').next().unwrap_or("json");
        let objects = kubectl(plane, &["get", what, "-A", "-o", format, "--show-managed-fields"]).await?;
        std::fs::write(folder.path().join(file), objects)?;
    }
    let path = folder.path().to_string_lossy();
    let from_files = ask(plane, &["check", "--from", &path, "-o", "json"]).await?;
    ensure!(from_files.json()?["items"] == object["items"], "{}{}", from_files.text, from_files.errors);
    Ok(())
}

/// Shows full pools, draining ranges and foreign CIDRs as a picture. With `UPDATE_DOCS=1` it is the one of the README.
async fn is_drawn(plane: &ControlPlane) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, parts) in [
        ("map.html", ["id=\"pool-name-0\"", "f01", "10.3.0.0/24", "16 must leave", "1 foreign"]),
        ("map.svg", ["<title>10.1.0.0/28, held, node f01", "Exhausted", "10.3.0.0/24", ">foreign<", "odd"]),
    ] {
        let file = folder.path().join(name);
        let drawn = ask(plane, &["map", "-o", &file.to_string_lossy()]).await?;
        ensure!(drawn.code == Some(0) && drawn.text.is_empty(), "{:?} {}", drawn.code, drawn.errors);
        let text = std::fs::read_to_string(file)?;
        for part in parts {
            ensure!(text.contains(part), "{name} without {part}");
        }
        let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images").join(name);
        if std::env::var_os("UPDATE_DOCS").is_some() && picture.exists() {
            std::fs::write(picture, text)?;
        }
    }
    // The name of the last file, which exists.
    let file = folder.path().join("map.svg");
    let file = file.to_string_lossy();
    let refused = ask(plane, &["map", "-o", &file]).await?;
    ensure!(refused.code == Some(2) && refused.errors.contains("--force"), "{}", refused.errors);
    ensure!(ask(plane, &["map", "-o", &file, "--force"]).await?.code == Some(0), "it is replaced");
    let page = ask(plane, &["map", "-o", "-"]).await?;
    ensure!(page.code == Some(0) && page.text.starts_with("<!DOCTYPE html>"), "{}", page.errors);
    let picture = ask(plane, &["map", "-o", "-.svg"]).await?;
    ensure!(picture.code == Some(0) && picture.text.starts_with("<?xml"), "{}", picture.errors);
    let wrong = ask(plane, &["map", "-o", "map.png"]).await?;
    ensure!(wrong.code == Some(2) && wrong.errors.contains("end in .html or .svg"), "{}", wrong.errors);
    Ok(())
}

/// Another writer has put a range onto a CiliumNode.
async fn lists_the_ranges_of_others(plane: &ControlPlane) -> Result<()> {
    let odd = ask(plane, &["why", "odd"]).await?;
    odd.assert_lines(&["10.2.0.240/28 foreign edge - 10.2.0.240/28 without a claim"])?;
    ensure!(odd.says("problem ForeignAddresses: it has 10.2.0.240/28"), "{}", odd.text);
    Ok(())
}

/// Which node, pool and pod has this address?
async fn names_owners(plane: &ControlPlane) -> Result<()> {
    let asked = ["10.1.0.5", "10.1.0.6", "10.2.0.241", "10.2.0.230", "10.4.2.7", "192.168.0.1"];
    let who = ask(plane, &[&["who"][..], &asked].concat()).await?;
    documented(&format!("who {}", asked.join(" ")), &who)?;
    ensure!(who.code == Some(1), "{:?} {}", who.code, who.errors);
    who.assert_lines(&[
        "10.1.0.5 used f01 full pod ns/pod, in 10.1.0.0/28",
        "10.1.0.6 free f01 full for the next pod, in 10.1.0.0/28",
        "10.2.0.241 foreign odd edge 10.2.0.240/28 without a claim",
        "10.2.0.230 available - edge in blocks of /28 of 10.2.0.0/24",
        "10.4.2.7 available - rack in blocks of /28 of 10.4.0.0/22",
        "192.168.0.1 outside - - no pool declares it",
    ])?;
    let wide = ask(plane, &["who", "10.1.0.5", "-o", "wide", "--no-headers"]).await?;
    wide.assert_lines(&["10.1.0.5 used f01 full 10.1.0.0-28 - pod ns/pod, in 10.1.0.0/28"])?;
    // A pod of the other CNI, by its name and by its address.
    for asked in ["default/web-1", "pod/web-1", "10.4.3.1"] {
        let pod = ask(plane, &["who", asked]).await?;
        pod.assert_lines(&["10.4.3.1 available - rack in blocks of /28 of 10.4.0.0/22; pod default/web-1"])?;
    }
    let nobody = ask(plane, &["who", "default/nobody"]).await?;
    let why = "no Pod nobody with an address of its own: kubectl get pods -n default -o wide";
    ensure!(nobody.code == Some(2) && nobody.errors.contains(why), "{}", nobody.errors);
    let range = ask(plane, &["who", "10.2.0.0/24", "-o", "json"]).await?.json()?;
    let words: Vec<&str> =
        range["items"].as_array().into_iter().flatten().filter_map(|item| item["is"].as_str()).collect();
    let n_held = words.iter().filter(|word| **word == "held").count();
    ensure!((n_held, &words[n_held..]) == (14, &["foreign", "available"][..]), "{range}");
    Ok(())
}

/// A text that is no address is named in the error.
async fn refuses(plane: &ControlPlane) -> Result<()> {
    let wrong = ask(plane, &["who", "10.2.0"]).await?;
    ensure!(
        wrong.code == Some(2) && wrong.errors.contains("neither an address nor a CIDR"),
        "{}",
        wrong.errors
    );
    Ok(())
}

/// The same binary as a plugin of kubectl.
async fn is_a_plugin() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let plugin = folder.path().join("kubectl-nodeipam");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cilium-node-ipam"), &plugin)?;
    let help = Command::new(&plugin).args(["status", "--help"]).output().await?;
    ensure!(String::from_utf8_lossy(&help.stdout).contains("Usage: kubectl nodeipam status"), "{help:?}");

    let script = Command::new(&plugin).args(["completion", "bash"]).output().await?;
    ensure!(String::from_utf8_lossy(&script.stdout).contains("complete -F _kubectl__nodeipam"), "{script:?}");
    let completer = folder.path().join("kubectl_complete-nodeipam");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cilium-node-ipam"), &completer)?;
    let words = Command::new(&completer).args(["status", "--no"]).output().await?;
    ensure!(words.stdout == b"--no-headers\n:4\n", "{words:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_answers_each_question() -> Result<()> {
    without_product(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        plane.allow("cidr-without-claim", None, None).await?;
        sixty_nodes(rig).await?;
        let before = versions(rig, &Kind::ALL).await?;

        // Is anything wrong, which pool is full, and which node has nothing?
        let status = ask(plane, &["status"]).await?;
        documented("status", &status)?;
        ensure!(status.code == Some(1), "{:?} {}", status.code, status.errors);
        status.assert_lines(&[
            "controller no leader: Lease kube-system/cilium-node-ipam does not exist, mode crd, not frozen",
            "nodes 60: 48 served, 6 WITHOUT ADDRESSES, 5 without a pool, 1 not Linux",
            "full Exhausted 14 8/8 0 6/0 - -",
            // 54 blocks at one per hour.
            "rack Ready 10 10/64 54 0/0 - ~2d",
        ])?;
        ensure!(
            status.says(
                "6 nodes can't start pods: no free block in full; add a CIDR: kubectl edit nip full"
            ),
            "{}",
            status.text
        );
        ensure!(status.text.contains("next: cilium-node-ipam why f09"), "{}", status.text);
        ensure!(status.text.lines().all(|line| !line.contains('\u{1b}')), "colour without a terminal");
        let wide = ask(plane, &["status", "-o", "wide", "--no-headers"]).await?;
        wide.assert_lines(&["full Exhausted 14 8/8 0 6/0 - - - 0 zone=f 10.1.0.0/25=8/8"])?;
        let object = ask(plane, &["status", "-o", "json"]).await?.json()?;
        let of_edge = &object["pools"][1]["cidrs"];
        let expected = json!([{
            "cidr": "10.2.0.0/24", "total": 16, "held": 14, "draining": 0, "cooling": 0, "free": 1, "foreign": 1,
            "excluded": 0,
        }]);
        ensure!(*of_edge == expected, "{object}");
        let lasts: Vec<&Value> = (0..4).map(|pool| &object["pools"][pool]["fullInSeconds"]["ipv4"]).collect();
        ensure!(lasts == [&Value::Null, &Value::Null, &Value::Null, &json!(54 * 3600)], "{object}");
        ensure!(object["apiVersion"] == "cli.nodeipam.io/v1" && object["kind"] == "Status", "{object}");
        ensure!(object["nodes"]["withoutAddresses"] == 6 && object["nodes"]["noPool"] == 5, "{object}");

        // Why has this node nothing?
        let why = ask(plane, &["why", "f09"]).await?;
        documented("why f09", &why)?;
        ensure!(why.code == Some(1), "{:?} {}", why.code, why.errors);
        why.assert_lines(&[
            "node f09",
            "labels zone=f",
            "pools full (priority 0)",
            "The node has no blocks.",
        ])?;
        ensure!(why.says("waits no pool of the node has a free ipv4 block; add a CIDR"), "{}", why.text);
        ensure!(!why.says("refused"), "the wait says it: {}", why.text);
        why.assert_lines(&["run kubectl edit nip full"])?;
        let reason = ask(plane, &["why", "f09", "-o", "json"]).await?.json()?;
        ensure!(reason["refusals"][0] == "pool full gives no ipv4 block: all blocks are taken", "{reason}");
        ensure!(reason["waitsSince"].is_string(), "{reason}");
        let why = ask(plane, &["why", "lost01"]).await?;
        ensure!(why.code == Some(1) && why.text.contains("zone=lost"), "{}", why.text);
        let nobody = ask(plane, &["why", "nobody"]).await?;
        ensure!(nobody.code == Some(2) && nobody.errors.contains("neither Node nobody"), "{}", nobody.errors);

        names_owners(plane).await?;
        // Which prefixes should each node announce?
        let routes = ask(plane, &["routes", "--node", "e01", "--node", "f01"]).await?;
        documented("routes --node e01 --node f01", &routes)?;
        ensure!(routes.code == Some(0), "{:?} {}", routes.code, routes.errors);
        let frr = ask(plane, &["routes", "--format", "frr", "--asn", "64512", "--node", "f01"]).await?;
        documented("routes --format frr --asn 64512 --node f01", &frr)?;
        let linux = ask(plane, &["routes", "--format", "linux", "--node", "e01"]).await?;
        ensure!(
            linux.text.starts_with("ip route replace 10.2.0.0/28 via ") && linux.text.ends_with("# e01\n"),
            "{}",
            linux.text
        );
        let object = ask(plane, &["routes", "-o", "json", "--node", "f01"]).await?.json()?;
        ensure!(object["kind"] == "Routes", "{object}");
        ensure!(object["items"][0]["prefixes"] == json!(["10.1.0.0/28"]), "{object}");
        let nobody = ask(plane, &["routes", "--node", "nobody"]).await?;
        ensure!(
            nobody.code == Some(2) && nobody.errors.contains("no such Node: nobody"),
            "{}",
            nobody.errors
        );

        refuses(plane).await?;
        fits_together(plane).await?;
        foresees(plane).await?;
        is_drawn(plane).await?;

        is_a_plugin().await?;
        ensure!(versions(rig, &Kind::ALL).await? == before, "a command wrote something");
        Ok(())
    })
    .await
}

/// A Pod of the controller that is ready, with these arguments.
async fn replica(rig: &Rig, arguments: &[&str]) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(rig.control_plane.admin.clone(), "kube-system");
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "replica", "labels": {"app.kubernetes.io/name": "cilium-node-ipam"}},
        "spec": {
            "nodeName": "n", "containers": [{"name": "controller", "image": "controller", "args": arguments}],
        },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status("replica", &PatchParams::default(), &Patch::Merge(ready)).await?;
    Ok(())
}

/// A replica without an election renews no Lease, and one of earlier replicas may remain.
#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_cluster_without_an_election_has_no_problem() -> Result<()> {
    without_product(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/26"])).await?;
        let before = ask(plane, &["status"]).await?;
        ensure!(before.code == Some(1) && before.text.contains("NoLeader"), "{}", before.text);
        replica(rig, &["run", "--leader-elect=false"]).await?;
        let status = ask(plane, &["status"]).await?;
        ensure!(status.code == Some(0), "{:?} {}{}", status.code, status.text, status.errors);
        let line =
            "controller 1 of 1 replica ready, no election (--leader-elect=false), mode crd, not frozen";
        status.assert_lines(&[line, "No problem found."])
    })
    .await
}

/// The clocks of API servers may differ, and so the times that a leader behind another one of them writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_in_the_future_is_no_age_of_zero_seconds() -> Result<()> {
    without_product(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/26"])).await?;
        let ahead = |hours: i64| (Timestamp::now() + SignedDuration::from_hours(hours)).to_string();
        let longest = json!({"first": {"node": "n", "since": ahead(2)}});
        rig.cluster.patch_status(Kind::Pool, "p", json!({"status": {"longestWait": longest}})).await?;
        let leases: Api<Lease> = Api::namespaced(plane.admin.clone(), "kube-system");
        let lease = serde_json::from_value(json!({
            "metadata": {"name": "cilium-node-ipam", "annotations": {"nodeipam.io/last-write": ahead(2)}},
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": ahead(2)},
        }))?;
        leases.create(&PostParams::default(), &lease).await?;
        let status = ask(plane, &["status"]).await?;
        ensure!(status.code == Some(1), "{:?} {}{}", status.code, status.text, status.errors);
        status.assert_lines(&["p Ready 0 0/4 4 0/0 ? -"])?;
        for part in ["last write at an unknown time", "ClockDiffers: the leader dates its writes 7"] {
            ensure!(status.says(part), "{}", status.text);
        }
        Ok(())
    })
    .await
}

/// The first line has the version of the leader, its replicas, and the time of its last write.
async fn says_who_leads(rig: &Rig) -> Result<()> {
    let plane = &rig.control_plane;
    replica(rig, &["run"]).await?;
    // The Lease shows the write when it is renewed, and no other object changes then.
    eventually(SOON, async || {
        let object = ask(plane, &["status", "-o", "json"]).await?.json()?;
        ensure!(object["controller"]["replicas"] == json!({"all": 1, "ready": 1}), "{object}");
        ensure!(object["controller"]["lastWrite"].is_string(), "{object}");
        Ok(())
    })
    .await?;
    let status = ask(plane, &["status"]).await?;
    let begin = format!("controller  {}, 1 of 1 replica ready, ", env!("CARGO_PKG_VERSION"));
    ensure!(status.text.starts_with(&begin), "{}", status.text);
    let line = status.text.lines().next().unwrap_or_default();
    ensure!(line.contains(" leads, mode crd, not frozen, last write ") && line.ends_with("s ago"), "{line}");
    Ok(())
}

/// With `--wait` it runs until the node has a block, and with `--watch` until it is interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn status_waits_until_nothing_is_wrong_and_watches_until_it_is_interrupted() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/26"])).await?;
        let starts = async {
            let controller = Controller::start_ready(plane, &[ELECTED]).await?;
            anyhow::Ok((controller, join_one(rig, NodeSpec::new("n")).await?))
        };
        // No replica leads at first.
        let (waited, started) =
            tokio::try_join!(ask(plane, &["status", "--wait", "--timeout", "2m"]), starts)?;
        ensure!(waited.code == Some(0), "{:?} {} {}", waited.code, waited.text, waited.errors);
        // The node may still be about to get its first addresses.
        ensure!(!waited.text.contains("NoLeader"), "{}", waited.text);

        says_who_leads(rig).await?;
        let mut watching = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"))
            .args(["status", "--watch"])
            .env("KUBECONFIG", &plane.admin_kubeconfig)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(watching.stdout.take().context("it has a pipe")?).lines();
        while let Some(line) = plane.alarm.over(async { Ok(lines.next_line().await?) }).await? {
            if line == "No problem found." {
                break;
            }
        }
        send(watching.id().context("it runs")?, "INT").await?;
        let ended = plane.alarm.over(async { Ok(watching.wait().await?) }).await?;
        ensure!(ended.code() == Some(0), "{ended}");
        Ok(started)
    })
    .await
}
