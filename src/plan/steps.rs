//! The decision for a node that has a carrier, as a list of steps.
//!
//! Knows the order of the steps and its reasons. Each step is explained where its part of the planner is.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::draft::{Draft, End, NEXT, REST, Step, act};
use super::needs::unmet;
use super::subject::Subject;
use crate::model::claim::Claim;
use crate::model::plan::{Coverage, TimedState, Wait};
use crate::model::request::Request;
use crate::net::cidr::Cidr;

impl<'a> Subject<'a> {
    /// The steps about blocks that the agent has released have an effect in multi-pool mode only, where agents
    /// release blocks by themselves.
    pub(super) fn decide(&self, draft: &mut Draft) -> Step {
        self.look_at_carrier(draft);
        self.leave_to_others(draft)?;
        // A draining block that the node needs is held again before it gets others: that gives no address away.
        self.clear_answer_and_keep_blocks(draft)?;
        let publishable = self.publishable_with_findings(&mut draft.findings);
        // The blocks of a node are unknown while its carrier has one without a claim.
        self.adopt_carried_blocks(draft)?;
        draft.coverage = Coverage::Full;
        self.await_supported_agent(draft)?;
        // A carrier that shows nothing of ours gets all blocks that may be in use, or none.
        self.await_complete_set(draft)?;
        self.await_end_of_former_mode(draft, &publishable)?;
        let imminent = self.way().imminent_removals(self, draft);
        self.settle_released_blocks(draft, &imminent)?;
        // If nothing of a node is published, its held blocks are published first. So a node that returns gets all its
        // blocks at once and does not wait for more.
        self.publish_startable_blocks(draft, &publishable)?;
        self.await_labels(draft)?;
        // Growth comes before further publications, so that one patch publishes all of it.
        self.grow_or_keep(draft)?;
        self.publish_more(draft, publishable, &imminent)?;
        self.query_use(draft)?;
        self.way().claim_replacements(self, draft)?;
        // Every shortage of the node comes before a block is taken from it.
        self.reclaim(draft)
    }

    /// Sends these requests, if there are any. The node may lack blocks all the same.
    fn act_noting_unmet(&self, draft: &mut Draft, requests: Vec<Request>) -> Step {
        if !requests.is_empty() {
            draft.unmet = unmet(self.facts, draft);
        }
        act(requests)
    }

    /// Notes the findings about the published blocks of a served node.
    fn look_at_carrier(&self, draft: &mut Draft) {
        if !self.is_served {
            return;
        }
        draft.findings.extend(self.publisher.finding(self.carrier));
        draft
            .findings
            .extend(self.claims().filter_map(|claim| self.publisher.misplaced(self.carrier, claim)));
        draft.findings.extend(self.stray_blocks());
        if self.traits.shows_use && !self.publisher.use_is_known(self.carrier) {
            draft.note_lasting(TimedState::UseUnknown);
        }
    }

    fn clear_answer_and_keep_blocks(&self, draft: &mut Draft) -> Step {
        if !self.publishes_for_agent() {
            return NEXT;
        }
        let clear = self.clear_answer(draft).into_iter().collect();
        self.act_noting_unmet(draft, clear)?;
        if !self.is_served {
            return NEXT;
        }
        let held = self.hold_draining_blocks_again(draft);
        self.act_noting_unmet(draft, held)
    }

    /// A node with one block for life gets no other one: a block on its carrier becomes a claim as soon as nothing
    /// prevents it.
    fn adopt_carried_blocks(&self, draft: &mut Draft) -> Step {
        let claims = self.claim_carried_blocks(draft.now);
        self.act_noting_unmet(draft, claims)?;
        if self.traits.gives_one_block && self.has_unclaimed_block() {
            return ControlFlow::Break(End::Waits(Wait::Answer));
        }
        NEXT
    }

    fn await_complete_set(&self, draft: &mut Draft) -> Step {
        if self.is_served {
            return NEXT;
        }
        self.rehold_releasing_blocks(draft)?;
        self.require_complete_set(draft)
    }

    /// An agent that has nothing at all may not have reported its blocks yet. One that has CIDRs has reported them.
    fn settle_released_blocks(&self, draft: &mut Draft, imminent: &BTreeSet<Cidr>) -> Step {
        let shows_something = self.is_served || !self.publisher.blocks(self.carrier).is_empty();
        if !shows_something && !self.agent_released_everything(draft)? {
            return NEXT;
        }
        act(self.rehold_released_blocks(draft))?;
        let released = self.release_unneeded_blocks(draft, imminent);
        self.act_noting_unmet(draft, released)
    }

    fn publish_startable_blocks(&self, draft: &mut Draft, publishable: &[&Claim]) -> Step {
        if self.is_served || !self.can_start_with(publishable) {
            return NEXT;
        }
        self.await_new_primaries(draft)?;
        self.await_former_use(draft)?;
        act(self.publish(draft, publishable).into_iter().collect())?;
        REST
    }

    fn await_labels(&self, draft: &mut Draft) -> Step {
        if self.facts.claims.is_empty() && self.awaits_initialization(draft) { REST } else { NEXT }
    }

    fn grow_or_keep(&self, draft: &mut Draft) -> Step {
        act(self.grow(draft))?;
        if !self.is_served || draft.unmet.is_empty() {
            return NEXT;
        }
        act(self.keep_irreplaceable_blocks(draft))
    }

    /// The replacement of a block is published in the write that removes that block.
    fn publish_more(
        &self,
        draft: &mut Draft,
        mut publishable: Vec<&'a Claim>,
        imminent: &BTreeSet<Cidr>,
    ) -> Step {
        if !self.is_served {
            self.report_incomplete_blocks(draft, &publishable);
            return NEXT;
        }
        let replacements = self.way().replacement_blocks(self, imminent);
        publishable.retain(|claim| !replacements.contains(&claim.cidr));
        act(self.publish(draft, &publishable).into_iter().collect())
    }
}
