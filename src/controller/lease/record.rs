//! The object of the election: a Lease as the server has it, and the versions of it that this process writes.
//!
//! A version is the object as it was read, with the fields of the election changed. Fields that this program does not
//! know stay as they are, and so does `acquireTime` for as long as the holder stays.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ApiResource, DynamicObject};
use serde_json::{Map, Value, json};

use super::decision::Record;
use crate::model::failure::Failure;
use crate::model::time::Timestamp;
use crate::wire::failures::{self, FAILING_WRITES};

/// The annotation with the time of the leader's last write, for `cilium-node-ipam status`.
pub const LAST_WRITE: &str = "nodeipam.io/last-write";

/// The annotation with the version of the leader.
pub const VERSION: &str = "nodeipam.io/version";

/// The annotation with the pace of the leader's writes, while nodes wait for their turn in the event budget.
pub const PACE: &str = "nodeipam.io/paced";

/// The annotation with the startup taints that the command line of the leader adds, separated by commas.
pub const STARTUP_TAINTS: &str = "nodeipam.io/startup-taints";

/// The resource of Leases.
pub(super) fn resource() -> ApiResource {
    ApiResource::erase::<Lease>(&())
}

/// The record in a Lease.
pub(super) fn record_of(lease: &DynamicObject) -> Record {
    let spec = lease.data.get("spec").cloned().unwrap_or_default();
    let holder = spec["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
    let duration = spec["leaseDurationSeconds"].as_u64().filter(|seconds| *seconds > 0);
    Record {
        holder: holder.map(str::to_owned),
        duration: duration.map(Duration::from_secs),
        text: spec.to_string(),
    }
}

/// When the holder says that it last renewed; only compared with the times that this process has sent.
pub(super) fn renew_time(lease: &DynamicObject) -> Option<&str> {
    lease.data.get("spec")?.get("renewTime")?.as_str()
}

/// The first version of a Lease.
pub(super) fn created(name: &str, own: &str, duration: Duration, now: Timestamp) -> DynamicObject {
    let mut lease = DynamicObject::new(name, &resource());
    lease.data = json!({"spec": {}});
    held(&lease, own, duration, now)
}

/// The same Lease with annotations about its holder, for people. No process decides by them.
pub(super) fn described(
    mut lease: DynamicObject,
    last_write: Option<Timestamp>,
    failures: &[Failure],
    pace: Option<String>,
    startup_taints: &[String],
) -> DynamicObject {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    let startup_taints = (!startup_taints.is_empty()).then(|| startup_taints.join(","));
    let notes = [(PACE, pace), (FAILING_WRITES, failures::noted(failures)), (STARTUP_TAINTS, startup_taints)];
    for (key, note) in notes {
        match note {
            Some(note) => drop(annotations.insert(key.to_owned(), note)),
            None => drop(annotations.remove(key)),
        }
    }
    annotations.insert(VERSION.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    if let Some(at) = last_write {
        annotations.insert(LAST_WRITE.to_owned(), at.strftime("%FT%TZ").to_string());
    }
    lease
}

/// The version after `lease` in which `own` holds it.
pub(super) fn held(lease: &DynamicObject, own: &str, duration: Duration, now: Timestamp) -> DynamicObject {
    let before = record_of(lease);
    changed(lease, |spec| {
        if before.holder.as_deref() != Some(own) {
            let is_first = before.holder.is_none() && !spec.contains_key("leaseTransitions");
            let n_before = spec.get("leaseTransitions").and_then(Value::as_i64).unwrap_or_default();
            let transitions = if is_first { 0 } else { n_before.saturating_add(1) };
            spec.insert("leaseTransitions".to_owned(), transitions.into());
            spec.insert("acquireTime".to_owned(), time(now));
        }
        spec.insert("holderIdentity".to_owned(), own.into());
        spec.insert("leaseDurationSeconds".to_owned(), duration.as_secs().into());
        spec.insert("renewTime".to_owned(), time(now));
    })
}

/// The version after `lease` without a holder. The server refuses a duration of zero.
pub(super) fn released(lease: &DynamicObject, now: Timestamp) -> DynamicObject {
    changed(lease, |spec| {
        spec.insert("holderIdentity".to_owned(), "".into());
        spec.insert("leaseDurationSeconds".to_owned(), 1.into());
        spec.insert("renewTime".to_owned(), time(now));
    })
}

fn changed(lease: &DynamicObject, change: impl FnOnce(&mut Map<String, Value>)) -> DynamicObject {
    let mut lease = lease.clone();
    let mut spec = match lease.data.get("spec") {
        Some(Value::Object(spec)) => spec.clone(),
        Some(_) | None => Map::new(),
    };
    change(&mut spec);
    // The server adds the field managers anew.
    lease.metadata.managed_fields = None;
    match &mut lease.data {
        Value::Object(data) => {
            data.insert("spec".to_owned(), spec.into());
        }
        data => *data = json!({"spec": spec}),
    }
    lease
}

fn time(now: Timestamp) -> Value {
    serde_json::to_value(MicroTime(now)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "x", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": spec,
        }))
        .unwrap()
    }

    fn spec(lease: &DynamicObject) -> &Value {
        &lease.data["spec"]
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_renewal_keeps_the_acquire_time_the_transitions_and_unknown_fields() {
        let before = lease(&json!({
            "holderIdentity": "me", "leaseDurationSeconds": 15, "acquireTime": "1970-01-01T00:00:01.000000Z",
            "renewTime": "1970-01-01T00:00:02.000000Z", "leaseTransitions": 3, "strategy": "OldestEmulationVersion",
        }));
        let renewed = held(&before, "me", MINUTE, at(9));
        assert_eq!(
            spec(&renewed),
            &json!({
                "holderIdentity": "me", "leaseDurationSeconds": 60, "acquireTime": "1970-01-01T00:00:01.000000Z",
                "renewTime": "1970-01-01T00:00:09.000000Z", "leaseTransitions": 3,
                "strategy": "OldestEmulationVersion",
            })
        );
        assert_eq!(renewed.metadata, before.metadata);
        let free = released(&renewed, at(10));
        assert_eq!(
            spec(&free),
            &json!({
                "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": "1970-01-01T00:00:01.000000Z",
                "renewTime": "1970-01-01T00:00:10.000000Z", "leaseTransitions": 3,
                "strategy": "OldestEmulationVersion",
            })
        );
        let taken = held(&free, "you", MINUTE, at(11));
        assert_eq!(spec(&taken)["leaseTransitions"], 4);
        assert_eq!(spec(&taken)["acquireTime"], "1970-01-01T00:00:11.000000Z");
        assert_eq!(renew_time(&taken), Some("1970-01-01T00:00:11.000000Z"));
    }

    #[test]
    fn the_last_write_stays_until_its_holder_writes_again() {
        let first = described(lease(&json!({})), Some(at(9)), &[], None, &[]);
        let annotation =
            |lease: &DynamicObject| lease.metadata.annotations.clone().unwrap()[LAST_WRITE].clone();
        assert_eq!(annotation(&first), "1970-01-01T00:00:09Z");
        assert_eq!(annotation(&described(first.clone(), None, &[], None, &[])), "1970-01-01T00:00:09Z");
        assert_eq!(annotation(&described(first, Some(at(10)), &[], None, &[])), "1970-01-01T00:00:10Z");
    }

    #[test]
    fn the_first_holder_is_no_transition() {
        assert_eq!(spec(&created("x", "me", MINUTE, at(9)))["leaseTransitions"], 0);
        assert_eq!(spec(&held(&lease(&Value::Null), "me", MINUTE, at(9)))["holderIdentity"], "me");
    }

    #[test]
    fn an_empty_spec_and_an_empty_holder_are_held_by_nobody() {
        for spec in [Value::Null, json!({}), json!({"holderIdentity": ""}), json!({"holderIdentity": null})] {
            assert_eq!(record_of(&lease(&spec)).holder, None, "{spec}");
        }
        let record = record_of(&lease(&json!({"holderIdentity": "a", "leaseDurationSeconds": -1})));
        assert_eq!((record.holder.as_deref(), record.duration), (Some("a"), None));
    }
}
