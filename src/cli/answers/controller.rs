//! The controller itself, as a command sees it: its Lease, its Pods, its mode, and the switches of the freeze that
//! are on.
//!
//! Reads the Lease and the Pods; the rest is in the world.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use super::lease::of_lease;
use super::replicas::{Election, OUR_PODS, Replicas};
use super::{Listed, Live};
use crate::cli::access::Access;
use crate::controller::client::Clients;
use crate::controller::lease;
use crate::model::counted::counted;
use crate::model::finding::FindingKind;
use crate::model::freeze::Switch;
use crate::model::time::Timestamp;
use crate::publisher::mode::Mode;
use crate::telemetry::api_health::slowness;
use crate::view::audit::catalog::{Check, Severity};
use crate::view::overview::Problem;

/// The kind of the problem that no controller leads.
pub(super) const NO_LEADER: &str = "NoLeader";

/// How far a time in an object may be ahead of the time of this command without a wrong clock. Both are derived from
/// answers of the API server, which have whole seconds.
pub(super) const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// The knowledge about the controller itself.
pub(super) struct Controller {
    /// Who holds the Lease, by the name of its Pod.
    pub(super) leader: Option<String>,
    /// In a sentence, for people.
    pub(super) lease: String,
    /// The version of the leader.
    pub(super) version: Option<String>,
    /// When a write of the leader last took effect.
    pub(super) last_write: Option<Timestamp>,
    /// The pace of the leader's writes, if nodes wait for their turn.
    pub(super) pace: Option<String>,
    /// The Pods of the controller, if it has any that can be read.
    pub(super) replicas: Option<Replicas>,
    /// The mode of Cilium, or why the controller is passive.
    pub(super) mode: Result<String, String>,
    /// The switches of the freeze that are on, a sentence each.
    pub(super) frozen: Vec<String>,
    pub(super) problems: Vec<Problem>,
    /// The time of the list.
    pub(super) now: Timestamp,
}

impl Controller {
    pub(super) async fn of(listed: &Listed, access: &Access) -> Self {
        let (namespace, replicas) = match &listed.live {
            Live::Cluster(clients) => {
                (access.cilium_namespace.as_str(), read_replicas(clients, &access.namespace).await)
            }
            Live::Files { cilium_namespace, replicas, .. } => (cilium_namespace.as_str(), *replicas),
        };
        let found = &listed.lease;
        let now = listed.now.wall;
        let name = format!("Lease {namespace}/{}", lease::NAME);
        let annotation = |key: &str| {
            let lease = found.as_ref().ok()?.as_ref()?;
            lease.metadata.annotations.as_ref()?.get(key).cloned()
        };
        let version = annotation(lease::VERSION);
        let last_write = annotation(lease::LAST_WRITE).and_then(|at| at.parse().ok());
        let pace = annotation(lease::PACE);
        let (leader, lease, is_led) = match found {
            // A Lease of earlier replicas may remain.
            _ if replicas.is_some_and(|replicas| replicas.election == Election::Off) => {
                let is_ready = replicas.is_some_and(|replicas| replicas.ready > 0);
                (None, "no election (--leader-elect=false)".to_owned(), is_ready)
            }
            Ok(Some(lease)) => of_lease(lease, now),
            Ok(None) => (None, format!("no leader: {name} does not exist"), false),
            Err(why) => (None, format!("leader unknown: {why}"), true),
        };
        let world = &listed.world;
        let mode = match world.mode() {
            Mode::Active(publisher) => Ok(publisher.ipam_mode().as_str().to_owned()),
            Mode::Passive(why) => Err(why.clone()),
        };
        let frozen: Vec<String> =
            Switch::ALL.into_iter().filter_map(|switch| world.freeze().description(switch)).collect();
        let problem = |kind, severity, message: String| Problem {
            kind,
            severity,
            subjects: Vec::new(),
            message,
            next: None,
        };
        let mut problems = Vec::new();
        if !is_led {
            let pods = format!("kubectl -n {} get pods -l {OUR_PODS}", access.namespace);
            let message = match replicas {
                None => {
                    format!(
                        "no controller is running, and nodes get no more blocks ({lease}): {pods}; one that runs \
                         outside of the cluster with --leader-elect=false can't be seen from here"
                    )
                }
                Some(replicas) => format!(
                    "no replica leads, and nodes get no more blocks ({lease}; {} and {} ready{}): /readyz and the log \
                     of each replica have the cause: {pods}",
                    counted(replicas.all, "replica"),
                    replicas.ready,
                    slowness(listed.lease_took)
                ),
            };
            problems.push(problem(NO_LEADER, Severity::Error, message));
        }
        if let Err(why) = &mode {
            problems.push(problem("Passive", Severity::Error, format!("the controller is passive: {why}")));
        }
        // An administrator has decided that, and nodes that join get nothing meanwhile.
        let of_freeze = |what: &String| problem("Frozen", Severity::Warning, format!("frozen: {what}"));
        problems.extend(frozen.iter().map(of_freeze));
        let ahead = last_write.map(|at: Timestamp| at.duration_since(now)).unwrap_or_default();
        if ahead > CLOCK_TOLERANCE {
            let kind = FindingKind::ClockDiffers;
            let message = format!(
                "the leader dates its writes {} s ahead of the API server, as this command sees it; the ages and waits \
                 that it writes are unknown: compare the clocks of the API servers",
                ahead.as_secs()
            );
            problems.push(problem(kind.as_str(), Check::of(kind).severity(), message));
        }
        let pace = pace.filter(|_| leader.is_some() && is_led);
        Self { leader, lease, version, last_write, pace, replicas, mode, frozen, problems, now }
    }
}

/// Why no replica leads, if the Lease of the controller shows that. A process without an election has no Lease.
pub(in crate::cli) async fn why_unled(listed: &Listed, access: &Access) -> Option<String> {
    let lease = listed.lease.as_ref().ok()?.as_ref()?;
    let (_, why, is_led) = of_lease(lease, listed.now.wall);
    if is_led {
        return None;
    }
    let replicas = match &listed.live {
        Live::Cluster(clients) => read_replicas(clients, &access.namespace).await,
        Live::Files { replicas, .. } => *replicas,
    };
    replicas.is_none_or(|replicas| replicas.election == Election::On).then_some(why)
}

/// The Pods of the controller. It may also run outside of the cluster, so none are no problem.
async fn read_replicas(clients: &Clients, namespace: &str) -> Option<Replicas> {
    let api: Api<Pod> = Api::namespaced(clients.reads.clone(), namespace);
    let ours = ListParams::default().labels(OUR_PODS);
    let pods = tokio::time::timeout(clients.timeout, api.list(&ours)).await;
    Replicas::of(&pods.ok()?.ok()?.items)
}
