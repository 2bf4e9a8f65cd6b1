//! CiliumNodes without a map whose agents have run in another mode than crd.
//!
//! An agent in crd mode that finds no map waits, and its pods keep running. One that finds a map without the addresses of
//! its pods deletes these pods' endpoints.

use super::points::{Lines, Point};
use crate::model::claim::Claim;
use crate::model::counted::counted;
use crate::model::names::{NodeName, ten_of};
use crate::model::node::Node;
use crate::net::cidr::Cidr;
use crate::world::World;

/// The nodes whose pods would lose their network at the next restart of their agents, each with the first address or
/// range that no claim of the node covers.
pub(super) fn nodes<'a>(world: &'a World) -> Vec<(&'a NodeName, Cidr)> {
    let of_node = |node: &'a Node| {
        let carrier = world.carrier(&node.name)?;
        let claims: Vec<&Claim> = world.claims_of(&node.name).map(|known| &known.claim).collect();
        let ranges = world.publisher_of(&node.name)?.former_ranges(carrier, &claims)?;
        let is_given_up = node.former_mode_ignored.as_ref() == Some(carrier.uid());
        Some((&node.name, ranges.into_iter().next().filter(|_| !is_given_up)?))
    };
    world.nodes().filter_map(of_node).collect()
}

pub(super) fn look(world: &World, former: &[(&NodeName, Cidr)], lines: &mut Lines) {
    if former.is_empty() {
        return;
    }
    let adopted = |cidr: Cidr| match world.pools_of_block(cidr).next() {
        Some(pool) => format!("pool {} has this block", pool.name),
        None => "no pool has this block".to_owned(),
    };
    let shown = former.iter().map(|(node, cidr)| format!("{node} {cidr} ({})", adopted(*cidr)));
    lines.fail(
        Point::PodCidrs,
        format!(
            "{} with addresses of a former mode and without `spec.ipam.pool`: in crd mode their pods can lose the \
             network: {}",
            counted(former.len(), "CiliumNode"),
            ten_of(shown)
        ),
        "Return to the former mode, let the controller adopt these blocks there (--modes OLD,crd), and then change the \
         mode.",
    );
}
