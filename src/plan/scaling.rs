//! The limits of decisions that depend on the size of the cluster, where the command line does not set them.
//!
//! Every write to a CiliumNode is one event per CiliumNode, so a larger cluster affords fewer writes. The event budget
//! keeps the writes apart; these limits keep the controller from decisions that would only wait for it. Up to 900 nodes
//! they are constant with the default budget.

use std::time::Duration;

use super::policy::{Policy, ReclaimPolicy};

/// The nodes whose agents may be asked at once in any cluster, and the part of them in larger ones.
const LEAST_AT_ONCE: usize = 20;
const PART_AT_ONCE: usize = 50;

/// The versions of a CiliumNode from the start of the reclaim of a block to its end: those of the controller and those
/// of the agent (`docs/performance.md`).
const VERSIONS_OF_RECLAIM: usize = 9;

/// The maximum number of blocks that may start draining per minute, as a multiple of the nodes at once.
const PER_MINUTE_FACTOR: usize = 6;

/// The bounds of the usage query interval.
const QUERY_INTERVALS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(120));

/// The number of writes of the whole controller between two writes to one CiliumNode, and the bounds of that interval.
const WRITES_BETWEEN: usize = 12;
const WRITE_INTERVALS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));

/// The policy of decisions in a cluster of any size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalingPolicy {
    /// The settings that do not depend on the size.
    pub settings: Policy,
    /// The events per second that writes to CiliumNodes may cause; zero for no limit.
    pub budget: u32,
    /// The values of the command line, which win.
    pub set: SetLimits,
}

/// The limits that the command line sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetLimits {
    /// See [`Policy::min_write_interval`].
    pub min_write_interval: Option<Duration>,
    /// See [`Policy::query_interval`].
    pub query_interval: Option<Duration>,
    /// See [`ReclaimPolicy::at_once`].
    pub at_once: Option<usize>,
    /// See [`ReclaimPolicy::per_minute`].
    pub per_minute: Option<usize>,
}

impl ScalingPolicy {
    /// The maximum number of watch events per second, unless the command line says otherwise.
    pub const DEFAULT_BUDGET: u32 = 30_000;

    /// These settings, where the command line sets no limits.
    #[must_use]
    pub fn of(settings: Policy) -> Self {
        Self { settings, budget: Self::DEFAULT_BUDGET, set: SetLimits::default() }
    }

    /// The policy in a cluster with so many CiliumNodes.
    #[must_use]
    pub fn with_nodes(self, n_nodes: usize) -> Policy {
        let Self { settings, budget, set } = self;
        let at_once = set.at_once.unwrap_or_else(|| at_once(n_nodes, budget));
        let between = |n_writes: usize, (least, most): (Duration, Duration)| match budget {
            0 => least,
            _ => time_of(n_writes, n_nodes, budget).clamp(least, most),
        };
        Policy {
            min_write_interval: set
                .min_write_interval
                .unwrap_or_else(|| between(WRITES_BETWEEN, WRITE_INTERVALS)),
            query_interval: set.query_interval.unwrap_or_else(|| between(n_nodes, QUERY_INTERVALS)),
            reclaim: ReclaimPolicy {
                at_once,
                per_minute: set.per_minute.unwrap_or(at_once.saturating_mul(PER_MINUTE_FACTOR)),
                ..settings.reclaim
            },
            ..settings
        }
    }
}

/// A fiftieth of the nodes, and at least 20, but no more than the budget affords per minute.
fn at_once(n_nodes: usize, budget: u32) -> usize {
    let wanted = (n_nodes / PART_AT_ONCE).max(LEAST_AT_ONCE);
    if budget == 0 {
        return wanted;
    }
    let per_minute = usize::try_from(budget).unwrap_or(usize::MAX).saturating_mul(60);
    let affordable = per_minute / VERSIONS_OF_RECLAIM / n_nodes.max(1);
    wanted.min(affordable.max(1))
}

/// The time in which the budget affords so many writes.
fn time_of(n_writes: usize, n_nodes: usize, budget: u32) -> Duration {
    let events = u64::try_from(n_writes.saturating_mul(n_nodes)).unwrap_or(u64::MAX);
    Duration::from_millis(events.saturating_mul(1000) / u64::from(budget.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At once, per minute, and the two intervals in milliseconds.
    fn limits(policy: ScalingPolicy, n_nodes: usize) -> (usize, usize, u128, u128) {
        let policy = policy.with_nodes(n_nodes);
        let millis = |interval: Duration| interval.as_millis();
        let ReclaimPolicy { at_once, per_minute, unknown_agents: _ } = policy.reclaim;
        (at_once, per_minute, millis(policy.query_interval), millis(policy.min_write_interval))
    }

    #[test]
    fn limits_follow_the_size_of_the_cluster() {
        let policy = ScalingPolicy::of(Policy::DEFAULT);
        for n_nodes in [0, 1, 60, 300, 900] {
            assert_eq!(policy.with_nodes(n_nodes), Policy::DEFAULT, "{n_nodes} nodes");
        }
        let expected = [
            (1_000, (20, 120, 33_333, 2_000)),
            (2_000, (40, 240, 120_000, 2_000)),
            (3_000, (60, 360, 120_000, 2_000)),
            (5_000, (40, 240, 120_000, 2_000)),
            (10_000, (20, 120, 120_000, 4_000)),
            (20_000, (10, 60, 120_000, 8_000)),
            (100_000, (2, 12, 120_000, 10_000)),
            (1_000_000, (1, 6, 120_000, 10_000)),
        ];
        for (n_nodes, limits_then) in expected {
            assert_eq!(limits(policy, n_nodes), limits_then, "{n_nodes} nodes");
        }
    }

    #[test]
    fn a_budget_of_a_small_server_has_lower_limits_and_none_has_higher_ones() {
        let of = |budget| ScalingPolicy { budget, ..ScalingPolicy::of(Policy::DEFAULT) };
        assert_eq!(limits(of(1_000), 500), (13, 78, 120_000, 6_000));
        assert_eq!(limits(of(0), 5_000), (100, 600, 30_000, 2_000));
        assert_eq!(limits(of(1), 100_000), (1, 6, 120_000, 10_000));
    }

    #[test]
    fn limits_of_the_command_line_win() {
        let set = SetLimits {
            min_write_interval: Some(Duration::ZERO),
            query_interval: Some(Duration::from_secs(5)),
            at_once: Some(7),
            per_minute: None,
        };
        let policy = ScalingPolicy { set, ..ScalingPolicy::of(Policy::DEFAULT) };
        assert_eq!(limits(policy, 20_000), (7, 42, 5_000, 0));
        let set = SetLimits { per_minute: Some(300), ..SetLimits::default() };
        assert_eq!(limits(ScalingPolicy { set, ..policy }, 20_000), (10, 300, 120_000, 8_000));
    }
}
