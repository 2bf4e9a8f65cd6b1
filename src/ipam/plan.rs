//! What to do for one node next: claims to create and blocks to publish, as data.
//!
//! Pure, total and deterministic: it takes the world and the time, fails on nothing, and reports what it saw. One
//! node at a time, because each decision enters the world before the next is made (`World::begin`), so the cost of
//! a decision does not grow with the cluster (`docs/decisions/0002-one-node-at-a-time.md`).
//!
//! Keeps safety rules 3 (claim before publish) and 4 (every write carries what it was decided on): see
//! [`may_publish`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::block::{Cidr, Family};
use super::claim::{Claim, ClaimState};
use super::expand::{Demand, MINIMUM_FOR_START};
use super::finding::{Finding, FindingKind};
use super::ledger::Taker;
use super::names::NodeName;
use super::pool::{MAX_ADDRESSES_PER_NODE, Pool};
use crate::cilium::publish;
use crate::world::objects::{CiliumNode, Node, Settings};
use crate::world::observe::Kind;
use crate::world::write::{NewClaim, Write};
use crate::world::{KnownClaim, Now, World};

/// How many free blocks of one pool are looked at for one claim before the pool counts as full. Blocks are refused
/// only where every address in them is a node's own, which happens to a handful of /31 and /32.
const MOST_REFUSALS: usize = 1024;

/// The policies of a plan that are the controller's and not a pool's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The shortest time between two patches of one served CiliumNode. Conflicts kill agents
    /// (`docs/cilium.md`, Who else writes).
    pub min_write_interval: Duration,
}

/// What a node asks for and does not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmet {
    /// No pool of the node has a free block of the family.
    NoCapacity(Family),
    /// The node holds as much as its first pool allows.
    AtLimit(Family),
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCapacity(family) => write!(f, "no pool of the node has a free {family} block"),
            Self::AtLimit(family) => {
                write!(f, "the node holds as many {family} blocks or addresses as its first pool allows")
            }
        }
    }
}

/// What to do for one node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct NodePlan {
    /// The node.
    pub node: NodeName,
    /// What to write, or to read first.
    pub writes: Vec<Write>,
    /// What it asks for and does not get now.
    pub unmet: BTreeSet<Unmet>,
    /// What was seen to be wrong.
    pub findings: Vec<Finding>,
    /// When to look again although nothing changes.
    pub wake: Option<Duration>,
    /// Why there is nothing to write, where there is something to wait for.
    pub waits_for: Option<WaitsFor>,
}

/// What a node without a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The controller may write nothing.
    Mode,
    /// Its Node or CiliumNode does not exist, or can't be read.
    Objects,
    /// A write for it, or a claim of it, is under way.
    Answer,
    /// A time.
    Time,
}

impl NodePlan {
    fn idle(node: &NodeName) -> Self {
        Self {
            node: node.clone(),
            writes: Vec::new(),
            unmet: BTreeSet::new(),
            findings: Vec::new(),
            wake: None,
            waits_for: None,
        }
    }

    fn waiting_for(mut self, what: WaitsFor) -> Self {
        self.waits_for = Some(what);
        self
    }

    /// Whether the node has everything it asks for, as far as it can be had.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.writes.is_empty() && self.waits_for.is_none()
    }
}

/// What to do for `name` now.
pub fn node(world: &World, name: &NodeName, policy: Policy, now: Now) -> NodePlan {
    let mut plan = NodePlan::idle(name);
    let Some(settings) = world.settings() else {
        return plan.waiting_for(WaitsFor::Mode);
    };
    let (Some(node), Some(cilium_node)) = (world.node(name), world.cilium_node(name)) else {
        return plan.waiting_for(WaitsFor::Objects);
    };
    let unreadable =
        [Kind::Node, Kind::CiliumNode].iter().any(|kind| world.unreadable(*kind, name.as_str()).is_some());
    if unreadable || cilium_node.deleting {
        return plan.waiting_for(WaitsFor::Objects);
    }
    if let Some(malformed) = cilium_node.malformed.first() {
        plan.findings.push(Finding::new(
            FindingKind::MalformedCiliumNode,
            Kind::CiliumNode,
            name.as_str(),
            format!("{} is `{}`, which is no canonical address or prefix; the node is not written until it is mended", malformed.field, malformed.value),
        ));
        return plan.waiting_for(WaitsFor::Objects);
    }
    if world.is_busy(name) {
        return plan.waiting_for(WaitsFor::Answer);
    }
    if let Some(not_before) = world.serving(name).and_then(|serving| serving.not_before)
        && not_before > now.uptime
    {
        plan.wake = Some(not_before);
        return plan.waiting_for(WaitsFor::Time);
    }

    let view = View { world, node, cilium_node, settings };
    plan.unmet = view.grow(&mut plan.writes, &mut plan.findings, now);
    if plan.writes.is_empty() {
        view.publish(&mut plan, policy, now);
    }
    plan
}

/// One node, with all that a decision about it looks at.
struct View<'a> {
    world: &'a World,
    node: &'a Node,
    cilium_node: &'a CiliumNode,
    settings: &'a Settings,
}

/// Blocks that the plan has chosen in one family, beside what the node holds.
struct Growth<'a> {
    family: Family,
    blocks: Vec<Cidr>,
    demand: Demand,
    picked: Vec<(Cidr, &'a Pool)>,
    unmet: Option<Unmet>,
}

impl<'a> View<'a> {
    /// The claims that count for this node: held or draining.
    fn held(&self) -> impl Iterator<Item = &'a Claim> {
        self.world
            .claims_of(&self.node.name)
            .map(|known| &known.claim)
            .filter(|claim| claim.is_published_state())
    }

    /// Whether any block of ours stands on the CiliumNode: the first grant is over.
    fn is_served(&self) -> bool {
        self.held().any(|claim| self.cilium_node.pod_cidrs.contains(&claim.cidr))
    }

    /// Claims for what the node lacks. A first grant covers every family or is not made at all, so that no node
    /// holds half of one while another waits for it.
    fn grow(&self, writes: &mut Vec<Write>, findings: &mut Vec<Finding>, now: Now) -> BTreeSet<Unmet> {
        let Some(first) = self.world.pools_of(&self.node.name).next() else {
            return BTreeSet::new();
        };
        let served = self.is_served();
        let mut growths: Vec<Growth<'_>> =
            self.settings.families.iter().map(|family| self.grow_family(*family, first, served)).collect();
        let unmet: BTreeSet<Unmet> = growths.iter().filter_map(|growth| growth.unmet).collect();
        let startable = growths.iter().all(|growth| growth.demand.capacity >= MINIMUM_FOR_START);
        if !served && !startable {
            for growth in &mut growths {
                growth.picked.clear();
            }
        }
        for growth in &growths {
            if let Some(Unmet::AtLimit(family)) = growth.unmet {
                findings.push(Finding::new(
                    FindingKind::NodeAtLimit,
                    Kind::Node,
                    self.node.name.as_str(),
                    format!(
                        "{family}: {} blocks with {} addresses of which {} are free; perNode of pool {} allows no more",
                        growth.blocks.len(), growth.demand.capacity, growth.demand.free(), first.name,
                    ),
                ));
            }
            writes.extend(growth.picked.iter().map(|(cidr, pool)| {
                Write::CreateClaim(NewClaim {
                    cidr: *cidr,
                    pool: pool.name.clone(),
                    node: self.node.name.clone(),
                    node_uid: self.node.uid.clone(),
                    withheld: pool.withheld(*cidr, &self.world.node_addresses_in(*cidr)),
                    since: now.wall,
                })
            }));
        }
        unmet
    }

    /// The fewest blocks that end both thresholds of the node's first pool, within its limits.
    fn grow_family(&self, family: Family, first: &Pool, served: bool) -> Growth<'a> {
        let blocks: Vec<Cidr> =
            self.held().map(|claim| claim.cidr).filter(|cidr| cidr.family() == family).collect();
        let mut growth =
            Growth { family, blocks, demand: self.demand(family), picked: Vec::new(), unmet: None };
        let max_addresses = u128::from(first.per_node.max_addresses.min(MAX_ADDRESSES_PER_NODE));
        loop {
            let enough_to_start = growth.demand.capacity >= MINIMUM_FOR_START
                && (served || growth.blocks.len() >= first.per_node.initial_blocks as usize);
            if enough_to_start && growth.demand.is_met(first.expand) {
                return growth;
            }
            if growth.blocks.len() >= first.per_node.max_blocks as usize {
                growth.unmet = Some(Unmet::AtLimit(family));
                return growth;
            }
            match self.pick(&growth, max_addresses) {
                Ok((cidr, pool, offered)) => {
                    growth.blocks.push(cidr);
                    growth.picked.push((cidr, pool));
                    growth.demand = growth.demand.grown_by(offered);
                }
                Err(unmet) => {
                    growth.unmet = Some(unmet);
                    return growth;
                }
            }
        }
    }

    /// The next block: from the first of the node's pools that has one.
    fn pick(&self, growth: &Growth<'_>, max_addresses: u128) -> Result<(Cidr, &'a Pool, u128), Unmet> {
        let mut too_large = false;
        for pool in self.world.pools_of(&self.node.name) {
            let Some(space) = self.world.ledger().space(&pool.name, growth.family) else {
                continue;
            };
            for cidr in space.candidates(&growth.blocks).take(MOST_REFUSALS) {
                let withheld = pool.withheld(cidr, &self.world.node_addresses_in(cidr));
                let offered = cidr.size() - withheld.count_in(cidr);
                if offered == 0 {
                    continue;
                }
                if growth.demand.capacity + offered > max_addresses {
                    too_large = true;
                    break;
                }
                return Ok((cidr, pool, offered));
            }
        }
        Err(if too_large { Unmet::AtLimit(growth.family) } else { Unmet::NoCapacity(growth.family) })
    }

    /// Use of what the node holds in a family. Unknown use counts as none until the agent writes it.
    fn demand(&self, family: Family) -> Demand {
        let mut demand = Demand::default();
        let mut kept = 0;
        for claim in self.held().filter(|claim| claim.cidr.family() == family) {
            demand.capacity += claim.offered_count();
            if let Some(used) = &self.cilium_node.used {
                demand.used += used.count_in(claim.cidr);
            }
            let range = claim.cidr.first_address()..=claim.cidr.last_address();
            let is_used = |address| self.cilium_node.used.as_ref().is_some_and(|used| used.contains(address));
            let owned =
                self.cilium_node.owners.range(range).filter(|(address, _)| !is_used(**address)).count();
            let handshake = self
                .cilium_node
                .in_handshake
                .iter_in(claim.cidr)
                .filter(|address| !is_used(*address) && !self.cilium_node.owners.contains_key(address))
                .count();
            kept += owned + handshake;
        }
        let has_primary = self.cilium_node.pod_cidrs.iter().any(|cidr| cidr.family() == family);
        if !has_primary {
            // They will be kept in the primary block, as soon as there is one.
            kept += self.settings.infrastructure.len();
        }
        demand.unavailable = kept as u128;
        demand
    }

    /// The patch that shows the node's claims, or the read that has to come first.
    fn publish(&self, plan: &mut NodePlan, policy: Policy, now: Now) {
        let mut publishable = Vec::new();
        for known in self.world.claims_of(&self.node.name) {
            match may_publish(self.world, self.node, known) {
                Ok(()) => publishable.push(known),
                Err(NotPublishable::State) => {}
                Err(NotPublishable::OtherNodeObject) => plan.findings.push(Finding::new(
                    FindingKind::ClaimOfOtherNode,
                    Kind::Claim,
                    &known.claim.cidr.object_name(),
                    format!(
                        "it was made for a Node {} of uid {}, and the Node of that name has uid {}",
                        self.node.name, known.claim.node_uid, self.node.uid
                    ),
                )),
                Err(NotPublishable::Overlaps(other, taker)) => plan.findings.push(Finding::new(
                    FindingKind::Overlap,
                    Kind::Claim,
                    &known.claim.cidr.object_name(),
                    format!("{other} overlaps it ({taker}); it is not published"),
                )),
            }
        }
        let claims: Vec<&Claim> = publishable.iter().map(|known| &known.claim).collect();
        if !self.is_served() && !self.can_start_with(&claims) {
            return;
        }
        let Some(publication) = publish::difference(self.cilium_node, &claims, self.settings) else {
            return;
        };
        if self.is_served()
            && let Some(last) = self.world.serving(&self.node.name).and_then(|serving| serving.last_publish)
            && last + policy.min_write_interval > now.uptime
        {
            plan.wake = Some(last + policy.min_write_interval);
            plan.waits_for = Some(WaitsFor::Time);
            return;
        }
        let is_fresh = |known: &&KnownClaim| self.world.known_at(known) >= publication.revision;
        if publishable.iter().all(is_fresh) {
            plan.writes.push(Write::Publish(publication));
        } else {
            plan.writes.push(Write::ConfirmClaims(self.node.name.clone()));
        }
    }

    fn can_start_with(&self, claims: &[&Claim]) -> bool {
        let mut offered: BTreeMap<Family, u128> = BTreeMap::new();
        for claim in claims {
            *offered.entry(claim.cidr.family()).or_default() += claim.offered_count();
        }
        self.settings
            .families
            .iter()
            .all(|family| offered.get(family).is_some_and(|offered| *offered >= MINIMUM_FOR_START))
    }
}

/// Why a claim may not be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotPublishable {
    /// It is on its way off the node, or known from an answer only.
    State,
    /// It was made for a Node object of the same name that is gone.
    OtherNodeObject,
    /// Something else that stands or is claimed overlaps it.
    Overlaps(Cidr, String),
}

/// Whether the claim may stand on the CiliumNode of `node`: it is held, for this very Node object, shown by a watch
/// or list, and nothing overlaps it (safety rules 2, 3 and 6).
///
/// Freshness (safety rule 4) is a matter of the version that a patch carries, and is checked where it is made.
pub fn may_publish(world: &World, node: &Node, known: &KnownClaim) -> Result<(), NotPublishable> {
    let claim = &known.claim;
    if claim.state != ClaimState::Held || !known.shown {
        return Err(NotPublishable::State);
    }
    if claim.node_uid != node.uid {
        return Err(NotPublishable::OtherNodeObject);
    }
    let foreign = world.ledger().overlapping(claim.cidr).find(|(cidr, taker)| match taker {
        Taker::Claim | Taker::Pending => *cidr != claim.cidr,
        Taker::Standing(holder) => *holder != node.name,
        Taker::Vanished(_) | Taker::Unreadable(_) => true,
    });
    match foreign {
        None => Ok(()),
        Some((cidr, taker)) => Err(NotPublishable::Overlaps(cidr, format!("{taker:?}"))),
    }
}
