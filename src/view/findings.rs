//! The findings that follow from the whole world, and from no decision about a node. Knows neither log nor metrics.

use super::{definitions, failures, free, in_the_way, left_over, pod_ip_pools};
use crate::model::finding::Finding;
use crate::world::World;

/// All of them. Costs a pass over pools and nodes.
pub fn of_world(world: &World) -> impl Iterator<Item = Finding> {
    definitions::findings(world)
        .chain(free::findings(world))
        .chain(failures::findings(world))
        .chain(pod_ip_pools::findings(world))
        .chain(in_the_way::findings(world))
        .chain(left_over::finding(world))
}
