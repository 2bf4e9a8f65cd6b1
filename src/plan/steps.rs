//! The decision for a node that has a carrier, as a list of steps.
//!
//! Knows the order of the steps and its reasons. Each step is explained where its part of the planner is.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::draft::{DONE, Detail, Draft, Made, NEXT, Step};
use super::subject::Subject;
use crate::model::claim::Claim;
use crate::model::plan::{Lasting, Scope, Unmet, Wait};
use crate::net::cidr::Cidr;

impl Subject<'_> {
    /// The steps about blocks that the agent has released have an effect in multi-pool mode only, where agents
    /// release blocks by themselves.
    ///
    /// If nothing of a node is published, its held blocks are published first. So a node that returns gets all its
    /// blocks at once and does not wait for more. Otherwise growth comes first, so that one patch publishes all of
    /// it.
    pub(super) fn decide(&self, draft: &mut Draft) -> Step {
        self.look_at_carrier(draft);
        self.leave_to_others(draft)?;
        self.clear_answers_and_keep_blocks(draft)?;
        let publishable = self.publishable_with_findings(&mut draft.findings);
        self.adopt_carried_blocks(draft)?;
        draft.scope = Scope::Whole;
        self.await_supported_agent(draft)?;
        self.await_complete_set(draft)?;
        self.await_end_of_former_mode(draft, &publishable)?;
        let imminent = self.imminent_removals(draft);
        self.settle_released_blocks(draft, &imminent)?;
        self.publish_startable_blocks(draft, &publishable)?;
        self.await_labels(draft)?;
        self.grow_or_keep(draft)?;
        self.publish_more(draft, publishable, &imminent);
        self.query_use(draft);
        self.claim_replacements(draft);
        self.reclaim(draft)
    }

    /// The last step, if there is something to send. The node may lack blocks all the same.
    fn end_if_any_request_noting_unmet(&self, draft: &mut Draft) -> Step {
        if !draft.requests.is_empty() {
            draft.unmet = self.unmet(draft);
        }
        draft.end_if_any_request()
    }

    /// The requests of the node that its pools can't meet, as [`Self::decide`] would find them in its order, with the
    /// policy and the time of this draft.
    pub(super) fn unmet(&self, planned: &Draft) -> BTreeSet<Unmet> {
        let mut draft = Draft::new(&self.node.name, Detail::Verdict, planned.policy, planned.now);
        if self.why_left_alone().is_some() {
            return BTreeSet::new();
        }
        if !self.is_served() {
            if self.require_complete_set(&mut draft).is_break() {
                return BTreeSet::new();
            }
            let publishable = self.publishable();
            if self.can_start_with(&publishable) || self.is_in_former_mode(&publishable, planned) {
                return BTreeSet::new();
            }
        }
        self.unmet_by_pools(&mut draft)
    }

    /// Notes the findings about the published blocks of a served node.
    fn look_at_carrier(&self, draft: &mut Draft) {
        if !self.is_served() {
            return;
        }
        draft.findings.extend(self.publisher.finding(self.carrier));
        draft
            .findings
            .extend(self.claims().filter_map(|claim| self.publisher.misplaced(self.carrier, claim)));
        draft.findings.extend(self.stray_blocks());
        if self.publisher.traits().shows_use && !self.publisher.use_is_known(self.carrier) {
            draft.note_lasting(Lasting::UseUnknown);
        }
    }

    fn clear_answers_and_keep_blocks(&self, draft: &mut Draft) -> Step {
        if self.has_supported_agent() {
            self.clear_answer(draft);
            if draft.requests.is_empty() && self.is_served() {
                self.hold_draining_blocks_again(draft);
            }
        }
        self.end_if_any_request_noting_unmet(draft)
    }

    /// The blocks of a node are unknown while its carrier has one without a claim. A node with one block for life
    /// gets no other one: that block becomes a claim as soon as nothing prevents it.
    fn adopt_carried_blocks(&self, draft: &mut Draft) -> Step {
        draft.requests = self.claim_carried_blocks(draft.now);
        self.end_if_any_request_noting_unmet(draft)?;
        if self.publisher.traits().gives_one_block && self.has_unclaimed_block() {
            return ControlFlow::Break(Made::Waits(Wait::Answer));
        }
        NEXT
    }

    /// A carrier that shows nothing of ours gets all blocks that may be in use, or none.
    fn await_complete_set(&self, draft: &mut Draft) -> Step {
        if self.is_served() {
            return NEXT;
        }
        self.rehold_releasing_blocks(draft)?;
        self.require_complete_set(draft)
    }

    /// An agent that has nothing at all may not have reported its blocks yet. One that has CIDRs has reported them.
    fn settle_released_blocks(&self, draft: &mut Draft, imminent: &BTreeSet<Cidr>) -> Step {
        let shows_something = self.is_served() || !self.publisher.blocks(self.carrier).is_empty();
        if !shows_something && !self.agent_released_everything(draft)? {
            return NEXT;
        }
        self.rehold_released_blocks(draft);
        draft.end_if_any_request()?;
        self.release_unneeded_blocks(draft, imminent);
        self.end_if_any_request_noting_unmet(draft)
    }

    fn publish_startable_blocks(&self, draft: &mut Draft, publishable: &[&Claim]) -> Step {
        if self.is_served() || !self.can_start_with(publishable) {
            return NEXT;
        }
        if !self.awaits_new_primaries(draft) {
            self.publish(draft, publishable);
        }
        DONE
    }

    fn await_labels(&self, draft: &mut Draft) -> Step {
        if self.claims().next().is_none() && self.awaits_initialization(draft) {
            return DONE;
        }
        NEXT
    }

    fn grow_or_keep(&self, draft: &mut Draft) -> Step {
        self.grow(draft);
        if self.is_served() && draft.requests.is_empty() && !draft.unmet.is_empty() {
            self.keep_irreplaceable_blocks(draft);
        }
        draft.end_if_any_request()
    }

    /// The replacement of a block is published in the write that removes that block.
    fn publish_more(&self, draft: &mut Draft, mut publishable: Vec<&Claim>, imminent: &BTreeSet<Cidr>) {
        if !self.is_served() {
            self.report_incomplete_blocks(draft, &publishable);
            return;
        }
        let replacements = self.replacement_blocks(imminent);
        publishable.retain(|claim| !replacements.contains(&claim.cidr));
        self.publish(draft, &publishable);
    }
}
