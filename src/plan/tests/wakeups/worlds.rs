//! The worlds of the tests of wake-ups, and the versions that objects may have in them.

use super::reclaim;

/// The names of the nodes in these worlds.
pub(super) const NODES: [&str; 3] = ["a", "b", "c"];

/// Worlds in which a node waits: the reason, the objects, and each change after a `then`.
pub(super) const WORLDS: &[(&str, &str)] = &[
    ("capacity", "pool p 10.0.0.0/30 30\njoined a @50 10.0.0.0/30\njoined b @51"),
    (
        "capacity, of two pools",
        "pool p 10.0.0.0/30 30\npool q 10.0.0.8/30 30 younger\njoined a @50 10.0.0.0/30\njoined b @51\n\
         node c 1\nciliumnode c @52 10.0.0.8/30 used=4\nclaim 10.0.0.8/30 c 1 Held @41",
    ),
    (
        "a block that is not all of node addresses",
        "pool p 10.0.0.0/30 30\nnode a 1 own=10.0.0.0/30\njoined b @51",
    ),
    (
        "an end of an overlap of two that are carried",
        "pool p 10.0.0.0/28 30\njoined a @50 10.0.0.0/29\njoined b @51 10.0.0.4/30",
    ),
    (
        "an end of an overlap of two that may be in use",
        "pool p 10.0.0.0/29 30\njoined a @50 recreated\njoined b @51 recreated\n\
         claim 10.0.0.0/29 a 1 Held @40\nclaim 10.0.0.4/30 b 1 Held @41",
    ),
    (
        "an end of an overlap of two without CiliumNodes",
        "pool p 10.0.0.0/29 30\nnode a 1\nnode b 1\nclaim 10.0.0.0/29 a 1 Held @40\n\
         claim 10.0.0.4/30 b 1 Held @41",
    ),
    (
        "an end of an overlap of three",
        "pool p 10.0.0.0/29 30\nnode a 1\nnode b 1\nciliumnode a @50 10.0.0.4/30\n\
         ciliumnode b @51 recreated\nclaim 10.0.0.0/29 a 1 Held @40\nclaim 10.0.0.4/31 b 1 Held @41\n\
         claim 10.0.0.4/30 a 1 Held @42",
    ),
    (
        "another node that carries its block",
        "pool p 10.0.0.0/28 30\njoined a @50\nnode b 1\nciliumnode b @51 10.0.0.0/30\n\
         claim 10.0.0.0/30 a 1 Held @40",
    ),
    (
        "an unreadable object over its claim",
        "pool p 10.0.0.0/30 30\njoined a @50\nclaim 10.0.0.0/30 a 1 Held @40\n\
         unreadable NodeIPBlock 10.0.0.4-30 10.0.0.0/29 @41",
    ),
    (
        "an unreadable object over what it carries without a claim",
        "pool p 10.0.0.0/30 30\nnode a 1\nciliumnode a @50 10.0.0.0/30\nunreadable Node c 10.0.0.0/30 @41",
    ),
    (
        "an unreadable object that takes all that is free",
        "pool p 10.0.0.0/29 30\njoined a @50\n\
         unreadable NodeIPBlock 10.0.0.8-30 10.0.0.0/30 10.0.0.4/30 @41",
    ),
    ("its own CiliumNode", "pool p 10.0.0.0/28 30\nnode a 1\nunreadable CiliumNode a 10.0.0.4/30 @41"),
    ("the correction of its CiliumNode", "pool p 10.0.0.0/28 30\njoined a @50 10.0.0.0/30 malformed"),
    ("the end of its CiliumNode", "pool p 10.0.0.0/28 30\njoined a @50 10.0.0.0/30 deleting"),
    ("the other family", "pool p 10.0.0.0/28 30\njoined a @50\nthen mode crd v4 v6"),
    (
        "a mode",
        "pool p 10.0.0.0/28 30\njoined a @50\nclaim 10.0.0.0/30 b 1 Cooling/NodeGone @40\nthen mode none",
    ),
    (
        "the end of the freeze",
        "pool p 10.0.0.0/28 30\njoined a @50\nclaim 10.0.0.0/30 b 1 Cooling/NodeGone @40\nthen freeze",
    ),
    (
        "a mode, with a lost claim",
        "pool p 10.0.0.0/28 30\nciliumnode a @50 10.0.0.0/30\nclaim 10.0.0.0/30 a 1 Held @40\n\
         claim 10.0.0.4/30 b 1 Held @40\nthen mode none\nthen delete claim 10.0.0.0/30 a 1 Held\n\
         then delete claim 10.0.0.4/30 b 1 Held",
    ),
    (
        "its CiliumNode, with a lost claim",
        "pool p 10.0.0.0/30 30\nnode a 1\njoined b @51\nclaim 10.0.0.0/30 a 1 Held @40\n\
         then delete claim 10.0.0.0/30 a 1 Held",
    ),
    (
        "a lost claim that could not be read",
        "pool p 10.0.0.0/30 30\njoined a @50\nunreadable NodeIPBlock 10.0.0.0-30 10.0.0.0/30 @60\n\
         then delete unreadable NodeIPBlock 10.0.0.0-30",
    ),
    ("the end of cooling", "pool p 10.0.0.0/30 30\njoined b @51\nclaim 10.0.0.0/30 a 1 Cooling/NodeGone @40"),
    (
        "its pool, while it cools",
        "pool p 10.0.0.0/30 30 invalid\nclaim 10.0.0.0/30 a 1 Cooling/NodeGone @40\nthen wait 1000000\n\
         then wait 30",
    ),
    (
        "a CiliumNode that outlives its Node",
        "pool p 10.0.0.0/30 30\njoined b @52\nciliumnode a @51 10.0.0.0/30\n\
         claim 10.0.0.0/30 a 1 Releasing/NodeGone @40",
    ),
    (
        "nothing, at its limit of addresses",
        "pool p 10.0.0.0/28 30 maxAddresses=5\nnode a 1\nnode b 1 own=10.0.0.8/32\nciliumnode b @52\n\
         ciliumnode a @51 10.0.0.0/30 used=4\nclaim 10.0.0.0/30 a 1 Held @40",
    ),
    (
        "nothing, at its limit of blocks",
        "pool p 10.0.0.0/28 30 maxBlocks=1\nnode a 1\nciliumnode a @51 10.0.0.0/30 used=4\n\
         claim 10.0.0.0/30 a 1 Held @40",
    ),
    (
        "a block that its agent may be using and that another node carries",
        "pool p 10.0.0.0/30 30\njoined a @50 recreated\nclaim 10.0.0.12/30 a 1 Held @40\n\
         ciliumnode c @51 10.0.0.12/32",
    ),
    ("the rest of a first set", "pool p 10.0.0.0/31 31\njoined a @50\nclaim 10.0.0.0/31 a 1 Held @40"),
    ("a pool", "pool p 10.0.0.0/28 30 zone=x\njoined a @50 10.0.0.0/30 used=4"),
    ("what its agent uses", "pool p 10.0.0.0/28 30\njoined a @50 10.0.0.0/30 used=unknown"),
];

/// The CIDRs of claims, and of what CiliumNodes carry.
pub(super) const BLOCKS: [&str; 6] =
    ["10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30", "10.0.0.12/30", "10.0.0.0/29", "10.0.0.4/31"];

/// These versions of an object of each node.
pub(super) fn of_nodes(kind: &str, versions: &[&str]) -> Vec<String> {
    let of_node = |name| versions.iter().map(move |rest| format!("{kind} {name} {rest}"));
    NODES.into_iter().flat_map(of_node).collect()
}

/// Claims of each of these blocks for each node, in these versions, and what can't be read in their place.
pub(super) fn of_blocks(blocks: &[&str], versions: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for cidr in blocks {
        for node in NODES {
            lines.extend(versions.iter().map(|rest| format!("claim {cidr} {node} {rest}")));
        }
        let name = cidr.replace('/', "-");
        lines.push(format!("unreadable NodeIPBlock {name} {cidr}"));
        lines.push(format!("unreadable NodeIPBlock {name}"));
    }
    lines
}

/// Every version that a Node may have in these worlds.
pub(super) fn node_lines() -> Vec<String> {
    let versions =
        ["1", "2", "1 zone=x", "1 deleting", "1 own=10.0.0.0/30", "1 own=10.0.0.8/29", "1 own=10.0.0.4/32"];
    [of_nodes("node", &versions), of_nodes("unreadable Node", &["10.0.0.8/30", ""])].concat()
}

pub(super) fn cilium_node_lines() -> Vec<String> {
    let carried =
        ["", "10.0.0.0/30", "10.0.0.4/30", "10.0.0.0/30 10.0.0.4/30", "10.0.0.0/29", "10.0.0.12/32"];
    let rest = ["", "used=4", "used=unknown", "recreated", "deleting", "malformed", "own=10.0.0.0/30"];
    let versions: Vec<String> =
        carried.iter().flat_map(|carried| rest.map(|rest| format!("{carried} {rest}"))).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    let unreadable = ["10.0.0.4/30", "10.0.0.0/30 10.0.0.8/30", ""];
    [of_nodes("ciliumnode", &versions), of_nodes("unreadable CiliumNode", &unreadable)].concat()
}

pub(super) fn claim_lines() -> Vec<String> {
    let states = [
        "1 Held",
        "2 Held",
        "1 Held deleting",
        "1 Draining",
        "1 Releasing/NodeGone",
        "1 Releasing/Reclaimed",
        "1 Releasing/Unused",
        "1 Cooling/NodeGone",
        "1 Cooling/Reclaimed",
        "1 Cooling/NodeGone deleting finalizer=other",
    ];
    of_blocks(&BLOCKS, &states)
}

pub(super) fn pool_lines() -> Vec<String> {
    [
        "p 10.0.0.0/28 30",
        "p 10.0.0.0/28 30 zone=x",
        "p 10.0.0.0/28 30 cordoned",
        "p 10.0.0.0/28 30 draining",
        "p 10.0.0.0/28 30 deleting",
        "p 10.0.0.0/28 30 reclaim=enabled",
        "p 10.0.0.0/28 30 reclaim=dry-run",
        "p 10.0.0.0/28 30 invalid",
        "p 10.0.0.0/28 30 invalid deleting",
        "p 10.0.0.0/28 29",
        "p 10.0.0.0/30 30",
        "p 10.0.0.0/28 31 maxAddresses=5",
        "p 10.0.0.0/28 30 maxBlocks=1",
        "p 10.0.0.0/28 30 maxAddresses=5",
        "q 10.0.0.8/29 30 younger",
        "q 10.0.0.8/29 30",
        "q 10.0.0.8/29 30 younger draining",
        "q 10.0.0.8/29 30 younger invalid",
        "q 10.1.0.0/30 30",
        "q 10.1.0.0/29 31",
        "q fd00::/126 126",
    ]
    .map(|rest| format!("pool {rest}"))
    .to_vec()
}

/// Every version that the Pod of an agent may have.
pub(super) fn agent_lines() -> Vec<String> {
    of_nodes(
        "agent",
        &[
            "1.13.10",
            "1.17.8",
            "1.17.8 unready",
            "1.17.8 restarts=1",
            "none",
            "1.14.1 deleting named=old",
            "1.14.1 ended named=old",
        ],
    )
}

pub(super) fn all_lines() -> Vec<String> {
    [node_lines(), cilium_node_lines(), reclaim::cilium_node_lines(), claim_lines(), pool_lines()].concat()
}
