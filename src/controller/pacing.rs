//! The event budget: how many watch events per second the writes to CiliumNodes may cause.
//!
//! Every agent watches every CiliumNode. So one write to one of them is one event per node, and the API server cuts off
//! agents that it can't send their events in time. A node whose decision writes its CiliumNode, or reads something for
//! such a write, waits for its turn first. The decision is then made anew, so nothing grows old while it waits.
//!
//! Knows no objects beside the number of CiliumNodes ([`need`] knows which decisions need a turn), and no clock. Keeps
//! two invariants. Without a budget no node waits. And no class of writes waits for ever, because each has a part of the
//! budget that no other class takes (`docs/decisions/0056-an-event-budget.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::counted::counted;
use crate::model::names::NodeName;
use crate::model::plan::{NodePlan, Verdict, Wait};
use crate::model::write_class::{Queue, WriteClass};
use crate::world::World;

pub(super) mod need;

use need::{Need, Purpose};

/// The writes per second that the first class always has. An agent that joins writes its CiliumNode about as often
/// itself, so fewer would save little.
const FIRST_PER_SECOND: f64 = 20.0;

/// The parts of the budget that the other classes always have.
const GROWTH_PART: f64 = 0.3;
const RECLAIM_PART: f64 = 0.1;

/// In a small cluster each node may be written once without a wait. A cluster is small if the budget of this many seconds
/// allows that.
const SMALL_WITHIN: f64 = 3.0;

/// The number of writes without a wait in other clusters. The API server keeps at least ten events for a watcher that
/// is behind, and cuts it off after that.
const BURST: f64 = 10.0;

/// How often the CiliumNodes are counted.
const COUNTED_EVERY: Duration = Duration::from_secs(1);

/// The event budget, and the nodes that wait for their turn.
#[derive(Debug)]
pub(super) struct Pacing {
    /// Events per second; `None` without a budget.
    budget: Option<f64>,
    /// The number of agents that watch: that of the CiliumNodes.
    n_watchers: usize,
    counted_at: Option<Duration>,
    /// Until when the buckets are filled.
    filled_until: Duration,
    /// The writes that all classes may send now.
    all: f64,
    /// The writes that each class may send now although others use up the budget.
    kept: BTreeMap<WriteClass, f64>,
    /// The nodes that wait, by class, and since when.
    waiting: BTreeMap<WriteClass, BTreeSet<(Duration, NodeName)>>,
    place_of: BTreeMap<NodeName, (WriteClass, Duration)>,
    /// The nodes that have had a turn for a read. It is also one for the write that follows.
    read: BTreeSet<NodeName>,
    /// The number of writes that each reclaim has paid for since its start.
    prepaid: BTreeMap<NodeName, u32>,
}

impl Pacing {
    /// With this budget in events per second; zero is no budget.
    pub(super) fn new(budget: u32) -> Self {
        Self {
            budget: (budget > 0).then(|| f64::from(budget)),
            n_watchers: 0,
            counted_at: None,
            filled_until: Duration::ZERO,
            all: BURST,
            kept: WriteClass::ALL.into_iter().map(|class| (class, 1.0)).collect(),
            waiting: WriteClass::ALL.into_iter().map(|class| (class, BTreeSet::new())).collect(),
            place_of: BTreeMap::new(),
            read: BTreeSet::new(),
            prepaid: BTreeMap::new(),
        }
    }

    /// The number of events that one write causes.
    pub(super) fn n_watchers(&self) -> usize {
        self.n_watchers
    }

    /// Time has passed. `count` counts the CiliumNodes, which is a pass over all nodes.
    pub(super) fn advance(&mut self, now: Duration, count: impl FnOnce() -> usize) {
        let is_first = self.counted_at.is_none();
        if self.counted_at.is_none_or(|at| at + COUNTED_EVERY <= now) {
            self.counted_at = Some(now);
            self.n_watchers = count();
        }
        let Some(rate) = self.rate() else { return };
        if is_first {
            // The cluster was quiet before, as far as this process knows.
            self.all = self.burst(rate);
        }
        let seconds = now.saturating_sub(self.filled_until).as_secs_f64();
        self.filled_until = now;
        self.all = (self.all + rate * seconds).min(self.burst(rate));
        for (class, kept) in &mut self.kept {
            *kept = (*kept + kept_rate(*class, rate) * seconds).min(most_kept(*class));
        }
    }

    /// The writes per second; `None` without a budget.
    #[expect(clippy::cast_precision_loss, reason = "no cluster has 2^52 nodes")]
    fn rate(&self) -> Option<f64> {
        Some(self.budget? / self.n_watchers.max(1) as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "no cluster has 2^52 nodes")]
    fn burst(&self, rate: f64) -> f64 {
        let of_small = rate * SMALL_WITHIN;
        if of_small >= self.n_watchers as f64 { of_small.max(BURST) } else { BURST }
    }

    /// The node to decide for anew because it is its turn.
    pub(super) fn next(&self) -> Option<&NodeName> {
        WriteClass::ALL.into_iter().find_map(|class| {
            let (_, node) = self.waiting[&class].first()?;
            self.may_write(class).then_some(node)
        })
    }

    /// When the next node has its turn.
    pub(super) fn next_turn(&self) -> Option<Duration> {
        let rate = self.rate()?;
        let turns =
            WriteClass::ALL.into_iter().filter(|class| !self.waiting[class].is_empty()).map(|class| {
                let by_class = (1.0 - self.kept[&class]) / kept_rate(class, rate);
                let by_all = (1.0 - self.all) / rate;
                let seconds = if self.waits_above(class) { by_class } else { by_class.min(by_all) };
                // A millisecond more, because a turn that is early by a rounding error would be looked for in vain.
                self.filled_until
                    + Duration::from_secs_f64(seconds.clamp(0.0, 3600.0))
                    + Duration::from_millis(1)
            });
        turns.min()
    }

    /// The plan as it may be carried out now. If it needs a turn that the node does not have, the node waits for it.
    pub(super) fn pace(&mut self, world: &World, mut plan: NodePlan, now: Duration) -> NodePlan {
        if self.budget.is_none() {
            return plan;
        }
        if let Some(need) = need::of(world, &plan) {
            if !self.has_turn(&plan.node, need, now) {
                plan.verdict = Verdict::Wait(Wait::Pace);
                plan.rules.clear();
            }
            return plan;
        }
        self.forget(&plan.node);
        if plan.verdict != Verdict::Wait(Wait::Answer) {
            self.read.remove(&plan.node);
            if !need::is_in_reclaim(world, &plan.node) {
                self.prepaid.remove(&plan.node);
            }
        }
        plan
    }

    /// Whether a node may send its writes, or read for them, now. If so it has had its turn; otherwise it waits.
    fn has_turn(&mut self, node: &NodeName, need: Need, now: Duration) -> bool {
        let Need { class, n_writes, purpose } = need;
        let place = self.place_of.get(node).copied();
        let class = match (purpose, place) {
            (Purpose::Step, _) => {
                self.forget(node);
                self.pay_for_step(node, class, n_writes);
                return true;
            }
            // The read was for these writes.
            (Purpose::Write, _) if self.read.remove(node) => {
                self.forget(node);
                return true;
            }
            (Purpose::Start, None) if self.read.contains(node) => {
                self.prepay(node, class, n_writes);
                return true;
            }
            (Purpose::Read | Purpose::Look, _) if self.read.contains(node) => {
                self.forget(node);
                return true;
            }
            // Most of these reads are followed by no write.
            (Purpose::Look, None) => return true,
            (Purpose::Look, Some((class, _))) => class,
            (Purpose::Write | Purpose::Read | Purpose::Start, _) => class,
        };
        let since = place.map_or(now, |(_, since)| since);
        let own = (since, node.clone());
        let is_first = self.waiting[&class].first().is_none_or(|first| *first >= own);
        self.forget(node);
        if is_first && self.may_write(class) {
            match purpose {
                Purpose::Start => self.prepay(node, class, n_writes),
                Purpose::Read | Purpose::Look => {
                    self.pay(class, n_writes);
                    self.read.insert(node.clone());
                }
                Purpose::Write | Purpose::Step => self.pay(class, n_writes),
            }
            return true;
        }
        self.waiting.entry(class).or_default().insert(own);
        self.place_of.insert(node.clone(), (class, since));
        false
    }

    /// Whether the next node of this class may write.
    fn may_write(&self, class: WriteClass) -> bool {
        self.kept[&class] >= 1.0 || (self.all >= 1.0 && !self.waits_above(class))
    }

    /// Whether a node of a more urgent class waits.
    fn waits_above(&self, class: WriteClass) -> bool {
        WriteClass::ALL
            .into_iter()
            .filter(|other| *other < class)
            .any(|other| !self.waiting[&other].is_empty())
    }

    /// Pays for the writes of a reclaim that starts.
    fn prepay(&mut self, node: &NodeName, class: WriteClass, n_writes: u32) {
        self.read.remove(node);
        self.pay(class, n_writes);
        let prepaid = self.prepaid.entry(node.clone()).or_default();
        *prepaid = prepaid.saturating_add(n_writes);
    }

    /// Pays for a step of a reclaim, unless its start has. Conflicts and lost queries need more steps than that, and so
    /// do reclaims that an earlier leader has started. None of them waits: others do afterwards.
    fn pay_for_step(&mut self, node: &NodeName, class: WriteClass, n_writes: u32) {
        let prepaid = self.prepaid.get_mut(node);
        let n_prepaid = prepaid.map_or(0, |prepaid| {
            let n_used = n_writes.min(*prepaid);
            *prepaid -= n_used;
            n_used
        });
        self.pay(class, n_writes - n_prepaid);
    }

    fn pay(&mut self, class: WriteClass, n_writes: u32) {
        let n_writes = f64::from(n_writes);
        let kept = self.kept.entry(class).or_default();
        if *kept >= 1.0 {
            *kept -= n_writes;
        }
        // The first class may write more than the budget allows. The others do not pay for that afterwards.
        let least = if class == WriteClass::First { self.all.min(-1.0) } else { f64::NEG_INFINITY };
        self.all = (self.all - n_writes).max(least);
    }

    fn forget(&mut self, node: &NodeName) {
        if let Some((class, since)) = self.place_of.remove(node)
            && let Some(waiting) = self.waiting.get_mut(&class)
        {
            waiting.remove(&(since, node.clone()));
        }
    }

    /// The nodes that wait, by class.
    pub(super) fn queues(&self, now: Duration) -> BTreeMap<WriteClass, Queue> {
        let of = |waiting: &BTreeSet<(Duration, NodeName)>| Queue {
            n_nodes: waiting.len(),
            longest: waiting.first().map_or(Duration::ZERO, |(since, _)| now.saturating_sub(*since)),
        };
        self.waiting.iter().map(|(class, waiting)| (*class, of(waiting))).collect()
    }

    /// The pace in words, for people; `None` if no node waits.
    pub(super) fn in_words(&self, now: Duration) -> Option<String> {
        let queues = self.queues(now);
        let n_nodes = queues.values().map(|queue| queue.n_nodes).sum::<usize>();
        let longest = queues.values().map(|queue| queue.longest).max()?;
        let rate = self.rate().filter(|_| n_nodes > 0)?;
        let per_second = if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") };
        let verb = if n_nodes == 1 { "waits" } else { "wait" };
        let nodes = counted(n_nodes, "node");
        Some(format!("{per_second} writes/s, {nodes} {verb} {} s", longest.as_secs()))
    }
}

/// The writes per second that a class always has.
fn kept_rate(class: WriteClass, rate: f64) -> f64 {
    match class {
        WriteClass::First => FIRST_PER_SECOND,
        WriteClass::Growth => rate * GROWTH_PART,
        WriteClass::Reclaim => rate * RECLAIM_PART,
    }
}

fn most_kept(class: WriteClass) -> f64 {
    match class {
        WriteClass::First => BURST,
        WriteClass::Growth | WriteClass::Reclaim => 1.0,
    }
}

#[cfg(test)]
mod tests;
