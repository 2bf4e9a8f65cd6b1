//! The steps by which a block leaves a node that lives, each without effect.

use super::*;
use crate::plan::tests::drain::{ASK, BOTH, CLEAR, CONFIRM, DRAIN, FENCE, FENCED, MARK, NODE, REMOVE};

const IN_USE: &str = "used=10.0.0.0/32";

#[test]
fn a_step_of_a_block_that_leaves_that_is_undone() {
    let stale = format!("{BOTH} used=10.0.0.0/31 marked=10.0.0.18/32");
    let cleared = Cluster::of(&format!("pool p 10.0.0.0/24 28\n{NODE}\nciliumnode a @50 {stale}"));
    // The write, where it is due, the version before it, and what its object shows all the same.
    for (expected, cluster, before, shown) in [
        (DRAIN, Cluster::surplus(), 31, "claim 10.0.0.16/28 a 1 Held @{}".to_owned()),
        (FENCE, Cluster::draining(), 101, format!("ciliumnode a @{{}} {BOTH} {IN_USE}")),
        (ASK, Cluster::fenced(), 111, format!("ciliumnode a @{{}} {FENCED} {IN_USE}")),
        (MARK, Cluster::answered(), 113, format!("ciliumnode a @{{}} {FENCED} {IN_USE} ping=answered")),
        (
            CONFIRM,
            Cluster::releasing(),
            115,
            format!("ciliumnode a @{{}} {FENCED} {IN_USE} ready=10.0.0.16/28"),
        ),
        (
            REMOVE,
            Cluster::confirmed(),
            117,
            format!("ciliumnode a @{{}} {FENCED} {IN_USE} released=10.0.0.16/28"),
        ),
        (CLEAR, cleared, 50, format!("ciliumnode a @{{}} {stale}")),
    ] {
        check_after(&cluster, before, &shown, expected);
    }
}
