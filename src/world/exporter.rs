//! The way in which routes are announced: one of two, with its state. Knows no world.

use super::frr::Frr;
use super::gobgp::Gobgp;
use super::looks::Looks;
use super::speakers::Speakers;

/// The way in which routes are announced.
#[derive(Debug, Clone)]
pub enum Exporter {
    /// The known FRRConfigurations.
    FrrK8s(Box<Frr>),
    /// The table of a GoBGP daemon.
    Gobgp(Box<Gobgp>),
}

impl Exporter {
    pub(super) fn looks(&self) -> &Looks {
        match self {
            Self::FrrK8s(frr) => &frr.looks,
            Self::Gobgp(gobgp) => &gobgp.looks,
        }
    }

    pub(super) fn looks_mut(&mut self) -> &mut Looks {
        match self {
            Self::FrrK8s(frr) => &mut frr.looks,
            Self::Gobgp(gobgp) => &mut gobgp.looks,
        }
    }

    pub(super) fn speakers_mut(&mut self) -> &mut Speakers {
        match self {
            Self::FrrK8s(frr) => &mut frr.speakers,
            Self::Gobgp(gobgp) => &mut gobgp.speakers,
        }
    }

    /// The leadership of this process has changed.
    pub(super) fn leadership_changed(&mut self) {
        match self {
            // Its writes carry versions.
            Self::FrrK8s(_) => {}
            Self::Gobgp(gobgp) => gobgp.forget(),
        }
    }
}
