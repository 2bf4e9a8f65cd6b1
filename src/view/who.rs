//! Who has an address: one word for it, where it comes from, and the rest in a few words.
//!
//! Derived from objects alone, as they were listed. The word follows from what agents report. Pods only add their names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::ledger::Occupant;
use crate::model::claim::{Claim, ClaimState};
use crate::model::counted::counted;
use crate::model::names::{NodeName, PoolName, ten_by_number, ten_of};
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
    /// The pods that are known to have addresses in the range.
    pub pods: Vec<String>,
    /// Where this comes from, without the node and the pool.
    pub detail: String,
}

/// Pods by their addresses, as `namespace/name`.
pub type Pods = BTreeMap<IpAddr, String>;

/// The answers about an address or a range: one per claim in it, per foreign range, and per pool that has more. Kinds of
/// `others` with addresses in it follow, one answer each.
#[must_use]
pub fn who(world: &World, others: &[OtherRange], pods: &Pods, asked: Cidr) -> Vec<Answer> {
    let mut claims: Vec<Cidr> = world.ledger().overlapping_claims(asked).collect();
    claims.dedup();
    let is_claimed = claims.iter().any(|claim| claim.covers(asked));
    let mut answers: Vec<Answer> = claims
        .into_iter()
        .filter_map(|cidr| world.claim(cidr))
        .map(|known| of_claim(world, &known.claim, asked))
        .collect();
    let unclaimed = world.ledger().unclaimed_in(asked);
    let foreign = unclaimed.filter(|(cidr, occupant)| !is_of_claim(world, *cidr, occupant));
    answers.extend(foreign.map(|(cidr, occupant)| of_unclaimed(world, asked, cidr, occupant)));
    if let Some(address) = single(asked)
        && answers.is_empty()
    {
        answers.extend(of_node_itself(world, address));
    }
    if answers.is_empty() || (single(asked).is_none() && !is_claimed) {
        let pools = world.ledger().pools_over(asked).filter_map(|name| world.pool(name));
        answers.extend(pools.filter_map(|pool| of_pool(world, pool, asked)));
    }
    answers.extend(of_others(others, asked));
    if answers.is_empty() {
        answers.push(Answer::of(asked, Word::Outside, "no pool declares it".to_owned()));
    }
    for answer in &mut answers {
        answer.name_pods(world, pods);
    }
    answers
}

impl Answer {
    fn of(range: Cidr, word: Word, detail: String) -> Self {
        let (block, node, pool, until) = (None, None, None, None);
        Self { range, word, block, node, pool, until, pods: Vec::new(), detail }
    }

    /// Names the pods of a single address, and those that keep a block on its node.
    fn name_pods(&mut self, world: &World, pods: &Pods) {
        let found: BTreeSet<&String> = self.range.entries_in(pods).map(|(_, pod)| pod).collect();
        self.pods = found.into_iter().cloned().collect();
        let is_leaving = self.word == Word::Draining;
        if is_leaving && self.pods.is_empty() && self.block == Some(self.range) {
            // The controller has read them.
            let claim = world.claim(self.range).map(|known| &known.claim);
            self.pods = claim.into_iter().flat_map(|claim| claim.status.drain_pods()).cloned().collect();
        }
        if self.pods.is_empty() || !(is_leaving || single(self.range).is_some()) {
            return;
        }
        let named =
            format!("{} {}", if self.pods.len() == 1 { "pod" } else { "pods" }, ten_by_number(&self.pods));
        self.detail = match self.word {
            Word::Used => format!("{named}, in {}", self.block.unwrap_or(self.range)),
            _ => format!("{}; {named}", self.detail),
        };
    }
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
    cidrs.into_iter().map(|cidr| of_unclaimed(world, cidr, cidr, &Occupant::Carried(node.clone()))).collect()
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
        Answer::of(range, Word::Service, ten_of(found.iter().map(named)))
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
    let block = claim.cidr;
    let until = world.cooled_at(claim);
    let (what, detail) = match &claim.state {
        ClaimState::Held => of_held(world, claim, asked),
        ClaimState::Draining(_) => {
            let waits = claim.status.drain.as_ref().map(|drain| format!(": {}", drain.waiting_for));
            (Word::Draining, format!("{block} is leaving the node{}", waits.unwrap_or_default()))
        }
        ClaimState::Releasing(reason) => {
            (Word::Releasing, format!("{block} is released ({reason}); its removal is not proven yet"))
        }
        ClaimState::Cooling(reason) => {
            let end = match until {
                Some(until) => format!("until {until} or soon after"),
                None if world.is_named_by_its_node(claim) => {
                    format!("while spec.podCIDRs of Node {} name it: recreate the Node", claim.node)
                }
                None => "until its unreadable pool is corrected".to_owned(),
            };
            (Word::Cooling, format!("{block} cools ({reason}) {end}"))
        }
    };
    let range = if asked.covers(block) { block } else { asked };
    Answer {
        block: Some(block),
        node: Some(claim.node.clone()),
        pool: Some(claim.pool.clone()),
        until,
        ..Answer::of(range, what, detail)
    }
}

/// An address of a block that a node holds, or the whole block.
fn of_held(world: &World, claim: &Claim, asked: Cidr) -> (Word, String) {
    let block = claim.cidr;
    let reader = world.reader_of(&claim.node);
    let Some(carrier) = world.carrier(&claim.node) else {
        return (Word::Held, format!("{block}, and the node has no carrier yet"));
    };
    let Some(address) = single(asked).filter(|_| block.size() > 1) else {
        let offered = reader.n_offered(block, &claim.excluded);
        let of_block = if asked.covers(block) { String::new() } else { format!(" of {block}") };
        let detail = if reader.traits().shows_use {
            let used = reader.n_used_in(carrier, block);
            format!("the agent uses {used} of {offered} addresses{of_block}")
        } else {
            format!("{}{of_block}", counted(offered, "address"))
        };
        return (Word::Held, detail);
    };
    if claim.excluded.contains(address) {
        return (Word::Excluded, format!("pods get no such address of {block}"));
    }
    if let Some(purpose) = reader.reserved_for(carrier, address) {
        return (Word::Reserved, format!("for {purpose}, in {block}"));
    }
    if !reader.lists(carrier, block) {
        return (Word::Held, format!("in {block}, which is not published yet"));
    }
    if !reader.traits().shows_use {
        return (Word::Held, format!("in {block}; agents do not report use in this mode"));
    }
    if reader.n_used_in(carrier, Cidr::single(address)) > 0 {
        return (Word::Used, format!("the agent reports it as used, in {block}"));
    }
    (Word::Free, format!("for the next pod, in {block}"))
}

fn of_unclaimed(world: &World, asked: Cidr, cidr: Cidr, occupant: &Occupant) -> Answer {
    let (node, detail) = match occupant {
        Occupant::Carried(node) => (Some(node.clone()), format!("{cidr} without a claim")),
        Occupant::Unreadable(kind, name) => {
            (None, format!("the unreadable {} {name} names {cidr}", kind.as_str()))
        }
        Occupant::LostClaim(_) | Occupant::Claim | Occupant::Pending => {
            (None, format!("the claim of {cidr} was lost, and its node may still use the block"))
        }
    };
    let pool = world.ledger().pools_over(asked).next().cloned();
    let range = if asked.covers(cidr) { cidr } else { asked };
    Answer { node, pool, ..Answer::of(range, Word::Foreign, detail) }
}

fn of_node_itself(world: &World, address: IpAddr) -> Option<Answer> {
    let range = Cidr::single(address);
    let nodes: BTreeSet<&NodeName> = world.nodes_in(range).collect();
    let node = (*nodes.first()?).clone();
    let pool = world.ledger().pools_over(range).next().cloned();
    let detail = format!("an address of {} itself: pods do not get it", ten_by_number(nodes));
    Some(Answer { node: Some(node), pool, ..Answer::of(range, Word::NodeAddress, detail) })
}

/// The answer of a pool about a range without an occupant.
fn of_pool(world: &World, pool: &Pool, asked: Cidr) -> Option<Answer> {
    let ranges = pool.families.get(&asked.family())?;
    let (declared, state) = ranges.cidrs.iter().find(|(declared, _)| declared.overlaps(asked))?;
    let name = &pool.name;
    let excluded = ranges.exclude.iter().find(|excluded| excluded.covers(asked));
    let has_free = world.ledger().has_free_in(name, asked.family(), asked);
    let (what, detail) = match (excluded, state) {
        (Some(excluded), _) => (Word::Excluded, format!("the pool excludes {excluded}")),
        (None, RangeState::Cordoned | RangeState::Draining) => {
            (Word::Closed, format!("{declared} is {state:?}: nodes get no more blocks of it"))
        }
        (None, RangeState::Active) if has_free => {
            let sizes: Vec<String> = ranges.sizes().iter().map(|size| format!("/{size}")).collect();
            (Word::Available, format!("in blocks of {} of {declared}", sizes.join(" or ")))
        }
        // If the whole range is held, the claims answer for it.
        (None, RangeState::Active) if single(asked).is_none() => return None,
        (None, RangeState::Active) => {
            let why = "the block around it is incomplete, or another pool keeps it";
            (Word::Closed, format!("in {declared}, without a block: {why}"))
        }
    };
    Some(Answer { pool: Some(name.clone()), ..Answer::of(asked, what, detail) })
}
