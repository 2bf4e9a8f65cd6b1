//! The end of each plan: requests that this process may not send now are held back.
//!
//! Writes that a freeze stops are held back, and all requests of a standby. The other parts of the planner know nothing of
//! either. So such a plan finds the same faults and shortages as any other, and the first plan after the freeze, or after
//! the standby has taken over, follows from the world as it is then.

use crate::model::leadership::Leadership;
use crate::model::plan::{NodePlan, Verdict, Wait};
use crate::model::request::Request;
use crate::world::World;

/// The plan as it may be carried out. If one of its requests is held back, all are: they belong together.
pub(super) fn hold_back(world: &World, mut plan: NodePlan) -> NodePlan {
    let is_frozen = |request: &Request| match request {
        Request::Write(write) => world.freeze().holds_back(write),
        Request::Read(_) => false,
    };
    if plan.requests().iter().any(is_frozen) {
        plan.verdict = Verdict::Wait(Wait::Thaw);
    } else if world.leadership() == Leadership::StandsBy && !plan.requests().is_empty() {
        plan.verdict = Verdict::Wait(Wait::Lead);
    }
    plan
}
