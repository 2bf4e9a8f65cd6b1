//! The pods that kubelet allows against the addresses of a node, as the commands report them on a real API server.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::answers::ask;
use crate::scene::{PROMPT, SOON, join, wait_claims_carried};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::preparation::prepare;
use crate::support::rig::{Rig, under_oracle};

/// The kubelet of the node `n` allows so many pods.
async fn allow(rig: &Rig, max_pods: u32) -> Result<()> {
    let allocatable = json!({"status": {"allocatable": {"pods": max_pods.to_string()}}});
    rig.cluster.patch_status(Kind::Node, "n", allocatable).await.map(drop)
}

/// The ids of the problems of `check`.
async fn checked(rig: &Rig) -> Result<String> {
    Ok(ask(&rig.control_plane, &["check", "-o", "json"]).await?.text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_fewer_addresses_for_its_life_than_pods_is_named() -> Result<()> {
    under_oracle(Options { ipam: "kubernetes", ..Options::default() }, async |rig| {
        prepare(rig, 26).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(26, &["10.1.0.0/24"])).await?;
        let plane = &rig.control_plane;
        let controller = Controller::start_ready(plane, PROMPT).await?;
        let agents = join(rig, &[NodeSpec::new("n")]).await?;
        agents[0].wait_ready(SOON).await?;
        wait_claims_carried(rig).await?;
        let everything = "The node has everything that it asks for.";

        allow(rig, 110).await?;
        let said = "kubelet allows 110 pods, and the node can have at most 61 ipv4 addresses for pods: it keeps one \
                    block for its life";
        let status = ask(plane, &["status"]).await?;
        ensure!(
            status.says(&format!("MaxPods: 1 node with more pods than addresses: {said}")),
            "{}",
            status.text
        );
        let why = ask(plane, &["why", "n"]).await?;
        ensure!(why.says(&format!("problem MaxPods: {said}; Lower `maxPods`")), "{}{}", why.text, why.errors);
        ensure!(!why.says(everything), "{}", why.text);
        let found = checked(rig).await?;
        ensure!(found.contains("NIP0408") && found.contains(said), "{found}");

        allow(rig, 61).await?;
        let why = ask(plane, &["why", "n"]).await?;
        ensure!(why.says(everything), "{}{}", why.text, why.errors);
        let found = checked(rig).await?;
        ensure!(!found.contains("NIP0408"), "{found}");
        Ok((controller, agents))
    })
    .await
}
