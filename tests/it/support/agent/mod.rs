//! Agents: the part of each node of a Cilium cluster that gives out addresses.
//!
//! There are two kinds. [`FakeAgent`] imitates the agent, thousands in one process. [`RealAgent`] is Cilium's own code,
//! one process each. A script written for [`Agent`] runs on both, and `agents.rs` compares them. Every address that an
//! agent gives out is written to the [`Holdings`](super::holdings::Holdings).

mod allocator;
mod discovery;
mod fake;
mod fixed;
mod host;
mod ipam;
mod pools;
mod range;
mod real;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::families::{Families, Family};

pub(crate) use fake::FakeAgent;
pub(crate) use host::{AgentHost, Make};
pub(crate) use real::RealAgent;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) families: Families,
    /// The mode, as `ipam` of `cilium-config` names it.
    pub(crate) ipam: &'static str,
    /// The Cilium pool for pods that ask for none, as `ipam-default-ip-pool` names it; in mode multi-pool.
    pub(crate) default_pool: &'static str,
    /// Whether the agent annotates its Node, and reads the annotations of other writers; in mode kubernetes.
    pub(crate) annotate: bool,
    /// Cilium's own agents only: the agent version.
    pub(crate) release: Release,
    /// Whether the health endpoint has addresses.
    pub(crate) health: bool,
    /// Whether Cilium's ingress has addresses.
    pub(crate) ingress: bool,
    /// The minimum time between two writes of `status.ipam.used`. Cilium's default is 15 s, the harness's is 1 s.
    pub(crate) update_rate: Duration,
    /// Imitations only: the interval in which a starting agent looks for its pool. Cilium's agent does so each 5 s.
    /// `None` means at each change, which spares a test the wait and a cluster nothing.
    pub(crate) poll: Option<Duration>,
    /// Imitations only: the seed for the choice of addresses, beside the node's name.
    pub(crate) seed: u64,
    /// Cilium's own agents only: the kubeconfig by which it finds a server that is not the usual one, such as a proxy.
    pub(crate) server: Option<PathBuf>,
    /// Whether the test fails if a pod's address could not be restored.
    pub(crate) losses: Losses,
    /// Imitations only: whether the test fails if the agent gives up, as it does after ten writes that failed.
    pub(crate) gives_up: GivesUp,
}

/// A version of Cilium whose agent is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Of the first minor version that is supported in mode crd.
    Oldest,
    /// The first whose agents are served in mode multi-pool, and without CiliumPodIPPools.
    V1_17,
    Newest,
}

impl Release {
    /// As the tag of an image names it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Oldest => "1.14.19",
            Self::V1_17 => "1.17.8",
            Self::Newest => "1.20.2",
        }
    }
}

/// Whether the test fails if a pod has lost its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Losses {
    /// The test has failed.
    Alarm,
    /// The test causes it.
    Expected,
}

/// Whether the test fails if an agent gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivesUp {
    /// The test has failed.
    Alarm,
    /// The test takes servers away for longer than agents try, and starts the agent again.
    Expected,
}

impl Settings {
    /// The harness's defaults for agents of these families.
    pub(crate) fn of(families: Families) -> Self {
        Self {
            families,
            ipam: "crd",
            default_pool: "default",
            annotate: false,
            release: Release::Newest,
            health: true,
            ingress: false,
            update_rate: Duration::from_secs(1),
            poll: None,
            seed: 1,
            server: None,
            losses: Losses::Alarm,
            gives_up: GivesUp::Alarm,
        }
    }
}

/// At most one address per family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) ipv4: Option<IpAddr>,
    pub(crate) ipv6: Option<IpAddr>,
}

impl Addresses {
    pub(crate) fn of(self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.ipv4,
            Family::V6 => self.ipv6,
        }
    }

    pub(crate) fn set(&mut self, family: Family, address: Option<IpAddr>) {
        match family {
            Family::V4 => self.ipv4 = address,
            Family::V6 => self.ipv6 = address,
        }
    }

    /// The addresses, IPv6 first.
    pub(crate) fn each(self) -> impl Iterator<Item = IpAddr> {
        [self.ipv6, self.ipv4].into_iter().flatten()
    }
}

/// The report of an agent that has started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Started {
    pub(crate) router: Addresses,
    pub(crate) health: Addresses,
    pub(crate) ingress: Addresses,
    /// The pods whose addresses could not be restored, and why.
    pub(crate) lost: BTreeMap<String, String>,
}

/// The outcome of a request for many addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filled {
    /// Owner and addresses, in the order of the request.
    pub(crate) allocated: Vec<(String, Addresses)>,
    /// The reason why it stopped early.
    pub(crate) error: Option<String>,
}

/// An agent of either kind.
pub(crate) enum Agent {
    Fake(FakeAgent),
    Real(Box<RealAgent>),
}

impl Agent {
    /// Starts it. It creates its CiliumNode and waits for addresses; see [`Agent::wait_ready`]. Pods that had addresses
    /// when it was stopped are restored.
    pub(crate) fn start(&mut self) -> Result<()> {
        match self {
            Self::Fake(agent) => agent.start(),
            Self::Real(agent) => agent.start(),
        }
    }

    /// Returns when it has its own addresses and serves pods. A start that fails is an error.
    pub(crate) async fn wait_ready(&mut self, deadline: Duration) -> Result<Started> {
        match self {
            Self::Fake(agent) => agent.wait_ready(deadline).await,
            Self::Real(agent) => agent.wait_ready(deadline).await,
        }
    }

    /// An address of every family for a pod, or for none.
    pub(crate) async fn allocate(&self, owner: &str) -> Result<Addresses> {
        match self {
            Self::Fake(agent) => agent.allocate(owner),
            Self::Real(agent) => agent.allocate(owner).await,
        }
    }

    /// An address of every family from this Cilium pool, where the agent is Cilium's own.
    pub(crate) async fn allocate_from(&self, pool: &str, owner: &str) -> Result<Addresses> {
        match self {
            Self::Fake(_) => bail!("an imitation has one pool"),
            Self::Real(agent) => agent.allocate_from(pool, owner).await,
        }
    }

    /// Addresses for the pods `prefix0`, `prefix1`, …, up to the first failure.
    pub(crate) async fn allocate_many(&self, prefix: &str, count: usize) -> Result<Filled> {
        match self {
            Self::Fake(agent) => Ok(agent.allocate_many(prefix, count)),
            Self::Real(agent) => agent.allocate_many(prefix, count).await,
        }
    }

    /// Takes the addresses of a pod back.
    pub(crate) async fn release(&self, owner: &str) -> Result<()> {
        match self {
            Self::Fake(agent) => agent.release(owner),
            Self::Real(agent) => agent.release(owner).await,
        }
    }

    /// Writes the CiliumNode once more, as after any change of the Node.
    pub(crate) async fn touch_node(&self) -> Result<()> {
        match self {
            Self::Fake(agent) => agent.touch_node().await,
            Self::Real(agent) => agent.touch_node().await,
        }
    }

    /// Stops the agent's process; its pods keep their addresses.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        match self {
            Self::Fake(agent) => agent.stop().await,
            Self::Real(agent) => agent.stop().await?,
        }
        Ok(())
    }

    /// Loses the machine with its pods.
    pub(crate) async fn power_off(self) -> Result<()> {
        match self {
            Self::Fake(agent) => agent.power_off().await,
            Self::Real(agent) => agent.power_off().await?,
        }
        Ok(())
    }

    /// Halts the process of a real agent (`STOP`) or continues it (`CONT`). An imitation has none.
    pub(crate) async fn signal(&self, signal: &str) -> Result<()> {
        match self {
            Self::Fake(agent) => bail!("{} is no process", agent.name()),
            Self::Real(agent) => agent.signal(signal).await,
        }
    }

    /// Sets the mode from its next start on, where the agent is Cilium's own.
    pub(crate) fn change_mode(&mut self, ipam: &'static str) -> Result<()> {
        match self {
            Self::Fake(_) => bail!("an imitation keeps its mode"),
            Self::Real(agent) => agent.change_mode(ipam),
        }
        Ok(())
    }

    /// Sets the default Cilium pool from its next start on, where the agent is Cilium's own.
    pub(crate) fn change_default_pool(&mut self, name: &'static str) -> Result<()> {
        match self {
            Self::Fake(_) => bail!("an imitation has no pool of another name"),
            Self::Real(agent) => agent.change_default_pool(name),
        }
        Ok(())
    }

    /// Stops and starts it, and returns when it serves pods again.
    pub(crate) async fn restart(&mut self, deadline: Duration) -> Result<Started> {
        self.stop().await?;
        self.start()?;
        self.wait_ready(deadline).await
    }

    /// The same. A pod that is not restored is an error.
    pub(crate) async fn restart_and_restore(&mut self, deadline: Duration) -> Result<()> {
        let again = self.restart(deadline).await?;
        ensure!(again.lost.is_empty(), "not restored: {:?}", again.lost);
        Ok(())
    }

    /// Every address that it has given out, with its owner as Cilium writes it.
    pub(crate) async fn held(&self) -> Result<BTreeMap<IpAddr, String>> {
        match self {
            Self::Fake(agent) => Ok(agent.held()),
            Self::Real(agent) => agent.held().await,
        }
    }
}

/// The text that restored addresses have after the name of their pod. Old agents put no space between the two.
const RESTORED: &str = " [restored]";

/// The owner without the text that a restart adds.
pub(crate) fn plain(owner: &str) -> &str {
    owner.strip_suffix(RESTORED.trim_start()).map_or(owner, str::trim_end)
}
