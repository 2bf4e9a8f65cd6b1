//! Several replicas and one Lease. One replica leads and writes, and the others are on standby. One of them takes over
//! when the leader exits, is killed, stopped or cut off, or when a user edits the Lease.
//!
//! The judge is a log of all writes, in the order in which the proxies before the replicas see them. Only the last
//! winner of the Lease may write anything else.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::control_plane::Options;
use crate::support::controller::{Controller, ELECTED};
use crate::support::eventually::eventually;
use crate::support::fleet::Fleet;
use crate::support::objects::PoolSpec;
use crate::support::proxy::{Fault, Often, Proxy, Requests};
use crate::support::rig::{Rig, under_oracle};

/// For each wait, on a machine that may be busy with other tests.
const SOON: Duration = Duration::from_secs(90);

/// Shorter than the defaults, and long beside the pauses of a busy machine.
const TIMES: [&str; 7] =
    [ELECTED, "--lease-duration", "6s", "--renew-deadline", "4s", "--retry-period", "1s"];

/// [`TIMES`], or the defaults for a measurement (`make takeover`).
fn times() -> &'static [&'static str] {
    if std::env::var_os("DEFAULT_LEASE_TIMES").is_some() { &TIMES[..1] } else { &TIMES }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_replicas_one_writes_whatever_becomes_of_the_leader() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let mut nodes = Nodes::start(rig).await?;
        let mut replicas = Replicas::start(rig, 3, times()).await?;
        nodes.join("the first leader").await?;

        let leader = replicas.leader().await?;
        let began = Instant::now();
        ensure!(replicas.stop(leader).await?, "a clean stop fails");
        nodes.join_since(began, "SIGTERM of the leader").await?;
        replicas.start_one(times()).await?;

        let leader = replicas.leader().await?;
        replicas.kill(leader).await?;
        nodes.join("SIGKILL of the leader").await?;
        replicas.start_one(times()).await?;

        // It is halted for longer than its lease. Its later writes are judged at the end.
        let leader = replicas.leader().await?;
        replicas.signal(leader, "STOP").await?;
        nodes.join("SIGSTOP of the leader").await?;
        replicas.signal(leader, "CONT").await?;
        replicas.wait_standby(leader).await?;
        nodes.join("SIGCONT of the former leader").await?;

        let leader = replicas.leader().await?;
        let cut = replicas.proxy(leader)?.plant(Requests::all(), Fault::CutBefore, Often::Always);
        nodes.join("the leader is cut off").await?;
        drop(cut);
        replicas.wait_standby(leader).await?;

        leases(rig).delete("cilium-node-ipam", &DeleteParams::default()).await?;
        nodes.join("the Lease is deleted").await?;
        replicas.leader().await?;

        let longer = json!({"spec": {"holderIdentity": "by-hand", "leaseDurationSeconds": 10}});
        let edited = Instant::now();
        leases(rig).patch("cilium-node-ipam", &PatchParams::default(), &Patch::Merge(longer)).await?;
        replicas.wait_held_by("by-hand").await?;
        nodes.join("another holder is written into the Lease").await?;
        ensure!(edited.elapsed() >= Duration::from_secs(10), "its duration was not honoured");

        let leader = replicas.leader().await?;
        let nobody = json!({"spec": {"holderIdentity": null}});
        leases(rig).patch("cilium-node-ipam", &PatchParams::default(), &Patch::Merge(nobody)).await?;
        nodes.join("nobody is written into the Lease").await?;
        ensure!(replicas.lives(leader), "it has ended");
        replicas.assert_one_writer()?;
        Ok(replicas.replicas)
    })
    .await
}

/// A server that answers late for a minute costs the leader its lead, and no process exits. A replica that tries to write
/// the Lease says for how long it can't, and that the answers are slow.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_come_too_late_end_leads_and_no_process() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let mut nodes = Nodes::start(rig).await?;
        let replicas = Replicas::start(rig, 2, &[ELECTED]).await?;
        nodes.join("the first leader").await?;
        let late = replicas.plant_all(Fault::SlowAnswer(Duration::from_secs(8)));
        let until = tokio::time::Instant::now() + Duration::from_secs(60);
        nodes.fleet.join(&Fleet::names(50..53)).await?;
        replicas.wait_says("the Lease can't be written for ", "; answers of the API server take 8 s").await?;
        // The time is the length of the outage.
        tokio::time::sleep_until(until).await;
        drop(late);
        nodes.fleet.wait_ready(SOON).await?;
        for replica in [0, 1] {
            ensure!(replicas.lives(replica), "it has ended");
        }
        replicas.leader().await?;
        replicas.assert_one_writer()?;
        Ok(replicas.replicas)
    })
    .await
}

/// While another process holds the Lease, for example another installation, both replicas write nothing. They wait
/// until the holder was silent for its own duration.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_stand_by_while_another_holds_the_lease_and_say_who() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let held = json!({
            "metadata": {"name": "cilium-node-ipam"},
            "spec": {"holderIdentity": "other-installation_7", "leaseDurationSeconds": 20},
        });
        let held: Lease = serde_json::from_value(held)?;
        leases(rig).create(&PostParams::default(), &held).await?;
        let began = Instant::now();
        let mut nodes = Nodes::start(rig).await?;
        let replicas = Replicas::start(rig, 2, &TIMES).await?;
        for replica in [0, 1] {
            replicas.wait_readyz(replica, "ok\nstandby: other-installation leads\n").await?;
            let (_, metrics) = replicas.get(replica, "/metrics").await?;
            ensure!(metrics.contains("\ncilium_node_ipam_leader 0\n"), "{metrics}");
        }
        nodes.join("the other installation has ended").await?;
        ensure!(began.elapsed() >= Duration::from_secs(20), "its duration was not honoured");
        let leader = replicas.leader().await?;
        let (_, metrics) = replicas.get(leader, "/metrics").await?;
        ensure!(metrics.contains("\ncilium_node_ipam_leader 1\n"), "{metrics}");
        replicas.assert_one_writer()?;
        Ok(replicas.replicas)
    })
    .await
}

fn leases(rig: &Rig) -> Api<Lease> {
    Api::namespaced(rig.control_plane.admin.clone(), "kube-system")
}

/// Nodes that join one after another.
struct Nodes<'a> {
    fleet: Fleet<'a>,
    n_joined: usize,
}

impl<'a> Nodes<'a> {
    async fn start(rig: &'a Rig) -> Result<Self> {
        let pool = PoolSpec::new("p").select("zone", "a").ipv4(28, &["10.1.0.0/20"]);
        rig.cluster.create_pool(&pool).await?;
        Ok(Self { fleet: Fleet::new(rig), n_joined: 0 })
    }

    /// Returns when a node that joins now has addresses.
    async fn join(&mut self, after: &str) -> Result<()> {
        self.join_since(Instant::now(), after).await
    }

    /// As [`Self::join`], measured from `began`.
    async fn join_since(&mut self, began: Instant, after: &str) -> Result<()> {
        self.fleet.join(&Fleet::names(self.n_joined..self.n_joined + 1)).await?;
        self.n_joined += 1;
        self.fleet.wait_ready(SOON).await.with_context(|| after.to_owned())?;
        eprintln!("{after}: a node that joins has addresses after {:?}", began.elapsed());
        Ok(())
    }
}

/// The replicas, each behind a proxy of its own. The proxy of a stopped one remains, with its log.
struct Replicas<'a> {
    rig: &'a Rig,
    replicas: Vec<(Option<Controller>, Proxy)>,
}

impl<'a> Replicas<'a> {
    async fn start(rig: &'a Rig, n_replicas: usize, flags: &[&str]) -> Result<Self> {
        let mut replicas = Self { rig, replicas: Vec::new() };
        for _ in 0..n_replicas {
            replicas.start_one(flags).await?;
        }
        Ok(replicas)
    }

    async fn start_one(&mut self, flags: &[&str]) -> Result<()> {
        let proxy = Proxy::start(&self.rig.control_plane, self.rig.cluster.bell.clone()).await?;
        let controller = Controller::start_ready_behind(&self.rig.control_plane, &proxy, flags).await?;
        self.replicas.push((Some(controller), proxy));
        Ok(())
    }

    fn controller(&self, replica: usize) -> Result<&Controller> {
        self.replicas[replica].0.as_ref().context("it has ended")
    }

    fn proxy(&self, replica: usize) -> Result<&Proxy> {
        Ok(&self.replicas.get(replica).context("no such replica")?.1)
    }

    fn plant_all(&self, fault: Fault) -> Vec<crate::support::proxy::Planted> {
        let plant = |(_, proxy): &(_, Proxy)| proxy.plant(Requests::all(), fault, Often::Always);
        self.replicas.iter().map(plant).collect()
    }

    async fn get(&self, replica: usize, path: &str) -> Result<(u16, String)> {
        self.controller(replica)?.get(path).await
    }

    /// Waits until one of the running replicas says that it leads.
    async fn leader(&self) -> Result<usize> {
        // A replica shows by `/readyz` that it leads, and does not announce it to a test.
        let look = async || {
            for (number, (controller, _)) in self.replicas.iter().enumerate() {
                if let Some(controller) = controller
                    && let Ok((200, text)) = controller.get("/readyz").await
                    && !text.contains("standby: ")
                {
                    return Ok(number);
                }
            }
            bail!("no replica leads")
        };
        eventually(SOON, look).await
    }

    /// Waits until `/readyz` of one of the replicas has a line with both texts.
    async fn wait_says(&self, this: &str, and: &str) -> Result<()> {
        eventually(SOON, async || {
            let mut answers = Vec::new();
            for replica in 0..self.replicas.len() {
                let (_, text) = self.get(replica, "/readyz").await?;
                if text.lines().any(|line| line.contains(this) && line.contains(and)) {
                    return Ok(());
                }
                answers.push(text);
            }
            bail!("no line with {this:?} and {and:?}: {answers:?}")
        })
        .await
    }

    async fn wait_readyz(&self, replica: usize, expected: &str) -> Result<()> {
        let look = |answer: &Result<(u16, String)>| {
            Ok(matches!(answer, Ok((200, text)) if text.starts_with(expected)))
        };
        self.controller(replica)?.wait_answer("/readyz", expected, SOON, look).await
    }

    async fn wait_standby(&self, replica: usize) -> Result<()> {
        self.wait_readyz(replica, "ok\nstandby: ").await
    }

    async fn wait_held_by(&self, name: &str) -> Result<()> {
        let line = format!("\nstandby: {name} leads\n");
        for number in 0..self.replicas.len() {
            if self.lives(number) {
                let look = |answer: &Result<(u16, String)>| {
                    Ok(matches!(answer, Ok((200, text)) if text.contains(&line)))
                };
                self.controller(number)?.wait_answer("/readyz", &line, SOON, look).await?;
            }
        }
        Ok(())
    }

    fn lives(&self, replica: usize) -> bool {
        self.replicas[replica].0.as_ref().is_some_and(|controller| controller.pid().is_some())
    }

    /// Asks it to exit as Kubernetes does. Returns whether it exited with success.
    async fn stop(&mut self, replica: usize) -> Result<bool> {
        let controller = self.replicas[replica].0.take().context("it has ended")?;
        Ok(controller.sigterm_and_wait().await?.success())
    }

    async fn kill(&mut self, replica: usize) -> Result<()> {
        self.replicas[replica].0.take().context("it has ended")?.sigkill().await
    }

    async fn signal(&self, replica: usize, signal: &str) -> Result<()> {
        self.controller(replica)?.signal(signal).await
    }

    /// Fails if a replica has sent a write and was not the last winner of the Lease.
    fn assert_one_writer(&self) -> Result<()> {
        let of_all = self.replicas.iter().enumerate().flat_map(|(number, (_, proxy))| {
            proxy.passing().changes.into_iter().map(move |change| (number, change))
        });
        let mut changes: Vec<_> = of_all.collect();
        changes.sort_by_key(|(_, change)| change.at);
        let (mut leader, mut n_wins, mut n_writes) = (None, 0, 0);
        for (number, change) in changes {
            if !change.path.contains("/leases") {
                ensure!(leader == Some(number), "{} of replica {number} while {leader:?} leads", change.path);
                n_writes += 1;
                continue;
            }
            if change.code.is_none_or(|code| code >= 300) {
                continue;
            }
            let lease: Value = serde_json::from_slice(&change.body)?;
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            let next = (!holder.is_empty()).then_some(number);
            n_wins += usize::from(next.is_some() && next != leader);
            leader = next;
        }
        eprintln!("{n_writes} writes, {n_wins} times another replica led");
        ensure!(n_writes > 0 && n_wins > 0, "nothing was judged");
        Ok(())
    }
}
