//! Whether a cluster is ready for the controller: one line or more per point, each with its remedy.
//!
//! Pure functions of the objects that were listed. They decide nothing about nodes: that stays with the planner. Each
//! point of `docs/requirements.md` is looked at, and a point that could not be seen says how to look.

use crate::model::installation::Installation;
use crate::world::World;

mod addresses;
mod admission;
mod allocators;
mod cilium;
mod cluster;
mod former_mode;
mod node_ranges;
mod points;
mod pools;
mod size;

use points::Lines;
pub use points::{Line, Point, State};

/// All lines, in the order of the points.
#[must_use]
pub fn preflight(world: &World, installation: &Installation) -> Vec<Line> {
    let mut lines = Lines::default();
    cluster::versions(world, installation, &mut lines);
    cilium::look(world, installation, &mut lines);
    allocators::look(world, installation, &mut lines);
    addresses::look(world, installation, &mut lines);
    pools::look(world, installation, &mut lines);
    size::look(world, &mut lines);
    admission::look(world, installation, &mut lines);
    cluster::look(installation, &mut lines);
    lines.0.sort_by_key(|line| line.point);
    lines.0
}
