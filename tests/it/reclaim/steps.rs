//! Every step by which a block leaves a node, with an end of the controller and a restart of the agent behind it.

use std::time::Instant;

use anyhow::{Context as _, Result};
use cilium_node_ipam::model::request::WithdrawalStep;
use ipnet::IpNet;
use serde_json::json;

use super::node::{FENCE, FLAGS, LATE, QUESTION, Scene, has_any, of_block, pool};
use crate::scene::{SOON, wait_claims_carried};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::Kind;
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

/// A moment between two steps by which a block leaves.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Its claim is in this state.
    Claim(ClaimState),
    /// The agent is asked which addresses it uses.
    Question,
    /// This was written to its CiliumNode.
    Step(WithdrawalStep),
}

#[derive(Clone, Copy, Debug)]
enum ClaimState {
    Draining,
    Releasing,
    Cooling,
}

impl Moment {
    /// Whether the objects show that it has come. Each can be seen until the agent has reported once more.
    fn has_come(self, rig: &Rig, scene: &Scene, block: &str) -> Result<bool> {
        let cidr: IpNet = block.parse()?;
        let seen = rig.cluster.published(&scene.node).unwrap_or_default();
        let is = |state: &str| scene.claim(rig, block).is_some_and(|claim| claim.state == state);
        Ok(match self {
            Self::Claim(ClaimState::Draining) => is("Draining"),
            Self::Claim(ClaimState::Releasing) => is("Releasing"),
            Self::Claim(ClaimState::Cooling) => is("Cooling"),
            Self::Question => is("Draining") && seen.release.contains_key(QUESTION),
            Self::Step(WithdrawalStep::Fence) => {
                is("Draining") && of_block(&seen.pool, cidr).all(|owner| owner == FENCE)
            }
            Self::Step(WithdrawalStep::Mark) => has_any(&seen.release, cidr),
            Self::Step(WithdrawalStep::Confirm) => {
                of_block(&seen.release, cidr).any(|state| state == "released")
            }
            Self::Step(WithdrawalStep::TakeOff) => !has_any(&seen.pool, cidr),
            // It is not a step of a block that leaves without trouble; see `Moment::reach`.
            Self::Step(WithdrawalStep::Clear) => !has_any(&seen.release, cidr),
        })
    }

    /// The pods of the node end, and its second block begins to leave. Returns when this moment has come. That of a mark
    /// which is cleared comes before the pods end.
    async fn reach(self, rig: &Rig, scene: &Scene, block: &str) -> Result<()> {
        if matches!(self, Self::Step(WithdrawalStep::Clear)) {
            let cidr: IpNet = block.parse()?;
            let stale =
                json!({"status": {"ipam": {"release-ips": {cidr.addr().to_string(): "do-not-release"}}}});
            let planted = rig.cluster.patch_status(Kind::CiliumNode, &scene.node, stale).await?;
            let planted: u64 = planted.metadata.resource_version.context("its version")?.parse()?;
            let is_later = |seen: &Published| {
                seen.resource_version.parse::<u64>().is_ok_and(|version| version >= planted)
            };
            rig.cluster.wait_published(&scene.node, "the stale mark", SOON, is_later).await?;
        } else {
            scene.shrink().await?;
        }
        let come = async || self.has_come(rig, scene, block);
        rig.cluster.wait_until(&format!("{self:?}"), LATE, come).await
    }
}

/// The node needs less from now on: its block comes back, and its agent loses no pod when it restarts after that.
async fn gives_back(rig: &Rig, scene: &mut Scene, block: &str) -> Result<()> {
    scene.shrink().await?;
    let begun = Instant::now();
    scene.wait_free(rig, block).await?;
    eprintln!("{block} was free {:?} later", begun.elapsed());
    scene.restart(rig).await?;
    wait_claims_carried(rig).await
}

/// The controller is killed at a moment, and the next one goes on.
async fn killed_at(moment: Moment) -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24")).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let mut scene = Scene::join(rig, "n").await?;
        let block = scene.grow(rig).await?;
        moment.reach(rig, &scene, &block).await?;
        controller.sigkill().await?;
        let [killed, _] = moment.tests();
        eprintln!("{killed}: {}", scene.told(rig, &block));
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        gives_back(rig, &mut scene, &block).await?;
        Ok((controller, scene))
    })
    .await
}

/// The agent restarts at a moment, with a pod that stays; the block leaves, or is held whole.
async fn restarted_at(moment: Moment) -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24")).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let mut scene = Scene::join(rig, "n").await?;
        let block = scene.grow(rig).await?;
        moment.reach(rig, &scene, &block).await?;
        let [_, restarted] = moment.tests();
        eprintln!("{restarted}: {}", scene.told(rig, &block));
        scene.restart(rig).await?;
        eprintln!("restarted: {}", scene.told(rig, &block));
        gives_back(rig, &mut scene, &block).await?;
        Ok((controller, scene))
    })
    .await
}

/// Two tests per moment. A step that has none does not compile.
macro_rules! at_each_moment {
    ($($kind:ident $(($step:path))? => $killed:ident, $restarted:ident;)+) => {
        impl Moment {
            /// The names of its tests.
            const fn tests(self) -> [&'static str; 2] {
                match self {
                    $(Self::$kind $(($step))? => [stringify!($killed), stringify!($restarted)],)+
                }
            }
        }

        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $killed() -> Result<()> {
                killed_at(Moment::$kind $(($step))?).await
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn $restarted() -> Result<()> {
                restarted_at(Moment::$kind $(($step))?).await
            }
        )+
    };
}

at_each_moment! {
    Claim(ClaimState::Draining) => killed_when_it_drains, agent_restarts_when_it_drains;
    Step(WithdrawalStep::Fence) => killed_when_it_is_fenced, agent_restarts_when_it_is_fenced;
    Question => killed_when_the_agent_is_asked, agent_restarts_when_it_is_asked;
    Step(WithdrawalStep::Mark) => killed_when_it_is_marked, agent_restarts_when_it_is_marked;
    Claim(ClaimState::Releasing) => killed_when_it_is_releasing, agent_restarts_when_it_is_releasing;
    Step(WithdrawalStep::Confirm) => killed_when_it_is_confirmed, agent_restarts_when_it_is_confirmed;
    Step(WithdrawalStep::TakeOff) => killed_when_it_is_off, agent_restarts_when_it_is_off;
    Claim(ClaimState::Cooling) => killed_when_it_cools, agent_restarts_when_it_cools;
    Step(WithdrawalStep::Clear) => killed_when_a_stale_mark_is_cleared, agent_restarts_when_a_stale_mark_is_cleared;
}
