//! The worlds of the tests of wake-ups in which blocks leave nodes that live, and the versions that CiliumNodes have on
//! the way.

use super::worlds::of_nodes;

/// Worlds in which a node waits: the reason, the objects, and each change after a `then`. The use of an agent counts
/// when it was seen to write it.
pub(super) const WORLDS: &[(&str, &str)] = &[
    (
        "the time after which a block starts to leave",
        "pool p 10.0.0.0/28 30 reclaim=enabled\njoined a @50 10.0.0.0/30 10.0.0.4/30 used=10.0.0.0/31\n\
         agent a 1.17.8\nthen show ciliumnode a 10.0.0.0/30 10.0.0.4/30 used=10.0.0.0/32",
    ),
    (
        "another version of its agent, to reclaim",
        "pool p 10.0.0.0/28 30 draining\npool q 10.1.0.0/29 30\nnode a 1\nagent a 1.13.10\n\
         ciliumnode a @50 10.1.0.0/30 10.0.0.0/30 used=10.1.0.0/31\nclaim 10.1.0.0/30 a 1 Held @40 of=q\n\
         claim 10.0.0.0/30 a 1 Held @41\nthen show ciliumnode a 10.1.0.0/30 10.0.0.0/30 used=10.1.0.0/32",
    ),
    (
        "the write by which a block of a pool that drains begins to leave",
        "pool p 10.0.0.0/28 30 draining\npool q 10.1.0.0/29 30\nnode a 1\nagent a 1.17.8\n\
         ciliumnode a @50 10.1.0.0/30 10.0.0.0/30 used=10.1.0.0/31\nclaim 10.1.0.0/30 a 1 Held @40 of=q\n\
         claim 10.0.0.0/30 a 1 Held @41\nthen show ciliumnode a 10.1.0.0/30 10.0.0.0/30 used=10.1.0.0/32\n\
         then end",
    ),
    (
        "pods that have addresses of a closed block",
        "pool p 10.0.0.0/28 30 draining\nnode a 1\nagent a 1.17.8\n\
         ciliumnode a @50 10.0.0.0/30 10.0.0.4/30 fenced=10.0.0.4/30 used=10.0.0.0/31\n\
         claim 10.0.0.0/30 a 1 Held @40\nclaim 10.0.0.4/30 a 1 Draining @41\nthen end\n\
         then show ciliumnode a 10.0.0.0/30 10.0.0.4/30 fenced=10.0.0.4/30 used=10.0.0.0/32,10.0.0.4/32\n\
         then end",
    ),
    (
        "the answer of its agent before a block is asked for",
        "pool p 10.0.0.0/28 30 reclaim=enabled\nnode a 1\nagent a 1.17.8\n\
         ciliumnode a @50 10.0.0.0/30 10.0.0.4/30 fenced=10.0.0.4/30 used=10.0.0.0/31\n\
         claim 10.0.0.0/30 a 1 Held @40\nclaim 10.0.0.4/30 a 1 Draining @41\n\
         then show ciliumnode a 10.0.0.0/30 10.0.0.4/30 fenced=10.0.0.4/30 used=10.0.0.0/32\nthen end\n\
         then end\n\
         then show ciliumnode a 10.0.0.0/30 10.0.0.4/30 fenced=10.0.0.4/30 used=10.0.0.0/32 ping=marked",
    ),
    (
        "the consent of its agent",
        "pool p 10.0.0.0/28 30 reclaim=enabled\nnode a 1\nagent a 1.17.8\n\
         ciliumnode a @50 10.0.0.0/30 10.0.0.4/30 fenced=10.0.0.4/30 marked=10.0.0.4/30 used=10.0.0.0/31\n\
         claim 10.0.0.0/30 a 1 Held @40\nclaim 10.0.0.4/30 a 1 Draining @41\n\
         then show ciliumnode a 10.0.0.0/30 10.0.0.4/30 fenced=10.0.0.4/30 marked=10.0.0.4/30 used=10.0.0.0/32",
    ),
    (
        "the end of the freeze of reclaim",
        "pool p 10.0.0.0/28 30 reclaim=enabled\nnode a 1\nagent a 1.17.8\n\
         ciliumnode a @50 10.0.0.0/30 10.0.0.4/30 fenced=10.0.0.4/30 marked=10.0.0.4/30 used=10.0.0.0/31\n\
         claim 10.0.0.0/30 a 1 Held @40\nclaim 10.0.0.4/30 a 1 Draining @41\nthen freeze reclaim\n\
         then show ciliumnode a 10.0.0.0/30 10.0.0.4/30 fenced=10.0.0.4/30 ready=10.0.0.4/30 used=10.0.0.0/32",
    ),
    (
        "its agent to forget a block that is off",
        "pool p 10.0.0.0/28 30 reclaim=enabled\n\
         joined a @50 10.0.0.0/30 released=10.0.0.4/30 used=10.0.0.0/32\njoined b @51\nagent a 1.17.8\n\
         claim 10.0.0.4/30 a 1 Releasing/Reclaimed @41",
    ),
    (
        "a block that cools",
        "pool p 10.0.0.0/29 30\njoined a @50 10.0.0.0/30 used=10.0.0.0/32\njoined b @51\n\
         claim 10.0.0.4/30 a 1 Cooling/Reclaimed @41",
    ),
];

/// The versions of a CiliumNode with two blocks of which the second leaves, and is off.
pub(super) fn cilium_node_lines() -> Vec<String> {
    let mut versions = Vec::new();
    for used in ["used=10.0.0.0/32", "used=10.0.0.0/32,10.0.0.4/32"] {
        for rest in [
            "",
            "fenced=10.0.0.4/30",
            "fenced=10.0.0.4/31",
            "fenced=10.0.0.4/30 ping=marked",
            "fenced=10.0.0.4/30 ping=answered",
            "fenced=10.0.0.4/30 marked=10.0.0.4/30",
            "fenced=10.0.0.4/30 marked=10.0.0.4/30 ping=marked",
            "fenced=10.0.0.4/30 ready=10.0.0.4/30",
            "fenced=10.0.0.4/30 released=10.0.0.4/30",
            "fenced=10.0.0.4/30 refused=10.0.0.4/32",
            "owner=10.0.0.4:apps/web-0",
        ] {
            versions.push(format!("10.0.0.0/30 10.0.0.4/30 {used} {rest}"));
        }
    }
    for rest in ["released=10.0.0.4/30", "ready=10.0.0.4/30", "ping=marked"] {
        versions.push(format!("10.0.0.0/30 used=10.0.0.0/32 {rest}"));
    }
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    of_nodes("ciliumnode", &versions)
}
