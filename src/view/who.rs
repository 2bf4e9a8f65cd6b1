//! Who has an address: one word for it, where it comes from, and a sentence.
//!
//! Derived from objects alone, as they were listed. Does not know which Pod has an address: agents report addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::ledger::Occupant;
use crate::model::claim::{Claim, ClaimState};
use crate::model::names::{NodeName, PoolName, ten_of};
use crate::model::pool::{Pool, RangeState};
use crate::model::stable_names;
use crate::model::surroundings::OtherRange;
use crate::model::time::Timestamp;
use crate::net::cidr::Cidr;
use crate::world::World;

stable_names! {
    /// The state of an address or a range.
    pub enum Word {
        /// The agent of a node reports it as used.
        Used => "used",
        /// The agent of a node has it for itself, or it is kept for that.
        Reserved => "reserved",
        /// A node holds it, and its agent may give it to the next pod.
        Free => "free",
        /// A node holds it, and agents report no use in this mode.
        Held => "held",
        /// A pool excludes it, or it is the first or last address of a block.
        Excluded => "excluded",
        /// It is in a block that is leaving its node.
        Draining => "draining",
        /// It is in a block that its node has given up, and the proof that it is off the node is missing.
        Releasing => "releasing",
        /// It is in a block that cools before another node may get it.
        Cooling => "cooling",
        /// No node has it, and the next node may get it.
        Available => "available",
        /// A pool declares it, and gives out no block with it.
        Closed => "closed",
        /// Something that is not a claim takes it.
        Foreign => "foreign",
        /// It is an address of a node itself.
        NodeAddress => "node-address",
        /// A Service, a load balancer or a device has it, or may get it.
        Service => "service",
        /// No pool declares it.
        Outside => "outside",
    }
}

/// The answer about an address, or about one part of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The address or range.
    pub range: Cidr,
    /// Its state.
    pub word: Word,
    /// The block that it is in, if there is one.
    pub block: Option<Cidr>,
    /// The node that has it, or had it.
    pub node: Option<NodeName>,
    /// The pool that it is of.
    pub pool: Option<PoolName>,
    /// When another node may get it, where that is known.
    pub until: Option<Timestamp>,
    /// A sentence that says where this comes from.
    pub detail: String,
}

/// The answers about an address or a range: one per claim in it, per foreign range, and per pool that has more. Kinds of
/// `others` with addresses in it follow, one answer each.
#[must_use]
pub fn who(world: &World, others: &[OtherRange], asked: Cidr) -> Vec<Answer> {
    let mut claims: Vec<Cidr> = world.ledger().overlapping_claims(asked).collect();
    claims.dedup();
    let mut answers: Vec<Answer> = claims
        .into_iter()
        .filter_map(|cidr| world.claim(cidr))
        .map(|known| of_claim(world, &known.claim, asked))
        .collect();
    let strangers = world.ledger().strangers_in(asked);
    let foreign = strangers.filter(|(cidr, occupant)| !is_of_claim(world, *cidr, occupant));
    answers.extend(foreign.map(|(cidr, occupant)| of_stranger(world, asked, cidr, occupant)));
    if let Some(address) = single(asked)
        && answers.is_empty()
    {
        answers.extend(of_node_itself(world, address));
    }
    if answers.is_empty() || single(asked).is_none() {
        let pools = world.ledger().pools_over(asked).filter_map(|name| world.pool(name));
        answers.extend(pools.filter_map(|pool| of_pool(world, pool, asked)));
    }
    answers.extend(of_others(others, asked));
    if answers.is_empty() {
        let detail = "no pool declares it".to_owned();
        let (block, node, pool, until) = (None, None, None, None);
        answers.push(Answer { range: asked, word: Word::Outside, block, node, pool, until, detail });
    }
    answers
}

/// The addresses on the carrier of a node without a claim of the node: first the CIDRs that it lists, as they are, then
/// all other entries.
#[must_use]
pub fn unclaimed(world: &World, node: &NodeName) -> Vec<Answer> {
    let Some(carrier) = world.carrier(node) else { return Vec::new() };
    let mut rest = world.ledger().carried(node).cloned().unwrap_or_default();
    let mut cidrs = world.reader_of(node).blocks(carrier);
    cidrs.retain(|cidr| rest.covers(*cidr));
    for cidr in &cidrs {
        rest.remove_cidr(*cidr);
    }
    cidrs.extend(rest.cidrs());
    cidrs.into_iter().map(|cidr| of_stranger(world, cidr, cidr, &Occupant::Carried(node.clone()))).collect()
}

/// The objects of other systems with addresses in a range, one answer per kind.
fn of_others(others: &[OtherRange], asked: Cidr) -> impl Iterator<Item = Answer> {
    let mut by_kind: BTreeMap<&str, Vec<(&str, Cidr)>> = BTreeMap::new();
    for other in others {
        let inside = other.cidrs.iter().filter(|cidr| cidr.overlaps(asked));
        let inside: Vec<(&str, Cidr)> = inside.map(|cidr| (other.name.as_str(), *cidr)).collect();
        if !inside.is_empty() {
            by_kind.entry(other.kind).or_default().extend(inside);
        }
    }
    by_kind.into_iter().map(move |(kind, mut found)| {
        found.dedup();
        let named = |(name, cidr): &(&str, Cidr)| match single(*cidr) {
            Some(address) => format!("{kind} {name} has {address}"),
            None => format!("{kind} {name} has {cidr}"),
        };
        let range = match found[..] {
            [(_, cidr)] if asked.covers(cidr) => cidr,
            _ => asked,
        };
        let (block, node, pool, until) = (None, None, None, None);
        let detail = ten_of(found.iter().map(named));
        Answer { range, word: Word::Service, block, node, pool, until, detail }
    })
}

fn single(range: Cidr) -> Option<IpAddr> {
    (range.size() == 1).then(|| range.first_address())
}

/// Whether a range on a CiliumNode belongs to a claim of its node.
fn is_of_claim(world: &World, cidr: Cidr, occupant: &Occupant) -> bool {
    match occupant {
        Occupant::Carried(node) => world.claims_of(node).any(|known| known.claim.cidr.covers(cidr)),
        Occupant::Claim | Occupant::Pending => true,
        Occupant::LostClaim(_) | Occupant::Unreadable(..) => false,
    }
}

fn of_claim(world: &World, claim: &Claim, asked: Cidr) -> Answer {
    let (block, node) = (claim.cidr, &claim.node);
    let until = world.cooled_at(claim);
    let (what, detail) = match &claim.state {
        ClaimState::Held => of_held(world, claim, asked),
        ClaimState::Draining(_) => {
            let waits = claim.status.drain.as_ref().map(|drain| format!(": {}", drain.waiting_for));
            let detail = format!("{block} is draining from node {node}{}", waits.unwrap_or_default());
            (Word::Draining, detail)
        }
        ClaimState::Releasing(reason) => {
            let detail =
                format!("node {node} has released {block} ({reason}); its removal is not proven yet");
            (Word::Releasing, detail)
        }
        ClaimState::Cooling(reason) => {
            let end = until.map_or("until its unreadable pool is corrected".to_owned(), |until| {
                format!("until {until} or soon after")
            });
            (Word::Cooling, format!("{block} of node {node} cools ({reason}) {end}"))
        }
    };
    let range = if asked.covers(block) { block } else { asked };
    Answer {
        range,
        word: what,
        block: Some(block),
        node: Some(node.clone()),
        pool: Some(claim.pool.clone()),
        until,
        detail,
    }
}

/// An address of a block that a node holds, or the whole block.
fn of_held(world: &World, claim: &Claim, asked: Cidr) -> (Word, String) {
    let (block, node) = (claim.cidr, &claim.node);
    let reader = world.reader();
    let Some(carrier) = world.carrier(node) else {
        return (Word::Held, format!("node {node} holds {block} and has no carrier yet"));
    };
    let Some(address) = single(asked).filter(|_| block.size() > 1) else {
        let offered = reader.n_offered(block, &claim.withheld);
        let detail = if reader.traits().shows_use {
            let used = reader.n_used_in(carrier, block);
            format!("node {node} holds {block}, and its agent uses {used} of {offered} addresses")
        } else {
            format!("node {node} holds {block} with {offered} addresses")
        };
        return (Word::Held, detail);
    };
    if claim.withheld.contains(address) {
        return (Word::Excluded, format!("pods get no such address of {block} of node {node}"));
    }
    if let Some(purpose) = reader.reserved_for(carrier, address) {
        return (Word::Reserved, format!("reserved on node {node} in {block} for {purpose}"));
    }
    if !reader.carries(carrier, block) {
        return (Word::Held, format!("node {node} holds {block}, but it is not published yet"));
    }
    if !reader.traits().shows_use {
        let detail = format!("node {node} holds {block}; agents do not report use in this mode");
        return (Word::Held, detail);
    }
    if reader.n_used_in(carrier, Cidr::single(address)) > 0 {
        return (Word::Used, format!("the agent of node {node} reports it as used in {block}"));
    }
    (Word::Free, format!("the agent of node {node} may give it to the next pod in {block}"))
}

fn of_stranger(world: &World, asked: Cidr, cidr: Cidr, occupant: &Occupant) -> Answer {
    let (node, detail) = match occupant {
        Occupant::Carried(node) => (Some(node.clone()), format!("node {node} has {cidr} without a claim")),
        Occupant::Unreadable(kind, name) => {
            (None, format!("the unreadable {} {name} names {cidr}", kind.as_str()))
        }
        Occupant::LostClaim(_) | Occupant::Claim | Occupant::Pending => {
            (None, format!("the claim of {cidr} was lost, and its node may still use the block"))
        }
    };
    let pool = world.ledger().pools_over(asked).next().cloned();
    let range = if asked.covers(cidr) { cidr } else { asked };
    Answer { range, word: Word::Foreign, block: None, node, pool, until: None, detail }
}

fn of_node_itself(world: &World, address: IpAddr) -> Option<Answer> {
    let range = Cidr::single(address);
    let nodes: BTreeSet<&NodeName> = world.nodes_in(range).collect();
    let node = (*nodes.first()?).clone();
    let pool = world.ledger().pools_over(range).next().cloned();
    let detail = format!("it is an address of node {} itself: pods do not get it", ten_of(nodes));
    Some(Answer { range, word: Word::NodeAddress, block: None, node: Some(node), pool, until: None, detail })
}

/// The answer of a pool about a range without an occupant.
fn of_pool(world: &World, pool: &Pool, asked: Cidr) -> Option<Answer> {
    let ranges = pool.families.get(&asked.family())?;
    let (declared, state) = ranges.cidrs.iter().find(|(declared, _)| declared.overlaps(asked))?;
    let name = &pool.name;
    let excluded = ranges.exclude.iter().find(|excluded| excluded.covers(asked));
    let has_free = world.ledger().has_free_in(name, asked.family(), asked);
    let (what, detail) = match (excluded, state) {
        (Some(excluded), _) => (Word::Excluded, format!("pool {name} excludes {excluded}")),
        (None, RangeState::Cordoned) => {
            (Word::Closed, format!("pool {name} has {declared} Cordoned: nodes get no more blocks of it"))
        }
        (None, RangeState::Draining) => {
            (Word::Closed, format!("pool {name} has {declared} Draining: nodes get no more blocks of it"))
        }
        (None, RangeState::Active) if has_free => {
            let prefix = ranges.block_prefix;
            (Word::Available, format!("pool {name} gives it in blocks of /{prefix} from {declared}"))
        }
        // If the whole range is held, the claims answer for it.
        (None, RangeState::Active) if single(asked).is_none() => return None,
        (None, RangeState::Active) => {
            let why = "the block around it is incomplete, or another pool keeps it";
            (Word::Closed, format!("pool {name} declares {declared} and gives no block with it: {why}"))
        }
    };
    let (block, node, until) = (None, None, None);
    Some(Answer { range: asked, word: what, block, node, pool: Some(name.clone()), until, detail })
}
