//! The observable state of an agent, in one form for the model and for Cilium's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::simulation::agent::bench::Bench;

/// The observed state of an agent.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) object: Value,
    /// `None` where the agent can't be asked.
    pub(super) memory: Option<Memory>,
}

impl Seen {
    pub(super) fn is_of(&self, bench: &Bench) -> bool {
        let object = bench.object();
        let is_same = |memory: &Memory| *memory == memory_of_model(&bench.memory());
        pools_of(&object) == self.object && self.memory.as_ref().is_none_or(is_same)
    }
}

/// By Cilium pool. The order of CIDRs changes with each report; the first one shows when pods get addresses.
pub(super) type Memory = BTreeMap<String, OfPool>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OfPool {
    needed: u64,
    released: BTreeSet<String>,
    /// The number of used and of free addresses, and whether the CIDR was removed.
    cidrs: BTreeMap<String, (u64, u64, bool)>,
}

pub(super) fn memory(dump: &Value) -> Memory {
    let pools = dump["pools"].as_array().into_iter().flatten();
    of_pools(pools.map(|pool| (pool["pool"].as_str().unwrap_or_default(), pool)))
}

fn memory_of_model(memory: &Value) -> Memory {
    of_pools(memory.as_object().into_iter().flatten().map(|(name, pool)| (name.as_str(), pool)))
}

fn of_pools<'a>(pools: impl Iterator<Item = (&'a str, &'a Value)>) -> Memory {
    let mut memory = Memory::new();
    for (name, pool) in pools {
        let each = |field: &str| pool[field].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let cidr = |cidr: &Value| {
            let is_removed = cidr["removed"] == true;
            (text(&cidr["cidr"]), (number(&cidr["inUse"]), number(&cidr["free"]), is_removed))
        };
        let pool = OfPool {
            needed: number(&pool["needed"]["ipv4"]),
            released: each("released").iter().map(text).collect(),
            cidrs: each("cidrs").iter().map(cidr).collect(),
        };
        // It may or may not know a Cilium pool that it does not need and has no CIDR of.
        if pool != OfPool::default() {
            memory.insert(name.to_owned(), pool);
        }
    }
    memory
}

/// `spec.ipam.pools`, with empty lists for missing ones.
pub(super) fn pools_of(cilium_node: &Value) -> Value {
    let pools = &cilium_node["spec"]["ipam"]["pools"];
    let requested = pools["requested"].as_array().cloned().unwrap_or_default();
    let requested: Vec<Value> = requested
        .iter()
        .map(|entry| {
            let needed = if entry["needed"].is_null() { json!({}) } else { entry["needed"].clone() };
            json!({"pool": entry["pool"], "needed": needed})
        })
        .collect();
    let allocated: Vec<Value> = pools["allocated"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| json!({"pool": entry["pool"], "cidrs": entry["cidrs"].as_array().cloned().unwrap_or_default()}))
        .collect();
    json!({"requested": requested, "allocated": allocated})
}

/// The CIDRs by name.
pub(super) fn allocated(pools: &Value) -> BTreeMap<String, Vec<String>> {
    let entries = pools["allocated"].as_array().into_iter().flatten().map(|entry| {
        let cidrs = entry["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str);
        (entry["pool"].as_str().unwrap_or_default().to_owned(), cidrs.map(str::to_owned).collect())
    });
    entries.collect()
}
