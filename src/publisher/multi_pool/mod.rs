//! The publisher for `ipam: multi-pool`. A CiliumNode has CIDRs per Cilium pool in `spec.ipam.pools.allocated`. Its
//! agent writes into `spec.ipam.pools.requested` how many addresses of each it needs.
//!
//! The agent takes whole CIDRs and releases them by itself. Only an answer proves that it has released one. The query
//! is an entry of `requested` without need, which only the agent's allocator removes. The update that removes it is
//! based on the version with the entry or a later one (`docs/cilium.md`, Mode multi-pool).

use std::collections::BTreeSet;
use std::fmt;

use super::answer::{Absence, Drain, Holding, Leaving, Removal, Stays};
use super::cilium_mode::CiliumMode;
use super::demand::Demand;
use super::edges::n_assignable;
use super::one_store;
use super::operator::{self, TURN_OFF};
use super::support::Support;
use super::traits::Traits;
use crate::model::address_class::AddressClass;
use crate::model::carrier::{Carrier, CarrierChange, FormerCarrier};
use crate::model::cilium_version::{CiliumVersion, Minor};
use crate::model::claim::{Claim, Reason};
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::multi_pool::{Allocated, Entry, PoolsChange, PoolsFields};
use crate::model::names::PodIpPoolName;
use crate::model::node::{CiliumNode, Node};
use crate::model::outcome::Presence;
use crate::model::pod_ip_pool::Misfit;
use crate::model::pool::{Expand, Pool};
use crate::model::request::{Publication, QueryStep, Read, Request, UsageQuery, Withdrawal, Write};
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

mod removal;

/// The number of addresses of each family that a starting agent requests, and its step (`docs/cilium.md`).
pub(super) const PRE_ALLOCATED: u128 = 8;

/// The first minor release whose agents answer the query, because they look after their pools once per minute.
const FIRST: Minor = Minor(1, 17);

/// The first minor release whose agents need the CiliumPodIPPool of a pool, to start and to assign addresses.
const FIRST_WITH_POD_IP_POOLS: Minor = Minor(1, 19);

/// The multi-pool mode, with its settings from `cilium-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MultiPool {
    /// The families that the agents run.
    pub families: BTreeSet<Family>,
    /// The Pod IP pool of Pods that ask for none, and of NodeIPPools that name none.
    pub default_pool: PodIpPoolName,
    /// Whether Cilium's BGP control plane is on.
    pub bgp: Bgp,
}

/// Whether the agents run Cilium's BGP control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bgp {
    /// They do. One exits if it should announce a CIDR whose CiliumPodIPPool lacks the family.
    On,
    /// They do not.
    Off,
}

impl fmt::Display for MultiPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "multi-pool, with {} as the default Cilium pool", self.default_pool)
    }
}

/// The fields of a carrier; `None` if it is not a CiliumNode, which does not happen in this mode.
fn fields(carrier: Carrier<'_>) -> Option<&PoolsFields> {
    carrier.cilium_node().map(|cilium_node| &cilium_node.pools)
}

impl CiliumMode for MultiPool {
    fn traits(&self) -> Traits {
        Traits {
            carrier: Kind::CiliumNode,
            gives_one_block: false,
            has_primary_blocks: false,
            agents_request_addresses: true,
            shows_use: false,
            gives_whole_blocks: true,
            has_pod_ip_pools: true,
            removes_with_query: true,
            may_announce_blocks: self.bgp == Bgp::On,
            announces: self.bgp == Bgp::On,
        }
    }

    fn families(&self) -> &BTreeSet<Family> {
        &self.families
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

    /// Under any Cilium pool. A CIDR that moves to another pool breaks the next start of its agent, so it is not
    /// listed twice.
    fn lists(&self, carrier: Carrier<'_>, cidr: Cidr) -> bool {
        fields(carrier).is_some_and(|fields| fields.listed().any(|listed| listed == cidr))
    }

    fn offered_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> AddressSet {
        let fields = fields(carrier).into_iter();
        fields.flat_map(PoolsFields::listed).filter(|listed| listed.overlaps(cidr)).collect()
    }

    fn n_published_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> u128 {
        if self.lists(carrier, cidr) { n_assignable(cidr) } else { 0 }
    }

    fn blocks(&self, carrier: Carrier<'_>) -> Vec<Cidr> {
        fields(carrier).into_iter().flat_map(PoolsFields::listed).collect()
    }

    fn default_pool(&self) -> Option<&PodIpPoolName> {
        Some(&self.default_pool)
    }

    fn pod_ip_pool_of<'a>(&'a self, pool: &'a Pool) -> Option<&'a PodIpPoolName> {
        Some(pool.pod_ip_pool.as_ref().unwrap_or(&self.default_pool))
    }

    /// A published block stays under its name, even if its pool or the default now has another one. An agent that
    /// finds a CIDR under another name than before does not restore its pods.
    fn pool_name_on(&self, carrier: Carrier<'_>, claim: &Claim) -> Option<PodIpPoolName> {
        let name = self.publication_name(claim);
        let mut names = names_of(carrier, claim.cidr).peekable();
        let Some(first) = names.peek().copied().map(PodIpPoolName::from) else { return Some(name.clone()) };
        Some(if names.any(|listed| listed == name.as_str()) { name.clone() } else { first })
    }

    fn requested_pools(&self, carrier: Carrier<'_>) -> BTreeSet<PodIpPoolName> {
        let requested = fields(carrier).into_iter().flat_map(|fields| &fields.requested);
        let needed = requested.filter(|entry| !entry.needed.is_empty());
        needed.map(|entry| entry.pool.as_str().into()).collect()
    }

    fn is_of_pool(&self, carrier: Carrier<'_>, cidr: Cidr, pool: &Pool) -> bool {
        let name = self.pod_ip_pool_of(pool).map(PodIpPoolName::as_str);
        names_of(carrier, cidr).all(|under| Some(under) == name)
    }

    /// No block is moved back: the effect of a moved CIDR on an agent depends on the pods in it.
    fn misplaced(&self, carrier: Carrier<'_>, claim: &Claim) -> Option<Finding> {
        let name = claim.pod_ip_pool.as_ref()?;
        let others: BTreeSet<&str> =
            names_of(carrier, claim.cidr).filter(|under| *under != name.as_str()).collect();
        if others.is_empty() {
            return None;
        }
        let message = format!(
            "spec.ipam.pools.allocated lists {} under {}, but its claim is for {name}; an agent that starts \
             now does not restore pods of {name} in this block; a running agent may give an address twice; \
             move the block back under {name} alone; restart the agent when no newer pod has an address of the \
             block",
            claim.cidr,
            others.into_iter().collect::<Vec<_>>().join(" and "),
        );
        let node = carrier.name().as_str();
        Some(Finding::new(FindingKind::MisplacedBlock, Kind::CiliumNode, node, message))
    }

    /// An agent asks for these addresses unless `ipam-multi-pool-pre-allocation` says otherwise.
    fn n_first_blocks(&self, _: &Pool, n_offered: u128) -> u128 {
        PRE_ALLOCATED.div_ceil(n_offered)
    }

    /// The carrier of an agent that has not reported its need is not written. A conflict with one of its first
    /// updates costs the agent a minute.
    fn minimum_for_start(&self, carrier: Carrier<'_>, class: &AddressClass) -> u128 {
        u128::from(needed(carrier, class) > 0)
    }

    /// An agent that ran in crd mode before reports its need, and then removes `status.ipam.used`. If that update meets a
    /// conflict, the agent tries again a minute later, and starts no pod meanwhile.
    fn is_about_to_write(&self, carrier: Carrier<'_>) -> bool {
        let Some(cilium_node) = carrier.cilium_node() else { return false };
        reports_need(&cilium_node.pools) && cilium_node.crd.used.as_ref().is_some_and(|used| !used.is_empty())
    }

    /// The need of the agent counts as used.
    fn demand(
        &self,
        carrier: Carrier<'_>,
        class: &AddressClass,
        blocks: &[&Claim],
        ours: &BTreeSet<Cidr>,
    ) -> Demand {
        let demand = Demand { used: needed(carrier, class), ..Demand::default() };
        let mut counted = BTreeSet::new();
        // A block is not published beside a CIDR that overlaps it. If both are published, the agent counts both.
        let is_part = |block: Cidr| {
            fields(carrier).is_some_and(|fields| {
                fields.listed().all(|listed| listed != block)
                    && fields.listed().any(|listed| listed.overlaps(block))
            })
        };
        let whole = blocks.iter().filter(|claim| !is_part(claim.cidr));
        let demand = whole.fold(demand, |demand, claim| {
            counted.insert(claim.cidr);
            demand.grown_by(n_assignable(claim.cidr))
        });
        // The blocks of other writers serve the node as well.
        let entries = fields(carrier).into_iter().flat_map(|fields| &fields.allocated);
        let of_name = entries.filter(|entry| is_named(class, &entry.pool));
        let others =
            of_name.flat_map(|entry| &entry.cidrs).copied().filter(|cidr| cidr.family() == class.family);
        others
            .filter(|cidr| !counted.contains(cidr) && !ours.contains(cidr))
            .fold(demand, |demand, cidr| demand.grown_by(n_assignable(cidr)))
    }

    /// The agent adds its own reserve to its need, and releases the surplus. So neither thresholds nor a number of
    /// first blocks count.
    fn is_enough(&self, _: Carrier<'_>, _: &AddressClass, holding: Holding, first: &Pool) -> bool {
        !self.is_short(holding.demand, first.expand)
    }

    fn is_short(&self, demand: Demand, _: Expand) -> bool {
        demand.capacity < demand.used
    }

    fn publication(
        &self,
        carrier: Carrier<'_>,
        claims: &[&Claim],
        _: &dyn Fn(&Claim) -> bool,
        _: Option<&FormerCarrier>,
    ) -> Option<Publication> {
        let fields = fields(carrier)?;
        if !reports_need(fields) {
            return None;
        }
        let missing = missing(fields, claims);
        if missing.is_empty() {
            return None;
        }
        let added: Vec<Cidr> = missing.iter().map(|claim| claim.cidr).collect();
        let mut allocated = fields.allocated.clone();
        self.add(&mut allocated, &missing);
        let n_addresses = added.iter().map(|cidr| n_assignable(*cidr)).fold(0, u128::saturating_add);
        Some(Publication {
            node: carrier.name().clone(),
            uid: carrier.uid().clone(),
            revision: carrier.revision(),
            added,
            completed: Vec::new(),
            n_addresses: usize::try_from(n_addresses).unwrap_or(usize::MAX),
            change: CarrierChange::MultiPool(PoolsChange::Allocate(allocated)),
        })
    }

    /// A version without the block does not prove its absence: an agent that missed its own write takes a CIDR again.
    /// The proof is an answer to a query that is later than the claim's move.
    fn absence(&self, removal: Removal<'_>) -> Absence {
        let Removal { claim, carrier, is_carried, absent_as_of, presence, answered } = removal;
        let fields = carrier.and_then(fields);
        if claim.state.reason() == Some(Reason::Unused)
            && let Some(fields) = fields
        {
            // An agent that had an earlier CiliumNode may write its blocks back, and lists all with its first report.
            if !reports_need(fields) {
                return Absence::NotYet;
            }
            // If another block of the node overlaps this one, every answer contains a part of it.
            if fields.listed().any(|listed| listed.overlaps(claim.cidr)) {
                return removal.shown_by_version();
            }
        }
        let is_part = |listed: Cidr| listed != claim.cidr && listed.overlaps(claim.cidr);
        if fields.is_some_and(|fields| fields.listed().any(is_part)) {
            return Absence::NotYet;
        }
        match carrier {
            // While its Node exists, an agent without a CiliumNode keeps its blocks, and writes them back.
            None if absent_as_of.is_none_or(|as_of| as_of < claim.revision) => {
                Absence::Provable(Read::CiliumNode(claim.node.clone()).into())
            }
            None => match presence {
                Some(Presence::Gone) => Absence::Proven,
                Some(Presence::Is(_) | Presence::Unreadable) => Absence::NotYet,
                None => Absence::Provable(Read::Node(claim.node.clone(), claim.revision).into()),
            },
            Some(_) if answered.is_some_and(|as_of| as_of >= claim.revision) => {
                if is_carried {
                    Absence::NotYet
                } else {
                    Absence::Proven
                }
            }
            Some(carrier) => Self::query(carrier, claim.revision).map_or(Absence::NotYet, Absence::Provable),
        }
    }

    /// The revision of the latest query that an agent has answered between two versions of one carrier.
    fn answered(&self, before: Carrier<'_>, after: Carrier<'_>) -> Option<Revision> {
        let asked = |carrier| {
            let requested = fields(carrier).into_iter().flat_map(|fields| &fields.requested);
            requested.filter_map(|entry| entry.asked_as_of).collect::<BTreeSet<Revision>>()
        };
        let open = asked(after);
        asked(before).into_iter().filter(|as_of| !open.contains(as_of)).max()
    }

    fn agent_releases_blocks(&self, carrier: Carrier<'_>) -> bool {
        fields(carrier).is_some_and(reports_need)
    }

    /// An agent in crd mode changes neither `requested` nor `allocated`, so these fields say nothing about its blocks. It
    /// reports its use. From 1.20 on an agent of this mode removes that.
    fn may_run_in_other_mode(&self, carrier: Carrier<'_>) -> bool {
        carrier.cilium_node().is_some_and(|CiliumNode { crd, .. }| {
            !crd.pool.is_empty() && crd.used.as_ref().is_some_and(|used| !used.is_empty())
        })
    }

    fn is_shown_by_other_mode(&self, carrier: Carrier<'_>, block: Cidr) -> bool {
        self.may_run_in_other_mode(carrier)
            && carrier.cilium_node().is_some_and(|cilium_node| cilium_node.crd.pool.intersects(block))
    }

    fn use_is_known(&self, _: Carrier<'_>) -> bool {
        true
    }

    fn may_leave(&self, carrier: Carrier<'_>, claim: &Claim) -> Result<(), Stays> {
        removal::may_leave(fields(carrier).ok_or(Stays::Incomplete)?, claim)?;
        if self.may_run_in_other_mode(carrier) { Err(Stays::OtherMode("pool")) } else { Ok(()) }
    }

    /// A claim drains once its agent has refused to release the block. The agent gives no more of it to new pods, and
    /// does not report which addresses are in use.
    fn drain(&self, carrier: Carrier<'_>, claim: &Claim) -> Drain {
        if self.lists(carrier, claim.cidr) {
            Drain::Closed(AddressSet::new())
        } else {
            Drain::Stays(Stays::Incomplete)
        }
    }

    fn has_open_removal_query(&self, carrier: Carrier<'_>) -> bool {
        fields(carrier).is_some_and(removal::has_open_query)
    }

    fn removal(
        &self,
        carrier: Carrier<'_>,
        blocks: &[Cidr],
        in_their_place: &[&Claim],
        as_of: Revision,
    ) -> Option<Withdrawal> {
        let cilium_node = carrier.cilium_node()?;
        let mut withdrawal = removal::removal(cilium_node, blocks, as_of)?;
        if let CarrierChange::MultiPool(PoolsChange::Remove { allocated, .. }) = &mut withdrawal.change {
            self.add(allocated, &missing(&cilium_node.pools, in_their_place));
        }
        Some(withdrawal)
    }

    fn leaving(&self, carrier: Carrier<'_>, claim: &Claim) -> Leaving {
        if self.lists(carrier, claim.cidr) { Leaving::without_consent(carrier, claim) } else { Leaving::Off }
    }

    fn support(&self, release: Option<CiliumVersion>) -> Support {
        match release {
            None => Support::Unknown,
            Some(release) if release.minor < FIRST => Support::None,
            Some(_) => Support::Full,
        }
    }

    fn why_unsupported(&self, release: CiliumVersion) -> String {
        format!(
            "agents of Cilium {release} do not confirm in multi-pool mode that they released a CIDR: their \
             nodes keep their blocks and get no more; upgrade these agents to 1.17 or newer"
        )
    }

    /// A `maskSize` that differs only keeps Cilium's BGP from announcing. So does a missing object, for agents before
    /// 1.19. An agent of unknown version may need the object.
    fn misfit_matters(&self, misfit: Misfit, release: Option<CiliumVersion>) -> bool {
        match misfit {
            Misfit::Missing => {
                self.bgp == Bgp::On || release.is_none_or(|release| release.minor >= FIRST_WITH_POD_IP_POOLS)
            }
            Misfit::Family(_) | Misfit::MaskSize { .. } => true,
        }
    }

    /// Without the object an agent from 1.19 on can't use a CIDR, and an object that an administrator then creates
    /// may make it exit. An object that lacks the family makes an agent with BGP exit.
    fn misfit_harms(&self, misfit: Misfit, release: Option<CiliumVersion>) -> bool {
        match misfit {
            Misfit::Missing => release.is_some_and(|release| release.minor >= FIRST_WITH_POD_IP_POOLS),
            Misfit::Family(_) => self.bgp == Bgp::On,
            Misfit::MaskSize { .. } => false,
        }
    }

    /// Also beside CIDRs, although the name of an operator may be old then. A running operator removes the CIDRs
    /// outside of its own ranges, with the pods in them. So an administrator who has turned it off must confirm that
    /// by removing the sign.
    fn second_allocator(&self, carrier: Carrier<'_>) -> Option<Finding> {
        let why = operator::sign(carrier.cilium_node()?, false)?;
        let kept = if self.blocks(carrier).is_empty() { "" } else { " and it keeps its blocks" };
        let message = format!("{why}; the node gets no more blocks{kept}; {TURN_OFF}");
        let node = carrier.name().as_str();
        Some(Finding::new(FindingKind::SecondAllocator, Kind::CiliumNode, node, message))
    }
}

impl MultiPool {
    /// The name under which a claim is published. A claim without a name is of the default pool: it was made in
    /// another mode, or before claims had names.
    fn publication_name<'a>(&'a self, claim: &'a Claim) -> &'a PodIpPoolName {
        claim.pod_ip_pool.as_ref().unwrap_or(&self.default_pool)
    }

    /// Adds blocks to the entries of their names.
    fn add(&self, allocated: &mut Vec<Allocated>, claims: &[&Claim]) {
        for claim in claims {
            let name = self.publication_name(claim).as_str();
            if let Some(entry) = allocated.iter_mut().find(|entry| entry.pool == name) {
                entry.cidrs.push(claim.cidr);
            } else {
                let (pool, cidrs) = (name.to_owned(), vec![claim.cidr]);
                allocated.push(Allocated { pool, cidrs, entry: Entry::default() });
            }
        }
    }

    /// The write that sends the query; `None` while one is open.
    fn query(carrier: Carrier<'_>, as_of: Revision) -> Option<Request> {
        let question = removal::query(fields(carrier)?, as_of)?;
        let query = UsageQuery {
            node: carrier.name().clone(),
            uid: carrier.uid().clone(),
            revision: carrier.revision(),
            step: QueryStep::Ask,
            change: CarrierChange::MultiPool(PoolsChange::Ask(question)),
        };
        Some(Write::UsageQuery(query).into())
    }
}

/// The claims of these that can be listed beside the present CIDRs, in the order in which they are added. If two
/// CIDRs overlapped, the agent would give one address to two pods.
fn missing<'a>(fields: &PoolsFields, claims: &[&'a Claim]) -> Vec<&'a Claim> {
    let is_free = |claim: &&Claim| !fields.listed().any(|listed| listed.overlaps(claim.cidr));
    let mut missing: Vec<&Claim> = claims.iter().copied().filter(is_free).collect();
    missing.sort_by_key(|claim| (claim.created, claim.cidr));
    missing
}

/// The number of addresses of a class that the agent needs.
fn needed(carrier: Carrier<'_>, class: &AddressClass) -> u128 {
    let requested = fields(carrier).into_iter().flat_map(|fields| &fields.requested);
    let of_name = requested.filter(|entry| is_named(class, &entry.pool));
    of_name.filter_map(|entry| entry.needed.get(&class.family)).copied().max().unwrap_or_default()
}

/// Supposes that pods use this percentage of the addresses under each name. An agent requests them in steps of its
/// reserve, plus one step.
pub(super) fn raise_need(fields: &mut PoolsFields, percent: u8) {
    for entry in fields.requested.iter_mut().filter(|entry| entry.asked_as_of.is_none()) {
        for (family, needed) in &mut entry.needed {
            let cidrs = fields.allocated.iter().filter(|allocated| allocated.pool == entry.pool);
            let cidrs = cidrs.flat_map(|allocated| &allocated.cidrs).filter(|cidr| cidr.family() == *family);
            let capacity: u128 = cidrs.map(|cidr| n_assignable(*cidr)).sum();
            let used = (capacity * u128::from(percent)).div_ceil(100);
            *needed = (*needed).max((used / PRE_ALLOCATED + 1) * PRE_ALLOCATED);
        }
    }
}

/// Whether a CiliumNode has fields of an agent in this mode.
pub(super) fn has_pools(cilium_node: &CiliumNode) -> bool {
    !cilium_node.pools.requested.is_empty() || cilium_node.pools.listed().next().is_some()
}

/// Whether such a field shows an address of this block.
pub(super) fn has_in_pools(cilium_node: &CiliumNode, block: Cidr) -> bool {
    cilium_node.pools.listed().any(|listed| listed.overlaps(block))
}

fn reports_need(fields: &PoolsFields) -> bool {
    fields.requested.iter().any(|entry| entry.asked_as_of.is_none())
}

/// Whether a class is the one of this name.
fn is_named(class: &AddressClass, name: &str) -> bool {
    class.pod_ip_pool.as_ref().is_some_and(|of_class| of_class.as_str() == name)
}

/// The names under which a carrier lists a CIDR; more than one if another writer has copied it.
fn names_of(carrier: Carrier<'_>, cidr: Cidr) -> impl Iterator<Item = &str> {
    let entries = fields(carrier).into_iter().flat_map(|fields| &fields.allocated);
    entries.filter(move |entry| entry.cidrs.contains(&cidr)).map(|entry| entry.pool.as_str())
}
