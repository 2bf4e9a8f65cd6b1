//! The fields of a CiliumNode in Cilium's crd mode, and the changes that a write makes there.
//!
//! `wire` reads and writes it, `publisher` interprets it, and no other room names it (`tests/it/layout.rs`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::net::address_map::AddressMap;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// The fields of a CiliumNode that the crd mode uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CrdFields {
    /// `spec.ipam.podCIDRs` in their order; the first of a family is the primary one (`docs/cilium.md`, podCIDRs).
    pub pod_cidrs: Vec<Cidr>,
    /// The keys of `spec.ipam.pool`.
    pub pool: AddressSet,
    /// The entries of the pool that have an `owner`.
    pub owners: AddressMap<String>,
    /// `spec.ipam.min-allocate`. We don't write it, but it can hang an agent.
    pub min_allocate: u32,
    /// The keys of `status.ipam.used`; `None` if it is null, which says nothing about use.
    pub used: Option<AddressSet>,
    /// Those of them that the agent has for itself, each with its purpose.
    pub own: AddressMap<&'static str>,
    /// `status.ipam.release-ips`.
    pub marks: BTreeMap<IpAddr, ReleaseMark>,
}

impl CrdFields {
    /// Whether the podCIDRs are these, in this order.
    #[must_use]
    pub fn lists_exactly(&self, cidrs: &[Cidr]) -> bool {
        self.pod_cidrs == cidrs
    }

    /// The same fields with these podCIDRs.
    #[must_use]
    pub fn listing(&self, cidrs: &[Cidr]) -> Self {
        Self { pod_cidrs: cidrs.to_vec(), ..self.clone() }
    }

    /// Whether an entry of the pool has our fence.
    #[must_use]
    pub fn is_fenced(&self, address: IpAddr) -> bool {
        self.owners.get(address).is_some_and(|owner| owner == FENCE)
    }
}

/// The state of an address in the release handshake (`docs/cilium.md`, Release handshake).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseMark {
    /// The release is requested; the agent has not answered.
    Marked,
    /// The agent consents: it will not give the address to a pod any more.
    Ready,
    /// The agent refuses, and keeps the address.
    DoNotRelease,
    /// The address is released; the agent has to remove the mark.
    Released,
    /// A value that Cilium does not know.
    Unknown,
}

/// The memory of a deleted CiliumNode, for the one that replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerCrd {
    /// Its podCIDRs, in their order.
    pub pod_cidrs: Vec<Cidr>,
    /// The entries of its pool that had an owner.
    pub owners: AddressMap<String>,
}

/// A change of the fields of [`CrdFields`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrdChange {
    /// Add blocks and addresses, which the agent can then allocate.
    Blocks {
        /// The whole new `podCIDRs`, because a patch replaces a list as a whole.
        pod_cidrs: Vec<Cidr>,
        /// The new entries of `pool`, each with the owner that the address is kept for, if any.
        entries: BTreeMap<IpAddr, Option<&'static str>>,
        /// Entries that lose our fence.
        unfenced: AddressSet,
    },
    /// Release marks that are set or removed.
    Marks(BTreeMap<IpAddr, MarkChange>),
    /// Entries that get our fence.
    Fence(AddressSet),
    /// Blocks that are removed.
    Remove {
        /// The whole new `podCIDRs`.
        pod_cidrs: Vec<Cidr>,
        /// The removed blocks.
        blocks: Vec<Cidr>,
        /// The removed entries of `pool`.
        entries: AddressSet,
    },
}

/// The owner of a fenced entry. No pod has this name. So agents from 1.13 on give the address to no new pod, and a pod
/// that has it keeps it (`docs/cilium.md`, Owners).
pub const FENCE: &str = "nodeipam.io/fenced";

/// The effect of a write on one release mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkChange {
    /// It is set to [`ReleaseMark::Marked`].
    Ask,
    /// It is set to [`ReleaseMark::Released`].
    Release,
    /// It is removed.
    Remove,
}

impl CrdChange {
    /// The fields after this change has published blocks; `None` if it is another step.
    #[must_use]
    pub fn published_in(&self, fields: &CrdFields) -> Option<CrdFields> {
        match self {
            Self::Blocks { pod_cidrs, entries, unfenced } => {
                let mut fields = CrdFields { pod_cidrs: pod_cidrs.clone(), ..fields.clone() };
                for (address, owner) in entries {
                    fields.pool.insert(*address);
                    fields.owners.extend(owner.map(|owner| (*address, owner.to_owned())));
                }
                fields.owners.retain(|address, _| !unfenced.contains(address));
                Some(fields)
            }
            Self::Marks(_) | Self::Fence(_) | Self::Remove { .. } => None,
        }
    }

    /// Whether an object shows that this change, which adds the blocks `added`, was applied.
    #[must_use]
    pub fn is_shown_by(&self, fields: &CrdFields, added: &[Cidr]) -> bool {
        match self {
            Self::Blocks { entries, unfenced, .. } => {
                added.iter().all(|cidr| fields.pod_cidrs.contains(cidr))
                    && entries.keys().all(|address| fields.pool.contains(*address))
                    && unfenced.iter().all(|address| !fields.is_fenced(address))
            }
            // The agent answers a mark by changing it, and removes one that is released.
            Self::Marks(marks) => marks.iter().all(|(address, change)| match change {
                MarkChange::Ask => fields.marks.contains_key(address),
                MarkChange::Release => {
                    fields.marks.get(address).is_none_or(|mark| *mark == ReleaseMark::Released)
                }
                MarkChange::Remove => !fields.marks.contains_key(address),
            }),
            Self::Fence(addresses) => addresses.iter().all(|address| fields.is_fenced(address)),
            Self::Remove { blocks, entries, .. } => {
                blocks.iter().all(|cidr| !fields.pod_cidrs.contains(cidr))
                    && entries.iter().all(|address| !fields.pool.contains(address))
            }
        }
    }

    /// Whether it is a change of the status, which the server keeps apart from the rest of the object.
    #[must_use]
    pub const fn is_of_status(&self) -> bool {
        match self {
            Self::Marks(_) => true,
            Self::Blocks { .. } | Self::Fence(_) | Self::Remove { .. } => false,
        }
    }
}
