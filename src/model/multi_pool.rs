//! What a CiliumNode shows in Cilium's multi-pool mode, and what a write changes there.
//!
//! `wire` reads and writes it, `publisher` interprets it, and no other room names it (`tests/it/layout.rs`).

use std::collections::BTreeMap;

use super::revision::Revision;
use crate::net::address_map::AddressMap;
use crate::net::cidr::{Cidr, Family};

/// The fields of a CiliumNode that the multi-pool mode uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolsFields {
    /// `spec.ipam.pools.requested`: what the agent needs, by Cilium pool. Empty before the agent has said anything.
    pub requested: Vec<Requested>,
    /// `spec.ipam.pools.allocated`: what the agent may give to pods, by Cilium pool.
    pub allocated: Vec<Allocated>,
    /// The addresses that its agent has for itself, each with what for. Which addresses pods use is not said.
    pub own: AddressMap<&'static str>,
    /// `status.ipam.operator-status.error`: what cilium-operator reports where it serves the node.
    pub operator_error: Option<String>,
}

/// What an agent needs of one Cilium pool, or a question of ours to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requested {
    /// The name of the Cilium pool.
    pub pool: String,
    /// How many addresses it needs in all, by family: those in use, those that pods wait for, and its reserve.
    pub needed: BTreeMap<Family, u128>,
    /// The revision as of which we asked, where the entry is a question of ours.
    pub asked_as_of: Option<Revision>,
    /// The whole entry as it was read.
    pub entry: Entry,
}

/// What an agent may give to pods out of one Cilium pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocated {
    /// The name of the Cilium pool.
    pub pool: String,
    /// The CIDRs.
    pub cidrs: Vec<Cidr>,
    /// The whole entry as it was read; what a newer Cilium has added to it is kept.
    pub entry: Entry,
}

/// An entry of a list of a CiliumNode as JSON. A patch replaces a list as a whole, so what is not ours is written as it
/// was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry(pub String);

impl Default for Entry {
    /// An entry without any field.
    fn default() -> Self {
        Self("{}".to_owned())
    }
}

/// What a write changes in the fields of [`PoolsFields`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolsChange {
    /// The whole new `allocated`.
    Allocate(Vec<Allocated>),
    /// A question.
    Ask(Question),
    /// CIDRs are taken off, together with a question.
    Remove {
        /// The CIDRs.
        off: Vec<Cidr>,
        /// The whole new `allocated`.
        allocated: Vec<Allocated>,
        /// The question.
        question: Question,
    },
}

/// The whole new `requested`, with a question of this revision: an entry without need, under a name that is no Cilium
/// pool. Only the allocator of the agent removes it (`docs/cilium.md`, Mode multi-pool).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The other entries.
    pub others: Vec<Entry>,
    /// The revision as of which is asked.
    pub as_of: Revision,
}

/// The name under which a question stands, before its revision.
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
            Self::Allocate(_) => {
                added.iter().all(|cidr| fields.allocated.iter().any(|entry| entry.cidrs.contains(cidr)))
            }
            Self::Ask(Question { as_of, .. }) => {
                fields.requested.iter().any(|entry| entry.asked_as_of.is_some_and(|asked| asked >= *as_of))
            }
            // An agent that goes on with one writes it back, which may be seen first: it is tried again later.
            Self::Remove { off, .. } => {
                !fields.allocated.iter().any(|entry| entry.cidrs.iter().any(|cidr| off.contains(cidr)))
            }
        }
    }
}
