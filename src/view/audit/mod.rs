//! An audit of the cluster: everything that is wrong, from objects alone.
//!
//! Derived from the world, from one plan per node, and from the objects around the world. It repeats no decision:
//! the findings of the planner come from the plans. Equal violations of many objects are one line with a count.

use crate::model::plan::NodePlan;
use crate::model::surroundings::Surroundings;
use crate::world::World;

mod addresses;
mod blocks;
pub mod catalog;
mod found;
mod nodes;
mod planned;
pub(in crate::view) mod ranges;

pub use found::Line;
use found::{Found, grouped};

/// Everything that is wrong: the worst first, then by how many objects it concerns.
#[must_use]
pub fn audit(world: &World, plans: &[NodePlan], around: &Surroundings) -> Vec<Line> {
    let mut found = Found::default();
    blocks::look(world, &mut found);
    addresses::look(world, &around.pods, &mut found);
    nodes::look(world, &mut found);
    ranges::look(world, &around.ranges, &mut found);
    planned::look(world, plans, &mut found);
    planned::look_around(around, &mut found);
    grouped(found)
}
