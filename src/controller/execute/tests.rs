//! Tests of how requests are carried out, against a client that answers as a test says.

use serde_json::json;
use tokio::time::Instant;

use super::super::client::tests::{answered_by, list, refusal};
use super::super::events::Subject;
use super::super::lead::Lead;
use super::super::write_slots::WriteSlots;
use super::*;
use crate::model::frr::{FrrChange, FrrWrite};
use crate::model::request::{NewClaim, Read};
use crate::model::revision::Revision;
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::telemetry::event_reason::EventReason;
use crate::telemetry::metrics::Metrics;

fn finalizers(finalizers: &[&str]) -> Write {
    Write::PoolFinalizers(PoolFinalizersWrite {
        pool: "p".into(),
        uid: "u".into(),
        revision: Revision::of(5),
        finalizers: finalizers.iter().map(|name| (*name).to_owned()).collect(),
    })
}

/// An executor whose requests are answered in this way.
fn executor(clients: Clients) -> Executor {
    let (timeline, managed_fields) = (Arc::new(Timeline::default()), ManagedFields::Kept);
    let events = Events::channel(Metrics::default(), Lead::unelected()).0;
    Executor {
        clients,
        timeline,
        managed_fields,
        events,
        cilium_namespace: "kube-system".to_owned(),
        frr_namespace: "frr-k8s-system".to_owned(),
    }
}

async fn carried_out(executor: &Executor, request: impl Into<Request>) -> Outcome {
    let place = WriteSlots::new(1).take().await.expect("it is open");
    executor.carry_out(request.into(), &place).await.expect("the process goes on")
}

/// With 32 of them the controller would decide nothing any more.
#[tokio::test(start_paused = true)]
async fn a_read_that_is_refused_ends() {
    for code in [400, 403, 404] {
        let (clients, asked) = answered_by(move |_| refusal(code));
        let read = Read::Node("a".into(), Revision::of(5));
        let Outcome { answer, seen, .. } = carried_out(&executor(clients), read).await;
        assert!(matches!(&answer, Answer::Refused(why, None) if why.contains("refused with")), "{answer:?}");
        assert_eq!((seen, asked.lock().unwrap().len()), (Seen::Nothing, 1));
    }
}

/// It is unknown whether the claim exists, so its write continues; but the others continue as well.
#[tokio::test(start_paused = true)]
async fn a_write_that_can_not_be_settled_leaves_its_place_to_others_and_is_reported() {
    const FORBIDDEN_FOR: Duration = Duration::from_secs(60);
    let began = Instant::now();
    let (clients, _) = answered_by(move |target| match target.contains("fieldSelector") {
        true if began.elapsed() < FORBIDDEN_FOR => refusal(403),
        true => (200, list(7, &[], "")),
        false => refusal(500),
    });
    let (events, mut reported) = Events::channel(Metrics::default(), Lead::unelected());
    let executor = Executor { events, ..executor(clients) };
    let places = WriteSlots::new(1);
    let place = places.take().await.expect("it is open");
    let write = Write::CreateClaim(NewClaim {
        cidr: "10.0.0.0/28".parse().unwrap(),
        pool: "p".into(),
        node: "a".into(),
        node_uid: "u".into(),
        pod_ip_pool: None,
        excluded: AddressSet::new(),
        created_for: None,
        since: Timestamp::default(),
    });
    let written = async {
        let outcome = executor.carry_out(write.into(), &place).await;
        drop(place);
        outcome
    };
    let others = async {
        let other = tokio::time::timeout(FORBIDDEN_FOR / 2, places.take()).await.expect("it keeps its place");
        assert!(other.is_some());
        assert_eq!(places.n_aside(), 1);
        let reported = reported.next().await.expect("it is reported");
        assert_eq!((reported.subject, reported.reason), (Subject::ClusterRole, EventReason::ReadForbidden));
    };
    let (outcome, ()) = tokio::join!(written, others);
    let outcome = outcome.unwrap();
    assert!(matches!(&outcome.answer, Answer::Unknown(_)), "{:?}", outcome.answer);
    assert_eq!(places.n_aside(), 0);
}

/// Another replica may have made it a moment ago.
#[tokio::test]
async fn a_pool_keeps_its_finalizer_while_the_server_has_a_claim_that_names_it() {
    for (claims, expected, n_patches) in [(&["10.0.0.0-28"][..], "Conflict", 0), (&[], "Done", 1)] {
        let (clients, asked) = answered_by(move |target| {
            let of_pool = target.contains("nodeipblocks?") && target.ends_with("spec.pool%3Dp");
            let pool = || list(8, &["p"], "")["items"][0].clone();
            (200, if of_pool { list(8, claims, "") } else { pool() })
        });
        let outcome = carried_out(&executor(clients), finalizers(&[])).await;
        assert!(format!("{:?}", outcome.answer).starts_with(expected), "{:?}", outcome.answer);
        let asked = asked.lock().unwrap();
        assert_eq!(asked.iter().filter(|path| path.starts_with("p?")).count(), n_patches, "{asked:?}");
    }
}

/// Otherwise the pause of the pool would have grown to half a minute by the end of an outage.
#[tokio::test(start_paused = true)]
async fn a_write_to_a_pool_without_an_answer_ends_when_the_server_is_back() {
    const OUTAGE: Duration = Duration::from_secs(26);
    let began = Instant::now();
    let (clients, asked) =
        answered_by(
            move |_| {
                if began.elapsed() < OUTAGE { refusal(503) } else { (200, list(7, &["p"], "")) }
            },
        );
    let write = finalizers(&[PoolObject::FINALIZER]);
    let Outcome { answer, seen, .. } = carried_out(&executor(clients), write).await;
    assert!(matches!(answer, Answer::Unknown(_)), "{answer:?}");
    assert!(matches!(&seen, Seen::Pool(pool) if pool.name.as_str() == "p"), "{seen:?}");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.iter().filter(|path| path.starts_with("p?")).count(), 1, "{asked:#?}");
}

/// The server answers with the object while a finalizer of another writer keeps it.
#[tokio::test(start_paused = true)]
async fn an_frr_configuration_that_waits_for_a_finalizer_is_not_deleted() {
    for (kind, is_deleted) in [("Status", true), ("FRRConfiguration", false)] {
        let metadata = json!({"name": "nodeipam-a", "uid": "u", "resourceVersion": "7",
            "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let (clients, _) = answered_by(move |_| (200, json!({"kind": kind, "metadata": metadata})));
        let change = FrrChange::Delete { uid: "u".into(), revision: Revision::of(5) };
        let write = FrrWrite { name: "nodeipam-a".into(), node: "a".into(), change };
        let Outcome { seen, .. } = carried_out(&executor(clients), Write::Frr(write)).await;
        assert_eq!(seen == Seen::Deleted("u".into()), is_deleted, "{seen:?}");
    }
}
