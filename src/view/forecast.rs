//! When a pool will have no free block, from its blocks of the last hours.
//!
//! Pure: it gets counts with times. It does not know nodes, or why they get blocks, so it foresees no growth that has
//! not started. `docs/operations.md` describes the method.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::model::names::PoolName;
use crate::model::status::FamilyCounts;
use crate::net::cidr::Family;

/// The time over which grants are averaged: long enough that a roll-out of an hour does not look like a trend.
pub const WINDOW: Duration = Duration::from_secs(6 * 3600);

/// The smallest time from which a trend is derived. Nodes often join in the hour after an upgrade.
pub const LEAST: Duration = Duration::from_secs(2 * 3600);

/// The time between two samples: 72 of them cover the window.
const INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The blocks of all pools in the last hours.
#[derive(Debug, Clone, Default)]
pub struct Forecast {
    series: BTreeMap<(PoolName, Family), Series>,
}

/// One family of a pool.
#[derive(Debug, Clone, Default)]
struct Series {
    /// When how many blocks were on nodes, the oldest first.
    samples: VecDeque<(Duration, u64)>,
    /// The same at the last look.
    last: (Duration, u64),
    /// The blocks that are free now, and those that will be after they have cooled.
    free: u64,
    cooling: u64,
}

impl Forecast {
    /// Takes in the counts of all pools at a time since the process started. A pool that is not among them is forgotten.
    pub fn note<'a>(
        &mut self,
        at: Duration,
        counts: impl Iterator<Item = (&'a PoolName, Family, FamilyCounts)>,
    ) {
        let mut before = std::mem::take(&mut self.series);
        for (pool, family, counts) in counts {
            let key = (pool.clone(), family);
            let mut series = before.remove(&key).unwrap_or_default();
            series.note(at, counts);
            self.series.insert(key, series);
        }
    }

    /// The time until a family of a pool has no free block. `None` without a trend towards that.
    #[must_use]
    pub fn full_in(&self, pool: &PoolName, family: Family) -> Option<Duration> {
        self.series.get(&(pool.clone(), family))?.full_in()
    }
}

impl Series {
    fn note(&mut self, at: Duration, counts: FamilyCounts) {
        let on_nodes = counts.held.saturating_add(counts.draining);
        (self.free, self.cooling, self.last) = (counts.free, counts.cooling, (at, on_nodes));
        if self.samples.back().is_none_or(|(last, _)| at.saturating_sub(*last) >= INTERVAL) {
            self.samples.push_back((at, on_nodes));
        }
        while self.samples.front().is_some_and(|(first, _)| at.saturating_sub(*first) > WINDOW) {
            self.samples.pop_front();
        }
    }

    fn full_in(&self) -> Option<Duration> {
        let (now, on_nodes) = self.last;
        let (first, before) = *self.samples.front()?;
        let seen_for = now.saturating_sub(first);
        let granted = on_nodes.saturating_sub(before);
        if seen_for < LEAST || granted == 0 {
            return None;
        }
        // Blocks that cool come back within about an hour, which is short beside a forecast.
        let left = if self.free == 0 { 0 } else { u128::from(self.free) + u128::from(self.cooling) };
        let seconds = left * u128::from(seen_for.as_secs()) / u128::from(granted);
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forecast after a series of (minutes, held, cooling, blocks).
    fn after(series: &[(u64, u64, u64, u64)]) -> Option<u64> {
        let (pool, mut forecast) = (PoolName::from("p"), Forecast::default());
        for (minutes, held, cooling, blocks) in series {
            let free = blocks - held - cooling;
            let counts = FamilyCounts {
                held: *held,
                cooling: *cooling,
                free,
                blocks: *blocks,
                ..FamilyCounts::default()
            };
            forecast.note(Duration::from_secs(minutes * 60), [(&pool, Family::V4, counts)].into_iter());
        }
        forecast.full_in(&pool, Family::V4).map(|time| time.as_secs() / 60)
    }

    /// Blocks are granted at this many per hour, for some hours, from none on.
    fn steady(hours: u64, per_hour: u64, blocks: u64) -> Vec<(u64, u64, u64, u64)> {
        (0..=hours * 12).map(|step| (step * 5, step * per_hour / 12, 0, blocks)).collect()
    }

    #[test]
    fn a_pool_that_fills_steadily_is_full_when_its_rate_says_so() {
        // After 5 h 60 of 100 blocks are held: 40 are left at 12 per hour.
        assert_eq!(after(&steady(5, 12, 100)), Some(40 * 60 / 12));
    }

    #[test]
    fn without_a_trend_there_is_no_forecast() {
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[(0, 10, 0, 100), (120, 10, 0, 100)]), None, "nothing is granted");
        assert_eq!(after(&[(0, 10, 0, 100), (120, 4, 6, 100)]), None, "blocks come back");
        assert_eq!(after(&[(0, 10, 0, 100), (119, 40, 0, 100)]), None, "a start is no trend");
    }

    #[test]
    fn a_burst_counts_less_from_hour_to_hour_and_is_then_forgotten() {
        let mut series = vec![(0, 0, 0, 100)];
        series.extend((1..=120).map(|step| (step * 5, 20, 0, 100)));
        let at = |minutes: u64| after(&series[..=usize::try_from(minutes / 5).unwrap()]);
        assert_eq!(at(120), Some(80 * 120 / 20));
        assert_eq!(at(360), Some(80 * 360 / 20));
        assert_eq!(at(370), None);
    }

    #[test]
    fn cooling_blocks_come_back_and_a_new_cidr_counts_at_once() {
        assert_eq!(after(&[(0, 0, 0, 100), (120, 20, 30, 100)]), Some(80 * 120 / 20));
        assert_eq!(after(&[(0, 0, 0, 100), (120, 50, 50, 100)]), Some(0), "none is free now");
        assert_eq!(after(&[(0, 0, 0, 100), (120, 20, 0, 200)]), Some(180 * 120 / 20));
    }

    #[test]
    fn a_pool_that_is_gone_is_forgotten() {
        let (pool, mut forecast) = (PoolName::from("p"), Forecast::default());
        let note = |forecast: &mut Forecast, minutes: u64, held: u64| {
            let counts = FamilyCounts { held, free: 10, ..FamilyCounts::default() };
            forecast.note(Duration::from_secs(minutes * 60), [(&pool, Family::V4, counts)].into_iter());
        };
        note(&mut forecast, 0, 0);
        note(&mut forecast, 120, 5);
        assert!(forecast.full_in(&pool, Family::V4).is_some());
        forecast.note(Duration::from_secs(7260), std::iter::empty());
        note(&mut forecast, 122, 6);
        assert_eq!(forecast.full_in(&pool, Family::V4), None);
    }
}
