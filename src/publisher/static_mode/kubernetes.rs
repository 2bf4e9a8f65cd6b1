//! kubernetes: the Node itself carries the CIDRs, in `spec.podCIDRs` and `spec.podCIDR`.
//!
//! The API server lets them be set once and never changed, with one of each family. Nodes may be in another store than
//! the claims, so no proof compares their revisions. What takes the place of that:
//!
//! - A Node that shows any CIDR never gets another, and one that is gone can't be patched: its uid is in every patch.
//! - On a Node without CIDRs an annotation says as of which revision of the claims a version was written. A patch that
//!   was decided before is refused; one that is decided on that version or a later one needs the claims as of then.

use super::StaticMode;
use crate::model::carrier::{Carrier, CarrierChange};
use crate::model::kind::Kind;
use crate::model::node::Node;
use crate::model::outcome::Presence;
use crate::model::request::{BumpVersion, Read, Request, Write};
use crate::model::revision::Revision;
use crate::net::cidr::Cidr;
use crate::publisher::answer::{Absence, Removal};

/// `ipam: kubernetes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kubernetes {}

fn node(carrier: Carrier<'_>) -> Option<&Node> {
    match carrier {
        Carrier::Node(node) => Some(node),
        Carrier::CiliumNode(_) => None,
    }
}

impl StaticMode for Kubernetes {
    const NAME: &'static str = "kubernetes";
    const CARRIER: Kind = Kind::Node;
    const FIELD: &'static str = "spec.podCIDRs";
    const ONLY_WRITER: &'static str =
        "let kube-controller-manager allocate nothing: give it `--allocate-node-cidrs=false`";

    fn pod_cidrs(carrier: Carrier<'_>) -> &[Cidr] {
        node(carrier).map_or(&[], |node| &node.pod_cidrs)
    }

    fn change(pod_cidrs: Vec<Cidr>) -> CarrierChange {
        CarrierChange::Kubernetes(pod_cidrs)
    }

    fn is_fresh(known_at: Revision, carrier: Carrier<'_>) -> bool {
        node(carrier)
            .is_some_and(|node| node.later_than.is_none_or(|written_as_of| known_at >= written_as_of))
    }

    fn shows_later(carrier: Carrier<'_>, than: Revision) -> bool {
        node(carrier).is_some_and(|node| !node.pod_cidrs.is_empty() || node.later_than >= Some(than))
    }

    fn absence(removal: Removal<'_>) -> Absence {
        let Removal { claim, carrier, is_carried, presence, .. } = removal;
        if is_carried {
            return Absence::NotYet;
        }
        if let Some(carrier) = carrier.filter(|carrier| *carrier.uid() == claim.node_uid) {
            return if Self::shows_later(carrier, claim.revision) {
                Absence::Proven
            } else {
                Self::later_version(carrier, claim.revision).map_or(Absence::NotYet, Absence::Provable)
            };
        }
        // A watch may show the Node before the one of the claim, or after it.
        match presence {
            Some(Presence::Gone) => Absence::Proven,
            Some(Presence::Is(uid)) if *uid != claim.node_uid => Absence::Proven,
            Some(Presence::Is(_) | Presence::Unreadable) => Absence::NotYet,
            None => Absence::Provable(Read::Node(claim.node.clone(), claim.revision).into()),
        }
    }

    fn later_version(carrier: Carrier<'_>, later_than: Revision) -> Option<Request> {
        let is_due = !Self::shows_later(carrier, later_than);
        is_due.then(|| Write::BumpVersion(BumpVersion::of(carrier, later_than)).into())
    }

    /// kube-controller-manager leaves no sign on a Node but the CIDRs.
    fn second_allocator(_: Carrier<'_>) -> Option<String> {
        None
    }
}
