//! The imitation of Cilium's allocator in the modes cluster-pool and kubernetes (`pkg/ipam/hostscope.go`).
//!
//! It takes the first CIDR of each family when the agent starts, and ignores every later change.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use kube::api::DynamicObject;

use super::range::{Range, Ranges};
use crate::support::families::{Families, Family};
use crate::support::views::Published;

/// The allocator of one node.
#[derive(Debug)]
pub(super) struct Fixed {
    families: Families,
    seen: Option<Arc<DynamicObject>>,
    /// The CIDRs that their carrier shows now.
    shown: Vec<IpNet>,
    /// The CIDRs that were taken at the start.
    ranges: Ranges,
    rng: fastrand::Rng,
}

impl Fixed {
    pub(super) fn new(families: Families, rng: fastrand::Rng) -> Self {
        Self { families, seen: None, shown: Vec::new(), ranges: Ranges::default(), rng }
    }

    /// Takes over a version of the CiliumNode.
    pub(super) fn receive(&mut self, object: Option<&Arc<DynamicObject>>) {
        self.seen = object.cloned();
    }

    pub(super) fn seen(&self) -> Option<&Arc<DynamicObject>> {
        self.seen.as_ref()
    }

    /// Uses the CIDRs that the CiliumNode shows.
    pub(super) fn show_received(&mut self) {
        let shown = self.seen.as_ref().map(|object| Published::of(object).pod_cidrs).unwrap_or_default();
        self.show(&shown);
    }

    /// Uses these CIDRs.
    pub(super) fn show(&mut self, cidrs: &[String]) {
        self.shown = cidrs.iter().filter_map(|text| text.parse().ok()).collect();
    }

    fn first(&self, family: Family) -> Option<IpNet> {
        self.shown.iter().copied().find(|cidr| Family::of(cidr.addr()) == family)
    }

    /// Whether the start can continue: there is a CIDR of each family.
    pub(super) fn has_minimum(&self) -> bool {
        self.families.each().all(|family| self.first(family).is_some())
    }

    /// From now on the shown CIDRs do not matter.
    pub(super) fn register(&mut self) {
        self.ranges.each =
            self.families.each().filter_map(|family| self.first(family)).map(Range::new).collect();
    }

    pub(super) fn allocate_next(&mut self, family: Family, owner: &str) -> Result<IpAddr, String> {
        let taken = self.ranges.allocate_next(family, owner, &mut self.rng, |_| true);
        taken.ok_or_else(|| "range is full".to_owned())
    }

    /// Exactly this address, as a restart asks for it.
    pub(super) fn allocate(&mut self, address: IpAddr, owner: &str) -> Result<(), String> {
        let is_taken = self.ranges.allocate(address, owner);
        let why = || "provided IP is not in the valid range, or already allocated".to_owned();
        is_taken.then_some(()).ok_or_else(why)
    }

    pub(super) fn release(&mut self, address: IpAddr) -> Result<(), String> {
        self.ranges.release(address)
    }

    pub(super) fn allocated(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        self.ranges.allocated()
    }
}
