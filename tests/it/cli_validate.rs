//! `cilium-node-ipam validate` as users call it: its output, and its exit code.

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
(no host bits, no leading zeros, IPv6 in the form of RFC 5952); it means 10.0.0.0 to 10.0.31.255: write 10.0.0.0/19 \
for them
bad.yaml:6: NodeIPPool/typos: spec.ipv4.exclude[0]: \"10.0.0.7\": must be an IPv4 CIDR such as 10.0.0.0/24; did you \
mean 10.0.0.7/32?
bad.yaml:7: NodeIPPool/typos: spec.reuseAfter: \"1d\": must be a duration of at most 8760h (one year): whole numbers \
with h, m or s, such as 30s, 5m or 1h30m; without days, fractions, signs or spaces
bad.yaml:17: NodeIPPool/overlapping: spec.ipv4.cidrs: \"10.1.2.0/24\": must each be at least as large as a block: \
the prefix length must not exceed blockSize; write 10.1.2.0/23, or set blockSize to 24
bad.yaml:17: NodeIPPool/overlapping: spec.ipv4.cidrs: \"10.1.2.0/24\": must not overlap each other; it overlaps \
10.1.0.0/16
bad.yaml:19: NodeIPPool/from-the-future: apiVersion: \"nodeipam.io/v1\": must be nodeipam.io/v1alpha1
3 objects checked, 7 problems found, 0 warnings
",
    );
}

#[test]
fn json_and_lists_have_lines_too() {
    // A missing field has the line of the object that should have it.
    check(
        &["-f", "bad.json"],
        "",
        1,
        "\
bad.json:8: NodeIPPool/?: metadata.name: must be set
bad.json:10: NodeIPPool/?: spec.reuseAfterNodeLoss: 3600: must be a string; it must be a duration of at most 8760h \
(one year): whole numbers with h, m or s, such as 30s, 5m or 1h30m; without days, fractions, signs or spaces
bad.json:14: NodeIPPool/?: spec.ipv6.cidrs[0].cidr: \"fd00:10::1/64\": must be written masked and in canonical form \
(no host bits, no leading zeros, IPv6 in the form of RFC 5952); it means fd00:10:: to fd00:10::ffff:ffff:ffff:ffff: \
write fd00:10::/64 for them
1 object checked, 3 problems found, 0 warnings
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
useless.yaml:8: NodeIPPool/useless: warning: spec.ipv4.cidrs: has 1 block, fewer than perNode.initialBlocks of 4: no \
node gets its whole first grant
useless.yaml:10: NodeIPPool/useless: warning: spec.ipv4.cidrs[1].cidr: \"10.0.0.0/26\": gives no block: \
spec.ipv4.exclude excludes all of its addresses
useless.yaml:17: NodeIPPool/useless: warning: spec.ipv4.exclude[4]: \"192.168.0.0/16\": excludes nothing: it is \
outside of spec.ipv4.cidrs
useless.yaml:23: NodeIPPool/useless: warning: spec.perNode.initialBlocks: 4: is more than nodes can get: \
perNode.maxAddresses of 100 has room for 3 blocks of 30 ipv4 addresses
useless.yaml:24: NodeIPPool/useless: warning: spec.perNode.maxAddresses: 100: is less than the 256 ipv6 addresses of \
one block: nodes get no block
useless.yaml:26: NodeIPPool/useless: warning: spec.expand.freeBelow: 90: is more than a node can have free: it gets \
at most 90 ipv4 addresses (perNode.maxBlocks 16, perNode.maxAddresses 100, 30 in a block); every node takes its \
maximum and is then reported as NodeAtLimit
1 object checked, 0 problems found, 6 warnings
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
NodeIPPool/wide in overlap.yaml:7: the older pool keeps the range; if wide is older, narrow has 0 of 256 blocks; if \
narrow is older, wide has 1792 of 2048 blocks
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
sizes.yaml:15: NodeIPPool/mars-2: warning: spec.ipv4.blockSize: 27: differs from 26 of NodeIPPool/mars-1 in \
sizes.yaml:7, which has the same podIPPool: Cilium's BGP announces only one block size per family
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
fn a_key_given_twice_is_a_warning() {
    let text = "apiVersion: nodeipam.io/v1alpha1\nkind: NodeIPPool\nmetadata: {name: a}\nspec:\n  nodeSelector: \
                {matchLabels: {a: b}}\n  ipv4:\n    blockSize: 26\n    cidrs: [{cidr: 10.0.0.0/20}]\n    blockSize: 27\n";
    check(
        &["-f", "-"],
        text,
        0,
        "\
-:9: NodeIPPool/a: warning: spec.ipv4.blockSize: 27: is set twice: the server gets only this value, not that of line 7
1 object checked, 0 problems found, 1 warning
",
    );
}

#[test]
fn each_refusal_shows_the_right_form_and_hides_no_other() {
    check(
        &["-f", "forms.yaml"],
        "",
        1,
        "\
forms.yaml:7: NodeIPPool/forms: spec.ipv4.blockSize: \"/28\": must be an integer; write blockSize: 28
forms.yaml:9: NodeIPPool/forms: spec.ipv4.cidrs[0].cidr: \"192.168.100.200/28\": must be written masked and in \
canonical form (no host bits, no leading zeros, IPv6 in the form of RFC 5952); it means 192.168.100.192 to \
192.168.100.207: write 192.168.100.192/28 for them, or for 192.168.100.200 to 192.168.100.215 write \
192.168.100.200/29 and 192.168.100.208/29
forms.yaml:10: NodeIPPool/forms: spec.ipv4.cidrs[1].cidr: \"10.0.0.0-10.0.1.255\": must be an IPv4 CIDR such as \
10.0.0.0/24; 10.0.0.0 to 10.0.1.255 is written as 10.0.0.0/23
forms.yaml:11: NodeIPPool/forms: spec.ipv4.cidrs[2].cidr: \"10.0.4.0..10.0.4.9\": must be an IPv4 CIDR such as \
10.0.0.0/24; 10.0.4.0 to 10.0.4.9 is written as 10.0.4.0/29 and 10.0.4.8/31
forms.yaml:12: NodeIPPool/forms: spec.ipv4.cidrs[3].cidr: \"fd00::/64\": must be an IPv4 CIDR such as 10.0.0.0/24; \
this is ipv6, so it belongs in spec.ipv6, not in spec.ipv4
forms.yaml:13: NodeIPPool/forms: spec.ipv4.cidrs[4]: \"10.0.8.0/24\": must be an object; write {cidr: 10.0.8.0/24}
forms.yaml:14: NodeIPPool/forms: spec.ipv4.cidrs[5].cidr: \"127.0.0.0/16\": must not overlap unspecified, loopback, \
link-local or multicast addresses: pods can't use them; it overlaps 127.0.0.0/8
forms.yaml:15: NodeIPPool/forms: spec.ipv4.exclude: \"10.0.0.7/32\": must be an array; write exclude: [10.0.0.7/32]
forms.yaml:16: NodeIPPool/forms: spec.perNode.maxBlocks: \"64\": must be an integer
forms.yaml:17: NodeIPPool/forms: spec.reuseAfter: \"1d\": must be a duration of at most 8760h (one year): whole \
numbers with h, m or s, such as 30s, 5m or 1h30m; without days, fractions, signs or spaces
1 object checked, 10 problems found, 0 warnings
",
    );
}

#[test]
fn a_pool_that_will_hurt_is_a_warning_with_its_numbers() {
    check(
        &["-f", "hurts.yaml"],
        "",
        0,
        "\
hurts.yaml:4: NodeIPPool/every-node: warning: spec.nodeSelector: is empty: the pool serves every node at once, and \
each node keeps its first block for its life
hurts.yaml:5: NodeIPPool/every-node: warning: spec.ipv4.cidrs[1].cidr: \"8.8.0.0/24\": is public address space: pods \
can't reach its owners; prefer 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16
hurts.yaml:5: NodeIPPool/every-node: warning: spec.ipv4.cidrs[0].cidr: \"100.64.0.0/24\": is shared address space \
(100.64.0.0/10), which some clouds and VPNs use for nodes; prefer 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16
hurts.yaml:5: NodeIPPool/every-node: warning: spec.ipv4.blockSize: 29: is small: a block has 6 addresses, so a new \
node takes 2 blocks at once; expand.freeBelow is 8, and its agent uses up to 3
hurts.yaml:6: NodeIPPool/every-node: warning: spec.reuseAfterNodeLoss: \"0s\": is short: the machine of a deleted \
Node may still run, and another node gets the addresses of its pods after this time; use at least 10m
hurts.yaml:13: NodeIPPool/one-block: warning: spec.ipv4.cidrs: has 1 block: one node can start, and no other
hurts.yaml:20: NodeIPPool/few-blocks: warning: spec.ipv4.cidrs: has 4 blocks, fewer than perNode.initialBlocks of 5: \
no node gets its whole first grant
hurts.yaml:28: NodeIPPool/greedy: warning: spec.ipv4.cidrs: has 4 blocks, and perNode.maxBlocks is 8: one node can \
take all of them
4 objects checked, 0 problems found, 8 warnings
",
    );
}
