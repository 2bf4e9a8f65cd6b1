//! The publisher for `ipam: crd`. A CiliumNode has blocks in `spec.ipam.podCIDRs`, and each of their addresses in
//! `spec.ipam.pool`. An address leaves by a handshake with the agent.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use super::answer::{Absence, Drain, Holding, Leaving, Phase, QueryState, Removal, Stays};
use super::cilium_mode::CiliumMode;
use super::demand::Demand;
use super::multi_pool::{has_in_pools, has_pools};
use super::one_store;
use super::support::Support;
use super::traits::Traits;
use super::unclaimed::unclaimed_on;
use crate::model::address_class::AddressClass;
use crate::model::carrier::{Carrier, CarrierChange, FormerCarrier};
use crate::model::cilium_version::CiliumVersion;
use crate::model::claim::Claim;
use crate::model::counted::counted;
use crate::model::crd::{CrdChange, CrdFields, FENCE, FormerCrd, MarkChange, ReleaseMark};
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::node::Node;
use crate::model::pool::{Expand, Pool};
use crate::model::request::{
    BumpVersion, Publication, QueryStep, Request, UsageQuery, Withdrawal, WithdrawalStep, Write,
};
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

mod agent_versions;
mod handshake;
mod projection;
mod withdrawal;

pub use handshake::QUERY_ADDRESS;
use handshake::in_handshake;

/// How many addresses of each family an agent needs before it can start: for router, health, ingress and one pod
/// (`docs/cilium.md`, Start of an agent).
const MINIMUM_FOR_START: u128 = 4;

/// The crd mode, with its settings from `cilium-config`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Crd {
    /// The families that the agents run.
    pub families: BTreeSet<Family>,
    /// The owners for which an agent needs addresses itself, in the order in which they get addresses of the primary
    /// block.
    pub infrastructure: Vec<&'static str>,
}

impl fmt::Display for Crd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crd, with addresses reserved for {}", self.infrastructure.join(", "))
    }
}

/// The fields of a carrier; `None` if it is not a CiliumNode, which does not happen in this mode.
fn fields(carrier: Carrier<'_>) -> Option<&CrdFields> {
    carrier.cilium_node().map(|cilium_node| &cilium_node.crd)
}

impl CiliumMode for Crd {
    fn traits(&self) -> Traits {
        Traits {
            carrier: Kind::CiliumNode,
            gives_one_block: false,
            has_primary_blocks: true,
            agents_request_addresses: false,
            shows_use: true,
            gives_whole_blocks: false,
            has_pod_ip_pools: false,
            removes_with_query: false,
            may_announce_blocks: false,
            announces: false,
        }
    }

    fn families(&self) -> &BTreeSet<Family> {
        &self.families
    }

    /// Every address is an entry, and every agent of the cluster reads all of them (`docs/cilium.md`, Size). So a
    /// block has at most 1024 addresses in either family.
    fn widest_block(&self, family: Family) -> u8 {
        family.bits() - 10
    }

    /// Agents of every mode write their podCIDRs and their own addresses onto the CiliumNode, and only agents of this
    /// mode wait for addresses there (`docs/cilium.md`, Start of an agent).
    fn former_ranges(&self, carrier: Carrier<'_>, claims: &[&Claim]) -> Option<Vec<Cidr>> {
        let cilium_node = carrier.cilium_node()?;
        if !cilium_node.crd.pool.is_empty() {
            return None;
        }
        Some(unclaimed_on(cilium_node, claims))
    }

    /// Blocks are published beside addresses of other writers.
    fn why_left_alone(
        &self,
        _: Carrier<'_>,
        _: &dyn Fn(Cidr) -> bool,
        _: &dyn Fn(Cidr) -> Option<String>,
    ) -> Option<Finding> {
        None
    }

    /// A node may have any number of blocks, and its agent has all of them.
    fn undecided(&self, _: &[&Claim], _: Option<&FormerCarrier>) -> Vec<Cidr> {
        Vec::new()
    }

    fn is_fresh(&self, known_at: Revision, carrier: Carrier<'_>) -> bool {
        one_store::is_fresh(known_at, carrier)
    }

    fn shows_later(&self, carrier: Carrier<'_>, than: Revision) -> bool {
        one_store::shows_later(carrier, than)
    }

    /// Agents do not read the podCIDRs of Nodes. Other writers may have assigned those out of the same ranges.
    fn carried_by_node(&self, _: &Node) -> AddressSet {
        AddressSet::new()
    }

    /// Cilium's operator allocates nothing in this mode.
    fn second_allocator(&self, _: Carrier<'_>) -> Option<Finding> {
        None
    }

    fn is_of_pool(&self, _: Carrier<'_>, _: Cidr, _: &Pool) -> bool {
        true
    }

    fn lists(&self, carrier: Carrier<'_>, cidr: Cidr) -> bool {
        fields(carrier).is_some_and(|fields| fields.pod_cidrs.contains(&cidr))
    }

    fn offered_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> AddressSet {
        let Some(fields) = fields(carrier) else {
            return AddressSet::new();
        };
        let mut offered: AddressSet =
            fields.pod_cidrs.iter().copied().filter(|listed| listed.overlaps(cidr)).collect();
        offered.extend_with(&fields.pool.within(cidr));
        offered
    }

    fn n_published_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> u128 {
        fields(carrier).map_or(0, |fields| fields.pool.count_in(cidr))
    }

    fn n_used_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> u128 {
        let used = fields(carrier).and_then(|fields| fields.used.as_ref());
        used.map_or(0, |used| used.count_in(cidr))
    }

    fn used_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> AddressSet {
        let used = fields(carrier).and_then(|fields| fields.used.as_ref());
        used.map(|used| used.within(cidr)).unwrap_or_default()
    }

    fn reserved_for(&self, carrier: Carrier<'_>, address: IpAddr) -> Option<String> {
        let fields = fields(carrier)?;
        let own = fields.own.get(address).map(|purpose| (*purpose).to_owned());
        own.or_else(|| fields.owners.get(address).filter(|owner| *owner != FENCE).cloned())
    }

    fn blocks(&self, carrier: Carrier<'_>) -> Vec<Cidr> {
        let Some(fields) = fields(carrier) else {
            return Vec::new();
        };
        fields.pod_cidrs.iter().copied().filter(|cidr| fields.pool.intersects(*cidr)).collect()
    }

    fn unavailable_in(&self, carrier: Carrier<'_>, block: Cidr) -> AddressSet {
        let mut excluded = AddressSet::from_iter([block]);
        if let Some(fields) = fields(carrier) {
            excluded.remove_all(&fields.pool.within(block));
        }
        excluded
    }

    fn n_offered(&self, block: Cidr, excluded: &AddressSet) -> u128 {
        block.size() - excluded.count_in(block)
    }

    fn n_own_addresses(&self) -> u128 {
        self.infrastructure.len().max(1) as u128
    }

    /// Also the thresholds of the pool count for a first grant.
    fn n_first_blocks(&self, pool: &Pool, n_offered: u128) -> u128 {
        let free_below = u128::from(pool.expand.free_below) + self.infrastructure.len() as u128;
        let needed = MINIMUM_FOR_START.max(free_below).div_ceil(n_offered);
        needed.max(pool.per_node.initial_blocks.into())
    }

    fn minimum_for_start(&self, _: Carrier<'_>, _: &AddressClass) -> u128 {
        MINIMUM_FOR_START
    }

    fn demand(
        &self,
        carrier: Carrier<'_>,
        class: &AddressClass,
        blocks: &[&Claim],
        _: &BTreeSet<Cidr>,
    ) -> Demand {
        let mut demand = Demand::default();
        let Some(fields) = fields(carrier) else {
            return demand;
        };
        let mut kept = 0;
        let is_used = |address| fields.used.as_ref().is_some_and(|used| used.contains(address));
        for claim in blocks {
            demand = demand.grown_by(claim.offered_count());
            if let Some(used) = &fields.used {
                demand.used = demand.used.saturating_add(used.count_in(claim.cidr));
            }
            let owned = fields.owners.entries_in(claim.cidr);
            kept += owned.filter(|(address, _)| !is_used(*address)).count();
            kept += in_handshake(fields, claim.cidr)
                .filter(|address| !is_used(*address) && !fields.owners.contains(*address))
                .count();
        }
        let has_primary = fields.pod_cidrs.iter().any(|cidr| cidr.family() == class.family);
        if !has_primary {
            // As soon as there is a primary block, these addresses are kept in it.
            kept += self.infrastructure.len();
        }
        demand.unavailable = kept as u128;
        demand
    }

    fn is_enough(&self, carrier: Carrier<'_>, class: &AddressClass, holding: Holding, first: &Pool) -> bool {
        let enough_to_start = holding.demand.capacity >= self.minimum_for_start(carrier, class)
            && (holding.phase == Phase::Served || holding.n_blocks >= first.per_node.initial_blocks as usize);
        enough_to_start && holding.demand.is_met(first.expand)
    }

    fn is_short(&self, demand: Demand, expand: Expand) -> bool {
        !demand.is_met(expand)
    }

    fn publication(
        &self,
        carrier: Carrier<'_>,
        claims: &[&Claim],
        is_draining: &dyn Fn(&Claim) -> bool,
        former: Option<&FormerCarrier>,
    ) -> Option<Publication> {
        let former = former.map(|FormerCarrier::Crd(former)| former);
        projection::difference(carrier.cilium_node()?, claims, is_draining, &self.infrastructure, former)
    }

    fn absence(&self, removal: Removal<'_>) -> Absence {
        let Removal { claim, carrier, .. } = removal;
        let Some(carrier) = carrier else { return removal.shown_by_version() };
        let later =
            || self.later_version_of(carrier, claim.revision).map_or(Absence::NotYet, Absence::Provable);
        if claim.is_reclaimed() {
            match self.leaving(carrier, claim) {
                // Only a later version shows whether the agent has withdrawn its consent, or has not written it yet.
                Leaving::NotSeen => return later(),
                Leaving::Off => {}
                // The agent has not acknowledged the removal. It does so if it had consented.
                Leaving::Consented
                | Leaving::Removable
                | Leaving::Confirmed
                | Leaving::LeftOver
                | Leaving::NoConsent => return Absence::NotYet,
            }
        }
        match removal.shown_by_version() {
            Absence::Provable(_) => later(),
            shown @ (Absence::Proven | Absence::NotYet) => shown,
        }
    }

    /// A patch of metadata alone makes an agent lose its answer to an open mark (`docs/cilium.md`, Lost answers).
    /// Instead our own query is cleared, which makes a later version as well. An agent that is down never answers the
    /// query, and another node may be waiting.
    fn later_version_of(&self, carrier: Carrier<'_>, later_than: Revision) -> Option<Request> {
        let cilium_node = carrier.cilium_node()?;
        let mut asked =
            cilium_node.crd.marks.iter().filter(|(_, mark)| **mark == ReleaseMark::Marked).peekable();
        if asked.peek().is_some() {
            let is_ours = asked.all(|(address, _)| *address == QUERY_ADDRESS);
            return is_ours.then(|| Write::UsageQuery(clearing(carrier)).into());
        }
        Some(Write::BumpVersion(BumpVersion::of(carrier, later_than)).into())
    }

    /// An agent of multi-pool takes a CIDR again if it has missed its removal, and only its answer proves otherwise.
    fn may_run_in_other_mode(&self, carrier: Carrier<'_>) -> bool {
        carrier.cilium_node().is_some_and(has_pools)
    }

    fn is_shown_by_other_mode(&self, carrier: Carrier<'_>, block: Cidr) -> bool {
        carrier.cilium_node().is_some_and(|cilium_node| has_in_pools(cilium_node, block))
    }

    fn use_is_known(&self, carrier: Carrier<'_>) -> bool {
        fields(carrier).is_some_and(|fields| fields.used.is_some())
    }

    /// An agent writes its full list with each change of it, and in the update that answers the query
    /// (`docs/cilium.md`, Ping). Only the agent writes the list and that answer.
    fn wrote_use(&self, before: Carrier<'_>, after: Carrier<'_>) -> bool {
        let (Some(before), Some(after)) = (fields(before), fields(after)) else {
            return false;
        };
        let answered = |fields: &CrdFields| {
            fields.marks.get(&QUERY_ADDRESS).is_some_and(|mark| *mark == ReleaseMark::DoNotRelease)
        };
        after.used.is_some() && (before.used != after.used || (answered(after) && !answered(before)))
    }

    /// The query is a release mark on an address that is in no pool. The agent refuses it and writes its full use in
    /// the same update (`docs/cilium.md`, Ping).
    fn usage_query(&self, carrier: Carrier<'_>) -> QueryState {
        let Some(fields) = fields(carrier) else {
            return QueryState::None;
        };
        match fields.marks.get(&QUERY_ADDRESS) {
            None => QueryState::Possible(query_step(carrier, QueryStep::Ask, MarkChange::Ask)),
            Some(ReleaseMark::DoNotRelease) => QueryState::Answered(clearing(carrier)),
            Some(_) => QueryState::Open(clearing(carrier)),
        }
    }

    fn may_leave(&self, carrier: Carrier<'_>, claim: &Claim) -> Result<(), Stays> {
        withdrawal::may_leave(fields(carrier).ok_or(Stays::Incomplete)?, claim)?;
        if self.may_run_in_other_mode(carrier) { Err(Stays::OtherMode("pools")) } else { Ok(()) }
    }

    fn drain(&self, carrier: Carrier<'_>, claim: &Claim) -> Drain {
        if self.may_run_in_other_mode(carrier) {
            return Drain::Stays(Stays::OtherMode("pools"));
        }
        fields(carrier).map_or(Drain::Stays(Stays::Incomplete), |fields| withdrawal::drain(fields, claim))
    }

    fn leaving(&self, carrier: Carrier<'_>, claim: &Claim) -> Leaving {
        carrier.cilium_node().map_or(Leaving::Off, |cilium_node| withdrawal::leaving(cilium_node, claim))
    }

    fn has_stale_marks(&self, carrier: Carrier<'_>, cidr: Cidr) -> bool {
        fields(carrier).is_some_and(|fields| withdrawal::stale_marks(fields, cidr).next().is_some())
    }

    fn withdrawal(&self, carrier: Carrier<'_>, step: WithdrawalStep, blocks: &[Cidr]) -> Option<Withdrawal> {
        withdrawal::step(carrier.cilium_node()?, step, blocks)
    }

    fn is_in_handshake(&self, carrier: Carrier<'_>) -> bool {
        fields(carrier).is_some_and(withdrawal::is_in_handshake)
    }

    fn support(&self, release: Option<CiliumVersion>) -> Support {
        agent_versions::support(release)
    }

    fn why_unsupported(&self, release: CiliumVersion) -> String {
        agent_versions::why_unsupported(release)
    }

    /// If `min-allocate` is more than the number of offered addresses, the agent hangs when it restarts. We do not
    /// change it (`docs/cilium.md`, Start of an agent).
    fn finding(&self, carrier: Carrier<'_>) -> Option<Finding> {
        let fields = fields(carrier)?;
        let (offered, minimum) = (fields.pool.len(), fields.min_allocate);
        (u128::from(minimum) > offered).then(|| {
            Finding::new(
                FindingKind::MinAllocate,
                Kind::CiliumNode,
                carrier.name().as_str(),
                format!(
                    "spec.ipam.min-allocate is {minimum}, and the pool has {}: the agent can't restart",
                    counted(offered, "address")
                ),
            )
        })
    }
}

fn query_step(carrier: Carrier<'_>, step: QueryStep, mark: MarkChange) -> UsageQuery {
    UsageQuery {
        node: carrier.name().clone(),
        uid: carrier.uid().clone(),
        revision: carrier.revision(),
        step,
        change: CarrierChange::Crd(CrdChange::Marks([(QUERY_ADDRESS, mark)].into())),
    }
}

/// The removal of the query.
fn clearing(carrier: Carrier<'_>) -> UsageQuery {
    query_step(carrier, QueryStep::Clear, MarkChange::Remove)
}

/// Supposes that the agent uses this percentage of its addresses of each family: the lowest ones first.
pub(super) fn raise_use(fields: &mut CrdFields, percent: u8) {
    let used = fields.used.get_or_insert_default();
    for family in Family::ALL {
        let pool: Vec<IpAddr> = fields.pool.iter().filter(|address| Family::of(*address) == family).collect();
        let wanted = (pool.len() * usize::from(percent)).div_ceil(100);
        let n_used = pool.iter().filter(|address| used.contains(**address)).count();
        let unused: Vec<IpAddr> = pool.into_iter().filter(|address| !used.contains(*address)).collect();
        unused.into_iter().take(wanted.saturating_sub(n_used)).for_each(|address| used.insert(address));
    }
}

/// Every address in any of these fields.
pub(super) fn carried(fields: &CrdFields) -> AddressSet {
    let mut carried: AddressSet = fields.pod_cidrs.iter().copied().collect();
    carried.extend_with(&fields.pool);
    // The mark of a usage query is on an address that no node can have, so it occupies nothing.
    for address in fields.marks.keys().filter(|address| !address.is_unspecified()) {
        carried.insert(*address);
    }
    if let Some(used) = &fields.used {
        carried.extend_with(used);
    }
    carried
}

/// The fields that are remembered of a deleted CiliumNode.
pub(super) fn remember(gone: CrdFields) -> Option<FormerCrd> {
    (!gone.pod_cidrs.is_empty()).then_some(FormerCrd { pod_cidrs: gone.pod_cidrs, owners: gone.owners })
}
