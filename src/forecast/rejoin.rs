//! The blocks that nodes would have after a rejoin: their CiliumNodes are deleted, and agents create empty ones.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{answer, revision};
use crate::model::freeze::Freeze;
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::observation::{Object, Observation};
use crate::model::revision::AnyRevision;
use crate::model::time::Now;
use crate::net::cidr::Cidr;
use crate::plan::{self, Policy};
use crate::world::World;

/// The maximum number of decisions about a node. A first publication takes three: the claims, a read, and the patch.
const MAX_DECISIONS: usize = 6;

/// The blocks of these nodes in the order of their new CiliumNodes. The nodes rejoin one after the other, so no block is
/// counted twice.
#[must_use]
pub fn rejoined(
    world: &World,
    nodes: &[NodeName],
    policy: Policy,
    now: Now,
) -> BTreeMap<NodeName, Vec<Cidr>> {
    let policy = Policy { min_write_interval: Duration::ZERO, ..policy };
    let mut world = world.clone();
    world.set_freeze(Freeze::default());
    let blocks = nodes.iter().filter_map(|name| {
        let node = world.node(name)?.clone();
        let at = revision(&world, Kind::CiliumNode);
        let empty = world.reader_of(name).joining(&node, at);
        world.observe(Observation::Deleted {
            kind: Kind::CiliumNode,
            name: name.to_string(),
            revision: AnyRevision::Custom(at),
        });
        world.observe(Observation::Applied(Box::new(Object::CiliumNode(empty))));
        for _ in 0..MAX_DECISIONS {
            world.suppose_all_claims_known();
            let plan = plan::node(&world, name, policy, now);
            world.begin(&plan, now);
            let answered = plan.requests().iter().filter(|request| answer(&mut world, request, now)).count();
            if answered == 0 {
                break;
            }
        }
        let carrier = world.carrier(name)?;
        Some((name.clone(), world.reader_of(name).blocks(carrier)))
    });
    blocks.collect()
}
