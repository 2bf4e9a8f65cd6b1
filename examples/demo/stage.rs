//! Where scenes are played: the cluster, the controller and the agents, and how a scene is carried out and waited for.
//!
//! A wait looks at the API again whenever something has changed there, and stops at once when the oracle or an agent
//! raises the alarm.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::chronicle::Chronicle;
use crate::events::Events;
use crate::fleet::Fleet;
use crate::mode::{Growth, Mode};
use crate::scene::{Action, Count, Scene};
use crate::screen::{Screen, View};
use crate::script::{BLOCK_SIZE, Member, WHILE_AGENTS_ANSWER};
use crate::state::State;
use crate::support::agent::{Make, Release};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::kubelet::{self, Health};
use crate::support::preparation::prepare;
use crate::support::rig::Rig;
use crate::table;

/// The patience for each further node: some writes of the API server, which does a hundred per second on a busy
/// machine.
const PATIENCE_PER_NODE: Duration = Duration::from_millis(200);

/// The minimum time between two looks: hundreds of agents make news faster than a person can read.
const BREATH: Duration = Duration::from_millis(100);

/// Everything that runs.
pub(crate) struct Stage {
    // Dropped in this order: the servers last.
    pub(crate) crew: Crew,
    pub(crate) chronicle: Chronicle,
    pub(crate) events: Events,
    pub(crate) rig: Rig,
}

/// The parts that actions change.
#[derive(Default)]
pub(crate) struct Crew {
    controller: Option<Controller>,
    pub(crate) fleet: Fleet,
    /// The nodes that had no block when a pool was made for them.
    pub(crate) relieved: BTreeSet<String>,
    /// Lost nodes, and the blocks that they had.
    pub(crate) lost: BTreeMap<String, BTreeSet<String>>,
}

impl Stage {
    /// Starts the servers, and nothing of the product.
    pub(crate) async fn start(mode: Mode) -> Result<Self> {
        let rig = Rig::start(Options { ipam: mode.ipam(), ..Options::default() }).await?;
        prepare(&rig, BLOCK_SIZE).await?;
        if mode.growth() == Growth::ByRequest {
            rig.control_plane.limit_releasing(WHILE_AGENTS_ANSWER).await?;
        }
        let chronicle = Chronicle::start(&rig.cluster);
        let events = Events::start(rig.cluster.client.clone(), rig.cluster.bell.clone());
        Ok(Self { crew: Crew::default(), chronicle, events, rig })
    }

    /// The programs that run, and how to look at them from outside.
    pub(crate) fn introduction(&self) -> String {
        format!(
            "Kubernetes {} runs at {}; while it does: kubectl --kubeconfig {} get nip,nib,ciliumnodes,nodes\n\
             Agents write at most once in {:?} here; Cilium's default is 15s.",
            self.rig.control_plane.ready["version"].as_str().unwrap_or("?"),
            self.rig.control_plane.server,
            self.rig.control_plane.admin_kubeconfig.display(),
            self.rig.agents.settings().update_rate,
        )
    }

    /// Carries out the action, and returns when every goal is reached.
    pub(crate) async fn play(
        &mut self,
        scene: &Scene,
        members: &[Member],
        screen: &mut Screen,
    ) -> Result<()> {
        let Self { crew, chronicle, events, rig } = self;
        let patience = scene.patience + PATIENCE_PER_NODE * u32::try_from(members.len()).unwrap_or(u32::MAX);
        screen.open(&scene.title);
        let mut counts = Vec::new();
        let playing = async {
            let mut acting = pin!(crew.act(&scene.action, members, rig));
            let mut acted = false;
            let mut news = rig.cluster.bell.listen();
            loop {
                // Marked before the look, so that a change during the look causes another one.
                news.mark_unchanged();
                let state = State::seen(&rig.cluster);
                let reported = events.by_reason();
                counts = scene.until.iter().flat_map(|goal| goal.counts(&state, &reported)).collect();
                let reached = acted && counts.iter().all(Count::is_reached);
                screen.show(&View {
                    counts: &counts,
                    state: &state,
                    news: &chronicle.news(),
                    events: &events.latest(),
                    reached,
                });
                if reached {
                    return Ok(());
                }
                tokio::select! {
                    outcome = &mut acting, if !acted => {
                        outcome?;
                        acted = true;
                    }
                    changed = async { tokio::time::sleep(BREATH).await; news.changed().await } => changed?,
                }
            }
        };
        match tokio::time::timeout(patience, rig.cluster.alarm.over(playing)).await {
            Ok(outcome) => outcome,
            Err(_) => bail!(
                "waited {patience:?} in vain: {}\n{}",
                joined(&counts),
                table::pools(&State::seen(&rig.cluster))
            ),
        }
    }

    /// Lets a person look at the result while everything keeps running.
    pub(crate) async fn linger(&self, scene: &Scene, pause: Duration, screen: &mut Screen) -> Result<()> {
        let mut news = self.rig.cluster.bell.listen();
        let mut looking = async || -> Result<()> {
            loop {
                news.mark_unchanged();
                let state = State::seen(&self.rig.cluster);
                let reported = self.events.by_reason();
                let counts: Vec<_> =
                    scene.until.iter().flat_map(|goal| goal.counts(&state, &reported)).collect();
                screen.refresh(&View {
                    counts: &counts,
                    state: &state,
                    news: &self.chronicle.news(),
                    events: &self.events.latest(),
                    reached: true,
                });
                tokio::time::sleep(BREATH).await;
                news.changed().await?;
            }
        };
        // The pause passes, unless something fails.
        tokio::time::timeout(pause, self.rig.cluster.alarm.over(looking())).await.unwrap_or(Ok(()))
    }

    /// Prints the last lines of the logs of everything that runs.
    pub(crate) fn print_logs(&self) {
        self.rig.control_plane.print_tails();
    }

    /// Stops everything. A controller that does not exit cleanly is an error.
    pub(crate) async fn close(self) -> Result<()> {
        let Self { crew, chronicle: _, events, rig } = self;
        if let Some(controller) = crew.controller {
            let status = controller.sigterm_and_wait().await?;
            if !status.success() {
                bail!("the controller did not end cleanly: {status}");
            }
        }
        // Agents exit before the servers that they talk to.
        drop(crew.fleet);
        drop(events);
        drop(rig);
        Ok(())
    }
}

impl Crew {
    async fn act(&mut self, action: &Action, members: &[Member], rig: &Rig) -> Result<()> {
        match action {
            Action::Watch => Ok(()),
            Action::DeclarePools(pools) => {
                for pool in pools {
                    rig.cluster.create_pool(pool).await?;
                }
                Ok(())
            }
            Action::StartController => {
                self.controller = Some(Controller::start_ready(&rig.control_plane, &[]).await?);
                Ok(())
            }
            Action::KillController => match self.controller.take() {
                Some(controller) => controller.sigkill().await,
                None => bail!("there is no controller to kill"),
            },
            Action::JoinNodes => self.fleet.join(members, &rig.cluster, &rig.agents).await,
            Action::Relieve(pool) => {
                self.relieved.extend(rig.cluster.unserved()?);
                rig.cluster.create_pool(pool).await.map(drop)
            }
            Action::LoseNodes(n_nodes) => {
                let lost = &members[..*n_nodes];
                for Member { node, .. } in lost {
                    let blocks = rig.cluster.claims_of(&node.name).into_iter().map(|claim| claim.cidr);
                    self.lost.insert(node.name.clone(), blocks.collect());
                }
                self.fleet.lose(lost, &rig.cluster).await
            }
            Action::ReturnNodes(n_nodes) => {
                self.fleet.join(&members[..*n_nodes], &rig.cluster, &rig.agents).await
            }
            Action::Load(n_pods) => self.fleet.load(*n_pods).await,
            Action::LoadFirst { nodes, n_pods } => {
                self.fleet.load_only(members[..*nodes].iter(), *n_pods).await
            }
            Action::LoadReal(n_pods) => self.fleet.load_only(real(members), *n_pods).await,
            Action::ReportAgents => {
                for Member { node, .. } in real(members) {
                    let (client, pod) = (&rig.cluster.client, format!("cilium-{}", node.name));
                    kubelet::create_agent_pod(client, &pod, &node.name, Release::Newest.as_str()).await?;
                    kubelet::report(client, &pod, 0, Health::Ready).await?;
                }
                Ok(())
            }
            Action::DeletePool(pool) => rig.cluster.delete_pool(pool).await,
            Action::Edit { pool, spec, n_pods } => {
                rig.cluster.patch_pool(pool, spec.clone()).await?;
                self.fleet.load_only(real(members), *n_pods).await
            }
        }
    }
}

/// Those with Cilium's own agents.
fn real(members: &[Member]) -> impl Iterator<Item = &Member> {
    members.iter().filter(|member| member.make == Make::Real)
}

/// The counts in one line.
pub(crate) fn joined(counts: &[Count]) -> String {
    counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
