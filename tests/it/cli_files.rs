//! Files as editors and shells leave them: `validate` accepts all that `kubectl apply` accepts, and refuses all others.

#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

use std::process::Command;

use crate::support::control_plane::{ControlPlane, Options};
use crate::support::kubectl::kubectl;

const POOL: &str = "\
apiVersion: nodeipam.io/v1alpha1
kind: NodeIPPool
metadata:
  name: a
spec:
  nodeSelector: {matchLabels: {a: b}}
  ipv4:
    blockSize: 27
    cidrs:
    - cidr: 10.48.0.0/20
";

/// Part of the output of `validate`; without it the file is good and has no warning.
type Says = Option<&'static str>;

fn utf16(mark: [u8; 2], to_bytes: fn(u16) -> [u8; 2], text: &str) -> Vec<u8> {
    mark.into_iter().chain(text.encode_utf16().flat_map(to_bytes)).collect()
}

/// Each file by its name.
fn files() -> Vec<(&'static str, Vec<u8>, Says)> {
    let with = |from: &str, to: &str| POOL.replace(from, to);
    let size = |size: &str| with("blockSize: 27", size).into_bytes();
    let (windows, second) = (with("\n", "\r\n"), with("name: a", "name: b").replace("10.48", "10.49"));
    let json = serde_json::json!({
        "apiVersion": "nodeipam.io/v1alpha1", "kind": "NodeIPPool", "metadata": {"name": "a"},
        "spec": {"nodeSelector": {"matchLabels": {"a": "b"}},
                 "ipv4": {"blockSize": 27, "cidrs": [{"cidr": "10.48.0.0/20"}]}},
    });
    let json = json.to_string();
    vec![
        ("plain", POOL.into(), None),
        ("utf8-bom", format!("\u{feff}{POOL}").into(), None),
        ("utf16-little", utf16([0xff, 0xfe], u16::to_le_bytes, POOL), None),
        ("utf16-big", utf16([0xfe, 0xff], u16::to_be_bytes, POOL), None),
        ("utf16-windows", utf16([0xff, 0xfe], u16::to_le_bytes, &windows), None),
        ("utf16-json", utf16([0xff, 0xfe], u16::to_le_bytes, &json), None),
        (
            "utf16-without-bom",
            POOL.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            Some("neither YAML nor JSON"),
        ),
        ("windows", windows.clone().into(), None),
        ("old-mac", with("\n", "\r").into(), None),
        ("latin1", [POOL.as_bytes(), b"# gr\xfc\xdf\n"].concat(), None),
        ("nul", [POOL.as_bytes(), b"\0\n"].concat(), Some("neither YAML nor JSON")),
        ("two", format!("---\n{POOL}---   \n{second}---\n---\n").into(), None),
        ("two-windows", format!("---\r\n{windows}---\r\n{}", second.replace('\n', "\r\n")).into(), None),
        ("two-bom", format!("{POOL}---\n\u{feff}{second}").into(), None),
        ("comment-behind-separator", format!("{POOL}--- # second\n{second}").into(), None),
        ("text-behind-separator", format!("{POOL}--- {json}\n").into(), Some("text behind `---`")),
        ("directive", format!("%YAML 1.2\n---\n{POOL}").into(), Some("no directives")),
        ("document-end", format!("{POOL}...\n").into(), None),
        ("tab", with("    blockSize", "\tblockSize").into(), Some("neither YAML nor JSON")),
        ("no-break-space", size("blockSize:\u{a0}27"), Some("neither YAML nor JSON")),
        ("typographic-quotes", with("name: a", "name: \u{201c}a\u{201d}").into(), Some("metadata.name")),
        ("anchor", with("  name: a", "  name: &n a\n  annotations: {k: *n}").into(), None),
        ("unknown-anchor", with("name: a", "name: *n").into(), Some("neither YAML nor JSON")),
        ("merge-key", size("<<: {blockSize: 27}"), None),
        ("number-as-label-key", with("name: a", "name: a\n  labels: {1: x}").into(), None),
        ("json", json.clone().into(), None),
        (
            "json-two",
            format!("{json}\n{}\n", json.replace("\"a\"}", "\"b\"}").replace("10.48", "10.49")).into(),
            None,
        ),
        ("json-bom", format!("\u{feff}{json}").into(), None),
        ("json-trailing-comma", json.replace("\"a\"}", "\"a\",}").into(), None),
        ("octal", size("blockSize: 033"), None),
        ("hexadecimal", size("blockSize: 0x1b"), None),
        ("float", size("blockSize: 27.0"), None),
        ("quoted-number", size("blockSize: \"27\""), Some("spec.ipv4.blockSize")),
        ("yaml-1.1-boolean", size("blockSize: yes"), Some("spec.ipv4.blockSize")),
        (
            "twice",
            size("blockSize: 26\n    blockSize: 27"),
            Some("9: NodeIPPool/a: warning: spec.ipv4.blockSize: 27: is set twice"),
        ),
        (
            "twice-the-same",
            with("kind: NodeIPPool", "kind: NodeIPPool\nkind: NodeIPPool").into(),
            Some("is set twice"),
        ),
        ("twice-and-bad", size("blockSize: 27\n    blockSize: 99"), Some("spec.ipv4.blockSize: 99")),
        ("twice-in-json", json.replace("{\"name\"", "{\"name\":\"b\",\"name\"").into(), Some("is set twice")),
        ("no-document", b"# nothing\n".into(), Some("nothing to check")),
        ("empty", Vec::new(), Some("nothing to check")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn files_get_the_verdict_of_kubectl() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, bytes, says) in files() {
        let file = folder.path().join(format!("{name}.yaml"));
        std::fs::write(&file, bytes).unwrap();
        let path = file.to_string_lossy();
        let judged = kubectl(&plane, &["apply", "--dry-run=server", "-f", &path]).await;
        let ours = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"))
            .args(["validate", "-f", &path])
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&[ours.stdout, ours.stderr].concat()).into_owned();
        let is_as_reported = match says {
            Some(part) => output.contains(part),
            None => output.contains(" 0 problems found, 0 warnings"),
        };
        if judged.is_ok() != ours.status.success() || !is_as_reported {
            wrong.push(format!("{name}: kubectl: {judged:?}\n{output}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
