//! Disturbances while a block drains: objects are edited, deleted and recreated between two steps.

use std::time::Duration;

use anyhow::Result;
use cilium_node_ipam::model::request::WithdrawalStep;
use serde_json::json;

use super::node::{BLOCK, FLAGS, LONG_PERIOD, PERIOD, Scene, pod_of, pool};
use super::steps::{ClaimState, Moment, gives_back};
use crate::agent_pods::delete_at_once;
use crate::chronicle::{delete_node, wait_gone};
use crate::scene::{SOON, ask, wait_claims_carried};
use crate::support::agent::{Release, Settings};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::Kind;
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

/// Two blocks, so that another node can only get the blocks of the first one.
const RANGE: &str = "10.1.0.0/27";

/// A pod with an address of a fenced block, so that the block stays fenced until the pod is deleted.
const INSIDE: &str = "ns/kept-inside";

/// A disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happening {
    /// The CiliumNode is deleted, and its agent recreates it.
    CiliumNodeRecreated,
    /// The metadata of the CiliumNode is changed before its agent has answered: the agent does not answer the marks
    /// again.
    AnswerLost,
    /// Its agent hangs and wakes up when the controller no longer waits for its answer.
    AgentHangs,
    /// The machine, its Node and its CiliumNode are lost.
    NodeLost,
    /// The pool is edited: it does not reclaim blocks.
    ReclaimDisabled,
    /// The pool is edited: its range, which drained, is active again.
    RangeActiveAgain,
    /// The pool is edited: the node should have more addresses free than it would keep.
    MoreWanted,
    /// The pool is edited: it does not select the node any more.
    Unselected,
    /// The pool is deleted.
    PoolDeleted,
}

/// The fate of the block.
enum End {
    /// It leaves, then or later.
    Leaves,
    /// It is held, with all its addresses open to pods.
    Stays,
    /// Another node gets it.
    Lost,
}

impl Happening {
    /// The preparation before the block starts to drain.
    async fn prepare(self, rig: &Rig) -> Result<()> {
        if self == Self::RangeActiveAgain {
            rig.cluster.patch_pool("p", range_in_state("Draining")).await?;
            rig.cluster.patch_pool("p", json!({"reclaim": {"mode": "Disabled"}})).await?;
        }
        Ok(())
    }

    /// Causes the disturbance, except for a loss, which is the last step of the scene.
    async fn happen(self, rig: &Rig, scene: &Scene, block: &str) -> Result<End> {
        let edit = async |spec| rig.cluster.patch_pool("p", spec).await.map(drop);
        Ok(match self {
            Self::CiliumNodeRecreated => {
                recreate(rig, scene).await?;
                End::Leaves
            }
            Self::AnswerLost => {
                let annotation = json!({"metadata": {"annotations": {"example.com/touched": "now"}}});
                rig.cluster.patch(Kind::CiliumNode, "n", annotation).await?;
                End::Leaves
            }
            Self::AgentHangs => {
                scene.agent.signal("STOP").await?;
                scene.wait_whole(rig, block).await?;
                scene.agent.signal("CONT").await?;
                End::Leaves
            }
            Self::NodeLost => End::Lost,
            Self::ReclaimDisabled => {
                edit(json!({"reclaim": {"mode": "Disabled"}})).await?;
                End::Stays
            }
            Self::RangeActiveAgain => {
                edit(range_in_state("Active")).await?;
                End::Stays
            }
            Self::MoreWanted => {
                edit(json!({"expand": {"freeBelow": 12}})).await?;
                End::Stays
            }
            Self::Unselected => {
                edit(json!({"nodeSelector": {"matchLabels": {"zone": "other"}}})).await?;
                End::Leaves
            }
            Self::PoolDeleted => {
                rig.cluster.delete_pool("p").await?;
                End::Leaves
            }
        })
    }
}

/// The CiliumNode is deleted while its agent runs. The agent recreates it empty, and the node gets its addresses again.
async fn recreate(rig: &Rig, scene: &Scene) -> Result<()> {
    let before = rig.cluster.published("n").unwrap_or_default().uid;
    rig.cluster.delete(Kind::CiliumNode, "n").await?;
    wait_gone(rig, Kind::CiliumNode, "n").await?;
    scene.agent.touch_node().await?;
    let served = |seen: &Published| seen.uid != before && seen.pool.len() >= BLOCK;
    rig.cluster.wait_published("n", "its addresses again", SOON, served).await.map(drop)
}

/// The machine of the node is lost, and its objects are deleted. Another node comes and grows into both blocks.
async fn replace(rig: &Rig, scene: Scene) -> Result<Scene> {
    scene.agent.power_off().await?;
    delete_at_once(rig, &pod_of("n")).await?;
    delete_node(rig, "n").await?;
    let mut other = Scene::join(rig, "other").await?;
    other.grow(rig).await?;
    other.restart(rig).await?;
    Ok(other)
}

fn range_in_state(state: &str) -> serde_json::Value {
    json!({"ipv4": {"cidrs": [{"cidr": RANGE, "state": state}]}})
}

/// A disturbance at a moment, with an agent of this version.
async fn happens(happening: Happening, moment: Moment, release: Release) -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool("p", RANGE).with("reuseAfterNodeLoss", "1s")).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let mut scene = Scene::join_with(rig, "n", settings(rig, moment, release)).await?;
        let block = scene.grow(rig).await?;
        let is_fence = matches!(moment, Moment::Step(WithdrawalStep::Fence));
        if is_fence {
            ask(rig, &scene.agent, INSIDE).await?;
        }
        happening.prepare(rig).await?;
        moment.reach(rig, &scene, &block).await?;
        eprintln!("{happening:?} at {moment:?}: {}", scene.reported(rig, &block));
        match happening.happen(rig, &scene, &block).await? {
            End::Leaves => {
                if is_fence {
                    scene.restart(rig).await?;
                    scene.agent.release(INSIDE).await?;
                }
                gives_back(rig, &mut scene, &block).await?;
            }
            End::Stays => {
                scene.wait_whole(rig, &block).await?;
                scene.restart(rig).await?;
                scene.fill_both(rig).await?;
            }
            End::Lost => scene = replace(rig, scene).await?,
        }
        wait_claims_carried(rig).await?;
        Ok((controller, scene))
    })
    .await
}

/// An agent that is asked to release addresses has just reported, so its answer comes a whole period later.
fn settings(rig: &Rig, moment: Moment, release: Release) -> Settings {
    let is_mark = matches!(moment, Moment::Step(WithdrawalStep::Mark));
    let update_rate: Duration = if is_mark { LONG_PERIOD } else { PERIOD };
    Settings { release, update_rate, ..rig.agents.settings() }
}

macro_rules! while_it_leaves {
    ($($test:ident: $happening:ident, $kind:ident($step:path), $release:ident;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $test() -> Result<()> {
                happens(Happening::$happening, Moment::$kind($step), Release::$release).await
            }
        )+
    };
}

while_it_leaves! {
    ciliumnode_recreated_when_fenced: CiliumNodeRecreated, Step(WithdrawalStep::Fence), Newest;
    ciliumnode_recreated_when_marked: CiliumNodeRecreated, Step(WithdrawalStep::Mark), Newest;
    ciliumnode_recreated_when_releasing: CiliumNodeRecreated, Claim(ClaimState::Releasing), Newest;
    ciliumnode_recreated_when_off: CiliumNodeRecreated, Step(WithdrawalStep::Remove), Newest;
    answer_lost_when_marked: AnswerLost, Step(WithdrawalStep::Mark), Newest;
    agent_hangs_when_marked: AgentHangs, Step(WithdrawalStep::Mark), Newest;
    node_lost_when_fenced: NodeLost, Step(WithdrawalStep::Fence), Newest;
    node_lost_when_marked: NodeLost, Step(WithdrawalStep::Mark), Newest;
    node_lost_when_releasing: NodeLost, Claim(ClaimState::Releasing), Newest;
    reclaim_disabled_when_marked: ReclaimDisabled, Step(WithdrawalStep::Mark), Newest;
    reclaim_disabled_when_marked_oldest: ReclaimDisabled, Step(WithdrawalStep::Mark), Oldest;
    range_active_again_when_fenced: RangeActiveAgain, Step(WithdrawalStep::Fence), Newest;
    more_wanted_when_fenced: MoreWanted, Step(WithdrawalStep::Fence), Newest;
    more_wanted_when_marked: MoreWanted, Step(WithdrawalStep::Mark), Newest;
    pool_selects_others_when_fenced: Unselected, Step(WithdrawalStep::Fence), Newest;
    pool_deleted_when_marked: PoolDeleted, Step(WithdrawalStep::Mark), Newest;
}
