//! How an imitation gives addresses and reports, by the mode of Cilium: one answer for each question of its life.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use kube::api::DynamicObject;

use super::Settings;
use super::allocator::Allocator;
use super::discovery::LocalNode;
use super::fixed::Fixed;
use super::pools::Pools;
use crate::support::families::Family;

/// The allocator of one node, in the mode of its cluster.
#[derive(Debug)]
pub(super) enum Ipam {
    Crd(Allocator),
    MultiPool(Pools),
    /// The CIDRs are on the CiliumNode.
    ClusterPool(Fixed),
    /// The CIDRs are on the Node.
    Kubernetes(Fixed),
}

/// The next write of an agent.
pub(super) enum Report {
    Status(DynamicObject),
    Whole(DynamicObject),
}

impl Ipam {
    /// # Panics
    /// If agents are not imitated in the mode.
    pub(super) fn new(settings: &Settings, rng: fastrand::Rng) -> Self {
        let families = settings.families;
        match settings.ipam {
            "crd" => Self::Crd(Allocator::new(families, rng)),
            "multi-pool" => Self::MultiPool(Pools::new(families, rng)),
            "cluster-pool" => Self::ClusterPool(Fixed::new(families, rng)),
            "kubernetes" => Self::Kubernetes(Fixed::new(families, rng)),
            other => panic!("agents of the mode {other} are not imitated"),
        }
    }

    /// Takes over a version of the CiliumNode, or its deletion. Returns whether something must be written because of
    /// it.
    pub(super) fn receive(&mut self, object: Option<&Arc<DynamicObject>>) -> bool {
        match self {
            Self::Crd(allocator) => allocator.receive(object),
            Self::MultiPool(pools) => pools.receive(object),
            Self::ClusterPool(fixed) => {
                fixed.receive(object);
                fixed.show_received();
                false
            }
            Self::Kubernetes(fixed) => {
                fixed.receive(object);
                false
            }
        }
    }

    /// Takes over a version of the Node.
    pub(super) fn receive_node(&mut self, node: &LocalNode) {
        match self {
            Self::Kubernetes(fixed) => fixed.show(&node.pod_cidrs),
            Self::Crd(_) | Self::MultiPool(_) | Self::ClusterPool(_) => {}
        }
    }

    /// The CiliumNode as the informer has it.
    pub(super) fn seen(&self) -> Option<&Arc<DynamicObject>> {
        match self {
            Self::Crd(allocator) => allocator.seen(),
            Self::MultiPool(pools) => pools.seen(),
            Self::ClusterPool(fixed) | Self::Kubernetes(fixed) => fixed.seen(),
        }
    }

    /// Whether the agent creates its CiliumNode before it has addresses.
    pub(super) fn begins_with_cilium_node(&self) -> bool {
        !matches!(self, Self::Kubernetes(_))
    }

    /// Whether the agent writes the CIDRs of its Node onto its CiliumNode.
    pub(super) fn copies_pod_cidrs(&self) -> bool {
        matches!(self, Self::Kubernetes(_))
    }

    /// Whether there are enough addresses for the start to continue.
    pub(super) fn has_minimum(&self, health: bool) -> bool {
        match self {
            Self::Crd(allocator) => allocator.has_minimum(health),
            Self::MultiPool(pools) => pools.has_minimum(),
            Self::ClusterPool(fixed) | Self::Kubernetes(fixed) => fixed.has_minimum(),
        }
    }

    /// The wait for addresses is over.
    pub(super) fn register(&mut self, own: BTreeSet<IpAddr>) {
        match self {
            Self::Crd(allocator) => allocator.register(own),
            Self::MultiPool(_) => {}
            Self::ClusterPool(fixed) | Self::Kubernetes(fixed) => fixed.register(),
        }
    }

    /// Pods and agent have their old addresses, or other ones.
    pub(super) fn finish_restoring(&mut self) {
        match self {
            Self::MultiPool(pools) => pools.finish_restoring(),
            Self::Crd(_) | Self::ClusterPool(_) | Self::Kubernetes(_) => {}
        }
    }

    pub(super) fn allocate_next(&mut self, family: Family, owner: &str) -> Result<IpAddr, String> {
        match self {
            Self::Crd(allocator) => allocator.allocate_next(family, owner),
            Self::MultiPool(pools) => pools.allocate_next(family, owner),
            Self::ClusterPool(fixed) | Self::Kubernetes(fixed) => fixed.allocate_next(family, owner),
        }
    }

    /// Exactly this address, as a restart asks for it.
    pub(super) fn allocate(&mut self, address: IpAddr, owner: &str) -> Result<(), String> {
        match self {
            Self::Crd(allocator) => allocator.allocate(address, owner),
            Self::MultiPool(pools) => pools.allocate(address, owner),
            Self::ClusterPool(fixed) | Self::Kubernetes(fixed) => fixed.allocate(address, owner),
        }
    }

    pub(super) fn release(&mut self, address: IpAddr) -> Result<(), String> {
        match self {
            Self::Crd(allocator) => allocator.release(address),
            Self::MultiPool(pools) => pools.release(address),
            Self::ClusterPool(fixed) | Self::Kubernetes(fixed) => fixed.release(address),
        }
    }

    /// Every address given out, with its owner.
    pub(super) fn allocated(&self) -> Vec<(IpAddr, &str)> {
        match self {
            Self::Crd(allocator) => allocator.allocated().collect(),
            Self::MultiPool(pools) => pools.allocated().collect(),
            Self::ClusterPool(fixed) | Self::Kubernetes(fixed) => fixed.allocated().collect(),
        }
    }

    /// The object that must be written now. `None` if there is nothing to report.
    pub(super) fn report(&mut self) -> Option<Report> {
        match self {
            Self::Crd(allocator) => allocator.status().map(Report::Status),
            Self::MultiPool(pools) => pools.report().map(Report::Whole),
            Self::ClusterPool(_) | Self::Kubernetes(_) => None,
        }
    }
}
