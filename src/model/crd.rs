//! What a CiliumNode shows in Cilium's crd mode, and what a write changes there.
//!
//! Read by `wire`, understood by `publisher`, and named by nobody else (`tests/it/layout.rs`).

use std::collections::BTreeMap;
use std::net::IpAddr;

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
    pub owners: BTreeMap<IpAddr, String>,
    /// `spec.ipam.min-allocate`; not ours, but it can hang an agent.
    pub min_allocate: u32,
    /// The keys of `status.ipam.used`; `None` where it is null, which says nothing about use.
    pub used: Option<AddressSet>,
    /// `status.ipam.release-ips`.
    pub marks: BTreeMap<IpAddr, ReleaseMark>,
}

/// Where an address is in the release handshake (`docs/cilium.md`, Release handshake).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseMark {
    /// Asked for; the agent has not answered.
    Marked,
    /// The agent will not hand it out any more.
    Ready,
    /// The agent keeps it.
    DoNotRelease,
    /// Taken; the agent is to forget it.
    Released,
    /// Something that Cilium does not know.
    Unknown,
}

/// What is remembered of a CiliumNode that is gone, for the one after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerCrd {
    /// Its podCIDRs, in their order.
    pub pod_cidrs: Vec<Cidr>,
    /// The entries of its pool that had an owner.
    pub owners: BTreeMap<IpAddr, String>,
}

/// What a write changes in these fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrdChange {
    /// Blocks and addresses that become allocatable.
    Blocks {
        /// `podCIDRs` as it shall be; a list is replaced as a whole.
        pod_cidrs: Vec<Cidr>,
        /// The new entries of `pool`, with the owner for whom an address is kept.
        entries: BTreeMap<IpAddr, Option<&'static str>>,
    },
    /// Release marks that are set or removed.
    Marks(BTreeMap<IpAddr, MarkChange>),
}

/// What a write does to one release mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkChange {
    /// It is set to [`ReleaseMark::Marked`].
    Ask,
    /// It is removed.
    Remove,
}

impl CrdChange {
    /// Whether an object shows what this was to bring about, where it added the blocks `added`.
    #[must_use]
    pub fn is_shown_by(&self, fields: &CrdFields, added: &[Cidr]) -> bool {
        match self {
            Self::Blocks { entries, .. } => {
                added.iter().all(|cidr| fields.pod_cidrs.contains(cidr))
                    && entries.keys().all(|address| fields.pool.contains(*address))
            }
            // The agent answers a mark by changing it.
            Self::Marks(_) => false,
        }
    }
}
