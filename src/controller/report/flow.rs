//! Blocks that leave their pool or come back to it, by the writes of their claims.
//!
//! A block leaves its pool with the creation of its claim, and comes back with the deletion of that claim.

use crate::model::names::PoolName;
use crate::model::request::{ClaimChange, Write};
use crate::telemetry::metrics::{GrantReason, Metrics, ReturnReason};
use crate::view::block_event::{BlockEvent, Cause};
use crate::world::World;

/// A block that leaves its pool, or comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flow {
    Granted(PoolName, GrantReason),
    Returned(PoolName, ReturnReason),
}

impl Flow {
    /// The flow that a write causes, at the time of its decision. `event` is the step of the block.
    pub(super) fn of(world: &World, write: &Write, event: Option<&BlockEvent>) -> Option<Self> {
        match write {
            Write::CreateClaim(claim) => {
                let cause = event.map(|event| event.cause);
                let reason = match cause {
                    Some(Cause::Carried) => GrantReason::Adopted,
                    Some(Cause::Growth) => GrantReason::Growth,
                    Some(_) | None => GrantReason::First,
                };
                Some(Self::Granted(claim.pool.clone(), reason))
            }
            Write::UpdateClaim(update) if update.change == ClaimChange::Delete => {
                let claim = &world.claim(update.cidr)?.claim;
                let reason = claim.state.reason().map_or(ReturnReason::Unused, ReturnReason::from);
                Some(Self::Returned(claim.pool.clone(), reason))
            }
            Write::UpdateClaim(_)
            | Write::Publish(_)
            | Write::Withdraw(_)
            | Write::BumpVersion(_)
            | Write::UsageQuery(_)
            | Write::CreateCiliumNode(_)
            | Write::PoolStatus(_)
            | Write::PoolFinalizers(_)
            | Write::ClaimStatus(_)
            | Write::NodeCondition(_)
            | Write::PodIpPool(_)
            | Write::Frr(_) => None,
        }
    }

    /// Counts it.
    pub(super) fn count(&self, metrics: &Metrics) {
        match self {
            Self::Granted(pool, reason) => metrics.block_granted(pool, *reason),
            Self::Returned(pool, reason) => metrics.block_returned(pool, *reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::cluster::{Cluster, cilium_node, claim, node, pool, ranges};
    use super::*;
    use crate::model::plan::NodePlan;
    use crate::model::request::{ClaimUpdate, Request};
    use crate::view::block_event;

    /// The flows of all writes that are due for node `a`.
    fn flows(cluster: &Cluster) -> Vec<Flow> {
        let plan: NodePlan = cluster.plan("a");
        let requests = plan.into_requests();
        let writes = requests.iter().filter_map(Request::as_write);
        writes
            .filter_map(|write| {
                Flow::of(&cluster.world, write, block_event::of(&cluster.world, write).as_ref())
            })
            .collect()
    }

    #[test]
    fn a_claim_is_a_grant_and_its_deletion_a_return() {
        let pool_p = || pool(&ranges("10.0.0.0/24"));
        let first = Cluster::of(&[&pool_p(), &node("a"), &cilium_node("a", &json!({}))]);
        assert_eq!(flows(&first), [Flow::Granted("p".into(), GrantReason::First)]);
        let carried = json!({ "podCIDRs": ["10.0.0.0/28"], "pool": { "10.0.0.1": {} } });
        let adopted = Cluster::of(&[&pool_p(), &node("a"), &cilium_node("a", &carried)]);
        assert_eq!(flows(&adopted), [Flow::Granted("p".into(), GrantReason::Adopted)]);
        let mut cooling = claim("10.0.0.0/28", "a");
        cooling["spec"]["state"] = "Cooling".into();
        cooling["spec"]["reason"] = "Reclaimed".into();
        let cools = Cluster::of(&[&pool_p(), &node("a"), &cooling]);
        let known = cools.world.claims().next().expect("there is one");
        let write_of = |change| {
            let write = Write::UpdateClaim(ClaimUpdate::of(&known.claim, change, cools.now.wall));
            Flow::of(&cools.world, &write, None)
        };
        assert_eq!(write_of(ClaimChange::Delete), Some(Flow::Returned("p".into(), ReturnReason::Reclaimed)));
        assert_eq!(write_of(ClaimChange::Keep), None);
    }
}
