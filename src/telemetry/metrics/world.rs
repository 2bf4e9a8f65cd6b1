//! The part of `/metrics` that follows from the world: its last snapshot, as gauges.

use std::sync::Arc;
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tokio::sync::watch;

use crate::model::status::{CidrCounts, ConditionType, Need};
use crate::model::time::Timestamp;
use crate::view::snapshot::Snapshot;

/// A snapshot, and when it was published.
#[derive(Debug, Clone)]
pub(super) struct Published {
    snapshot: Arc<Snapshot>,
    at: Instant,
}

impl From<Snapshot> for Published {
    fn from(snapshot: Snapshot) -> Self {
        Self { snapshot: Arc::new(snapshot), at: Instant::now() }
    }
}

/// The last snapshot. It is encoded when `/metrics` is read, so the series of a pool are gone when the pool is.
#[derive(Debug)]
pub(super) struct World(pub(super) watch::Receiver<Published>);

impl Collector for World {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Published { snapshot, at } = self.0.borrow().clone();
        // On the clock of the API server, as the times in the snapshot.
        let now = snapshot.at.checked_add(at.elapsed()).unwrap_or(snapshot.at);
        of_pools(&mut encoder, &snapshot, now)?;
        of_capacity(&mut encoder, &snapshot)?;
        let frozen =
            snapshot.frozen.iter().map(|(switch, on)| ([("switch", switch.as_str())], u64::from(*on)));
        gauges(&mut encoder, "frozen", "Switches of the freeze: 1 if on", frozen)?;
        let nodes = snapshot.nodes.iter().map(|(state, n)| ([("state", state.as_str())], *n));
        gauges(&mut encoder, "nodes", "Nodes of the cluster by state", nodes)?;
        let agents = snapshot.agents.iter().map(|((support, release), n)| {
            ([("support", support.as_str()), ("release", release.as_str())], *n)
        });
        gauges(&mut encoder, "agents", "Nodes by the oldest agent version on them and its support", agents)?;
        let usage = snapshot.usage.iter().map(|(state, n)| ([("state", state.as_str())], *n));
        gauges(
            &mut encoder,
            "node_use",
            "Nodes with a CiliumNode by whether the addresses in use are known",
            usage,
        )?;
        let objects = snapshot.objects.iter().map(|(kind, n)| ([("kind", kind.as_str())], *n));
        gauges(&mut encoder, "objects", "Objects known to the controller", objects)?;
        let unreadable = snapshot.unreadable.iter().map(|(kind, n)| ([("kind", kind.as_str())], *n));
        gauges(
            &mut encoder,
            "unreadable_objects",
            "Objects that are unreadable; their addresses count as in use",
            unreadable,
        )?;
        let findings = snapshot.findings.iter().map(|(kind, n)| ([("kind", kind.as_str())], *n));
        gauges(&mut encoder, "findings", "Current findings", findings)
    }
}

/// The gauges about the time to come.
fn of_capacity(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> Result<(), std::fmt::Error> {
    let pools = || snapshot.pools.iter().map(|(name, pool)| (name.as_str(), pool));
    let room = pools().flat_map(|(pool, counts)| {
        let families = counts.tally.families.iter();
        families.map(move |(family, counts)| {
            ([("pool", pool), ("family", family.as_str())], counts.headroom.nodes)
        })
    });
    gauges(encoder, "pool_room_nodes", "Nodes that can still get their first blocks of a pool", room)?;
    let largest = pools().flat_map(|(pool, counts)| {
        let families = counts.tally.sizes.iter();
        families.filter_map(move |(family, sizes)| {
            Some(([("pool", pool), ("family", family.as_str())], sizes.largest_free?))
        })
    });
    gauges(
        encoder,
        "pool_largest_free_prefix_length",
        "Prefix length of the largest free CIDR of a pool; no series without a free block",
        largest.map(|(labels, prefix)| (labels, u64::from(prefix))),
    )?;
    let closed: Vec<(&str, String, CidrCounts)> = pools()
        .flat_map(|(pool, counts)| {
            counts.closed.iter().map(move |(cidr, counts)| (pool, cidr.to_string(), *counts))
        })
        .collect();
    gauges(
        encoder,
        "pool_cidr_blocks",
        "Blocks of a CIDR that is cordoned or drains, by state",
        closed.iter().flat_map(|(pool, cidr, counts)| {
            [("held", counts.held), ("draining", counts.draining), ("cooling", counts.cooling)]
                .map(|(state, value)| ([("pool", *pool), ("cidr", cidr), ("state", state)], value))
        }),
    )?;
    gauges_in(
        encoder,
        "pool_full_in",
        Some(&Unit::Seconds),
        "Forecast: the time until a pool has no free block; no series without a trend",
        pools().flat_map(|(pool, counts)| {
            counts
                .full_in
                .iter()
                .map(move |(family, time)| ([("pool", pool), ("family", family.as_str())], time.as_secs()))
        }),
    )
}

/// The gauges with the label `pool`.
fn of_pools(
    encoder: &mut DescriptorEncoder<'_>,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Result<(), std::fmt::Error> {
    let pools = || snapshot.pools.iter().map(|(name, pool)| (name.as_str(), pool));
    let usual_blocks = pools().flat_map(|(name, pool)| {
        pool.usual_blocks.iter().map(move |(family, counts)| (name, family.as_str(), counts))
    });
    let families = || {
        pools().flat_map(|(name, pool)| {
            pool.tally.families.iter().map(move |(family, counts)| (name, family.as_str(), counts))
        })
    };
    gauges(
        encoder,
        "pool_blocks",
        "Blocks of a pool by state, in blocks of its blockSize; the sum is the total",
        usual_blocks.flat_map(|(pool, family, counts)| {
            [
                ("held", counts.held),
                ("draining", counts.draining),
                ("cooling", counts.cooling),
                ("free", counts.free),
                ("unavailable", counts.unavailable),
            ]
            .map(|(state, value)| ([("pool", pool), ("family", family), ("state", state)], value))
        }),
    )?;
    gauges(
        encoder,
        "pool_addresses",
        "Addresses of a pool by state: used, unused, and unpublished (in free blocks); published if agents \
         do not report use",
        families().flat_map(|(pool, family, counts)| {
            let states = match counts.used {
                Some(used) => {
                    let unused = counts.published.saturating_sub(used);
                    let unpublished = counts.addresses_free.saturating_sub(unused);
                    vec![("used", used), ("unused", unused), ("unpublished", unpublished)]
                }
                None => vec![("published", counts.published), ("unpublished", counts.addresses_free)],
            };
            states
                .into_iter()
                .map(move |(state, value)| ([("pool", pool), ("family", family), ("state", state)], value))
        }),
    )?;
    gauges(
        encoder,
        "pool_nodes",
        "Nodes that a pool selects by state",
        pools().flat_map(|(pool, counts)| {
            let nodes = counts.tally.nodes;
            [
                ("served", nodes.served),
                ("waiting", nodes.waiting),
                ("pending", nodes.selected.saturating_sub(nodes.served.saturating_add(nodes.waiting))),
            ]
            .map(|(state, value)| ([("pool", pool), ("state", state)], value))
        }),
    )?;
    let want_growth = pools().map(|(pool, counts)| ([("pool", pool)], counts.tally.nodes.want_growth));
    gauges(
        encoder,
        "pool_nodes_wanting_growth",
        "Served nodes of a pool that need another block while none is free",
        want_growth,
    )?;
    gauges_in(
        encoder,
        "pool_oldest_wait",
        Some(&Unit::Seconds),
        "How long the node waits that waits longest for a block of a pool, by need; 0 if none waits",
        pools().flat_map(|(pool, counts)| {
            Need::ALL.map(|need| {
                let since = counts.waits_since.get(&need).copied().unwrap_or(now);
                let seconds = now.duration_since(since).as_secs();
                ([("pool", pool), ("need", need.as_str())], u64::try_from(seconds).unwrap_or_default())
            })
        }),
    )?;
    gauges(
        encoder,
        "pool_nodes_without_addresses",
        "Nodes that a pool selects and that have no address for pods, by reason",
        pools().flat_map(|(pool, counts)| {
            // Few pools have such nodes, and a thousand may have none.
            let some = counts.without_addresses.iter().filter(|(_, n)| **n > 0);
            some.map(move |(lack, n)| ([("pool", pool), ("reason", lack.as_str())], *n))
        }),
    )?;
    gauges(
        encoder,
        "pool_condition",
        "Conditions of a pool: 1 if the status is True; 0 is shown for Ready and Exhausted only",
        pools().flat_map(|(pool, counts)| {
            let is_shown = |(condition, holds): &(&ConditionType, &bool)| {
                **holds || matches!(condition, ConditionType::Ready | ConditionType::Exhausted)
            };
            counts.conditions.iter().filter(is_shown).map(move |(condition, holds)| {
                ([("pool", pool), ("condition", condition.as_str())], u64::from(*holds))
            })
        }),
    )
}

/// Encodes one gauge without a unit, with all its series; nothing if it has none.
pub(super) fn gauges<'a, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl Iterator<Item = ([(&'a str, &'a str); N], u64)>,
) -> Result<(), std::fmt::Error>
where
    [(&'a str, &'a str); N]: EncodeLabelSet,
{
    gauges_in(encoder, name, None, help, series)
}

/// Encodes one gauge in a unit, which becomes the end of its name.
fn gauges_in<'a, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    unit: Option<&Unit>,
    help: &str,
    series: impl Iterator<Item = ([(&'a str, &'a str); N], u64)>,
) -> Result<(), std::fmt::Error>
where
    [(&'a str, &'a str); N]: EncodeLabelSet,
{
    let mut series = series.peekable();
    if series.peek().is_none() {
        return Ok(());
    }
    // The registry adds the prefix to the name, but no period to the help text as it does for its own metrics.
    let mut metric = encoder.encode_descriptor(name, &format!("{help}."), unit, MetricType::Gauge)?;
    for (labels, value) in series {
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}
