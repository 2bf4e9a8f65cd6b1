//! The judge: the rules that must hold, checked on the store and the agents alone, in the simplest possible way.
//!
//! - [`safety`] holds after every step: no two nodes have one address, and every published block has its claim.
//! - [`transition`], [`begins_with_all`], [`grows_by_report`], [`is_gone`] and [`Coolings`] hold for every write of a
//!   replica.
//! - [`settled`] holds at rest, when nothing is left to do.
//!
//! The judge asks the product nothing. Its one excuse is a node that another writer has touched ([`Taint`]). Scripts of
//! *Promises* have no such node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cilium_node_ipam::model::claim::{Claim, ClaimState, Reason, block_name};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::node::CiliumNode;
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::model::request::{ClaimChange, NewClaim, Write};
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::publisher::static_mode::NodeField;

use super::agent::Agent;
use super::cluster::Setting;
use super::mode::{Mode, blocks, offered};
use super::store::Store;

mod cooling;
mod free;
mod settled;
mod taint;

pub(super) use cooling::Coolings;
pub(super) use free::{blocks_of, is_given_out, is_nowhere_else};
pub(super) use settled::settled;
pub(super) use taint::Taint;

/// CIDRs that another allocator gave to nodes that had nothing.
pub(super) type Given = BTreeSet<(NodeName, Cidr)>;

/// The rules that hold at any time, for all nodes that no other writer has touched:
///
/// - Blocks on carriers do not overlap, and each has a claim for its node.
/// - No two carriers offer one address. Each offered address is in a block on its carrier, and the claim offers it too.
/// - Blocks in the memory of an agent have a claim for its node that is not cooling as `Reclaimed`, or as `Unused` while
///   no block on its carrier overlaps it.
/// - No two nodes have pods with one address, and no pod has an address that the carrier of another node offers.
/// - Where nodes have several modes, no two nodes show one address in any field of any mode.
///
/// Blocks of another allocator need no claim before one exists.
pub(super) fn safety(
    store: &Store,
    agents: &BTreeMap<NodeName, Agent>,
    given: &Given,
    taint: &Taint,
) -> Result<(), String> {
    let mut cidrs: BTreeMap<Cidr, &NodeName> = BTreeMap::new();
    let mut addresses: BTreeMap<IpAddr, &NodeName> = BTreeMap::new();
    let carriers = store.carriers();
    let is_given = |node: &NodeName, cidr| is_given(store, given, node, cidr);
    // An agent of the mode kubernetes writes its own CIDRs over the list on its CiliumNode.
    let claimed = |node: &NodeName| {
        let of_node = store.claims().filter(|claim| claim.node == *node && store.modes.are_several());
        of_node.map(|claim| claim.cidr).collect::<Vec<_>>()
    };
    for seen in carriers.iter().map(AsRef::as_ref).filter(|seen| !taint.is(&seen.name)) {
        let node = &seen.name;
        let listed = blocks(seen);
        for cidr in &listed {
            if let Some((other, holder)) = cidrs.iter().find(|(other, _)| other.overlaps(*cidr)) {
                return Err(format!("{cidr} of {node} overlaps {other} of {holder}"));
            }
            cidrs.insert(*cidr, node);
            if !is_written_back(store, seen, *cidr) && !is_given(node, *cidr) {
                has_claim(store, node, *cidr)?;
            }
        }
        for address in offered(seen).iter() {
            if let Some(holder) = addresses.insert(address, node) {
                return Err(format!("{address} is in the pools of {node} and {holder}"));
            }
            let mut known = listed.iter().copied().chain(claimed(node));
            let Some(cidr) = known.find(|cidr| cidr.contains(address)) else {
                return Err(format!("{address} is in the pool of {node} and in none of its podCIDRs"));
            };
            let is_excluded = |claim: &Claim| claim.node == *node && claim.excluded.contains(address);
            // A claim that was made in crd mode may exclude addresses, and its agent gives them in another mode (known gaps).
            let is_moving = store.modes.are_several() && store.mode_of(node) != Mode::Crd;
            if !is_moving && store.claim(cidr).is_some_and(is_excluded) {
                return Err(format!("{address} of {cidr} is excluded, and in the pool of {node}"));
            }
        }
    }
    in_any_field(store, taint)?;
    let agents = || agents.iter().filter(|(node, _)| !taint.is(node));
    for (node, agent) in agents() {
        let mut kept = agent.keeps().into_iter().filter(|cidr| !is_given(node, *cidr));
        kept.try_for_each(|cidr| is_left_to(store, node, cidr))?;
    }
    let mut held: BTreeMap<IpAddr, &NodeName> = BTreeMap::new();
    for (node, agent) in agents() {
        for address in agent.held() {
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

/// Where nodes have several modes, an agent may take any field of its Node and CiliumNode when it starts next. So no two
/// nodes show one address in any of them.
fn in_any_field(store: &Store, taint: &Taint) -> Result<(), String> {
    if !store.modes.are_several() {
        return Ok(());
    }
    let mut names: BTreeSet<&NodeName> = store.cilium_nodes().map(|seen| &seen.name).collect();
    names.extend(store.nodes().map(|node| &node.name));
    let mut shown: Vec<(&NodeName, Cidr)> = Vec::new();
    for node in names.into_iter().filter(|node| !taint.is(node)) {
        let of_node: Vec<Cidr> = store.shown_anywhere(node).cidrs().collect();
        for cidr in &of_node {
            if let Some((other, theirs)) = shown.iter().find(|(_, theirs)| theirs.overlaps(*cidr)) {
                return Err(format!("{node} shows {cidr} in some field, and {other} shows {theirs}"));
            }
        }
        shown.extend(of_node.into_iter().map(|cidr| (node, cidr)));
    }
    Ok(())
}

/// Whether a node has a CIDR of another allocator that has not become a claim of it. A replica with an old view may
/// claim the CIDR for another node. It must not publish it there.
pub(super) fn is_given(store: &Store, given: &Given, node: &NodeName, cidr: Cidr) -> bool {
    given.contains(&(node.clone(), cidr)) && store.claim(cidr).is_none_or(|claim| claim.node != *node)
}

/// Whether a cooling CIDR is on a carrier because the machine of a node that was gone for a while has written it back.
fn is_written_back(store: &Store, seen: &CiliumNode, cidr: Cidr) -> bool {
    // Agents of other modes do not write blocks onto their carriers. Where some nodes have the mode kubernetes, a block of a
    // Node that is gone cools while its CiliumNode still shows it.
    let is_of_node = store.modes.are_several() && store.modes.use_nodes();
    if !matches!(store.modes.of_all, Mode::MultiPool | Mode::Kubernetes(NodeField::Annotations))
        && !is_of_node
    {
        return false;
    }
    let is_in_pools = is_of_node || seen.pools.allocated.iter().any(|entry| entry.cidrs.contains(&cidr));
    let claim = store.claim(cidr).filter(|claim| claim.node == seen.name && is_in_pools);
    claim.is_some_and(|claim| claim.state == ClaimState::Cooling(Reason::NodeGone))
}

/// Rule 3: every block on a carrier has a claim for that node, and that claim is not cooling.
fn has_claim(store: &Store, node: &NodeName, cidr: Cidr) -> Result<(), String> {
    match store.claim(cidr) {
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

/// Rule 3, for agents that take whole blocks and release them by themselves. A block in the memory of an agent may be
/// written back, so no other node may be about to get it.
fn is_left_to(store: &Store, node: &NodeName, cidr: Cidr) -> Result<(), String> {
    match store.claim(cidr) {
        None => Err(format!("the agent of {node} has {cidr}, which has no claim")),
        Some(claim) if claim.node != *node => {
            Err(format!("the agent of {node} has {cidr}, and its claim is for {}", claim.node))
        }
        Some(claim)
            if claim.state == ClaimState::Cooling(Reason::Reclaimed)
                || (claim.state == ClaimState::Cooling(Reason::Unused)
                    && !is_overlapped(store, node, cidr)) =>
        {
            Err(format!("the agent of {node} has {cidr}, and its claim is cooling"))
        }
        Some(_) => Ok(()),
    }
}

/// Whether another block on the carrier of a node overlaps this one. Then no answer of the agent can be about this one.
fn is_overlapped(store: &Store, node: &NodeName, cidr: Cidr) -> bool {
    store.carrier(node).is_some_and(|seen| blocks(&seen).iter().any(|other| other.overlaps(cidr)))
}

/// The first blocks of a node are of all families that its agent runs. The agent stops waiting as soon as there is one,
/// and fails if another family has none.
pub(super) fn begins_with_all(
    setting: &Setting,
    before: &CiliumNode,
    after: &CiliumNode,
) -> Result<(), String> {
    let first: BTreeSet<Family> = offered(after).cidrs().map(Cidr::family).collect();
    // An agent of several Cilium pools may start with any of them.
    if setting.modes.of_all != Mode::MultiPool
        && offered(before).is_empty()
        && !first.is_empty()
        && first != setting.families
    {
        return Err(format!("the first blocks of {} are of {first:?} alone", after.name));
    }
    Ok(())
}

/// The rules for a write of a replica onto a carrier. An address that a pod has stays, and so does the primary block of
/// each family. An agent that sees blocks after it had none sees all blocks of its pods.
pub(super) fn transition(
    store: &Store,
    before: &CiliumNode,
    after: &CiliumNode,
    agent: Option<&Agent>,
) -> Result<(), String> {
    let node = &after.name;
    let (offered_before, offered_after) = (offered(before), offered(after));
    let is_reported = |address: &&IpAddr| agent.is_none_or(|agent| !agent.has_taken_back(**address));
    let runs_another_mode = agent.is_some_and(|agent| agent.mode() != Mode::Crd);
    // In another mode an agent takes other addresses for itself.
    let is_moving = store.modes.are_several() && store.mode_of(node) != Mode::Crd;
    let held_by = |agent: &Agent| if is_moving { agent.of_pods() } else { agent.held().clone() };
    let held = agent.map(held_by).unwrap_or_default();
    for address in held.iter().filter(is_reported) {
        // A map that lacks it costs the pod its network when the agent starts in crd mode.
        if store.modes.are_several()
            && runs_another_mode
            && before.crd.pool.is_empty()
            && !after.crd.pool.is_empty()
            && !after.crd.pool.contains(*address)
        {
            return Err(format!(
                "the first map of {node} lacks {address}, which a pod has from another mode"
            ));
        }
        let has_address = |claim: &&Claim| claim.node == *node && claim.cidr.contains(*address);
        let claims: Vec<&Claim> = store.claims().filter(has_address).collect();
        let is_removed = |claim: &&Claim| claim.is_reclaimed();
        // A pod got it before its agent saw the removal of the block (known gaps).
        let is_off = store.modes.of_all == Mode::MultiPool && claims.iter().any(is_removed);
        // An address in a release handshake is not published before the end of the handshake.
        if offered(before).is_empty()
            && !offered(after).is_empty()
            && !before.crd.marks.contains_key(address)
            && !claims.is_empty()
            && !is_off
            && !offered_after.contains(*address)
        {
            return Err(format!("{node} gets a part of its blocks back, and a pod has {address} of another"));
        }
        // In multi-pool mode whole blocks are removed (`Cluster::takes_off`).
        let is_entry = store.modes.of_all != Mode::MultiPool;
        if is_entry && offered_before.contains(*address) && !offered_after.contains(*address) {
            return Err(format!("{address} was taken out of the pool of {node} while a pod has it"));
        }
    }
    let shown_before = blocks(before);
    for added in blocks(after).into_iter().filter(|block| !shown_before.contains(block)) {
        // After the deletion of its Node, such a node counts as one of the mode kubernetes (known gaps).
        if store.node(node).is_none() && is_written_back(store, after, added) {
            continue;
        }
        has_claim(store, node, added)?;
    }
    // Where agents take whole blocks, none of them is primary.
    let has_primary = store.modes.of_all != Mode::MultiPool;
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

/// A served node in crd mode gets a further block only after its agent has reported its use: an agent of another mode
/// never does. A node that can't start with its addresses may get more, and so may one whose block was claimed before.
///
/// The only replica has seen all of its own writes, so its view of the blocks of the node is right.
pub(super) fn grows_by_report(store: &Store, setting: &Setting, new: &NewClaim) -> Result<(), String> {
    let Some(seen) = store.cilium_node(&new.node) else { return Ok(()) };
    let offers =
        |family: &Family| seen.crd.pool.iter().filter(|address| Family::of(*address) == *family).count() >= 4;
    let is_served = setting.families.iter().all(offers);
    let was_claimed = || {
        let name = block_name(new.cidr);
        store.history(Kind::Claim).iter().filter(|event| event.name == name).count() > 1
    };
    if store.mode_of(&new.node) != Mode::Crd
        || setting.n_replicas > 1
        || !is_served
        || blocks(seen).contains(&new.cidr)
        || store.has_reported(seen)
        || was_claimed()
    {
        return Ok(());
    }
    Err(format!("{} grows by {}, and its agent has never reported its use", new.node, new.cidr))
}

/// A claim is released for a lost Node only if the Node is gone. The replica has read the Node since the last move of
/// the claim, and a Node that returns has another uid. Without that read, two replicas would undo each other's moves if
/// one of them had missed the news.
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
