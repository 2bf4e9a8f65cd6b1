//! The fields of a CiliumNode in Cilium's multi-pool mode, and the changes that a write makes there.
//!
//! `wire` reads and writes it, `publisher` interprets it, and no other room names it (`tests/it/layout.rs`).

use std::collections::BTreeMap;

use super::revision::Revision;
use crate::net::address_map::AddressMap;
use crate::net::cidr::{Cidr, Family};

/// The fields of a CiliumNode that the multi-pool mode uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolsFields {
    /// `spec.ipam.pools.requested`: the needs of the agent, by Cilium pool. Empty before the agent has reported any.
    pub requested: Vec<Requested>,
    /// `spec.ipam.pools.allocated`: the CIDRs that the agent may give to pods, by Cilium pool.
    pub allocated: Vec<Allocated>,
    /// The addresses that its agent has for itself, each with its purpose. No field lists the addresses that pods use.
    pub own: AddressMap<&'static str>,
    /// `status.ipam.operator-status.error`: the report of cilium-operator where it serves the node.
    pub operator_error: Option<String>,
}

impl PoolsFields {
    /// Every CIDR of the agent, of any Cilium pool.
    pub fn listed(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.allocated.iter().flat_map(|entry| &entry.cidrs).copied()
    }
}

/// The need of an agent in one Cilium pool, or a usage query of ours to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requested {
    /// The name of the Cilium pool.
    pub pool: String,
    /// How many addresses it needs in all, by family: those in use, those that pods wait for, and its reserve.
    pub needed: BTreeMap<Family, u128>,
    /// The revision that our usage query is later than, if the entry is one.
    pub asked_as_of: Option<Revision>,
    /// The whole entry as it was read.
    pub entry: Entry,
}

/// The CIDRs of one Cilium pool that an agent may give to pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocated {
    /// The name of the Cilium pool.
    pub pool: String,
    /// The CIDRs.
    pub cidrs: Vec<Cidr>,
    /// The whole entry as it was read; fields that a newer Cilium has added to it are kept.
    pub entry: Entry,
}

/// An entry of a list of a CiliumNode as JSON. A patch replaces a list as a whole, so the parts of other writers are
/// written as they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry(pub String);

impl Default for Entry {
    /// An entry without any field.
    fn default() -> Self {
        Self("{}".to_owned())
    }
}

/// A change of the fields of [`PoolsFields`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolsChange {
    /// The whole new `allocated`.
    Allocate(Vec<Allocated>),
    /// A usage query.
    Ask(Question),
    /// CIDRs are removed, together with a usage query.
    Remove {
        /// The CIDRs.
        off: Vec<Cidr>,
        /// The whole new `allocated`.
        allocated: Vec<Allocated>,
        /// The usage query.
        question: Question,
    },
}

/// The whole new `requested`, with a usage query of this revision: an entry without need, under a name that is no
/// Cilium pool. Only the allocator of the agent removes it (`docs/cilium.md`, Mode multi-pool).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The other entries.
    pub others: Vec<Entry>,
    /// The revision that the query is later than.
    pub as_of: Revision,
}

/// The name of a usage query in the list, before its revision.
pub const QUESTION: &str = "nodeipam.io-asked-as-of-";

impl PoolsChange {
    /// The fields after this change has published blocks; `None` if it is another step.
    #[must_use]
    pub fn published_in(&self, fields: &PoolsFields) -> Option<PoolsFields> {
        match self {
            Self::Allocate(allocated) => Some(PoolsFields { allocated: allocated.clone(), ..fields.clone() }),
            Self::Ask(_) | Self::Remove { .. } => None,
        }
    }

    /// Whether an object shows that this change, which adds the blocks `added`, was applied.
    #[must_use]
    pub fn is_shown_by(&self, fields: &PoolsFields, added: &[Cidr]) -> bool {
        match self {
            Self::Allocate(_) => added.iter().all(|cidr| fields.listed().any(|listed| listed == *cidr)),
            Self::Ask(Question { as_of, .. }) => {
                fields.requested.iter().any(|entry| entry.asked_as_of.is_some_and(|asked| asked >= *as_of))
            }
            // An agent that keeps using one writes it back, and that may be seen first: it is tried again later.
            Self::Remove { off, .. } => !fields.listed().any(|listed| off.contains(&listed)),
        }
    }
}
