//! Names and values with control characters and overrides of direction are shown as escapes in every output of the
//! commands. None of it needs a control plane.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::model::printable::is_hidden;
use serde_json::{Value, json};

/// The title and the colour of a terminal, C1, an override of direction, line separators, and a line of its own.
const HOSTILE: &str =
    "\u{1b}]0;title\u{7}\u{1b}[31m\u{9b}32m\u{85}\u{202e}\u{2066}\u{61c}\u{2028}\u{feff}\u{7f}\nforged";

/// How the override in it is shown: in a line, or in JSON and YAML.
const SHOWN: [&str; 2] = ["\\u{202e}", "\\u202e"];

fn hostile(name: &str) -> String {
    format!("{name}{HOSTILE}")
}

/// Runs a command; returns both of its outputs, and its exit code.
fn run(arguments: &[&str], folder: &Path) -> Result<(String, Option<i32>)> {
    let output = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"))
        .args(arguments)
        .env("HOME", folder)
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    Ok((text, output.status.code()))
}

/// Fails if a text has a hidden character, or a line of the hostile text.
fn ensure_shown(what: &[&str], text: &str) -> Result<()> {
    ensure!(!text.contains(|char| char != '\n' && is_hidden(char)), "{what:?}: {text:?}");
    ensure!(!text.lines().any(|line| line.trim_start().starts_with("forged")), "{what:?}: {text:?}");
    Ok(())
}

/// A hostile object of each kind that a command reads.
fn objects() -> Vec<Value> {
    let meta = |name: &str, namespace: Option<&str>| {
        json!({"name": name, "namespace": namespace, "uid": name, "resourceVersion": "5", "generation": 1,
               "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"zone": hostile("a")}})
    };
    let ours = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "nodeipam.io/v1alpha1", "kind": kind, "metadata": meta(name, None), "spec": spec});
    let node = hostile("node");
    let addresses = json!([{"type": "InternalIP", "address": "192.0.2.1"}]);
    let used = json!({"10.1.0.5": {"owner": hostile("pod")}, hostile("10.1.0.6"): {"owner": "pod"}});
    let reason = json!({"freeze-writes": "true", hostile("key"): "1", "reason": HOSTILE.replace('\n', " ")});
    vec![
        ours(
            "NodeIPPool",
            &hostile("pool"),
            json!({"ipv4": {"blockSize": 28, "cidrs": [{"cidr": "10.1.0.0/24"}]}}),
        ),
        ours(
            "NodeIPPool",
            "unreadable",
            json!({"ipv4": {"blockSize": 28, "cidrs": [{"cidr": hostile("10.2.0.0/24")}]}, hostile("field"): 1}),
        ),
        ours(
            "NodeIPBlock",
            "10.1.0.0-28",
            json!({"cidr": "10.1.0.0/28", "pool": hostile("pool"), "node": node, "nodeUID": node,
                   "state": "Held", "since": "2026-01-01T00:00:00Z", "createdForCiliumNodeUID": node}),
        ),
        ours("NodeIPBlock", &hostile("10.1.0.16-28"), json!({"cidr": hostile("10.1.0.16/28"), "node": node})),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": meta(&node, None),
               "spec": {"podCIDRs": [hostile("10.3.0.0/24")]}, "status": {"addresses": addresses}}),
        json!({"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": meta(&node, None),
               "spec": {"ipam": {"podCIDRs": ["10.1.0.0/28", hostile("10.4.0.0/24")], "pool": {hostile("10.1.0.7"): {}}}},
               "status": {"ipam": {"used": used}}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("cilium-node-ipam", Some("kube-system")),
               "data": reason}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("cilium-config", Some("kube-system")),
               "data": {"ipam": "crd", "kvstore": hostile("etcd"), "ipv4-range": hostile("10.0.0.0/8")}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
               "metadata": meta("cilium-node-ipam", Some("kube-system")), "spec": {"holderIdentity": hostile("leader")}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(&hostile("pod"), Some(&hostile("shop"))),
               "spec": {"nodeName": node}, "status": {"podIP": "10.9.0.1", "podIPs": [{"ip": "10.9.0.1"}], "phase": "Running"}}),
        json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": meta(&hostile("calico"), None),
               "spec": {"cidr": hostile("10.5.0.0/16"), hostile("field"): 1}}),
    ]
}

#[test]
fn every_output_of_files_shows_escapes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let files = folder.path().join("files");
    std::fs::create_dir(&files)?;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects()});
    let named = files.join(format!("{}.json", hostile("objects")));
    std::fs::write(&named, list.to_string())?;
    let named = named.to_str().context("it is UTF-8")?;
    let from = files.to_str().context("it is UTF-8")?;
    let node = hostile("node");
    let commands: [&[&str]; 12] = [
        &["validate", "-f", named],
        &["import", "-f", named],
        &["status", "--from", from],
        &["check", "--from", from],
        &["check", "-f", named],
        &["why", &node, "--from", from],
        &["why", &hostile("absent"), "--from", from],
        &["who", "10.1.0.5", "10.1.0.20", "--from", from],
        &["routes", "--from", from],
        &["routes", "--format", "linux", "--from", from],
        &["plan", "--from", from],
        &["preflight", "--from", from],
    ];
    for command in commands {
        let forms: &[&[&str]] = match command {
            ["validate" | "import", ..] | ["routes", "--format", ..] => &[&[]],
            [..] => &[&[], &["-o", "wide"], &["-o", "json"], &["-o", "yaml"]],
        };
        for form in forms {
            let all = [command, form].concat();
            let (text, code) = run(&all, folder.path())?;
            ensure_shown(&all, &text)?;
            ensure!(
                SHOWN.iter().any(|shown| text.contains(shown)),
                "{all:?} ({code:?}) has no hostile text: {text}"
            );
        }
    }
    Ok(())
}

#[test]
fn the_names_of_a_kubeconfig_show_escapes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config");
    let name = hostile("context");
    // A context without a cluster.
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": name, "users": [], "clusters": [],
                        "contexts": [{"name": name, "context": {"cluster": hostile("cluster"), "user": "u"}}]});
    std::fs::write(&path, config.to_string())?;
    let path = path.to_str().context("it is UTF-8")?;
    for command in [
        &["status", "--kubeconfig", path][..],
        &["status", "--kubeconfig", path, "--context", &hostile("other")],
    ] {
        let (text, code) = run(command, folder.path())?;
        ensure!(code == Some(2), "{code:?} {text}");
        ensure_shown(command, &text)?;
    }
    Ok(())
}

/// The lints against `println!` do not see a write to a stream.
#[test]
fn only_the_edge_writes_to_standard_output_and_error() -> Result<()> {
    /// The second and the third only ask about the terminal.
    const EDGE: [&str; 4] =
        ["src/cli/screen.rs", "src/cli/screen/wrap.rs", "src/cli/answers/follow.rs", "src/telemetry/logs.rs"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("src")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if ["stdout()", "stderr()", "io::stderr;", "io::stdout;"]
                .iter()
                .any(|stream| text.contains(stream))
            {
                found.push(path.strip_prefix(root)?.display().to_string());
            }
        }
    }
    found.retain(|file| !EDGE.contains(&file.as_str()));
    ensure!(found.is_empty(), "{found:?} write past cli::screen");
    Ok(())
}
