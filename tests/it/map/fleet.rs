//! A cluster of any number of nodes, for pictures. Each 500 nodes have four pools: one is nearly full, one is
//! fragmented, one drains, and one has two families, foreign addresses, and a block on two nodes.

use std::collections::BTreeSet;

use cilium_node_ipam::model::claim::block_name;
use cilium_node_ipam::model::freeze::Freeze;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::observation::{Listing, Object, Observation};
use cilium_node_ipam::model::revision::AnyRevision;
use cilium_node_ipam::model::time::Timestamp;
use cilium_node_ipam::net::cidr::{Cidr, Family, address};
use cilium_node_ipam::publisher::Publisher;
use cilium_node_ipam::publisher::crd::Crd;
use cilium_node_ipam::publisher::mode::Mode;
use cilium_node_ipam::view::map::{Map, map};
use cilium_node_ipam::wire::watched::{Watched, Wire};
use cilium_node_ipam::wire::{CiliumNodes, Claims, Nodes, Pools};
use cilium_node_ipam::world::gather::Gathering;
use serde_json::{Map as Fields, Value, json};

/// The time of the pictures.
const AT: &str = "2026-11-25T12:00:00Z";

/// The map of a cluster of this many nodes.
pub(super) fn fleet(n_nodes: u32) -> Map {
    let mut objects = Objects { chance: fastrand::Rng::with_seed(17), ..Objects::default() };
    for row in 0..n_nodes.div_ceil(500) {
        let share = (n_nodes - row * 500).min(500) / 5;
        objects.compute(row, share * 2);
        objects.batch(row, share);
        objects.old(row, share);
        objects.edge(row, share);
    }
    let mut gathering = Gathering::default();
    for (kind, objects) in [
        (Kind::Pool, objects.pools),
        (Kind::Node, objects.nodes),
        (Kind::Claim, objects.claims),
        (Kind::CiliumNode, objects.cilium_nodes),
    ] {
        let at = AnyRevision::of(kind, 5);
        gathering.observe(Observation::Listed(Listing { kind, at_least: at, at_most: at, objects }));
    }
    let families = BTreeSet::from(Family::ALL);
    gathering.set_mode(Mode::from(Publisher::Crd(Crd { families, infrastructure: Vec::new() })));
    gathering.set_freeze(Freeze::default());
    let world = gathering.complete().expect("everything is listed");
    map(&world, &[], AT.parse::<Timestamp>().expect("a time"))
}

#[derive(Default)]
struct Objects {
    pools: Vec<Object>,
    nodes: Vec<Object>,
    claims: Vec<Object>,
    cilium_nodes: Vec<Object>,
    chance: fastrand::Rng,
}

/// The blocks and addresses of a CiliumNode.
#[derive(Default)]
struct Carried {
    pod_cidrs: Vec<String>,
    offered: Fields<String, Value>,
    used: Fields<String, Value>,
}

fn object<W: Wire>(object: &Value) -> Object {
    serde_json::from_str::<Watched<W>>(&object.to_string()).expect("it is an object").into_object()
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "uid": name, "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"})
}

/// The block with this number in a range.
fn block(range: &str, prefix: u8, number: u32) -> Cidr {
    let range: Cidr = range.parse().expect("a CIDR");
    let size = 1u128 << (range.family().bits() - prefix);
    Cidr::containing(address(range.first() + u128::from(number) * size), prefix).expect("a prefix")
}

fn named(kind: &str, row: u32) -> String {
    format!("{kind}-{row:02}")
}

impl Objects {
    fn pool(&mut self, name: &str, spec: &Value) {
        self.pools.push(object::<Pools>(&json!({"metadata": metadata(name), "spec": spec})));
    }

    fn claim(&mut self, cidr: Cidr, pool: &str, node: &str, state: &str) {
        let (state, reason) = state.split_once('/').map_or((state, None), |(state, why)| (state, Some(why)));
        let mut spec = json!({
            "cidr": cidr.to_string(), "pool": pool, "node": node, "nodeUID": node, "excluded": [], "state": state,
            "since": "2026-11-25T11:40:00Z",
        });
        if let Some(reason) = reason {
            spec["reason"] = reason.into();
        }
        if state == "Draining" {
            spec["ciliumNodeUID"] = node.into();
        }
        self.claims.push(object::<Claims>(&json!({"metadata": metadata(&block_name(cidr)), "spec": spec})));
    }

    /// A block that a node holds. Its agent uses at most this percentage of it.
    fn held(&mut self, cidr: Cidr, pool: &str, node: &str, state: &str, most: u128, on: &mut Carried) {
        self.claim(cidr, pool, node, state);
        on.pod_cidrs.push(cidr.to_string());
        let n_used = cidr.size() * self.chance.u128(0..=most) / 100;
        for index in 0..cidr.size() {
            let address = address(cidr.first() + index).to_string();
            if index < n_used {
                on.used.insert(address.clone(), json!({}));
            }
            on.offered.insert(address, json!({}));
        }
    }

    fn node(&mut self, name: &str, carried: &Carried) {
        self.nodes.push(object::<Nodes>(&json!({"metadata": metadata(name)})));
        self.cilium_nodes.push(object::<CiliumNodes>(&json!({
            "metadata": metadata(name),
            "spec": {"ipam": {"podCIDRs": carried.pod_cidrs, "pool": carried.offered}},
            "status": {"ipam": {"used": carried.used}},
        })));
    }

    /// A pool that is nearly full.
    fn compute(&mut self, row: u32, n_nodes: u32) {
        let (pool, range) = (named("compute", row), format!("10.{row}.0.0/19"));
        self.pool(&pool, &json!({"ipv4": {"blockSize": 27, "cidrs": [{"cidr": range}]}}));
        let mut next = 0;
        for index in 0..n_nodes {
            let (name, mut carried) = (format!("{pool}-{index:03}"), Carried::default());
            for _ in 0..=u32::from(self.chance.u8(0..4) == 0) {
                self.held(block(&range, 27, next), &pool, &name, "Held", 100, &mut carried);
                next += 1;
            }
            self.node(&name, &carried);
        }
    }

    /// A pool with gaps, cooling blocks in them, and exclusions.
    fn batch(&mut self, row: u32, n_nodes: u32) {
        let (pool, range) = (named("batch", row), format!("10.{row}.32.0/19"));
        let exclude = [format!("10.{row}.32.0/24"), format!("10.{row}.60.0/22")];
        self.pool(&pool, &json!({"ipv4": {"blockSize": 27, "cidrs": [{"cidr": range}], "exclude": exclude}}));
        for index in 0..n_nodes {
            let (name, mut carried) = (format!("{pool}-{index:03}"), Carried::default());
            let place = 8 + index * 2;
            self.held(block(&range, 27, place), &pool, &name, "Held", 80, &mut carried);
            if self.chance.u8(0..3) == 0 {
                let gone = format!("{pool}-{index:03}-gone");
                self.claim(block(&range, 27, place + 1), &pool, &gone, "Cooling/NodeGone");
            }
            self.node(&name, &carried);
        }
    }

    /// A pool that drains.
    fn old(&mut self, row: u32, n_nodes: u32) {
        let (pool, range) = (named("old", row), format!("10.{row}.64.0/20"));
        let cidrs = json!([
            {"cidr": range, "state": "Draining"}, {"cidr": format!("10.{row}.80.0/22"), "state": "Cordoned"}
        ]);
        self.pool(&pool, &json!({"ipv4": {"blockSize": 26, "cidrs": cidrs}}));
        for index in 0..n_nodes {
            let (name, mut carried) = (format!("{pool}-{index:03}"), Carried::default());
            if index < 48 {
                let state = ["Draining", "Held", "Draining"][self.chance.usize(0..3)];
                self.held(block(&range, 26, index), &pool, &name, state, 30, &mut carried);
            } else if index < 56 {
                self.claim(block(&range, 26, index), &pool, &name, "Releasing/Reclaimed");
            }
            self.node(&name, &carried);
        }
    }

    /// A pool of two families, with foreign addresses.
    fn edge(&mut self, row: u32, n_nodes: u32) {
        let (pool, range) = (named("edge", row), format!("10.{row}.96.0/19"));
        let six = format!("fd00:{:x}::/56", row + 1);
        self.pool(
            &pool,
            &json!({
                "ipv4": {"blockSize": 26, "cidrs": [{"cidr": range}]},
                "ipv6": {"blockSize": 122, "cidrs": [{"cidr": six}]},
            }),
        );
        for index in 0..n_nodes {
            let (name, mut carried) = (format!("{pool}-{index:03}"), Carried::default());
            self.held(block(&range, 26, index), &pool, &name, "Held", 100, &mut carried);
            self.held(block(&six, 122, index * 2), &pool, &name, "Held", 40, &mut carried);
            if row == 0 && index == 20 {
                let others = [format!("10.{row}.124.0/24"), block(&range, 26, 3).to_string()];
                carried.pod_cidrs.extend(others);
            }
            self.node(&name, &carried);
        }
    }
}
