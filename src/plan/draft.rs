//! The result of a step, and the notes of all steps: findings, shortages, and the time of the next decision.
//!
//! A step returns its requests. It never sees those of another step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use super::policy::Policy;
use crate::model::finding::Finding;
use crate::model::names::{NodeName, PoolName};
use crate::model::plan::{Coverage, NodePlan, Refusal, RouteAt, TimedState, Unmet, Verdict, Wait, WhyNot};
use crate::model::request::Request;
use crate::model::time::Now;
use crate::model::transitions::Rule;
use crate::net::cidr::{Cidr, Family};
use crate::world::World;

/// Whether the plan says why pools gave nothing. That costs one value per pool that is asked, so the loop omits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Only the verdict.
    Verdict,
    /// The verdict and the reasons.
    Reasons,
}

/// The result of a step of a decision. Either the next step follows with the value that this step found, or the plan
/// is complete.
pub(super) type Step<Found = ()> = ControlFlow<End, Found>;

/// The next step follows.
pub(super) const NEXT: Step = ControlFlow::Continue(());

/// No further step follows, and there is nothing to send.
pub(super) const REST: Step = ControlFlow::Break(End::Rests);

/// Why no further step follows.
#[derive(Debug)]
pub(super) enum End {
    /// These requests are sent. There is at least one.
    Act(Vec<Request>),
    /// There is nothing to send now.
    Rests,
    /// The node waits for this, and may need blocks meanwhile.
    Waits(Wait),
    /// The node asks for nothing before this has happened.
    Idle(Wait),
}

/// The step that sends these requests; the next one follows if there are none.
pub(super) fn act(requests: Vec<Request>) -> Step {
    if requests.is_empty() { NEXT } else { ControlFlow::Break(End::Act(requests)) }
}

/// The step that sends this request.
pub(super) fn act_now<Found>(request: impl Into<Request>) -> Step<Found> {
    ControlFlow::Break(End::Act(vec![request.into()]))
}

/// The notes of a decision, and the policy and the time by which it is made.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) node: NodeName,
    pub(super) policy: Policy,
    pub(super) now: Now,
    pub(super) unmet: BTreeSet<Unmet>,
    pub(super) findings: Vec<Finding>,
    pub(super) cooling: Vec<Cidr>,
    pub(super) routes: BTreeMap<Cidr, RouteAt>,
    pub(super) coverage: Coverage,
    pub(super) too_many_drains: bool,
    pub(super) rules: Vec<(Cidr, Rule)>,
    lasting: BTreeSet<TimedState>,
    wait: Option<Wait>,
    wake: Option<Duration>,
    refusals: Vec<Refusal>,
    detail: Detail,
}

impl Draft {
    pub(super) fn new(node: &NodeName, detail: Detail, policy: Policy, now: Now) -> Self {
        Self {
            node: node.clone(),
            policy,
            now,
            unmet: BTreeSet::new(),
            findings: Vec::new(),
            cooling: Vec::new(),
            routes: BTreeMap::new(),
            coverage: Coverage::Partial,
            too_many_drains: false,
            rules: Vec::new(),
            lasting: BTreeSet::new(),
            wait: None,
            wake: None,
            refusals: Vec::new(),
            detail,
        }
    }

    /// Notes a state of the node that lasts until something is seen to change.
    pub(super) fn note_lasting(&mut self, lasting: TimedState) {
        self.lasting.insert(lasting);
    }

    /// Notes such a state. Returns since when this process has seen it: now, if it was not noted before.
    pub(super) fn note_lasting_since(&mut self, world: &World, lasting: TimedState) -> Duration {
        self.note_lasting(lasting);
        let since = world.serving(&self.node).and_then(|serving| serving.since(lasting));
        since.unwrap_or(self.now.uptime)
    }

    pub(super) fn has_noted(&self, lasting: TimedState) -> bool {
        self.lasting.contains(&lasting)
    }

    /// Decides again at `at`, or earlier if an earlier time was given before.
    pub(super) fn wake_at(&mut self, at: Duration) {
        self.wake = Some(self.wake.map_or(at, |before| before.min(at)));
    }

    /// Whether this time is in the future. Then the node is decided again at that time.
    pub(super) fn waits_until(&mut self, at: Duration) -> bool {
        let is_in_future = at > self.now.uptime;
        if is_in_future {
            self.wake_at(at);
        }
        is_in_future
    }

    /// The node waits for this, unless there is something to send.
    pub(super) fn wait_for(&mut self, wait: Wait) {
        self.wait = Some(wait);
    }

    /// Notes why a pool gives nothing, if reasons were asked for.
    pub(super) fn refuse(
        &mut self,
        pool: &PoolName,
        family: Option<Family>,
        reason: impl FnOnce() -> WhyNot,
    ) {
        if self.detail == Detail::Reasons {
            let refusal = Refusal { pool: pool.clone(), family, reason: reason() };
            // A pool is asked for each block that the node lacks.
            if !self.refusals.contains(&refusal) {
                self.refusals.push(refusal);
            }
        }
    }

    /// The plan, as the last step left it.
    pub(super) fn finish(mut self, last: Step) -> NodePlan {
        let mut requests = Vec::new();
        match last {
            ControlFlow::Continue(()) | ControlFlow::Break(End::Rests) => {}
            ControlFlow::Break(End::Act(act)) => requests = act,
            ControlFlow::Break(End::Waits(wait)) => self.wait_for(wait),
            ControlFlow::Break(End::Idle(wait)) => {
                self.coverage = Coverage::Full;
                self.wait_for(wait);
            }
        }
        let wants_capacity = self.unmet.iter().any(|unmet| matches!(unmet, Unmet::NoCapacity(_)));
        let wait = self.wait.or(wants_capacity.then_some(Wait::Capacity));
        let verdict = if requests.is_empty() {
            wait.map_or(Verdict::AtRest, Verdict::Wait)
        } else {
            Verdict::Act(requests)
        };
        NodePlan {
            node: self.node,
            verdict,
            unmet: self.unmet,
            refusals: self.refusals,
            findings: self.findings,
            wake: self.wake,
            cooling: self.cooling,
            routes: self.routes,
            coverage: self.coverage,
            too_many_drains: self.too_many_drains,
            availability: None,
            rules: self.rules,
            lasting: self.lasting,
        }
    }
}
