//! A running cluster moves from cluster-pool or kubernetes to crd by the commands of `migrate`, node by node, with Cilium's
//! own operator and agents. No pod loses its network.
//!
//! No DaemonSet runs here, so each test plays its part: it replaces a Pod of an agent that was deleted, with an agent in
//! the mode that the label of its Node says.

use anyhow::{Context as _, Result, ensure};

use self::daemons::{
    CLUSTER_POOL, CRD, FOR_CRD, KUBERNETES, NODES, Ranges, configure, expect, restarts_by_chance, run_while,
    says, served_before, start_pod,
};
use crate::migration::{set_ipam, wait_passive};
use crate::multi_pool::SLOW;
use crate::scene::{PROMPT, SOON, wait_claims_carried};
use crate::support::agent::{Agent, Release};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::eventually::eventually;
use crate::support::families::Families;
use crate::support::kubectl::kubectl;
use crate::support::objects::PoolSpec;
use crate::support::preparation::KUBERNETES_MODE;
use crate::support::rig::{Rig, under_oracle};

mod accidents;
mod daemons;
mod rejoin;

const NARROW: Ranges = Ranges { mask_v4: "27", mask_v6: "123" };

/// A drain asks the agent for its use, and the test waits for the answer.
const FLAGS: &[&str] = &["--min-write-interval", "0s", "--usage-query-interval", "5s"];

#[tokio::test(flavor = "multi_thread")]
async fn a_running_cluster_moves_and_one_node_goes_back_in_between() -> Result<()> {
    moves(CLUSTER_POOL, Release::Newest).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_the_mode_kubernetes_moves() -> Result<()> {
    moves(KUBERNETES, Release::Newest).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_cluster_moves_with_agents_of_1_17() -> Result<()> {
    moves(CLUSTER_POOL, Release::V1_17).await
}

async fn moves(from: &'static str, release: Release) -> Result<()> {
    under_oracle(Options { ipam: CRD, families: Families::Dual, ..Options::default() }, async |rig| {
        rig.control_plane.allow("cidr-without-claim", None, None).await?;
        if from == KUBERNETES {
            let apply = ["apply", "--server-side", "--force-conflicts", "-f", KUBERNETES_MODE];
            kubectl(&rig.control_plane, &apply).await?;
        }
        let mut daemons = served_before(rig, from, release, NARROW).await?;
        says(&expect(rig, &["migrate", "status"], 0).await?, "3 nodes: 3 Foreign")?;

        let folder = tempfile::tempdir()?;
        let out = folder.path().join("move").to_string_lossy().into_owned();
        expect(rig, &["migrate", "init", "--out", &out], 0).await?;
        let pools = std::fs::read_to_string(folder.path().join("move/pools.yaml"))?;
        for part in ["blockSize: 27", "10.9.0.", "blockSize: 123", "fd00:9::", "state: Cordoned"] {
            ensure!(pools.contains(part), "no {part:?} in {pools}");
        }
        let again = expect(rig, &["migrate", "init", "--out", &out], 2).await?;
        ensure!(again.errors.contains("can't create"), "{}", again.errors);
        let files = [format!("{out}/pools.yaml"), format!("{out}/ciliumnodeconfig.yaml")];
        kubectl(&rig.control_plane, &["apply", "-f", &files[0], "-f", &files[1]]).await?;
        rig.cluster
            .create_pool(&PoolSpec::new("rack").ipv4(28, &["10.64.0.0/24"]).ipv6(124, &["fd00:64::/112"]))
            .await?;
        let flags = [PROMPT, &["--modes", from, "--modes", CRD]].concat();
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        wait_claims_carried(rig).await?;
        says(&expect(rig, &["migrate", "status"], 0).await?, "3 nodes: 3 Claimed")?;
        says(&expect(rig, &["migrate", "commit", "--all"], 0).await?, "None of them is Moved.")?;
        let shown = expect(rig, &["migrate", "next", "a"], 0).await?;
        says(&shown, "kubectl label node a --overwrite nodeipam.io/ipam=crd")?;

        // The settings of Cilium must fit the mode crd.
        configure(rig, [("enable-endpoint-routes", "false")].into()).await?;
        let refused = expect(rig, &["migrate", "next", "a", "--yes", "--timeout", "20s"], 1).await?;
        ensure!(refused.errors.contains("migrate check fails at endpoint-routes"), "{}", refused.errors);
        expect(rig, &["migrate", "check"], 1).await?;
        configure(rig, FOR_CRD.into()).await?;

        // Forth, back, and forth again.
        let next = ["migrate", "next", "a", "--yes", "--timeout", "150s"];
        let back = ["migrate", "back", "a", "--yes", "--timeout", "150s"];
        for (command, state) in [(next, "a: Moved"), (back, "a: Claimed"), (next, "a: Moved")] {
            if state == "a: Moved" {
                // The use of the second move must differ from that of the first.
                start_pod(rig, &daemons, "a", &format!("a-of-{}", daemons["a"].n_pods)).await?;
            }
            let said = run_while(rig, &mut daemons, &command, &["a"]).await?;
            ensure!(said.code == Some(0) && said.text.contains(state), "{}{}", said.text, said.errors);
        }
        restarts_by_chance(rig, &mut daemons, "b").await?;
        moves_no_other_rack(rig).await?;
        let batch = ["migrate", "next", "--batch", "10", "-l", "rack in (r1)", "--yes", "--timeout", "150s"];
        // The controller may be gone at any time.
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
        let said = run_while(rig, &mut daemons, &batch, &["b", "c"]).await?;
        ensure!(said.code == Some(0), "{}{}", said.text, said.errors);
        // Another node returns, and moves again.
        let next = ["migrate", "next", "c", "--yes", "--timeout", "150s"];
        let back = ["migrate", "back", "c", "--yes", "--timeout", "150s"];
        for (command, state) in [(back, "c: Claimed"), (next, "c: Moved")] {
            start_pod(rig, &daemons, "c", &format!("c-of-{}", daemons["c"].n_pods)).await?;
            let said = run_while(rig, &mut daemons, &command, &["c"]).await?;
            ensure!(said.code == Some(0) && said.text.contains(state), "{}{}", said.text, said.errors);
        }
        says(&expect(rig, &["migrate", "status"], 0).await?, "3 nodes: 3 Moved")?;
        let of_rack = expect(rig, &["migrate", "status", "--selector", "rack=r1"], 0).await?;
        says(&of_rack, "2 nodes: 2 Moved")?;
        says(&of_rack, "A restart of any of these agents loses no pod.")?;

        // A full node grows when a person commits its move.
        let a = &daemons["a"].agent;
        while a.allocate_many("default/more-", 1).await?.error.is_none() {}
        eventually(SOON, async || {
            let full = expect(rig, &["migrate", "status"], 1).await?;
            says(&full, "a: it needs more addresses, and its growth is held")
        })
        .await?;
        ensure!(rig.cluster.claims_of("a").len() == 2, "{:?}", rig.cluster.claims_of("a"));
        // The full node is in the other rack.
        says(&expect(rig, &["migrate", "status", "-l", "rack=r1"], 0).await?, "2 nodes: 2 Moved")?;
        expect(rig, &["migrate", "commit", "-l", "rack=r1", "--yes"], 0).await?;
        says(&expect(rig, &["migrate", "status"], 1).await?, "3 nodes: 1 Moved, 2 Committed")?;
        let none = expect(rig, &["migrate", "commit", "-l", "rack=r1"], 0).await?;
        says(&none, "All of them are committed.")?;
        expect(rig, &["migrate", "commit", "--all", "--yes"], 0).await?;
        start_pod(rig, &daemons, "a", "grown").await?;
        let lost = expect(rig, &["migrate", "back", "a"], 1).await?;
        says(&lost, "1 pod would lose their network: default/grown")?;

        // Now all nodes have the mode that `cilium-config` says.
        set_ipam(rig, CRD).await?;
        wait_passive(rig, &controller, from, CRD).await?;
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        for node in NODES {
            daemons.get_mut(node).context("it is there")?.agent.restart_and_restore(SLOW).await?;
        }
        wait_claims_carried(rig).await?;
        says(&expect(rig, &["migrate", "status"], 0).await?, "3 nodes: 3 Committed")?;
        rejoin::leaves_the_old_range(rig, &mut daemons, "b").await?;
        let agents: Vec<Agent> = daemons.into_values().map(|daemon| daemon.agent).collect();
        Ok((controller, agents))
    })
    .await
}

/// Nothing is moved for labels that no node has, and for those of nodes that have moved.
async fn moves_no_other_rack(rig: &Rig) -> Result<()> {
    for (labels, code, why) in [
        ("rack=r9", 2, "no Node that runs Linux has the labels `rack=r9`: kubectl get nodes -l 'rack=r9'"),
        ("", 2, "`` must be KEY=VALUE"),
        ("rack=r2", 0, "no node with rack=r2 can make a step now"),
    ] {
        let said = expect(rig, &["migrate", "next", "--batch", "10", "-l", labels, "--yes"], code).await?;
        ensure!(said.errors.contains(why), "{why:?} is not in: {}", said.errors);
    }
    Ok(())
}
