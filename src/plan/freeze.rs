//! The end of each plan: what the freeze holds back is not sent.
//!
//! The parts of the planner know nothing of it. So a frozen plan finds out what is wrong and what the node lacks as any
//! other does, and the first plan after the freeze follows from the world as it is then.

use crate::model::plan::{NodePlan, Verdict, Wait};
use crate::model::request::Request;
use crate::world::World;

/// The plan as it may be carried out. Of requests that belong together none is sent if one may not be.
pub(super) fn held_back(world: &World, mut plan: NodePlan) -> NodePlan {
    let is_held_back = |request: &Request| match request {
        Request::Write(write) => world.freeze().holds_back(write),
        Request::Read(_) => false,
    };
    if plan.requests().iter().any(is_held_back) {
        plan.verdict = Verdict::Wait(Wait::Thaw);
    }
    plan
}
