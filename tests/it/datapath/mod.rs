//! Packets: Cilium's real agent with its eBPF programs, pods with interfaces, and continuous pings between them, while
//! the controller gives and takes blocks.
//!
//! `scripts/need-datapath` lists the needs of these tests, and `docs/cilium.md` has a table of their results.

mod changes;
mod crd;
mod exporter;
mod lab;
mod machine;
mod masquerading;
mod move_in;
mod multi_pool;
mod outage;
mod ping;
mod policy;
mod upgrade;

use std::net::IpAddr;

use anyhow::{Result, ensure};

use self::lab::Lab;
use self::machine::{Machine, Pod, cilium};
use crate::support::agent::Release;
use crate::support::control_plane::Options;
use crate::support::families::Family;
use crate::support::rig::{Rig, under_oracle};

/// Flags of a controller that asks agents which addresses they use as often as these report it.
const FLAGS: &[&str] = &["--usage-query-interval", "5s"];

/// More pods than a /28 has addresses. The agent itself uses two.
const MORE_THAN_ONE_BLOCK: usize = 16;

/// The IPv4 address of a pod.
fn address(pod: &Pod) -> Result<IpAddr> {
    pod.address(Family::V4)
}

/// Fails unless the first ping from this machine to each pod is answered, by all of its addresses.
async fn reach(rig: &Rig, from: &Machine, pods: &[&Pod]) -> Result<()> {
    for pod in pods {
        for address in &pod.addresses {
            let ping = from.ping(rig, &format!("{} to {}", from.name, pod.name), *address).await?;
            let tally = ping.finish(rig).await?;
            ensure!(tally.lost == 0, "{tally}");
        }
    }
    Ok(())
}

/// Runs a test with a lab, under the oracle. The lab disappears with the test, and the test fails if it does not.
async fn with_lab<T>(options: Options, test: impl AsyncFnOnce(&Rig, &mut Lab) -> Result<T>) -> Result<()> {
    with_lab_of(&[Release::Newest], options, test).await
}

/// As [`with_lab`], with the CRDs of these versions, the newest last.
async fn with_lab_of<T>(
    releases: &[Release],
    mut options: Options,
    test: impl AsyncFnOnce(&Rig, &mut Lab) -> Result<T>,
) -> Result<()> {
    options.crds.extend(releases.iter().map(|release| cilium(*release).join("crds")));
    let mut remains = None;
    let outcome = under_oracle(options, async |rig| {
        let mut lab = Lab::start(rig).await?;
        remains = Some(lab.remains()?);
        let kept = test(rig, &mut lab).await?;
        Ok((kept, lab))
    })
    .await;
    // Also after a failure.
    if let Some(remains) = remains {
        remains.wait_none().await?;
    }
    outcome
}
