//! What must hold, judged by looking at the store and at the agents only, in the simplest way there is.
//!
//! [`safety`] holds after every step, [`settled`] when nothing is left to do. Neither asks the product.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cilium_node_ipam::model::claim::{Claim, ClaimState, Reason, block_name};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::{NodeName, PodIpPoolName, Uid};
use cilium_node_ipam::model::node::{CiliumNode, Node};
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::model::pool::{Pool, RangeState};
use cilium_node_ipam::model::request::{ClaimChange, Write};
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::publisher::carried_by_cilium_node;
use kube_core::SelectorExt;

use super::agent::Agent;
use super::cluster::Setting;
use super::mode::{Mode, OTHER_POOL, POOL, POOLS, blocks, given_of, offered};
use super::store::Store;

/// What an agent needs in each family before it can start.
const MINIMUM: u128 = 4;

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
}

impl Excuses {
    /// Whether somebody else caused what happens to an address of a node.
    pub(super) fn cover(&self, node: &NodeName, address: IpAddr) -> bool {
        let blocks = || self.orphans.iter().chain(&self.foreign).chain(&self.forgotten);
        self.disturbed.contains(&(node.clone(), address))
            || blocks().any(|(of, cidr)| of == node && cidr.contains(address))
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
        for cidr in &listed {
            if excuses.foreign.contains(&(node.clone(), *cidr)) {
                continue;
            }
            // A block that lost its claim and one that somebody claimed over it, for the same node.
            let is_orphan = |cidr| excuses.orphans.contains(&(node.clone(), cidr));
            let is_excused =
                |other, holder: &NodeName| holder == node && (is_orphan(*cidr) || is_orphan(other));
            let overlapping =
                cidrs.iter().find(|(other, holder)| other.overlaps(*cidr) && !is_excused(**other, holder));
            if let Some((other, holder)) = overlapping {
                return Err(format!("{cidr} of {node} overlaps {other} of {holder}"));
            }
            cidrs.insert(*cidr, node);
            if !is_written_back(store, seen, *cidr) {
                has_claim(store, node, *cidr, excuses)?;
            }
        }
        let mut offered = offered(seen);
        for (_, foreign) in excuses.foreign.iter().filter(|(of, _)| of == node) {
            offered.remove_cidr(*foreign);
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
                excuses.orphans.contains(&(node.clone(), *cidr))
                    && store.claims().any(|claim| claim.node == *node && claim.offered().contains(address))
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
        let is_forgotten =
            |address: IpAddr| excuses.forgotten.iter().any(|(of, cidr)| of == node && cidr.contains(address));
        for address in agent.held().iter().filter(|address| !is_forgotten(**address)) {
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

/// Whether a CIDR is there because the machine of a node that was gone for a while has written it back.
fn is_written_back(store: &Store, seen: &CiliumNode, cidr: Cidr) -> bool {
    if store.mode != Mode::MultiPool {
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
            store
                .unreadable_since(Kind::Claim, since)
                .any(|claim| claim.node.as_ref() == of && claim.addresses.contains(*address))
        };
        let is_claimed = unreadable_of(Some(node), store.revision())
            || store.claims().any(|claim| claim.node == *node && claim.cidr.contains(*address));
        // A claim that does not say whose it is holds no node back (known gaps). It may have been so when the writer decided.
        let may_be_anyones = unreadable_of(None, before.revision);
        // What is in a release handshake is not published before somebody ends that.
        if blocks(before).is_empty()
            && !blocks(after).is_empty()
            && !before.crd.marks.contains_key(address)
            && is_claimed
            && !may_be_anyones
            && !is_unknown(*address)
            && !offered_after.contains(*address)
        {
            return Err(format!("{node} gets a part of its blocks back, and a pod has {address} of another"));
        }
        if offered_before.contains(*address) && !offered_after.contains(*address) {
            return Err(format!("{address} was taken out of the pool of {node} while a pod has it"));
        }
    }
    let shown_before = blocks(before);
    for added in blocks(after).into_iter().filter(|block| !shown_before.contains(block)) {
        has_claim(store, node, added, excuses)?;
    }
    let is_reordered = excuses.reordered.contains(&(node.clone(), after.uid.clone()));
    for family in Family::ALL.into_iter().filter(|_| !is_reordered) {
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

/// What must hold when nothing is left to do: claims are published, and whoever can be served is.
pub(super) fn settled(store: &Store, setting: &Setting, excuses: &Excuses) -> Result<(), String> {
    for seen in store.carriers().iter().map(AsRef::as_ref) {
        let Some(node) = store.node(&seen.name) else { continue };
        let claims: Vec<&Claim> =
            store.claims().filter(|claim| claim.node == node.name && claim.node_uid == node.uid).collect();
        if seen.deleting || is_in_trouble(store, node, excuses) || is_undecided(store, &claims) {
            continue;
        }
        let mut needs = Vec::new();
        for family in &setting.families {
            match setting.mode {
                Mode::Crd => needs.push(Need::of(store, excuses, node, seen, &claims, *family)),
                Mode::MultiPool => {
                    needs.extend(POOLS.map(|name| Need::of_pools(store, excuses, node, seen, *family, name)));
                }
                Mode::ClusterPool | Mode::Kubernetes => {
                    needs.push(Need::of_one_block(store, excuses, node, seen, *family));
                }
            }
        }
        let minimum = match setting.mode {
            Mode::Crd => MINIMUM,
            Mode::MultiPool | Mode::ClusterPool | Mode::Kubernetes => 1,
        };
        if blocks(seen).is_empty() {
            // Agents start with what they have of the default pool.
            let mut for_start = needs.iter().filter(|need| need.name != OTHER_POOL).peekable();
            if for_start.peek().is_some() && for_start.all(|need| need.reach >= minimum) {
                return Err(format!("{} could be served and is not", node.name));
            }
        } else {
            is_published(store, seen, &claims)?;
            for need in &needs {
                let mut of_name = needs.iter().filter(|other| other.name == need.name);
                // The first blocks under a name are of all families, or there are none.
                let cannot_begin = setting.mode == Mode::MultiPool
                    && seen.pools.allocated.iter().all(|entry| entry.pool != need.name)
                    && of_name.any(|other| other.reach < minimum);
                if !cannot_begin {
                    need.is_met_or_cannot(&node.name)?;
                }
            }
        }
    }
    Ok(())
}

/// Whether something is wrong with the node that is reported and that nobody has fixed yet: it has blocks without a
/// claim, or such blocks overlap what it has, or pods of another node use what somebody took from that.
fn is_in_trouble(store: &Store, node: &Node, excuses: &Excuses) -> bool {
    let not_ours = || excuses.orphans.iter().chain(&excuses.foreign);
    not_ours().any(|(of, _)| *of == node.name)
        || store.claims().filter(|claim| claim.node == node.name).any(|claim| {
            not_ours().any(|(_, other)| other.overlaps(claim.cidr))
                || store.cilium_nodes().filter(|other| other.name != node.name).any(|other| {
                    let mut used = other.crd.used.iter().flat_map(|used| used.iter_in(claim.cidr));
                    used.any(|address| excuses.cover(&other.name, address))
                })
        })
}

/// Whether a block of the node, or one that overlaps it, waits for somebody to decide which of the two goes. Until then
/// nothing more of either is published.
fn is_undecided(store: &Store, claims: &[&Claim]) -> bool {
    claims.iter().any(|claim| {
        let mut others = store
            .claims()
            .filter(|other| other.cidr != claim.cidr && other.cidr.overlaps(claim.cidr))
            .peekable();
        others.peek().is_some()
            && (may_be_in_use(store, claim) || others.any(|other| may_be_in_use(store, other)))
    })
}

/// Whether a block that its CiliumNode does not carry may be in use all the same: it was claimed for an earlier
/// CiliumNode, or its agent says that it uses addresses of it.
fn may_be_in_use(store: &Store, claim: &Claim) -> bool {
    store.carrier(&claim.node).is_none_or(|seen| {
        let is_used = seen.crd.used.iter().flat_map(AddressSet::iter).any(|used| claim.cidr.contains(used));
        !blocks(&seen).contains(&claim.cidr) && (is_used || claim.created_for.as_ref() != Some(&seen.uid))
    })
}

fn is_published(store: &Store, seen: &CiliumNode, claims: &[&Claim]) -> Result<(), String> {
    // One that its agent gave back may cool for longer than others take to come to rest.
    let has_left = |claim: &Claim| claim.state == ClaimState::Cooling(Reason::Reclaimed);
    // One that was made for an earlier carrier stays, because the agent may go on with it, and is published to nobody.
    let is_left = |claim: &Claim| store.mode.gives_one_block() && may_be_in_use(store, claim);
    let mode = store.mode;
    let claims: Vec<&Claim> =
        claims.iter().copied().filter(|claim| !has_left(claim) && !is_left(claim)).collect();
    let carried: BTreeSet<Cidr> = blocks(seen).into_iter().collect();
    for claim in &claims {
        let under = seen.pools.allocated.iter().filter(|entry| entry.cidrs.contains(&claim.cidr));
        let is_right =
            |name: &str| claim.pod_ip_pool.as_ref().is_none_or(|of_claim| of_claim.as_str() == name);
        if let Some(wrong) = under.map(|entry| &entry.pool).find(|name| !is_right(name)) {
            return Err(format!("{} of {} is carried under {wrong}", claim.cidr, seen.name));
        }
    }
    let claimed: BTreeSet<Cidr> = claims.iter().map(|claim| claim.cidr).collect();
    if carried != claimed {
        return Err(format!("{} has {carried:?} and claims {claimed:?}", seen.name));
    }
    let released = claims.iter().find(|claim| !claim.is_published_state());
    if let Some(claim) = released.filter(|_| mode != Mode::Crd) {
        return Err(format!("{} of {} is {:?} for ever", claim.cidr, seen.name, claim.state));
    }
    if mode != Mode::Crd {
        return Ok(());
    }
    let mut offered = AddressSet::new();
    for claim in claims {
        offered.extend_with(&claim.offered());
    }
    if seen.crd.pool != offered {
        return Err(format!("{} has the pool {:?} and is offered {offered:?}", seen.name, seen.crd.pool));
    }
    Ok(())
}

/// What a node has of one family and what it could get.
#[derive(Debug)]
struct Need {
    family: Family,
    /// The Cilium pool, where there are any.
    name: &'static str,
    is_met: bool,
    /// Whether a pool has a free block that fits into the node's limits.
    can_grow: bool,
    /// How many addresses the node has, or can have for certain.
    reach: u128,
}

impl Need {
    fn of(
        store: &Store,
        excuses: &Excuses,
        node: &Node,
        seen: &CiliumNode,
        claims: &[&Claim],
        family: Family,
    ) -> Self {
        let claims: Vec<&&Claim> = claims.iter().filter(|claim| claim.cidr.family() == family).collect();
        let pools = pools_of(store, node);
        let has = |set: &Option<AddressSet>, address| set.as_ref().is_some_and(|set| set.contains(address));
        let (mut capacity, mut used, mut kept) = (0, 0, 0);
        for address in claims.iter().flat_map(|claim| claim.offered().iter().collect::<Vec<_>>()) {
            capacity += 1;
            if has(&seen.crd.used, address) {
                used += 1;
            } else if seen.crd.owners.contains_key(&address) {
                kept += 1;
            }
        }
        // Without a pool that can give a block nothing is asked for that could be met.
        let gives =
            |pool: &&&Pool| Family::ALL.iter().any(|family| !blocks_of(store, pool, *family).is_empty());
        let Some(first) = pools.iter().find(gives) else {
            return Self { family, name: "", is_met: true, can_grow: false, reach: capacity };
        };
        let most_blocks = first.per_node.max_blocks as usize;
        let most_addresses = u128::from(first.per_node.max_addresses);
        let mut can_grow = false;
        let mut offers = Vec::new();
        for pool in &pools {
            let free = free_blocks(store, excuses, pool, family);
            // Where some blocks of a pool fit and some do not, the order decides.
            can_grow |= !free.is_empty() && free.iter().all(|offered| capacity + offered <= most_addresses);
            offers.extend(free);
        }
        offers.sort_unstable();
        let mut reach = capacity;
        for offered in offers.into_iter().take(most_blocks.saturating_sub(claims.len())) {
            if reach + offered <= most_addresses {
                reach += offered;
            }
        }
        Self {
            family,
            name: "",
            is_met: used * 100 <= capacity * u128::from(first.expand.used_above)
                && capacity - used - kept >= u128::from(first.expand.free_below),
            can_grow: can_grow && claims.len() < most_blocks,
            reach,
        }
    }

    /// The same where the agent says what it needs, and has whole blocks but for their ends.
    fn of_pools(
        store: &Store,
        excuses: &Excuses,
        node: &Node,
        seen: &CiliumNode,
        family: Family,
        name: &'static str,
    ) -> Self {
        let entry = seen.pools.allocated.iter().filter(|entry| entry.pool == name);
        let listed = entry.flat_map(|entry| &entry.cidrs).copied();
        let listed: Vec<Cidr> = listed.filter(|block| block.family() == family).collect();
        let capacity = listed.iter().map(|block| given_of(*block).count() as u128).sum();
        let requested = seen.pools.requested.iter().find(|entry| entry.pool == name);
        let needed = requested.and_then(|entry| entry.needed.get(&family)).copied().unwrap_or_default();
        let mut pools = pools_of(store, node);
        pools.retain(|pool| pool.pod_ip_pool.as_ref().map_or(POOL, PodIpPoolName::as_str) == name);
        let gives =
            |pool: &&&Pool| Family::ALL.iter().any(|family| !blocks_of(store, pool, *family).is_empty());
        let Some(first) = pools.iter().find(gives) else {
            return Self { family, name, is_met: true, can_grow: false, reach: capacity };
        };
        let most_blocks = first.per_node.max_blocks as usize;
        let most_addresses = u128::from(first.per_node.max_addresses);
        let mut can_grow = false;
        let mut reach = capacity;
        for pool in &pools {
            for offered in free_whole_blocks(store, excuses, pool, family) {
                // What a pool counts of a block may be more than what agents give of it.
                let fits = capacity + offered + 2 <= most_addresses && listed.len() < most_blocks;
                can_grow |= fits;
                reach += if fits { offered } else { 0 };
            }
        }
        // An agent that has said nothing yet is not served.
        let reach = if needed > 0 { reach } else { 0 };
        Self { family, name, is_met: needed <= capacity, can_grow, reach }
    }

    /// The same where a node has one block for its life, whatever runs on it.
    fn of_one_block(
        store: &Store,
        excuses: &Excuses,
        node: &Node,
        seen: &CiliumNode,
        family: Family,
    ) -> Self {
        let is_met = blocks(seen).iter().any(|block| block.family() == family);
        let free = |pool: &&Pool| free_whole_blocks(store, excuses, pool, family);
        let reach = pools_of(store, node).iter().flat_map(free).max().unwrap_or_default();
        // What it lacks it never gets: its agent would not look.
        Self { family, name: "", is_met, can_grow: false, reach }
    }

    fn is_met_or_cannot(&self, node: &NodeName) -> Result<(), String> {
        if !self.is_met && self.can_grow {
            return Err(format!(
                "{node} needs another {} block ({}), there is one, and it does not get it",
                self.family, self.name
            ));
        }
        Ok(())
    }
}

/// The pools that select a node, in the order in which it asks them.
pub(super) fn pools_of<'a>(store: &'a Store, node: &Node) -> Vec<&'a Pool> {
    let mut pools: Vec<&Pool> = store
        .pools()
        .filter_map(|object| object.pool.as_ref().ok())
        .filter(|pool| pool.selector.matches(&node.labels))
        .collect();
    pools.sort_by_key(|pool| (-i64::from(pool.priority), pool.name.clone()));
    pools
}

/// Whether a pool has a range around this address out of which it gives blocks.
pub(super) fn is_given_out(store: &Store, address: IpAddr) -> bool {
    store.pools().filter_map(|object| object.pool.as_ref().ok()).any(|pool| {
        pool.families
            .values()
            .flat_map(|ranges| &ranges.cidrs)
            .any(|(range, state)| *state == RangeState::Active && range.contains(address))
    })
}

/// The blocks that a pool gives out, free or not.
fn blocks_of(store: &Store, pool: &Pool, family: Family) -> Vec<Cidr> {
    let Some(ranges) = pool.families.get(&family) else { return Vec::new() };
    if pool.deleting {
        return Vec::new();
    }
    let older: Vec<Cidr> = store
        .pools()
        .filter_map(|object| object.pool.as_ref().ok())
        .filter(|other| (other.created, &other.uid) < (pool.created, &pool.uid))
        .flat_map(|other| other.families.values().flat_map(|ranges| ranges.cidrs.keys().copied()))
        .collect();
    let mut blocks = Vec::new();
    for range in
        ranges.cidrs.iter().filter(|(_, state)| **state == RangeState::Active).map(|(range, _)| range)
    {
        let mut block = Cidr::containing(range.first_address(), ranges.block_prefix);
        while let Some(candidate) = block.filter(|candidate| range.covers(*candidate)) {
            let offers = candidate.size() > pool.withheld(candidate, &AddressSet::new()).count_in(candidate);
            if offers && older.iter().all(|other| !other.overlaps(candidate)) {
                blocks.push(candidate);
            }
            block = candidate.last().checked_add(1).map(|next| candidate.same_size_at(next));
        }
    }
    blocks
}

/// How many addresses each free block of a pool offers.
fn free_blocks(store: &Store, excuses: &Excuses, pool: &Pool, family: Family) -> Vec<u128> {
    let own = own_addresses(store);
    let offered = |block: Cidr| block.size() - pool.withheld(block, &own).count_in(block);
    let free = free_of(store, excuses, pool, family).into_iter().map(offered);
    free.filter(|offered| *offered > 0).collect()
}

/// How many addresses each free block of a pool offers that has none of the nodes' own, and no excluded one.
fn free_whole_blocks(store: &Store, excuses: &Excuses, pool: &Pool, family: Family) -> Vec<u128> {
    let own = own_addresses(store);
    let is_whole = |block: &Cidr| {
        let withheld = pool.withheld(*block, &own);
        given_of(*block).all(|address| !withheld.contains(address))
    };
    let free = free_of(store, excuses, pool, family).into_iter().filter(is_whole);
    free.map(|block| given_of(block).count() as u128).collect()
}

/// The addresses that nodes have for themselves.
fn own_addresses(store: &Store) -> AddressSet {
    let of_nodes = store.nodes().flat_map(|node| node.addresses.iter().map(|address| address.address));
    of_nodes.chain(store.cilium_nodes().flat_map(|seen| seen.addresses.iter().copied())).collect()
}

/// The free blocks of a pool.
fn free_of(store: &Store, excuses: &Excuses, pool: &Pool, family: Family) -> Vec<Cidr> {
    let mut taken: Vec<Cidr> = store.claims().map(|claim| claim.cidr).collect();
    taken.extend(
        store.cilium_nodes().flat_map(|seen| carried_by_cilium_node(seen).cidrs().collect::<Vec<_>>()),
    );
    taken.extend(store.carriers().iter().flat_map(|seen| blocks(seen)));
    // Whoever has seen what somebody put onto a CiliumNode keeps it taken when that goes.
    taken.extend(excuses.foreign.iter().map(|(_, cidr)| *cidr));
    let is_free = |block: &Cidr| taken.iter().all(|other| !other.overlaps(*block));
    blocks_of(store, pool, family).into_iter().filter(is_free).collect()
}
