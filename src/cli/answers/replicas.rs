//! The Pods of the controller: how many there are, and how many are ready.

use k8s_openapi::api::core::v1::Pod;

/// The label of the controller's Pods.
pub(in crate::cli) const OUR_PODS: &str = "app.kubernetes.io/name=cilium-node-ipam";

/// The Pods of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) struct Replicas {
    /// Pods that have not terminated.
    pub(super) all: usize,
    /// Those of them that are ready.
    pub(super) ready: usize,
    /// Whether the process of a Pod takes part in the election, as its arguments say.
    pub(super) election: Election,
}

/// Whether replicas elect a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Election {
    /// They do, which is the default.
    On,
    /// One process writes without an election, and renews no Lease.
    Off,
}

/// The argument that turns the election off.
const NO_ELECTION: &str = "--leader-elect=false";

impl Replicas {
    /// Counts Pods; `None` if there are none.
    pub(super) fn of<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Option<Self> {
        let mut replicas = Self { all: 0, ready: 0, election: Election::On };
        for pod in pods {
            let Some(status) = &pod.status else { continue };
            if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
                continue;
            }
            let conditions = status.conditions.iter().flatten();
            let mut ready = conditions.filter(|found| found.type_ == "Ready" && found.status == "True");
            replicas.all += 1;
            if is_unelected(pod) {
                replicas.election = Election::Off;
            }
            replicas.ready += usize::from(ready.next().is_some());
        }
        (replicas.all > 0).then_some(replicas)
    }
}

fn is_unelected(pod: &Pod) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut words =
        containers.flat_map(|container| container.args.iter().chain(&container.command).flatten());
    words.any(|word| word == NO_ELECTION)
}
