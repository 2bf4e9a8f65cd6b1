//! Which blocks a node should claim. In each class these are the fewest blocks that meet both thresholds of its first
//! pool, within its limits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::draft::{Detail, Draft, NEXT, Step, act};
use super::facts::Facts;
use super::policy::GrowthProof;
use super::reasons;
use super::recreation::new_claim;
use super::subject::{FirstPool, Subject};
use crate::model::address_class::AddressClass;
use crate::model::agent::NoAgent;
use crate::model::claim::{Claim, ClaimState};
use crate::model::counted::counted;
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::{PodIpPoolName, ten_of};
use crate::model::node::HOLD_GROWTH;
use crate::model::patience::REQUESTS_WITHIN;
use crate::model::plan::{TimedState, Unmet, Wait, WhyNot};
use crate::model::pool::{Expand, MAX_ADDRESSES_PER_NODE, Pool};
use crate::model::request::{Read, Request, Target};
use crate::model::time::Now;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::answer::{Holding, Phase};
use crate::publisher::demand::Demand;

/// How long a node waits before it asks its pools again, if they have no replacement for a block that must leave. The
/// node lacks nothing itself, so it is not among those that are decided again when blocks become free.
const REPLACEMENTS_AGAIN: Duration = Duration::from_secs(30);

/// A replacement leaves as many blocks of its pool free as nodes of that pool joined within this time, and at least
/// one. Nodes with draining blocks have addresses, and take replacements within seconds. A node that joins later would
/// find none, and its agent can't start.
const JOINED_WITHIN: Duration = Duration::from_secs(60 * 60);

/// The blocks of one class: those that the node holds, and those that the plan has chosen.
struct Growth<'a> {
    class: AddressClass,
    first: FirstPool<'a>,
    phase: Phase,
    blocks: Vec<Cidr>,
    demand: Demand,
    /// The number of addresses in blocks that drain or must leave. They are on the carrier until they have left.
    leaving: u128,
    picked: Vec<(Cidr, &'a Pool)>,
    unmet: Option<Unmet>,
    /// Whether its blocks replace others, and the node lacks none.
    is_replacement: bool,
}

/// The needs of a node that its pools can't meet, where another step comes before its growth: it waits for a block all
/// the same. Nothing is lacking while another allocator serves the node, or while its first blocks wait for more than
/// a free block.
pub(super) fn unmet(facts: &Facts<'_>, planned: &Draft) -> BTreeSet<Unmet> {
    let Some(subject) = Subject::of(facts) else { return BTreeSet::new() };
    let mut draft = Draft::new(facts.name, Detail::Verdict, planned.policy, planned.now);
    let asks_for_nothing = !subject.node.runs_linux()
        || facts.world.set_aside(facts.name).is_some()
        || subject.carrier.is_terminating()
        || facts.publisher.malformed(subject.carrier).is_some()
        || facts.publisher.second_allocator(subject.carrier).is_some()
        || !subject.publishes_for_agent()
        || subject.why_left_alone().is_some();
    let waits_for_more = |draft: &mut Draft| {
        let publishable = subject.publishable();
        subject.require_complete_set(draft).is_break()
            || subject.can_start_with(&publishable)
            || subject.is_in_former_mode(&publishable, planned)
    };
    if asks_for_nothing || (!facts.is_served && waits_for_more(&mut draft)) {
        return BTreeSet::new();
    }
    subject.growths(&mut draft).into_iter().filter_map(|growth| growth.unmet).collect()
}

impl<'a> Subject<'a> {
    /// Claims the blocks that the node lacks. A first grant covers every family, or nothing is claimed. So no node
    /// holds half of a grant while another node waits for that half. Each Pod IP pool name has a first grant of its
    /// own.
    pub(super) fn grow(&self, draft: &mut Draft) -> Vec<Request> {
        draft.findings.extend(self.lacks_pool());
        self.wait_for_request(draft);
        let mut growths = self.growths(draft);
        draft.unmet = growths.iter().filter_map(|growth| growth.unmet.clone()).collect();
        let is_lacking = |growth: &&Growth<'_>| {
            growth.phase == Phase::FirstGrant
                && growth.demand.capacity < self.publisher.minimum_for_start(self.carrier, &growth.class)
        };
        let lacking: BTreeMap<Option<PodIpPoolName>, Family> = growths
            .iter()
            .rev()
            .filter(is_lacking)
            .map(|growth| (growth.class.pod_ip_pool.clone(), growth.class.family))
            .collect();
        for growth in growths.iter_mut().filter(|growth| growth.phase == Phase::FirstGrant) {
            let Some(lacking) = lacking.get(&growth.class.pod_ip_pool) else { continue };
            for (_, pool) in growth.picked.drain(..) {
                let family = Some(growth.class.family);
                draft.refuse(&pool.name, family, || WhyNot::OtherFamilyMissing(*lacking));
            }
        }
        let mut claims = Vec::new();
        for growth in &growths {
            draft.findings.extend(self.stopped(growth));
            claims.extend(self.claim_picked(draft.now, growth));
        }
        if self.traits.gives_one_block && !claims.is_empty() && !self.world.has_read_claims_for(self.carrier)
        {
            // A machine that returns may have a block that the watch of claims has not shown yet. Its agent keeps
            // using that block. The block that is published now stays for the life of the carrier.
            return vec![Read::ClaimsOf(self.node.name.clone()).into()];
        }
        claims
    }

    /// The finding about a node that needs more blocks, and that its pool or a person allows no more.
    fn stopped(&self, growth: &Growth<'_>) -> Option<Finding> {
        let unmet = growth.unmet.as_ref()?;
        let (kind, why) = match unmet {
            Unmet::NoCapacity(_) => return None,
            Unmet::AtLimit(_) => {
                let pool = &growth.first.pool().name;
                (FindingKind::NodeAtLimit, format!("perNode of pool {pool} does not allow more"))
            }
            Unmet::Held(_) => (
                FindingKind::GrowthHeld,
                format!(
                    "its annotation {HOLD_GROWTH} holds its growth; remove it when the node need not go back"
                ),
            ),
        };
        let message = format!(
            "it has {} with {} and needs more, but {why}",
            counted_of(unmet.class(), growth.blocks.len()),
            counted(growth.demand.capacity, "address"),
        );
        Some(Finding::of_node(kind, &self.node.name, message))
    }

    fn claim_picked(&self, now: Now, growth: &Growth<'_>) -> Vec<Request> {
        let picked = growth.picked.iter().map(|(cidr, pool)| {
            let excluded = pool.excluded(*cidr, &self.world.node_addresses_in(*cidr));
            // No carrier has it.
            let created_for = Some(self.carrier.uid().clone());
            let pod_ip_pool = growth.class.pod_ip_pool.clone();
            new_claim(self.node, *cidr, &pool.name, pod_ip_pool, excluded, created_for, now)
        });
        picked.collect()
    }

    /// Claims the replacements of the blocks that must leave, as far as the pools of the node have them.
    pub(super) fn claim_replacements(&self, draft: &mut Draft) -> Step {
        let may_replace = self.is_served && !self.stops_reclaim();
        if !draft.unmet.is_empty() || !may_replace {
            return NEXT;
        }
        let mut claims = Vec::new();
        for class in self.classes() {
            let leaving: BTreeSet<Cidr> = self.can_leave_of(class).map(|claim| claim.cidr).collect();
            let Some(first) = self.first_pool(class).filter(|_| !leaving.is_empty()) else { continue };
            let demand = self.demand_without(class, &leaving);
            let growth = self.grow_class(draft, class.clone(), first, Phase::Served, demand, &leaving);
            claims.extend(self.claim_picked(draft.now, &growth));
            if growth.unmet.is_some() {
                draft.wake_at(draft.now.uptime + REPLACEMENTS_AGAIN);
            }
        }
        act(claims)
    }

    /// The claims of the replacements of these blocks of a class. `None` if the pools of the node do not have all of
    /// them.
    pub(super) fn claim_all_replacements(
        &self,
        draft: &mut Draft,
        class: &AddressClass,
        leaving: &BTreeSet<Cidr>,
        phase: Phase,
    ) -> Option<Vec<Request>> {
        let first = self.first_pool(class)?;
        let demand = self.demand_without(class, leaving);
        let growth = self.grow_class(draft, class.clone(), first, phase, demand, leaving);
        if growth.unmet.is_some() {
            draft.wake_at(draft.now.uptime + REPLACEMENTS_AGAIN);
            return None;
        }
        Some(self.claim_picked(draft.now, &growth))
    }

    /// The growth of each class of the node. A class for which no pool selects the node does not grow.
    fn growths(&self, draft: &mut Draft) -> Vec<Growth<'a>> {
        let mut growths = Vec::new();
        for class in self.classes() {
            let Some(first) = self.first_pool(class) else { continue };
            // The first grant is over as soon as the carrier has a block under this name.
            let is_served = self.world.is_served_under(&self.node.name, class.pod_ip_pool.as_ref());
            let phase = if is_served { Phase::Served } else { Phase::FirstGrant };
            let demand = self.demand(class);
            growths.push(self.grow_class(draft, class.clone(), first, phase, demand, &BTreeSet::new()));
        }
        growths
    }

    /// The finding about a node that needs addresses of a class for which no pool selects it. The node keeps its
    /// blocks and gets no more.
    pub(super) fn lacks_pool(&self) -> Option<Finding> {
        let without_pool = |class: &&AddressClass| self.first_pool(class).is_none();
        let nearly_full = self.classes().iter().filter(without_pool).find(|class| {
            let held = self.offering().find(|claim| self.is_of(claim, class));
            let pool = held.and_then(|claim| self.world.pool(&claim.pool));
            let expand = pool.map_or(Expand::DEFAULT, |pool| pool.expand);
            held.is_some() && self.publisher.is_short(self.demand(class), expand)
        });
        let pools = || self.world.pools_of(&self.node.name);
        let asked = self.publisher.requested_pools(self.carrier);
        let gives_none = || {
            !asked.is_empty()
                && !pools()
                    .any(|pool| self.publisher.pod_ip_pool_of(pool).is_some_and(|name| asked.contains(name)))
        };
        let message = match nearly_full {
            Some(class) => {
                let of_name = class.pod_ip_pool.as_ref().map(|name| format!(" of podIPPool {name}"));
                format!(
                    "its {} are nearly full, and no readable pool{} selects it: it gets no more blocks",
                    class.named("blocks"),
                    of_name.unwrap_or_default()
                )
            }
            None if pools().next().is_none() && self.has_nothing() => {
                "it has no addresses, and no readable pool selects it: its agent can't start".to_owned()
            }
            None if gives_none() && self.has_nothing() => format!(
                "it has no addresses, and its pools have no podIPPool that its agent asks for ({}): its agent \
                 can't start",
                ten_of(&asked)
            ),
            None => return None,
        };
        Some(Finding::of_node(FindingKind::NoPool, &self.node.name, message))
    }

    /// Whether the node has no addresses. The addresses that other writers put on a CiliumNode may be all that it
    /// needs.
    fn has_nothing(&self) -> bool {
        self.offering().next().is_none() && self.publisher.blocks(self.carrier).is_empty()
    }

    /// A node without addresses waits for its agent to request some, in a mode whose agents request addresses.
    /// Without pre-allocation an agent requests none, and starts no pod either.
    fn wait_for_request(&self, draft: &mut Draft) {
        let name = &self.node.name;
        let has_pool = self.world.pools_of(name).next().is_some();
        let requests = || !self.publisher.requested_pools(self.carrier).is_empty();
        if !self.traits.agents_request_addresses || !has_pool || requests() || !self.has_nothing() {
            return;
        }
        draft.wait_for(Wait::Request);
        if self.world.agent_on(name) == Err(NoAgent::Absent) {
            return;
        }
        let since = draft.note_lasting_since(self.world, TimedState::NothingRequested);
        if draft.waits_until(since + REQUESTS_WITHIN) {
            return;
        }
        let message = format!(
            "its agent has requested no addresses for {} s, and gets none; if the agent runs, set \
             `ipam-multi-pool-pre-allocation` in cilium-config, such as `default=8`, and restart the agent; else \
             read its log",
            REQUESTS_WITHIN.as_secs()
        );
        draft.findings.push(Finding::of_node(FindingKind::NothingRequested, name, message));
    }

    /// The growth of a class by this demand, as if neither the blocks `without` nor the draining blocks existed.
    fn grow_class(
        &self,
        draft: &mut Draft,
        class: AddressClass,
        first: FirstPool<'a>,
        phase: Phase,
        demand: Demand,
        without: &BTreeSet<Cidr>,
    ) -> Growth<'a> {
        let stays = |claim: &&Claim| claim.state == ClaimState::Held && !without.contains(&claim.cidr);
        let offering = self.offering().filter(|claim| self.is_of(claim, &class));
        let (blocks, leaving): (Vec<&Claim>, Vec<&Claim>) = offering.partition(stays);
        let mut growth = Growth {
            first,
            phase,
            blocks: blocks.iter().map(|claim| claim.cidr).collect(),
            leaving: leaving.iter().map(|claim| claim.offered_count()).sum(),
            demand,
            picked: Vec::new(),
            unmet: None,
            is_replacement: phase == Phase::Served && !without.is_empty(),
            class,
        };
        loop {
            let holding = Holding { n_blocks: growth.blocks.len(), demand: growth.demand, phase };
            if self.publisher.is_enough(self.carrier, &growth.class, holding, first.pool())
                || (phase == Phase::Served && self.growth_awaits_use(draft, &growth.class))
            {
                return growth;
            }
            if phase == Phase::Served && self.node.growth_hold.is_some() {
                growth.unmet = Some(Unmet::Held(growth.class.clone()));
                return growth;
            }
            if let Some(limit) = first.max_blocks()
                && growth.blocks.len() >= limit as usize
            {
                draft.refuse(&first.pool().name, Some(growth.class.family), || WhyNot::BlockLimit(limit));
                growth.unmet = Some(Unmet::AtLimit(growth.class.clone()));
                return growth;
            }
            match self.pick(draft, &growth) {
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

    /// Whether a served node gets no more blocks before its agent reports its use. The known use says that it needs more.
    ///
    /// An unknown use counts as zero, and the agent may not know this mode at all. When the agent went back to its
    /// former mode, it would lose the pods in further blocks.
    fn growth_awaits_use(&self, draft: &mut Draft, class: &AddressClass) -> bool {
        if self.demand(class).capacity < self.publisher.minimum_for_start(self.carrier, class) {
            // An agent that can't start reports nothing.
            return false;
        }
        let is_reported = match draft.policy.growth {
            GrowthProof::Listed => self.publisher.use_is_known(self.carrier),
            GrowthProof::Seen => self.world.use_of(&self.node.name).is_ok(),
        };
        let waits = self.traits.shows_use && !is_reported;
        if waits {
            draft.note_lasting(TimedState::GrowthAwaitsUse);
            draft.wait_for(Wait::Use);
        }
        waits
    }

    /// Picks the next block from the first of the node's pools that has one.
    fn pick(&self, draft: &mut Draft, growth: &Growth<'a>) -> Result<(Cidr, &'a Pool, u128), Unmet> {
        let family = growth.class.family;
        let room = self.room_for_addresses(growth);
        let (mut too_large, mut fits) = (false, false);
        for pool in self.world.pools_for(&self.node.name, &growth.class) {
            if let Some(why) = self.why_unfit(pool, &growth.class) {
                if why == WhyNot::OperatorAllocates {
                    // Another CiliumNode shows when the operator has stopped.
                    draft.wake_at(draft.now.uptime + REPLACEMENTS_AGAIN);
                }
                draft.refuse(&pool.name, Some(family), || why);
                continue;
            }
            // A complete block counts, even if addresses of the next one are unavailable. So the limit of a node does
            // not depend on the blocks that other nodes take and release.
            if self.max_offered_by(pool, family) > room {
                too_large = true;
                let limit = max_addresses(growth.first.pool());
                draft.refuse(&pool.name, Some(family), || WhyNot::AddressLimit(limit));
                continue;
            }
            fits = true;
            if let Some(n_kept) = self.kept_for_joining(draft.now, pool, growth) {
                draft.refuse(&pool.name, Some(family), || WhyNot::KeptForJoining(n_kept));
                continue;
            }
            if let Some((cidr, offered)) = self.first_usable_block(pool, growth) {
                return Ok((cidr, pool, offered));
            }
            draft.refuse(&pool.name, Some(family), || {
                if self.free_blocks_beside(pool, growth).next().is_some() {
                    WhyNot::Unusable
                } else {
                    reasons::of_no_free_block(self.world, pool, family)
                }
            });
        }
        let at_limit = too_large && !fits;
        let class = growth.class.clone();
        Err(if at_limit { Unmet::AtLimit(class) } else { Unmet::NoCapacity(class) })
    }

    /// If the next block of this growth replaces another, and its pool keeps its free blocks for nodes that join: their
    /// number.
    fn kept_for_joining(&self, now: Now, pool: &Pool, growth: &Growth<'_>) -> Option<usize> {
        let n_picked = growth.picked.iter().filter(|(_, of)| of.name == pool.name).count();
        growth.is_replacement.then(|| self.n_kept_free(now, pool, growth.class.family, n_picked)).flatten()
    }

    /// The number of free blocks of a pool, less `n_picked`, if all of them stay for nodes that join.
    pub(super) fn n_kept_free(
        &self,
        now: Now,
        pool: &Pool,
        family: Family,
        n_picked: usize,
    ) -> Option<usize> {
        let size = self.size_of(pool, family)?;
        let n_free = self.world.ledger().free_blocks(&pool.name, family, size)?.free_count();
        let n_free = usize::try_from(n_free).unwrap_or(usize::MAX).saturating_sub(n_picked);
        let since = now.wall.checked_sub(JOINED_WITHIN).unwrap_or_default();
        let n_kept = self.world.n_joined(&pool.name, since, n_free).max(1);
        (n_free > 0 && n_free <= n_kept).then_some(n_free)
    }

    /// The number of addresses of a class that the node may get in addition to its own.
    fn room_for_addresses(&self, growth: &Growth<'_>) -> u128 {
        match growth.first {
            FirstPool::Gives(first) if !self.traits.gives_one_block => {
                let held = growth.demand.capacity.saturating_add(growth.leaving);
                u128::from(max_addresses(first))
                    .saturating_sub(growth.demand.capacity)
                    .min(u128::from(MAX_ADDRESSES_PER_NODE).saturating_sub(held))
            }
            FirstPool::Gives(_) | FirstPool::Closed(_) => u128::MAX,
        }
    }

    /// Why the blocks of a pool can't serve the node in a class. It does not matter whether the pool has a free one.
    fn why_unfit(&self, pool: &Pool, class: &AddressClass) -> Option<WhyNot> {
        let Some(size) = self.size_of(pool, class.family) else { return Some(WhyNot::NoSuchFamily) };
        let widest = self.publisher.widest_block(class.family);
        if size < widest {
            return Some(WhyNot::TooWide(widest));
        }
        if self.world.operator_allocates_in(pool, class.family, &self.node.name) {
            return Some(WhyNot::OperatorAllocates);
        }
        let misfit = self.world.misfit_of_new_block(&self.node.name, class, pool)?;
        Some(WhyNot::PodIpPool(class.pod_ip_pool.clone()?, misfit))
    }

    /// The free blocks of a pool for a node that has the blocks of this growth. The best one comes first.
    fn free_blocks_beside<'b>(
        &'b self,
        pool: &'b Pool,
        growth: &'b Growth<'_>,
    ) -> impl Iterator<Item = Cidr> + 'b {
        let (ledger, family) = (self.world.ledger(), growth.class.family);
        let size = self.size_of(pool, family);
        size.into_iter().flat_map(move |size| ledger.candidates(&pool.name, family, size, &growth.blocks))
    }

    /// The prefix length of the blocks of a family that the node gets of a pool.
    fn size_of(&self, pool: &Pool, family: Family) -> Option<u8> {
        pool.size_for(self.node, family).map(|(size, _)| size)
    }

    /// The maximum number of addresses of a block of a family that the node gets of a pool; 0 without the family.
    fn max_offered_by(&self, pool: &Pool, family: Family) -> u128 {
        self.size_of(pool, family).map(|size| pool.max_offered(family, size)).unwrap_or_default()
    }

    /// The best free block of a pool that offers enough, and its number of addresses.
    ///
    /// A block is skipped if a request about an earlier claim of it is in flight. It is also skipped if it offers too
    /// little, because node addresses or an edge of an exclusion lie in it. The number of skipped blocks is at most
    /// that of the requests, node addresses and edges. Only a pool of tiny blocks over the network of the nodes has
    /// many, and then a finding names them.
    fn first_usable_block(&self, pool: &Pool, growth: &Growth<'_>) -> Option<(Cidr, u128)> {
        let not_in_flight = |cidr: &Cidr| !self.world.is_in_flight(&Target::Claim(*cidr));
        let offers = |cidr: Cidr| {
            let excluded = pool.excluded(cidr, &self.world.node_addresses_in(cidr));
            (cidr, self.publisher.n_offered(cidr, &excluded))
        };
        let is_first = growth.phase == Phase::FirstGrant;
        let is_enough = |offered: u128| offered > 0 && !(is_first && self.is_too_poor(growth, pool, offered));
        self.free_blocks_beside(pool, growth)
            .filter(not_in_flight)
            .map(offers)
            .find(|(_, offered)| is_enough(*offered))
    }

    /// Whether a block with this number of addresses would use up the limits of a first grant before the agent can
    /// start. `false` if a complete block of the pool would do so too.
    fn is_too_poor(&self, growth: &Growth<'_>, pool: &Pool, offered: u128) -> bool {
        let (first, family) = (growth.first.pool(), growth.class.family);
        let minimum = self.publisher.minimum_for_start(self.carrier, &growth.class);
        let giving = self.world.pools_for(&self.node.name, &growth.class);
        let giving = giving.filter(|pool| self.world.gives_out_of(pool, family));
        let largest = giving.map(|pool| self.max_offered_by(pool, family)).max().unwrap_or_default();
        let can_start_with = |offered: u128| {
            let capacity = growth.demand.capacity.saturating_add(offered);
            let room = u128::from(max_addresses(first)).saturating_sub(capacity);
            let n_more = (first.per_node.max_blocks as usize).saturating_sub(growth.blocks.len() + 1);
            let n_more = room.checked_div(largest).unwrap_or_default().min(n_more as u128);
            capacity.saturating_add(n_more.saturating_mul(largest)) >= minimum
        };
        !can_start_with(offered) && can_start_with(self.max_offered_by(pool, family))
    }

    /// The blocks of all claims of the node in a class, in every claim state. A block that another writer has put
    /// under another name as well is not ours there: its agent counts it under both.
    pub(super) fn ours(&self, class: &AddressClass) -> BTreeSet<Cidr> {
        self.claims().filter(|claim| self.is_of(claim, class)).map(|claim| claim.cidr).collect()
    }

    /// The number of addresses that the node has of a class, and the number in use. Draining blocks do not count as
    /// capacity: no new pod gets an address of them.
    pub(super) fn demand(&self, class: &AddressClass) -> Demand {
        self.demand_without(class, &BTreeSet::new())
    }

    /// The demand without these blocks. Addresses in use in them, and in draining blocks, count all the same: their
    /// pods will be recreated in the remaining blocks.
    pub(super) fn demand_without(&self, class: &AddressClass, without: &BTreeSet<Cidr>) -> Demand {
        let stays = |claim: &&Claim| claim.state == ClaimState::Held && !without.contains(&claim.cidr);
        let mut blocks: Vec<&Claim> = self.offering().filter(|claim| self.is_of(claim, class)).collect();
        let ours = self.ours(class);
        let all = self.publisher.demand(self.carrier, class, &blocks, &ours);
        blocks.retain(stays);
        let staying = self.publisher.demand(self.carrier, class, &blocks, &ours);
        Demand { used: all.used, ..staying }
    }
}

/// A number of blocks of a class, as text.
fn counted_of(class: &AddressClass, n_blocks: usize) -> String {
    let what = if n_blocks == 1 { "block" } else { "blocks" };
    format!("{n_blocks} {}", class.named(what))
}

/// The maximum number of addresses of one class for a node whose first pool is this one.
fn max_addresses(first: &Pool) -> u32 {
    first.per_node.max_addresses.min(MAX_ADDRESSES_PER_NODE)
}
