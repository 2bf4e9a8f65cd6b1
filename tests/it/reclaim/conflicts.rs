//! Agents write the object that we write. An agent that is refused ten times in a row exits, so our writes must not
//! cause two refusals in a row.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::node::{PERIOD, Scene, pool};
use crate::scene::{KUBELET_PAUSE, wait_claims_carried};
use crate::support::agent::Settings;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::Kind;
use crate::support::proxy::{Answered, Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::under_oracle;

/// The server's answer to a write of a version that is not the newest.
const CONFLICT: u16 = 409;

/// How long a write of the agent is in flight. A write by another writer meanwhile makes it a conflict.
const SLOW: Duration = Duration::from_millis(150);

/// The rows of refusals among these answers during which more than one of our writes was done. The agent itself may
/// have caused the first refusal, because it also writes its status.
fn met_twice(agent: &[Answered], ours: &[Answered]) -> Vec<String> {
    let rows = agent.chunk_by(|one, next| one.code == CONFLICT && next.code == CONFLICT);
    let met = rows.filter_map(|row| {
        let (first, last) = (row.first()?, row.last()?);
        let is_met = |our: &&Answered| our.code == 200 && first.at < our.at + 2 * SLOW && our.at < last.at;
        let met: Vec<&Answered> = ours.iter().filter(is_met).collect();
        (first.code == CONFLICT && met.len() > 1).then(|| format!("{row:?} met {met:?}"))
    });
    met.collect()
}

/// Pods come and are deleted, and the Node changes all the time, until `ended` is set. This future is not dropped
/// before: a pod whose request failed is not restored.
async fn keep_busy(scene: &Scene, ended: &Cell<bool>) -> Result<()> {
    while !ended.get() {
        scene.agent.allocate("ns/short-lived").await?;
        scene.agent.touch_node().await?;
        // The life of the pod. There is no state to wait for: the agent must be busy all the time.
        tokio::time::sleep(KUBELET_PAUSE).await;
        scene.agent.release("ns/short-lived").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_of_ours_refuses_a_busy_agent_twice_in_a_row() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&pool("p", "10.1.0.0/24")).await?;
        let bell = || rig.cluster.bell.clone();
        let (between_us, between_them) = (
            Proxy::start(&rig.control_plane, bell()).await?,
            Proxy::start_as(&rig.control_plane, &rig.control_plane.admin_kubeconfig, bell()).await?,
        );
        let updates = Requests::new(Verb::Update, Kind::CiliumNode);
        let slow = between_them.plant(updates, Fault::Delay(SLOW), Often::Always);
        // The default pause between two writes, which exists for this.
        let controller = Controller::start_ready_behind(&rig.control_plane, &between_us, &[]).await?;
        let server = Some(between_them.kubeconfig().to_owned());
        let settings = Settings { update_rate: PERIOD, server, ..rig.agents.settings() };
        let mut scene = Scene::join_with(rig, "n", settings).await?;
        let block = scene.grow(rig).await?;
        scene.shrink().await?;
        let ended = Cell::new(false);
        let wait_free = async {
            scene.wait_free(rig, &block).await?;
            ended.set(true);
            Ok(())
        };
        tokio::try_join!(keep_busy(&scene, &ended), wait_free)?;
        let (theirs, ours) = (between_them.passing().answers, between_us.passing().answers);
        let n_refused = theirs.iter().filter(|answer| answer.code == CONFLICT).count();
        eprintln!(
            "{n_refused} of {} writes of the agent were refused, beside {} of ours",
            theirs.len(),
            ours.len()
        );
        ensure!(n_refused > 0, "nothing met in {} writes of the agent", theirs.len());
        for is_status in [false, true] {
            let of_kind: Vec<Answered> = theirs
                .iter()
                .filter(|answer| answer.path.ends_with("/status") == is_status)
                .cloned()
                .collect();
            let met = met_twice(&of_kind, &ours);
            ensure!(met.is_empty(), "{met:#?}");
        }
        scene.restart(rig).await?;
        wait_claims_carried(rig).await?;
        drop(slow);
        Ok((controller, between_us, between_them, scene))
    })
    .await
}
