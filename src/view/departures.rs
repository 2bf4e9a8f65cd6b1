//! When each draining block can leave its node, as far as objects say.
//!
//! [`drains`](super::drains) reports a drain in progress. This is for a drain that a person considers.

use std::fmt;

use crate::model::carrier::Carrier;
use crate::model::claim::{Claim, ClaimState};
use crate::model::counted::counted;
use crate::model::names::{NodeName, PoolName};
use crate::net::cidr::Cidr;
use crate::publisher::answer::Stays;
use crate::world::World;

/// A block that will leave its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The block.
    pub cidr: Cidr,
    /// Its node.
    pub node: NodeName,
    /// Its pool.
    pub pool: PoolName,
    /// When it can leave.
    pub when: When,
    /// The pods that have addresses of it, as far as the controller has reported them.
    pub pods: Vec<String>,
}

/// When a block can leave its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// As soon as its agent consents, its node can do without it and the pace of reclaim allows it: no pod uses it.
    Now,
    /// When the pods with this number of its addresses are deleted.
    PodsEnd(u128),
    /// When its agent does not need it any more. The agent does not say which addresses are in use.
    AgentReleases,
    /// When the node rejoins ([`rejoin`](super::rejoin)), for this reason.
    NodeRejoins(String),
    /// When the node is recreated, for this reason.
    NodeRecreated(String),
    /// When this obstacle is removed.
    Without(String),
}

impl When {
    /// The name in JSON.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::PodsEnd(_) => "podsEnd",
            Self::AgentReleases => "agentLetsGo",
            Self::NodeRejoins(_) => "nodeRejoins",
            Self::NodeRecreated(_) => "nodeRecreated",
            Self::Without(_) => "blocked",
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str("when its agent consents: no pod uses it"),
            Self::PodsEnd(n) => {
                write!(f, "when the pods with {} of it are deleted", counted(*n, "address"))
            }
            Self::AgentReleases => f.write_str("when the agent needs it no more"),
            Self::NodeRejoins(why) => write!(f, "when the node rejoins (reboot): {why}"),
            Self::NodeRecreated(why) => write!(f, "when the node is recreated: {why}"),
            Self::Without(why) => write!(f, "blocked: {why}"),
        }
    }
}

/// The held blocks that `is_meant` chooses and that will leave their nodes, in the order of their addresses.
#[must_use]
pub fn departures(world: &World, is_meant: impl Fn(&Claim) -> bool) -> Vec<Departure> {
    let meant = world.claims().map(|known| &known.claim).filter(|claim| is_meant(claim));
    meant.filter_map(|claim| departure(world, claim)).collect()
}

/// The same of one node.
#[must_use]
pub fn departures_of(world: &World, node: &NodeName) -> Vec<Departure> {
    world.claims_of(node).filter_map(|known| departure(world, &known.claim)).collect()
}

fn departure(world: &World, claim: &Claim) -> Option<Departure> {
    let is_held = matches!(claim.state, ClaimState::Held | ClaimState::Draining(_));
    (is_held && world.must_leave(claim)).then(|| Departure {
        cidr: claim.cidr,
        node: claim.node.clone(),
        pool: claim.pool.clone(),
        when: when(world, claim),
        pods: claim.status.drain_pods().into_iter().cloned().collect(),
    })
}

fn when(world: &World, claim: &Claim) -> When {
    let Some(carrier) = world.carrier(&claim.node) else { return When::Now };
    if let Err(stays) = world.reader_of(&claim.node).may_leave(carrier, claim) {
        return of(&stays, world, carrier, claim);
    }
    if let Err(why) = world.agent_on(&claim.node) {
        return When::Without(why.to_string());
    }
    if !world.reader_of(&claim.node).traits().shows_use {
        return When::AgentReleases;
    }
    match world.reader_of(&claim.node).n_used_in(carrier, claim.cidr) {
        0 => When::Now,
        n_used => When::PodsEnd(n_used),
    }
}

fn of(stays: &Stays, world: &World, carrier: Carrier<'_>, claim: &Claim) -> When {
    match stays {
        Stays::Primary => When::NodeRejoins("the first block of a node stays".to_owned()),
        Stays::ForLife => When::NodeRecreated("the only block of a node stays".to_owned()),
        Stays::AgentsOwnUntilRejoin(address, what) => {
            When::NodeRejoins(format!("the agent uses {address} for its {what}"))
        }
        Stays::AgentsOwn(address, what) => {
            When::NodeRecreated(format!("the agent uses {address} for its {what}"))
        }
        Stays::Refused(_) | Stays::Used(_) => {
            When::PodsEnd(world.reader_of(&claim.node).n_used_in(carrier, claim.cidr).max(1))
        }
        Stays::Incomplete
        | Stays::Owned(..)
        | Stays::Marked(_)
        | Stays::OtherMode(_)
        | Stays::MinAllocate(_) => When::Without(stays.to_string()),
    }
}
