//! The address that hosts outside the cluster see, for pods of the first and of the second block of a node.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::lab::Lab;
use super::machine::{Machine, Masquerading, Pod, Setup};
use super::{FLAGS, MORE_THAN_ONE_BLOCK, address, with_lab};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::families::Family;
use crate::support::objects::{NodeSpec, PoolSpec};

/// For a connection to a host outside.
const ARRIVES_WITHIN: Duration = Duration::from_secs(60);

/// The address that a host outside sees when a pod connects to it.
async fn seen_outside(lab: &Lab, machine: &Machine, pod: &Pod) -> Result<IpAddr> {
    let listener = lab.listen_outside()?;
    machine.connect_from(pod, listener.local_addr()?).await?;
    let (_, from) = tokio::time::timeout(ARRIVES_WITHIN, listener.accept()).await??;
    Ok(from.ip())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_all_blocks_are_masqueraded_alike() -> Result<()> {
    with_lab(Options::default(), async |rig, lab| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let mut machine = lab.join(rig, "one", Setup::default()).await?;
        let first = rig.cluster.published("one").unwrap_or_default().pod_cidrs;
        let pods = machine.add_pods(rig, "pod-", MORE_THAN_ONE_BLOCK).await?;
        let (of_first, of_second): (Vec<&Pod>, Vec<&Pod>) =
            pods.iter().partition(|pod| first.iter().any(|cidr| pod.is_in(cidr)));
        ensure!(!of_first.is_empty() && !of_second.is_empty(), "{pods:?}");
        lab.route_outside("10.1.0.0/24", machine.address(Family::V4)?).await?;
        for masquerading in [Masquerading::OnInterfaces, Masquerading::Bpf, Masquerading::Off] {
            machine.set_up(Setup { masquerading, ..Setup::default() });
            machine.restart_agent(rig, "TERM").await?;
            for pod in [of_first[0], of_second[0]] {
                let is_off = masquerading == Masquerading::Off;
                let expected = if is_off { address(pod)? } else { machine.address(Family::V4)? };
                let seen = seen_outside(lab, &machine, pod).await?;
                ensure!(
                    seen == expected,
                    "{masquerading:?}: {pod:?} is seen as {seen}, and not as {expected}"
                );
            }
        }
        Ok((controller, machine))
    })
    .await
}

/// `preflight` has a line `FAIL` for this (`src/view/preflight/cilium.rs`).
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_exits_if_iptables_masquerades_without_interfaces() -> Result<()> {
    with_lab(Options::default(), async |rig, lab| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        rig.cluster.create_node(&NodeSpec::new("one")).await?;
        let setup = Setup { masquerading: Masquerading::WithoutInterfaces, ..Setup::default() };
        let mut machine = lab.power_on(rig, "one", setup).await?;
        machine.start_agent(rig)?;
        machine.wait_agent_exit().await?;
        let panics = machine.logged(rig, "panic: ")?;
        ensure!(!panics.is_empty(), "the agent has exited without a panic");
        Ok((controller, machine))
    })
    .await
}
