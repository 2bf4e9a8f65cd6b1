//! What must hold, judged by looking at the store and at the agents only, in the simplest way there is.
//!
//! [`safety`] holds after every step, [`settled`] when nothing is left to do. Neither asks the product.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cilium_node_ipam::model::claim::{Claim, ClaimState, Reason, block_name};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::{NodeName, Uid};
use cilium_node_ipam::model::node::CiliumNode;
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::model::request::{ClaimChange, Write};
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::publisher::static_mode::NodeField;

use super::agent::Agent;
use super::cluster::Setting;
use super::mode::{Mode, blocks, given_of, offered};
use super::store::Store;

mod free;
mod settled;

pub(super) use free::{blocks_of, is_given_out};
pub(super) use settled::settled;

/// What somebody else caused, and is therefore no breach of ours.
#[derive(Debug, Default)]
pub(super) struct Excuses {
    /// Blocks whose claim was removed by force: their node may carry them without one.
    pub(super) orphans: BTreeSet<(NodeName, Cidr)>,
    /// Blocks that somebody else put onto a CiliumNode. No name locks them, so a replica that has not heard of one may
    /// publish what overlaps it.
    pub(super) foreign: BTreeSet<(NodeName, Cidr)>,
    /// Blocks of which no object says any more that pods use them, because somebody removed what said it.
    pub(super) forgotten: BTreeSet<(NodeName, Cidr)>,
    /// Addresses that somebody else took out of a pool, or marked for release, and that their agent has not seen whole
    /// since. A pod that has one may lose its network.
    pub(super) disturbed: BTreeSet<(NodeName, IpAddr)>,
    /// CiliumNodes from which somebody else took blocks: another block may have come first since.
    pub(super) reordered: BTreeSet<(NodeName, Uid)>,
    /// Nodes that get one block, and for which somebody made a claim, or to which he gave a CIDR beside that of another claim.
    /// Nothing says which block its agent has once their carrier is gone.
    pub(super) given_by_hand: BTreeSet<NodeName>,
    /// Whether `cilium-config` turned a family off for a while. A node may have begun with the other alone, and where CIDRs
    /// never change it stays so.
    pub(super) ran_one_family: bool,
    /// Whether the default Cilium pool was another one for a while. The block of a claim that names none may move to that.
    pub(super) had_other_default: bool,
}

impl Excuses {
    /// Whether somebody else caused what happens to an address of a node.
    pub(super) fn cover(&self, node: &NodeName, address: IpAddr) -> bool {
        let blocks = || self.orphans.iter().chain(&self.foreign).chain(&self.forgotten);
        self.disturbed.contains(&(node.clone(), address))
            || blocks().any(|(of, cidr)| of == node && cidr.contains(address))
    }

    /// Whether nobody knows any more that pods of a node are in this block: what its agent writes back comes as a surprise.
    fn is_hidden(&self, node: &NodeName, block: Cidr) -> bool {
        given_of(block).any(|address| self.is_forgotten(node, address))
    }

    /// Whether no object says any more that a pod of a node has this address.
    fn is_forgotten(&self, node: &NodeName, address: IpAddr) -> bool {
        self.forgotten.iter().any(|(of, cidr)| of == node && cidr.contains(address))
    }
}

/// What must hold at any time.
pub(super) fn safety(
    store: &Store,
    agents: &BTreeMap<NodeName, Agent>,
    excuses: &Excuses,
) -> Result<(), String> {
    let mut cidrs: BTreeMap<Cidr, &NodeName> = BTreeMap::new();
    let mut addresses: BTreeMap<IpAddr, &NodeName> = BTreeMap::new();
    let carriers = store.carriers();
    for seen in carriers.iter().map(AsRef::as_ref) {
        let node = &seen.name;
        let listed = blocks(seen);
        let is_surprise = |cidr: &Cidr| is_written_by_agents(store.mode) && excuses.is_hidden(node, *cidr);
        for cidr in &listed {
            if excuses.foreign.contains(&(node.clone(), *cidr)) || is_surprise(cidr) {
                continue;
            }
            // A block that lost its claim and one that somebody claimed over it, for the same node.
            let is_orphan = |cidr| excuses.orphans.contains(&(node.clone(), cidr));
            let is_excused =
                |other, holder: &NodeName| holder == node && (is_orphan(*cidr) || is_orphan(other));
            // Without a name on its claim nobody knows under which a block was before somebody took it off (known gaps).
            let is_nameless = |other, holder: &NodeName| {
                holder == node
                    && other == *cidr
                    && store.claim(other).is_some_and(|claim| claim.pod_ip_pool.is_none())
            };
            let overlapping = cidrs.iter().find(|(other, holder)| {
                other.overlaps(*cidr) && !is_excused(**other, holder) && !is_nameless(**other, holder)
            });
            if let Some((other, holder)) = overlapping {
                return Err(format!("{cidr} of {node} overlaps {other} of {holder}"));
            }
            cidrs.insert(*cidr, node);
            if !is_written_back(store, seen, *cidr) {
                has_claim(store, node, *cidr, excuses)?;
            }
        }
        let mut offered = offered(seen);
        let foreign = excuses.foreign.iter().filter(|(of, _)| of == node).map(|(_, foreign)| foreign);
        for unknown in foreign.chain(listed.iter().filter(|cidr| is_surprise(cidr))) {
            offered.remove_cidr(*unknown);
        }
        for address in offered.iter() {
            if let Some(holder) = addresses.insert(address, node) {
                return Err(format!("{address} is in the pools of {node} and {holder}"));
            }
            let Some(cidr) = listed.iter().find(|cidr| cidr.contains(address)) else {
                if !seen.malformed.is_empty() {
                    continue;
                }
                return Err(format!("{address} is in the pool of {node} and in none of its podCIDRs"));
            };
            // A claim that was recreated, and one that somebody made over it meanwhile, for the same node.
            let is_offered_by_another = || {
                let is_removed =
                    |(of, other): &(NodeName, Cidr)| of == node && other != cidr && other.contains(address);
                excuses.orphans.contains(&(node.clone(), *cidr))
                    && (store.claims().any(|claim| claim.node == *node && claim.offered().contains(address))
                        || excuses.orphans.iter().any(is_removed))
            };
            let is_withheld = |claim: &Claim| claim.node == *node && claim.withheld.contains(address);
            if store.claim(*cidr).is_some_and(is_withheld) && !is_offered_by_another() {
                return Err(format!("{address} of {cidr} is withheld, and in the pool of {node}"));
            }
        }
    }
    for (node, agent) in agents {
        agent.keeps().into_iter().try_for_each(|cidr| is_left_to(store, node, cidr, excuses))?;
    }
    let mut held: BTreeMap<IpAddr, &NodeName> = BTreeMap::new();
    for (node, agent) in agents {
        for address in agent.held().iter().filter(|address| !excuses.is_forgotten(node, **address)) {
            if let Some(other) = held.insert(*address, node) {
                return Err(format!("pods on {node} and {other} have {address}"));
            }
            if let Some(holder) = addresses.get(address).filter(|holder| **holder != node) {
                return Err(format!("{address} is in the pool of {holder}, and a pod on {node} has it"));
            }
        }
    }
    Ok(())
}

/// Whether agents write onto their CiliumNodes what they have.
fn is_written_by_agents(mode: Mode) -> bool {
    matches!(mode, Mode::MultiPool | Mode::Kubernetes(NodeField::Annotations))
}

/// Whether a CIDR is there because the machine of a node that was gone for a while has written it back.
fn is_written_back(store: &Store, seen: &CiliumNode, cidr: Cidr) -> bool {
    if !is_written_by_agents(store.mode) {
        return false;
    }
    let is_in_pools = seen.pools.allocated.iter().any(|entry| entry.cidrs.contains(&cidr));
    let claim = store.claim(cidr).filter(|claim| claim.node == seen.name && is_in_pools);
    claim.is_some_and(|claim| claim.state == ClaimState::Cooling(Reason::NodeGone))
}

/// Rule 3: what a CiliumNode carries has a claim for that node, and no CiliumNode carries a block that is cooling.
fn has_claim(store: &Store, node: &NodeName, cidr: Cidr, excuses: &Excuses) -> Result<(), String> {
    if excuses.orphans.contains(&(node.clone(), cidr)) {
        return Ok(());
    }
    match store.claim(cidr) {
        // It can't be read, and keeps its name all the same.
        None if store.stored(Kind::Claim, &block_name(cidr)).is_some() => Ok(()),
        None => Err(format!("{cidr} is on {node} without a claim")),
        Some(claim) if claim.node != *node => {
            Err(format!("{cidr} is on {node}, and its claim is for {}", claim.node))
        }
        Some(claim) if matches!(claim.state, ClaimState::Cooling(_)) => {
            Err(format!("{cidr} is on {node}, and its claim is cooling"))
        }
        Some(_) => Ok(()),
    }
}

/// Rule 3, for agents that take whole blocks and give them back by themselves: what one has in its memory, and so may
/// write back, is not on its way to another node.
fn is_left_to(store: &Store, node: &NodeName, cidr: Cidr, excuses: &Excuses) -> Result<(), String> {
    if given_of(cidr).any(|address| excuses.cover(node, address)) {
        return Ok(());
    }
    match store.claim(cidr) {
        // It can't be read, and keeps its name all the same.
        None if store.stored(Kind::Claim, &block_name(cidr)).is_some() => Ok(()),
        None => Err(format!("the agent of {node} has {cidr}, which has no claim")),
        Some(claim) if claim.node != *node => {
            Err(format!("the agent of {node} has {cidr}, and its claim is for {}", claim.node))
        }
        Some(claim) if claim.state == ClaimState::Cooling(Reason::Reclaimed) => {
            Err(format!("the agent of {node} has {cidr}, and its claim is cooling"))
        }
        Some(_) => Ok(()),
    }
}

/// The first blocks of a node are of all families that its agent runs: it stops waiting as soon as there is one, and fails
/// if another has none.
pub(super) fn begins_with_all(
    setting: &Setting,
    before: &CiliumNode,
    after: &CiliumNode,
    excuses: &Excuses,
) -> Result<(), String> {
    let first: BTreeSet<Family> = blocks(after).into_iter().map(Cidr::family).collect();
    // With which name an agent of several Cilium pools begins is its own affair.
    let is_judged = setting.mode != Mode::MultiPool && !excuses.ran_one_family;
    if is_judged && blocks(before).is_empty() && !first.is_empty() && first != setting.families {
        return Err(format!("the first blocks of {} are of {first:?} alone", after.name));
    }
    Ok(())
}

/// What must hold from one version of a CiliumNode to the next, when we wrote the next: an address that a pod has
/// stays, and so does the primary block of each family.
/// An agent that finds blocks after it had none finds all that its pods were in.
pub(super) fn transition(
    store: &Store,
    before: &CiliumNode,
    after: &CiliumNode,
    agent: Option<&Agent>,
    excuses: &Excuses,
) -> Result<(), String> {
    let node = &after.name;
    let (offered_before, offered_after) = (offered(before), offered(after));
    // Nothing told the writer that the node had it.
    let unknown = || excuses.orphans.iter().chain(&excuses.foreign).chain(&excuses.forgotten);
    let is_unknown = |address| unknown().any(|(of, cidr)| of == node && cidr.contains(address));
    let is_told = |address: &&IpAddr| agent.is_none_or(|agent| !agent.has_taken_back(**address));
    for address in agent.into_iter().flat_map(Agent::held).filter(is_told) {
        let unreadable_of = |of: Option<&NodeName>, since| {
            store.versions_since(Kind::Claim, since).any(|object| {
                matches!(object, Object::Unreadable(_, claim)
                    if claim.node.as_ref() == of && claim.addresses.contains(*address))
            })
        };
        let is_claimed = unreadable_of(Some(node), store.revision())
            || store.claims().any(|claim| claim.node == *node && claim.cidr.contains(*address));
        // A pod got it before its agent heard that the block is off (known gaps).
        let is_off = store.mode == Mode::MultiPool && is_released(store, node, *address, Reason::Reclaimed);
        // A claim that does not say whose it is holds no node back (known gaps). It may have been so when the writer decided.
        let may_be_anyones = unreadable_of(None, before.revision);
        // What is in a release handshake is not published before somebody ends that.
        if blocks(before).is_empty()
            && !blocks(after).is_empty()
            && !before.crd.marks.contains_key(address)
            && is_claimed
            && !may_be_anyones
            && !is_off
            && !(excuses.ran_one_family && store.mode.gives_one_block())
            && !is_unknown(*address)
            && !excuses.given_by_hand.contains(node)
            && !offered_after.contains(*address)
        {
            return Err(format!("{node} gets a part of its blocks back, and a pod has {address} of another"));
        }
        let is_excused = store.mode == Mode::MultiPool && excuses.cover(node, *address);
        if offered_before.contains(*address) && !offered_after.contains(*address) && !is_excused {
            return Err(format!("{address} was taken out of the pool of {node} while a pod has it"));
        }
    }
    let shown_before = blocks(before);
    for added in blocks(after).into_iter().filter(|block| !shown_before.contains(block)) {
        has_claim(store, node, added, excuses)?;
    }
    let is_reordered = excuses.reordered.contains(&(node.clone(), after.uid.clone()));
    // Where agents take whole blocks, none of them is the first.
    let has_primary = !is_reordered && store.mode != Mode::MultiPool;
    for family in Family::ALL.into_iter().filter(|_| has_primary) {
        let primary = |seen: &CiliumNode| blocks(seen).into_iter().find(|cidr| cidr.family() == family);
        if primary(before).is_some() && primary(before) != primary(after) {
            return Err(format!("the primary {family} block of {node} changed"));
        }
    }
    if before == after {
        return Err(format!("a patch of {node} changed nothing"));
    }
    Ok(())
}

/// Whether an address is in a block that is being taken from its node for this reason.
fn is_released(store: &Store, node: &NodeName, address: IpAddr, reason: Reason) -> bool {
    store.claims().any(|claim| {
        claim.node == *node && claim.cidr.contains(address) && claim.state == ClaimState::Releasing(reason)
    })
}

/// A claim is taken from a Node that is gone only: whoever begins that has read the Node since the claim last moved, and a
/// Node that is gone comes back with another uid. Without that read two replicas, one of which has not heard, would undo
/// each other's moves.
pub(super) fn is_gone(store: &Store, write: &Write, before: &Object) -> Result<(), String> {
    let (Write::UpdateClaim(update), Object::Claim(claim)) = (write, before) else { return Ok(()) };
    let node = store.stored(Kind::Node, claim.node.as_str());
    if update.change == ClaimChange::Release(Reason::NodeGone)
        && node.is_some_and(|node| node.json["metadata"]["uid"] == claim.node_uid.as_str())
    {
        return Err(format!("{} is released because {} is gone, which is there", claim.cidr, claim.node));
    }
    Ok(())
}
