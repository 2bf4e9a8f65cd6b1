//! The start: collects a list of each kind, Cilium's mode and the freeze into the first [`World`]. The loop gets them
//! from its watches, and a command by listing once.
//!
//! Knows no policy. Keeps one invariant: Nodes and CiliumNodes are listed after claims (safety rule 6). So a block
//! that was claimed and published in between is seen at least once. And the known Nodes are not older than any claim
//! of the first list.

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroU64;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{info, warn};

use super::agents;
use super::backoff::Retries;
use super::client::{Clients, ReadError};
use super::definitions;
use super::freeze;
use super::input::Input;
use super::mode::{self, ModeSource};
use super::node_configs;
use super::pod_ip_pools;
use super::side_watch::SideWatch;
use super::tasks::{Tasks, ended};
use super::timeline::Timeline;
use super::watch::Watches;
use crate::model::agent::AgentNews;
use crate::model::definition::DefinitionState;
use crate::model::freeze::Freeze;
use crate::model::kind::Kind;
use crate::model::news::News;
use crate::model::observation::{Listing, Observation};
use crate::model::revision::AnyRevision;
use crate::publisher::mode::Mode;
use crate::telemetry::api_health::{CILIUM_CONFIG, FREEZE};
use crate::telemetry::readiness::Readiness;
use crate::telemetry::{Telemetry, heartbeat};
use crate::view::definitions::description as describe;
use crate::wire::side_watched::SideKind;
use crate::wire::watched::Wire;
use crate::wire::{CiliumNodes, Claims, GROUP, Nodes, Pools};
use crate::world::World;
use crate::world::gather::Gathering;

/// How long a command lists, tries after failures included. A server that restarts is back within a minute, and 5,000
/// CiliumNodes of 4,096 addresses each are some 500 MB to transfer.
pub const TIME_LIMIT: Duration = Duration::from_secs(2 * 60);
/// How long a list takes before a line reports its progress; from then on there is one line per this time.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

/// How a cluster is listed once.
#[derive(Debug, Clone)]
pub struct GatherOptions {
    /// Where Cilium's mode is known from.
    pub mode: ModeSource,
    /// The controller's namespace, in which the ConfigMap with its freeze lies.
    pub namespace: String,
    /// The namespace of Cilium's agents.
    pub cilium_namespace: String,
    /// How long all of it may take, tries after failures included.
    pub time_limit: Duration,
}

/// Lists a cluster once and returns the world as it is then, for a command that decides on it or shows it.
///
/// Failed reads are tried again with growing waits, and each failure is logged. The error names the kind that could
/// not be listed. It is returned when the time limit would pass, and at once when waiting can't help, such as without
/// the right to list.
pub async fn list_cluster(clients: &Clients, options: &GatherOptions) -> anyhow::Result<World> {
    let lister = Lister::new(clients, options);
    let (mode, freeze, pools, claims) = tokio::try_join!(
        lister.mode(&options.mode),
        lister.freeze(&options.namespace),
        lister.list::<Pools>(),
        lister.list::<Claims>()
    )?;
    let (nodes, cilium_nodes) = tokio::try_join!(lister.list::<Nodes>(), lister.list::<CiliumNodes>())?;
    // Without them a command continues, and logs a warning. If another list fails, its error is the only line.
    let agents = lister.agents(&options.cilium_namespace).await?;
    complete(&lister, options, mode, freeze, agents, [pools, claims, nodes, cilium_nodes]).await
}

/// As [`list_cluster`], for a cluster that lacks kinds or rights. A kind that can't be listed is empty in the world,
/// and is returned with the cause. A kind that the server does not serve has no objects. Only a server that does not
/// answer is an error.
pub async fn list_readable(
    clients: &Clients,
    options: &GatherOptions,
) -> anyhow::Result<(World, BTreeMap<Kind, String>)> {
    // Each read has the whole time limit: one kind that fails does not take it from the others.
    let lister = || Lister::new(clients, options);
    let mut unlisted = BTreeMap::new();
    let mode = match lister().mode(&options.mode).await {
        Ok(mode) => mode,
        Err(error) if read_error(&error).is_some_and(|cause| cause.answer().is_some()) => {
            Mode::Passive(format!("{error:#}"))
        }
        Err(error) => return Err(error),
    };
    let freeze = lister().freeze(&options.namespace).await.unwrap_or_default();
    let agents = lister().agents(&options.cilium_namespace).await?;
    let listings = [
        lister().list_readable::<Pools>(&mut unlisted).await,
        lister().list_readable::<Claims>(&mut unlisted).await,
        lister().list_readable::<Nodes>(&mut unlisted).await,
        lister().list_readable::<CiliumNodes>(&mut unlisted).await,
    ];
    let world = complete(&lister(), options, mode, freeze, agents, listings).await?;
    Ok((world, unlisted))
}

/// The failed read behind an error.
fn read_error(error: &anyhow::Error) -> Option<&ReadError> {
    error.chain().find_map(|cause| cause.downcast_ref::<ReadError>())
}

/// The world of these lists and the kinds beside it.
async fn complete(
    lister: &Lister<'_>,
    options: &GatherOptions,
    mode: Mode,
    freeze: Freeze,
    agents: AgentNews,
    listings: [Listing; 4],
) -> anyhow::Result<World> {
    let mut gathering = Gathering::default();
    for news in definitions::read_all(lister.clients).await {
        gathering.observe_definition(news);
    }
    if pod_ip_pools::are_of_use(&mode) {
        let news = lister.read_beside(&pod_ip_pools::pod_ip_pools(lister.clients)).await;
        gathering.observe_pod_ip_pools(news);
    }
    gathering.set_mode(mode);
    gathering.set_freeze(freeze);
    match &options.mode {
        ModeSource::Assumed(_, release) => gathering.observe_agents(AgentNews::Vouched(*release)),
        ModeSource::ConfigMapIn(namespace, _) => {
            let news = lister.read_beside(&node_configs::node_configs(lister.clients, namespace)).await;
            gathering.observe_node_configs(news);
        }
    }
    gathering.observe_agents(agents);
    for listing in listings {
        gathering.observe(Observation::Listed(listing));
    }
    gathering.complete().map_err(|gathering| anyhow!("there is no list of {:?}", gathering.missing()))
}

/// Lists the kinds of one cluster, each until there is an answer or the time is over.
struct Lister<'a> {
    clients: &'a Clients,
    timeline: Timeline,
    time_limit: Duration,
    began: Instant,
}

impl<'a> Lister<'a> {
    fn new(clients: &'a Clients, options: &GatherOptions) -> Self {
        Self { clients, timeline: Timeline::default(), time_limit: options.time_limit, began: Instant::now() }
    }

    async fn mode(&self, source: &ModeSource) -> anyhow::Result<Mode> {
        match source {
            ModeSource::Assumed(mode, _) => Ok(mode.clone()),
            ModeSource::ConfigMapIn(namespace, settings) => {
                let action = format!("read the ConfigMap {namespace}/{}", CILIUM_CONFIG.name);
                self.until_read(&action, || mode::read(self.clients, namespace, settings)).await
            }
        }
    }

    async fn freeze(&self, namespace: &str) -> anyhow::Result<Freeze> {
        let action = format!("read the ConfigMap {namespace}/{}", FREEZE.name);
        self.until_read(&action, || freeze::read(self.clients, namespace)).await
    }

    /// The agents' Pods, or why they can't be read.
    async fn agents(&self, namespace: &str) -> anyhow::Result<AgentNews> {
        Ok(self.read_beside(&agents::pods(self.clients, namespace)).await.into())
    }

    /// The objects of a kind beside the world, or why they can't be read.
    async fn read_beside<V: SideKind>(&self, objects: &SideWatch<V>) -> News<V> {
        match self.until_read(&format!("list {}", objects.what), || objects.read(self.clients)).await {
            Ok(found) => News::Listed(found),
            Err(error) => News::Unlisted(objects.unlisted(&error)),
        }
    }

    /// A list of a kind, which is empty if the kind can't be listed. A kind that is not served is no cause to name.
    async fn list_readable<W: Wire>(&self, unlisted: &mut BTreeMap<Kind, String>) -> Listing {
        let error = match self.list::<W>().await {
            Ok(listing) => return listing,
            Err(error) => error,
        };
        let cause = read_error(&error);
        if cause.and_then(ReadError::answer).is_none_or(|status| status.code != 404) {
            let why = cause.map_or_else(|| format!("{error:#}"), ToString::to_string);
            unlisted.insert(W::KIND, why);
        }
        let oldest = AnyRevision::new(W::KIND, NonZeroU64::MIN);
        Listing { kind: W::KIND, at_least: oldest, at_most: oldest, objects: Vec::new() }
    }

    async fn list<W: Wire>(&self) -> anyhow::Result<Listing> {
        let kind = W::KIND.as_str();
        let list = || {
            let mut next_line = self.began + PROGRESS_INTERVAL;
            self.clients.list_kind::<W>(&self.timeline, move |n_objects| {
                let now = Instant::now();
                if now >= next_line {
                    info!(kind, objects = n_objects, "the list is not complete yet");
                    next_line = now + PROGRESS_INTERVAL;
                }
            })
        };
        let listed = self.until_read(&format!("list {kind}s"), list).await;
        listed.map_err(|error| {
            let is_missing = W::GROUP == GROUP
                && read_error(&error).and_then(ReadError::answer).is_some_and(|status| status.code == 404);
            if is_missing {
                let name = definitions::name_of::<W>();
                return error.context(describe(&name, DefinitionState::Missing));
            }
            error
        })
    }

    /// Reads until there is an answer, at most until the time limit. `action` is the action that the error says can't
    /// be done.
    async fn until_read<T, F: Future<Output = Result<T, ReadError>>>(
        &self,
        action: &str,
        read: impl Fn() -> F,
    ) -> anyhow::Result<T> {
        let limit = humantime::format_duration(self.time_limit);
        let deadline = self.began + self.time_limit;
        let mut retries = Retries::default();
        loop {
            // In a box: four of them are polled at a time.
            let error = match tokio::time::timeout_at(deadline, Box::pin(read())).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) => error,
                Err(_) => return Err(anyhow!("can't {action} within {limit}")),
            };
            if error.is_final() {
                return Err(error).with_context(|| format!("can't {action}"));
            }
            let wait = retries.failed(error.asked_wait());
            if Instant::now() + wait >= deadline {
                return Err(error).with_context(|| format!("can't {action} within {limit}"));
            }
            warn!(%error, retry_in = ?wait, "can't {action} yet");
            tokio::time::sleep(wait).await;
        }
    }
}

/// Takes in the inputs of the watches until the world is complete; `None` when the watches are stopped first. The
/// watches of Nodes and CiliumNodes start when the first list of claims is in.
pub(super) async fn gather(
    inputs: &mut mpsc::Receiver<Input>,
    tasks: &mut Tasks,
    watches: &Watches,
    telemetry: &Telemetry,
) -> anyhow::Result<Option<World>> {
    let mut gathering = Gathering::default();
    let mut has_listed_claims = false;
    let mut beats = tokio::time::interval(heartbeat::INTERVAL);
    loop {
        telemetry.heartbeat.beat();
        let missing: Vec<&str> = gathering.missing().into_iter().map(Kind::as_str).collect();
        let lost: Vec<String> =
            gathering.lost_definitions().map(|(name, state)| describe(name, state)).collect();
        let why = if !lost.is_empty() {
            lost.join("; ")
        } else if !missing.is_empty() {
            format!("waiting for the first lists of {}", missing.join(", "))
        } else if gathering.lacks_freeze() {
            format!("waiting for ConfigMap {}: it says whether writes are frozen", FREEZE.name)
        } else {
            "waiting for cilium-config, CiliumNodeConfigs, the agents' Pods or CiliumPodIPPools".to_owned()
        };
        telemetry.set_readiness(Readiness::NotReady(why));
        let input = tokio::select! {
            biased;
            () = watches.stop.cancelled() => return Ok(None),
            (name, end) = tasks.next_end() => return Err(ended(name, end)),
            input = inputs.recv() => input,
            _ = beats.tick() => continue,
        };
        match input {
            Some(Input::Observed(observation)) => {
                if matches!(&observation, Observation::Listed(listing) if listing.kind == Kind::Claim)
                    && !has_listed_claims
                {
                    has_listed_claims = true;
                    tasks.spawn("watch nodes", watches.clone().follow::<Nodes>());
                    tasks.spawn("watch ciliumnodes", watches.clone().follow::<CiliumNodes>());
                }
                gathering.observe(observation);
            }
            Some(Input::Mode(mode)) => gathering.set_mode(mode),
            Some(Input::Freeze(freeze)) => gathering.set_freeze(freeze),
            Some(Input::Agents(news)) => gathering.observe_agents(news),
            Some(Input::PodIpPools(news)) => gathering.observe_pod_ip_pools(news),
            Some(Input::NodeConfigs(news)) => gathering.observe_node_configs(news),
            Some(Input::Definition(news)) => gathering.observe_definition(news),
            // No process leads before it can serve, nothing has been written yet, and the sender lives as long as
            // `watches`. Routes are followed once the world is complete.
            Some(
                Input::Leadership(_)
                | Input::Finished(_)
                | Input::Rib(_)
                | Input::RibNews(_)
                | Input::FrrConfigurations(_)
                | Input::FrrNodeStates(_)
                | Input::Speakers(..),
            )
            | None => {}
        }
        // Both always send news, even if they can't be read. Before that, a node might be served whose agent must not
        // be.
        let knows_all = gathering.knows_of_agents() && gathering.knows_of_node_configs();
        if !knows_all || gathering.lacks_pod_ip_pools() {
            continue;
        }
        match gathering.complete() {
            Ok(world) => return Ok(Some(world)),
            Err(incomplete) => gathering = incomplete,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::client::tests::{Asked, answered_by, list, refusal};
    use super::*;
    use crate::model::agent::NoAgent;
    use crate::model::freeze::Switch;
    use crate::publisher::settings::Settings;

    /// Lists a cluster whose server answers so.
    async fn listed(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (anyhow::Result<World>, Asked) {
        let (clients, asked) = answered_by(answer);
        let mode = ModeSource::ConfigMapIn("kube-system".to_owned(), Settings::default());
        let namespace = "kube-system".to_owned();
        let cilium_namespace = namespace.clone();
        let options = GatherOptions { mode, namespace, cilium_namespace, time_limit: TIME_LIMIT };
        let world = list_cluster(&clients, &options).await;
        (world, asked)
    }

    fn empty() -> (u16, Value) {
        (200, list(7, &[], ""))
    }

    fn failure(world: anyhow::Result<World>) -> String {
        format!("{:#}", world.expect_err("it fails"))
    }

    #[tokio::test]
    async fn nodes_and_cilium_nodes_are_listed_after_claims() {
        let config = json!({"metadata": {"name": "cilium-config"},
                            "data": {"ipam": "crd", "enable-ipv4": "true", "enable-ipv6": "false"}});
        let (world, asked) = listed(move |target| match target {
            _ if target.contains("/configmaps?") => (200, json!({"metadata": {}, "items": [config]})),
            _ => empty(),
        })
        .await;
        assert!(matches!(world.unwrap().mode(), Mode::Active(_)));
        let asked = asked.lock().unwrap();
        let last_claims = asked.iter().rposition(|path| path.starts_with("nodeipblocks?")).unwrap();
        let first_nodes = asked.iter().position(|path| path.contains("nodes?")).unwrap();
        assert!(last_claims < first_nodes, "{asked:#?}");
        assert_eq!(
            asked.len(),
            3 + 2 + 2 + 4 * 3,
            "two ConfigMaps, the agents, two versions of CiliumNodeConfigs, two definitions, and each list between two probes: \
             {asked:#?}"
        );
    }

    #[tokio::test]
    async fn without_a_config_map_the_world_is_passive() {
        let world = listed(|_| empty()).await.0.unwrap();
        let Mode::Passive(why) = world.mode() else { panic!("{:?}", world.mode()) };
        assert!(why.starts_with("ConfigMap kube-system/cilium-config does not exist: "), "{why}");
    }

    #[tokio::test]
    async fn the_freeze_is_read_with_the_lists() {
        let freeze = json!({"metadata": {"name": "cilium-node-ipam"}, "data": {"freeze-writes": "true"}});
        let (world, _) = listed(move |target| match target {
            _ if target.contains("metadata.name%3Dcilium-node-ipam") => {
                (200, json!({"metadata": {}, "items": [freeze]}))
            }
            _ => empty(),
        })
        .await;
        assert!(world.unwrap().freeze().is_on(Switch::Writes));
        let (world, _) = listed(|target| match target {
            _ if target.contains("metadata.name%3Dcilium-node-ipam") => refusal(403),
            _ => empty(),
        })
        .await;
        let text = failure(world);
        assert!(text.starts_with("can't read the ConfigMap kube-system/cilium-node-ipam: "), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_to_list_the_agents_there_is_a_world() {
        let began = Instant::now();
        let (world, _) =
            listed(|target| if target.contains("/pods?") { refusal(403) } else { empty() }).await;
        let known = world.unwrap().agent_on(&"n".into()).map(|agent| agent.pod.name.clone());
        let Err(NoAgent::Unlisted(why)) = known else { panic!("{known:?}") };
        assert!(why.starts_with("can't list Pods with k8s-app=cilium in namespace kube-system: "), "{why}");
        assert!(why.contains("refused with 403"), "{why}");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_is_made_again_with_both_probes() {
        let n_claims = std::sync::atomic::AtomicUsize::new(0);
        let (world, asked) = listed(move |target| {
            let is_claims = target.contains("/nodeipblocks?");
            match is_claims.then(|| n_claims.fetch_add(1, std::sync::atomic::Ordering::SeqCst)) {
                Some(1) => refusal(503),
                Some(_) | None => empty(),
            }
        })
        .await;
        assert!(world.is_ok());
        let asked = asked.lock().unwrap();
        let claims: Vec<&str> = asked.iter().filter_map(|path| path.strip_prefix("nodeipblocks?&")).collect();
        assert_eq!(claims, ["limit=1", "limit=100", "limit=1", "limit=100", "limit=1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waiting_can_not_help_ends_it_at_once() {
        for code in [401, 403, 404] {
            let began = Instant::now();
            let (world, _) =
                listed(move |target| if target.contains("/nodeippools?") { refusal(code) } else { empty() })
                    .await;
            let text = failure(world);
            let definition = "the definition nodeippools.nodeipam.io is missing";
            assert_eq!(text.starts_with(definition), code == 404, "{text}");
            assert!(text.contains("can't list NodeIPPools: "), "{text}");
            assert!(text.contains(&format!("refused with {code}")), "{text}");
            assert_eq!(began.elapsed(), Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_after_the_time_limit_names_what_could_not_be_listed() {
        let check = async |part: &'static str, expected: &str| {
            let began = Instant::now();
            let (world, _) =
                listed(move |target| if target.contains(part) { refusal(503) } else { empty() }).await;
            let text = failure(world);
            assert!(text.starts_with(expected) && text.contains("refused with 503"), "{text}");
            assert!(began.elapsed() <= TIME_LIMIT, "{:?}", began.elapsed());
        };
        check("/ciliumnodes?", "can't list CiliumNodes within 2m: ").await;
        check("name%3Dcilium-config", "can't read the ConfigMap kube-system/cilium-config within 2m: ").await;
    }
}
