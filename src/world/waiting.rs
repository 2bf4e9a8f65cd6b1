//! The nodes that wait for a block, by the pools that they asked for one, and which of these pools are offered to them.
//!
//! Keeps one invariant: a pool with newly free blocks is offered to every node that waits for it, until none of these
//! blocks is left. The order is that of the agenda. So a free block costs only the decisions until a node takes it. The
//! numbers of waiting nodes, and of free blocks that none of them can use, do not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::agenda::Place;
use super::index::remove;
use crate::model::names::{NodeName, PoolName};
use crate::net::cidr::{Cidr, Family};

/// The minimum time between two looks of the passive waiters. Each node may be one, and each block that is taken
/// concerns all of them. Statuses show their wait, and are written as often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A pool that was asked for a block of a family.
pub(super) type Source = (PoolName, Family);

/// The nodes that wait for a block, and the pools that are offered to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The waiting nodes of each pool; never an empty list.
    by_source: BTreeMap<Source, BTreeSet<Place>>,
    /// The same, by node; never an empty list.
    by_node: BTreeMap<NodeName, (Place, BTreeSet<Source>)>,
    /// The pools that may have a block.
    offered: BTreeMap<Source, Offer>,
    /// The nodes that ask for no block that they would get now: they can't start within their limits, or lack another
    /// family. They too are reported as waiting if there is no such block.
    passive_waiters: BTreeSet<NodeName>,
    /// The pools from which blocks were taken since the last look of the passive waiters.
    taken_from: BTreeSet<PoolName>,
    /// When the passive waiters last looked.
    looked_at: Option<Duration>,
}

/// A pool that may have a block for its waiting nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Offer {
    /// Where blocks became free. Blocks that were free before were offered then.
    regions: BTreeSet<Cidr>,
    /// The node to which it was offered last.
    last: Option<Place>,
}

impl Waiting {
    /// The node has asked these pools in vain. It was the turn of this node, so none of them is offered to it again.
    pub(super) fn set(&mut self, place: Place, sources: BTreeSet<Source>, is_passive_waiter: bool) {
        self.forget(&place.node);
        if is_passive_waiter {
            self.passive_waiters.insert(place.node.clone());
        }
        if sources.is_empty() {
            return;
        }
        for source in &sources {
            self.by_source.entry(source.clone()).or_default().insert(place.clone());
            if self.next_of(source) == Some(&place)
                && let Some(offer) = self.offered.get_mut(source)
            {
                offer.last = Some(place.clone());
            }
        }
        self.by_node.insert(place.node.clone(), (place, sources));
    }

    /// The node waits for nothing.
    pub(super) fn forget(&mut self, node: &NodeName) {
        self.passive_waiters.remove(node);
        let Some((place, sources)) = self.by_node.remove(node) else { return };
        for source in sources {
            remove(&mut self.by_source, &source, &place);
        }
    }

    /// This pool may have a block in `region` for a node that waits for it.
    pub(super) fn offer(&mut self, source: Source, region: Cidr) {
        if self.by_source.contains_key(&source) {
            let offer = self.offered.entry(source).or_default();
            offer.regions.insert(region);
            offer.last = None;
        }
    }

    /// Keeps only the offers of pools that may still have a block for a node.
    pub(super) fn retain_offers(&mut self, has_block: impl Fn(&Source, Cidr) -> bool) {
        let mut offered = std::mem::take(&mut self.offered);
        offered.retain(|source, offer| {
            // Each region is looked at until it has no block, and then never again.
            while offer.regions.first().is_some_and(|region| !has_block(source, *region)) {
                offer.regions.pop_first();
            }
            !offer.regions.is_empty() && self.after(source, offer.last.as_ref()).is_some()
        });
        self.offered = offered;
    }

    /// The next node to which a pool is offered.
    pub(super) fn next(&self) -> Option<&Place> {
        self.offered.keys().filter_map(|source| self.next_of(source)).min()
    }

    /// The next node to which this pool is offered, if it is.
    fn next_of(&self, source: &Source) -> Option<&Place> {
        self.after(source, self.offered.get(source)?.last.as_ref())
    }

    fn after(&self, source: &Source, last: Option<&Place>) -> Option<&Place> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_source.get(source)?.range::<Place, _>((from, Bound::Unbounded)).next()
    }

    /// The nodes that ask for no block that they would get now.
    pub(super) fn passive_waiters(&self) -> impl Iterator<Item = &NodeName> {
        self.passive_waiters.iter()
    }

    /// A block of these pools was taken, so the passive waiters must look again.
    pub(super) fn note_taken<'a>(&mut self, pools: impl Iterator<Item = &'a PoolName>) {
        if !self.passive_waiters.is_empty() {
            self.taken_from.extend(pools.cloned());
        }
    }

    /// When the passive waiters look again, if they must.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let due = self.looked_at.map_or(Duration::ZERO, |looked_at| looked_at + LOOK_INTERVAL);
        (!self.taken_from.is_empty()).then_some(due)
    }

    /// The pools that make the passive waiters look now.
    pub(super) fn look(&mut self, now: Duration) -> BTreeSet<PoolName> {
        if self.next_look().is_none_or(|due| due > now) {
            return BTreeSet::new();
        }
        self.looked_at = Some(now);
        std::mem::take(&mut self.taken_from)
    }

    /// The nodes that wait.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.by_node.keys()
    }

    /// Whether both indexes name the same nodes.
    pub(super) fn is_consistent(&self) -> bool {
        let mut fresh = Self::default();
        for (place, sources) in self.by_node.values() {
            fresh.set(place.clone(), sources.clone(), false);
        }
        fresh.by_source == self.by_source
    }

    #[cfg(test)]
    pub(super) fn break_an_index(&mut self, place: Place) {
        let sources = [("p".into(), Family::V4)].into();
        self.by_node.insert(place.node.clone(), (place, sources));
    }
}
