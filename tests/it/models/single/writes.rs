//! The writes by others than the agent.

use anyhow::{Context as _, Result};
use cilium_node_ipam::net::cidr::Family;
use serde_json::{Map, Value, json};

use super::super::version;
use super::Scene;
use crate::simulation::agent::bench::Bench;
use crate::support::objects::Kind;

/// An address in no pool: a mark of it is a usage query.
pub(super) const NOBODY: &str = "0.0.0.0";

/// A text that another writer may write in the place of a CIDR.
const NO_CIDR: &str = "none";

const FENCE: &str = "nodeipam.io/fenced";

/// Addresses of a block in crd mode.
const BLOCK: u64 = 8;

/// The part of a CiliumNode that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Object,
    Status,
}

impl Scene<'_> {
    pub(super) async fn writes(&mut self) -> Result<()> {
        match self.ipam {
            "crd" => self.writes_pool().await,
            "kubernetes" if self.annotates && self.machine.rng.bool() => self.annotates_node().await,
            "kubernetes" => self.writes_node().await,
            _ => {
                let cidrs = self.some_cidrs();
                self.patch(Part::Object, json!({"spec": {"ipam": {"podCIDRs": cidrs}}})).await
            }
        }
    }

    /// A few CIDRs, in any number and order.
    fn some_cidrs(&mut self) -> Vec<String> {
        let number = self.number;
        let mut cidrs: Vec<String> = (0..3).map(|n| format!("10.{number}.{n}.0/28")).collect();
        cidrs.extend([format!("10.{number}.3.0/29"), format!("10.{number}.4.0/30")]);
        cidrs.extend((1..3).map(|n| format!("fd00:{number}:{n}::/124")));
        self.machine.rng.shuffle(&mut cidrs);
        cidrs.truncate(self.machine.rng.usize(..=cidrs.len()));
        cidrs
    }

    /// The CIDRs of a Node are set once. Then a Node of the same name is recreated, with others or none.
    async fn writes_node(&mut self) -> Result<()> {
        let cidrs = self.some_cidrs();
        let is_v6 = |cidr: &&String| cidr.contains(':');
        // The server takes one of each family.
        let v4 = cidrs.iter().find(|cidr| !is_v6(cidr));
        let cidrs: Vec<&String> = v4.into_iter().chain(cidrs.iter().find(is_v6)).collect();
        let node = self.machine.rig.cluster.read(Kind::Node, &self.machine.name).await?;
        if !node.data["spec"]["podCIDRs"].is_null() {
            self.machine.loses_node().await?;
        }
        let Some(first) = cidrs.first() else { return Ok(()) };
        self.patch_node(json!({"spec": {"podCIDR": first, "podCIDRs": cidrs}})).await
    }

    /// Some annotations of the Node are added, changed or removed, under any names.
    async fn annotates_node(&mut self) -> Result<()> {
        let mut annotations = Map::new();
        for family in Family::ALL {
            for name in Bench::annotations_of(family) {
                let of_family = |cidr: &String| cidr.contains(':') == (family == Family::V6);
                let cidr = self.some_cidrs().into_iter().find(of_family);
                let text = match self.machine.rng.u8(..8) {
                    0..3 => cidr.map_or(Value::Null, Value::from),
                    3 => Value::Null,
                    4 => json!(NO_CIDR),
                    _ => continue,
                };
                annotations.insert(name.to_owned(), text);
            }
        }
        self.patch_node(json!({"metadata": {"annotations": annotations}})).await
    }

    async fn patch_node(&mut self, patch: Value) -> Result<()> {
        self.machine.say(&format!("onto the Node: {patch}"));
        self.machine.rig.cluster.patch(Kind::Node, &self.machine.name, patch.clone()).await?;
        self.machine.worlds.apply("a write onto the Node", |bench| {
            bench.patch_node(&patch);
            true
        })
    }

    async fn writes_pool(&mut self) -> Result<()> {
        let seen = self
            .machine
            .rig
            .cluster
            .object(Kind::CiliumNode, &self.machine.name)
            .context("its CiliumNode")?;
        let pool = seen.data["spec"]["ipam"]["pool"].as_object().cloned().unwrap_or_default();
        let number = self.number;
        let address = |n: u64| format!("10.{number}.{}.{}", n / BLOCK, n % BLOCK);
        let block = self.machine.rng.u64(..3);
        let any = address(self.machine.rng.u64(..3 * BLOCK));
        if pool.len() < 4 || self.machine.rng.u8(..6) == 0 {
            let entries: Value = (0..BLOCK).map(|n| (address(block * BLOCK + n), json!({}))).collect();
            return self.patch(Part::Object, json!({"spec": {"ipam": {"pool": entries}}})).await;
        }
        let owner = |owner: Value| json!({"spec": {"ipam": {"pool": {any.clone(): {"owner": owner}}}}});
        let is_kept = |name: &str| pool.values().any(|entry| entry["owner"] == name);
        match self.machine.rng.u8(..20) {
            0..4 => self.mark(&any, "marked-for-release").await,
            4 => self.mark(&any, "ready-for-release").await,
            5..7 => self.mark(&any, "released").await,
            7 => self.mark(&any, "do-not-release").await,
            8..11 => {
                self.patch(Part::Status, json!({"status": {"ipam": {"release-ips": {any: null}}}})).await
            }
            11..13 if pool.contains_key(&any) => self.patch(Part::Object, owner(json!(FENCE))).await,
            13 if pool.contains_key(&any) => self.patch(Part::Object, owner(Value::Null)).await,
            // Of two entries for one owner Cilium takes either.
            14 if pool.contains_key(&any) && !is_kept("router") => {
                self.patch(Part::Object, owner(json!("router"))).await
            }
            15 if pool.contains_key(&any) && !is_kept("health") => {
                self.patch(Part::Object, owner(json!("health"))).await
            }
            16 => {
                // The answer is lost if the agent has not written it before.
                self.mark(&any, "marked-for-release").await?;
                let touched =
                    json!({"metadata": {"annotations": {"example.com/touched": self.n_pods.to_string()}}});
                self.patch(Part::Object, touched).await
            }
            _ => {
                let entry = if pool.contains_key(&any) { Value::Null } else { json!({}) };
                self.patch(Part::Object, json!({"spec": {"ipam": {"pool": {any: entry}}}})).await
            }
        }
    }

    /// A new CiliumNode gets the addresses of the old one, or all but those of one block.
    pub(super) async fn gives_again(&mut self, before: &Value) -> Result<()> {
        let mut pool = before["spec"]["ipam"]["pool"].as_object().cloned().unwrap_or_default();
        let block = format!("10.{}.{}.", self.number, self.machine.rng.u64(..6));
        let is_left = |address: &String| !address.starts_with(&block);
        if pool.keys().filter(|address| is_left(address)).count() >= 4 {
            pool.retain(|address, _| is_left(address));
        }
        self.patch(Part::Object, json!({"spec": {"ipam": {"pool": pool}}})).await
    }

    pub(super) async fn mark(&mut self, address: &str, state: &str) -> Result<()> {
        self.patch(Part::Status, json!({"status": {"ipam": {"release-ips": {address: state}}}})).await
    }

    async fn patch(&mut self, part: Part, patch: Value) -> Result<()> {
        if !patch.to_string().contains(NOBODY) {
            self.machine.say(&patch.to_string());
        }
        let cluster = &self.machine.rig.cluster;
        let written = match part {
            Part::Object => cluster.patch(Kind::CiliumNode, &self.machine.name, patch.clone()).await?,
            Part::Status => cluster.patch_status(Kind::CiliumNode, &self.machine.name, patch.clone()).await?,
        };
        self.machine.written = version(&written);
        self.machine.worlds.apply(&patch.to_string(), |bench| {
            bench.patch(&patch);
            true
        })
    }
}
