//! One cluster in one mode of Cilium: its chaos, and the judgement at the end.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::faults;
use crate::machine::{Machine, wait_ready, workloads};
use crate::replicas::Replicas;
use crate::summary::Summary;
use crate::support::agent::FakeAgent;
use crate::support::control_plane::Options;
use crate::support::controller::command;
use crate::support::eventually::eventually;
use crate::support::gobgp_daemon::Daemon;
use crate::support::kubelet;
use crate::support::objects::{Kind, PoolSpec};
use crate::support::preparation::prepare;
use crate::support::rig::Rig;
use crate::support::views::Claim;

/// The prefix length of a block.
const BLOCK_SIZE: u8 = 28;

/// Two ranges with 8,192 blocks each, so that no node waits for a block of another one.
const RANGES: [&str; 2] = ["10.64.0.0/15", "10.66.0.0/15"];

/// How long a claim may be Releasing. The leader is killed every few seconds, and servers are away.
const RELEASING: Duration = Duration::from_secs(600);

/// How long a calm cluster may take until it has converged: each node may have a drain that must be finished or given
/// up, and the address of a router's daemon.
const CONVERGED: Duration = Duration::from_secs(900);

/// Whether the chaos is over. Clones are one.
#[derive(Clone)]
pub(crate) struct Over(watch::Sender<bool>);

impl Over {
    fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    fn declare(&self) {
        self.0.send_replace(true);
    }

    /// Waits for this time. Returns early, with true, when the chaos is over.
    pub(crate) async fn within(&self, time: Duration) -> bool {
        timeout(time, self.0.subscribe().wait_for(|over| *over)).await.is_ok()
    }
}

/// A cluster.
pub(crate) struct World {
    pub(crate) rig: Rig,
    summary: Summary,
}

impl World {
    pub(crate) async fn start(mode: &'static str, summary: Summary) -> Result<Self> {
        let rig = Rig::start(Options { ipam: mode, ..Options::default() }).await?;
        rig.control_plane.limit_releasing(RELEASING).await?;
        rig.control_plane.judge_at_answers().await?;
        prepare(&rig, BLOCK_SIZE).await?;
        let pool = PoolSpec::new("p").select("zone", "a").ipv4(BLOCK_SIZE, &RANGES);
        let pool = pool.with("reuseAfterNodeLoss", "10s").with("reuseAfter", "5s");
        let reclaim = json!({"mode": "Enabled", "usedBelow": 80, "after": "1s"});
        let pool = pool.with("reclaim", reclaim).with("expand", json!({"usedAbove": 90, "freeBelow": 2}));
        rig.cluster.create_pool(&pool).await?;
        let seen = summary.clone();
        rig.cluster.cache().subscribe(Box::new(move |kind, _, object| {
            if let (Kind::Block, Some(object)) = (kind, object) {
                seen.count(&format!("claim seen {}", Claim::of(object).state));
            }
        }));
        Ok(Self { rig, summary })
    }

    /// The chaos, and then the final checks.
    pub(crate) async fn run(&self, n_nodes: usize, length: Duration, seed: u64) -> Result<()> {
        let over = Over::new();
        let mut rng = fastrand::Rng::with_seed(seed);
        let folder = tempfile::tempdir()?;
        let daemon = Daemon::start(folder.path()).await?;
        let address = daemon.address.clone();
        let exports = ["--routes", "gobgp", "--gobgp-address", &address];
        let more = [exports.as_slice(), &["--usage-query-interval", "5s"]].concat();
        let mut replicas = Replicas::start(&self.rig, &more, &self.summary).await?;
        let machines = (0..n_nodes).map(|number| {
            let name = format!("n{number:04}");
            Machine::new(&self.rig, &self.summary, name, rng.fork()).live(&over)
        });
        let machines: Vec<_> = machines.collect();
        let plane = &self.rig.control_plane;
        let time = async {
            over.within(length).await;
            over.declare();
            Ok(())
        };
        let chaos = async {
            tokio::try_join!(
                time,
                replicas.suffer(&over, rng.fork()),
                self.drain_ranges(&over, rng.fork()),
                faults::disturb_servers(plane, &over, rng.fork(), &self.summary),
                faults::disturb_daemon(daemon, &over, rng.fork(), &self.summary),
                try_join_all(machines),
            )
        };
        let ((), (), (), (), daemon, mut agents) = plane.alarm.over(Box::pin(chaos)).await?;
        let calm = Instant::now();
        eprintln!("{}: the chaos is over", plane.options.ipam);
        replicas.recover().await?;
        self.settle(&mut agents).await?;
        self.rig.assert_settled().await?;
        self.assert_routes(&address).await?;
        self.summary.add("converged after, in seconds", calm.elapsed().as_secs());
        drop(daemon);
        self.report().await
    }

    /// An administrator gives one range back, and then the other one, until the chaos is over.
    async fn drain_ranges(&self, over: &Over, mut rng: fastrand::Rng) -> Result<()> {
        while !over.within(Duration::from_millis(rng.u64(30_000..120_000))).await {
            let draining = rng.usize(..=RANGES.len());
            // It fails while the server is away.
            if self.set_ranges(Some(draining)).await.is_ok() {
                self.summary.count("pool: a range drains, or none");
            }
        }
        Ok(())
    }

    async fn set_ranges(&self, draining: Option<usize>) -> Result<()> {
        let cidrs = RANGES.iter().enumerate().map(|(number, range)| {
            let state = if draining == Some(number) { "Draining" } else { "Active" };
            json!({"cidr": range, "state": state})
        });
        let cidrs: Vec<_> = cidrs.collect();
        self.rig.cluster.patch_pool("p", json!({"ipv4": {"cidrs": cidrs}})).await.map(drop)
    }

    /// Waits until every agent serves pods, and no claim is half done.
    async fn settle(&self, agents: &mut [FakeAgent]) -> Result<()> {
        for agent in agents.iter_mut() {
            wait_ready(&self.rig, &self.summary, agent).await?;
        }
        self.set_ranges(None).await?;
        // A node that needs less than it has would start another drain.
        self.rig.cluster.patch_pool("p", json!({"reclaim": {"mode": "DryRun"}})).await?;
        let workloads = workloads(&self.rig);
        for agent in agents.iter() {
            let owner = "ns/last";
            kubelet::create_bound(&workloads, &format!("{}-last", agent.name()), agent.name()).await?;
            let started = async || Ok(agent.allocate(owner).is_ok());
            self.rig
                .cluster
                .wait_until(&format!("one more pod on {}", agent.name()), CONVERGED, started)
                .await?;
        }
        let unsettled = || {
            let claims: Vec<Claim> =
                self.rig.cluster.objects(Kind::Block).iter().map(|block| Claim::of(block)).collect();
            let is_published = |claim: &Claim| {
                let node = self.rig.cluster.published(&claim.node);
                node.is_some_and(|node| node.pod_cidrs.contains(&claim.cidr))
            };
            claims
                .into_iter()
                .filter(|claim| claim.state != "Held" || !is_published(claim))
                .collect::<Vec<_>>()
        };
        let settled = async || Ok(unsettled().is_empty());
        let waited = self
            .rig
            .cluster
            .wait_until("every claim to be held and published, or deleted", CONVERGED, settled)
            .await;
        waited.with_context(|| format!("these are neither: {:#?}", unsettled()))
    }

    /// The daemon has just the routes of the claims, by the product's own comparison.
    async fn assert_routes(&self, address: &str) -> Result<()> {
        eventually(CONVERGED, async || {
            let mut compare = command(&self.rig.control_plane.controller_kubeconfig);
            compare.args(["routes", "--compare", "--gobgp-address", address]);
            let output = compare.output().await?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(
                output.status.success(),
                "{}: {said}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(())
        })
        .await
    }

    async fn report(&self) -> Result<()> {
        let report = self.rig.control_plane.oracle().await?;
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        self.summary.add("oracle: versions of claims and CiliumNodes judged", u64::try_from(report.events)?);
        self.summary.add("oracle: revision of the store", u64::try_from(report.revision)?);
        self.summary.add("oracle: claims at the end", number(report.claims));
        self.summary.add("oracle: violations", number(report.violations_total.max(report.violations.len())));
        ensure!(report.violations.is_empty(), "{:?}", report.violations);
        Ok(())
    }
}
