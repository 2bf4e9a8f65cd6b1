//! The worlds of the tests of wake-ups in the mode multi-pool, with BGP, and the versions that objects may have in
//! them.

use super::worlds::{NODES, of_nodes};

/// Worlds in which a node waits: the reason, the objects, and each change after a `then`.
pub(super) const WORLDS: &[(&str, &str)] = &[
    (
        "the family in a CiliumPodIPPool",
        "pool p 10.0.0.0/27 28\njoined a @50 need=8\njoined b @51 need=8\nthen podippools default v6=122",
    ),
    (
        "a CiliumPodIPPool",
        "pool p 10.0.0.0/27 28\npool q 10.0.0.64/27 28 under=mars\njoined a @50 need=8 mars=8\n\
         agent a 1.20.2\nthen podippools other v4=28",
    ),
    (
        "an agent that needs no CiliumPodIPPool",
        "pool p 10.0.0.0/27 28\njoined a @50 need=20 has=10.0.0.0/28\n\
         claim 10.0.0.0/28 a 1 Held @40 under=default\nclaim 10.0.0.16/28 a 1 Held @41 under=default\n\
         then agent a 1.20.2\nthen podippools mars v4=28",
    ),
    (
        "the CiliumPodIPPool of a claim",
        "pool p 10.0.0.0/27 28\njoined a @50 recreated need=8 mars=8\n\
         claim 10.0.0.0/28 a 1 Held @40 under=default\nclaim 10.0.0.64/28 a 1 Held @41 under=mars\n\
         then podippools default v4=28\nmars",
    ),
    (
        "another version of its agent",
        "pool p 10.0.0.0/27 28\njoined a @50 need=8\njoined b @51 need=8\nagent a 1.13.10\nagent b 1.17.8\n\
         then podippools default v4=28",
    ),
    (
        "another version of its agent, to grow",
        "pool p 10.0.0.0/27 28\njoined a @50 need=20 has=10.0.0.0/28\n\
         claim 10.0.0.0/28 a 1 Held @40 under=default\nthen agent a 1.13.10\n\
         then agent a 1.17.8 named=new\nthen podippools default v4=28",
    ),
    (
        "nothing",
        "pool p 10.0.0.0/27 28\njoined a @50 need=8 has=10.0.0.0/28\n\
         claim 10.0.0.0/28 a 1 Held @40 under=default\nthen podippools default v4=28\nmars v4=28",
    ),
    (
        "its Pods to be read before a block of a pool that drains is taken off",
        "pool p 10.0.0.0/27 28\npool q 10.0.0.64/27 28 draining\n\
         joined a @50 need=8 has=10.0.0.0/28,10.0.0.64/28\nagent a 1.17.8\n\
         claim 10.0.0.0/28 a 1 Held @40 under=default\nclaim 10.0.0.64/28 a 1 Held @41 of=q under=default\n\
         then podippools default v4=28",
    ),
    (
        "the answer to a question",
        "pool p 10.0.0.0/27 28\npool q 10.0.0.64/27 28 draining\n\
         joined a @50 need=8 has=10.0.0.0/28 asked=45\nagent a 1.17.8\n\
         claim 10.0.0.0/28 a 1 Held @40 under=default\n\
         claim 10.0.0.64/28 a 1 Releasing/Reclaimed @41 of=q under=default\nthen podippools default v4=28",
    ),
    (
        "a block that its agent has taken back by itself",
        "pool p 10.0.0.0/27 28\npool q 10.0.0.64/27 28 draining\n\
         joined a @50 need=8 has=10.0.0.0/28,10.0.0.64/28\nagent a 1.17.8\n\
         claim 10.0.0.0/28 a 1 Held @40 under=default\n\
         claim 10.0.0.64/28 a 1 Draining @41 of=q under=default\nthen podippools default v4=28\nthen end",
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

/// The CIDRs of claims.
pub(super) const BLOCKS: [&str; 3] = ["10.0.0.0/28", "10.0.0.16/28", "10.0.0.64/28"];

pub(super) fn cilium_node_lines() -> Vec<String> {
    of_nodes(
        "ciliumnode",
        &[
            "",
            "need=8",
            "need=8 mars=8",
            "need=20 has=10.0.0.0/28",
            "need=8 has=10.0.0.0/28,10.0.0.16/28",
            "need=8 has=10.0.0.0/28 asked=100000",
            "need=8 has=10.0.0.16/28 others=10.0.0.64/28",
            "need=8 has=10.0.0.0/28 operator=full",
            "recreated need=8",
        ],
    )
}

pub(super) fn claim_lines() -> Vec<String> {
    let states = [
        "1 Held",
        "1 Draining",
        "1 Releasing/Reclaimed",
        "1 Releasing/Unused",
        "1 Cooling/Reclaimed",
        "1 Cooling/NodeGone",
    ];
    let mut lines = Vec::new();
    for name in NODES {
        for (cidr, under) in BLOCKS.into_iter().zip(["default", "default", "mars"]) {
            lines.extend(states.map(|state| format!("claim {cidr} {name} {state} under={under}")));
        }
    }
    lines
}

pub(super) fn pool_lines() -> Vec<String> {
    [
        "p 10.0.0.0/27 28",
        "p 10.0.0.0/27 28 zone=x",
        "p 10.0.0.0/27 28 draining",
        "p 10.0.0.0/27 28 deleting",
        "p 10.0.0.0/27 28 reclaim=enabled",
        "p 10.0.0.0/27 28 invalid",
        "p 10.0.0.0/27 27",
        "q 10.0.0.64/27 28 under=mars younger",
        "q 10.0.0.64/27 28 under=mars draining",
        "q 10.0.0.64/27 28 younger",
        "q 10.0.0.64/27 27 under=mars zone=x",
    ]
    .map(|rest| format!("pool {rest}"))
    .to_vec()
}
