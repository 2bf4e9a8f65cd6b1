//! The table of a GoBGP daemon as the exporter knows it: its own paths, and the prefixes for which other writers have
//! some.
//!
//! It is no kind of the world: no address follows from it. Does not know how paths are written on the wire. The
//! exporter's own paths are those that were added by the API with its path identifier. GoBGP keeps one path per prefix,
//! source and identifier, so an add or a withdrawal of the exporter never changes a path of another writer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::community::Community;
use crate::net::cidr::Cidr;

/// A path of the exporter without its prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RibPath {
    /// Its communities.
    pub communities: BTreeSet<Community>,
    /// The address to which routers send the traffic of the prefix.
    pub next_hop: IpAddr,
}

/// The global table of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rib {
    /// The paths of the exporter; the error says why one can't be read.
    pub own: BTreeMap<Cidr, Result<RibPath, String>>,
    /// The prefixes for which another writer has added a path by the API or the configuration of the daemon.
    pub others: BTreeSet<Cidr>,
}

impl Rib {
    /// Whether a path of the exporter leads all traffic of this block to this address.
    #[must_use]
    pub fn leads_to(&self, block: Cidr, hop: IpAddr) -> bool {
        let mut wider = (0..=block.prefix_len()).filter_map(|len| {
            let prefix = Cidr::containing(block.first_address(), len)?;
            self.own.get(&prefix)?.as_ref().ok()
        });
        wider.any(|path| path.next_hop == hop)
    }

    /// Whether this may be the best path of a prefix in the table.
    #[must_use]
    pub fn agrees(&self, prefix: Cidr, best: &BestPath) -> bool {
        let own = self.own.get(&prefix);
        match best {
            BestPath::Own(path) => own == Some(path),
            BestPath::Other | BestPath::None => own.is_none(),
        }
    }

    /// The prefixes of the exporter's paths that have an address of this block.
    pub fn overlapping(&self, block: Cidr) -> impl Iterator<Item = Cidr> {
        self.own.keys().copied().filter(move |prefix| prefix.overlaps(block))
    }
}

/// The best path of a prefix. Those of peers do not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BestPath {
    /// The prefix has no path.
    None,
    /// That of the exporter; the error says why it can't be read.
    Own(Result<RibPath, String>),
    /// That of another writer.
    Other,
}

/// News of the table from the daemon itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RibNews {
    /// The daemon reports changes from now on, and did not report earlier ones. It may be another daemon than before.
    Joined,
    /// These prefixes have another best path.
    Changed(Vec<(Cidr, BestPath)>),
}

/// A request to the daemon. At most one is in flight at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RibRequest {
    /// List its global table.
    List,
    /// Change paths of the exporter, one after the other.
    Change(Vec<RibChange>),
}

/// A change of one path of the exporter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RibChange {
    /// Add it. It replaces the exporter's path of the same prefix.
    Add(Cidr, RibPath),
    /// Withdraw it.
    Withdraw(Cidr),
}

impl RibChange {
    /// Its prefix.
    #[must_use]
    pub const fn prefix(&self) -> Cidr {
        match self {
            Self::Add(prefix, _) | Self::Withdraw(prefix) => *prefix,
        }
    }
}

impl fmt::Display for RibChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(prefix, path) => {
                write!(f, "add {prefix} via {}", path.next_hop)?;
                path.communities.iter().try_for_each(|community| write!(f, " {community}"))
            }
            Self::Withdraw(prefix) => write!(f, "withdraw {prefix}"),
        }
    }
}

/// The outcome of a request to the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RibOutcome {
    /// The table, as it was after the request was sent.
    Listed(Rib),
    /// These changes were applied, and these were refused, each with the answer. The rest was not sent if there is a
    /// failure.
    Changed {
        /// The changes that the daemon has confirmed.
        applied: Vec<RibChange>,
        /// The changes that the daemon has refused.
        refused: Vec<(RibChange, String)>,
        /// Why the rest was not sent.
        failure: Option<RibFailure>,
    },
    /// The table could not be listed.
    Unlisted(RibFailure),
}

/// Why a request to the daemon has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RibFailure {
    /// Nothing was sent.
    NotSent(String),
    /// The daemon may carry out the last request later.
    Unanswered(String),
}
