//! Whether everything that an agent may be using can be published together.
//!
//! An agent whose CiliumNode is recreated restores its pods as soon as it finds any address, and a pod whose address is
//! not among them loses its network (`docs/cilium.md`, Restart). So a carrier that shows nothing of ours gets all blocks
//! that may be in use in one patch, or none of them.

use std::collections::BTreeMap;

use super::draft::Draft;
use super::evidence::may_be_in_use_still;
use super::given_up;
use super::publishable::{NotPublishable, may_publish, told_overlaps};
use super::subject::Subject;
use crate::model::claim::{ClaimState, Reason, block_name};
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::plan::Wait;
use crate::world::KnownClaim;

impl Subject<'_> {
    /// Whether a claim that may be in use can't be published on a carrier that shows nothing of ours. Then the node gets
    /// nothing, and a finding names each such claim.
    pub(super) fn is_held_back(&self, draft: &mut Draft) -> bool {
        let name = &self.node.name;
        let mut reasons = BTreeMap::new();
        let mut advice = String::new();
        for known in self.world.claims_of(name) {
            let Some((claim, why)) = self.hindrance(known) else { continue };
            if advice.is_empty() {
                advice = given_up::advice(self.world, self.publisher, &known.claim);
            }
            reasons.insert(claim, why);
        }
        for unreadable in self.world.unreadable_claims_of(name) {
            reasons.insert(unreadable.name.clone(), format!("is unreadable ({})", unreadable.reason));
        }
        if reasons.is_empty() {
            return false;
        }
        let reasons: Vec<String> = reasons.into_iter().map(|(claim, why)| format!("{claim} {why}")).collect();
        draft.findings.push(Finding::new(
            FindingKind::Blocked,
            Kind::Node,
            name.as_str(),
            format!(
                "its {} gets no blocks, because one of them may be in use and can't be published: {}{advice}",
                self.carrier.kind().as_str(),
                reasons.join("; "),
            ),
        ));
        draft.wait_for(Wait::WholeSet);
        true
    }

    /// A claim that may be in use and can't be published, and why.
    fn hindrance(&self, known: &KnownClaim) -> Option<(String, String)> {
        let claim = &known.claim;
        let may_be_in_use = match claim.state {
            ClaimState::Held | ClaimState::Draining(_) => may_be_in_use_still(self.world, claim),
            // The Node is back, and another read or event has to come before its claims are held again.
            ClaimState::Releasing(Reason::NodeGone) => true,
            ClaimState::Cooling(Reason::NodeGone) => !claim.is_going(),
            // Pods may have addresses of it until they were read.
            ClaimState::Releasing(Reason::Unused) => given_up::is_leaving(self.world, self.publisher, claim),
            ClaimState::Releasing(Reason::Reclaimed)
            | ClaimState::Cooling(Reason::Unused | Reason::Reclaimed) => false,
        };
        let why = match may_publish(self.world, self.node, known) {
            Ok(()) => return None,
            Err(NotPublishable::State) => format!("is {}", claim.state),
            Err(NotPublishable::OtherNodeObject) => "is held for an earlier Node of this name".to_owned(),
            Err(NotPublishable::Overlaps(others)) => {
                format!("overlaps {}", told_overlaps(self.world, claim.cidr, &others))
            }
            Err(NotPublishable::TooWide(widest)) => {
                format!("is wider than /{widest}, the limit in this mode of Cilium")
            }
            Err(NotPublishable::PodIpPool(name, misfit)) => {
                format!("is unfit: CiliumPodIPPool {name} {misfit}")
            }
        };
        may_be_in_use.then(|| (block_name(claim.cidr), why))
    }
}
