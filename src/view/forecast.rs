//! When a pool will have no free block, from its blocks of the last hours.
//!
//! The status of a pool keeps how many blocks nodes had. So a restart of the controller or another leader loses
//! nothing, and a command can compute the same. The forecast does not know nodes, or why they get blocks, so it
//! foresees no growth that has not started. `docs/reference/metrics.md` describes the method.

use std::collections::BTreeMap;
use std::time::Duration;

use super::tally::Tally;
use crate::model::names::PoolName;
use crate::model::pool::Pool;
use crate::model::status::{BlockSizes, FamilyCounts, Sample, capped_count};
use crate::model::time::Timestamp;
use crate::net::cidr::Family;
use crate::world::World;

/// The time over which grants are averaged: long enough that a roll-out of an hour does not look like a trend.
pub const WINDOW: Duration = Duration::from_secs(6 * 3600);

/// The smallest time from which a trend is derived. Nodes often join in the hour after an upgrade.
pub const LEAST: Duration = Duration::from_secs(2 * 3600);

/// The shortest time between two samples. A pool thus has one more write of its status per hour at most, and eight
/// samples.
pub const INTERVAL: Duration = Duration::from_secs(3600);

/// How far the clock of another replica may be ahead.
const TOLERANCE: Duration = INTERVAL;

/// The counts of a family of a pool in blocks of its usual size: a block of another size on a node counts as those that
/// it takes. Only so do free blocks and those of nodes add up.
#[must_use]
pub fn in_usual_blocks(
    pool: Option<&Pool>,
    family: Family,
    counts: FamilyCounts,
    sizes: Option<&BlockSizes>,
) -> FamilyCounts {
    let Some((usual, sizes)) = pool.and_then(|pool| pool.block_prefix(family)).zip(sizes) else {
        return counts;
    };
    if sizes.counts.iter().all(|(size, counts)| *size == usual || counts.on_nodes == 0) {
        return counts;
    }
    let sizes = sizes.counts.iter();
    let addresses = sizes.map(|(size, counts)| family.size_of(*size).saturating_mul(counts.on_nodes.into()));
    let on_nodes = addresses.fold(0, u128::saturating_add).div_ceil(family.size_of(usual));
    FamilyCounts { held: capped_count(on_nodes).saturating_sub(counts.draining), ..counts }
}

/// The same for each family of a pool.
pub(super) fn usual_blocks(pool: Option<&Pool>, tally: &Tally) -> BTreeMap<Family, FamilyCounts> {
    let families = tally.families.iter();
    families
        .map(|(family, counts)| (*family, in_usual_blocks(pool, *family, *counts, tally.sizes.get(family))))
        .collect()
}

/// The time of the next sample; `None` as long as the count of the last one holds.
#[must_use]
pub fn next_sample(history: &[Sample], counts: FamilyCounts, now: Timestamp) -> Option<Timestamp> {
    match history.last().filter(|last| last.at <= now + TOLERANCE) {
        Some(last) if last.on_nodes == counts.on_nodes() => None,
        Some(last) => Some(last.at.checked_add(INTERVAL).unwrap_or(now)),
        None => Some(now),
    }
}

/// The history of a family at a time: as before, or with one more sample where that is due.
#[must_use]
pub fn history(before: &[Sample], counts: FamilyCounts, now: Timestamp) -> Vec<Sample> {
    let mut history = before.to_vec();
    if next_sample(before, counts, now).is_none_or(|at| at > now) {
        return history;
    }
    // A clock that was set back leaves samples from the future.
    history.retain(|sample| sample.at <= now + TOLERANCE);
    history.push(Sample { at: now, on_nodes: counts.on_nodes() });
    let n_over = history.iter().skip(1).take_while(|sample| sample.at <= start(now)).count();
    history.split_off(n_over)
}

/// The time until a family of a pool has no free block. `None` without a trend towards that.
#[must_use]
pub fn full_in(history: &[Sample], counts: FamilyCounts, now: Timestamp) -> Option<Duration> {
    // The count of a sample holds until the next one.
    let at_start = history.iter().take_while(|sample| sample.at <= start(now)).last();
    let base = at_start.or_else(|| history.first())?;
    let seen_for = Duration::try_from(now.duration_since(base.at)).ok()?.min(WINDOW);
    let granted = counts.on_nodes().saturating_sub(base.on_nodes);
    if seen_for < LEAST || granted == 0 {
        return None;
    }
    // Blocks that cool come back within about an hour, which is short beside a forecast.
    let left = if counts.free == 0 { 0 } else { u128::from(counts.free) + u128::from(counts.cooling) };
    let seconds = left * u128::from(seen_for.as_secs()) / u128::from(granted);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)))
}

/// The same for each family of a pool, as its status says.
#[must_use]
pub fn of_pool(world: &World, name: &PoolName, tally: &Tally, now: Timestamp) -> BTreeMap<Family, Duration> {
    let Some(object) = world.pool_object(name) else { return BTreeMap::new() };
    let families = usual_blocks(object.pool.as_ref().ok(), tally).into_iter();
    families
        .filter_map(|(family, counts)| Some((family, full_in(object.history.get(&family)?, counts, now)?)))
        .collect()
}

/// The time from which grants count.
fn start(now: Timestamp) -> Timestamp {
    now.checked_sub(WINDOW).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64) -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap() + Duration::from_secs(minutes * 60)
    }

    fn counts((held, cooling, blocks): (u64, u64, u64)) -> FamilyCounts {
        FamilyCounts { held, cooling, free: blocks - held - cooling, blocks, ..FamilyCounts::default() }
    }

    /// The history after a series of (minutes, held, cooling, blocks).
    fn recorded(series: &[(u64, u64, u64, u64)]) -> Vec<Sample> {
        series.iter().fold(Vec::new(), |before, (minutes, held, cooling, blocks)| {
            history(&before, counts((*held, *cooling, *blocks)), at(*minutes))
        })
    }

    /// The forecast after such a series, in minutes.
    fn after(series: &[(u64, u64, u64, u64)]) -> Option<u64> {
        let (minutes, held, cooling, blocks) = *series.last()?;
        let left = full_in(&recorded(series), counts((held, cooling, blocks)), at(minutes));
        left.map(|time| time.as_secs() / 60)
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
        // The second sample was recorded an hour after the first.
        assert_eq!((at(415), at(420)), (Some(80 * 360 / 20), None));
    }

    #[test]
    fn cooling_blocks_come_back_and_a_new_cidr_counts_at_once() {
        assert_eq!(after(&[(0, 0, 0, 100), (120, 20, 30, 100)]), Some(80 * 120 / 20));
        assert_eq!(after(&[(0, 0, 0, 100), (120, 50, 50, 100)]), Some(0), "none is free now");
        assert_eq!(after(&[(0, 0, 0, 100), (120, 20, 0, 200)]), Some(180 * 120 / 20));
    }

    #[test]
    fn a_sample_per_hour_is_kept_while_the_count_changes_and_none_while_it_does_not() {
        let quiet = [(0, 5, 0, 100), (70, 5, 0, 100), (9000, 5, 0, 100)];
        assert_eq!(recorded(&quiet).len(), 1);
        assert_eq!(next_sample(&recorded(&quiet), counts((5, 0, 100)), at(9000)), None);
        assert_eq!(next_sample(&recorded(&quiet), counts((6, 0, 100)), at(30)), Some(at(60)));
        let busy = recorded(&steady(48, 1, 100));
        assert_eq!(busy.len(), 7);
        assert_eq!(busy[0].at, at(42 * 60), "one sample is as old as the window");
    }

    #[test]
    fn a_clock_that_was_set_back_starts_a_new_history_and_one_that_is_behind_does_not() {
        let before = recorded(&[(600, 50, 0, 100)]);
        assert_eq!(history(&before, counts((51, 0, 100)), at(590)), before);
        assert_eq!(full_in(&before, counts((50, 0, 100)), at(0)), None);
        assert_eq!(history(&before, counts((50, 0, 100)), at(0)), [Sample { at: at(0), on_nodes: 50 }]);
    }
}
