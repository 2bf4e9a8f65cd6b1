//! The store is restored from a backup, and people do what `docs/operations.md` asks for around that: no controller runs
//! meanwhile, and none starts before every agent has written its status.

use std::net::IpAddr;

use cilium_node_ipam::model::claim::Claim;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::net::cidr::Cidr;
use cilium_node_ipam::publisher::carried_by_cilium_node;

use super::super::agent::Agent;
use super::super::mode::{blocks, offered};
use super::Cluster;

impl Cluster {
    /// The store is as it was after `part` of 256 parts of all its revisions.
    pub(super) fn store_is_restored(&mut self, part: u8) {
        let at = 1 + (self.store.revision().number() - 1) * u64::from(part) / 256;
        self.store.restore(at);
        // What was broken later is not in the backup.
        self.broken.retain(|broken| broken.at <= at);
        self.strays.clear();
        let machines: Vec<NodeName> = self.agents.keys().cloned().collect();
        for name in &machines {
            if !self.lost.contains_key(name) {
                // Its kubelet makes the Node again, and its agent the CiliumNode.
                self.joins(name, 0, None);
            }
            Agent::start(&mut self.store, name);
            if let Some(agent) = self.agents.get_mut(name) {
                agent.report_all(&mut self.store, name);
            }
            self.show_pod(name);
        }
        for name in &machines {
            self.excuse_what_is_not_as_it_was(name);
            self.disturb_what_is_not_carried(name);
            self.excuse_what_agents_keep(name);
        }
        self.excuse_what_others_gave_before();
        for number in 0..self.replicas.len() {
            drop(self.replicas[number].restart(self.clock, self.store.revision(), self.mode));
        }
        self.forget_what_is_hidden();
    }

    /// The backup may have the claim of a block and not yet its addresses, or marks of a drain that has ended since. An
    /// agent that starts again before that is undone restores no pod that has such an address, and nobody is to restart it
    /// (`docs/operations.md`, Restoring etcd).
    fn disturb_what_is_not_carried(&mut self, name: &NodeName) {
        let Some(agent) = self.agents.get(name) else { return };
        let present = self.store.carrier(name);
        let is_open = |address: &&IpAddr| {
            present.as_ref().is_some_and(|seen| {
                offered(seen).contains(**address) && !seen.crd.marks.contains_key(*address)
            })
        };
        let missing = agent.held().iter().filter(|address| !is_open(address));
        self.excuses.disturbed.extend(missing.map(|address| (name.clone(), *address)));
    }

    /// An agent that has whole blocks has them still, and writes back those that the backup does not show. It does so even
    /// with one that it has given back, as long as its CiliumNode is not there to tell it otherwise.
    fn excuse_what_agents_keep(&mut self, name: &NodeName) {
        let Some(agent) = self.agents.get(name) else { return };
        let is_claimed = |cidr: &Cidr| {
            // The node may have had it under another name when the backup was taken, which is listed too then (known gaps).
            let is_elsewhere = |claim: &Claim| {
                claim.pod_ip_pool.as_ref().is_some_and(|of| agent.has_under_another(*cidr, of.as_str()))
            };
            let is_sound = |claim: &Claim| {
                claim.node == *name && claim.is_published_state() && !claim.is_going() && !is_elsewhere(claim)
            };
            // Of two that overlap, which somebody made by hand, the other one may be carried in the backup.
            let is_another = |other: &Claim| other.cidr != *cidr && other.cidr.overlaps(*cidr);
            self.store.claim(*cidr).is_some_and(is_sound) && !self.store.claims().any(is_another)
        };
        let kept = agent.keeps().into_iter().chain(agent.has_given_back());
        let kept: Vec<_> = kept.map(|cidr| (name.clone(), cidr)).collect();
        let (claimed, unclaimed): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(_, cidr)| is_claimed(cidr));
        self.excuses.forgotten.extend(unclaimed.iter().cloned());
        self.excuses.foreign.extend(unclaimed);
        // Where agents say nothing of what they use, a claim of before its publication is like any that was never published,
        // and may give way to one that overlaps it (known gaps).
        if self.setting.mode.gives_one_block() {
            let shown = self.store.carrier(name).map(|seen| blocks(&seen)).unwrap_or_default();
            let hidden = claimed.into_iter().filter(|(_, cidr)| !shown.contains(cidr));
            self.excuses.forgotten.extend(hidden);
        }
    }

    /// Pods that got their addresses after the backup was taken. Where the backup gives such an address to another node,
    /// nothing can help them. Otherwise it is in `used`, and nobody else gets it.
    fn excuse_what_is_not_as_it_was(&mut self, name: &NodeName) {
        let Some(agent) = self.agents.get(name) else { return };
        // A machine whose Node was deleted and that runs on has nothing to report to, nor has one whose Node or CiliumNode
        // can't be read: it goes on with all that it had.
        let is_lost = self.lost.contains_key(name);
        let is_mute = is_lost || self.store.cilium_node(name).is_none();
        let unused = agent.pool().into_iter().filter(|_| is_mute);
        for address in agent.held().iter().copied().chain(unused) {
            let cidr = Cidr::single(address);
            let is_of = |node: &NodeName| node == name;
            // One that only the finalizer of somebody else keeps is given to nobody again.
            let claims: Vec<&Claim> = self
                .store
                .claims()
                .filter(|claim| claim.cidr.contains(address) && !claim.is_going())
                .collect();
            let is_carried_elsewhere = self
                .store
                .cilium_nodes()
                .any(|seen| !is_of(&seen.name) && carried_by_cilium_node(seen).contains(address));
            // The backup may have an earlier claim of the node, which does not offer the address, or is on its way out.
            let offers = |claim: &Claim| claim.is_published_state() && !claim.withheld.contains(address);
            let is_its_own = claims.iter().any(|claim| is_of(&claim.node) && offers(claim));
            if is_its_own && !is_carried_elsewhere {
                continue;
            }
            // Where nothing says what is used, nobody knows of it any more (known gaps).
            let elsewhere = is_mute
                || self.setting.mode.gives_one_block()
                || claims.iter().any(|claim| !is_of(&claim.node))
                || is_carried_elsewhere
                // An object that can't be read may say so too.
                || self.store.names(Kind::Claim).len() != self.store.claims().count();
            self.excuses.foreign.insert((name.clone(), cidr));
            if elsewhere {
                self.excuses.forgotten.insert((name.clone(), cidr));
            }
        }
    }
}
