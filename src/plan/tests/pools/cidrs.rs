//! Tests of the counts of each CIDR in the status of a pool.

use super::*;
use crate::model::status::CidrCounts;

fn counts(cluster: &Cluster, cidr: &str) -> CidrCounts {
    cluster.status("p").cidrs[&cidr.parse().unwrap()]
}

/// Claims in three states, an exclusion, a CiliumNode with a CIDR of another allocator, and an older pool.
const TAKEN: &str = "node a 1\nnode f 1\npool old 10.0.0.112/28 28 zone=z\n\
                     claim 10.0.0.0/28 a 1 Held @40\nclaim 10.0.0.16/28 b 1 Cooling/NodeGone @41\n\
                     claim 10.0.0.32/28 c 1 Releasing/NodeGone @42\nciliumnode f @50 10.0.0.48/29 used=0";

#[test]
fn each_cidr_says_what_takes_its_blocks() {
    let cluster = Cluster::of(&format!("pool p 10.0.0.0/25 28 younger exclude=10.0.0.96/28\n{TAKEN}"));
    assert_eq!(
        counts(&cluster, "10.0.0.0/25"),
        CidrCounts { blocks: 8, held: 1, draining: 1, cooling: 1, free: 2, foreign: 2, excluded: 1 }
    );
}

/// It gives out none, so none is free, and none is kept from nodes.
#[test]
fn a_closed_cidr_has_claimed_blocks_only() {
    for closed in ["cordoned", "draining", "deleting"] {
        let pool = format!("pool p 10.0.0.0/25 28 younger exclude=10.0.0.96/28 {closed}\n{TAKEN}");
        assert_eq!(
            counts(&Cluster::of(&pool), "10.0.0.0/25"),
            CidrCounts { blocks: 8, held: 1, draining: 1, cooling: 1, free: 0, foreign: 1, excluded: 0 },
            "{closed}"
        );
    }
}

/// The counts of a family are the sums over its CIDRs, except for blocks that no node can get.
#[test]
fn the_cidrs_of_a_pool_sum_up_to_its_family() {
    let mut cluster = Cluster::of(&format!("pool p 10.0.0.0/25 28 younger\n{TAKEN}"));
    let Object::Pool(mut pool) = object("pool p 10.0.0.0/25 28 younger @110") else { unreachable!() };
    let readable = pool.pool.as_mut().expect("it is readable");
    let ranges = readable.families.get_mut(&Family::V4).expect("it has IPv4");
    ranges.cidrs = [
        ("10.0.0.0/26", RangeState::Active),
        ("10.0.0.64/26", RangeState::Active),
        ("10.0.1.0/29", RangeState::Active),
    ]
    .into_iter()
    .map(|(cidr, state)| (cidr.parse().unwrap(), state))
    .collect();
    cluster.world.observe(Observation::Applied(Box::new(Object::Pool(pool))));
    let status = cluster.status("p");
    let sum = |count: fn(&CidrCounts) -> u64| status.cidrs.values().map(count).sum::<u64>();
    let family = status.families[&Family::V4];
    assert_eq!(
        (sum(|of| of.held), sum(|of| of.draining), sum(|of| of.cooling), sum(|of| of.free)),
        (family.held, family.draining, family.cooling, family.free)
    );
    // No block fits into the last one.
    assert_eq!(counts(&cluster, "10.0.1.0/29"), CidrCounts::default());
}
