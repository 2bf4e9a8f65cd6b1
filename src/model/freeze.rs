//! The freeze: switches with which an administrator stops parts of the controller's work, and the effect of each.
//!
//! Does not know the source of the switches. Keeps one invariant: the kind of a write alone decides which switch stops
//! it. So a new kind of write does not compile before it declares whether it moves addresses.

use std::collections::BTreeMap;

use super::request::Write;
use super::stable_names;

stable_names! {
    /// A switch.
    pub enum Switch {
        /// Stops every write that gives, moves or takes addresses, and so reclaim too.
        Writes => "writes",
        /// Stops the reclaim of blocks from nodes that exist.
        Reclaim => "reclaim",
    }
}

impl Switch {
    /// The effect of the switch while it is on, for a person.
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

/// The switches that are on, each with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Freeze {
    on: BTreeMap<Switch, String>,
}

impl Freeze {
    /// A freeze with these switches on, each with the reason. Without any, nothing is frozen.
    #[must_use]
    pub fn of(on: impl IntoIterator<Item = (Switch, String)>) -> Self {
        Self { on: on.into_iter().collect() }
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn is_on(&self, switch: Switch) -> bool {
        self.on.contains_key(&switch)
    }

    /// Whether no block may be reclaimed from a node that exists. The plan asks this before each step of a reclaim.
    #[must_use]
    pub fn stops_reclaim(&self) -> bool {
        self.is_on(Switch::Reclaim) || self.is_on(Switch::Writes)
    }

    /// Whether a write must not start.
    #[must_use]
    pub fn stops_write(&self, write: &Write) -> bool {
        self.is_on(Switch::Writes) && moves_addresses(write)
    }

    /// The effect of a switch and the reason why it is on, in a sentence for a person; `None` while it is off.
    #[must_use]
    pub fn description(&self, switch: Switch) -> Option<String> {
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
        // Without its finalizer a pool is deleted, and younger pools get its ranges.
        | Write::PoolFinalizers(_)
        // It makes a later version of the claim.
        | Write::ClaimStatus(_)
        // Agents give out the addresses that they have under its name.
        | Write::PodIpPool(_)
        // No node needs another route while no address moves.
        | Write::Frr(_) => true,
        // It reports the freeze, or the use of the addresses that a node has.
        Write::PoolStatus(_) | Write::NodeCondition(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kind::{Kind, ObjectKind};

    /// A reader of the freeze learns which kinds are not written.
    #[test]
    fn the_switch_of_writes_names_every_kind_that_it_stops() {
        let reported: Vec<&str> = Switch::Writes.stops().split([' ', ',']).collect();
        for kind in Kind::ALL
            .map(ObjectKind::from)
            .into_iter()
            .chain([ObjectKind::PodIpPool, ObjectKind::FrrConfiguration])
        {
            let word = match kind {
                ObjectKind::World(Kind::Claim) => "claim",
                // Its status is written even then.
                ObjectKind::World(Kind::Pool) => "finalizer",
                ObjectKind::World(Kind::Node | Kind::CiliumNode)
                | ObjectKind::PodIpPool
                | ObjectKind::FrrConfiguration
                | ObjectKind::Gobgp
                | ObjectKind::Definition
                | ObjectKind::Machine => kind.as_str(),
            };
            assert!(reported.contains(&word), "{word} is not in {reported:?}");
        }
    }

    #[test]
    fn reclaim_is_stopped_by_either_switch() {
        let none = Freeze::default();
        assert!(!none.stops_reclaim());
        assert_eq!(none.description(Switch::Writes), None);
        for switch in Switch::ALL {
            let freeze = Freeze::of([(switch, "of a test".to_owned())]);
            assert!(freeze.stops_reclaim(), "{}", switch.as_str());
            assert_eq!(freeze.description(switch), Some(format!("{}: of a test", switch.stops())));
        }
    }
}
