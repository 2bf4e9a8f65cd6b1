//! Everything that is true of only one mode of Cilium: how a node's blocks are carried to its agent.
//!
//! [`Publisher`] is the seam: one closed enum with one variant per mode. It answers questions about one node, from
//! values: which object carries the blocks, what that object carries, how much the node needs, what may be added, when
//! the agent can start, and what proves that a block is off the node. It knows neither the world nor other nodes, and
//! decides nothing that is the same in every mode. The facts are in `docs/cilium.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::carrier::{Carrier, FormerCarrier};
use crate::model::claim::Claim;
use crate::model::finding::Finding;
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::node::{CiliumNode, Node};
use crate::model::pool::{Expand, Pool};
use crate::model::release::Release;
use crate::model::request::{Publication, Read, Request, Withdrawal, WithdrawalStep};
use crate::model::revision::Revision;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

pub mod answer;
pub mod crd;
pub mod demand;
mod ends;
pub mod ipam_mode;
pub mod multi_pool;
mod operator;
pub mod settings;
pub mod static_mode;
pub mod support;

use answer::{Absence, Drain, Holding, Leaving, ProbeState, Removal, Stays};
use crd::Crd;
use demand::Demand;
use ipam_mode::IpamMode;
use multi_pool::MultiPool;
use static_mode::{ClusterPool, Kubernetes, Static};
use support::Support;

/// Whether the controller may write at all, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// It may not write, for this reason.
    Passive(String),
    /// It may write, because Cilium runs in a mode that this publisher serves.
    Active(Publisher),
}

impl Mode {
    /// The mode of a process that has served `served` so far. Agents change theirs when they restart, one by one, and what
    /// is on their objects is of the old one until then: so a change is not followed while the process runs.
    #[must_use]
    pub fn after(self, served: Option<IpamMode>) -> Self {
        match (self, served) {
            (Self::Active(publisher), Some(served)) if publisher.ipam_mode() != served => {
                let now = publisher.ipam_mode().as_str();
                Self::Passive(format!(
                    "cilium-config has changed from `ipam: {}` to `ipam: {now}`, and agents change when they restart: set it \
                     back, or restart this controller when every agent runs in mode {now}",
                    served.as_str()
                ))
            }
            (mode, _) => mode,
        }
    }

    /// The mode of Cilium that is served, if one is.
    #[must_use]
    pub fn ipam_mode(&self) -> Option<IpamMode> {
        match self {
            Self::Active(publisher) => Some(publisher.ipam_mode()),
            Self::Passive(_) => None,
        }
    }
}

/// How the blocks of nodes are carried to Cilium's agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Publisher {
    /// `ipam: crd`.
    Crd(Crd),
    /// `ipam: multi-pool`.
    MultiPool(MultiPool),
    /// `ipam: cluster-pool`.
    ClusterPool(Static<ClusterPool>),
    /// `ipam: kubernetes`.
    Kubernetes(Static<Kubernetes>),
}

impl Default for Publisher {
    /// The one by which carriers are read before a mode is known.
    fn default() -> Self {
        Self::Crd(Crd::default())
    }
}

macro_rules! by_mode {
    ($publisher:expr, $mode:ident => $answer:expr) => {
        match $publisher {
            Publisher::Crd($mode) => $answer,
            Publisher::MultiPool($mode) => $answer,
            Publisher::ClusterPool($mode) => $answer,
            Publisher::Kubernetes($mode) => $answer,
        }
    };
}

impl Publisher {
    /// The mode of Cilium that it serves.
    #[must_use]
    pub fn ipam_mode(&self) -> IpamMode {
        match self {
            Self::Crd(_) => IpamMode::Crd,
            Self::MultiPool(_) => IpamMode::MultiPool,
            Self::ClusterPool(_) => IpamMode::ClusterPool,
            Self::Kubernetes(_) => IpamMode::Kubernetes,
        }
    }

    /// The kind of the object that carries a node's blocks.
    #[must_use]
    pub fn carrier_kind(&self) -> Kind {
        by_mode!(self, mode => mode.carrier_kind())
    }

    /// The families that the agents run. An agent needs addresses of each before it can start.
    #[must_use]
    pub fn families(&self) -> &BTreeSet<Family> {
        by_mode!(self, mode => mode.families())
    }

    /// Whether a node gets one block of each family and never another, so that a pool neither sizes nor shrinks it.
    #[must_use]
    pub fn gives_one_block(&self) -> bool {
        by_mode!(self, mode => mode.gives_one_block())
    }

    /// Whether agents say how much they need, and give back what is more, so that no threshold of a pool counts.
    #[must_use]
    pub fn agents_ask(&self) -> bool {
        by_mode!(self, mode => mode.agents_ask())
    }

    /// Whether agents say on the carrier which addresses they use. If not, nobody is asked, and nothing is told of it.
    #[must_use]
    pub fn shows_use(&self) -> bool {
        by_mode!(self, mode => mode.shows_use())
    }

    /// Whether agents give out every address of a block but its ends, and can't be kept from single ones.
    #[must_use]
    pub fn gives_whole_blocks(&self) -> bool {
        by_mode!(self, mode => mode.gives_whole_blocks())
    }

    /// Why a carrier is left alone that has addresses of another hand which can't be blocks of this node.
    /// `is_claimed` says whether a block is a claim of the node, and `why_not` why one that is none can't become one.
    #[must_use]
    pub fn foreign_hand(
        &self,
        carrier: Carrier<'_>,
        is_claimed: &dyn Fn(Cidr) -> bool,
        why_not: &dyn Fn(Cidr) -> Option<String>,
    ) -> Option<Finding> {
        by_mode!(self, mode => mode.foreign_hand(carrier, is_claimed, why_not))
    }

    /// Whether the carrier lists exactly this block.
    #[must_use]
    pub fn carries(&self, carrier: Carrier<'_>, cidr: Cidr) -> bool {
        by_mode!(self, mode => mode.carries(carrier, cidr))
    }

    /// The addresses of `cidr` that the carrier offers to its agent in any form. A listed block that overlaps `cidr`
    /// counts as a whole.
    #[must_use]
    pub fn offered_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> AddressSet {
        by_mode!(self, mode => mode.offered_in(carrier, cidr))
    }

    /// How many addresses of `cidr` the agent can give to pods.
    #[must_use]
    pub fn n_published_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> u128 {
        by_mode!(self, mode => mode.n_published_in(carrier, cidr))
    }

    /// How many addresses of `cidr` the agent says it uses.
    #[must_use]
    pub fn n_used_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> u128 {
        by_mode!(self, mode => mode.n_used_in(carrier, cidr))
    }

    /// The addresses of `cidr` that the agent says it uses.
    #[must_use]
    pub fn used_in(&self, carrier: Carrier<'_>, cidr: Cidr) -> AddressSet {
        by_mode!(self, mode => mode.used_in(carrier, cidr))
    }

    /// The blocks that the carrier lists and whose agent can hand out addresses of them.
    #[must_use]
    pub fn blocks(&self, carrier: Carrier<'_>) -> Vec<Cidr> {
        by_mode!(self, mode => mode.blocks(carrier))
    }

    /// The addresses of a block on the carrier that its agent can't hand out.
    #[must_use]
    pub fn withheld_in(&self, carrier: Carrier<'_>, block: Cidr) -> AddressSet {
        by_mode!(self, mode => mode.withheld_in(carrier, block))
    }

    /// How many addresses of a block its agent can give to pods if these are withheld. Where no single addresses are
    /// written, it gives all of a block but its ends; a block in which others are withheld offers nothing there.
    #[must_use]
    pub fn n_offered(&self, block: Cidr, withheld: &AddressSet) -> u128 {
        by_mode!(self, mode => mode.n_offered(block, withheld))
    }

    /// Whether the agent of this carrier takes blocks off by itself, and has said what it needs: a block that is held, not
    /// carried and not needed is one that it let go.
    #[must_use]
    pub fn agent_lets_go(&self, carrier: Carrier<'_>) -> bool {
        by_mode!(self, mode => mode.agent_lets_go(carrier))
    }

    /// As of which revision we asked the question that the agent has answered between these versions of one carrier.
    #[must_use]
    pub fn answered(&self, before: Carrier<'_>, after: Carrier<'_>) -> Option<Revision> {
        by_mode!(self, mode => mode.answered(before, after))
    }

    /// A sign that somebody else allocates for the node of this carrier. Then nothing is claimed or written for it.
    #[must_use]
    pub fn second_allocator(&self, carrier: Carrier<'_>) -> Option<Finding> {
        by_mode!(self, mode => mode.second_allocator(carrier))
    }

    /// Whether the agent of this carrier can start when it finds so many addresses of each family.
    #[must_use]
    pub fn can_start_with(&self, carrier: Carrier<'_>, offered: &BTreeMap<Family, u128>) -> bool {
        self.families_of(carrier).iter().all(|family| {
            offered.get(family).is_some_and(|offered| *offered >= self.minimum_for_start(carrier, *family))
        })
    }

    /// The families that a first grant to this carrier has to cover: those that its agent runs, or asks for.
    #[must_use]
    pub fn families_of(&self, carrier: Carrier<'_>) -> &BTreeSet<Family> {
        by_mode!(self, mode => mode.families_of(carrier))
    }

    /// How many addresses of a family the agent of this carrier needs before it can start.
    #[must_use]
    pub fn minimum_for_start(&self, carrier: Carrier<'_>, family: Family) -> u128 {
        by_mode!(self, mode => mode.minimum_for_start(carrier, family))
    }

    /// How many addresses of these blocks of one family the node uses. If its use is not known, it counts as zero.
    #[must_use]
    pub fn demand<'a>(
        &self,
        carrier: Carrier<'_>,
        family: Family,
        blocks: impl Iterator<Item = &'a Claim>,
    ) -> Demand {
        by_mode!(self, mode => mode.demand(carrier, family, blocks))
    }

    /// Whether what a node holds of a family is enough: by the rules of its first pool, or by what its carrier asks for.
    #[must_use]
    pub fn is_enough(&self, carrier: Carrier<'_>, family: Family, holding: Holding, first: &Pool) -> bool {
        by_mode!(self, mode => mode.is_enough(carrier, family, holding, first))
    }

    /// Whether a node that no pool selects needs more than it holds of a family.
    #[must_use]
    pub fn is_short(&self, demand: Demand, expand: Expand) -> bool {
        by_mode!(self, mode => mode.is_short(demand, expand))
    }

    /// What has to be added to the carrier so that it shows all of `claims`; `None` if it already does, or if nothing
    /// may be added. `former` is what the carrier before this one showed, if this process saw it.
    #[must_use]
    pub fn publication(
        &self,
        carrier: Carrier<'_>,
        claims: &[&Claim],
        former: Option<&FormerCarrier>,
    ) -> Option<Publication> {
        by_mode!(self, mode => mode.publication(carrier, claims, former))
    }

    /// Whether a claim that is known as of `known_at` may be published on this version of the carrier (safety rule 4).
    #[must_use]
    pub fn is_fresh(&self, known_at: Revision, carrier: Carrier<'_>) -> bool {
        by_mode!(self, mode => mode.is_fresh(known_at, carrier))
    }

    /// Whether this version of the carrier was written after claims had come to a revision: then it shows what was written
    /// before that, and no patch that was decided without them is on its way to it.
    #[must_use]
    pub fn shows_later(&self, carrier: Carrier<'_>, than: Revision) -> bool {
        by_mode!(self, mode => mode.shows_later(carrier, than))
    }

    /// Every address that a Node itself carries, in a mode in which that counts.
    #[must_use]
    pub fn carried_by_node(&self, node: &Node) -> AddressSet {
        by_mode!(self, mode => mode.carried_by_node(node))
    }

    /// Whether a block that is being taken off is known to be off (safety rule 3).
    #[must_use]
    pub fn absence(&self, removal: Removal<'_>) -> Absence {
        by_mode!(self, mode => mode.absence(removal))
    }

    /// The request that shows either a version of the carrier later than `later_than` or that there is no carrier;
    /// `None` if we can't cause such a version, and have to wait for it.
    #[must_use]
    pub fn later_version(
        &self,
        node: &NodeName,
        carrier: Option<Carrier<'_>>,
        later_than: Revision,
    ) -> Option<Request> {
        match carrier {
            Some(carrier) => by_mode!(self, mode => mode.later_version(carrier, later_than)),
            None => Some(match self.carrier_kind() {
                Kind::Node => Read::Node(node.clone(), later_than).into(),
                Kind::CiliumNode | Kind::Pool | Kind::Claim => Read::CiliumNode(node.clone()).into(),
            }),
        }
    }

    /// Whether the agent says which addresses it uses.
    #[must_use]
    pub fn use_is_known(&self, carrier: Carrier<'_>) -> bool {
        by_mode!(self, mode => mode.use_is_known(carrier))
    }

    /// Whether the agent has written which addresses it uses, all of them, between these versions of one carrier.
    #[must_use]
    pub fn wrote_use(&self, before: Carrier<'_>, after: Carrier<'_>) -> bool {
        by_mode!(self, mode => mode.wrote_use(before, after))
    }

    /// Whether the agent was asked which addresses it uses, and the next step.
    #[must_use]
    pub fn probe(&self, carrier: Carrier<'_>) -> ProbeState {
        by_mode!(self, mode => mode.probe(carrier))
    }

    /// Why a published block can't begin to leave its carrier while the node lives; `Ok` if it can.
    pub fn may_leave(&self, carrier: Carrier<'_>, claim: &Claim) -> Result<(), Stays> {
        by_mode!(self, mode => mode.may_leave(carrier, claim))
    }

    /// How far a block has come whose claim is Draining.
    #[must_use]
    pub fn drain(&self, carrier: Carrier<'_>, claim: &Claim) -> Drain {
        by_mode!(self, mode => mode.drain(carrier, claim))
    }

    /// How far a block has come whose claim is Releasing because its agent has let it go.
    #[must_use]
    pub fn leaving(&self, carrier: Carrier<'_>, claim: &Claim) -> Leaving {
        by_mode!(self, mode => mode.leaving(carrier, claim))
    }

    /// Whether something of such steps stands in a block that stays.
    #[must_use]
    pub fn has_stale_marks(&self, carrier: Carrier<'_>, cidr: Cidr) -> bool {
        by_mode!(self, mode => mode.has_stale_marks(carrier, cidr))
    }

    /// The write of a step by which these blocks leave; `None` where it would change nothing.
    #[must_use]
    pub fn withdrawal(
        &self,
        carrier: Carrier<'_>,
        step: WithdrawalStep,
        blocks: &[Cidr],
    ) -> Option<Withdrawal> {
        by_mode!(self, mode => mode.withdrawal(carrier, step, blocks))
    }

    /// Whether a block of the carrier is on its way off, with its agent being asked.
    #[must_use]
    pub fn is_in_handshake(&self, carrier: Carrier<'_>) -> bool {
        by_mode!(self, mode => mode.is_in_handshake(carrier))
    }

    /// How far an agent of this release works; of one whose release is not known, how far it is trusted to.
    #[must_use]
    pub fn support(&self, release: Option<Release>) -> Support {
        by_mode!(self, mode => mode.support(release))
    }

    /// Why nothing is published for an agent of this release, and the way out, for a person.
    #[must_use]
    pub fn why_unsupported(&self, release: Release) -> String {
        by_mode!(self, mode => mode.why_unsupported(release))
    }

    /// Something on the carrier of a served node that we may not change, and that will harm its agent.
    #[must_use]
    pub fn finding(&self, carrier: Carrier<'_>) -> Option<Finding> {
        by_mode!(self, mode => mode.finding(carrier))
    }
}

impl fmt::Display for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        by_mode!(self, mode => fmt::Display::fmt(mode, f))
    }
}

/// Every address that a CiliumNode carries, whatever mode it was written in. All of them count as taken (safety rule
/// 6).
#[must_use]
pub fn carried_by_cilium_node(cilium_node: &CiliumNode) -> AddressSet {
    let mut carried = crd::carried(&cilium_node.crd);
    carried.extend_with(&multi_pool::listed(&cilium_node.pools).collect());
    carried
}

/// What is remembered of a CiliumNode that was deleted: if the Node still exists, its agent goes on with those blocks.
#[must_use]
pub fn remember(gone: CiliumNode) -> Option<FormerCarrier> {
    crd::remember(gone.crd).map(FormerCarrier::Crd)
}
