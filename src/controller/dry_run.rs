//! `run --dry-run`: what would be written to the cluster as it stands, and nothing is.

use crate::model::plan::PoolPlan;
use crate::model::request::{Effect, Write};
use crate::model::time::Now;
use crate::plan::{self, Policy};
use crate::world::World;

/// The writes that follow from the world as it stands, in order. Writes that depend on the answer to one of them are
/// not among them.
#[must_use]
pub fn writes(mut world: World, policy: Policy, now: Now) -> Vec<Write> {
    let mut writes = Vec::new();
    world.mark_all();
    while let Some(node) = world.next_node().cloned() {
        let plan = plan::node(&world, &node, policy, now);
        world.begin(&plan, now);
        writes.extend(plan.writes);
    }
    while let Some(pool) = world.next_pool().cloned() {
        let status = plan::pool(&world, &pool, now);
        world.begin_status(&pool, &status, now);
        if let PoolPlan::Write(write) = status {
            writes.push(write);
        }
    }
    writes
}

/// Prints them, a line each, and how many there are.
pub(super) fn report(world: World, policy: Policy, now: Now) {
    if let crate::model::node::Mode::Passive(why) = world.mode() {
        println!("writes nothing: {why}");
    }
    let writes = writes(world, policy, now);
    let mut n_writes = 0;
    for write in writes {
        match write.effect() {
            Effect::Write => {
                n_writes += 1;
                println!("would {write}");
            }
            Effect::Read => println!("would first {write}"),
        }
    }
    println!("proposed {n_writes} writes");
}
