//! Every step by which a block leaves a node: the controller is killed after it, or wakes up late, or the agent
//! restarts.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::model::request::WithdrawalStep;
use ipnet::IpNet;
use serde_json::json;

use super::node::{FENCE, FLAGS, LATE, QUESTION, Scene, has_any, of_block, pool};
use crate::scene::{SOON, ask, wait_claims_carried};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::Kind;
use crate::support::proxy::{Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::Published;

/// A moment between two steps by which a block leaves its node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// Its claim is in this state.
    Claim(ClaimState),
    /// The agent gets a usage query.
    Question,
    /// This was written to its CiliumNode.
    Step(WithdrawalStep),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ClaimState {
    Draining,
    Releasing,
    Cooling,
}

impl Moment {
    /// Whether the objects show that it has come. Each moment is visible until the agent has reported once more.
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
            Self::Step(WithdrawalStep::Remove) => !has_any(&seen.pool, cidr),
            // A block that drains undisturbed has no such step; see `Moment::reach`.
            Self::Step(WithdrawalStep::Clear) => !has_any(&seen.release, cidr),
        })
    }

    /// Deletes the pods of the node, and its second block starts to drain. Returns when this moment has come. The
    /// moment of a cleared mark comes before the pods are deleted.
    pub(super) async fn reach(self, rig: &Rig, scene: &Scene, block: &str) -> Result<()> {
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

/// The node needs less from now on. Its block becomes free, and its agent loses no pod when it restarts after that.
pub(super) async fn gives_back(rig: &Rig, scene: &mut Scene, block: &str) -> Result<()> {
    scene.shrink().await?;
    let begun = Instant::now();
    scene.wait_free(rig, block).await?;
    eprintln!("{block} was free {:?} later", begun.elapsed());
    scene.restart(rig).await?;
    wait_claims_carried(rig).await
}

/// The controller is killed at a moment, and the next one continues.
async fn killed_at(moment: Moment) -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (controller, mut scene, block) = Scene::grown(rig).await?;
        moment.reach(rig, &scene, &block).await?;
        controller.sigkill().await?;
        let [killed, _, _] = moment.tests();
        eprintln!("{killed}: {}", scene.reported(rig, &block));
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        gives_back(rig, &mut scene, &block).await?;
        Ok((controller, scene))
    })
    .await
}

/// The agent restarts at a moment, with a pod that stays. The block leaves, or is held with all addresses open.
async fn restarted_at(moment: Moment) -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (controller, mut scene, block) = Scene::grown(rig).await?;
        moment.reach(rig, &scene, &block).await?;
        let [_, restarted, _] = moment.tests();
        eprintln!("{restarted}: {}", scene.reported(rig, &block));
        scene.restart(rig).await?;
        eprintln!("restarted: {}", scene.reported(rig, &block));
        gives_back(rig, &mut scene, &block).await?;
        Ok((controller, scene))
    })
    .await
}

/// The controller is halted at a moment, with its next write in flight. Another one continues, and the block is freed
/// and given to another node. Only then the write arrives and the first controller wakes up: neither changes anything.
async fn woken_after(moment: Moment) -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        // Three blocks, so that the other node can only grow by the draining one.
        let pool = pool("p", "10.1.0.0/27").ipv4(28, &["10.1.0.0/27", "10.1.1.0/28"]);
        rig.cluster.create_pool(&pool).await?;
        let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
        let old = Controller::start_ready_behind(&rig.control_plane, &proxy, FLAGS).await?;
        let mut scene = Scene::join(rig, "n").await?;
        let block = scene.grow(rig).await?;
        let mut other = Scene::join(rig, "other").await?;
        let claim = scene.claim(rig, &block).context("its claim")?.name;
        moment.reach(rig, &scene, &block).await?;
        let n_refused = || proxy.passing().refused_patches + proxy.passing().refused_moves;
        let next = [
            Requests::new(Verb::Patch, Kind::CiliumNode).of("n"),
            Requests::new(Verb::Patch, Kind::Block).of(&claim),
            Requests::new(Verb::Delete, Kind::Block).of(&claim),
        ];
        let on_the_way = next.map(|request| proxy.plant(request, Fault::Stall, Often::Times(1)));
        scene.shrink().await?;
        let has_begun = async || Ok(on_the_way.iter().any(|planted| planted.fired() > 0));
        rig.cluster.wait_until("its next write to be on the way", LATE, has_begun).await?;
        old.signal("STOP").await?;
        let before = n_refused();
        let [_, _, woken] = moment.tests();
        eprintln!("{woken}: {}", scene.reported(rig, &block));

        let new = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let taken = other.fill(rig).await.with_context(|| scene.reported(rig, &block))?;
        ensure!(taken == block, "another block than {block}: {taken}");
        drop(on_the_way);
        let refused = async || Ok(n_refused() > before);
        rig.cluster.wait_until("the late write to be refused", SOON, refused).await?;
        old.signal("CONT").await?;
        for scene in [&mut scene, &mut other] {
            scene.restart(rig).await?;
        }
        ask(rig, &other.agent, "ns/late").await?;
        wait_claims_carried(rig).await?;
        Ok((old, new, proxy, scene, other))
    })
    .await
}

/// Three tests per moment. A step without them does not compile.
macro_rules! at_each_moment {
    ($($kind:ident $(($step:path))? => $killed:ident, $restarted:ident, $woken:ident;)+) => {
        impl Moment {
            /// The names of its tests.
            const fn tests(self) -> [&'static str; 3] {
                match self {
                    $(Self::$kind $(($step))? => {
                        [stringify!($killed), stringify!($restarted), stringify!($woken)]
                    })+
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

            #[tokio::test(flavor = "multi_thread")]
            async fn $woken() -> Result<()> {
                woken_after(Moment::$kind $(($step))?).await
            }
        )+
    };
}

at_each_moment! {
    Claim(ClaimState::Draining) =>
        killed_when_it_drains, agent_restarts_when_it_drains, woken_after_it_drained;
    Step(WithdrawalStep::Fence) =>
        killed_when_it_is_fenced, agent_restarts_when_it_is_fenced, woken_after_it_was_fenced;
    Question =>
        killed_when_the_agent_is_asked, agent_restarts_when_it_is_asked, woken_after_the_agent_was_asked;
    Step(WithdrawalStep::Mark) =>
        killed_when_it_is_marked, agent_restarts_when_it_is_marked, woken_after_it_was_marked;
    Claim(ClaimState::Releasing) =>
        killed_when_it_is_releasing, agent_restarts_when_it_is_releasing, woken_after_it_was_releasing;
    Step(WithdrawalStep::Confirm) =>
        killed_when_it_is_confirmed, agent_restarts_when_it_is_confirmed, woken_after_it_was_confirmed;
    Step(WithdrawalStep::Remove) =>
        killed_when_it_is_off, agent_restarts_when_it_is_off, woken_after_it_was_off;
    Claim(ClaimState::Cooling) =>
        killed_when_it_cools, agent_restarts_when_it_cools, woken_after_it_cooled;
    Step(WithdrawalStep::Clear) =>
        killed_when_a_stale_mark_is_cleared, agent_restarts_when_a_stale_mark_is_cleared,
        woken_after_a_stale_mark_was_cleared;
}
