//! The worlds of the tests of wake-ups in the modes cluster-pool and kubernetes, in which a node has one block of each
//! family for its life, and the versions that objects may have in them.

use super::worlds::{of_blocks, of_nodes};

/// Worlds in which a node waits, in mode cluster-pool: the reason, the objects, and each change after a `then`.
pub(super) const CLUSTER_POOL_WORLDS: &[(&str, &str)] = &[
    ("its only block", "pool p 10.0.0.0/29 30\njoined a @50 bare 10.0.0.0/30\njoined b @51 bare"),
    ("capacity", "pool p 10.0.0.0/30 30\njoined a @50 bare 10.0.0.0/30\njoined b @51 bare\nthen end"),
    (
        "a block without an address of a node",
        "pool p 10.0.0.0/30 30\njoined a @50 bare\nnode b 1 own=10.0.0.1/32\nthen end",
    ),
    (
        "the other family",
        "pool p 10.0.0.0/29 30\npool q fd00::/126 126\nnode a 1\nnode b 1\n\
         ciliumnode a @50 bare fd00::/126\nciliumnode b @51 bare\nclaim 10.0.0.0/30 a 1 Held @40\n\
         claim fd00::/126 a 1 Held @41 of=q\nthen mode cluster-pool v4 v6\nthen end",
    ),
    ("its CiliumNode", "pool p 10.0.0.0/29 30\nnode a 1\nclaim 10.0.0.0/30 a 1 Held @40"),
    (
        "its CiliumNode, with a block that another one carries",
        "pool p 10.0.0.0/29 30\nnode a 1\nnode b 1\nciliumnode b @51 bare 10.0.0.0/30\n\
         claim 10.0.0.0/30 a 1 Held @40",
    ),
    (
        "its claims as of a CiliumNode that was recreated",
        "pool p 10.0.0.0/29 30\njoined a @50 bare 10.0.0.0/30\nthen freeze\nthen delete ciliumnode a\n\
         then show ciliumnode a bare recreated\nthen end",
    ),
    (
        "the end of its CiliumNode",
        "pool p 10.0.0.0/29 30\njoined a @50 bare 10.0.0.0/30 deleting\njoined b @51 bare",
    ),
    (
        "a CiliumNode that outlives its Node",
        "pool p 10.0.0.0/30 30\nnode b 1\nciliumnode a @50 bare 10.0.0.0/30\nciliumnode b @51 bare\n\
         claim 10.0.0.0/30 a 1 Releasing/NodeGone @40\nthen end",
    ),
    (
        "the end of a foreign CIDR",
        "pool p 10.0.0.0/29 30\nnode a 1\nciliumnode a @50 bare 10.9.0.0/24\nclaim 10.0.0.0/30 a 1 Held @40",
    ),
    (
        "the end of a foreign CIDR beside a block",
        "pool p 10.0.0.0/29 30\nnode a 1\nciliumnode a @50 bare 10.0.0.0/30 10.0.0.4/30",
    ),
    (
        "the claim of a block that it carries",
        "pool p 10.0.0.0/29 30\nnode a 1\nnode b 1\nciliumnode a @101 bare 10.0.0.0/30\n\
         ciliumnode b @90 bare\nclaim 10.0.0.0/31 b 1 Releasing/Unused @97\n\
         then delete claim 10.0.0.0/31 b 1 Releasing/Unused",
    ),
    (
        "an end of an overlap of two that are carried",
        "pool p 10.0.0.0/29 30\njoined a @50 bare 10.0.0.0/29\njoined b @51 bare 10.0.0.4/30",
    ),
    (
        "an end of an overlap of two that may be in use",
        "pool p 10.0.0.0/29 30\njoined a @50 bare recreated\njoined b @51 bare recreated\n\
         claim 10.0.0.0/29 a 1 Held @40\nclaim 10.0.0.4/30 b 1 Held @41",
    ),
    (
        "an unreadable object over its claim",
        "pool p 10.0.0.0/30 30\njoined a @50 bare\nclaim 10.0.0.0/30 a 1 Held @40\n\
         unreadable NodeIPBlock 10.0.0.4-30 10.0.0.0/29 @41",
    ),
    ("its own CiliumNode", "pool p 10.0.0.0/29 30\nnode a 1\nunreadable CiliumNode a 10.0.0.4/30 @41"),
    (
        "the correction of its CiliumNode",
        "pool p 10.0.0.0/29 30\njoined a @50 bare malformed\nclaim 10.0.0.0/30 a 1 Held @40",
    ),
    (
        "an operator that allocates",
        "pool p 10.0.0.0/29 30\njoined a @50 bare operator=full\n\
         joined b @51 bare manager=cilium-operator-aws",
    ),
    (
        "the end of the freeze, with a lost claim",
        "pool p 10.0.0.0/30 30\nnode a 1\njoined b @51 bare\nclaim 10.0.0.0/30 a 1 Held @40\nthen freeze\n\
         then delete claim 10.0.0.0/30 a 1 Held",
    ),
    (
        "the end of the freeze, with a lost claim of a block that it carries",
        "pool p 10.0.0.0/30 30\njoined a @50 bare 10.0.0.0/30\njoined b @51 bare\nthen freeze\n\
         then delete claim 10.0.0.0/30 a 1 Held",
    ),
    (
        "a later version of its CiliumNode",
        "pool p 10.0.0.0/30 30\njoined a @50 bare\njoined b @51 bare\n\
         claim 10.0.0.0/30 a 1 Releasing/Unused @60",
    ),
    (
        "the end of a block of a pool that drains",
        "pool p 10.0.0.0/29 30 draining\njoined a @50 bare 10.0.0.0/30",
    ),
    (
        "the end of cooling",
        "pool p 10.0.0.0/30 30\njoined b @51 bare\nclaim 10.0.0.0/30 a 1 Cooling/NodeGone @40\nthen end",
    ),
    (
        "the end of the freeze",
        "pool p 10.0.0.0/29 30\njoined a @50 bare malformed\nclaim 10.0.0.4/30 a 1 Held @40\nthen freeze\n\
         then show ciliumnode a bare\nthen end",
    ),
    (
        "the end of the freeze, and others may take its block meanwhile",
        "pool p 10.0.0.0/30 30\njoined a @50 bare malformed\nthen freeze\nthen show ciliumnode a bare\n\
         then end",
    ),
    (
        "a mode",
        "pool p 10.0.0.0/29 30\nnode a 1\nciliumnode a @50 bare 10.0.0.0/30 malformed\nthen mode none\n\
         then show ciliumnode a bare 10.0.0.0/30",
    ),
];

/// The same in mode kubernetes.
pub(super) const KUBERNETES_WORLDS: &[(&str, &str)] = &[
    (
        "its only block",
        "pool p 10.0.0.0/29 30\nnode a 1 has=10.0.0.0/30\nnode b 1\nclaim 10.0.0.0/30 a 1 Held @40 for=1",
    ),
    (
        "capacity",
        "pool p 10.0.0.0/30 30\nnode a 1 annotated=10.0.0.0/30\nnode b 1\n\
         claim 10.0.0.0/30 a 1 Held @40 for=1\nthen end",
    ),
    (
        "a block that its agent has copied",
        "pool p 10.0.0.0/30 30\nnode a 1 has=10.9.0.0/28\nciliumnode a @50 bare 10.0.0.0/30\nnode b 1\n\
         then end",
    ),
    (
        "the other family",
        "pool p 10.0.0.0/29 30\npool q fd00::/126 126\nnode a 1 has=10.0.0.0/30 annotated=fd00::/126\n\
         node b 1\nclaim 10.0.0.0/30 a 1 Held @40 for=1\nclaim fd00::/126 a 1 Held @41 of=q for=1\n\
         then mode kubernetes v4 v6 annotate\nthen end",
    ),
    (
        "the end of a foreign CIDR",
        "pool p 10.0.0.0/29 30\nnode a 1 has=10.9.0.0/28\nclaim 10.0.0.0/30 a 1 Held @40 for=1",
    ),
    (
        "the end of a foreign annotation",
        "pool p 10.0.0.0/29 30\nnode a 1 annotated=10.0.0.0/30 alias=10.0.0.4/30\n\
         claim 10.0.0.0/30 a 1 Held @40 for=1",
    ),
    (
        "the end of an annotation that contradicts",
        "pool p 10.0.0.0/29 30\nnode a 1 has=10.0.0.0/30 annotated=10.0.0.4/30\n\
         claim 10.0.0.0/30 a 1 Held @40 for=1",
    ),
    (
        "the annotation that somebody took off",
        "pool p 10.0.0.0/29 30\nnode a 1 annotated=10.0.0.0/30\nnode b 1\n\
         claim 10.0.0.0/30 a 1 Held @40 for=1\nthen freeze\nthen show node a 1",
    ),
    (
        "the claim of a block that it carries",
        "pool p 10.0.0.0/29 30\nnode a 1 has=10.0.0.0/30\nnode b 1\n\
         claim 10.0.0.0/31 b 1 Releasing/Unused @97 for=1\n\
         then delete claim 10.0.0.0/31 b 1 Releasing/Unused",
    ),
    (
        "whether its Node is there",
        "pool p 10.0.0.0/30 30\nnode a 1 has=10.0.0.0/30\nnode b 1\nclaim 10.0.0.0/30 a 1 Held @40 for=1\n\
         then freeze\nthen delete node a 1",
    ),
    (
        "whether its Node is another one",
        "pool p 10.0.0.0/29 30\nnode a 1 has=10.0.0.0/30\nclaim 10.0.0.0/30 a 1 Held @40 for=1\n\
         then freeze\nthen delete node a 1\nthen show node a 2",
    ),
    (
        "the Node after its own",
        "pool p 10.0.0.0/29 30\nnode a 2 has=10.0.0.0/30\nnode b 1\n\
         claim 10.0.0.0/30 a 1 Releasing/NodeGone @40 for=1\nthen end",
    ),
    (
        "an end of an overlap of two that are carried",
        "pool p 10.0.0.0/29 30\nnode a 1 has=10.0.0.0/29\nnode b 1 has=10.0.0.4/30\n\
         claim 10.0.0.0/29 a 1 Held @40 for=1\nclaim 10.0.0.4/30 b 1 Held @41 for=1",
    ),
    (
        "an end of an overlap of two that may be in use",
        "pool p 10.0.0.0/29 30\nnode a 1\nnode b 1\nclaim 10.0.0.0/29 a 1 Held @40\n\
         claim 10.0.0.4/30 b 1 Held @41",
    ),
    (
        "an end of an overlap of one that is carried and one that is not",
        "pool p 10.0.0.0/29 30\nnode a 1 has=10.0.0.0/29\nnode b 1\nclaim 10.0.0.0/29 a 1 Held @40 for=1\n\
         claim 10.0.0.4/30 b 1 Held @41",
    ),
    (
        "an unreadable object over its claim",
        "pool p 10.0.0.0/30 30\nnode a 1\nclaim 10.0.0.0/30 a 1 Held @40 for=1\n\
         unreadable NodeIPBlock 10.0.0.4-30 10.0.0.0/29 @41",
    ),
    ("its own Node", "pool p 10.0.0.0/29 30\nunreadable Node a 10.0.0.0/30 @41\nnode b 1"),
    (
        "the correction of its Node",
        "pool p 10.0.0.0/29 30\nnode a 1 malformed\nclaim 10.0.0.0/30 a 1 Held @40 for=1",
    ),
    (
        "the end of the freeze, with a lost claim and no Node",
        "pool p 10.0.0.0/30 30\nnode a 1 has=10.0.0.0/30\nnode b 1\nciliumnode a @50 bare 10.0.0.0/30\n\
         claim 10.0.0.0/30 a 1 Held @40 for=1\nthen freeze\nthen delete node a 1\n\
         then delete claim 10.0.0.0/30 a 1 Held",
    ),
    (
        "the end of the freeze, with a lost claim of a block that it carries",
        "pool p 10.0.0.0/30 30\nnode a 1 has=10.0.0.0/30\nnode b 1\nclaim 10.0.0.0/30 a 1 Held @40 for=1\n\
         then freeze\nthen delete claim 10.0.0.0/30 a 1 Held",
    ),
    (
        "a later version of its Node",
        "pool p 10.0.0.0/30 30\nnode a 1\nnode b 1\nclaim 10.0.0.0/30 a 1 Releasing/Unused @60 for=1",
    ),
    (
        "its claims as of what its Node says",
        "pool p 10.0.0.0/30 30\nnode a 1 later-than=101\nnode b 1\nclaim 10.0.0.0/30 a 1 Held @40 for=1\n\
         then freeze\nthen end",
    ),
    (
        "the end of cooling",
        "pool p 10.0.0.0/30 30\nnode b 1\nclaim 10.0.0.0/30 a 1 Cooling/NodeGone @40 for=1\nthen end",
    ),
    (
        "the end of the freeze",
        "pool p 10.0.0.0/29 30\nnode a 1 malformed\nclaim 10.0.0.4/30 a 1 Held @40 for=1\nthen freeze\n\
         then show node a 1",
    ),
    (
        "the end of the freeze, and others may take its block meanwhile",
        "pool p 10.0.0.0/30 30\nnode a 1 malformed\nthen freeze\nthen show node a 1\nthen end",
    ),
    (
        "a mode",
        "pool p 10.0.0.0/29 30\nnode a 1 malformed has=10.0.0.0/30\nthen mode none\n\
         then show node a 1 has=10.0.0.0/30",
    ),
];

/// The CIDRs of claims.
pub(super) const BLOCKS: [&str; 4] = ["10.0.0.0/30", "10.0.0.4/30", "10.0.0.0/29", "10.0.0.0/31"];

/// What the carriers of these worlds may carry: a block, another one, two, one that is none, a foreign CIDR, and one of
/// the other family.
const CARRIED: [&str; 6] = [
    "10.0.0.0/30",
    "10.0.0.4/30",
    "10.0.0.0/30,10.0.0.4/30",
    "10.0.0.0/29",
    "10.9.0.0/28",
    "10.0.0.4/30,fd00::/126",
];

/// The versions of the objects of nodes in mode cluster-pool. What Nodes say of CIDRs counts nowhere there.
pub(super) fn cluster_pool_lines() -> Vec<String> {
    let mut carriers = vec!["bare".to_owned()];
    carriers.extend(CARRIED.iter().map(|cidrs| format!("bare {}", cidrs.replace(',', " "))));
    let rest = [
        "",
        "recreated",
        "deleting",
        "malformed",
        "operator=full",
        "manager=cilium-operator-aws",
        "own=10.0.0.1/32",
    ];
    let carriers: Vec<String> =
        carriers.iter().flat_map(|carried| rest.map(|rest| format!("{carried} {rest}"))).collect();
    let nodes =
        ["1", "2", "1 zone=x", "1 deleting", "1 own=10.0.0.1/32", "1 has=10.0.0.4/30 annotated=10.0.0.0/30"];
    lines_of(&nodes, &carriers.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The same in mode kubernetes, where agents copy to CiliumNodes what they have.
pub(super) fn kubernetes_lines() -> Vec<String> {
    let mut nodes: Vec<String> =
        ["", "zone=x", "deleting", "malformed", "own=10.0.0.1/32"].map(|rest| format!("1 {rest}")).into();
    for carried in CARRIED {
        nodes.extend(
            [
                "1 has=",
                "2 has=",
                "1 deleting has=",
                "1 annotated=",
                "1 alias=",
                "1 has=10.0.0.0/30 annotated=",
            ]
            .map(|key| format!("{key}{carried}")),
        );
    }
    nodes.extend(
        ["2", "1 later-than=50", "1 later-than=100000", "1 annotated=10.0.0.0/30 later-than=50"]
            .map(str::to_owned),
    );
    let carriers = [
        "bare",
        "bare 10.0.0.0/30",
        "bare 10.0.0.4/30 recreated",
        "bare 10.9.0.0/28 deleting",
        "bare own=10.0.0.1/32",
    ];
    lines_of(&nodes.iter().map(String::as_str).collect::<Vec<_>>(), &carriers)
}

fn lines_of(nodes: &[&str], cilium_nodes: &[&str]) -> Vec<String> {
    let unreadable = ["", "10.0.0.4/30"];
    [
        of_nodes("node", nodes),
        of_nodes("unreadable Node", &unreadable),
        of_nodes("ciliumnode", cilium_nodes),
        of_nodes("unreadable CiliumNode", &unreadable),
    ]
    .concat()
}

/// The versions of claims, of pools and of the Pods of agents. Claims are of a CiliumNode that is not `recreated`, of
/// the first Node, or of nobody.
pub(super) fn other_lines() -> Vec<String> {
    let claims = [
        "1 Held",
        "1 Held for=1",
        "2 Held for=2",
        "1 Held for=nobody created=5",
        "1 Held deleting",
        "1 Draining",
        "1 Releasing/NodeGone for=1",
        "1 Releasing/Reclaimed",
        "1 Releasing/Unused",
        "1 Releasing/Unused for=1",
        "1 Cooling/NodeGone for=1",
        "1 Cooling/Reclaimed",
        "1 Cooling/NodeGone deleting finalizer=other",
    ];
    let pools = [
        "p 10.0.0.0/29 30",
        "p 10.0.0.0/29 30 zone=x",
        "p 10.0.0.0/29 30 cordoned",
        "p 10.0.0.0/29 30 draining",
        "p 10.0.0.0/29 30 deleting",
        "p 10.0.0.0/29 30 reclaim=enabled",
        "p 10.0.0.0/29 30 invalid",
        "p 10.0.0.0/29 30 exclude=10.0.0.1/32",
        "p 10.0.0.0/29 29",
        "p 10.0.0.0/30 30",
        "q 10.0.0.4/30 30 younger",
        "q 10.9.0.0/27 28",
        "q fd00::/126 126",
    ];
    let pools = pools.map(|rest| format!("pool {rest}"));
    [of_blocks(&BLOCKS, &claims), pools.to_vec()].concat()
}
