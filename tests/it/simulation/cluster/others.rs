//! Somebody else gives a node its one CIDR of each family, as another allocator does or a person: where its carrier shows
//! none, or instead of what it shows.
//!
//! He gives nothing that another node has or is about to get, and every replica hears of it before it claims anything:
//! nothing keeps two allocators apart that give the same at the same time.

use std::collections::BTreeSet;

use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::node::{Annotated, CiliumNode};
use cilium_node_ipam::model::request::{Request, Write};
use cilium_node_ipam::net::cidr::{Cidr, Family, address};
use cilium_node_ipam::publisher::carried_by_cilium_node;
use cilium_node_ipam::publisher::static_mode::NodeField;
use serde_json::{Value, json};

use super::super::agent::{Agent, annotations_of};
use super::super::mode::{Mode, blocks};
use super::super::pools::place;
use super::super::rules;
use super::hands::Given;
use super::{Cluster, node_name, one_of};

impl Cluster {
    /// Somebody else gives a node CIDRs, in place of what its carrier shows.
    pub(super) fn others_give(&mut self, node: u8, given: Given, at: u8, bits: u8) {
        let name = node_name(node);
        let Some(shown) = self.replaceable(&name) else { return };
        let Some(cidrs) = self.given(&name, given, at, bits) else { return };
        let was_changed = match self.setting.mode {
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
            self.excuse_what_others_gave(&name, &shown, &cidrs);
            let kind = self.setting.mode.carrier_kind();
            for number in 0..self.replicas.len() {
                self.replicas[number].hears_all_of(kind, &self.store);
            }
        }
    }

    /// What the carrier of a node shows, if somebody else may give it CIDRs.
    fn replaceable(&self, name: &NodeName) -> Option<Vec<Cidr>> {
        let node = self.store.node(name).filter(|node| !node.deleting)?;
        let carrier = self.store.carrier(&node.name)?;
        let seen: &CiliumNode = carrier.as_ref();
        (self.setting.mode.gives_one_block() && seen.malformed.is_empty() && !seen.deleting)
            .then(|| blocks(seen))
    }

    /// Writes the podCIDRs of a Node: once, because they never change. A Node that has some is made anew.
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
        // Somebody's finalizer may keep it.
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

    /// Annotations that name one of these CIDRs go from a Node.
    pub(super) fn annotations_go(&mut self, name: &NodeName, going: &BTreeSet<Cidr>) {
        if self.setting.mode != Mode::Kubernetes(NodeField::Annotations) {
            return;
        }
        let Some(node) = self.store.node(name) else { return };
        let is_going = |annotated: &&Annotated| going.contains(&annotated.cidr);
        let keys: Vec<&str> = node.annotated.iter().filter(is_going).map(|annotated| annotated.key).collect();
        self.store.edit(Kind::Node, name.as_str(), |json| {
            for key in keys {
                annotate(json, key, None);
            }
        });
    }

    /// The CIDRs that somebody else gives to a node, if nobody else has them.
    fn given(&self, name: &NodeName, given: Given, at: u8, bits: u8) -> Option<Vec<Cidr>> {
        let block = |family: Family, at: u8| {
            let pools = self.store.pools().filter_map(|object| object.pool.as_ref().ok());
            let of_pools = pools.flat_map(|pool| rules::blocks_of(&self.store, pool, family));
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

    /// Whether no other node has any of a CIDR, nor is about to get it.
    fn is_free_for(&self, name: &NodeName, cidr: Cidr) -> bool {
        let is_other = |other: &NodeName| other != name;
        let is_under_way = |write: &Write| match write {
            Write::CreateClaim(new) => new.cidr.overlaps(cidr),
            Write::Publish(publication) => {
                is_other(&publication.node) && publication.added.iter().any(|added| added.overlaps(cidr))
            }
            _ => false,
        };
        let is_excused = |(of, excused): &(NodeName, Cidr)| is_other(of) && excused.overlaps(cidr);
        let excuses = &self.excuses;
        self.store.names(Kind::Claim).len() == self.store.claims().count()
            && self.store.claims().all(|claim| !claim.cidr.overlaps(cidr))
            && self
                .store
                .cilium_nodes()
                .all(|seen| !is_other(&seen.name) || !carried_by_cilium_node(seen).intersects(cidr))
            && self
                .store
                .carriers()
                .iter()
                .all(|seen| !is_other(&seen.name) || blocks(seen).iter().all(|theirs| !theirs.overlaps(cidr)))
            && self.agents.iter().all(|(of, agent)| {
                !is_other(of)
                    || agent.keeps().iter().all(|kept| !kept.overlaps(cidr))
                        && agent.held().iter().all(|held| !cidr.contains(*held))
            })
            && !self.writes_under_way().any(is_under_way)
            && !excuses.orphans.iter().chain(&excuses.foreign).chain(&excuses.forgotten).any(is_excused)
    }

    /// What a node got of somebody else is its own when there is a claim of it. What the node had from such a one before, or
    /// lost the claim of, is known to nobody any more; its claims stay, and which of them its agent has depends on whether it
    /// has started again since.
    fn excuse_what_others_gave(&mut self, name: &NodeName, shown: &[Cidr], cidrs: &[Cidr]) {
        let is_claimed = |cidr: Cidr| self.store.claim(cidr).is_some_and(|claim| claim.node == *name);
        let kept = self.agents.get(name).into_iter().flat_map(Agent::keeps);
        let had: Vec<Cidr> = shown.iter().copied().chain(kept).filter(|cidr| !cidrs.contains(cidr)).collect();
        let is_about_to_be = |write: &Write| matches!(write, Write::CreateClaim(new) if new.node == *name);
        if !had.is_empty()
            || self.store.claims().any(|claim| claim.node == *name)
            || self.writes_under_way().any(is_about_to_be)
        {
            self.excuses.given_by_hand.insert(name.clone());
        }
        let unclaimed: Vec<Cidr> = had.into_iter().filter(|cidr| !is_claimed(*cidr)).collect();
        self.excuses.forgotten.extend(unclaimed.into_iter().map(|cidr| (name.clone(), cidr)));
        let given = cidrs.iter().map(|cidr| (name.clone(), *cidr));
        self.given.extend(given.clone());
        self.excuses.foreign.extend(given);
    }

    /// What somebody else gave, and has become a claim, is like any other block.
    pub(super) fn take_over_what_others_gave(&mut self) {
        let store = &self.store;
        let is_taken_over =
            |name: &NodeName, cidr: Cidr| store.claim(cidr).is_some_and(|claim| claim.node == *name);
        for given in self.given.iter().filter(|(name, cidr)| is_taken_over(name, *cidr)) {
            self.excuses.foreign.remove(given);
        }
    }

    /// A backup may have what somebody else gave, and not its claim. Where the backup can't be read, it may show that later.
    pub(super) fn excuse_what_others_gave_before(&mut self) {
        let kind = self.setting.mode.carrier_kind();
        let shows = |name: &NodeName, cidr: Cidr| match self.store.carrier(name) {
            Some(seen) => blocks(&seen).contains(&cidr),
            None => self.store.stored(kind, name.as_str()).is_some(),
        };
        let given = self.given.iter().filter(|(name, cidr)| shows(name, *cidr)).cloned();
        self.excuses.foreign.extend(given.collect::<Vec<_>>());
        self.take_over_what_others_gave();
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
