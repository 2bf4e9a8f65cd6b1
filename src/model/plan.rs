//! Plans as values: the decision for one node or one pool, and the reason if nothing is done.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::address_class::AddressClass;
use super::availability::Availability;
use super::counted::counted;
use super::finding::Finding;
use super::gobgp::RibRequest;
use super::kind::Kind;
use super::names::{NodeName, PodIpPoolName, PoolName};
use super::node::HOLD_GROWTH;
use super::pod_ip_pool::Misfit;
use super::request::{Request, Write};
use super::transitions::Rule;
use crate::net::cidr::{Cidr, Family};

/// A need of a node that can't be met.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unmet {
    /// No pool of the node has a free block of this class.
    NoCapacity(AddressClass),
    /// The node holds as much of it as its first pool allows.
    AtLimit(AddressClass),
    /// A person holds the growth of the node.
    Held(AddressClass),
}

impl Unmet {
    /// The class that it is about.
    #[must_use]
    pub const fn class(&self) -> &AddressClass {
        match self {
            Self::NoCapacity(class) | Self::AtLimit(class) | Self::Held(class) => class,
        }
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCapacity(class) => write!(f, "no pool of the node has a free {}", class.named("block")),
            Self::AtLimit(class) => {
                write!(
                    f,
                    "the node has the maximum of {} that its first pool allows",
                    class.named("blocks or addresses")
                )
            }
            Self::Held(class) => {
                write!(
                    f,
                    "the node needs a further {}, and its annotation {HOLD_GROWTH} holds its growth",
                    class.named("block")
                )
            }
        }
    }
}

/// The decision for one node, and the reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct NodePlan {
    /// The node.
    pub node: NodeName,
    /// The result.
    pub verdict: Verdict,
    /// Its shortage: the needs that can't be met now, also if another step comes first. While an answer is pending, it
    /// is the shortage of the last plan.
    pub unmet: BTreeSet<Unmet>,
    /// Why pools gave nothing; empty unless the caller asked for reasons.
    pub refusals: Vec<Refusal>,
    /// The problems.
    pub findings: Vec<Finding>,
    /// When to decide again even if nothing changes.
    pub wake: Option<Duration>,
    /// Its claims that are cooling. The first plan that lists a claim here starts the time that this process has seen
    /// it cool.
    pub cooling: Vec<Cidr>,
    /// Where the routes of its released blocks may be, of those that were looked for.
    pub routes: BTreeMap<Cidr, RouteAt>,
    /// How far it looked, and so whether `lasting` is complete.
    pub coverage: Coverage,
    /// The present states of the node whose duration counts for a later decision.
    pub lasting: BTreeSet<TimedState>,
    /// Whether too many blocks started draining within a minute, so that no more may.
    pub too_many_drains: bool,
    /// Whether the node can give addresses to pods; `None` if that is not known now, or not written.
    pub availability: Option<Availability>,
    /// The rows of the table of claims that apply, each with the block of its claim.
    pub rules: Vec<(Cidr, Rule)>,
}

/// The requests that announce the routes of all nodes to routers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct RoutesPlan {
    /// The requests, the most urgent first.
    pub requests: Vec<Request>,
    /// The request to a GoBGP daemon.
    pub rib: Option<RibRequest>,
    /// The problems.
    pub findings: BTreeSet<Finding>,
    /// When to decide again even if nothing changes.
    pub wake: Option<Duration>,
}

/// A state of a node that may last, and counts from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimedState {
    /// Its Node no longer exists, and its CiliumNode keeps blocks.
    Orphaned,
    /// Blocks of ours are published, and its agent does not report which addresses it uses.
    UseUnknown,
    /// It has a surplus block.
    Surplus,
    /// A step of a drain waits for its agent.
    AgentAwaited,
    /// A usage query to its agent is open.
    QueryOpen,
    /// Its Pods must be read before anything is published for it.
    PodsUnread,
    /// It has no addresses, and its agent requests none.
    NothingRequested,
    /// It holds blocks, and has no Pod of Cilium's agent.
    AgentAbsent,
    /// Its Node has a startup taint, and it holds no blocks.
    Uninitialized,
    /// No agent of it is Ready, and no pod has an address of the mode of Cilium in which its agent ran before.
    FormerModeOver,
    /// Its known use says that it needs more blocks, and its agent has not reported its use.
    GrowthAwaitsUse,
    /// Its agent has reported its need, and has not removed the use of a former mode from its CiliumNode.
    FormerUseRemains,
}

impl TimedState {
    /// Whether a plan sees it before the needs of the node are known.
    #[must_use]
    pub const fn is_seen_early(self) -> bool {
        match self {
            Self::UseUnknown | Self::AgentAbsent => true,
            Self::Orphaned
            | Self::Surplus
            | Self::AgentAwaited
            | Self::QueryOpen
            | Self::PodsUnread
            | Self::NothingRequested
            | Self::Uninitialized
            | Self::FormerModeOver
            | Self::GrowthAwaitsUse
            | Self::FormerUseRemains => false,
        }
    }
}

/// Where the route of a released block may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteAt {
    /// It is gone.
    Nowhere,
    /// In an FRRConfiguration or in the table of a GoBGP daemon, or they are unknown.
    Configured,
    /// At the daemon of the node, and nowhere else.
    Running,
}

/// How far a plan looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// It stopped before it knew the needs of the node, because another step or a wait comes first. The lasting states
    /// of earlier plans stay.
    Partial,
    /// It found the needs of the node, or that the node asks for nothing now.
    Full,
}

/// The result of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Send these requests; there is at least one. The next wait of the node is decided when they are answered.
    Act(Vec<Request>),
    /// Nothing can be done until this happens.
    Wait(Wait),
    /// The node has everything that it asks for, as far as its limits allow.
    AtRest,
}

/// The event that a node waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// The controller may write.
    Mode,
    /// Writes are no longer frozen. There is something to send.
    Thaw,
    /// This process leads. There is something to send.
    Lead,
    /// Its object of this kind can be read.
    Readable(Kind),
    /// Its object of this kind exists.
    Existence(Kind),
    /// Its CiliumNode, which is being deleted, no longer exists.
    Deletion,
    /// Its carrier, which is of this kind, has no malformed address any more.
    Correction(Kind),
    /// No other allocator serves it any more.
    OtherAllocator,
    /// CiliumNodeConfigs give it only settings that are supported.
    Settings,
    /// A request is answered, or a watch shows the object of an answer.
    Answer,
    /// The pause after requests that were not applied is over.
    Pause,
    /// The interval between two patches of its carrier is over.
    Interval,
    /// It runs Linux.
    Linux,
    /// A startup taint of its Node, with this prefix, is removed, or has stayed too long.
    Initialization(&'static str),
    /// kubelet reports how many pods its Node takes, or has not done so for too long.
    MaxPods,
    /// Its agent requests addresses.
    Request,
    /// A block becomes free.
    Capacity,
    /// All blocks that its agent may be using can be published.
    CompleteSet,
    /// Its agent has a version for which blocks are published.
    Upgrade,
    /// The missing blocks of its first publication.
    Completion,
    /// No pod has an address of the mode of Cilium in which its agent ran before.
    FormerMode,
    /// Its agent reports which addresses it uses.
    Use,
    /// Its agent removes the use of a former mode from its CiliumNode.
    FormerUse,
    /// Its write has its turn in the event budget.
    Pace,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode => f.write_str("the controller is passive"),
            Self::Thaw => f.write_str("writes are frozen"),
            Self::Lead => f.write_str("this replica is on standby; another replica writes"),
            Self::Readable(kind) => write!(f, "its {} is unreadable", kind.as_str()),
            Self::Existence(kind) => write!(f, "it has no {}", kind.as_str()),
            Self::Deletion => f.write_str("its CiliumNode is being deleted"),
            Self::Correction(kind) => write!(f, "its {} has an unreadable address", kind.as_str()),
            Self::OtherAllocator => f.write_str("another allocator serves it"),
            Self::Settings => {
                f.write_str("a CiliumNodeConfig gives this node settings that are not supported")
            }
            Self::Answer => f.write_str("a request for it is in flight"),
            Self::Pause => f.write_str("its last requests failed; the next one comes after a pause"),
            Self::Interval => f.write_str("its carrier was patched less than --min-write-interval ago"),
            Self::Linux => f.write_str("it does not run Linux, so no agent of Cilium runs on it"),
            Self::Initialization(taint) => write!(
                f,
                "its Node has the startup taint {taint} and may get more labels; see --wait-for-initialization"
            ),
            Self::MaxPods => f.write_str(
                "kubelet has not reported `status.allocatable.pods` of its Node, from which the size of its block \
                 follows",
            ),
            Self::Request => f.write_str(
                "its agent requests no addresses; see `ipam-multi-pool-pre-allocation` in cilium-config",
            ),
            Self::Capacity => f.write_str("no pool that selects it has a free block"),
            Self::CompleteSet => f.write_str("one of its blocks may be in use and can't be published"),
            Self::Upgrade => f.write_str("its agent version is not supported"),
            Self::Completion => f.write_str("its first publication is incomplete"),
            Self::FormerMode => {
                f.write_str("its pods may have addresses of the mode in which its agent ran before")
            }
            Self::Use => f.write_str("its agent has not reported which addresses it uses"),
            Self::FormerUse => {
                f.write_str("its agent is about to remove the use of its former mode from its CiliumNode")
            }
            Self::Pace => f.write_str("its next write waits for its turn; see --watch-event-budget"),
        }
    }
}

/// Why a pool gave a node nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The pool.
    pub pool: PoolName,
    /// The family that was asked for; `None` if the pool was not asked at all.
    pub family: Option<Family>,
    /// Why.
    pub reason: WhyNot,
}

/// Why a pool gives nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyNot {
    /// The node's labels do not satisfy this term of its selector.
    NotSelected(String),
    /// It can't be read.
    Invalid,
    /// It is being deleted.
    Deleting,
    /// It has no ranges of the family.
    NoSuchFamily,
    /// All of its ranges are cordoned or draining.
    Cordoned,
    /// No block fits into its ranges, or all are excluded.
    Empty,
    /// This other pool, which is older or can't be read, keeps its ranges.
    Reserved(PoolName),
    /// Every block is taken.
    Full,
    /// This node needs a replacement only, and the last free blocks, this number, stay for nodes that join.
    KeptForJoining(usize),
    /// Blocks are free, but each has only addresses of nodes themselves, or a request about it is in flight.
    Unusable,
    /// The node holds as many blocks as its first pool allows.
    BlockLimit(u32),
    /// A block would give the node more addresses than its first pool allows.
    AddressLimit(u32),
    /// Its blocks are wider than this prefix length, which is the widest in the mode of Cilium.
    TooWide(u8),
    /// CiliumNodes show that cilium-operator gives out blocks of its ranges, and it takes each but the first from a
    /// node.
    OperatorAllocates,
    /// The CiliumPodIPPool of this name does not fit its blocks, and they would harm the node's agent.
    PodIpPool(PodIpPoolName, Misfit),
    /// It has a block, but the first grant needs this family too, and no pool has one.
    OtherFamilyMissing(Family),
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSelected(term) => write!(f, "the node does not match `{term}`"),
            Self::Invalid => f.write_str("the pool is unreadable"),
            Self::Deleting => f.write_str("the pool is being deleted"),
            Self::NoSuchFamily => f.write_str("the pool has no ranges of this family"),
            Self::Cordoned => f.write_str("all ranges are cordoned or draining"),
            Self::OperatorAllocates => f.write_str(
                "cilium-operator allocates in its ranges (cluster-pool-ipv4-cidr or cluster-pool-ipv6-cidr in \
                 cilium-config), as CiliumNodes show",
            ),
            Self::Empty => f.write_str("its ranges have no room for a block"),
            Self::Reserved(pool) => {
                write!(f, "the older or unreadable pool {pool} keeps its ranges")
            }
            Self::Full => f.write_str("all blocks are taken"),
            Self::KeptForJoining(n) => {
                write!(f, "it keeps {} for nodes that join", counted(*n, "free block"))
            }
            Self::Unusable => f.write_str("its free blocks have no usable address now"),
            Self::BlockLimit(limit) => {
                write!(f, "the node's first pool allows at most {}", counted(*limit, "block"))
            }
            Self::AddressLimit(limit) => {
                write!(f, "the node's first pool allows at most {}", counted(*limit, "address"))
            }
            Self::TooWide(widest) => {
                write!(f, "its blocks are too wide for Cilium's mode: /{widest} is the limit")
            }
            Self::PodIpPool(name, misfit) => {
                write!(f, "CiliumPodIPPool {name} {misfit}, and such a block would harm the node's agent")
            }
            Self::OtherFamilyMissing(family) => {
                write!(f, "the first grant also needs {family}, and no pool has a {family} block")
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.family {
            Some(family) => write!(f, "pool {} gives no {family} block: {}", self.pool, self.reason),
            None => write!(f, "pool {} gives nothing: {}", self.pool, self.reason),
        }
    }
}

impl NodePlan {
    /// The requests to send; none if the node waits or has everything.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        match &self.verdict {
            Verdict::Act(requests) => requests,
            Verdict::Wait(_) | Verdict::AtRest => &[],
        }
    }

    /// Whether this process may send no request now: under a freeze, on a standby, in a mode that is not served, or before
    /// its turn in the event budget.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.verdict, Verdict::Wait(Wait::Mode | Wait::Thaw | Wait::Lead | Wait::Pace))
    }

    /// The requests to send, by value.
    #[must_use]
    pub fn into_requests(self) -> Vec<Request> {
        match self.verdict {
            Verdict::Act(requests) => requests,
            Verdict::Wait(_) | Verdict::AtRest => Vec::new(),
        }
    }

    /// Whether everything about the node was looked at, so that its findings are complete.
    #[must_use]
    pub fn saw_everything(&self) -> bool {
        match self.verdict {
            Verdict::AtRest => true,
            Verdict::Wait(wait) => match wait {
                Wait::Readable(_)
                | Wait::Existence(_)
                | Wait::Deletion
                | Wait::Correction(_)
                | Wait::OtherAllocator
                | Wait::Settings
                | Wait::Linux
                | Wait::Initialization(_)
                | Wait::MaxPods
                | Wait::Request
                | Wait::Capacity
                | Wait::CompleteSet
                | Wait::Upgrade
                | Wait::Completion
                | Wait::FormerMode
                | Wait::Use => true,
                Wait::Mode
                | Wait::Thaw
                | Wait::Lead
                | Wait::Answer
                | Wait::Pause
                | Wait::Interval
                | Wait::FormerUse
                | Wait::Pace => false,
            },
            // A CiliumNode is created only where there is nothing else to see.
            Verdict::Act(ref requests) => {
                requests.iter().all(|request| matches!(request, Request::Write(Write::CreateCiliumNode(_))))
            }
        }
    }
}

/// The decision about the object of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum PoolPlan {
    /// It was not looked at: the pool is unknown, the controller may not write, a request about the pool is in flight,
    /// or its writes fail and it is not its turn.
    Unchanged,
    /// It was looked at, and its status is right.
    UpToDate,
    /// The same, until this time: then its history needs another sample.
    UpToDateUntil(Duration),
    /// It was looked at a moment ago, or its writes fail; look again at this time.
    Later(Duration),
    /// Write these: its finalizers, or statuses of the pool and of its claims. There is at least one.
    Write(Vec<Write>),
}

impl PoolPlan {
    /// Its writes.
    #[must_use]
    pub fn into_writes(self) -> Vec<Write> {
        match self {
            Self::Unchanged | Self::UpToDate | Self::UpToDateUntil(_) | Self::Later(_) => Vec::new(),
            Self::Write(writes) => writes,
        }
    }
}
