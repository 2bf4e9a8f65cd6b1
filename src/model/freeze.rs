//! The freeze: switches with which an administrator stops what the controller does, and what each of them stops.
//!
//! Does not know where the switches are read from. Keeps one invariant: what a switch stops follows from the kind of
//! the write alone, so a new kind of write does not compile before it says whether it moves addresses.

use std::collections::BTreeMap;

use super::request::Write;
use super::stable_names;

stable_names! {
    /// A switch.
    pub enum Switch {
        /// Stops every write that gives, moves or takes addresses, and so reclaim too.
        Writes => "writes",
        /// Stops taking blocks back from nodes that live.
        Reclaim => "reclaim",
    }
}

impl Switch {
    /// What is not done while it is on, for a person.
    #[must_use]
    pub const fn stops(self) -> &'static str {
        match self {
            Self::Writes => {
                "no claim, CiliumNode, Node, CiliumPodIPPool, FRRConfiguration or finalizer is written"
            }
            Self::Reclaim => "no block is reclaimed",
        }
    }
}

/// Which switches are on, and what says so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Freeze {
    on: BTreeMap<Switch, String>,
}

impl Freeze {
    /// A freeze with these switches on, each with what says so. Without any, nothing is frozen.
    #[must_use]
    pub fn of(on: impl IntoIterator<Item = (Switch, String)>) -> Self {
        Self { on: on.into_iter().collect() }
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn is_on(&self, switch: Switch) -> bool {
        self.on.contains_key(&switch)
    }

    /// Whether no block may be taken back from a node that lives. Whoever plans that asks here before each step.
    #[must_use]
    pub fn stops_reclaim(&self) -> bool {
        self.is_on(Switch::Reclaim) || self.is_on(Switch::Writes)
    }

    /// Whether a write may not begin.
    #[must_use]
    pub fn stops_write(&self, write: &Write) -> bool {
        self.is_on(Switch::Writes) && moves_addresses(write)
    }

    /// What a switch stops and what says so, in a sentence for a person; `None` while it is off.
    #[must_use]
    pub fn told(&self, switch: Switch) -> Option<String> {
        self.on.get(&switch).map(|why| format!("{}: {why}", switch.stops()))
    }
}

/// Whether a write gives, moves or takes addresses, or lets a later one do so.
fn moves_addresses(write: &Write) -> bool {
    match write {
        Write::CreateClaim(_)
        | Write::UpdateClaim(_)
        | Write::Publish(_)
        | Write::BumpVersion(_)
        | Write::UsageQuery(_)
        | Write::Withdraw(_)
        | Write::CreateCiliumNode(_)
        // Without its finalizer a pool is gone, and younger pools get its ranges.
        | Write::PoolFinalizers(_)
        // It makes a later version of the claim.
        | Write::ClaimStatus(_)
        // Agents give out what they have under its name.
        | Write::PodIpPool(_)
        // Nothing needs another route while no address moves.
        | Write::Frr(_) => true,
        // It tells of the freeze.
        Write::PoolStatus(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kind::{Kind, ObjectKind};

    /// Whoever reads of a freeze learns what stands still.
    #[test]
    fn the_switch_of_writes_names_every_kind_that_it_stops() {
        let told: Vec<&str> = Switch::Writes.stops().split([' ', ',']).collect();
        for kind in Kind::ALL
            .map(ObjectKind::from)
            .into_iter()
            .chain([ObjectKind::PodIpPool, ObjectKind::FrrConfiguration])
        {
            let word = match kind {
                ObjectKind::World(Kind::Claim) => "claim",
                // Its status is written all the same.
                ObjectKind::World(Kind::Pool) => "finalizer",
                ObjectKind::World(Kind::Node | Kind::CiliumNode)
                | ObjectKind::PodIpPool
                | ObjectKind::FrrConfiguration
                | ObjectKind::Gobgp => kind.as_str(),
            };
            assert!(told.contains(&word), "{word} is not in {told:?}");
        }
    }

    #[test]
    fn reclaim_is_stopped_by_either_switch() {
        let none = Freeze::default();
        assert!(!none.stops_reclaim());
        assert_eq!(none.told(Switch::Writes), None);
        for switch in Switch::ALL {
            let freeze = Freeze::of([(switch, "of a test".to_owned())]);
            assert!(freeze.stops_reclaim(), "{}", switch.as_str());
            assert_eq!(freeze.told(switch), Some(format!("{}: of a test", switch.stops())));
        }
    }
}
