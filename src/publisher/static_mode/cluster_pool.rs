//! cluster-pool: a CiliumNode has the CIDRs in `spec.ipam.podCIDRs`, without a `pool` of single addresses.
//!
//! Claims and CiliumNodes are in one store, so proofs compare their revisions, as in crd mode.

use std::borrow::Cow;

use super::{StaticMode, listed};
use crate::model::carrier::{Carrier, CarrierChange};
use crate::model::kind::Kind;
use crate::model::request::{BumpVersion, Request, Write};
use crate::model::revision::Revision;
use crate::net::cidr::Cidr;
use crate::publisher::answer::{Absence, Removal};
use crate::publisher::{one_store, operator};

/// `ipam: cluster-pool`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClusterPool;

impl StaticMode for ClusterPool {
    const NAME: &'static str = "cluster-pool";
    const CARRIER: Kind = Kind::CiliumNode;
    const ONLY_WRITER: &'static str = operator::TURN_OFF;

    fn was_never_listed(self, _: Carrier<'_>, _: Cidr) -> bool {
        false
    }

    fn pod_cidrs(self, carrier: Carrier<'_>) -> Cow<'_, [Cidr]> {
        Cow::Borrowed(carrier.cilium_node().map_or(&[][..], |cilium_node| &cilium_node.crd.pod_cidrs))
    }

    fn describe(self, carrier: Carrier<'_>) -> String {
        format!("spec.ipam.podCIDRs is {}", listed(&self.pod_cidrs(carrier)))
    }

    fn change(self, pod_cidrs: Vec<Cidr>) -> CarrierChange {
        CarrierChange::ClusterPool(pod_cidrs)
    }

    fn is_fresh(known_at: Revision, carrier: Carrier<'_>) -> bool {
        one_store::is_fresh(known_at, carrier)
    }

    fn shows_later(carrier: Carrier<'_>, than: Revision) -> bool {
        one_store::shows_later(carrier, than)
    }

    fn absence(removal: Removal<'_>) -> Absence {
        removal.shown_by_version()
    }

    fn later_version(carrier: Carrier<'_>, later_than: Revision) -> Option<Request> {
        Some(Write::BumpVersion(BumpVersion::of(carrier, later_than)).into())
    }

    fn second_allocator(carrier: Carrier<'_>) -> Option<String> {
        let cilium_node = carrier.cilium_node()?;
        operator::sign(cilium_node, !cilium_node.crd.pod_cidrs.is_empty())
    }
}
