//! What somebody hides: addresses of pods of which no object tells any more, after a hand took a block off a CiliumNode or
//! removed a claim by force.
//!
//! As long as a claim has the block, it tells of it. Of a claim that was removed only processes that run know: what is hidden
//! is excused when one begins later (known gaps).

use std::net::IpAddr;

use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::Cidr;
use cilium_node_ipam::publisher::carried_by_cilium_node;

use super::super::agent::Agent;
use super::super::mode::{Mode, blocks, offered};
use super::super::replica::Replica;
use super::Cluster;

impl Cluster {
    /// Somebody edited a CiliumNode that had `shown` these addresses.
    pub(super) fn hide_what_was_shown(&mut self, name: &NodeName, shown: &AddressSet) {
        let Some(seen) = self.store.cilium_node(name) else { return };
        // An agent that writes back what it has tells of it again, but may be slower than two processes that end.
        let mut gone = shown.clone();
        // What somebody else had put another block in the place of is hidden when that goes too.
        if self.setting.mode.can_be_replaced() {
            gone.extend_with(&self.agents.get(name).into_iter().flat_map(Agent::keeps).collect());
        }
        gone.remove_all(&carried_by_cilium_node(seen));
        self.hide(name, &gone, false);
        if let Some(agent) = self.agents.get(name) {
            let in_use = agent.has().filter(|address| gone.contains(*address));
            self.only_in_use.extend(in_use.map(|address| (name.clone(), address)));
        }
    }

    /// An agent starts again. Of addresses that somebody took off its CiliumNode, or that a restored store never had, only
    /// its use may tell, and it restores nothing of them, and writes its use without them.
    pub(super) fn forget_what_only_use_tells(&mut self, name: &NodeName) {
        if self.store.cilium_node(name).is_none() {
            return;
        }
        let is_shown = |address: IpAddr| {
            self.store.carrier(name).is_some_and(|seen| offered(&seen).contains(address))
                || self.store.claims().any(|claim| claim.node == *name && claim.cidr.contains(address))
        };
        let restored = self.excuses.foreign.iter().filter(|(of, cidr)| of == name && cidr.size() == 1);
        let restored = restored.map(|(_, cidr)| cidr.first_address());
        let taken = self.only_in_use.iter().filter(|(of, _)| of == name).map(|(_, address)| *address);
        let forgotten: Vec<IpAddr> = restored.chain(taken).filter(|address| !is_shown(*address)).collect();
        for address in forgotten {
            self.is_told_no_more(name, address, false);
        }
        // What an agent would have written back, the next one does not know.
        if self.setting.mode == Mode::MultiPool {
            let gone: AddressSet = self.agents.get(name).into_iter().flat_map(Agent::keeps).collect();
            self.hide(name, &gone, false);
        }
    }

    /// Somebody removed the claim of a block. A process that serves has seen it, or its watch will show both the claim and
    /// its end. Nobody recreates it for a Node that is gone, or where its end looks like one of ours (known gaps).
    pub(super) fn hide_what_was_claimed(&mut self, name: &NodeName, block: Cidr, may_be_ours: bool) {
        let is_recreated = self.store.node(name).is_some() && !may_be_ours;
        self.hide(name, &[block].into_iter().collect(), is_recreated);
    }

    /// Somebody made a claim for a node. Whoever takes the name of a claim that was removed from another node has its block
    /// (known gaps).
    pub(super) fn hand_over(&mut self, to: &NodeName, block: Cidr) {
        let names = self.excuses.orphans.iter().filter(|(of, cidr)| of != to && *cidr == block);
        let others: Vec<NodeName> = names.map(|(of, _)| of.clone()).collect();
        let hidden =
            self.hidden.iter().filter(|(of, address)| others.contains(of) && block.contains(*address));
        let hidden = hidden.map(|(of, address)| (of.clone(), Cidr::single(*address)));
        // One that a hand took off the CiliumNode as well is told of by nobody before its agent writes it back.
        let kept = others.iter().filter(|of| {
            let has = self.agents.get(*of).is_some_and(|agent| agent.keeps().contains(&block));
            has && !self
                .store
                .cilium_node(of)
                .is_some_and(|seen| carried_by_cilium_node(seen).intersects(block))
        });
        let kept = kept.map(|of| (of.clone(), block));
        self.excuses.forgotten.extend(hidden.chain(kept));
    }

    fn hide(&mut self, name: &NodeName, gone: &AddressSet, is_known: bool) {
        let Some(agent) = self.agents.get(name) else { return };
        let hidden = agent.has().filter(|address| gone.contains(*address) && !self.is_told(name, *address));
        for address in hidden.collect::<Vec<_>>() {
            self.is_told_no_more(name, address, is_known);
        }
    }

    /// No object tells any more that a pod has this address. It is excused at once where a process does not know it.
    fn is_told_no_more(&mut self, name: &NodeName, address: IpAddr, is_known: bool) {
        if is_known && self.replicas.iter().all(Replica::serves) {
            self.hidden.insert((name.clone(), address));
        } else {
            self.excuses.forgotten.insert((name.clone(), Cidr::single(address)));
        }
    }

    /// A process begins, or lists claims again and has not seen what came before.
    pub(super) fn forget_what_is_hidden(&mut self) {
        let is_held = |(name, address): &(NodeName, IpAddr)| {
            self.agents.get(name).is_some_and(|agent| agent.has().any(|held| held == *address))
        };
        let hidden = self.hidden.iter().filter(|hidden| is_held(hidden));
        let forgotten: Vec<_> =
            hidden.filter(|(name, address)| !self.is_told(name, *address)).cloned().collect();
        for (name, address) in forgotten {
            self.excuses.forgotten.insert((name, Cidr::single(address)));
        }
    }

    /// Whether an object tells that a node may be using an address: its CiliumNode or what carries its blocks shows it, or it
    /// is of a claim of the node.
    fn is_told(&self, name: &NodeName, address: IpAddr) -> bool {
        let carrier = self.store.carrier(name);
        self.store.cilium_node(name).is_some_and(|seen| carried_by_cilium_node(seen).contains(address))
            || carrier.as_ref().is_some_and(|seen| blocks(seen).iter().any(|block| block.contains(address)))
            || self.store.claims().any(|claim| claim.node == *name && claim.cidr.contains(address))
    }
}
