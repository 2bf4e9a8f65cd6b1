//! The answers of one mode of Cilium, with the defaults that most modes share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::answer::{Absence, Drain, Holding, Leaving, QueryState, Removal, Stays};
use super::demand::Demand;
use super::edges::{self, edge_addresses};
use super::support::Support;
use super::traits::Traits;
use crate::model::address_class::AddressClass;
use crate::model::carrier::{Carrier, FormerCarrier};
use crate::model::cilium_version::CiliumVersion;
use crate::model::claim::Claim;
use crate::model::finding::Finding;
use crate::model::names::PodIpPoolName;
use crate::model::node::{Malformed, Node};
use crate::model::pod_ip_pool::Misfit;
use crate::model::pool::{Expand, Pool, widest_block};
use crate::model::request::{BumpVersion, Publication, Request, Withdrawal, WithdrawalStep, Write};
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

/// A mode of Cilium: queries about one node, answered from values.
///
/// The default of an answer fits modes whose agents take whole blocks from a CiliumNode, without a usage query or a
/// release handshake. The questions whose wrong answer is most dangerous have no default.
pub trait CiliumMode: fmt::Display {
    /// The traits, which are the same for every node.
    fn traits(&self) -> Traits;

    /// The families that the agents run. An agent needs addresses of each before it can start.
    fn families(&self) -> &BTreeSet<Family>;

    /// The prefix length of the largest block that a carrier can have.
    fn widest_block(&self, family: Family) -> u8 {
        widest_block(family)
    }

    /// The ranges on a carrier that an agent of another mode uses or may use, beyond the addresses that these claims
    /// offer. An agent that starts in this mode with other addresses loses its pods there. `None` where that can't
    /// happen: in modes whose agents do not, and on a carrier that offers addresses already.
    fn former_ranges(&self, _carrier: Carrier<'_>, _claims: &[&Claim]) -> Option<Vec<Cidr>> {
        None
    }

    /// Why a carrier is left alone: it has addresses of another writer that can't be blocks of this node.
    /// `is_claimed` says whether a block is a claim of the node. `why_not` says why a block without a claim can't
    /// become one.
    fn why_left_alone(
        &self,
        carrier: Carrier<'_>,
        is_claimed: &dyn Fn(Cidr) -> bool,
        why_not: &dyn Fn(Cidr) -> Option<String>,
    ) -> Option<Finding>;

    /// A text on the carrier that could not be read, and that its agent may read in another way. Then nothing is
    /// written there.
    fn malformed<'a>(&self, carrier: Carrier<'a>) -> Option<&'a Malformed> {
        carrier.malformed().first()
    }

    /// Whether the carrier lists exactly this block.
    fn lists(&self, carrier: Carrier<'_>, cidr: Cidr) -> bool;

    /// The addresses of `cidr` that the carrier offers to its agent in any form. Of a listed block that overlaps
    /// `cidr` every address counts.
    fn offered_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> AddressSet;

    /// Whether the carrier lists immutable blocks, and no field on it shows any address of this one.
    fn was_never_listed(&self, _carrier: Carrier<'_>, _block: Cidr) -> bool {
        false
    }

    /// In a mode with one block for life: the blocks of these claims if no object shows which of them the agent has.
    /// `former` has the list of the carrier before this one.
    fn undecided(&self, claims: &[&Claim], former: Option<&FormerCarrier>) -> Vec<Cidr>;

    /// How many addresses of `cidr` the agent can give to pods.
    fn n_published_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> u128;

    /// How many addresses of `cidr` the agent says it uses.
    fn n_used_in(&self, _carrier: Carrier<'_>, _cidr: Cidr) -> u128 {
        0
    }

    /// The addresses of `cidr` that the agent says it uses.
    fn used_in(&self, _carrier: Carrier<'_>, _cidr: Cidr) -> AddressSet {
        AddressSet::new()
    }

    /// The blocks that the carrier lists and whose addresses its agent can assign.
    fn blocks(&self, carrier: Carrier<'_>) -> Vec<Cidr>;

    /// The purpose for which an address is reserved, if its agent uses it for itself or an owner is set.
    fn reserved_for(&self, _carrier: Carrier<'_>, _address: IpAddr) -> Option<String> {
        None
    }

    /// The addresses of a block on the carrier that its agent can't assign.
    fn unavailable_in(&self, _carrier: Carrier<'_>, block: Cidr) -> AddressSet {
        edge_addresses(block)
    }

    /// The number of addresses of a block that its agent can give to pods if these are unavailable. Where no single
    /// addresses are written, an agent gives all of a block except the first and last one. There a block with any
    /// other unavailable address offers nothing.
    fn n_offered(&self, block: Cidr, excluded: &AddressSet) -> u128 {
        edges::n_offered(block, excluded)
    }

    /// Whether the agent of this carrier removes blocks by itself, and has reported its need. Then it has released
    /// every held block that is neither published nor needed.
    fn agent_releases_blocks(&self, _carrier: Carrier<'_>) -> bool {
        false
    }

    /// Whether the carrier has fields of another mode, in which its agent may still run. Then no block is taken from the
    /// node, and no version of the carrier proves that a block has left.
    fn may_run_in_other_mode(&self, _carrier: Carrier<'_>) -> bool {
        false
    }

    /// Whether such a field shows an address of this block.
    fn is_shown_by_other_mode(&self, _carrier: Carrier<'_>, _block: Cidr) -> bool {
        false
    }

    /// The revision of our usage query that the agent has answered between these versions of one carrier.
    fn answered(&self, _before: Carrier<'_>, _after: Carrier<'_>) -> Option<Revision> {
        None
    }

    /// A sign that another allocator serves the node of this carrier. Then nothing is claimed or written for the
    /// node.
    fn second_allocator(&self, carrier: Carrier<'_>) -> Option<Finding>;

    /// The Pod IP pool of Pods that ask for none, and of pools that name none.
    fn default_pool(&self) -> Option<&PodIpPoolName> {
        None
    }

    /// The Pod IP pool name for new blocks of this pool.
    fn pod_ip_pool_of<'a>(&'a self, _pool: &'a Pool) -> Option<&'a PodIpPoolName> {
        None
    }

    /// The Pod IP pool name of a claim on the carrier of its node. It is the name under which the block is published
    /// there, or will be.
    fn pool_name_on(&self, _carrier: Carrier<'_>, _claim: &Claim) -> Option<PodIpPoolName> {
        None
    }

    /// Whether a misfit of a Pod IP pool's object matters to an agent of this version.
    fn misfit_matters(&self, _misfit: Misfit, _release: Option<CiliumVersion>) -> bool {
        false
    }

    /// Whether this misfit of the object harms an agent of this version. Then its node gets nothing under the name of
    /// that Pod IP pool.
    fn misfit_harms(&self, _misfit: Misfit, _release: Option<CiliumVersion>) -> bool {
        false
    }

    /// The Pod IP pools from which the agent needs addresses.
    fn requested_pools(&self, _carrier: Carrier<'_>) -> BTreeSet<PodIpPoolName> {
        BTreeSet::new()
    }

    /// Whether a listed block without a claim is published as a block of this pool would be. Otherwise it belongs to
    /// another writer, although it lies in the ranges of the pool.
    fn is_of_pool(&self, carrier: Carrier<'_>, cidr: Cidr, pool: &Pool) -> bool;

    /// The finding about a block that another writer has published in another way than its claim says.
    fn misplaced(&self, _carrier: Carrier<'_>, _claim: &Claim) -> Option<Finding> {
        None
    }

    /// Whether the agent of this carrier can start if it finds this number of addresses of each class. It needs all
    /// of its families, under the name of one Pod IP pool where there are several. Its need under another name may be
    /// unmet for long, and is no reason to delay this one.
    fn can_start_with(&self, carrier: Carrier<'_>, offered: &BTreeMap<AddressClass, u128>) -> bool {
        let needed = |class: &AddressClass| self.minimum_for_start(carrier, class);
        let name = |class: &AddressClass| class.pod_ip_pool.clone();
        let names: BTreeSet<_> = offered.keys().filter(|class| needed(class) > 0).map(name).collect();
        if names.is_empty() {
            return offered.values().any(|offered| *offered > 0);
        }
        names.into_iter().any(|pod_ip_pool| {
            let mut classes = offered.iter().filter(|(class, _)| class.pod_ip_pool == pod_ip_pool);
            classes.all(|(class, offered)| *offered >= needed(class))
        })
    }

    /// How many addresses of each family an agent takes for itself at least. Each agent has one for its router.
    fn n_own_addresses(&self) -> u128 {
        1
    }

    /// How many blocks a node without any gets of this pool at first, where each offers this number of addresses, which is
    /// not 0. Its limits do not count.
    fn n_first_blocks(&self, _pool: &Pool, _n_offered: u128) -> u128 {
        1
    }

    /// How many addresses of a class the agent of this carrier needs before it can start.
    fn minimum_for_start(&self, carrier: Carrier<'_>, class: &AddressClass) -> u128;

    /// Whether the agent of this carrier, which has no block of ours yet, is about to update it once more. A patch before
    /// that makes its update fail.
    fn is_about_to_write(&self, _carrier: Carrier<'_>) -> bool {
        false
    }

    /// The number of addresses in use in these blocks of one class. Unknown use counts as zero. Other blocks of the
    /// carrier may count as well, except those in `ours`, the blocks of all claims of the node.
    fn demand(
        &self,
        carrier: Carrier<'_>,
        class: &AddressClass,
        blocks: &[&Claim],
        ours: &BTreeSet<Cidr>,
    ) -> Demand;

    /// Whether the holding of a node in a class suffices, by the rules of its first pool or by the request on its
    /// carrier.
    fn is_enough(&self, carrier: Carrier<'_>, class: &AddressClass, holding: Holding, first: &Pool) -> bool;

    /// Whether a node that no pool selects needs more than it holds of a class.
    fn is_short(&self, demand: Demand, expand: Expand) -> bool;

    /// The patch after which the carrier shows all of `claims`; `None` if it already does, or if nothing may be
    /// added. `former` has the content of the carrier before this one, if this process saw it. Claims that
    /// `is_draining` names must leave the node, and come last.
    fn publication(
        &self,
        carrier: Carrier<'_>,
        claims: &[&Claim],
        is_draining: &dyn Fn(&Claim) -> bool,
        former: Option<&FormerCarrier>,
    ) -> Option<Publication>;

    /// Whether a claim that is known as of `known_at` may be published on this version of the carrier (safety rule 4).
    fn is_fresh(&self, known_at: Revision, carrier: Carrier<'_>) -> bool;

    /// Whether this version of the carrier was written after claims had come to a revision. Then it includes every
    /// write before that, and no patch that was decided without those claims can reach it any more.
    fn shows_later(&self, carrier: Carrier<'_>, than: Revision) -> bool;

    /// The addresses that the Node object lists, such as podCIDRs, if agents of this mode read them there; else none.
    fn carried_by_node(&self, node: &Node) -> AddressSet;

    /// Whether a block that is being removed is known to be absent (safety rule 3).
    fn absence(&self, removal: Removal<'_>) -> Absence;

    /// The request that shows a version of the carrier later than `later_than`; `None` if we can't cause one, and
    /// must wait for it.
    fn later_version_of(&self, carrier: Carrier<'_>, later_than: Revision) -> Option<Request> {
        Some(Write::BumpVersion(BumpVersion::of(carrier, later_than)).into())
    }

    /// Whether the agent of this carrier reports which addresses it uses, or how many it needs.
    fn use_is_known(&self, carrier: Carrier<'_>) -> bool;

    /// Whether the agent has written the full list of the addresses that it uses, between these versions of one
    /// carrier.
    fn wrote_use(&self, _before: Carrier<'_>, _after: Carrier<'_>) -> bool {
        false
    }

    /// The state of the usage query to the agent, and the next step.
    fn usage_query(&self, _carrier: Carrier<'_>) -> QueryState {
        QueryState::None
    }

    /// Why a published block can't start draining while its node exists; `Ok` if it can.
    fn may_leave(&self, carrier: Carrier<'_>, claim: &Claim) -> Result<(), Stays>;

    /// The progress of a block whose claim is Draining.
    fn drain(&self, carrier: Carrier<'_>, claim: &Claim) -> Drain;

    /// The progress of a block whose claim is Releasing because its agent has released it.
    fn leaving(&self, carrier: Carrier<'_>, claim: &Claim) -> Leaving;

    /// Whether a block that stays has marks of such steps.
    fn has_stale_marks(&self, _carrier: Carrier<'_>, _cidr: Cidr) -> bool {
        false
    }

    /// The write of a step by which these blocks leave; `None` where it would change nothing.
    fn withdrawal(
        &self,
        _carrier: Carrier<'_>,
        _step: WithdrawalStep,
        _blocks: &[Cidr],
    ) -> Option<Withdrawal> {
        None
    }

    /// Whether the carrier has an open query of such a removal.
    fn has_open_removal_query(&self, _carrier: Carrier<'_>) -> bool {
        false
    }

    /// The write that removes these blocks, publishes others in their place, and adds a usage query of this revision.
    /// `None` if the carrier lists none of the blocks, or has an open query.
    fn removal(
        &self,
        _carrier: Carrier<'_>,
        _blocks: &[Cidr],
        _in_their_place: &[&Claim],
        _as_of: Revision,
    ) -> Option<Withdrawal> {
        None
    }

    /// Whether a block of the carrier is in a release handshake with its agent.
    fn is_in_handshake(&self, _carrier: Carrier<'_>) -> bool {
        false
    }

    /// How far the controller supports an agent of this version, or of an unknown one.
    fn support(&self, release: Option<CiliumVersion>) -> Support;

    /// Why agents of this version are not supported, and the remedy, for a person.
    fn why_unsupported(&self, release: CiliumVersion) -> String;

    /// A finding about a field on the carrier of a served node that we may not change, and that will harm its agent.
    fn finding(&self, _carrier: Carrier<'_>) -> Option<Finding> {
        None
    }
}
