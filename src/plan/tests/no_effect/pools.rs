//! Writes of a pool without effect: to itself, to its claims, and to the CiliumPodIPPool of its name.

use super::*;
use crate::model::pod_ip_pool::{PodIpPool, PodIpPoolNews};
use crate::plan::pool;
use crate::plan::tests::pod_ip_pools::{CREATING, pod_ip_pool};
use crate::plan::tests::wakeups::settled::applied;

/// The writes of pool p within a minute that are answered with what `undone` makes of the object at a revision. The
/// others are applied.
fn written_to_pool(
    cluster: &mut Cluster,
    undone: impl Fn(&World, &Write, Option<Revision>) -> Option<Seen>,
    server: Server,
) -> Vec<String> {
    let end = cluster.now.uptime + Duration::from_secs(60);
    let (mut undone_writes, mut revision) = (Vec::new(), 200);
    while cluster.now.uptime < end && undone_writes.len() < 1000 {
        let plan = pool(&cluster.world, &"p".into(), CREATING, cluster.now);
        cluster.world.begin_status(&"p".into(), &plan, cluster.now);
        if matches!(plan, PoolPlan::Unchanged | PoolPlan::UpToDate | PoolPlan::UpToDateUntil(_)) {
            break;
        }
        if let PoolPlan::Later(at) = plan {
            cluster.now.uptime = at;
        }
        for write in plan.into_writes() {
            revision += 1;
            let at = (server == Server::MovesTheVersion).then_some(Revision::of(revision));
            let seen = undone(&cluster.world, &write, at);
            undone_writes.extend(seen.is_some().then(|| write.to_string()));
            let seen = seen.unwrap_or_else(|| applied(&cluster.world, &write, revision));
            cluster.finish(write.into(), seen);
            assert_eq!(cluster.world.check(), []);
        }
    }
    undone_writes
}

#[track_caller]
fn check(
    cluster: &Cluster,
    expected: &str,
    undone: impl Fn(&World, &Write, Option<Revision>) -> Option<Seen>,
) {
    for server in [Server::KeepsTheVersion, Server::MovesTheVersion] {
        check_paced(&written_to_pool(&mut cluster.clone(), &undone, server), expected);
    }
}

/// Pool p as it is known, at a later revision where there is one.
fn pool_as_known(world: &World, later: Option<Revision>) -> Seen {
    let mut seen = world.pool_object(&"p".into()).unwrap().clone();
    seen.revision = later.unwrap_or(seen.revision);
    Seen::Pool(Box::new(seen))
}

#[test]
fn a_finalizer_of_a_pool_that_is_removed_again() {
    let cluster = Cluster::of("pool p 10.0.0.0/26 28");
    check(&cluster, "set the finalizers of pool p to [nodeipam.io/pool]", |world, write, later| {
        matches!(write, Write::PoolFinalizers(_)).then(|| pool_as_known(world, later))
    });
}

#[test]
fn a_status_of_a_pool_that_is_not_kept() {
    let cluster = Cluster::of("pool p 10.0.0.0/26 28");
    check(&cluster, "write the status of pool p", |world, write, later| {
        matches!(write, Write::PoolStatus(_)).then(|| pool_as_known(world, later))
    });
}

#[test]
fn a_status_of_a_claim_that_is_not_kept() {
    let cluster = Cluster::of("pool p 10.0.0.0/26 28 draining\njoined a @50 10.0.0.0/28");
    let expected = "report on the claim of 10.0.0.0/28: the first block of a node stays until the node rejoins, \
         with a reboot: cilium-node-ipam migrate rejoin NODE";
    check(&cluster, expected, |world, write, later| {
        let Write::ClaimStatus(write) = write else { return None };
        let mut seen = world.claim(write.cidr)?.claim.clone();
        seen.revision = later.unwrap_or(seen.revision);
        Some(Seen::Claim(Box::new(seen)))
    });
}

/// It is gone again at once, or stays as it was.
#[test]
fn a_ciliumpodippool_that_is_not_as_it_is_written() {
    for (known, step) in [(None, "create"), (Some("default ours"), "complete")] {
        let mut cluster = Cluster::serving("multi-pool v4 bgp", "pool p 10.0.0.0/26 28");
        let listed = known.map(pod_ip_pool).into_iter().collect();
        cluster.world.observe_pod_ip_pools(PodIpPoolNews::Listed(listed));
        let expected = format!("{step} CiliumPodIPPool default with ipv4 [10.0.0.0/26] /28");
        check(&cluster, &expected, |_, write, later| {
            let Write::PodIpPool(_) = write else { return None };
            let Some(before) = known.map(pod_ip_pool) else { return Some(Seen::Nothing) };
            let revision = later.unwrap_or(before.revision);
            Some(Seen::PodIpPool(Box::new(PodIpPool { revision, ..before })))
        });
    }
}
