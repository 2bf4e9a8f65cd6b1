//! kubernetes: the Node itself has the CIDRs, in `spec.podCIDRs` and `spec.podCIDR`, or in annotations.
//!
//! The API server lets these fields be set once and never changed, with one CIDR of each family. Agents that annotate
//! their Nodes take a missing family from annotations, which any writer may change. Nodes may be in another store
//! than the claims, so no proof compares their revisions. Two facts replace that comparison:
//!
//! - A Node with any CIDR in `spec.podCIDRs` never gets another. A deleted Node can't be patched, because its uid is
//!   in every patch.
//! - On a Node without `spec.podCIDRs`, an annotation names the revision of the claims that a version was written
//!   with. A patch that was decided before is refused. A patch that is decided on that version or a later one needs
//!   the claims as of then.

use std::borrow::Cow;
use std::str::FromStr;

use super::{StaticMode, listed};
use crate::model::carrier::{Carrier, CarrierChange};
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::node::{Malformed, Node};
use crate::model::outcome::Presence;
use crate::model::request::{BumpVersion, Read, Request, Write};
use crate::model::revision::Revision;
use crate::model::stable_names;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::answer::{Absence, Removal};

stable_names! {
    /// The part of a Node that carries its blocks.
    pub enum NodeField {
        /// Its podCIDRs.
        Spec => "spec",
        /// Annotations, under the names that agents of every version know.
        Annotations => "annotations",
    }
}

impl FromStr for NodeField {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|field| field.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is neither `spec` nor `annotations`"))
    }
}

/// `ipam: kubernetes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kubernetes {
    /// The part that is written.
    pub writes: NodeField,
    /// Whether agents read annotations where there are no podCIDRs; `annotate-k8s-node` of `cilium-config`.
    pub agents_read_annotations: bool,
}

impl Default for Kubernetes {
    /// The values that apply if neither an administrator nor `cilium-config` sets any.
    fn default() -> Self {
        Self { writes: NodeField::Spec, agents_read_annotations: false }
    }
}

fn node(carrier: Carrier<'_>) -> Option<&Node> {
    match carrier {
        Carrier::Node(node) => Some(node),
        Carrier::CiliumNode(_) => None,
    }
}

impl StaticMode for Kubernetes {
    const NAME: &'static str = "kubernetes";
    const CARRIER: Kind = Kind::Node;
    const ONLY_WRITER: &'static str =
        "turn the allocator of kube-controller-manager off with `--allocate-node-cidrs=false`";

    /// The server refuses changes of podCIDRs. Annotations may be changed, and an agent that has not restarted may
    /// keep using a former one.
    fn was_never_listed(self, carrier: Carrier<'_>, block: Cidr) -> bool {
        let Some(node) = node(carrier).filter(|node| !node.pod_cidrs.is_empty()) else { return false };
        let annotated = node.annotated.iter().map(|annotated| annotated.cidr);
        let mut shown = node.pod_cidrs.iter().copied().chain(annotated);
        !self.agents_read_annotations && shown.all(|cidr| !cidr.overlaps(block))
    }

    /// A family without a podCIDR is taken from annotations. Two texts that differ are two CIDRs, because agent
    /// versions differ in which of them they read.
    fn pod_cidrs(self, carrier: Carrier<'_>) -> Cow<'_, [Cidr]> {
        let Some(node) = node(carrier) else { return Cow::Borrowed(&[]) };
        let mut cidrs = Cow::Borrowed(&node.pod_cidrs[..]);
        for (_, cidr) in self.effective_annotations(node) {
            if !cidrs.contains(&cidr) {
                cidrs.to_mut().push(cidr);
            }
        }
        cidrs
    }

    fn describe(self, carrier: Carrier<'_>) -> String {
        let Some(node) = node(carrier) else { return String::new() };
        let spec = Some(&node.pod_cidrs[..]).filter(|cidrs| !cidrs.is_empty());
        let spec = spec.map(|cidrs| format!("spec.podCIDRs is {}", listed(cidrs)));
        let annotations = self.effective_annotations(node);
        let annotations = annotations.map(|(key, cidr)| format!("the annotation {key} is {cidr}"));
        spec.into_iter().chain(annotations).collect::<Vec<_>>().join(", ")
    }

    fn change(self, pod_cidrs: Vec<Cidr>) -> CarrierChange {
        match self.writes {
            NodeField::Spec => CarrierChange::Kubernetes(pod_cidrs),
            NodeField::Annotations => CarrierChange::Annotations(pod_cidrs),
        }
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

    /// kube-controller-manager leaves no sign on a Node except the CIDRs.
    fn second_allocator(_: Carrier<'_>) -> Option<String> {
        None
    }

    fn malformed(self, carrier: Carrier<'_>) -> Option<&Malformed> {
        let annotations = node(carrier).map_or(&[][..], |node| &node.malformed_annotations);
        carrier.malformed().first().or_else(|| annotations.first().filter(|_| self.agents_read_annotations))
    }

    /// The finding about an annotation that contradicts the podCIDRs. Agents rewrite it when they start.
    fn contradiction(self, carrier: Carrier<'_>) -> Option<Finding> {
        let node = node(carrier).filter(|_| self.agents_read_annotations)?;
        let differs = |cidr: Cidr| in_spec(node, cidr.family()).is_some_and(|in_spec| in_spec != cidr);
        let found = node.annotated.iter().find(|annotated| differs(annotated.cidr))?;
        let message = format!(
            "the annotation {} is {}, and spec.podCIDRs is {}: agents ignore the annotation; remove it",
            found.key,
            found.cidr,
            listed(&node.pod_cidrs)
        );
        Some(Finding::of_node(FindingKind::ForeignPodCIDRs, &node.name, message))
    }
}

/// The podCIDR of a family.
fn in_spec(node: &Node, family: Family) -> Option<Cidr> {
    node.pod_cidrs.iter().copied().find(|cidr| cidr.family() == family)
}

impl Kubernetes {
    /// The annotations that count beside the podCIDRs, with their keys.
    fn effective_annotations(self, node: &Node) -> impl Iterator<Item = (&'static str, Cidr)> + '_ {
        let counts = move |cidr: Cidr| self.agents_read_annotations && in_spec(node, cidr.family()).is_none();
        let annotated = node.annotated.iter().map(|annotated| (annotated.key, annotated.cidr));
        annotated.filter(move |(_, cidr)| counts(*cidr))
    }
}
