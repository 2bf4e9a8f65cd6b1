//! `run --dry-run`: what would be written to the cluster as it stands, and nothing is.

use crate::model::plan::PoolPlan;
use crate::model::request::Request;
use crate::model::time::Now;
use crate::plan::{self, Policy};
use crate::world::World;

/// The writes that follow from the world as it stands, in order. Writes that depend on the answer to one of them are
/// not among them.
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

/// Prints them, a line each, and how many there are.
pub(super) fn report(world: World, policy: Policy, now: Now) {
    if let crate::publisher::Mode::Passive(why) = world.mode() {
        println!("writes nothing: {why}");
    }
    let requests = requests(world, policy, now);
    let mut n_writes = 0;
    for request in requests {
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
