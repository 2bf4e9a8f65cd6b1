//! The last step of each plan: requests that this process may not send now are stopped.
//!
//! A freeze stops writes, and a standby stops all requests. The other parts of the planner do not know of a
//! standby, and of a freeze only those that take blocks from nodes. So such a plan finds the same faults and shortages
//! as any other plan. The first plan after the freeze, or after the
//! standby has taken over, follows from the world at that time.

use crate::model::leadership::Leadership;
use crate::model::plan::{NodePlan, Verdict, Wait};
use crate::model::request::Request;
use crate::world::World;

/// The plan as it may be carried out. If one of its requests is stopped, all are: they belong together.
pub(super) fn stop_requests(world: &World, mut plan: NodePlan) -> NodePlan {
    let is_frozen = |request: &Request| match request {
        Request::Write(write) => world.freeze().stops_write(write),
        Request::Read(_) => false,
    };
    if plan.requests().iter().any(is_frozen) {
        plan.verdict = Verdict::Wait(Wait::Thaw);
    } else if world.leadership() == Leadership::StandsBy && !plan.requests().is_empty() {
        plan.verdict = Verdict::Wait(Wait::Lead);
    }
    plan
}
