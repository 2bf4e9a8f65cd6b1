//! Scripts: what happens in a cluster, drawn by weight.

use cilium_node_ipam::model::kind::Kind;
use proptest::prelude::*;
use proptest::strategy::Union;

use super::cluster::Step;
use super::pools::shape;

/// What users and agents do.
fn life() -> Vec<(u32, BoxedStrategy<Step>)> {
    let node = || 0u8..6;
    let pool = || 0u8..4;
    vec![
        (
            8,
            (node(), 0u8..2, proptest::option::weighted(0.15, any::<u8>()))
                .prop_map(|(node, zone, own_address)| Step::NodeJoins { node, zone, own_address })
                .boxed(),
        ),
        (10, node().prop_map(|node| Step::AgentStarts { node }).boxed()),
        (3, (node(), 0u8..2).prop_map(|(node, zone)| Step::NodeIsRelabelled { node, zone }).boxed()),
        (10, node().prop_map(|node| Step::AgentLooks { node }).boxed()),
        (
            10,
            (node(), 0u8..30, any::<u8>())
                .prop_map(|(node, pods, from)| Step::PodsAreWanted { node, pods, from })
                .boxed(),
        ),
        (10, node().prop_map(|node| Step::AgentReports { node }).boxed()),
        (2, node().prop_map(|node| Step::CiliumNodeIsDeleted { node }).boxed()),
        (1, node().prop_map(|node| Step::NodeIsBeingDeleted { node }).boxed()),
        (3, node().prop_map(|node| Step::NodeIsDeleted { node }).boxed()),
        (8, (pool(), shape()).prop_map(|(pool, shape)| Step::PoolIsMade { pool, shape }).boxed()),
        (5, (pool(), shape()).prop_map(|(pool, shape)| Step::PoolIsEdited { pool, shape }).boxed()),
        (2, pool().prop_map(|pool| Step::PoolIsDeleted { pool }).boxed()),
        (1, any::<u8>().prop_map(|claim| Step::ClaimIsDeleted { claim }).boxed()),
        (
            3,
            prop_oneof![5 => 0u8..10, 1 => 30u8..100]
                .prop_map(|seconds| Step::TimePasses { seconds })
                .boxed(),
        ),
    ]
}

/// What an administrator does by force.
fn force() -> Vec<(u32, BoxedStrategy<Step>)> {
    vec![
        (2, (0u8..4, shape()).prop_map(|(pool, shape)| Step::PoolIsReplaced { pool, shape }).boxed()),
        (1, any::<u8>().prop_map(|claim| Step::ClaimIsRemoved { claim }).boxed()),
    ]
}

/// What the network and the processes do.
fn machinery() -> Vec<(u32, BoxedStrategy<Step>)> {
    let replica = || 0u8..6;
    let kind = || proptest::sample::select(Kind::AS_LISTED.to_vec());
    vec![
        (
            45,
            (replica(), kind(), 1u8..8)
                .prop_map(|(replica, kind, events)| Step::News { replica, kind, events })
                .boxed(),
        ),
        (4, (replica(), kind()).prop_map(|(replica, kind)| Step::Relist { replica, kind }).boxed()),
        (2, replica().prop_map(|replica| Step::Restart { replica }).boxed()),
        (
            25,
            (replica(), 1u8..6)
                .prop_map(|(replica, decisions)| Step::Decision { replica, decisions })
                .boxed(),
        ),
        (
            45,
            (replica(), any::<u8>())
                .prop_map(|(replica, write)| Step::WriteProceeds { replica, write })
                .boxed(),
        ),
        (
            4,
            (replica(), any::<u8>())
                .prop_map(|(replica, write)| Step::AnswerIsLost { replica, write })
                .boxed(),
        ),
        (
            2,
            (replica(), any::<u8>())
                .prop_map(|(replica, write)| Step::WriteIsRefused { replica, write })
                .boxed(),
        ),
        (4, any::<u8>().prop_map(|stray| Step::StrayArrives { stray }).boxed()),
        (20, replica().prop_map(|replica| Step::ReplicaWorks { replica }).boxed()),
        (1, Just(Step::Rest).boxed()),
    ]
}

fn script(steps: Vec<(u32, BoxedStrategy<Step>)>, length: usize) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(Union::new_weighted(steps), 1..=2 * length)
}

/// Users and agents only.
pub(super) fn calm(length: usize) -> impl Strategy<Value = Vec<Step>> {
    script(life(), length)
}

/// Everything at once.
pub(super) fn wild(length: usize) -> impl Strategy<Value = Vec<Step>> {
    script([life(), machinery()].concat(), length)
}

/// Everything at once, and somebody uses force.
pub(super) fn forced(length: usize) -> impl Strategy<Value = Vec<Step>> {
    script([life(), machinery(), force()].concat(), length)
}
