//! The worlds of the tests of wake-ups in the mode multi-pool, with BGP, and the versions that objects may have in them.

use super::worlds::NODES;

/// Worlds in which somebody waits: for what, the objects, and what has happened to them.
pub(super) const WORLDS: &[(&str, &str, &[&str])] = &[
    (
        "the family in a CiliumPodIPPool",
        "pool p 10.0.0.0/27 28\nnode a 1\nnode b 1\nciliumnode a @50 need=8\nciliumnode b @51 need=8",
        &["podippools default v6=122"],
    ),
    (
        "a CiliumPodIPPool",
        "pool p 10.0.0.0/27 28\npool q 10.0.0.64/27 28 under=mars\nnode a 1\nciliumnode a @50 need=8 mars=8\nagent a 1.20.2",
        &["podippools other v4=28"],
    ),
    (
        "an agent that needs no CiliumPodIPPool",
        "pool p 10.0.0.0/27 28\nnode a 1\nciliumnode a @50 need=20 has=10.0.0.0/28\n\
         claim 10.0.0.0/28 a 1 Held @40 under=default\nclaim 10.0.0.16/28 a 1 Held @41 under=default",
        &["agent a 1.20.2", "podippools mars v4=28"],
    ),
    (
        "the CiliumPodIPPool of a claim",
        "pool p 10.0.0.0/27 28\nnode a 1\nciliumnode a @50 recreated need=8 mars=8\n\
         claim 10.0.0.0/28 a 1 Held @40 under=default\nclaim 10.0.0.64/28 a 1 Held @41 under=mars",
        &["podippools default v4=28\nmars"],
    ),
    (
        "nothing",
        "pool p 10.0.0.0/27 28\nnode a 1\nciliumnode a @50 need=8 has=10.0.0.0/28\n\
         claim 10.0.0.0/28 a 1 Held @40 under=default",
        &["podippools default v4=28\nmars v4=28"],
    ),
];

/// The versions of CiliumPodIPPools.
pub(super) const OBJECTS: [&str; 8] = [
    "default",
    "default v4=28",
    "default v4=26",
    "default v4=28 v6=122 ours",
    "mars",
    "mars v6=122",
    "mars v4=28",
    "other v4=28",
];

pub(super) fn cilium_node_lines() -> Vec<String> {
    let rest = [
        "",
        "need=8",
        "need=8 mars=8",
        "need=20 has=10.0.0.0/28",
        "need=8 has=10.0.0.16/28 others=10.0.0.64/28",
        "recreated need=8",
    ];
    NODES.iter().flat_map(|name| rest.map(|rest| format!("ciliumnode {name} {rest}"))).collect()
}

pub(super) fn claim_lines() -> Vec<String> {
    let blocks = [("10.0.0.0/28", "default"), ("10.0.0.16/28", "default"), ("10.0.0.64/28", "mars")];
    let of_node = |name: &str| {
        let states = ["1 Held", "1 Releasing/Reclaimed"];
        let line = |(cidr, under): (&str, &str), state| format!("claim {cidr} {name} {state} under={under}");
        blocks.map(|block| states.map(|state| line(block, state))).concat()
    };
    NODES.into_iter().flat_map(of_node).collect()
}

pub(super) fn pool_lines() -> Vec<String> {
    [
        "p 10.0.0.0/27 28",
        "p 10.0.0.0/27 28 zone=x",
        "p 10.0.0.0/27 28 deleting",
        "p 10.0.0.0/27 28 invalid",
        "p 10.0.0.0/27 27",
        "q 10.0.0.64/27 28 under=mars younger",
        "q 10.0.0.64/27 28 younger",
        "q 10.0.0.64/27 27 under=mars zone=x",
    ]
    .map(|rest| format!("pool {rest}"))
    .to_vec()
}
