//! A complete test bench, and the final checks of every test on a real API server.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;

use super::agent::{AgentHost, Settings};
use super::cluster::Cluster;
use super::control_plane::{ControlPlane, Options};
use super::holdings::Holdings;
use super::objects::Kind;
use super::views::Claim;
use super::{bookkeeping, controller};

/// How long the last writes of the controller may take after a test has seen its result.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Control plane, cluster, holdings and agents, all under one alarm. Controllers are started by the test.
pub(crate) struct Rig {
    // Dropped in this order: the agents first, the servers last.
    pub(crate) agents: AgentHost,
    pub(crate) holdings: Holdings,
    pub(crate) cluster: Cluster,
    tasks: JoinSet<()>,
    excused: Mutex<BTreeSet<String>>,
    pub(crate) control_plane: ControlPlane,
}

impl Rig {
    /// On its own servers, which exit with it.
    pub(crate) async fn start(options: Options) -> Result<Self> {
        Self::on(ControlPlane::start(options).await?).await
    }

    /// On servers that an earlier and a later test may use too.
    async fn borrow(options: Options) -> Result<Self> {
        Self::on(ControlPlane::borrow(options).await?).await
    }

    async fn on(control_plane: ControlPlane) -> Result<Self> {
        let families = control_plane.options.families;
        let alarm = control_plane.alarm.clone();
        let mut cluster = Cluster::start(control_plane.admin.clone(), families, alarm.clone()).await?;
        cluster.ipam = control_plane.options.ipam;
        let mut tasks = JoinSet::new();
        let holdings = Holdings::new(alarm, cluster.bell.clone(), control_plane.speaker(), &mut tasks);
        let agents = AgentHost::new(
            &control_plane,
            &cluster,
            holdings.clone(),
            Settings {
                ipam: control_plane.options.ipam,
                annotate: control_plane.options.annotations,
                ..Settings::of(families)
            },
        );
        Ok(Self { agents, holdings, cluster, tasks, excused: Mutex::default(), control_plane })
    }

    /// Notes that `node` is selected but need not be served at the end, because the test has used up the addresses.
    pub(crate) fn excuse(&self, node: &str) {
        self.excused.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned());
    }

    /// Fails if the oracle, an agent or the holdings object to anything that was written so far.
    pub(crate) async fn assert_clean(&self) -> Result<()> {
        self.holdings.caught_up().await?;
        self.control_plane.assert_clean().await
    }

    /// The final checks. All selected nodes are served, and no block is left between two states. A fresh controller
    /// would write nothing, a running one agrees with the objects, and there are no findings.
    pub(crate) async fn assert_settled(&self) -> Result<()> {
        let excused = self.excused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.cluster.wait_served(SETTLE_TIMEOUT, &excused).await?;
        // The oracle judges a claim that was Releasing for too long when its state changes. This finds one that stays
        // so.
        let left =
            || self.cluster.objects(Kind::Block).iter().any(|block| Claim::of(block).state == "Releasing");
        self.cluster.wait_until("no claim to be Releasing", SETTLE_TIMEOUT, async || Ok(!left())).await?;
        let limit = tokio::time::Instant::now() + SETTLE_TIMEOUT;
        // A controller may be about to write the proposals. A dry run is a complete start, so no pause is needed.
        while !controller::dry_run(&self.control_plane).await?.is_empty() {
            if tokio::time::Instant::now() > limit {
                let pools = self.cluster.objects(Kind::Pool);
                let statuses: Vec<String> =
                    pools.iter().map(|pool| pool.data["status"].to_string()).collect();
                let settled = controller::assert_no_writes_proposed(&self.control_plane).await;
                settled.with_context(|| format!("the pools say:\n{}", statuses.join("\n")))?;
            }
        }
        bookkeeping::wait_agreement(self.control_plane.dir(), &self.cluster, SETTLE_TIMEOUT).await?;
        self.assert_clean().await
    }
}

/// Runs `test` on a fresh rig, and then the final checks ([`Rig::assert_settled`]). The result of the test lives until
/// then; it may hold a controller that still has writes to do. On failure the last lines of all logs are printed.
/// Nothing is kept.
pub(crate) async fn under_oracle<T>(
    options: Options,
    test: impl AsyncFnOnce(&Rig) -> Result<T>,
) -> Result<()> {
    run(options, test, async |rig: &Rig| rig.assert_settled().await).await
}

/// As [`under_oracle`], for tests with several replicas and no election. They may undo each other's work without end. A
/// block that one of them claimed and did not publish may keep a node waiting. So the final checks ask for safety
/// alone: there are no findings, and no controller has found its bookkeeping broken.
pub(crate) async fn judged_for_safety<T>(
    options: Options,
    test: impl AsyncFnOnce(&Rig) -> Result<T>,
) -> Result<()> {
    run(options, test, async |rig: &Rig| {
        bookkeeping::assert_unbroken(rig.control_plane.dir())?;
        rig.assert_clean().await
    })
    .await
}

/// As [`under_oracle`], for tests without the product: at the end there must be no findings.
pub(crate) async fn without_product(
    options: Options,
    test: impl AsyncFnOnce(&Rig) -> Result<()>,
) -> Result<()> {
    run(options, test, async |rig: &Rig| rig.assert_clean().await).await
}

async fn run<T>(
    options: Options,
    test: impl AsyncFnOnce(&Rig) -> Result<T>,
    ending: impl AsyncFnOnce(&Rig) -> Result<()>,
) -> Result<()> {
    let rig = Rig::borrow(options).await?;
    let mut tails = TailsOnPanic(&rig.control_plane, true);
    let outcome = match test(&rig).await {
        Ok(_kept) => ending(&rig).await,
        Err(error) => Err(error),
    };
    tails.1 = outcome.is_err();
    if outcome.is_err() {
        rig.control_plane.keep_to_this_test();
    }
    outcome
}

/// Prints the logs when it is dropped, on an error and when the test panics. A success disables it.
struct TailsOnPanic<'a>(&'a ControlPlane, bool);

impl Drop for TailsOnPanic<'_> {
    fn drop(&mut self) {
        if self.1 {
            self.0.print_tails();
        }
    }
}
