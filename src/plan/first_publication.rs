//! Whether all blocks that an agent may be using can be published together.
//!
//! An agent whose CiliumNode is recreated restores its pods as soon as it finds any address. A pod whose address is
//! not on the CiliumNode loses its network (`docs/cilium.md`, Restart). So a carrier that shows nothing of ours gets
//! all blocks that may be in use in one patch, or none.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::abandoned;
use super::draft::{Draft, End, NEXT, Step};
use super::facts::ClaimFacts;
use super::publishable::{NotPublishable, describe_overlaps};
use super::subject::Subject;
use crate::model::claim::{Claim, ClaimState, Reason, block_name};
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::ten_of;
use crate::model::plan::{Unmet, Wait};

/// The remedy where a node has one block for its life, as the last part of a sentence.
const DRAIN_AND_RECREATE: &str = "; drain the node, turn its machine off, delete its Node and CiliumNode, \
                                  and let it join again after reuseAfterNodeLoss of the pool";

impl Subject<'_> {
    /// The node gets nothing if a claim that may be in use can't be published on a carrier that shows nothing of
    /// ours. A finding names each such claim.
    pub(super) fn require_complete_set(&self, draft: &mut Draft) -> Step {
        let name = &self.node.name;
        let mut reasons = BTreeMap::new();
        let mut advice = String::new();
        for known in &self.facts.claims {
            let Some(why) = self.hindrance(known) else { continue };
            let claim = known.claim;
            let is_for_a_person = claim.state == ClaimState::Held && claim.node_uid == self.node.uid;
            if advice.is_empty() && is_for_a_person {
                advice = if self.traits.gives_one_block {
                    DRAIN_AND_RECREATE.to_owned()
                } else {
                    abandoned::advice(self.world, self.publisher, claim)
                };
            }
            reasons.insert(block_name(claim.cidr), why);
        }
        for cidr in self.publisher.undecided(&self.publishable(), self.former().as_deref()) {
            let why = "is one of several of its family, and nothing shows which one the agent has".to_owned();
            reasons.insert(block_name(cidr), why);
            DRAIN_AND_RECREATE.clone_into(&mut advice);
        }
        for unreadable in self.world.unreadable_claims_of(name) {
            reasons.insert(unreadable.name.clone(), format!("is unreadable ({})", unreadable.reason));
        }
        if reasons.is_empty() {
            return NEXT;
        }
        let reasons: Vec<String> = reasons.into_iter().map(|(claim, why)| format!("{claim} {why}")).collect();
        let message = format!(
            "its {} gets no blocks, because one of them may be in use and can't be published: {}{advice}",
            self.carrier.kind().as_str(),
            reasons.join("; "),
        );
        draft.findings.push(Finding::of_node(FindingKind::Blocked, name, message));
        ControlFlow::Break(End::Waits(Wait::CompleteSet))
    }

    /// Reports the held blocks that are not published, because the agent of the node can't start with them alone.
    pub(super) fn report_incomplete_blocks(&self, draft: &mut Draft, publishable: &[&Claim]) {
        if self.occupied().next().is_none() {
            return;
        }
        if !draft.unmet.iter().any(|unmet| matches!(unmet, Unmet::NoCapacity(_))) {
            draft.wait_for(Wait::Completion);
        }
        // Blocks of this name are missing. Blocks of other names do not help.
        let is_short = |claim: &Claim| {
            let pod_ip_pool = self.publisher.pool_name_on(self.carrier, claim);
            draft.unmet.is_empty() || draft.unmet.iter().any(|unmet| unmet.class().pod_ip_pool == pod_ip_pool)
        };
        let short: Vec<&Claim> = publishable.iter().copied().filter(|claim| is_short(claim)).collect();
        let Some(first) = short.first() else { return };
        let unmet: Vec<String> = draft.unmet.iter().map(ToString::to_string).collect();
        let why = if unmet.is_empty() { "no pool selects it".to_owned() } else { unmet.join("; ") };
        let message = format!(
            "its agent can't start with the blocks that the node holds ({}), and it gets no more: {why}{}",
            ten_of(short.iter().map(|claim| block_name(claim.cidr))),
            abandoned::advice(self.world, self.publisher, first),
        );
        draft.findings.push(Finding::of_node(FindingKind::Blocked, &self.node.name, message));
    }

    /// Why a claim can't be published, if it can't.
    fn hindrance(&self, known: &ClaimFacts<'_>) -> Option<String> {
        let claim = known.claim;
        let is_in_use = match claim.state {
            // The Node of a releasing claim exists, and another read or event comes before the claim is held again.
            ClaimState::Held | ClaimState::Draining(_) | ClaimState::Releasing(Reason::NodeGone) => true,
            ClaimState::Cooling(Reason::NodeGone) => !claim.is_terminating(),
            // Pods may have addresses of it until a read has shown that they do not.
            ClaimState::Releasing(Reason::Unused) => abandoned::is_leaving(self.world, self.publisher, claim),
            ClaimState::Releasing(Reason::Reclaimed)
            | ClaimState::Cooling(Reason::Unused | Reason::Reclaimed) => false,
        };
        if !is_in_use {
            return None;
        }
        Some(match known.publishable.as_ref()?.as_ref().err()? {
            NotPublishable::State => format!("is {}", claim.state),
            NotPublishable::OtherNodeObject => "is held for an earlier Node of this name".to_owned(),
            NotPublishable::Overlaps(others) => {
                format!("overlaps {}", describe_overlaps(self.world, claim.cidr, others))
            }
            NotPublishable::TooWide(widest) => {
                format!("is wider than /{widest}, the limit in this mode of Cilium")
            }
            NotPublishable::PodIpPool(name, misfit) => format!("is unfit: CiliumPodIPPool {name} {misfit}"),
        })
    }
}
