//! The Lease of the controller, as a command reads it: who leads, and the writes that the leader has noted as failing.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::controller::client::Clients;
use crate::controller::lease::{self, STARTUP_TAINTS};
use crate::model::failure::Failure;
use crate::model::time::Timestamp;
use crate::plan::Policy;
use crate::wire::failures::{self, FAILING_WRITES};

/// The writes that fail, as the leader has noted them; none if no replica leads.
pub(super) fn failures(lease: &Lease, now: Timestamp) -> Vec<Failure> {
    let note = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(FAILING_WRITES));
    match note {
        Some(note) if of_lease(lease, now).2 => failures::read(note),
        Some(_) | None => Vec::new(),
    }
}

/// The policy of the leader, as far as it is known.
pub(super) fn policy(lease: &Lease) -> Policy {
    let note = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(STARTUP_TAINTS));
    let taints = note.into_iter().flat_map(|note| note.split(','));
    Policy::DEFAULT.with_startup_taints(&taints.map(str::to_owned).collect::<Vec<_>>())
}

/// The Lease of the controller, or why it is not known.
pub(super) async fn read_lease(clients: &Clients, namespace: &str) -> Result<Option<Lease>, String> {
    let api: Api<Lease> = Api::namespaced(clients.reads.clone(), namespace);
    let name = format!("Lease {namespace}/{}", lease::NAME);
    match tokio::time::timeout(clients.timeout, api.get_opt(lease::NAME)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
            Err(format!("you are not allowed to get {name}"))
        }
        Ok(Err(_)) | Err(_) => Err(format!("no answer for {name}")),
    }
}

/// Who holds a Lease, a sentence about it, and whether its holder is at work.
pub(super) fn of_lease(lease: &Lease, now: Timestamp) -> (Option<String>, String, bool) {
    let spec = lease.spec.clone().unwrap_or_default();
    let Some(holder) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
        return (None, "no leader: the Lease has no holder".to_owned(), false);
    };
    let name = holder.split_once('_').map_or(holder.as_str(), |(name, _)| name).to_owned();
    let age = spec.renew_time.map(|renewed| now.duration_since(renewed.0).as_secs().max(0));
    let duration = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    match age {
        // Twice: the API server may be slow.
        Some(age) if age > 2 * duration => {
            let sentence =
                format!("no leader: {name} renewed its Lease {age} s ago, and it is valid for {duration} s");
            (Some(name), sentence, false)
        }
        Some(_) | None => (Some(name.clone()), format!("{name} leads"), true),
    }
}
