//! What one mode of Cilium answers, with the answers that most modes share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::answer::{Absence, Drain, Holding, Leaving, ProbeState, Removal, Stays};
use super::demand::Demand;
use super::ends::{self, ends};
use super::support::Support;
use crate::model::carrier::{Carrier, FormerCarrier};
use crate::model::claim::Claim;
use crate::model::finding::Finding;
use crate::model::kind::Kind;
use crate::model::names::PodIpPoolName;
use crate::model::node::{Malformed, Node};
use crate::model::pod_ip_pool::Misfit;
use crate::model::pool::{Expand, Pool, widest_block};
use crate::model::release::Release;
use crate::model::request::{BumpVersion, Publication, Request, Withdrawal, WithdrawalStep, Write};
use crate::model::revision::Revision;
use crate::model::share::Share;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

/// A mode of Cilium: questions about one node, answered from values.
///
/// The default of an answer is that of the modes whose agents take whole blocks from a CiliumNode, and are neither asked nor
/// made to let one go. There is none where a wrong answer could give a node addresses that another one has.
pub trait CiliumMode: fmt::Display {
    /// The kind of the object that carries a node's blocks.
    fn carrier_kind(&self) -> Kind {
        Kind::CiliumNode
    }

    /// Whether Cilium's own BGP can announce the blocks of a node.
    fn may_announce_blocks(&self) -> bool {
        true
    }

    /// The families that the agents run. An agent needs addresses of each before it can start.
    fn families(&self) -> &BTreeSet<Family>;

    /// Whether a node gets one block of each family and never another, so that a pool neither sizes nor shrinks it.
    fn gives_one_block(&self) -> bool {
        false
    }

    /// Whether the first block of each family on a carrier is the primary one, which stays, while others may leave.
    fn has_primary_blocks(&self) -> bool {
        false
    }

    /// The prefix length of the largest block that a carrier can have.
    fn widest_block(&self, family: Family) -> u8 {
        widest_block(family)
    }

    /// Whether agents say how much they need, and give back what is more, so that no threshold of a pool counts.
    fn agents_ask(&self) -> bool {
        false
    }

    /// Whether agents say on the carrier which addresses they use. If not, nobody is asked, and nothing is told of it.
    fn shows_use(&self) -> bool {
        false
    }

    /// Whether agents give out every address of a block but its ends, and can't be kept from single ones.
    fn gives_whole_blocks(&self) -> bool {
        true
    }

    /// Why a carrier is left alone: it has addresses of another writer which can't be blocks of this node.
    /// `is_claimed` says whether a block is a claim of the node, and `why_not` why one without a claim can't become one.
    fn foreign_blocks(
        &self,
        carrier: Carrier<'_>,
        is_claimed: &dyn Fn(Cidr) -> bool,
        why_not: &dyn Fn(Cidr) -> Option<String>,
    ) -> Option<Finding>;

    /// A text on the carrier that could not be read, and that its agent may read otherwise. Then nothing is written there.
    fn malformed<'a>(&self, carrier: Carrier<'a>) -> Option<&'a Malformed> {
        carrier.malformed().first()
    }

    /// Whether the carrier lists exactly this block.
    fn carries(&self, carrier: Carrier<'_>, cidr: Cidr) -> bool;

    /// The addresses of `cidr` that the carrier offers to its agent in any form. A listed block that overlaps `cidr`
    /// counts as a whole.
    fn offered_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> AddressSet;

    /// Whether the carrier lists blocks that nobody can change, and nothing on it shows any address of this one.
    fn never_had(&self, _carrier: Carrier<'_>, _block: Cidr) -> bool {
        false
    }

    /// In a mode with one block for life: those of these claims of which nothing shows which one the agent has. `former` is
    /// what the carrier before this one listed.
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

    /// The blocks that the carrier lists and whose agent can hand out addresses of them.
    fn blocks(&self, carrier: Carrier<'_>) -> Vec<Cidr>;

    /// What an address is reserved for, where the agent has it for itself or it is kept for that.
    fn reserved_for(&self, _carrier: Carrier<'_>, _address: IpAddr) -> Option<String> {
        None
    }

    /// The addresses of a block on the carrier that its agent can't hand out.
    fn withheld_in(&self, _carrier: Carrier<'_>, block: Cidr) -> AddressSet {
        ends(block)
    }

    /// How many addresses of a block its agent can give to pods if these are withheld. Where no single addresses are
    /// written, it gives all of a block but its ends; a block in which others are withheld offers nothing there.
    fn n_offered(&self, block: Cidr, withheld: &AddressSet) -> u128 {
        ends::n_offered(block, withheld)
    }

    /// Whether the agent of this carrier takes blocks off by itself, and has said what it needs: a block that is held, not
    /// carried and not needed is one that it let go.
    fn agent_lets_go(&self, _carrier: Carrier<'_>) -> bool {
        false
    }

    /// As of which revision we asked the question that the agent has answered between these versions of one carrier.
    fn answered(&self, _before: Carrier<'_>, _after: Carrier<'_>) -> Option<Revision> {
        None
    }

    /// A sign that somebody else allocates for the node of this carrier. Then nothing is claimed or written for it.
    fn second_allocator(&self, carrier: Carrier<'_>) -> Option<Finding>;

    /// Whether blocks are carried under names of Pod IP pools, which agents count by themselves.
    fn has_pod_ip_pools(&self) -> bool {
        false
    }

    /// The Pod IP pool of Pods that ask for none, and of pools that name none.
    fn default_pool(&self) -> Option<&PodIpPoolName> {
        None
    }

    /// The Pod IP pool under whose name new blocks of this pool are carried.
    fn pod_ip_pool_of<'a>(&'a self, _pool: &'a Pool) -> Option<&'a PodIpPoolName> {
        None
    }

    /// The Pod IP pool under whose name a claim counts on the carrier of its node: the one under which it stands there, or
    /// else is to stand.
    fn carried_under(&self, _carrier: Carrier<'_>, _claim: &Claim) -> Option<PodIpPoolName> {
        None
    }

    /// Whether it matters to an agent of this release how the object of a Pod IP pool does not fit its blocks.
    fn minds(&self, _misfit: Misfit, _release: Option<Release>) -> bool {
        false
    }

    /// Whether nothing is to be given under the name of a Pod IP pool to a node with an agent of this release, because of how
    /// the object of that name does not fit.
    fn is_harmed_by(&self, _misfit: Misfit, _release: Option<Release>) -> bool {
        false
    }

    /// Whether agents announce blocks as the objects of Pod IP pools say.
    fn announces(&self) -> bool {
        false
    }

    /// The Pod IP pools of which the agent needs addresses.
    fn asked_for(&self, _carrier: Carrier<'_>) -> BTreeSet<PodIpPoolName> {
        BTreeSet::new()
    }

    /// Whether a block that the carrier lists without a claim stands there as one of this pool would. Else it is somebody
    /// else's, although it lies in the ranges of the pool.
    fn is_of_pool(&self, carrier: Carrier<'_>, cidr: Cidr, pool: &Pool) -> bool;

    /// How the block of a claim stands on its carrier in another way than its claim says, because of another writer.
    fn misplaced(&self, _carrier: Carrier<'_>, _claim: &Claim) -> Option<Finding> {
        None
    }

    /// Whether the agent of this carrier can start when it finds so many addresses of each share: of all families that it
    /// needs, under the name of one Pod IP pool where there are several. What it needs under another may be lacking for
    /// long, and is no reason to keep this from it.
    fn can_start_with(&self, carrier: Carrier<'_>, offered: &BTreeMap<Share, u128>) -> bool {
        let needed = |share: &Share| self.minimum_for_start(carrier, share);
        let name = |share: &Share| share.pod_ip_pool.clone();
        let names: BTreeSet<_> = offered.keys().filter(|share| needed(share) > 0).map(name).collect();
        if names.is_empty() {
            return offered.values().any(|offered| *offered > 0);
        }
        names.into_iter().any(|pod_ip_pool| {
            let mut shares = offered.iter().filter(|(share, _)| share.pod_ip_pool == pod_ip_pool);
            shares.all(|(share, offered)| *offered >= needed(share))
        })
    }

    /// How many addresses of a share the agent of this carrier needs before it can start.
    fn minimum_for_start(&self, carrier: Carrier<'_>, share: &Share) -> u128;

    /// How many addresses of these blocks of one share the node uses. If its use is not known, it counts as zero.
    /// What the carrier has beside them may count as well, but for `ours`, every block that the node has a claim of.
    fn demand(&self, carrier: Carrier<'_>, share: &Share, blocks: &[&Claim], ours: &BTreeSet<Cidr>)
    -> Demand;

    /// Whether what a node holds of a share is enough: by the rules of its first pool, or by what its carrier asks for.
    fn is_enough(&self, carrier: Carrier<'_>, share: &Share, holding: Holding, first: &Pool) -> bool;

    /// Whether a node that no pool selects needs more than it holds of a share.
    fn is_short(&self, demand: Demand, expand: Expand) -> bool;

    /// What has to be added to the carrier so that it shows all of `claims`; `None` if it already does, or if nothing
    /// may be added. `former` is what the carrier before this one showed, if this process saw it. Claims that `is_draining`
    /// names must leave the node, and come last.
    fn publication(
        &self,
        carrier: Carrier<'_>,
        claims: &[&Claim],
        is_draining: &dyn Fn(&Claim) -> bool,
        former: Option<&FormerCarrier>,
    ) -> Option<Publication>;

    /// Whether a claim that is known as of `known_at` may be published on this version of the carrier (safety rule 4).
    fn is_fresh(&self, known_at: Revision, carrier: Carrier<'_>) -> bool;

    /// Whether this version of the carrier was written after claims had come to a revision: then it shows what was written
    /// before that, and no patch that was decided without them is on its way to it.
    fn shows_later(&self, carrier: Carrier<'_>, than: Revision) -> bool;

    /// The addresses of a Node itself, such as its podCIDRs, in a mode whose agents read them there.
    fn carried_by_node(&self, node: &Node) -> AddressSet;

    /// Whether a block that is being taken off is known to be off (safety rule 3).
    fn absence(&self, removal: Removal<'_>) -> Absence;

    /// The request that shows a version of the carrier later than `later_than`; `None` if we can't cause one, and have to
    /// wait for it.
    fn later_version_of(&self, carrier: Carrier<'_>, later_than: Revision) -> Option<Request> {
        Some(Write::BumpVersion(BumpVersion::of(carrier, later_than)).into())
    }

    /// Whether the agent of this carrier says which addresses it uses, or how many it needs.
    fn use_is_known(&self, carrier: Carrier<'_>) -> bool;

    /// Whether the agent has written which addresses it uses, all of them, between these versions of one carrier.
    fn wrote_use(&self, _before: Carrier<'_>, _after: Carrier<'_>) -> bool {
        false
    }

    /// Whether the agent was asked which addresses it uses, and the next step.
    fn probe(&self, _carrier: Carrier<'_>) -> ProbeState {
        ProbeState::None
    }

    /// Why a published block can't begin to leave its carrier while the node lives; `Ok` if it can.
    fn may_leave(&self, carrier: Carrier<'_>, claim: &Claim) -> Result<(), Stays>;

    /// How far a block has come whose claim is Draining.
    fn drain(&self, carrier: Carrier<'_>, claim: &Claim) -> Drain;

    /// How far a block has come whose claim is Releasing because its agent has let it go.
    fn leaving(&self, carrier: Carrier<'_>, claim: &Claim) -> Leaving;

    /// Whether something of such steps stands in a block that stays.
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

    /// Whether a block is taken off in one write together with the question whether its agent goes on with it. Such a block
    /// is off when the agent has answered without it, and no new pod gets an address of one that the agent writes back.
    fn takes_off_with_question(&self) -> bool {
        false
    }

    /// Whether such a question stands on the carrier.
    fn is_asked(&self, _carrier: Carrier<'_>) -> bool {
        false
    }

    /// The write that takes these blocks off, publishes others in their place, and asks as of this revision; `None` where
    /// the carrier lists none of them, or a question stands.
    fn take_off(
        &self,
        _carrier: Carrier<'_>,
        _blocks: &[Cidr],
        _in_their_place: &[&Claim],
        _as_of: Revision,
    ) -> Option<Withdrawal> {
        None
    }

    /// Whether a block of the carrier is on its way off, with its agent being asked.
    fn is_in_handshake(&self, _carrier: Carrier<'_>) -> bool {
        false
    }

    /// How far an agent of this release works; of one whose release is not known, how far it is trusted to.
    fn support(&self, release: Option<Release>) -> Support;

    /// Why nothing is published for an agent of this release, and the way out, for a person.
    fn why_unsupported(&self, release: Release) -> String;

    /// Something on the carrier of a served node that we may not change, and that will harm its agent.
    fn finding(&self, _carrier: Carrier<'_>) -> Option<Finding> {
        None
    }
}
