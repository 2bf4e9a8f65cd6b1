//! Another allocator, or a person, gives a node its one CIDR of each family. These replace the CIDRs that its carrier
//! shows, if there are any.
//!
//! The other allocator gives nothing that another node has or is about to get. Every replica sees the new CIDRs before
//! it claims anything: nothing keeps two allocators apart that give the same at the same time.

use std::collections::BTreeSet;

use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::node::{Annotated, CiliumNode};
use cilium_node_ipam::model::request::{Request, Write};
use cilium_node_ipam::net::cidr::{Cidr, Family, address};
use cilium_node_ipam::publisher::static_mode::NodeField;
use serde_json::{Value, json};

use super::super::agent::{Agent, annotations_of};
use super::super::mode::{Mode, blocks};
use super::super::pools::place;
use super::super::rules;
use super::hands::Given;
use super::{Cluster, Suite, node_name, one_of};

impl Cluster {
    /// Another allocator gives a node CIDRs, in place of those on its carrier. In *Promises* it does so only if the
    /// node has nothing.
    pub(super) fn others_give(&mut self, node: u8, given: Given, at: u8, bits: u8) {
        let name = node_name(node);
        let Some(shown) = self.replaceable(&name) else { return };
        let Some(cidrs) = self.given(&name, given, at, bits) else { return };
        let is_first = self.has_nothing(&name, &shown);
        if !is_first && self.setting.suite == Suite::Promises {
            return;
        }
        let mode = self.store.mode_of(&name);
        let was_changed = match mode {
            Mode::ClusterPool => {
                let texts: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
                let set = |json: &mut Value| json["spec"]["ipam"]["podCIDRs"] = json!(texts);
                self.store.edit(Kind::CiliumNode, name.as_str(), set)
            }
            Mode::Kubernetes(NodeField::Spec) => self.gives_to_node(&name, &cidrs, shown.is_empty()),
            Mode::Kubernetes(NodeField::Annotations) => self.annotates(&name, &cidrs),
            Mode::Crd | Mode::MultiPool => false,
        };
        if was_changed {
            self.say(|| format!("    {name} has {cidrs:?} instead of {shown:?}"));
            if is_first {
                self.given.extend(cidrs.iter().map(|cidr| (name.clone(), *cidr)));
            } else {
                self.taint(&name);
            }
            let kind = mode.carrier_kind();
            for replica in &mut self.replicas {
                replica.hears_all_of(kind, &self.store);
            }
        }
    }

    /// Another writer removes all entries of a map. The agent keeps running, and waits when it restarts.
    pub(super) fn map_is_emptied(&mut self, name: &NodeName) {
        if self.store.mode_of(name) == Mode::Crd && !self.is_restoring(name) {
            self.store.edit(Kind::CiliumNode, name.as_str(), |json| {
                if let Some(ipam) = json.pointer_mut("/spec/ipam").and_then(Value::as_object_mut) {
                    ipam.remove("pool");
                }
            });
        }
    }

    /// The agent of a node that has nothing runs in another mode, and its CiliumNode shows that.
    pub(super) fn ran_before(&mut self, name: &NodeName, at: u8) {
        // Where nodes have several modes, agents come from one of these.
        if self.setting.modes != Mode::Crd.into() || self.store.node(name).is_none_or(|node| node.deleting) {
            return;
        }
        let Some(range) = foreign(Family::V4, at, 4).filter(|range| self.is_free_for(name, *range)) else {
            return;
        };
        let shown = self.store.cilium_node(name).map(blocks).unwrap_or_default();
        if !self.has_nothing(name, &shown) {
            return;
        }
        Agent::start(&mut self.store, name);
        self.runs(name);
        let was_changed = self.store.edit(Kind::CiliumNode, name.as_str(), |json| {
            json["spec"]["ipam"]["podCIDRs"] = json!([range.to_string()]);
            let router = json!({ "type": "CiliumInternalIP", "ip": range.last_address().to_string() });
            match json["spec"]["addresses"].as_array_mut() {
                Some(addresses) => addresses.push(router),
                None => json["spec"]["addresses"] = json!([router]),
            }
        });
        if let Some(agent) = self.agents.get_mut(name).filter(|_| was_changed) {
            agent.runs_in_another_mode(range);
            self.given.insert((name.clone(), range));
            self.show_pod(name);
        }
    }

    /// The CIDRs that the carrier of a node shows, if another allocator may replace them.
    fn replaceable(&self, name: &NodeName) -> Option<Vec<Cidr>> {
        let node = self.store.node(name).filter(|node| !node.deleting)?;
        let carrier = self.store.carrier(&node.name)?;
        let seen: &CiliumNode = carrier.as_ref();
        (self.store.mode_of(name).gives_one_block() && seen.malformed.is_empty() && !seen.deleting)
            .then(|| blocks(seen))
    }

    /// Writes the podCIDRs of a Node: once, because they never change. A Node that has some is recreated.
    fn gives_to_node(&mut self, name: &NodeName, cidrs: &[Cidr], is_first: bool) -> bool {
        let texts: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
        let set = |json: &mut Value| {
            json["spec"]["podCIDR"] = json!(texts[0]);
            json["spec"]["podCIDRs"] = json!(texts);
        };
        if is_first {
            return self.store.edit(Kind::Node, name.as_str(), set);
        }
        let Some(before) = self.store.stored(Kind::Node, name.as_str()).cloned() else { return false };
        // The finalizer of another writer may keep it.
        if !matches!(self.store.delete(Kind::Node, name.as_str(), None), Ok(None)) {
            return false;
        }
        let mut anew = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name.as_str(), "labels": before.json["metadata"]["labels"] },
            "status": before.json["status"],
        });
        set(&mut anew);
        self.store.create(Kind::Node, anew).is_ok()
    }

    /// Writes the annotations of a Node: one CIDR under both names, or a second one under the other.
    fn annotates(&mut self, name: &NodeName, cidrs: &[Cidr]) -> bool {
        self.store.edit(Kind::Node, name.as_str(), |json| {
            for family in Family::ALL {
                let of_family = || cidrs.iter().filter(|cidr| cidr.family() == family);
                let texts =
                    [of_family().next(), of_family().next_back()].map(|cidr| cidr.map(ToString::to_string));
                for (key, text) in annotations_of(family).into_iter().zip(texts) {
                    annotate(json, key, text);
                }
            }
        })
    }

    /// Removes the annotations of a Node that name one of these CIDRs.
    pub(super) fn annotations_go(&mut self, name: &NodeName, going: &BTreeSet<Cidr>) {
        if self.setting.modes.of_all != Mode::Kubernetes(NodeField::Annotations) {
            return;
        }
        let Some(node) = self.store.node(name) else { return };
        let is_terminating = |annotated: &&Annotated| going.contains(&annotated.cidr);
        let keys: Vec<&str> =
            node.annotated.iter().filter(is_terminating).map(|annotated| annotated.key).collect();
        self.store.edit(Kind::Node, name.as_str(), |json| {
            for key in keys {
                annotate(json, key, None);
            }
        });
    }

    /// The CIDRs that another allocator gives to a node, if no other node has them.
    fn given(&self, name: &NodeName, given: Given, at: u8, bits: u8) -> Option<Vec<Cidr>> {
        let block = |family: Family, at: u8| {
            let of_pools = self.store.pools().flat_map(|pool| rules::blocks_of(&self.store, pool, family));
            let free: Vec<Cidr> = of_pools.filter(|block| self.is_free_for(name, *block)).collect();
            one_of(at, free.len()).map(|at| free[at])
        };
        let mut cidrs = Vec::new();
        for family in &self.setting.families {
            let of_family = match given {
                Given::OneFamily if !cidrs.is_empty() => continue,
                Given::Blocks | Given::OneFamily => vec![block(*family, at)?],
                Given::TwoBlocks => vec![block(*family, at)?, block(*family, at.wrapping_add(1))?],
                Given::Anything => vec![Cidr::containing(place(*family, at), family.bits() - bits)?],
                Given::Foreign => vec![foreign(*family, at, bits)?],
            };
            cidrs.extend(of_family);
        }
        cidrs.dedup();
        cidrs.iter().all(|cidr| self.is_free_for(name, *cidr)).then_some(cidrs)
    }

    /// Every write that may still reach the server.
    fn writes_under_way(&self) -> impl Iterator<Item = &Write> {
        let in_flight = self.replicas.iter().flat_map(|replica| &replica.in_flight);
        let writes = in_flight.filter_map(|flight| match &flight.request {
            Request::Write(write) => Some(write),
            Request::Read(_) => None,
        });
        writes.chain(self.strays.iter().map(|stray| &stray.write))
    }

    /// Whether no other node has an address of a CIDR, or is about to get one.
    fn is_free_for(&self, name: &NodeName, cidr: Cidr) -> bool {
        let is_other = |other: &NodeName| other != name;
        let is_under_way = |write: &Write| match write {
            Write::CreateClaim(new) => new.cidr.overlaps(cidr),
            Write::Publish(publication) => {
                is_other(&publication.node) && publication.added.iter().any(|added| added.overlaps(cidr))
            }
            _ => false,
        };
        rules::is_nowhere_else(&self.store, name, cidr)
            && self.agents.iter().all(|(of, agent)| {
                !is_other(of)
                    || agent.keeps().iter().all(|kept| !kept.overlaps(cidr))
                        && agent.held().iter().all(|held| !cidr.contains(*held))
            })
            && !self.writes_under_way().any(is_under_way)
            && !self.given.iter().any(|(of, given)| is_other(of) && given.overlaps(cidr))
            && !self.taint.ranges.iter().any(|range| range.overlaps(cidr))
    }

    /// Whether a node has nothing and is about to get nothing: then the CIDRs of another allocator are its first.
    fn has_nothing(&self, name: &NodeName, shown: &[Cidr]) -> bool {
        let is_for_it = |write: &Write| match write {
            Write::CreateClaim(new) => new.node == *name,
            Write::Publish(publication) => publication.node == *name,
            _ => false,
        };
        let has_nothing = |agent: &Agent| agent.keeps().is_empty() && agent.held().is_empty();
        shown.is_empty()
            && self.store.claims_as_stored().all(|claim| claim.json["spec"]["node"] != name.as_str())
            && self.agents.get(name).is_none_or(has_nothing)
            && !self.writes_under_way().any(is_for_it)
    }
}

fn annotate(json: &mut Value, key: &str, text: Option<String>) {
    match text {
        Some(text) => json["metadata"]["annotations"][key] = json!(text),
        None => {
            if let Some(annotations) =
                json.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
            {
                annotations.remove(key);
            }
        }
    }
}

/// A CIDR that no pool ever has.
fn foreign(family: Family, at: u8, bits: u8) -> Option<Cidr> {
    let first: Cidr = match family {
        Family::V4 => "10.9.0.0/24",
        Family::V6 => "fd09::/120",
    }
    .parse()
    .ok()?;
    Cidr::containing(address(first.first() + u128::from(at)), family.bits() - bits)
}
