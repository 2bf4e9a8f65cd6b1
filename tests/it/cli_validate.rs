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
bad.yaml:5: NodeIPPool/typos: spec.nodeselector: {\"matchLabels\":{\"zone\":\"a\"}}: unknown field
bad.yaml:6: NodeIPPool/typos: spec.ipv4.cidrs[0].cidr: \"10.0.0.5/19\": must be written masked and in canonical form \
(no host bits, no leading zeros, IPv6 in the form of RFC 5952); did you mean 10.0.0.0/19?
bad.yaml:6: NodeIPPool/typos: spec.ipv4.exclude[0]: \"10.0.0.7\": must be an IPv4 CIDR such as 10.0.0.0/24; did you \
mean 10.0.0.7/32?
bad.yaml:7: NodeIPPool/typos: spec.reuseAfter: \"1d\": must be a duration of at most 8760h (one year): whole numbers \
with h, m or s, such as 30s, 5m or 1h30m; without days, fractions, signs or spaces
bad.yaml:17: NodeIPPool/overlapping: spec.ipv4.cidrs: \"10.1.2.0/24\": must each be at least as large as a block: \
the prefix length must not exceed blockSize
bad.yaml:17: NodeIPPool/overlapping: spec.ipv4.cidrs: \"10.1.2.0/24\": must not overlap each other
bad.yaml:19: NodeIPPool/from-the-future: apiVersion: \"nodeipam.io/v1\": must be nodeipam.io/v1alpha1
3 objects checked, 7 problems found, 0 warnings
",
    );
}

#[test]
fn json_and_lists_have_lines_too() {
    // What is missing has the line of the object that should have it.
    check(
        &["-f", "bad.json"],
        "",
        1,
        "\
bad.json:8: NodeIPPool/?: metadata.name: must be set
bad.json:10: NodeIPPool/?: spec.reuseAfterNodeLoss: 3600: must be a string; it must be a duration of at most 8760h \
(one year): whole numbers with h, m or s, such as 30s, 5m or 1h30m; without days, fractions, signs or spaces
1 object checked, 2 problems found, 0 warnings
",
    );
}

#[test]
fn what_cannot_work_is_a_warning() {
    check(
        &["-f", "useless.yaml"],
        "",
        0,
        "\
useless.yaml:9: NodeIPPool/useless: warning: spec.ipv4.cidrs[1].cidr: \"10.0.0.0/26\": gives no block: \
spec.ipv4.exclude excludes all of its addresses
useless.yaml:16: NodeIPPool/useless: warning: spec.ipv4.exclude[4]: \"192.168.0.0/16\": excludes nothing: it is \
outside of spec.ipv4.cidrs
useless.yaml:22: NodeIPPool/useless: warning: spec.perNode.initialBlocks: 4: is more than nodes can get: \
perNode.maxAddresses of 100 has room for 3 blocks of 30 ipv4 addresses
useless.yaml:23: NodeIPPool/useless: warning: spec.perNode.maxAddresses: 100: is less than the 256 ipv6 addresses of \
one block: nodes get no block
useless.yaml:25: NodeIPPool/useless: warning: spec.expand.freeBelow: 90: is more than a node can have free: it gets at most 90 ipv4 \
addresses (perNode.maxBlocks 16, perNode.maxAddresses 100, 30 in a block); every node takes its maximum and is then reported as NodeAtLimit
1 object checked, 0 problems found, 5 warnings
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
overlap.yaml:11: NodeIPPool/narrow: warning: spec.ipv4.cidrs: \"10.64.32.0/19\": overlaps 10.64.0.0/16 of \
NodeIPPool/wide in overlap.yaml:7: in a cluster the older pool keeps the range, and the other pool gets nothing of \
it
2 objects checked, 0 problems found, 1 warning
",
    );
}

#[test]
fn pools_of_one_name_with_blocks_of_two_sizes_are_a_warning() {
    check(
        &["-f", "sizes.yaml"],
        "",
        0,
        "\
sizes.yaml:13: NodeIPPool/mars-2: warning: spec.ipv4.blockSize: 27: differs from 26 of NodeIPPool/mars-1 in \
sizes.yaml:6, which has the same podIPPool: Cilium's BGP announces only one block size per family
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
