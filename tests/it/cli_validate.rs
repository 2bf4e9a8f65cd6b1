//! `cilium-node-ipam validate` as it is called: what it prints, and its exit code.

#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Runs `validate` in `tests/data/pools` and compares exit code and standard output.
fn check(args: &[&str], stdin: &str, code: i32, stdout: &str) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pools"))
        .arg("validate")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout, "{stderr}");
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert_eq!(stderr.is_empty(), code != 2, "{stderr}");
}

#[test]
fn good_files_pass() {
    check(&["-f", "good"], "", 0, "3 objects checked, 0 problems found, 0 warnings\n");
}

#[test]
fn each_finding_is_one_line_with_place_value_and_rule() {
    check(
        &["-f", "bad.yaml"],
        "",
        1,
        "\
bad.yaml:1 NodeIPPool/typos: spec.ipv4.cidrs[0].cidr: \"10.0.0.5/19\": must be written masked and in canonical form \
(no host bits, no leading zeros, IPv6 in the form of RFC 5952)
bad.yaml:1 NodeIPPool/typos: spec.nodeselector: {\"matchLabels\":{\"zone\":\"a\"}}: unknown field
bad.yaml:2 NodeIPPool/overlapping: spec.ipv4.cidrs: \"10.1.2.0/24\": must each be at least as large as a block: no \
prefix longer than blockSize
bad.yaml:2 NodeIPPool/overlapping: spec.ipv4.cidrs: \"10.1.2.0/24\": must not overlap each other
bad.yaml:3 NodeIPPool/from-the-future: apiVersion: \"nodeipam.io/v1\": must be nodeipam.io/v1alpha1
3 objects checked, 5 problems found, 0 warnings
",
    );
}

#[test]
fn pools_that_overlap_are_a_warning() {
    check(
        &["-f", "overlap.yaml"],
        "",
        0,
        "\
overlap.yaml:1 NodeIPPool/narrow: warning: spec.ipv4.cidrs: \"10.64.32.0/19\": overlaps 10.64.0.0/16 of \
overlap.yaml:1 NodeIPPool/wide: in a cluster the older pool keeps the range and the other gets none of it; a file \
does not tell which one is older
2 objects checked, 0 problems found, 1 warning
",
    );
}

#[test]
fn an_unreadable_file_does_not_hide_the_others() {
    check(
        &["-f", "-", "-f", "no-such-file", "-f", "good/rest.json"],
        "a: [1\n",
        2,
        "1 object checked, 0 problems found, 0 warnings\n",
    );
}

#[test]
fn nothing_to_check_is_no_success() {
    check(&["-f", "-"], "kind: ConfigMap\n", 2, "0 objects checked, 0 problems found, 0 warnings\n");
}

#[test]
fn a_key_given_twice_is_refused_as_the_server_does() {
    let text = "apiVersion: nodeipam.io/v1alpha1\nkind: NodeIPPool\nkind: NodeIPPool\n";
    check(&["-f", "-"], text, 2, "0 objects checked, 0 problems found, 0 warnings\n");
}
