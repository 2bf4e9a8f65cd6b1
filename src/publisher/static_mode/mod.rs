//! The publisher for the modes in which a node has one CIDR of each family for its whole life: cluster-pool and
//! kubernetes.
//!
//! An agent reads the CIDRs once, when it starts, and assigns their addresses by itself. It reports neither its need
//! nor its use. So a carrier without a CIDR gets one block of each family in one write. None of them is ever changed,
//! reordered or removed. The differences between the modes are behind [`StaticMode`].

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use super::answer::{Absence, Drain, Holding, Leaving, Removal, Stays};
use super::cilium_mode::CiliumMode;
use super::demand::Demand;
use super::edges::edge_addresses;
use super::multi_pool::{has_in_pools, has_pools};
use super::support::Support;
use super::traits::Traits;
use crate::model::address_class::AddressClass;
use crate::model::carrier::{Carrier, CarrierChange, FormerCarrier};
use crate::model::cilium_version::CiliumVersion;
use crate::model::claim::Claim;
use crate::model::finding::{Finding, FindingKind};
use crate::model::kind::Kind;
use crate::model::node::{Malformed, Node};
use crate::model::pool::{Expand, Pool};
use crate::model::request::{Publication, Request};
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

mod cluster_pool;
mod kubernetes;

pub use cluster_pool::ClusterPool;
pub use kubernetes::{Kubernetes, NodeField};

/// The differences between the modes.
pub trait StaticMode: Copy {
    /// Its name, as `ipam` of `cilium-config` has it.
    const NAME: &'static str;
    /// The kind of the carrier.
    const CARRIER: Kind;
    /// How to keep another allocator from writing that field, for a person.
    const ONLY_WRITER: &'static str;

    /// Whether the carrier has immutable CIDRs, and no field on it shows any address of this block.
    fn was_never_listed(self, carrier: Carrier<'_>, block: Cidr) -> bool;

    /// The CIDRs that a carrier shows, in their order.
    fn pod_cidrs(self, carrier: Carrier<'_>) -> Cow<'_, [Cidr]>;

    /// The field of the carrier that has each of them, for a person.
    fn describe(self, carrier: Carrier<'_>) -> String;

    /// The write of these CIDRs.
    fn change(self, pod_cidrs: Vec<Cidr>) -> CarrierChange;

    /// Whether a claim that is known as of `known_at` may be published on this version of the carrier.
    fn is_fresh(known_at: Revision, carrier: Carrier<'_>) -> bool;

    /// Whether this version of the carrier was written after claims had come to a revision.
    fn shows_later(carrier: Carrier<'_>, than: Revision) -> bool;

    /// Whether a block that is being removed is known to be absent.
    fn absence(removal: Removal<'_>) -> Absence;

    /// The request for a version of the carrier later than `later_than`.
    fn later_version(carrier: Carrier<'_>, later_than: Revision) -> Option<Request>;

    /// The sign on the carrier that another allocator gives it CIDRs, and how to remove that sign when the allocator
    /// no longer does.
    fn second_allocator(carrier: Carrier<'_>) -> Option<String>;

    /// A text on the carrier that could not be read, and that its agent may read in another way.
    fn malformed(self, carrier: Carrier<'_>) -> Option<&Malformed> {
        carrier.malformed().first()
    }

    /// The finding about two fields of a served node's carrier that contradict each other. The agent uses one of
    /// them.
    fn contradiction(self, _carrier: Carrier<'_>) -> Option<Finding> {
        None
    }
}

/// CIDRs for a person.
fn listed(cidrs: &[Cidr]) -> String {
    cidrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// One of these modes, with its settings from `cilium-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Static<M> {
    families: BTreeSet<Family>,
    mode: M,
}

impl<M> Static<M> {
    /// The mode whose agents run these families.
    #[must_use]
    pub fn new(families: BTreeSet<Family>, mode: M) -> Self {
        Self { families, mode }
    }

    /// The settings of the mode itself.
    pub(super) const fn mode(&self) -> &M {
        &self.mode
    }
}

impl<M: StaticMode> fmt::Display for Static<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(M::NAME)
    }
}

impl<M: StaticMode> CiliumMode for Static<M> {
    fn traits(&self) -> Traits {
        Traits {
            carrier: M::CARRIER,
            gives_one_block: true,
            has_primary_blocks: false,
            agents_request_addresses: false,
            shows_use: false,
            gives_whole_blocks: true,
            has_pod_ip_pools: false,
            removes_with_query: false,
            may_announce_blocks: true,
            announces: false,
        }
    }

    fn families(&self) -> &BTreeSet<Family> {
        &self.families
    }

    fn is_short(&self, _: Demand, _: Expand) -> bool {
        false
    }

    fn was_never_listed(&self, carrier: Carrier<'_>, block: Cidr) -> bool {
        self.mode.was_never_listed(carrier, block)
    }

    fn undecided(&self, claims: &[&Claim], former: Option<&FormerCarrier>) -> Vec<Cidr> {
        let of_each = self.families.iter().map(|family| of_family(claims, *family));
        let is_undecided =
            |of_family: &Vec<&Claim>| of_family.len() > 1 && only_or_first(of_family, former).is_none();
        of_each.filter(is_undecided).flatten().map(|claim| claim.cidr).collect()
    }

    /// Beside blocks of ours it is only reported ([`Self::finding`]).
    fn second_allocator(&self, carrier: Carrier<'_>) -> Option<Finding> {
        let why = M::second_allocator(carrier).filter(|_| self.mode.pod_cidrs(carrier).is_empty())?;
        let message = format!("{why}; the node gets no blocks; {}", M::ONLY_WRITER);
        Some(Finding::new(FindingKind::SecondAllocator, M::CARRIER, carrier.name().as_str(), message))
    }

    fn lists(&self, carrier: Carrier<'_>, cidr: Cidr) -> bool {
        self.mode.pod_cidrs(carrier).contains(&cidr)
    }

    fn offered_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> AddressSet {
        self.mode.pod_cidrs(carrier).iter().copied().filter(|listed| listed.overlaps(cidr)).collect()
    }

    fn n_published_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> u128 {
        let mut published = self.offered_in(carrier, cidr).within(cidr);
        for listed in self.mode.pod_cidrs(carrier).iter() {
            published.remove_all(&edge_addresses(*listed));
        }
        published.len()
    }

    /// A block of a family that the agents do not run is unused.
    fn blocks(&self, carrier: Carrier<'_>) -> Vec<Cidr> {
        let listed = self.mode.pod_cidrs(carrier);
        listed.iter().copied().filter(|cidr| self.families.contains(&cidr.family())).collect()
    }

    /// One block is all that a node ever gets, however small it is.
    fn minimum_for_start(&self, _: Carrier<'_>, _: &AddressClass) -> u128 {
        1
    }

    fn demand(&self, _: Carrier<'_>, _: &AddressClass, blocks: &[&Claim], _: &BTreeSet<Cidr>) -> Demand {
        blocks.iter().fold(Demand::default(), |demand, claim| demand.grown_by(claim.offered_count()))
    }

    fn is_enough(&self, _: Carrier<'_>, _: &AddressClass, holding: Holding, _: &Pool) -> bool {
        holding.n_blocks > 0
    }

    /// All blocks at once, and only onto a carrier that shows nothing. An agent never reads a change. One that
    /// restarts with other CIDRs, or with the same in another order, loses its pods.
    fn publication(
        &self,
        carrier: Carrier<'_>,
        claims: &[&Claim],
        _: &dyn Fn(&Claim) -> bool,
        former: Option<&FormerCarrier>,
    ) -> Option<Publication> {
        let of_each = self.of_each_family(claims, former);
        if of_each.is_empty() || !self.mode.pod_cidrs(carrier).is_empty() {
            return None;
        }
        let n_addresses: u128 = of_each.iter().map(|claim| self.n_offered(claim.cidr, &claim.excluded)).sum();
        let added: Vec<Cidr> = of_each.iter().map(|claim| claim.cidr).collect();
        Some(Publication {
            node: carrier.name().clone(),
            uid: carrier.uid().clone(),
            revision: carrier.revision(),
            added: added.clone(),
            completed: Vec::new(),
            n_addresses: usize::try_from(n_addresses).unwrap_or(usize::MAX),
            change: self.mode.change(added),
        })
    }

    fn is_fresh(&self, known_at: Revision, carrier: Carrier<'_>) -> bool {
        M::is_fresh(known_at, carrier)
    }

    fn shows_later(&self, carrier: Carrier<'_>, than: Revision) -> bool {
        M::shows_later(carrier, than)
    }

    /// Carriers of these modes name no pool, so a block may be of any.
    fn is_of_pool(&self, _: Carrier<'_>, _: Cidr, _: &Pool) -> bool {
        true
    }

    fn carried_by_node(&self, node: &Node) -> AddressSet {
        self.mode.pod_cidrs(Carrier::Node(node)).iter().copied().collect()
    }

    fn absence(&self, removal: Removal<'_>) -> Absence {
        M::absence(removal)
    }

    fn later_version_of(&self, carrier: Carrier<'_>, later_than: Revision) -> Option<Request> {
        M::later_version(carrier, later_than)
    }

    fn malformed<'a>(&self, carrier: Carrier<'a>) -> Option<&'a Malformed> {
        self.mode.malformed(carrier)
    }

    /// An agent of multi-pool takes a CIDR again if it has missed its removal, and only its answer proves otherwise.
    fn may_run_in_other_mode(&self, carrier: Carrier<'_>) -> bool {
        carrier.cilium_node().is_some_and(has_pools)
    }

    fn is_shown_by_other_mode(&self, carrier: Carrier<'_>, block: Cidr) -> bool {
        carrier.cilium_node().is_some_and(|cilium_node| has_in_pools(cilium_node, block))
    }

    fn use_is_known(&self, _: Carrier<'_>) -> bool {
        false
    }

    fn may_leave(&self, _: Carrier<'_>, _: &Claim) -> Result<(), Stays> {
        Err(Stays::ForLife)
    }

    fn drain(&self, _: Carrier<'_>, _: &Claim) -> Drain {
        Drain::Stays(Stays::ForLife)
    }

    fn leaving(&self, carrier: Carrier<'_>, claim: &Claim) -> Leaving {
        if self.lists(carrier, claim.cidr) { Leaving::NoConsent } else { Leaving::Off }
    }

    /// Agents of every version read the CIDRs and never write them.
    fn support(&self, release: Option<CiliumVersion>) -> Support {
        release.map_or(Support::Unknown, |_| Support::Full)
    }

    fn why_unsupported(&self, release: CiliumVersion) -> String {
        format!("agents of Cilium {release} are supported in mode {}", M::NAME)
    }

    fn finding(&self, carrier: Carrier<'_>) -> Option<Finding> {
        let Some(why) = M::second_allocator(carrier) else { return self.mode.contradiction(carrier) };
        let message = format!("{why}; the node keeps its blocks; {}", M::ONLY_WRITER);
        Some(Finding::new(FindingKind::SecondAllocator, M::CARRIER, carrier.name().as_str(), message))
    }

    /// The finding about a carrier whose CIDRs can't be blocks of this node as they are. `why_not` says why a CIDR
    /// without a claim of the node can't become one.
    fn why_left_alone(
        &self,
        carrier: Carrier<'_>,
        is_claimed: &dyn Fn(Cidr) -> bool,
        why_not: &dyn Fn(Cidr) -> Option<String>,
    ) -> Option<Finding> {
        let (listed, name) = (self.mode.pod_cidrs(carrier), carrier.name().as_str());
        if listed.is_empty() {
            return None;
        }
        let unclaimed: Vec<Cidr> =
            self.blocks(carrier).into_iter().filter(|cidr| !is_claimed(*cidr)).collect();
        let mut problems: Vec<String> =
            unclaimed.iter().filter_map(|cidr| Some(format!("{cidr} {}", why_not(*cidr)?))).collect();
        for family in &self.families {
            let n = listed.iter().filter(|cidr| cidr.family() == *family).count();
            if n == 0 {
                problems.push(format!("the agents also run {family}, and it has no {family} CIDR"));
            } else if n > 1 && !unclaimed.is_empty() {
                problems.push(format!("it has {n} {family} CIDRs, and a node may have one block per family"));
            }
        }
        if problems.is_empty() {
            return None;
        }
        let message = format!(
            "{}, and the controller can't adopt it: {}; the node gets no blocks; {}; then create a pool for \
             the node with these CIDRs as blocks, or drain the node and recreate its {}",
            self.mode.describe(carrier),
            problems.join("; "),
            M::ONLY_WRITER,
            M::CARRIER.as_str(),
        );
        Some(Finding::new(FindingKind::ForeignPodCIDRs, M::CARRIER, name, message))
    }
}

impl<M: StaticMode> Static<M> {
    /// The claim that counts in each family, or none if that is unknown for one of them.
    fn of_each_family<'a>(&self, claims: &[&'a Claim], former: Option<&FormerCarrier>) -> Vec<&'a Claim> {
        let of_each = self.families.iter().map(|family| of_family(claims, *family));
        let mut chosen: Vec<&Claim> =
            of_each.filter_map(|of_family| only_or_first(&of_family, former)).collect();
        // Both families or none. Their order is that of the carrier before.
        if chosen.len() < self.families.len() {
            return Vec::new();
        }
        chosen.sort_by_key(|claim| place(claim, former));
        chosen
    }
}

fn of_family<'a>(claims: &[&'a Claim], family: Family) -> Vec<&'a Claim> {
    claims.iter().copied().filter(|claim| claim.cidr.family() == family).collect()
}

/// The only claim of one family, or the one that the agent found first on the carrier before this one.
///
/// A node has several claims of a family for one of three reasons. It got them in another mode, where its agent takes
/// only the first. A user made one. Or another writer was faster.
fn only_or_first<'a>(of_family: &[&'a Claim], former: Option<&FormerCarrier>) -> Option<&'a Claim> {
    match of_family {
        [only] => Some(only),
        several => {
            let listed = several.iter().copied().filter(|claim| place(claim, former) < usize::MAX);
            listed.min_by_key(|claim| place(claim, former))
        }
    }
}

/// Where the carrier before this one listed a block.
fn place(claim: &Claim, former: Option<&FormerCarrier>) -> usize {
    let listed = former.map_or(&[][..], |FormerCarrier::Crd(former)| &former.pod_cidrs);
    listed.iter().position(|cidr| *cidr == claim.cidr).unwrap_or(usize::MAX)
}
