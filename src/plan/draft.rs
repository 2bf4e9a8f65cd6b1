//! A plan in the making. The parts of the planner add to it, and at last it becomes one verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use super::policy::Policy;
use crate::model::claim::Claim;
use crate::model::finding::Finding;
use crate::model::names::{NodeName, PoolName};
use crate::model::plan::{Lasting, NodePlan, Refusal, RouteAt, Scope, Unmet, Verdict, Wait, WhyNot};
use crate::model::request::{ClaimChange, ClaimUpdate, Read, Request, Write};
use crate::model::time::Now;
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
pub(super) type Step<Found = ()> = ControlFlow<Made, Found>;

/// The next step follows.
pub(super) const NEXT: Step = ControlFlow::Continue(());

/// The draft is complete: no further step follows.
pub(super) const DONE: Step = ControlFlow::Break(Made::AsDrafted);

/// Why no further step follows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Made {
    /// The draft is complete.
    AsDrafted,
    /// The node waits for this, and may need blocks meanwhile.
    Waits(Wait),
    /// The node asks for nothing before this has happened.
    AsksForNothingBefore(Wait),
}

/// A plan in the making, and the policy and the time by which it is made.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) node: NodeName,
    pub(super) policy: Policy,
    pub(super) now: Now,
    pub(super) requests: Vec<Request>,
    pub(super) unmet: BTreeSet<Unmet>,
    pub(super) findings: Vec<Finding>,
    pub(super) cooling: Vec<Cidr>,
    pub(super) routes: BTreeMap<Cidr, RouteAt>,
    pub(super) scope: Scope,
    pub(super) too_many_drains: bool,
    lasting: BTreeSet<Lasting>,
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
            requests: Vec::new(),
            unmet: BTreeSet::new(),
            findings: Vec::new(),
            cooling: Vec::new(),
            routes: BTreeMap::new(),
            scope: Scope::Part,
            too_many_drains: false,
            lasting: BTreeSet::new(),
            wait: None,
            wake: None,
            refusals: Vec::new(),
            detail,
        }
    }

    /// Notes a state of the node that lasts until something is seen to change.
    pub(super) fn note_lasting(&mut self, lasting: Lasting) {
        self.lasting.insert(lasting);
    }

    /// Notes such a state. Returns since when this process has seen it: now, if it was not noted before.
    pub(super) fn note_lasting_since(&mut self, world: &World, lasting: Lasting) -> Duration {
        self.note_lasting(lasting);
        let since = world.serving(&self.node).and_then(|serving| serving.since(lasting));
        since.unwrap_or(self.now.uptime)
    }

    pub(super) fn has_noted(&self, lasting: Lasting) -> bool {
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

    /// Adds a change of a claim.
    pub(super) fn change_claim(&mut self, claim: &Claim, change: ClaimChange) {
        self.requests.push(Write::UpdateClaim(ClaimUpdate::of(claim, change, self.now.wall)).into());
    }

    /// Adds a request that may prove something about a node. One request serves all claims of the node. Of two reads
    /// the later one is kept.
    pub(super) fn prove(&mut self, request: Request) {
        match self.requests.iter_mut().find(|planned| planned.target() == request.target()) {
            None => self.requests.push(request),
            Some(Request::Read(Read::Node(_, planned))) => {
                if let Request::Read(Read::Node(_, later)) = request {
                    *planned = later.max(*planned);
                }
            }
            Some(_) => {}
        }
    }

    /// Whether the node lacks nothing, as far as the plan has found.
    pub(super) fn lacks_nothing(&self) -> bool {
        self.requests.is_empty() && self.unmet.is_empty()
    }

    /// The last step, if there is something to send.
    pub(super) fn end_if_any_request(&self) -> Step {
        if self.requests.is_empty() { NEXT } else { DONE }
    }

    /// The plan, as the last step left it.
    pub(super) fn finish(mut self, last: Step) -> NodePlan {
        match last {
            ControlFlow::Continue(()) | ControlFlow::Break(Made::AsDrafted) => {}
            ControlFlow::Break(Made::Waits(wait)) => self.wait_for(wait),
            ControlFlow::Break(Made::AsksForNothingBefore(wait)) => {
                self.scope = Scope::Whole;
                self.wait_for(wait);
            }
        }
        let wants_capacity = self.unmet.iter().any(|unmet| matches!(unmet, Unmet::NoCapacity(_)));
        let wait = self.wait.or(wants_capacity.then_some(Wait::Capacity));
        let verdict = if self.requests.is_empty() {
            wait.map_or(Verdict::AtRest, Verdict::Wait)
        } else {
            Verdict::Act(self.requests)
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
            scope: self.scope,
            too_many_drains: self.too_many_drains,
            lasting: self.lasting,
        }
    }
}
