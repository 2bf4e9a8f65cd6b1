//! Scripts: the events in a cluster, drawn by weight.
//!
//! Each script first draws a [`Profile`]: the size of the cluster, the sizes of blocks, and the events that are
//! frequent. Most dangers need several rare events about one node. A script with few nodes, or one frequent kind of
//! event, finds in 100 seeds as much as an even mixture in 100,000.
//!
//! The events are [`life`] (users and agents), [`machinery`] (network and processes), [`surroundings`], [`force`], and
//! in one suite [`other_writers`]. Episodes (`episodes`) are sequences of them.

use std::fmt;

use cilium_node_ipam::model::kind::Kind;
use proptest::prelude::*;
use proptest::strategy::Union;

use self::episodes::{
    comes_from_another_mode, covering, crossing, given_by_others, loses_its_map, moves_in, taking_back,
    two_views,
};
use super::cluster::{Given, Hand, Hold, N_NODES, N_POOLS, Place, Setup, Step, Suite};
use super::pools::shape;

mod episodes;

/// The kinds of events in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Events {
    /// Acts of users and agents only.
    Calm,
    /// All kinds of events but [`force`].
    Wild,
    /// All kinds of events: claims come to overlap.
    Forced,
}

/// Whether nodes change their mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moving {
    Nothing,
    Nodes,
}

/// The properties that all steps of a script share.
#[derive(Debug, Clone)]
struct Profile {
    n_nodes: u8,
    n_pools: u8,
    /// The bits of the sizes of blocks: /32 to /28 in IPv4.
    sizes: (u8, u8),
    often: Often,
}

/// The events that are more frequent than usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Often {
    Nothing,
    /// Nodes and CiliumNodes are deleted and return.
    Nodes,
    /// Pools that overlap come and go, so that claims overlap.
    Pools,
    /// One watch lags far behind the others.
    Deafness,
    /// Requests arrive late.
    Strays,
    /// Claims are deleted, and in scripts with other writers removed by force.
    Force,
    /// People and programs edit objects.
    Hands,
    /// [`Self::Deafness`] and [`Self::Nodes`].
    DeafnessAndNodes,
    /// [`Self::Deafness`] and [`Self::Pools`].
    DeafnessAndPools,
}

impl Often {
    const ALL: [Self; 9] = [
        Self::Nothing,
        Self::Nodes,
        Self::Pools,
        Self::Deafness,
        Self::Strays,
        Self::Force,
        Self::Hands,
        Self::DeafnessAndNodes,
        Self::DeafnessAndPools,
    ];

    /// The weight of events of this kind: five times the usual one if they are frequent.
    fn weight(self, of: Self, usual: u32) -> u32 {
        let is_often = self == of
            || match self {
                Self::DeafnessAndNodes => matches!(of, Self::Deafness | Self::Nodes),
                Self::DeafnessAndPools => matches!(of, Self::Deafness | Self::Pools),
                _ => false,
            };
        if is_often { usual * 5 } else { usual }
    }
}

fn profile() -> impl Strategy<Value = Profile> {
    let n_nodes = prop_oneof![3 => 2u8..=3, 3 => Just(6u8), 1 => Just(N_NODES)];
    let sizes = prop_oneof![3 => Just((2, 4)), 1 => Just((0, 2)), 1 => Just((0, 4))];
    (n_nodes, 1..=N_POOLS, sizes, proptest::sample::select(Often::ALL.to_vec()))
        .prop_map(|(n_nodes, n_pools, sizes, often)| Profile { n_nodes, n_pools, sizes, often })
}

type Steps = Vec<(u32, BoxedStrategy<Step>)>;

/// The events that are made of these values, with a weight.
fn weighted<V: fmt::Debug, E: fmt::Debug>(
    weight: u32,
    values: impl Strategy<Value = V> + 'static,
    event: impl Fn(V) -> E + 'static,
) -> (u32, BoxedStrategy<E>) {
    (weight, values.prop_map(event).boxed())
}

fn wants((node, pods, from): (u8, u8, u8)) -> Step {
    Step::PodsAreWanted { node, pods, from }
}

fn hears((replica, kind, events): (u8, Kind, u8)) -> Step {
    Step::News { replica, kind, events }
}

fn breaks((kind, which, field): (Kind, u8, u8)) -> Hand {
    Hand::ObjectBreaks { kind, which, field }
}

/// The version of an agent that restarts: mostly the newest.
fn release() -> impl Strategy<Value = u8> {
    prop_oneof![10 => Just(0u8), 1 => Just(1), 1 => Just(2)]
}

/// The CIDRs that another allocator gives to a node: mostly some that can become its blocks.
fn given() -> impl Strategy<Value = Given> {
    prop_oneof![
        4 => Just(Given::Blocks),
        1 => Just(Given::TwoBlocks),
        1 => Just(Given::OneFamily),
        2 => Just(Given::Anything),
        1 => Just(Given::Foreign),
    ]
}

/// The acts of users and agents.
fn life(profile: &Profile) -> Steps {
    let n_nodes = profile.n_nodes;
    let n_pools = profile.n_pools;
    let node = || 0..n_nodes;
    let pool = || 0..n_pools;
    let sizes = profile.sizes.0..=profile.sizes.1;
    let nodes = |usual| profile.often.weight(Often::Nodes, usual);
    let pools = |usual| profile.often.weight(Often::Pools, usual);
    let force = |usual| profile.often.weight(Often::Force, usual);
    vec![
        weighted(
            nodes(8),
            (node(), 0u8..2, proptest::option::weighted(0.15, any::<u8>())),
            |(node, zone, own_address)| Step::NodeJoins { node, zone, own_address },
        ),
        weighted(nodes(10), node(), |node| Step::AgentStarts { node }),
        weighted(3, (node(), 0u8..2), |(node, zone)| Step::NodeIsRelabelled { node, zone }),
        weighted(10, node(), |node| Step::AgentLooks { node }),
        weighted(10, (node(), 0u8..30, any::<u8>()), wants),
        // Few pods remain, so that blocks are reclaimed.
        weighted(5, (node(), 0u8..5, any::<u8>()), wants),
        weighted(10, node(), |node| Step::AgentReports { node }),
        weighted(3, (node(), release()), |(node, release)| Step::AgentRestarts { node, release }),
        weighted(8, node(), |node| Step::AgentIsReady { node }),
        weighted(nodes(2), node(), |node| Step::CiliumNodeIsDeleted { node }),
        weighted(1, node(), |node| Step::NodeIsBeingDeleted { node }),
        weighted(nodes(3), node(), |node| Step::NodeIsDeleted { node }),
        weighted(pools(8), (pool(), shape(sizes.clone())), |(pool, shape)| Step::PoolIsMade { pool, shape }),
        weighted(5, (pool(), shape(sizes)), |(pool, shape)| Step::PoolIsEdited { pool, shape }),
        weighted(pools(2), pool(), |pool| Step::PoolIsDeleted { pool }),
        weighted(pools(2), pool(), |pool| Step::PoolDrains { pool }),
        weighted(force(1), any::<u8>(), |claim| Step::ClaimIsDeleted { claim }),
        weighted(3, prop_oneof![5 => 0u8..10, 1 => 30u8..100], |seconds| Step::TimePasses { seconds }),
    ]
}

fn number() -> impl Strategy<Value = u8> {
    any::<u8>()
}

fn kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(Kind::AS_LISTED.to_vec())
}

fn of_hands(profile: &Profile, steps: Vec<(u32, BoxedStrategy<Hand>)>) -> Steps {
    let hands = |usual| profile.often.weight(Often::Hands, usual);
    steps.into_iter().map(|(weight, hand)| (hands(weight), hand.prop_map(Step::Hand).boxed())).collect()
}

/// The acts of administrators and other programs that touch nothing that a node has: metadata, unreadable pools,
/// webhooks that undo writes, freezes, and a passive mode. Also the first CIDRs of a node, if another allocator gives
/// them, agents that ran in another mode, and emptied maps.
fn surroundings(profile: &Profile) -> Steps {
    let replica = || 0u8..6;
    let setup = || proptest::sample::select(vec![Setup::Usual, Setup::Passive, Setup::Frozen]);
    let steps: Vec<(u32, BoxedStrategy<Hand>)> = vec![
        weighted(
            1,
            (0..profile.n_nodes, given(), number(), profile.sizes.0..=profile.sizes.1),
            |(node, given, at, bits)| Hand::OthersGive { node, given, at, bits },
        ),
        weighted(2, (kind(), number()), |(kind, which)| Hand::ObjectIsTouched { kind, which }),
        weighted(2, (kind(), number()), |(kind, which)| Hand::FinalizerAppears { kind, which }),
        weighted(1, 0..profile.n_nodes, |node| Hand::MapIsEmptied { node }),
        weighted(1, (0..profile.n_nodes, number()), |(node, at)| Hand::RanBefore { node, at }),
        (1, Just(Hand::FinalizersGo).boxed()),
        weighted(1, (Just(Kind::Pool), number(), number()), breaks),
        (2, Just(Hand::ObjectsAreMended).boxed()),
        weighted(1, kind(), |kind| Hand::PatchesAreUndone { kind }),
        (2, Just(Hand::PatchesWork).boxed()),
        weighted(1, setup(), |mode| Hand::ModeChanges { mode }),
        weighted(2, replica(), |replica| Hand::ModeIsHeard { replica }),
    ];
    of_hands(profile, steps)
}

/// The acts of other writers on nodes and their objects, and on settings that all nodes depend on.
fn other_writers(profile: &Profile) -> Steps {
    let node = || 0..profile.n_nodes;
    let setup = || proptest::sample::select(vec![Setup::OnlyV4, Setup::OtherDefault]);
    let steps: Vec<(u32, BoxedStrategy<Hand>)> = vec![
        weighted(2, (node(), number()), |(node, block)| Hand::BlockGoes { node, block }),
        weighted(1, node(), |node| Hand::BlocksGo { node }),
        weighted(1, (node(), number()), |(node, entry)| Hand::EntryGoes { node, entry }),
        weighted(1, (node(), number(), profile.sizes.0..=profile.sizes.1), |(node, at, bits)| {
            Hand::BlockAppears { node, at, bits }
        }),
        weighted(1, node(), |node| Hand::UseGoes { node }),
        weighted(1, (node(), number()), |(node, entry)| Hand::EntryIsMarked { node, entry }),
        weighted(1, (node(), number()), |(node, entry)| Hand::EntryIsOwned { node, entry }),
        weighted(1, number(), |claim| Hand::ClaimIsReleased { claim }),
        weighted(1, number(), |part| Hand::StoreIsRestored { part }),
        weighted(2, (kind(), number(), number()), breaks),
        weighted(1, setup(), |mode| Hand::ModeChanges { mode }),
    ];
    of_hands(profile, steps)
}

/// Events that make claims overlap. A pool is replaced while nodes hold its blocks, or a leader that saw other pools
/// makes claims. In *Other writers* claims are also removed by force.
fn force(profile: &Profile, suite: Suite) -> Steps {
    let (n_nodes, n_pools) = (profile.n_nodes, profile.n_pools);
    let sizes = profile.sizes.0..=profile.sizes.1;
    let mut steps: Steps = vec![
        weighted(
            profile.often.weight(Often::Pools, 2),
            (0..n_pools, shape(sizes.clone())),
            |(pool, shape)| Step::PoolIsReplaced { pool, shape },
        ),
        weighted(
            profile.often.weight(Often::Pools, 2),
            (0..n_nodes, any::<u8>(), sizes),
            |(node, at, bits)| Step::ClaimIsMade { node, at: Place::At(at), bits },
        ),
    ];
    if suite == Suite::OtherWriters {
        let removed = number().prop_map(|claim| Step::ClaimIsRemoved { claim });
        steps.push((profile.often.weight(Often::Force, 1), removed.boxed()));
    }
    steps
}

/// The events of the network and of the controller's processes.
fn machinery(profile: &Profile) -> Steps {
    let replica = || 0u8..6;
    let strays = |usual| profile.often.weight(Often::Strays, usual);
    let deafness = |usual| profile.often.weight(Often::Deafness, usual);
    vec![
        weighted(45, (replica(), kind(), 1u8..8), hears),
        weighted(4, (replica(), kind()), |(replica, kind)| Step::Relist { replica, kind }),
        weighted(deafness(3), (replica(), kind()), |(replica, kind)| Step::GoesDeaf { replica, kind }),
        weighted(deafness(2), replica(), |replica| Step::HearsAgain { replica }),
        weighted(10, (replica(), 1u8..8), |(replica, events)| Step::AgentNewsArrives { replica, events }),
        weighted(deafness(1), replica(), |replica| Step::GoesDeafToAgents { replica }),
        weighted(strays(2), replica(), |replica| Step::Restart { replica }),
        weighted(25, (replica(), 1u8..6), |(replica, decisions)| Step::Decision { replica, decisions }),
        weighted(45, (replica(), any::<u8>()), |(replica, write)| Step::WriteProceeds { replica, write }),
        weighted(strays(4), (replica(), any::<u8>()), |(replica, write)| Step::AnswerIsLost {
            replica,
            write,
        }),
        weighted(2, (replica(), any::<u8>()), |(replica, write)| Step::WriteIsRefused { replica, write }),
        weighted(4, any::<u8>(), |stray| Step::StrayArrives { stray }),
        weighted(deafness(20), replica(), |replica| Step::ReplicaWorks { replica }),
        (1, Just(Step::Rest).boxed()),
    ]
}

/// The steps of a person who moves nodes from one mode to the other, and restarts of agents' Pods at any time.
fn moves(profile: &Profile) -> Steps {
    let node = || 0..profile.n_nodes;
    let hold = || proptest::sample::select(vec![Hold::Held, Hold::Free]);
    vec![
        weighted(8, (node(), hold()), |(node, hold)| Step::NodeMoves { node, hold }),
        weighted(6, node(), |node| Step::AgentPodIsRecreated { node }),
        weighted(4, node(), |node| Step::NodeCommits { node }),
    ]
}

/// The weight of single steps; each kind of episode has the weight 1.
const STEPS_PER_EPISODE: u32 = 60;

/// Scripts of at most `2 * length` pieces, each a step or an episode.
pub(super) fn script(
    events: Events,
    suite: Suite,
    moving: Moving,
    length: usize,
) -> impl Strategy<Value = Vec<Step>> {
    profile().prop_flat_map(move |profile| {
        let mut steps = life(&profile);
        if moving == Moving::Nodes {
            steps.extend(moves(&profile));
        }
        if events != Events::Calm {
            steps.extend([machinery(&profile), surroundings(&profile)].concat());
            if suite == Suite::OtherWriters {
                steps.extend(other_writers(&profile));
            }
        }
        if events == Events::Forced {
            steps.extend(force(&profile, suite));
        }
        let steps = Union::new_weighted(steps).prop_map(|step| vec![step]).boxed();
        let pieces = if events == Events::Calm {
            steps
        } else {
            let mut pieces = vec![
                (STEPS_PER_EPISODE, steps),
                (1, two_views(&profile, events)),
                (1, taking_back(&profile)),
                (1, given_by_others(&profile, suite)),
                (1, comes_from_another_mode(&profile)),
                (1, loses_its_map(&profile)),
            ];
            if moving == Moving::Nodes {
                pieces.push((6, moves_in(&profile)));
            }
            if events == Events::Forced {
                pieces.push((1, crossing(&profile)));
                pieces.push((1, covering(&profile)));
            }
            Union::new_weighted(pieces).boxed()
        };
        proptest::collection::vec(pieces, 1..=2 * length)
            .prop_map(|pieces| pieces.into_iter().flatten().collect())
    })
}
