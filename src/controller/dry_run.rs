//! `run --dry-run`: says what the controller would write to the cluster as it is now, and writes nothing.
//!
//! Decides with the same planner as the loop, on a cluster that is listed once.

use super::broken_invariant::BrokenInvariant;
use super::client::Clients;
use super::clock::Clock;
use super::gather::{GatherOptions, list_cluster};
use crate::model::plan::PoolPlan;
use crate::model::request::Request;
use crate::model::time::Now;
use crate::plan::{self, Policy};
use crate::publisher::Mode;
use crate::world::World;

/// The writes that follow from the world as it is, in order. Writes that depend on the answer to one of them are not
/// among them.
#[must_use]
pub fn requests(mut world: World, policy: Policy, now: Now) -> Vec<Request> {
    let mut requests = Vec::new();
    world.mark_all();
    while let Some(node) = world.next_node().cloned() {
        let plan = plan::node(&world, &node, policy, now);
        world.begin(&plan, now);
        requests.extend(plan.into_requests());
    }
    while let Some(pool) = world.next_pool().cloned() {
        let status = plan::pool(&world, &pool, now);
        world.begin_status(&pool, &status, now);
        if let PoolPlan::Write(write) = status {
            requests.push(write.into());
        }
    }
    requests
}

/// Lists the cluster and prints the writes that would follow, one line per write, and how many there are.
pub async fn run(clients: &Clients, options: &GatherOptions, policy: Policy) -> anyhow::Result<()> {
    let world = list_cluster(clients, options).await?;
    BrokenInvariant::of(world.check())?;
    report(world, policy, Clock::start().now());
    Ok(())
}

fn report(world: World, policy: Policy, now: Now) {
    if let Mode::Passive(why) = world.mode() {
        println!("writes nothing: {why}");
    }
    let mut n_writes = 0;
    for request in requests(world, policy, now) {
        match request {
            Request::Write(write) => {
                n_writes += 1;
                println!("would {write}");
            }
            Request::Read(read) => println!("would first {read}"),
        }
    }
    println!("proposed {n_writes} writes");
}
