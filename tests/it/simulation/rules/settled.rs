//! The rules at rest, when nothing is left to do: claims are published, and every node is served that can be served.

use std::collections::{BTreeMap, BTreeSet};

use cilium_node_ipam::model::claim::{Claim, ClaimState, Reason};
use cilium_node_ipam::model::names::{NodeName, PodIpPoolName};
use cilium_node_ipam::model::node::{CiliumNode, Node};
use cilium_node_ipam::model::pool::Pool;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family};

use super::super::agent::Agent;
use super::super::cluster::Setting;
use super::super::mode::{Mode, OTHER_POOL, POOL, POOLS, blocks, given_of, offered};
use super::super::store::Store;
use super::free::{blocks_of, free_blocks, free_whole_blocks, is_adoptable, pools_of};
use super::{Given, Taint, is_given};

/// The number of addresses of each family that an agent needs before it can start.
const MINIMUM: u128 = 4;

/// The rules at rest, for every carrier of an existing, untainted node:
///
/// - A CIDR on it that can become a claim has one.
/// - It shows no blocks only if the pools can't serve all families of the node.
/// - Otherwise it shows the blocks of its claims. A node that needs another block has it, unless no free block fits.
///
/// A carrier is not judged further if it is being deleted, or if its node waits for a person.
pub(in super::super) fn settled(
    store: &Store,
    setting: &Setting,
    agents: &BTreeMap<NodeName, Agent>,
    given: &Given,
    taint: &Taint,
) -> Result<(), String> {
    for seen in store.carriers().iter().map(AsRef::as_ref).filter(|seen| !taint.is(&seen.name)) {
        let Some(node) = store.node(&seen.name) else { continue };
        let claims: Vec<&Claim> =
            store.claims().filter(|claim| claim.node == node.name && claim.node_uid == node.uid).collect();
        is_adopted(store, setting, node, seen)?;
        // It has a CIDR of another allocator that can't be its block, or a tainted node is in its way. Both are
        // reported.
        let is_left_alone = blocks(seen).iter().any(|cidr| is_given(store, given, &node.name, *cidr));
        let is_in_the_way = claims.iter().any(|claim| taint.reaches(claim.cidr));
        if seen.deleting || is_left_alone || is_in_the_way || is_undecided(store, seen, &claims) {
            continue;
        }
        let mode = store.mode_of(&node.name);
        let mut needs = Vec::new();
        for family in &setting.families {
            match mode {
                Mode::Crd => needs.push(Need::of(store, taint, node, seen, &claims, *family)),
                Mode::MultiPool => {
                    needs.extend(POOLS.map(|name| Need::of_pools(store, taint, node, seen, *family, name)));
                }
                Mode::ClusterPool | Mode::Kubernetes(_) => {
                    needs.push(Need::of_one_block(store, taint, node, seen, *family));
                }
            }
        }
        let minimum = match mode {
            Mode::Crd => MINIMUM,
            Mode::MultiPool | Mode::ClusterPool | Mode::Kubernetes(_) => 1,
        };
        if offered(seen).is_empty() {
            // Agents start with blocks of the default pool.
            let mut for_start = needs.iter().filter(|need| need.name != OTHER_POOL).peekable();
            if for_start.peek().is_some() && for_start.all(|need| need.reach >= minimum) {
                return Err(format!("{} could be served and is not", node.name));
            }
        } else {
            is_published(store, seen, &claims)?;
            // A person holds its growth, or its agent of another mode does not report its use.
            let is_of_mode = agents.get(&node.name).is_none_or(|agent| agent.mode() == mode);
            let may_grow = node.growth_hold.is_none() && is_of_mode;
            for need in &needs {
                let mut of_name = needs.iter().filter(|other| other.name == need.name);
                // The first blocks under a name are of all families, or there are none.
                let cannot_begin = mode == Mode::MultiPool
                    && seen.pools.allocated.iter().all(|entry| entry.pool != need.name)
                    && of_name.any(|other| other.reach < minimum);
                if !cannot_begin && may_grow {
                    need.is_met_or_cannot(&node.name)?;
                }
            }
        }
    }
    Ok(())
}

/// Each CIDR on the carrier has a claim, if it can become one. Where a node has one block, all of its CIDRs have, or
/// none.
fn is_adopted(store: &Store, setting: &Setting, node: &Node, seen: &CiliumNode) -> Result<(), String> {
    let is_claimed = |cidr: &Cidr| store.claim(*cidr).is_some_and(|claim| claim.node == node.name);
    let shown = blocks(seen);
    let is_one_of_each = setting.families.iter().all(|family| {
        let mut of_family = shown.iter().filter(|cidr| cidr.family() == *family);
        of_family.next().is_some() && of_family.next().is_none()
    });
    let can_be = |cidr: &Cidr| is_claimed(cidr) || is_adoptable(store, seen, *cidr);
    let is_whole = is_one_of_each && shown.iter().all(can_be);
    // Blocks of an absent CiliumNode stay taken while its Node exists, and no object shows which these are.
    let is_any_away = store.nodes().any(|node| store.carrier(&node.name).is_none());
    if seen.deleting
        || node.deleting
        || is_any_away
        || !seen.malformed.is_empty()
        || (store.mode_of(&node.name).gives_one_block() && !is_whole)
    {
        return Ok(());
    }
    match shown.iter().find(|cidr| is_adoptable(store, seen, **cidr)) {
        None => Ok(()),
        Some(cidr) => Err(format!("{} has {cidr}, a block of a pool, and no claim of it", node.name)),
    }
}

/// Whether a person must decide about a node that offers nothing. A block of it overlaps another one, nothing shows
/// which of several blocks its agent has, or pods use a block that a user gave up. Until then nothing is published.
fn is_undecided(store: &Store, seen: &CiliumNode, claims: &[&Claim]) -> bool {
    let of_family = |family: Family| claims.iter().filter(|claim| claim.cidr.family() == family).count();
    let is_one_of_several = store.mode_of(&seen.name).gives_one_block()
        && Family::ALL.iter().any(|family| of_family(*family) > 1);
    let has_pods = |claim: &Claim| {
        claim.state == ClaimState::Releasing(Reason::Unused) && has_pods_in(store, &seen.name, claim)
    };
    let waits = |claim: &Claim| is_overlapped(store, claim) || has_pods(claim);
    offered(seen).is_empty() && (is_one_of_several || claims.iter().copied().any(waits))
}

/// Whether the last read of the node's Pods has shown an address of the claim.
fn has_pods_in(store: &Store, node: &NodeName, claim: &Claim) -> bool {
    let mut holders = store.holders.get(node).into_iter().flatten();
    holders.any(|(address, _)| claim.cidr.contains(*address))
}

fn is_overlapped(store: &Store, claim: &Claim) -> bool {
    store.claims().any(|other| other.cidr != claim.cidr && other.cidr.overlaps(claim.cidr))
}

fn is_published(store: &Store, seen: &CiliumNode, claims: &[&Claim]) -> Result<(), String> {
    // A block that its agent released may cool for longer than a cluster takes to come to rest. A removed block waits
    // for its last pod.
    let has_left = |claim: &Claim| match claim.state {
        ClaimState::Cooling(Reason::Reclaimed | Reason::Unused) => true,
        ClaimState::Releasing(Reason::Reclaimed) => {
            !blocks(seen).contains(&claim.cidr) && has_pods_in(store, &seen.name, claim)
        }
        _ => false,
    };
    let mode = store.mode_of(&seen.name);
    // Where a node has one block, any other claim of it stays. So does a claim that overlaps another.
    let is_left = |claim: &Claim| {
        !blocks(seen).contains(&claim.cidr) && (mode.gives_one_block() || is_overlapped(store, claim))
    };
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
    // Nothing is removed from an agent that is not Ready. It may wait for addresses that no pool has.
    let is_ready = store.agent_pods.on(&seen.name).any(|pod| pod.ready);
    let released = claims.iter().find(|claim| !claim.is_published_state());
    if let Some(claim) = released.filter(|_| mode != Mode::Crd && is_ready) {
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

/// The addresses of one family that a node has, needs and could get.
#[derive(Debug)]
struct Need {
    family: Family,
    /// The Cilium pool, in modes that have them.
    name: &'static str,
    is_met: bool,
    /// Whether a pool has a free block that fits into the node's limits.
    can_grow: bool,
    /// How many addresses the node has, or can get for certain.
    reach: u128,
}

impl Need {
    fn of(
        store: &Store,
        taint: &Taint,
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
            } else if seen.crd.owners.contains(address) {
                kept += 1;
            }
        }
        // Without a pool that can give a block, no need can be met, so none counts.
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
            let free = free_blocks(store, taint, node, pool, family);
            // If some blocks of a pool fit and some do not, the order decides.
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

    /// The same where the agent reports its need, and has whole blocks except for their first and last address.
    fn of_pools(
        store: &Store,
        taint: &Taint,
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
            for offered in free_whole_blocks(store, taint, node, pool, family) {
                // A pool may count more addresses of a block than agents give out.
                let fits = capacity + offered + 2 <= most_addresses && listed.len() < most_blocks;
                can_grow |= fits;
                reach += if fits { offered } else { 0 };
            }
        }
        // An agent that has not reported its need is not served.
        let reach = if needed > 0 { reach } else { 0 };
        Self { family, name, is_met: needed <= capacity, can_grow, reach }
    }

    /// The same where a node has one block for its life, whether it needs more or not.
    fn of_one_block(store: &Store, taint: &Taint, node: &Node, seen: &CiliumNode, family: Family) -> Self {
        let is_met = blocks(seen).iter().any(|block| block.family() == family);
        let free = |pool: &&Pool| free_whole_blocks(store, taint, node, pool, family);
        let reach = pools_of(store, node).iter().flat_map(free).max().unwrap_or_default();
        // It never gets a family that it lacks, because its agent would not see it.
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
