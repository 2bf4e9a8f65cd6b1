//! The Pods of the controller: how many there are, and how many are ready.

use k8s_openapi::api::core::v1::Pod;

/// The label of the controller's Pods.
pub(in crate::cli) const OUR_PODS: &str = "app.kubernetes.io/name=cilium-node-ipam";

/// The Pods of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replicas {
    /// Pods that have not terminated.
    pub(super) all: usize,
    /// Those of them that are ready.
    pub(super) ready: usize,
}

impl Replicas {
    /// Counts Pods; `None` if there are none.
    pub(super) fn of<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Option<Self> {
        let mut replicas = Self { all: 0, ready: 0 };
        for status in pods.into_iter().filter_map(|pod| pod.status.as_ref()) {
            if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
                continue;
            }
            let conditions = status.conditions.iter().flatten();
            let mut ready = conditions.filter(|found| found.type_ == "Ready" && found.status == "True");
            replicas.all += 1;
            replicas.ready += usize::from(ready.next().is_some());
        }
        (replicas.all > 0).then_some(replicas)
    }
}
