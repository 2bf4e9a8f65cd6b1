//! Tests of the text that `/metrics` serves.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::model::finding::FindingKind;
use crate::model::freeze::Freeze;
use crate::model::names::PoolName;
use crate::model::observation::{Listing, Object, Observation};
use crate::model::outcome::{Answer, Seen};
use crate::model::request::{Read, Request};
use crate::model::revision::AnyRevision;
use crate::model::time::Timestamp;
use crate::net::cidr::Family;
use crate::publisher::Publisher;
use crate::publisher::crd::Crd;
use crate::publisher::mode::Mode;
use crate::view::forecast::LEAST;
use crate::view::snapshot::snapshot;
use crate::wire::watched::{Watched, Wire};
use crate::wire::{CiliumNodes, Claims, Nodes, Pools};
use crate::world::gather::Gathering;

/// A metric as it is served.
#[derive(Debug, Default)]
pub(crate) struct Described {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) unit: Option<String>,
    /// Its labels with all their values.
    pub(crate) labels: BTreeMap<String, BTreeSet<String>>,
}

fn object<W: Wire>(json: &str) -> Object {
    serde_json::from_str::<Watched<W>>(json).unwrap().into_object()
}

/// A pool of two families; a node whose CiliumNode carries one block and uses an address that its pool lacks; a claim
/// in a range that the pool does not have; and an object that can't be read.
pub(crate) fn world() -> crate::world::World {
    let held = r#""state":"Held""#;
    let cooling = r#""state":"Cooling","reason":"NodeGone""#;
    let claim = |name: &str, cidr: &str, state: &str| {
        object::<Claims>(&format!(
            r#"{{"metadata":{{"name":"{name}","uid":"c","resourceVersion":"5","creationTimestamp":"2026-01-01T00:00:00Z"}},
            "spec":{{"cidr":"{cidr}","pool":"beijing","node":"node-7","nodeUID":"n","excluded":[],{state},
            "since":"2026-01-01T00:00:00Z"}}}}"#
        ))
    };
    let pool = r#"{"metadata":{"name":"beijing","uid":"p","resourceVersion":"5","creationTimestamp":"2026-01-01T00:00:00Z"},
        "spec":{"ipv4":{"blockSize":30,"cidrs":[{"cidr":"10.0.0.0/28"},{"cidr":"10.0.1.0/29","state":"Cordoned"}]},"ipv6":{"blockSize":122,"cidrs":[{"cidr":"fd00::/64"}]}},
        "status":{"ipv4":{"blocks":{"total":0,"held":0,"draining":0,"cooling":0,"free":0},"addresses":{"published":0,"free":0},
        "history":[{"time":"1970-01-01T00:00:00Z","onNodes":0}]}}}"#;
    let cilium_node = r#"{"metadata":{"name":"node-7","uid":"n","resourceVersion":"5"},
        "spec":{"ipam":{"podCIDRs":["10.0.0.0/30"],"pool":{"10.0.0.1":{}}}},
        "status":{"ipam":{"used":{"10.0.0.1":{},"10.0.0.2":{}}}}}"#;
    let kinds = [
        (Kind::Pool, vec![object::<Pools>(pool)]),
        (
            Kind::Node,
            vec![
                object::<Nodes>(r#"{"metadata":{"name":"node-7","uid":"n","resourceVersion":"5"}}"#),
                object::<Nodes>(r#"{"metadata":{"name":"node-8","uid":"n","resourceVersion":"5"}}"#),
            ],
        ),
        (
            Kind::Claim,
            vec![
                claim("10.0.0.0-30", "10.0.0.0/30", held),
                claim("10.0.0.4-30", "10.0.0.4/30", cooling),
                claim("10.9.0.0-30", "10.9.0.0/30", held),
                object::<Claims>(r#"{"metadata":{"name":"bad","uid":"b","resourceVersion":"5"},"spec":{}}"#),
            ],
        ),
        (Kind::CiliumNode, vec![object::<CiliumNodes>(cilium_node)]),
    ];
    let mut gathering = Gathering::default();
    for (kind, objects) in kinds {
        let listing =
            Listing { kind, at_least: AnyRevision::of(kind, 5), at_most: AnyRevision::of(kind, 5), objects };
        gathering.observe(Observation::Listed(listing));
    }
    gathering
        .set_mode(Mode::from(Publisher::Crd(Crd { families: BTreeSet::new(), infrastructure: Vec::new() })));
    gathering.set_freeze(Freeze::default());
    gathering.complete().unwrap()
}

fn shown() -> Snapshot {
    // A trend needs some time in which blocks were granted.
    let now = Timestamp::UNIX_EPOCH + LEAST;
    snapshot(&world(), [FindingKind::UnreadableObject].into_iter(), now)
}

fn metrics() -> Metrics {
    let metrics = Metrics::default();
    metrics.publish(shown());
    metrics
}

fn text() -> String {
    metrics().text()
}

/// The lines of a text that start with this prefix, without it.
fn lines_of<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(prefix)).collect()
}

/// The texts of a process that serves, and of one that does not, for each reason.
fn text_of_every_reason() -> String {
    let metrics = metrics();
    for reason in EventReason::all() {
        for fate in EventFate::ALL {
            metrics.event(reason, fate);
        }
    }
    let pool = PoolName::from("beijing");
    // Some series are shown only for problems.
    let mut snapshot = shown();
    for pool in snapshot.pools.values_mut() {
        pool.without_addresses.values_mut().for_each(|n| *n = 1);
        pool.conditions.values_mut().for_each(|holds| *holds = true);
    }
    metrics.publish(snapshot);
    for reason in GrantReason::ALL {
        metrics.block_granted(&pool, reason);
    }
    for reason in ReturnReason::ALL {
        metrics.block_returned(&pool, reason);
    }
    drop(metrics.api_requests().begins(None));
    let reasons = std::iter::once(None).chain(NotServing::ALL.map(Some));
    let texts = reasons.map(|reason| {
        metrics.set_serving(reason);
        metrics.text()
    });
    texts.collect()
}

/// Every metric that is served, by name.
pub(crate) fn described() -> BTreeMap<String, Described> {
    let text = text_of_every_reason();
    let mut described: BTreeMap<String, Described> = BTreeMap::new();
    let mut last = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "EOF"] => {}
            ["#", "HELP", name, help] => {
                name.clone_into(&mut last);
                described.entry(last.clone()).or_default().help = help.to_owned();
            }
            ["#", "TYPE", name, kind] => {
                assert_eq!(name, last);
                described.get_mut(&last).unwrap().kind = kind.to_owned();
            }
            ["#", "UNIT", name, unit] => {
                assert_eq!(name, last);
                described.get_mut(&last).unwrap().unit = Some(unit.to_owned());
            }
            _ => {
                let Some((_, labels)) = line.split_once('{') else { continue };
                let (labels, _) = labels.split_once('}').unwrap();
                for pair in labels.split("\",").filter(|pair| !pair.starts_with("le=")) {
                    let (label, value) = pair.split_once("=\"").unwrap();
                    let values = described.get_mut(&last).unwrap().labels.entry(label.to_owned());
                    values.or_default().insert(value.trim_end_matches('"').to_owned());
                }
            }
        }
    }
    // The name of a counter as it is asked for.
    described
        .into_iter()
        .map(|(name, metric)| match metric.kind.as_str() {
            "counter" => (format!("{name}_total"), metric),
            "info" => (format!("{name}_info"), metric),
            _ => (name, metric),
        })
        .collect()
}

#[test]
fn names_units_and_labels_follow_the_conventions() {
    const LABELS: [&str; 17] = [
        "class",
        "cidr",
        "verb",
        "code",
        "switch",
        "need",
        "pool",
        "family",
        "state",
        "condition",
        "kind",
        "outcome",
        "reason",
        "support",
        "release",
        "version",
        "le",
    ];
    let described = described();
    assert!(described.len() > 15);
    for (name, metric) in described {
        let rest = ["cilium_node_ipam_", "process_"].iter().find_map(|prefix| name.strip_prefix(prefix));
        let rest = rest.unwrap_or_default();
        let is_snake = rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(is_snake && !rest.is_empty(), "{name}");
        assert_eq!(metric.kind == "counter", name.ends_with("_total"), "{name} is a {}", metric.kind);
        let unit =
            ["seconds", "bytes"].into_iter().find(|unit| name.trim_end_matches("_total").ends_with(unit));
        assert_eq!(metric.unit.as_deref(), unit, "{name}");
        assert!(metric.kind != "histogram" || unit.is_some(), "{name} measures without a unit");
        for forbidden in ["milli", "micro", "_ms", "percent", "_ratio"] {
            assert!(!name.contains(forbidden), "{name} is in no base unit");
        }
        let starts_well = metric.help.starts_with(|first: char| first.is_ascii_uppercase());
        assert!(
            starts_well && metric.help.ends_with('.') && !metric.help.ends_with(".."),
            "{name}: {}",
            metric.help
        );
        for label in metric.labels.keys() {
            assert!(LABELS.contains(&label.as_str()), "{name} has the label {label}");
        }
    }
}

#[test]
fn no_node_is_named() {
    let text = text();
    assert!(text.contains("beijing"));
    assert!(!text.contains("node-7"), "{text}");
}

#[test]
fn parts_sum_up_to_their_whole_whatever_the_objects_say() {
    let text = text();
    let mut shown = lines_of(&text, "cilium_node_ipam_");
    shown.retain(|line| {
        let names = ["pool_blocks{", "pool_addresses{", "pool_nodes", "nodes{", "unreadable_objects{"];
        names.iter().any(|name| line.starts_with(name)) && !line.contains("ipv6")
    });
    assert_eq!(
        shown.join("\n"),
        "\
pool_blocks{pool=\"beijing\",family=\"ipv4\",state=\"held\"} 2
pool_blocks{pool=\"beijing\",family=\"ipv4\",state=\"draining\"} 0
pool_blocks{pool=\"beijing\",family=\"ipv4\",state=\"cooling\"} 1
pool_blocks{pool=\"beijing\",family=\"ipv4\",state=\"free\"} 2
pool_blocks{pool=\"beijing\",family=\"ipv4\",state=\"unavailable\"} 0
pool_addresses{pool=\"beijing\",family=\"ipv4\",state=\"used\"} 1
pool_addresses{pool=\"beijing\",family=\"ipv4\",state=\"unused\"} 0
pool_addresses{pool=\"beijing\",family=\"ipv4\",state=\"unpublished\"} 4
pool_nodes{pool=\"beijing\",state=\"served\"} 1
pool_nodes{pool=\"beijing\",state=\"waiting\"} 0
pool_nodes{pool=\"beijing\",state=\"pending\"} 1
pool_nodes_wanting_growth{pool=\"beijing\"} 0
pool_nodes_without_addresses{pool=\"beijing\",reason=\"no_carrier\"} 1
nodes{state=\"unselected\"} 0
nodes{state=\"waiting\"} 0
nodes{state=\"served\"} 1
nodes{state=\"pending\"} 1
nodes{state=\"not_linux\"} 0
unreadable_objects{kind=\"Node\"} 0
unreadable_objects{kind=\"CiliumNode\"} 0
unreadable_objects{kind=\"NodeIPPool\"} 0
unreadable_objects{kind=\"NodeIPBlock\"} 1"
    );
}

#[test]
fn the_room_and_the_forecast_of_a_pool_are_shown_by_family() {
    let text = text();
    let mut shown = lines_of(&text, "cilium_node_ipam_pool_");
    shown.retain(|line| line.starts_with("room") || line.starts_with("full_in"));
    // Of IPv4 two blocks were granted in half an hour, and two are free and one cools. They have 2 addresses each, and a
    // node without any asks for 8.
    assert_eq!(
        shown,
        [
            "room_nodes{pool=\"beijing\",family=\"ipv4\"} 0",
            "room_nodes{pool=\"beijing\",family=\"ipv6\"} 9007199254740991",
            "full_in_seconds{pool=\"beijing\",family=\"ipv4\"} 10800",
        ]
    );
}

#[test]
fn the_blocks_of_a_cidr_that_gives_out_none_are_shown_by_state() {
    let series = |state: &str| format!("{{pool=\"beijing\",cidr=\"10.0.1.0/29\",state=\"{state}\"}} 0");
    let text = text();
    let shown = lines_of(&text, "cilium_node_ipam_pool_cidr_blocks");
    assert_eq!(shown, ["held", "draining", "cooling"].map(series));
}

#[test]
fn writes_are_counted_by_kind_and_outcome() {
    let metrics = Metrics::default();
    let node = || Request::Read(Read::CiliumNode("node-7".into()));
    let in_flight = metrics.write_starts();
    assert!(metrics.text().contains("cilium_node_ipam_writes_in_flight 1\n"));
    let outcome = Outcome { request: node(), answer: Answer::Unknown(String::new()), seen: Seen::Nothing };
    metrics.write_finished(RequestKind::from(&node()), &outcome, Duration::from_millis(3));
    drop(in_flight);
    let text = metrics.text();
    for line in [
        "cilium_node_ipam_writes_in_flight 0",
        "cilium_node_ipam_writes_total{kind=\"read_ciliumnode\",outcome=\"unknown\"} 1",
        "cilium_node_ipam_write_duration_seconds_count{kind=\"read_ciliumnode\"} 1",
        "cilium_node_ipam_write_duration_seconds_bucket{le=\"0.002\",kind=\"read_ciliumnode\"} 0",
        "cilium_node_ipam_write_duration_seconds_bucket{le=\"0.004\",kind=\"read_ciliumnode\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn series_are_in_the_order_of_their_labels_and_events_without_a_count_are_left_out() {
    let metrics = Metrics::default();
    for reason in [
        EventReason::Finding(FindingKind::NoPool),
        EventReason::Finding(FindingKind::Blocked),
        EventReason::Passive,
    ] {
        metrics.event(reason, EventFate::Created);
    }
    assert_eq!(
        lines_of(&metrics.text(), "cilium_node_ipam_events_total{reason="),
        [
            "\"Blocked\",outcome=\"created\"} 1",
            "\"NoPool\",outcome=\"created\"} 1",
            "\"Passive\",outcome=\"created\"} 1",
        ]
    );
    assert_eq!(
        Metrics::default().text().lines().filter(|line| line.contains("node_ipam")).collect::<Vec<_>>(),
        Metrics::default().text().lines().filter(|line| line.contains("node_ipam")).collect::<Vec<_>>(),
        "every process shows the same order"
    );
}

#[test]
fn blocks_are_counted_by_pool_and_reason_as_long_as_the_pool_exists() {
    let metrics = metrics();
    for name in ["beijing", "gone"] {
        metrics.block_granted(&PoolName::from(name), GrantReason::First);
        metrics.block_granted(&PoolName::from(name), GrantReason::Adopted);
        metrics.block_returned(&PoolName::from(name), ReturnReason::NodeGone);
    }
    metrics.publish(snapshot(&world(), std::iter::empty(), Timestamp::UNIX_EPOCH));
    assert_eq!(
        lines_of(&metrics.text(), "cilium_node_ipam_blocks_"),
        [
            "granted_total{pool=\"beijing\",reason=\"adopted\"} 1",
            "granted_total{pool=\"beijing\",reason=\"first\"} 1",
            "returned_total{pool=\"beijing\",reason=\"node_gone\"} 1",
        ]
    );
}

#[test]
fn conditions_that_do_not_hold_are_left_out_but_for_the_two_of_the_alerts() {
    let text = text();
    let shown = lines_of(&text, "cilium_node_ipam_pool_condition");
    let series = |(condition, value)| format!("{{pool=\"beijing\",condition=\"{condition}\"}} {value}");
    assert_eq!(shown, [("Ready", 1), ("Exhausted", 0)].map(series));
}

/// A scrape of a thousand pools with names of a usual length, and numbers as 5,000 nodes have them.
fn scrape_of_1000_pools(families: &[Family]) -> String {
    let (metrics, mut snapshot) = (Metrics::default(), shown());
    let mut of_pool = snapshot.pools.remove(&PoolName::from("beijing")).unwrap();
    of_pool.tally.families.retain(|family, _| families.contains(family));
    of_pool.closed.clear();
    for counts in of_pool.tally.families.values_mut() {
        (counts.held, counts.free, counts.published, counts.addresses_free) = (1234, 4321, 12345, 65432);
    }
    of_pool.usual_blocks = of_pool.tally.families.clone();
    of_pool.full_in = families.iter().map(|family| (*family, Duration::from_secs(1_234_567))).collect();
    for number in 0..1000 {
        let name = PoolName::from(format!("region-1-rack-{number:04}").as_str());
        metrics.block_granted(&name, GrantReason::ALL[0]);
        metrics.block_returned(&name, ReturnReason::ALL[0]);
        snapshot.pools.insert(name, of_pool.clone());
    }
    metrics.publish(snapshot);
    let start = std::time::Instant::now();
    let text = metrics.text();
    println!(
        "{families:?}: {} KiB, {} lines, {:?}",
        text.len() / 1024,
        text.lines().count(),
        start.elapsed()
    );
    text
}

#[test]
fn a_scrape_of_1000_pools_is_below_2_mib() {
    let [one, two] = [&[Family::V4][..], &Family::ALL].map(|families| scrape_of_1000_pools(families).len());
    assert!(one < 2 * 1024 * 1024, "{one} bytes");
    assert!(two < 3 * 1024 * 1024, "{two} bytes of two families");
}
