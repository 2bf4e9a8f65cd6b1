//! Three replicas behind a proxy each. The leader is killed every few seconds, others are killed, halted, or see nothing
//! new for a while.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::time::{Instant, sleep};

use crate::summary::Summary;
use crate::support::bookkeeping;
use crate::support::control_plane::ControlPlane;
use crate::support::controller::{Controller, ELECTED};
use crate::support::objects::Kind;
use crate::support::proxy::{Planted, Proxy};
use crate::support::rig::Rig;
use crate::world::Over;
use crate::{faults, support};

/// Their number.
const REPLICAS: usize = 3;

/// A lease that is long beside the pauses of a busy machine, and short beside the time between two kills.
const FLAGS: [&str; 11] = [
    ELECTED,
    "--lease-duration",
    "4s",
    "--renew-deadline",
    "3s",
    "--retry-period",
    "500ms",
    "--request-timeout",
    "2s",
    "--min-write-interval",
    "1s",
];

/// How long a replica may take to become ready when nothing disturbs it.
const CALM: Duration = Duration::from_secs(120);

/// The logs of replicas that were killed, kept for a failure.
const KEPT_LOGS: usize = 12;

/// The time until the next disturbance. A drain takes many seconds, so that some pauses are long.
fn pause(rng: &mut fastrand::Rng) -> Duration {
    Duration::from_millis(if rng.u8(..12) == 0 { rng.u64(20_000..60_000) } else { rng.u64(1000..5000) })
}

/// The replicas of one cluster.
pub(crate) struct Replicas<'a> {
    plane: &'a ControlPlane,
    summary: &'a Summary,
    each: Vec<(Controller, Proxy)>,
    flags: Vec<String>,
    planted: Vec<Planted>,
    old_logs: std::collections::VecDeque<std::path::PathBuf>,
}

impl<'a> Replicas<'a> {
    /// Starts them, and waits until they are ready.
    pub(crate) async fn start(rig: &'a Rig, more: &[&str], summary: &'a Summary) -> Result<Self> {
        let flags: Vec<String> = FLAGS.iter().chain(more).map(|flag| (*flag).to_owned()).collect();
        let mut replicas = Self {
            plane: &rig.control_plane,
            summary,
            each: Vec::new(),
            flags,
            planted: Vec::new(),
            old_logs: std::collections::VecDeque::new(),
        };
        for _ in 0..REPLICAS {
            let proxy = Proxy::start(&rig.control_plane, rig.cluster.bell.clone()).await?;
            proxy.keep_counts_only();
            let mut controller = replicas.begin(&proxy)?;
            rig.control_plane.alarm.over(controller.wait_ready()).await?;
            replicas.each.push((controller, proxy));
        }
        Ok(replicas)
    }

    fn begin(&self, proxy: &Proxy) -> Result<Controller> {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        Controller::start_behind(self.plane, proxy, &flags)
    }

    /// Disturbs them until the chaos is over.
    pub(crate) async fn suffer(&mut self, over: &Over, mut rng: fastrand::Rng) -> Result<()> {
        self.planted = self.each.iter().flat_map(|(_, proxy)| faults::plant(proxy)).collect();
        while !over.within(pause(&mut rng)).await {
            self.restart_those_that_have_exited()?;
            let any = rng.usize(..REPLICAS);
            match rng.u8(..10) {
                0..5 => match self.leader().await {
                    Some(leader) => self.kill(leader, "replica: leader killed").await?,
                    None => self.summary.count("replica: no leader at a look"),
                },
                5 => self.kill(any, "replica: any killed").await?,
                6..8 => {
                    let one = self.leader().await.filter(|_| rng.bool()).unwrap_or(any);
                    let controller = &self.each[one].0;
                    controller.signal("STOP").await?;
                    // Sometimes longer than its lease.
                    sleep(Duration::from_millis(rng.u64(100..9000))).await;
                    controller.signal("CONT").await?;
                    self.summary.count("replica: halted and continued");
                }
                _ => {
                    let proxy = &self.each[any].1;
                    let held: Vec<_> =
                        Kind::ALL.into_iter().filter(|_| rng.bool()).map(|kind| proxy.hold(kind)).collect();
                    sleep(Duration::from_millis(rng.u64(100..6000))).await;
                    drop(held);
                    self.summary.count("replica: watches held");
                }
            }
        }
        Ok(())
    }

    /// Removes all faults, and waits until every replica is ready and one of them leads.
    pub(crate) async fn recover(&mut self) -> Result<()> {
        faults::tally(&self.planted, self.summary);
        self.planted.clear();
        self.restart_those_that_have_exited()?;
        let alarm = self.plane.alarm.clone();
        for (controller, _) in &mut self.each {
            alarm.over(controller.wait_ready()).await?;
        }
        let limit = Instant::now() + CALM;
        while self.leader().await.is_none() {
            ensure!(Instant::now() < limit, "no replica leads {CALM:?} after the last fault");
            // No event announces a leader.
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// The replica that says of itself that it leads.
    async fn leader(&self) -> Option<usize> {
        for (number, (controller, _)) in self.each.iter().enumerate() {
            let metrics = controller.get("/metrics").await;
            if metrics.is_ok_and(|(_, metrics)| metrics.contains("\ncilium_node_ipam_leader 1\n")) {
                return Some(number);
            }
        }
        None
    }

    async fn kill(&mut self, number: usize, what: &str) -> Result<()> {
        let next = self.begin(&self.each[number].1)?;
        let killed = std::mem::replace(&mut self.each[number].0, next);
        let log = killed.log().to_owned();
        killed.sigkill().await?;
        self.summary.count(what);
        self.retire(log)
    }

    /// A replica that exits is started again, as kubelet does.
    fn restart_those_that_have_exited(&mut self) -> Result<()> {
        for number in 0..self.each.len() {
            if self.each[number].0.has_exited()?.is_none() {
                continue;
            }
            let next = self.begin(&self.each[number].1)?;
            let exited = std::mem::replace(&mut self.each[number].0, next);
            let log = exited.log().to_owned();
            eprintln!("a replica has exited by itself:\n{}", support::tails::tail(&log));
            self.summary.count("replica: exited by itself");
            self.retire(log)?;
        }
        Ok(())
    }

    /// Reads the logs, and removes the oldest of those that are complete.
    fn retire(&mut self, log: std::path::PathBuf) -> Result<()> {
        bookkeeping::assert_unbroken(self.plane.dir())?;
        self.old_logs.push_back(log);
        while self.old_logs.len() > KEPT_LOGS {
            let oldest = self.old_logs.pop_front().context("there is one")?;
            std::fs::remove_file(oldest)?;
        }
        Ok(())
    }
}
