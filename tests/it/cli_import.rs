//! `cilium-node-ipam import` as it is called: the pools that it prints, and the settings that it refuses.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::answers::{Said, documented};

/// Runs a command in `tests/data/import`.
fn run(args: &[&str], stdin: &str) -> Result<Said> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/import"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("it is piped")?.write_all(stdin.as_bytes())?;
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Said { text: text(&output.stdout), errors: text(&output.stderr), code: output.status.code() })
}

#[test]
fn a_setting_that_a_pool_can_not_express_is_refused_by_name_and_line() -> Result<()> {
    let imported = run(&["import", "-f", "ippools.yaml"], "")?;
    ensure!(imported.code == Some(1), "{:?} {}", imported.code, imported.errors);
    ensure!(
        imported.errors.contains("ippools.yaml:17: IPPool/either: spec.nodeSelector: "),
        "{}",
        imported.errors
    );
    ensure!(!imported.text.contains("either") && imported.text.contains("name: rack-1"), "{}", imported.text);
    let both = Said { text: format!("{}{}", imported.errors, imported.text), ..imported };
    documented("import -f ippools.yaml", &both)
}

#[test]
fn imported_pools_are_valid() -> Result<()> {
    let imported = run(&["import", "-f", "others.json"], "")?;
    ensure!(imported.code == Some(0), "{:?} {}", imported.code, imported.errors);
    let unused = ["others.json:9: ConfigMap/skipped: not used", "note: spec.allowFirstIP is left out"];
    ensure!(unused.iter().all(|line| imported.errors.contains(line)), "{}", imported.errors);
    ensure!(imported.text.contains("exclude:\n    - 10.60.0.0/28"), "{}", imported.text);
    let valid = run(&["validate", "-f", "-"], &imported.text)?;
    ensure!(
        valid.code == Some(0) && valid.text.contains("2 objects checked, 0 problems found"),
        "{}{}{}",
        imported.text,
        valid.text,
        valid.errors
    );
    let nothing = run(&["import", "-f", "-"], "kind: ConfigMap\n")?;
    ensure!(nothing.code == Some(2) && nothing.errors.contains("nothing to import"), "{}", nothing.errors);
    Ok(())
}

/// All objects of one Calico, as an editor of Windows saves them.
const CALICO: &str = r#"
kind: List
items:
- {apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: a}, spec: {cidr: 10.48.0.0/20, nodeSelector: "x == 'u' || x == 'v'"}}
- {apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: b}, spec: {cidr: 10.48.8.0/21, nodeSelector: has(x)}}
- {apiVersion: projectcalico.org/v3, kind: IPReservation, metadata: {name: r}, spec: {reservedCIDRs: [10.48.0.1]}}
- {apiVersion: projectcalico.org/v3, kind: IPAMConfiguration, metadata: {name: default}, spec: {strictAffinity: false, maxBlocksPerHost: 4}}
- {apiVersion: operator.tigera.io/v1, kind: Installation, metadata: {name: default}, spec: {registry: r, calicoNetwork: {ipPools: [{cidr: 10.48.0.0/20}]}}}
- {apiVersion: projectcalico.org/v3, kind: BGPPeer, metadata: {name: p}}
"#;

#[test]
fn all_objects_of_calico_are_used_or_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("calico.yaml");
    let text = CALICO.replace('\n', "\r\n");
    std::fs::write(
        &file,
        [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect::<Vec<u8>>(),
    )?;
    let imported = run(&["import", "-f", &file.to_string_lossy()], "")?;
    ensure!(imported.code == Some(0), "{:?} {}", imported.code, imported.errors);
    let named = [
        ":7: IPAMConfiguration/default: note: spec.strictAffinity is left out",
        ":8: Installation/default: note: spec.registry is left out",
        ":8: Installation/default: note: spec.calicoNetwork.ipPools[0] is left out: IPPool/a of the input",
        ":9: BGPPeer/p: not used",
        ":5: IPPool/b: warning: spec.ipv4.cidrs: \"10.48.8.0/21\": overlaps 10.48.0.0/20 of NodeIPPool/a in ",
    ];
    for line in named {
        ensure!(imported.errors.contains(line), "{line} is missing:\n{}", imported.errors);
    }
    ensure!(imported.text.matches("kind: NodeIPPool").count() == 2, "{}", imported.text);
    for part in ["exclude:\n    - 10.48.0.1/32", "maxBlocks: 4", "values:\n      - u\n      - v"] {
        ensure!(imported.text.contains(part), "{part} is missing:\n{}", imported.text);
    }
    Ok(())
}
