//! The future of a world, by the same planner: what the controller would do about it, and how it is then.
//!
//! Works on values and sends nothing. It does not know who asks, nor how an answer is shown.

use crate::model::freeze::Freeze;
use crate::model::plan::NodePlan;
use crate::model::time::Now;
use crate::plan::{self, Policy};
use crate::world::World;

/// Decides once for every node, with the reason of each pool that gives it nothing. Each decision counts as under way for
/// the next. What a freeze stops is decided too.
#[must_use]
pub fn plan_all(world: &mut World, policy: Policy, now: Now) -> Vec<NodePlan> {
    let freeze = world.freeze().clone();
    world.set_freeze(Freeze::default());
    world.suppose_all_claims_known();
    world.mark_all();
    let mut plans = Vec::new();
    while let Some(node) = world.next_node().cloned() {
        let plan = plan::explain(world, &node, policy, now);
        world.begin(&plan, now);
        plans.push(plan);
    }
    // The status of a pool names the freeze.
    world.set_freeze(freeze);
    plans
}
