//! The way in which routes are announced: one of two, with its state. Knows no world.

use super::frr::Frr;
use super::gobgp::Gobgp;

/// The way in which routes are announced.
#[derive(Debug, Clone)]
pub enum Exporter {
    /// The known FRRConfigurations.
    FrrK8s(Box<Frr>),
    /// The table of a GoBGP daemon.
    Gobgp(Box<Gobgp>),
}
