//! Cilium's agent on one node, as far as addresses go: it sees its CiliumNode late, takes addresses out of `pool`
//! for pods, and writes `used` later still.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cilium_node_ipam::model::crd::ReleaseMark;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::request::NewCiliumNode;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::wire::cilium_node::new_cilium_node;
use serde_json::{Map, Value, json};

use super::store::Store;

/// One agent and the addresses of its pods.
#[derive(Debug, Default)]
pub(super) struct Agent {
    /// What it knows of its CiliumNode.
    pub(super) pool: AddressSet,
    owners: BTreeMap<IpAddr, String>,
    marks: BTreeMap<IpAddr, ReleaseMark>,
    /// How many pods want an address.
    pub(super) pods: usize,
    /// The addresses that pods have, and its own.
    pub(super) held: BTreeSet<IpAddr>,
}

impl Agent {
    /// Creates the CiliumNode where there is none.
    pub(super) fn start(store: &mut Store, name: &NodeName) {
        let Some(node) = store.node(name) else { return };
        let new = NewCiliumNode {
            node: name.clone(),
            node_uid: node.uid.clone(),
            labels: node.labels.clone(),
            addresses: node.addresses.clone(),
        };
        // It takes the one that is there.
        drop(store.create(Kind::CiliumNode, new_cilium_node(&new)));
    }

    /// Sees the present version of its CiliumNode. While there is none it goes on with what it had.
    pub(super) fn look(&mut self, store: &Store, name: &NodeName) {
        if let Some(seen) = store.cilium_node(name) {
            self.pool.clone_from(&seen.crd.pool);
            self.owners.clone_from(&seen.crd.owners);
            self.marks.clone_from(&seen.crd.marks);
        }
    }

    /// Starts and ends pods until as many run as are wanted, or no address is left; `from` varies which it takes.
    pub(super) fn schedule(&mut self, from: usize) {
        let own: Vec<IpAddr> = self.owners.keys().copied().collect();
        let is_pods = |address: &&IpAddr| !self.owners.contains_key(address);
        let running: Vec<IpAddr> = self.held.iter().filter(is_pods).copied().collect();
        for ended in running.iter().skip(self.pods) {
            self.held.remove(ended);
        }
        let free: Vec<IpAddr> = self
            .pool
            .iter()
            .filter(|address| !self.owners.contains_key(address) && !self.marks.contains_key(address))
            .filter(|address| !self.held.contains(address))
            .collect();
        let wanted = self.pods.saturating_sub(running.len());
        let (before, after) = free.split_at(if free.is_empty() { 0 } else { from % free.len() });
        self.held.extend(after.iter().chain(before).take(wanted));
        self.held.extend(own);
    }

    /// Writes `used`, and refuses to release what it was asked to.
    pub(super) fn report(&self, store: &mut Store, name: &NodeName) {
        if store.cilium_node(name).is_none() {
            return;
        }
        store.edit(Kind::CiliumNode, name.as_str(), |json| {
            let used: Map<String, Value> =
                self.held.iter().map(|address| (address.to_string(), json!({}))).collect();
            let ipam = &mut json["status"]["ipam"];
            ipam["used"] = Value::Object(used);
            for mark in ipam["release-ips"].as_object_mut().into_iter().flat_map(Map::values_mut) {
                if *mark == json!("marked-for-release") {
                    *mark = json!("do-not-release");
                }
            }
        });
    }

    /// Whether its CiliumNode waits for an answer of the agent.
    pub(super) fn is_awaited(store: &Store, name: &NodeName) -> bool {
        store.cilium_node(name).is_some_and(|seen| {
            seen.crd.used.is_none() && !seen.crd.pool.is_empty()
                || seen.crd.marks.values().any(|mark| *mark == ReleaseMark::Marked)
        })
    }
}
