//! The status of a claim: how far its drain has come, its obstacles, and the end of its cooling.

#![allow(unreachable_pub, reason = "`KubeSchema` generates a public copy of each struct inside a function")]

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::request::ClaimStatusWrite;
use crate::model::status::{ClaimStatus, DrainStatus, ShownAs};
use crate::model::time::Timestamp;
use crate::wire::precondition::bound_to;
use crate::wire::schema;

/// The status of a claim.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeIPBlockStatus {
    /// The word that `kubectl get` shows in place of the state. `WillDrain`: held, and the block must leave the node.
    /// `Deleting`: the object is being deleted, and exists until its block is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub shown_as: Option<String>,

    /// End of the cooling; the block is free then or soon after. Absent in other states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::timestamp")]
    pub until: Option<Timestamp>,

    /// The progress of a drain; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
}

/// The progress of a drain.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// The reason why the block can't be removed yet.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub waiting_for: String,

    /// Number of pods that still use an address of the block. Absent while new pods may get one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::count")]
    pub pod_count: Option<i64>,

    /// The first ten of these pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Atomic)]
    pub pods: Vec<BlockingPod>,
}

/// A pod that uses an address of a draining block.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockingPod {
    /// Its address.
    #[schemars(length(max = 45))]
    pub ip: String,
    /// Its namespace and name, if known.
    #[serde(default)]
    #[schemars(length(max = 320))]
    pub pod: String,
}

/// The status to write, as a merge patch.
///
/// Carries uid and version. The whole former status is replaced; a `null` removes a field.
#[must_use]
pub fn status_patch(write: &ClaimStatusWrite) -> Value {
    let ClaimStatus { shown_as, until, drain } = &write.status;
    let drain = drain.as_ref().map(|drain| {
        let pods: Vec<BlockingPod> =
            drain.pods.iter().map(|(ip, pod)| BlockingPod { ip: ip.to_string(), pod: pod.clone() }).collect();
        // All fields are written, also empty ones: a merge patch keeps the fields that it leaves out.
        json!({ "waitingFor": drain.waiting_for, "podCount": drain.pod_count, "pods": pods })
    });
    let status = json!({ "shownAs": shown_as.map(ShownAs::as_str), "until": until, "drain": drain });
    bound_to(&write.uid, write.revision, json!({ "status": status }))
}

impl From<&NodeIPBlockStatus> for ClaimStatus {
    /// Leaves out the parts that can't be read: no decision depends on a status.
    fn from(status: &NodeIPBlockStatus) -> Self {
        let shown_as = status.shown_as.as_deref();
        Self {
            shown_as: ShownAs::ALL.into_iter().find(|known| shown_as == Some(known.as_str())),
            until: status.until,
            drain: status.drain.as_ref().map(Into::into),
        }
    }
}

impl From<&Drain> for DrainStatus {
    fn from(drain: &Drain) -> Self {
        let pods = drain.pods.iter().filter_map(|pod| Some((pod.ip.parse().ok()?, pod.pod.clone())));
        Self {
            waiting_for: drain.waiting_for.clone(),
            pod_count: drain.pod_count.and_then(|count| u64::try_from(count).ok()),
            pods: pods.collect(),
        }
    }
}
