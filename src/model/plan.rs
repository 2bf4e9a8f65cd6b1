//! Plans as values: what to do for one node or one pool, and why nothing is done where nothing is.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::finding::Finding;
use super::names::NodeName;
use super::request::{Request, Write};
use crate::net::cidr::{Cidr, Family};

/// What a node asks for and does not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmet {
    /// No pool of the node has a free block of the family.
    NoCapacity(Family),
    /// The node holds as much as its first pool allows.
    AtLimit(Family),
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCapacity(family) => write!(f, "no pool of the node has a free {family} block"),
            Self::AtLimit(family) => {
                write!(f, "the node holds as many {family} blocks or addresses as its first pool allows")
            }
        }
    }
}

/// What to do for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct NodePlan {
    /// The node.
    pub node: NodeName,
    /// What to write, or to read first.
    pub requests: Vec<Request>,
    /// What it asks for and does not get now.
    pub unmet: BTreeSet<Unmet>,
    /// What was seen to be wrong.
    pub findings: Vec<Finding>,
    /// When to look again although nothing changes.
    pub wake: Option<Duration>,
    /// Why there is nothing to write, where there is something to wait for.
    pub waits_for: Option<WaitsFor>,
    /// Its claims that rest; from now on this process has seen them rest.
    pub cooling: Vec<Cidr>,
    /// Whether its first set of blocks is incomplete and nothing can be done about it.
    pub incomplete: bool,
    /// Whether blocks of ours are published while its agent says nothing of their use.
    pub use_unknown: bool,
}

/// What a node without a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The controller may write nothing.
    Mode,
    /// Its Node or CiliumNode does not exist, or can't be read.
    Objects,
    /// A write for it, or a claim of it, is under way.
    Answer,
    /// A time.
    Time,
}

impl NodePlan {
    /// Nothing to do, nothing to wait for.
    pub fn idle(node: &NodeName) -> Self {
        Self {
            node: node.clone(),
            requests: Vec::new(),
            unmet: BTreeSet::new(),
            findings: Vec::new(),
            wake: None,
            waits_for: None,
            cooling: Vec::new(),
            incomplete: false,
            use_unknown: false,
        }
    }

    /// The same, with what it waits for.
    pub fn waiting_for(mut self, what: WaitsFor) -> Self {
        self.waits_for = Some(what);
        self
    }

    /// Looks again at `at`, or earlier where that was said before.
    pub fn wake_at(&mut self, at: Duration) {
        self.wake = Some(self.wake.map_or(at, |before| before.min(at)));
    }

    /// Whether the node has everything it asks for, as far as it can be had.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.requests.is_empty() && self.waits_for.is_none()
    }
}

/// What to do about the object of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum PoolPlan {
    /// There is nothing to look at now.
    Unchanged,
    /// It was looked at, and says what is the case.
    UpToDate,
    /// It was looked at just now, or its writes fail; look again at that time.
    Later(Duration),
    /// Write this.
    Write(Write),
}
