//! Episodes: a few steps about the same nodes and replicas, in an order that is rare by chance.
//!
//! The rules matter when replicas see the same few events in different orders. An episode fixes which replica lags
//! behind with which kinds, and leaves the other events to chance.

use cilium_node_ipam::model::kind::Kind;
use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::strategy::Union;

use super::super::cluster::{Hand, Hold, Place, Step, Suite};
use super::super::pools::{Shape, shape};
use super::{Events, Profile, Steps, given, hears, kind, release, wants, weighted};

/// Two replicas, each deaf to some kinds at its own time, while a few events happen to one or two nodes.
pub(super) fn two_views(profile: &Profile, of_script: Events) -> BoxedStrategy<Vec<Step>> {
    let profile = profile.clone();
    (0u8..3, 1u8..3, 0..profile.n_nodes, 0..profile.n_nodes)
        .prop_flat_map(move |(one, distance, node, other)| {
            let views = [one, one + distance];
            let beginning = proptest::collection::vec(node_begins(node), 0..=1);
            let event = || Union::new_weighted(events(&profile, of_script, [node, other], views));
            (beginning, lag(views[0]), proptest::collection::vec(event(), 1..=4), lag(views[1]), {
                proptest::collection::vec(event(), 2..=10)
            })
                .prop_map(move |(beginning, one_lags, first, other_lags, then)| {
                    let mut steps = vec![works(views[0]), works(views[1])];
                    steps.extend(beginning.into_iter().flatten());
                    steps.extend(one_lags);
                    steps.extend(first);
                    steps.extend(other_lags);
                    steps.extend(then);
                    steps.extend(views.map(works));
                    steps.extend(views.map(|replica| Step::HearsAgain { replica }));
                    steps
                })
        })
        .boxed()
}

/// Another leader or a person claims the block that one replica is about to claim for another node. Each of two
/// replicas becomes deaf to claims before it has seen the other's block. Each step may be missing.
pub(super) fn crossing(profile: &Profile) -> BoxedStrategy<Vec<Step>> {
    let sizes = profile.sizes.0..=profile.sizes.1;
    let n_nodes = profile.n_nodes;
    (0u8..3, 1u8..3, 0..n_nodes, 1..n_nodes, sizes, 0u8..2, any::<u32>())
        .prop_map(move |(one, distance, node, other, bits, zone, present)| {
            let [one, two] = [one, one + distance];
            let [node, other] = [node, (node + other) % n_nodes];
            let joins = |node| Step::NodeJoins { node, zone, own_address: None };
            let hears = |replica, kind| Step::News { replica, kind, events: 8 };
            let is_deaf = |replica| Step::GoesDeaf { replica, kind: Kind::Claim };
            let steps = [
                joins(other),
                Step::AgentStarts { node: other },
                works(one),
                works(one),
                works(two),
                joins(node),
                hears(one, Kind::Node),
                is_deaf(one),
                Step::ClaimIsMade { node: other, at: Place::Next, bits },
                hears(two, Kind::Claim),
                is_deaf(two),
                Step::AgentStarts { node },
                hears(one, Kind::CiliumNode),
                works(one),
                works(one),
                works(two),
                Step::HearsAgain { replica: one },
                Step::HearsAgain { replica: two },
            ];
            // One step in eight is missing.
            let is_there = |at: usize| (present >> (at % 29)) & 0b111 != 0b111;
            steps.into_iter().enumerate().filter(|(at, _)| is_there(*at)).map(|(_, step)| step).collect()
        })
        .boxed()
}

/// Another leader or a person makes a claim for a node that overlaps a block of the node. Then its CiliumNode, or the
/// node, is replaced, while one replica may be deaf and another one starts. Either block may be in use then, and
/// nothing shows which.
pub(super) fn covering(profile: &Profile) -> BoxedStrategy<Vec<Step>> {
    let profile = profile.clone();
    (0u8..3, 1u8..3, 0..profile.n_nodes, 0..profile.n_pools)
        .prop_flat_map(move |(one, distance, node, pool)| {
            let two = one + distance;
            let begins = [&gets_first_blocks(pool, node, one)[..], &[Step::AgentIsReady { node }]].concat();
            let pods = (1u8..12, any::<u8>()).prop_map(move |(pods, from)| {
                vec![Step::PodsAreWanted { node, pods, from }, Step::AgentReports { node }]
            });
            let made = (any::<u8>(), 1u8..=6).prop_map(move |(claim, bits)| {
                vec![Step::ClaimIsMade { node, at: Place::Over(claim), bits }]
            });
            let goes = prop_oneof![
                2 => Just(vec![Step::CiliumNodeIsDeleted { node }]),
                1 => Just(vec![
                    Step::CiliumNodeIsDeleted { node },
                    Step::NodeIsDeleted { node },
                    Step::NodeJoins { node, zone: 0, own_address: None },
                ]),
            ];
            let event = || Union::new_weighted(events(&profile, Events::Wild, [node, node], [one, two]));
            (pods, lag(one), made, goes, proptest::collection::vec(event(), 0..=2), {
                proptest::collection::vec(event(), 2..=10)
            })
                .prop_map(move |(pods, one_lags, made, goes, between, then)| {
                    let starts = vec![
                        Step::AgentStarts { node },
                        Step::Restart { replica: two },
                        works(two),
                        works(two),
                    ];
                    let hear = vec![Step::HearsAgain { replica: one }, works(one), works(two)];
                    [begins.clone(), pods, one_lags, made, between, goes, starts, then, hear].concat()
                })
        })
        .boxed()
}

/// A node grows, needs less, and a block drains from it step by step. Between any two steps its agent starts and
/// terminates pods, lags behind and restarts.
pub(super) fn taking_back(profile: &Profile) -> BoxedStrategy<Vec<Step>> {
    let few = || 0u8..4;
    let many = || 12u8..30;
    (0u8..3, 0..profile.n_nodes, 0..profile.n_pools)
        .prop_flat_map(move |(replica, node, pool)| {
            let wants = move |pods, from| Step::PodsAreWanted { node, pods, from };
            let grows = (many(), few(), any::<u8>(), any::<u8>()).prop_map(move |(many, few, one, other)| {
                let grows = [
                    wants(many, one),
                    Step::AgentReports { node },
                    Step::TimePasses { seconds: 2 },
                    works(replica),
                    works(replica),
                    Step::AgentLooks { node },
                    wants(few, other),
                    Step::AgentReports { node },
                    works(replica),
                ];
                [&gets_first_blocks(pool, node, replica)[..], &grows].concat()
            });
            let event = prop_oneof![
                4 => Just(Step::AgentReports { node }),
                2 => Just(Step::AgentLooks { node }),
                2 => (many(), any::<u8>()).prop_map(move |(pods, from)| wants(pods, from)),
                1 => (few(), any::<u8>()).prop_map(move |(pods, from)| wants(pods, from)),
                2 => release().prop_map(move |release| Step::AgentRestarts { node, release }),
                1 => Just(Step::AgentIsReady { node }),
            ];
            let goes_on = proptest::collection::vec(event, 0..=2).prop_map(move |events| {
                [&[works(replica)][..], &events, &[Step::TimePasses { seconds: 2 }]].concat()
            });
            (grows, 20u8..40, proptest::collection::vec(goes_on, 4..=12)).prop_map(
                |(grows, seconds, steps)| {
                    [&grows[..], &[Step::TimePasses { seconds }], &steps.concat()].concat()
                },
            )
        })
        .boxed()
}

/// A node that may have a block gets CIDRs of another allocator. Sooner or later its agent restarts, while replicas
/// come and go.
pub(super) fn given_by_others(profile: &Profile, suite: Suite) -> BoxedStrategy<Vec<Step>> {
    let sizes = profile.sizes.0..=profile.sizes.1;
    (0u8..3, 0..profile.n_nodes, 0..profile.n_pools)
        .prop_flat_map(move |(replica, node, pool)| {
            let wants = move |pods| Step::PodsAreWanted { node, pods, from: 0 };
            let gives = || {
                (given(), any::<u8>(), sizes.clone())
                    .prop_map(move |(given, at, bits)| Step::Hand(Hand::OthersGive { node, given, at, bits }))
            };
            let begins = [
                Step::PoolIsMade { pool, shape: Shape::whole() },
                Step::NodeJoins { node, zone: 0, own_address: None },
                works(replica),
                Step::AgentStarts { node },
            ];
            let served = [
                works(replica),
                works(replica),
                Step::AgentLooks { node },
                Step::AgentIsReady { node },
                wants(3),
            ];
            let restarts = vec![
                Step::AgentRestarts { node, release: 0 },
                Step::AgentLooks { node },
                Step::AgentIsReady { node },
                wants(5),
            ];
            let event = prop_oneof![
                4 => Just(vec![works(replica)]),
                4 => Just(restarts),
                1 => gives().prop_map(|gives| vec![gives]),
                1 => Just(vec![Step::Restart { replica }, works(replica)]),
                1 => Just(vec![Step::CiliumNodeIsDeleted { node }, Step::AgentStarts { node }]),
                1 => Just(vec![match suite {
                    Suite::Promises => works(replica),
                    Suite::OtherWriters => Step::Hand(Hand::BlocksGo { node }),
                }]),
                1 => (20u8..60).prop_map(|seconds| vec![Step::TimePasses { seconds }]),
            ];
            (any::<bool>(), gives(), proptest::collection::vec(event, 1..=6)).prop_map(
                move |(is_served, gives, events)| {
                    let before = if is_served { &served[..] } else { &[] };
                    [&begins[..], before, &[gives], &events.concat()].concat()
                },
            )
        })
        .boxed()
}

/// The agent of a new node ran in another mode. Sooner or later it restarts in crd mode, while its pods come and go.
pub(super) fn comes_from_another_mode(profile: &Profile) -> BoxedStrategy<Vec<Step>> {
    (0u8..3, 0..profile.n_nodes, 0..profile.n_pools, any::<u8>(), 0u8..6)
        .prop_flat_map(|(replica, node, pool, at, pods)| {
            let begins = [
                Step::PoolIsMade { pool, shape: Shape::whole() },
                Step::NodeJoins { node, zone: 0, own_address: None },
                works(replica),
                Step::Hand(Hand::RanBefore { node, at }),
                Step::PodsAreWanted { node, pods, from: 0 },
                works(replica),
            ];
            let event = prop_oneof![
                4 => Just(works(replica)),
                2 => Just(Step::AgentRestarts { node, release: 0 }),
                2 => Just(Step::AgentLooks { node }),
                1 => Just(Step::AgentIsReady { node }),
                2 => (0u8..6).prop_map(move |pods| Step::PodsAreWanted { node, pods, from: 0 }),
                1 => Just(Step::Restart { replica }),
                1 => Just(Step::AgentNewsArrives { replica, events: 8 }),
                3 => (20u8..90).prop_map(|seconds| Step::TimePasses { seconds }),
            ];
            proptest::collection::vec(event, 4..=16).prop_map(move |events| [&begins[..], &events].concat())
        })
        .boxed()
}

/// Another writer empties the map of a served node in any state of its blocks, and its agent restarts.
pub(super) fn loses_its_map(profile: &Profile) -> BoxedStrategy<Vec<Step>> {
    (0u8..3, 0..profile.n_nodes, 0..profile.n_pools)
        .prop_flat_map(|(replica, node, pool)| {
            let begins =
                [&gets_first_blocks(pool, node, replica)[..], &[Step::AgentIsReady { node }]].concat();
            let event = prop_oneof![
                3 => Just(vec![works(replica)]),
                2 => Just(vec![Step::Hand(Hand::MapIsEmptied { node })]),
                1 => Just(vec![Step::PoolDrains { pool }, works(replica)]),
                2 => Just(vec![Step::AgentRestarts { node, release: 0 }, Step::AgentLooks { node }]),
                2 => Just(vec![Step::AgentLooks { node }, Step::AgentReports { node }]),
                2 => Just(vec![Step::AgentIsReady { node }]),
                2 => (0u8..14, any::<u8>()).prop_map(move |(pods, from)| {
                    vec![Step::PodsAreWanted { node, pods, from }, Step::AgentReports { node }]
                }),
                2 => (2u8..40).prop_map(|seconds| vec![Step::TimePasses { seconds }]),
            ];
            proptest::collection::vec(event, 4..=20)
                .prop_map(move |events| [&begins[..], &events.concat()].concat())
        })
        .boxed()
}

/// A node with pods changes its mode forth and back. In between its agent restarts by accident, its CiliumNode is
/// deleted, it grows, and one of two replicas may be deaf.
pub(super) fn moves_in(profile: &Profile) -> BoxedStrategy<Vec<Step>> {
    (0u8..3, 1u8..3, 0..profile.n_nodes, 0..profile.n_pools)
        .prop_flat_map(|(one, distance, node, pool)| {
            let two = one + distance;
            let hold = || prop_oneof![3 => Just(Hold::Held), 1 => Just(Hold::Free)];
            let starts = || vec![Step::AgentLooks { node }, Step::AgentIsReady { node }];
            let begins = [&gets_first_blocks(pool, node, one)[..], &starts()].concat();
            let wants = move |(pods, from)| {
                vec![Step::PodsAreWanted { node, pods, from }, Step::AgentReports { node }]
            };
            let event = prop_oneof![
                4 => hold().prop_map(move |hold| vec![Step::NodeMoves { node, hold }]),
                3 => Just([&[Step::AgentPodIsRecreated { node }][..], &starts()].concat()),
                1 => Just(vec![Step::AgentPodIsRecreated { node }]),
                1 => Just(vec![Step::AgentRestarts { node, release: 0 }]),
                2 => Just(starts()),
                2 => (0u8..6, any::<u8>()).prop_map(wants),
                2 => (10u8..24, any::<u8>()).prop_map(wants),
                4 => Just(vec![works(one)]),
                2 => Just(vec![works(two)]),
                1 => lag(two),
                1 => Just(vec![Step::HearsAgain { replica: two }]),
                1 => (0u8..3).prop_map(move |decisions| vec![Step::Decision { replica: two, decisions }]),
                1 => any::<u8>().prop_map(move |write| vec![Step::WriteProceeds { replica: two, write }]),
                1 => Just(vec![Step::Restart { replica: two }]),
                1 => Just(vec![Step::CiliumNodeIsDeleted { node }]),
                1 => Just(vec![Step::CiliumNodeIsDeleted { node }, Step::AgentStarts { node }]),
                2 => Just(vec![Step::NodeCommits { node }]),
                2 => (2u8..40).prop_map(|seconds| vec![Step::TimePasses { seconds }]),
            ];
            proptest::collection::vec(event, 6..=30)
                .prop_map(move |events| [&begins[..], &events.concat()].concat())
        })
        .boxed()
}

fn works(replica: u8) -> Step {
    Step::ReplicaWorks { replica }
}

/// A node joins, and its agent sees the first blocks of a pool that declares everything.
fn gets_first_blocks(pool: u8, node: u8, replica: u8) -> [Step; 6] {
    [
        Step::PoolIsMade { pool, shape: Shape::whole() },
        Step::NodeJoins { node, zone: 0, own_address: None },
        Step::AgentStarts { node },
        works(replica),
        works(replica),
        Step::AgentLooks { node },
    ]
}

/// A replica becomes deaf to some kinds.
fn lag(replica: u8) -> impl Strategy<Value = Vec<Step>> {
    subsequence(Kind::AS_LISTED.to_vec(), 0..=3)
        .prop_map(move |kinds| kinds.into_iter().map(|kind| Step::GoesDeaf { replica, kind }).collect())
}

/// A node that has nothing yet asks for its first blocks.
fn node_begins(node: u8) -> impl Strategy<Value = Vec<Step>> {
    (0u8..2).prop_map(move |zone| {
        vec![Step::NodeJoins { node, zone, own_address: None }, Step::AgentStarts { node }]
    })
}

/// The events of an episode.
fn events(profile: &Profile, of_script: Events, nodes: [u8; 2], replicas: [u8; 2]) -> Steps {
    let node = move || proptest::sample::select(nodes.to_vec());
    let replica = move || proptest::sample::select(replicas.to_vec());
    let sizes = || profile.sizes.0..=profile.sizes.1;
    let mut steps: Steps = vec![
        weighted(8, replica(), works),
        weighted(3, (replica(), kind(), 1u8..8), hears),
        weighted(2, (replica(), 1u8..4), |(replica, decisions)| Step::Decision { replica, decisions }),
        weighted(2, (replica(), any::<u8>()), |(replica, write)| Step::WriteProceeds { replica, write }),
        weighted(2, node(), |node| Step::AgentStarts { node }),
        weighted(2, node(), |node| Step::AgentLooks { node }),
        weighted(2, (node(), 0u8..30, any::<u8>()), wants),
        weighted(2, node(), |node| Step::AgentReports { node }),
        weighted(1, (node(), release()), |(node, release)| Step::AgentRestarts { node, release }),
        weighted(1, node(), |node| Step::AgentIsReady { node }),
        weighted(1, (replica(), 1u8..4), |(replica, events)| Step::AgentNewsArrives { replica, events }),
        weighted(2, node(), |node| Step::CiliumNodeIsDeleted { node }),
        weighted(1, node(), |node| Step::NodeIsDeleted { node }),
        weighted(1, (node(), 0u8..2), |(node, zone)| Step::NodeJoins { node, zone, own_address: None }),
        weighted(2, prop_oneof![3 => 0u8..5, 1 => 30u8..60], |seconds| Step::TimePasses { seconds }),
    ];
    if of_script == Events::Forced {
        let at = prop_oneof![any::<u8>().prop_map(Place::Over), Just(Place::Next)];
        steps.extend([
            weighted(4, (node(), at, sizes()), |(node, at, bits)| Step::ClaimIsMade { node, at, bits }),
            weighted(1, (0..profile.n_pools, shape(sizes())), |(pool, shape)| Step::PoolIsReplaced {
                pool,
                shape,
            }),
        ]);
    }
    steps
}
