//! The verdicts of plans about the addresses of nodes, and when the conditions of Nodes are written by them.

use std::time::Duration;

use super::World;
use super::failures::Waiter;
use crate::model::leadership::Leadership;
use crate::model::names::NodeName;
use crate::model::plan::NodePlan;
use crate::model::request::{NodeConditionWrite, Request, Target, Write};
use crate::model::time::Now;

impl World {
    /// The next Node to write a condition of at this time.
    #[must_use]
    pub fn next_condition(&self, now: Duration) -> Option<&NodeName> {
        self.conditions.next(now)
    }

    /// When the next condition may be written; `None` if none must be.
    #[must_use]
    pub fn next_condition_at(&self) -> Option<Duration> {
        self.conditions.next_at()
    }

    /// The write of a condition starts.
    pub fn begin_condition(&mut self, write: &NodeConditionWrite, now: Now) {
        self.conditions.begin(&write.node, now.uptime);
        self.mark_sent(&Request::Write(Write::NodeCondition(write.clone())), now);
    }

    /// Takes in the verdict of a plan. One without a verdict leaves the last one as it is.
    pub(super) fn note_availability(&mut self, plan: &NodePlan) {
        if plan.availability.is_some() {
            self.remember_of(&plan.node).serving.availability = plan.availability;
        }
        self.revisit_condition(&plan.node);
    }

    /// Time has passed: Nodes may be written again.
    pub(super) fn advance_conditions(&mut self, now: Duration) {
        for node in self.conditions.take_rested(now) {
            self.revisit_condition(&node);
        }
    }

    /// Something has changed on which the write of this condition depends.
    pub(super) fn revisit_condition(&mut self, name: &NodeName) {
        let verdict = self.serving(name).and_then(|serving| serving.availability);
        let shown = self.node(name).filter(|node| !node.deleting).map(|node| node.availability);
        let differs = verdict.is_some() && shown.is_some_and(|shown| shown != verdict);
        let waiter = Waiter::Condition(name.clone());
        if !differs {
            self.forget_failures(&waiter);
        }
        let may_write = self.leadership == Leadership::Leads
            && self.publisher().is_some()
            && !self.is_in_flight(&Target::NodeCondition(name.clone()))
            && !self.failures.awaits_turn(&waiter);
        if differs && may_write {
            self.conditions.want(name);
        } else {
            self.conditions.drop_due(name);
        }
    }
}
