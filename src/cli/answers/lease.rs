//! The Lease of the controller, as a command reads it: who leads, and the writes that the leader has noted as failing.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::controller::client::Clients;
use crate::controller::lease::{self, STARTUP_TAINTS};
use crate::model::failure::Failure;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;
use crate::plan::{Policy, ScalingPolicy};
use crate::wire::failures::{self, FAILING_WRITES};
use crate::world::World;

/// The writes that fail, as the leader has noted them; none if no replica leads.
pub(super) fn failures(lease: &Lease, now: Timestamp) -> Vec<Failure> {
    let note = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(FAILING_WRITES));
    match note {
        Some(note) if of_lease(lease, now).2 => failures::read(note),
        Some(_) | None => Vec::new(),
    }
}

/// The settings by the startup taints that leaders have noted. They live as long as the process, and `status --watch`
/// reads the same note again and again.
static SETTINGS: Mutex<BTreeMap<String, Policy>> = Mutex::new(BTreeMap::new());

/// The policy of the leader, as far as it is known.
pub(super) fn policy(lease: &Result<Option<Lease>, String>, world: &World, now: Timestamp) -> Policy {
    let lease = lease.as_ref().ok().and_then(Option::as_ref).filter(|lease| of_lease(lease, now).2);
    let annotations = lease.and_then(|lease| lease.metadata.annotations.as_ref());
    let settings = annotations
        .and_then(|notes| notes.get(STARTUP_TAINTS))
        .map_or(Policy::DEFAULT, |note| settings(note));
    ScalingPolicy::of(settings).with_nodes(world.n_objects(Kind::CiliumNode))
}

fn settings(note: &str) -> Policy {
    let mut settings = SETTINGS.lock().unwrap_or_else(PoisonError::into_inner);
    *settings.entry(note.to_owned()).or_insert_with(|| {
        let taints: Vec<String> = note.split(',').map(str::to_owned).collect();
        Policy::DEFAULT.with_startup_taints(&taints)
    })
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::telemetry::metrics::tests::world;

    #[test]
    fn the_startup_taints_of_a_leader_count_and_those_of_a_former_one_do_not() {
        let lease = |renewed: &str| {
            let lease = json!({
                "metadata": {"annotations": {STARTUP_TAINTS: "example.com/a,example.com/b"}},
                "spec": {"holderIdentity": "a_1", "leaseDurationSeconds": 15, "renewTime": renewed},
            });
            Ok(Some(serde_json::from_value(lease).unwrap()))
        };
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let world = world();
        let led = policy(&lease("2026-01-01T00:00:55.000000Z"), &world, now);
        assert!(led.startup_taints.ends_with(&["example.com/a", "example.com/b"]));
        let again = policy(&lease("2026-01-01T00:00:58.000000Z"), &world, now);
        assert!(std::ptr::eq(led.startup_taints, again.startup_taints), "not anew for each look");
        for other in [lease("2026-01-01T00:00:00.000000Z"), Ok(None), Err(String::new())] {
            assert_eq!(policy(&other, &world, now), Policy::DEFAULT);
        }
    }
}
