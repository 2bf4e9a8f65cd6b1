//! Nodes, CiliumNodes and Cilium's settings as the world keeps them: only what decisions need.
//!
//! Made from the wire by `crate::wire`. Text that could not be read is kept beside what could, never dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::model::names::{NodeName, Revision, Uid};
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its uid; a Node re-created under the same name is another one.
    pub uid: Uid,
    /// The version that was read.
    pub revision: Revision,
    /// Its labels, which pools select by.
    pub labels: BTreeMap<String, String>,
    /// Whether it is being deleted. It keeps everything until it is gone.
    pub deleting: bool,
    /// Its own addresses; no pod may get one.
    pub addresses: Vec<NodeAddress>,
}

/// An address of a Node, with its type, such as `InternalIP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// The type.
    pub kind: String,
    /// The address.
    pub address: IpAddr,
}

/// Where an address stands in the release handshake (`docs/cilium.md`, Release handshake).
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

/// A CiliumNode: what the agent of a node published, and what it may hand out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiliumNode {
    /// Its name, that of the Node.
    pub name: NodeName,
    /// Its uid; changes when it is deleted and created again.
    pub uid: Uid,
    /// The version that was read. Every write carries it.
    pub revision: Revision,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `spec.addresses`.
    pub addresses: Vec<IpAddr>,
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
    /// Where in the object a text stands that could not be read, with that text.
    pub malformed: Vec<Malformed>,
}

/// What a CiliumNode showed that is gone, for the one after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerCarrier {
    /// Its podCIDRs, in their order.
    pub pod_cidrs: Vec<Cidr>,
    /// The entries of its pool that had an owner.
    pub owners: BTreeMap<IpAddr, String>,
}

/// A text in an object of somebody else's that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Malformed {
    /// The field, such as `spec.ipam.podCIDRs[1]`.
    pub field: String,
    /// The text.
    pub value: String,
}

impl CiliumNode {
    /// Every address that lies on it in any way: safety rule 6 takes all of them.
    #[must_use]
    pub fn carried(&self) -> AddressSet {
        let mut standing: AddressSet = self.pod_cidrs.iter().copied().collect();
        standing.extend_with(&self.pool);
        // A mark on an address that is no node's, as a ping is, takes nothing.
        for address in self.marks.keys().filter(|address| !address.is_unspecified()) {
            standing.insert(*address);
        }
        if let Some(used) = &self.used {
            standing.extend_with(used);
        }
        standing
    }

    /// What of `cidr` is offered here: by prefixes that overlap it, or by addresses of it.
    #[must_use]
    pub fn offered_in(&self, cidr: Cidr) -> AddressSet {
        let mut shown: AddressSet =
            self.pod_cidrs.iter().copied().filter(|standing| standing.overlaps(cidr)).collect();
        for (first, last) in self.pool.runs_within(cidr.first(), cidr.last()) {
            shown.insert_run(first, last);
        }
        shown
    }

    /// The addresses of `cidr` that the agent hands to nobody because they are in a release handshake.
    pub fn in_handshake(&self, cidr: Cidr) -> impl Iterator<Item = IpAddr> + '_ {
        cidr.entries_in(&self.marks)
            .filter(|(_, mark)| **mark != ReleaseMark::DoNotRelease)
            .map(|(address, _)| *address)
    }
}

/// What Cilium's own configuration says, as far as it decides what is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The families that the agents run; each needs addresses before an agent can start.
    pub families: BTreeSet<Family>,
    /// The owners under which an agent takes addresses for itself, in the order in which they are pinned.
    pub infrastructure: Vec<&'static str>,
}

/// Whether the controller may write at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// It may not, for this reason.
    Passive(String),
    /// Cilium runs in `ipam: crd`, with these settings.
    Active(Settings),
}
