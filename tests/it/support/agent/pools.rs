//! The imitation of Cilium's multi-pool allocator (`pkg/ipam/multipool.go`) with one Cilium pool: the addresses that it
//! requests, the CIDRs that it takes, and those that it gives back.
//!
//! No client, no task, no clock. It gets versions of the CiliumNode, and returns addresses and the next version.
//! Cilium's agent checks its pools once per minute, and after news at most every 15 s. This one checks them at each of
//! its reports.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use super::range::{Range, Ranges};
use crate::support::families::{Families, Family};

/// The Cilium pool with our blocks.
const POOL: &str = "default";

/// Cilium's default for the addresses that an agent allocates in advance, and the step of its requests.
const STEP: u128 = 8;

/// The allocator of one node.
#[derive(Debug)]
pub(super) struct Pools {
    families: Families,
    seen: Option<Arc<DynamicObject>>,
    ranges: Ranges,
    /// Given back, and still shown in the last version that it received.
    released: BTreeSet<IpNet>,
    /// Removed while in use: nothing is allocated from them any more.
    removed: BTreeSet<IpNet>,
    /// The owners whose requests failed.
    pending: BTreeSet<(Family, String)>,
    /// Whether the pods of the machine are restored. Before, nothing is given back.
    has_restored: bool,
    rng: fastrand::Rng,
}

impl Pools {
    pub(super) fn new(families: Families, rng: fastrand::Rng) -> Self {
        Self {
            families,
            seen: None,
            ranges: Ranges::default(),
            released: BTreeSet::new(),
            removed: BTreeSet::new(),
            pending: BTreeSet::new(),
            has_restored: false,
            rng,
        }
    }

    /// Takes over a version of the CiliumNode, or its deletion. Returns whether something must be written on it.
    pub(super) fn receive(&mut self, object: Option<&Arc<DynamicObject>>) -> bool {
        self.seen = object.cloned();
        let Some(object) = object else { return false };
        let allocated = object.data["spec"]["ipam"]["pools"]["allocated"].as_array();
        // If its entry is missing, it keeps using its CIDRs.
        if let Some(entry) = allocated.into_iter().flatten().find(|entry| entry["pool"] == POOL) {
            let texts = entry["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let shown: Vec<IpNet> = texts.filter_map(|text| text.parse().ok()).collect();
            self.update(&shown);
        }
        self.has_news()
    }

    pub(super) fn seen(&self) -> Option<&Arc<DynamicObject>> {
        self.seen.as_ref()
    }

    fn update(&mut self, shown: &[IpNet]) {
        self.released.retain(|cidr| shown.contains(cidr));
        for range in &self.ranges.each {
            if shown.contains(&range.cidr) {
                self.removed.remove(&range.cidr);
            } else if !range.is_unused() {
                self.removed.insert(range.cidr);
            }
        }
        self.ranges.each.retain(|range| shown.contains(&range.cidr) || !range.is_unused());
        for cidr in shown {
            let is_known = self.ranges.each.iter().any(|range| range.cidr == *cidr);
            if !is_known && !self.released.contains(cidr) {
                self.ranges.each.push(Range::new(*cidr));
            }
        }
    }

    /// Whether the start can continue: there is a free address of each family.
    pub(super) fn has_minimum(&self) -> bool {
        let has_any = |family| self.ranges.of(family).any(|range| range.n_free() > 0);
        self.families.each().all(has_any)
    }

    /// The pods of the machine have their addresses.
    pub(super) fn finish_restoring(&mut self) {
        self.has_restored = true;
    }

    pub(super) fn allocate_next(&mut self, family: Family, owner: &str) -> Result<IpAddr, String> {
        let Self { ranges, removed, rng, .. } = self;
        let taken = ranges.allocate_next(family, owner, rng, |range| !removed.contains(&range.cidr));
        let Some(address) = taken else {
            self.pending.insert((family, owner.to_owned()));
            return Err(format!("all CIDR ranges of pool {POOL} are exhausted"));
        };
        self.pending.remove(&(family, owner.to_owned()));
        Ok(address)
    }

    /// Exactly this address, as a restart asks for it.
    pub(super) fn allocate(&mut self, address: IpAddr, owner: &str) -> Result<(), String> {
        let is_taken = self.ranges.allocate(address, owner);
        is_taken.then_some(()).ok_or_else(|| format!("IP {address} is in no CIDR of pool {POOL}, or in use"))
    }

    pub(super) fn release(&mut self, address: IpAddr) -> Result<(), String> {
        self.ranges.release(address)
    }

    pub(super) fn allocated(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        self.ranges.allocated()
    }

    fn n_used(&self, family: Family) -> u128 {
        self.ranges.of(family).map(Range::n_taken).sum()
    }

    /// The addresses in use or requested, rounded up, and one step more.
    fn needed(&self, family: Family) -> u128 {
        let n_pending = self.pending.iter().filter(|(of, _)| *of == family).count() as u128;
        ((self.n_used(family) + n_pending).div_ceil(STEP) + 1) * STEP
    }

    /// The CiliumNode that must be written now. `None` if it says the same already. Gives back the CIDRs that are not
    /// needed.
    pub(super) fn report(&mut self) -> Option<DynamicObject> {
        self.seen.as_ref()?;
        if self.has_restored {
            self.families.each().for_each(|family| self.release_excess(family));
        }
        if !self.has_news() {
            return None;
        }
        let mut object = DynamicObject::clone(self.seen.as_ref()?);
        let (requested, allocated) = (self.requested(), self.shown());
        object.data["spec"]["ipam"]["pools"] = json!({"requested": requested, "allocated": allocated});
        Some(object)
    }

    fn has_news(&self) -> bool {
        let Some(seen) = &self.seen else { return false };
        let pools = &seen.data["spec"]["ipam"]["pools"];
        let list = |field: &str| pools[field].as_array().cloned().unwrap_or_default();
        let is_sorted_alike = |entries: Vec<Value>, own: &Value| {
            let cidrs = |entry: &Value| -> BTreeSet<String> {
                let cidrs = entry["cidrs"].as_array().into_iter().flatten();
                cidrs.filter_map(|text| text.as_str().map(str::to_owned)).collect()
            };
            let own = own.as_array().cloned().unwrap_or_default();
            entries.len() == own.len() && entries.iter().zip(&own).all(|(a, b)| cidrs(a) == cidrs(b))
        };
        Value::from(list("requested")) != self.requested()
            || !is_sorted_alike(list("allocated"), &self.shown())
    }

    fn requested(&self) -> Value {
        let field = |family| if family == Family::V4 { "ipv4-addrs" } else { "ipv6-addrs" };
        let needed: Map<String, Value> = self
            .families
            .each()
            .map(|family| (field(family).to_owned(), json!(u64::try_from(self.needed(family)).ok())))
            .collect();
        json!([{"pool": POOL, "needed": needed}])
    }

    fn shown(&self) -> Value {
        let mut cidrs: Vec<String> = self.ranges.each.iter().map(|range| range.cidr.to_string()).collect();
        cidrs.sort_unstable();
        if cidrs.is_empty() { json!([]) } else { json!([{"pool": POOL, "cidrs": cidrs}]) }
    }

    /// Gives back the CIDRs that are empty and not needed, the last first. Takes back released ones that it needs
    /// again.
    fn release_excess(&mut self, family: Family) {
        let wanted = self.needed(family) - self.n_used(family);
        let mut free: u128 = self.ranges.of(family).map(Range::n_free).sum();
        for cidr in self.released.clone().into_iter().filter(|cidr| Family::of(cidr.addr()) == family) {
            if free < wanted {
                self.released.remove(&cidr);
                let range = Range::new(cidr);
                free += range.n_free();
                self.ranges.each.push(range);
            }
        }
        let mut kept = Vec::new();
        for range in std::mem::take(&mut self.ranges.each).into_iter().rev() {
            let n_free = range.n_free();
            if range.family() == family && range.is_unused() && free - n_free >= wanted {
                free -= n_free;
                self.released.insert(range.cidr);
            } else {
                kept.push(range);
            }
        }
        // So the order is reversed each time, as in Cilium.
        self.ranges.each = kept;
    }
}
