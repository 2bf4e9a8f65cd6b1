//! Work comes only from events and from times that a decision named: the core, without a server.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cilium_node_ipam::model::freeze::Freeze;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::observation::{Listing, Object, Observation};
use cilium_node_ipam::model::outcome::{Answer, Outcome, Seen};
use cilium_node_ipam::model::request::{Request, Write};
use cilium_node_ipam::model::revision::AnyRevision;
use cilium_node_ipam::model::time::{Now, Timestamp};
use cilium_node_ipam::net::cidr::Family;
use cilium_node_ipam::plan::{self, Policy};
use cilium_node_ipam::publisher::mode::Mode;
use cilium_node_ipam::publisher::settings::{self, OwnAddresses};
use cilium_node_ipam::wire::watched::{Watched, Wire};
use cilium_node_ipam::wire::{CiliumNodes, Claims, Nodes, Pools};
use cilium_node_ipam::world::World;
use cilium_node_ipam::world::gather::Gathering;
use serde_json::{Value, json};

/// Longer than anything that could run on a timer.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

const POLICY: Policy = Policy { min_write_interval: Duration::ZERO, ..Policy::DEFAULT };

/// The counterpart of `one_change_of_used_leads_to_claim_and_patch`, which shows the same on a real API server.
#[test]
fn one_status_change_is_the_only_input_that_growth_needs() -> Result<()> {
    let mut world = quiet_world()?;
    let mut now = Now { uptime: Duration::ZERO, wall: Timestamp::UNIX_EPOCH };
    ensure!(decide(&mut world, now).is_empty(), "the world was meant to be quiet");
    // A whole year brings no decision and asks for none.
    ensure!(world.next_wake().is_none(), "something waits for {:?}", world.next_wake());
    now.uptime += YEAR;
    world.advance(now);
    ensure!(world.next_node().is_none(), "time alone put {:?} on the agenda", world.next_node());

    world.observe(applied::<CiliumNodes>(&cilium_node(21, 10))?);
    let claims = decide(&mut world, now);
    let [Request::Write(Write::CreateClaim(claim))] = &claims[..] else { bail!("one claim, not {claims:?}") };
    ensure!(claim.cidr.to_string() == "10.1.0.16/28", "the block beside its first, not {}", claim.cidr);

    let created = applied::<Claims>(&block("10.1.0.16/28", 22))?;
    let request = claims[0].clone();
    world.finish(Outcome { request, answer: Answer::Done, seen: Seen::Nothing }, now);
    world.observe(created);
    let patches = decide(&mut world, now);
    let [Request::Write(Write::Publish(patch))] = &patches[..] else { bail!("one patch, not {patches:?}") };
    ensure!(patch.n_addresses == 14, "{} addresses", patch.n_addresses);
    Ok(())
}

/// New capacity wakes waiting nodes: a node gets it at once, and needs no further event of its own.
/// (`new_capacity_serves_those_who_wait` shows on a real API server that the writes follow at once.)
#[test]
fn an_edit_of_the_pool_is_the_only_input_that_a_waiting_node_needs() -> Result<()> {
    let mut world = quiet_world()?;
    let mut now = Now { uptime: Duration::ZERO, wall: Timestamp::UNIX_EPOCH };
    world.observe(applied::<Pools>(&pool("10.1.0.0/28", 20))?);
    world.observe(applied::<CiliumNodes>(&cilium_node(21, 14))?);
    ensure!(decide(&mut world, now).is_empty(), "there is nothing to get");
    ensure!(world.next_wake().is_none(), "somebody looks again at {:?}", world.next_wake());
    now.uptime += YEAR;
    world.advance(now);
    ensure!(world.next_node().is_none(), "time alone put {:?} on the agenda", world.next_node());

    world.observe(applied::<Pools>(&pool("10.1.0.0/27", 22))?);
    let claims = decide(&mut world, now);
    let [Request::Write(Write::CreateClaim(claim))] = &claims[..] else { bail!("one claim, not {claims:?}") };
    ensure!(claim.cidr.to_string() == "10.1.0.16/28", "what was added, not {}", claim.cidr);
    Ok(())
}

/// Every decision that is due.
fn decide(world: &mut World, now: Now) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some(node) = world.next_node().cloned() {
        let plan = plan::node(world, &node, POLICY, now);
        world.begin(&plan, now);
        requests.extend(plan.into_requests());
    }
    requests
}

/// One pool, and one node that has a block of 14 addresses, two of them in use.
fn quiet_world() -> Result<World> {
    let pool = pool("10.1.0.0/24", 10);
    let node = json!({"metadata": {"name": "n", "uid": "node", "resourceVersion": "11"}});
    let mut gathering = Gathering::default();
    gathering.set_mode(Mode::from(settings::assumed(BTreeSet::from([Family::V4]), OwnAddresses::Kept)));
    gathering.set_freeze(Freeze::default());
    for object in [
        read::<Pools>(&pool)?,
        read::<Nodes>(&node)?,
        read::<Claims>(&block("10.1.0.0/28", 12))?,
        read::<CiliumNodes>(&cilium_node(13, 2))?,
    ] {
        ensure!(!matches!(object, Object::Unreadable(..)), "{object:?}");
        let kind = object.kind();
        let revision = AnyRevision::of(kind, 20);
        let listing = Listing { kind, at_least: revision, at_most: revision, objects: vec![object] };
        gathering.observe(Observation::Listed(listing));
    }
    let Ok(world) = gathering.complete() else { bail!("a list is missing") };
    ensure!(world.pool(&"p".into()).is_some(), "{:?}", world.pool_object(&"p".into()));
    ensure!(
        world.cilium_node(&NodeName::from("n")).is_some_and(|node| node.malformed.is_empty()),
        "malformed"
    );
    ensure!(world.unreadable(Kind::Claim, "10.1.0.0-28").is_none(), "the claim can't be read");
    Ok(world)
}

fn pool(cidr: &str, revision: u64) -> Value {
    json!({
        "metadata": {"name": "p", "uid": "pool", "resourceVersion": revision.to_string(), "generation": revision,
                     "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["nodeipam.io/pool"]},
        "spec": {"ipv4": {"blockSize": 28, "cidrs": [{"cidr": cidr}]}},
    })
}

/// The first block on its CiliumNode, with this number of its addresses in use.
fn cilium_node(revision: u64, used: u8) -> Value {
    let addresses = |count: u8| (1..=count).map(|last| format!("10.1.0.{last}"));
    let pool: serde_json::Map<_, _> = addresses(14)
        .map(|address| {
            let owner = match address.as_str() {
                "10.1.0.1" => json!({"owner": "router"}),
                "10.1.0.2" => json!({"owner": "health"}),
                _ => json!({}),
            };
            (address, owner)
        })
        .collect();
    let used: serde_json::Map<_, _> =
        addresses(used).map(|address| (address, json!({"owner": "ns/pod"}))).collect();
    json!({
        "metadata": {"name": "n", "uid": "cilium-node", "resourceVersion": revision.to_string()},
        "spec": {"ipam": {"podCIDRs": ["10.1.0.0/28"], "pool": pool}},
        "status": {"ipam": {"used": used}},
    })
}

fn block(cidr: &str, revision: u64) -> Value {
    let name = cidr.replace('/', "-");
    let (address, _) = cidr.split_once('/').unwrap_or_default();
    let first: u32 = address.parse().map_or(0, |address: std::net::Ipv4Addr| address.into());
    let ends = [first, first + 15].map(|address| std::net::Ipv4Addr::from(address).to_string());
    json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": revision.to_string(),
                     "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["nodeipam.io/claim"]},
        "spec": {"cidr": cidr, "pool": "p", "node": "n", "nodeUID": "node", "excluded": ends, "state": "Held",
                 "since": "2026-01-01T00:00:00Z"},
    })
}

fn applied<W: Wire>(object: &Value) -> Result<Observation> {
    Ok(Observation::Applied(Box::new(read::<W>(object)?)))
}

/// As the watch of the kind reads it.
fn read<W: Wire>(object: &Value) -> Result<Object> {
    let watched: Watched<W> = serde_json::from_str(&object.to_string()).context("an object")?;
    Ok(watched.into_object())
}
