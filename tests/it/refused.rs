//! Writes that a real API server refuses: a webhook whose service does not exist, a policy, a missing right; and
//! answers of a server in trouble. Each is said by the event, the pool, `status`, `why`, `check` and `/readyz`, until
//! its cause is gone.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::answers::{Said, ask};
use crate::operator::wait_events;
use crate::scene::{SOON, join, join_one, wait_ready, wait_status};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::controller::{Controller, ELECTED};
use crate::support::eventually::eventually;
use crate::support::kubectl::{apply, kubectl};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::proxy::{Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::{Rig, under_oracle};

/// The nodes that join while claims are refused.
const JOINING: usize = 5;

/// A failure is reported after 10 s, and the Lease shows it at its next renewal.
const LATER: Duration = Duration::from_secs(90);

/// The webhook has no service.
const WEBHOOK: &str = r#"{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "away"}, "webhooks": [{"name": "away.example.com", "admissionReviewVersions": ["v1"],
    "sideEffects": "None", "failurePolicy": "Fail",
    "clientConfig": {"service": {"namespace": "default", "name": "away", "path": "/"}},
    "rules": [{"apiGroups": ["nodeipam.io"], "apiVersions": ["*"], "operations": ["CREATE"],
               "resources": ["nodeipblocks"]}]}]}"#;

/// The policy wants a label.
const POLICY: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
     "metadata": {"name": "team"}, "spec": {"failurePolicy": "Fail",
     "matchConstraints": {"resourceRules": [{"apiGroups": ["nodeipam.io"], "apiVersions": ["*"],
         "operations": ["CREATE"], "resources": ["nodeipblocks"]}]},
     "validations": [{"expression": "has(object.metadata.labels) && 'team' in object.metadata.labels",
                      "message": "the label team is missing"}]}},
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
     "metadata": {"name": "team"}, "spec": {"policyName": "team", "validationActions": ["Deny"]}}]}"#;

/// Runs a controller that leads, one node that is served, and then `refuse`. Nodes that join then are without
/// addresses, and everything says so in these words. After `repair` they are served, and nothing is wrong.
async fn said_until_repaired<R>(
    event: &str,
    words: &str,
    refuse: impl AsyncFnOnce(&Rig, &Proxy) -> Result<R>,
    repair: impl AsyncFnOnce(&ControlPlane, R) -> Result<()>,
) -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let proxy = Proxy::start(plane, rig.cluster.bell.clone()).await?;
        let controller = Controller::start_ready_behind(plane, &proxy, &[ELECTED]).await?;
        let served = join_one(rig, NodeSpec::new("served")).await?;
        let refusal = refuse(rig, &proxy).await?;
        let joining: Vec<NodeSpec> = (0..JOINING).map(|number| NodeSpec::new(format!("n{number}"))).collect();
        let agents = join(rig, &joining).await?;

        wait_events(rig, &[("Node", event, "Warning")]).await?;
        wait_status(rig, "p", "that writes fail", |status| {
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            let ready = conditions.rfind(|of| of["type"] == "Ready");
            ready.is_some_and(|of| of["reason"] == "WritesFail" && of["message"].to_string().contains(words))
        })
        .await?;
        let is_said = |said: &Said, parts: &[&str]| {
            let missing: Vec<_> = parts.iter().filter(|part| !said.text.contains(**part)).collect();
            ensure!(said.code == Some(1), "{:?} {} {}", said.code, said.text, said.errors);
            ensure!(missing.is_empty(), "{missing:?} is not in {} {}", said.text, said.errors);
            Ok(())
        };
        eventually(LATER, async || {
            is_said(&ask(plane, &["status"]).await?, &["WriteFailed: ", "NoAddresses: 5 nodes", words])?;
            is_said(&ask(plane, &["why", "n0"]).await?, &["it has no addresses", "WriteFailed: ", words])?;
            is_said(&ask(plane, &["check", "-o", "json"]).await?, &["NIP0802", words])
        })
        .await?;
        let (code, text) = controller.get("/readyz").await?;
        ensure!(code == 200 && text.contains(words), "{code} {text}");
        let n_events = n_events(rig, event).await?;
        ensure!(n_events <= 2, "{n_events} events for one cause");

        repair(plane, refusal).await?;
        let repaired = Instant::now();
        wait_ready(rig, &agents).await?;
        println!("{words}: all were served {:?} after the repair", repaired.elapsed());
        eventually(LATER, async || {
            let status = ask(plane, &["status"]).await?;
            ensure!(status.code == Some(0), "{:?} {} {}", status.code, status.text, status.errors);
            Ok(())
        })
        .await?;
        Ok((controller, proxy, served, agents))
    })
    .await
}

/// The events of this reason.
async fn n_events(rig: &Rig, reason: &str) -> Result<usize> {
    let api: Api<Event> = Api::namespaced(rig.cluster.client.clone(), "default");
    let events = api.list(&ListParams::default()).await?.items;
    Ok(events.iter().filter(|event| event.reason.as_deref() == Some(reason)).count())
}

/// Applies a manifest, and returns when the server refuses claims because of it. It takes manifests in by itself,
/// without news.
async fn applied(rig: &Rig, manifest: &str) -> Result<()> {
    apply(&rig.control_plane, manifest).await?;
    eventually(SOON, async || {
        let trial = crate::support::objects::claim("10.9.0.0/28", "p", "nobody", "u", "Held");
        let dry_run = kube::api::PostParams { dry_run: true, ..kube::api::PostParams::default() };
        let created = Kind::Block.api(&rig.control_plane.controller).create(&dry_run, &trial).await;
        ensure!(created.is_err(), "it is not in effect");
        Ok(())
    })
    .await?;
    let preflight = ask(&rig.control_plane, &["preflight", "-o", "json"]).await?.json()?;
    let items = preflight["items"].as_array().into_iter().flatten();
    let states: Vec<&Value> =
        items.filter(|item| item["point"] == "admission").map(|item| &item["state"]).collect();
    ensure!(states == [&json!("warn")], "{preflight}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_away_is_said_until_it_is_removed() -> Result<()> {
    said_until_repaired(
        "WriteFailed",
        "away.example.com",
        async |rig, _| applied(rig, WEBHOOK).await,
        async |plane, ()| {
            kubectl(plane, &["delete", "validatingwebhookconfiguration", "away"]).await.map(drop)
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_wants_a_label_is_said_until_it_is_removed() -> Result<()> {
    said_until_repaired(
        "WriteFailed",
        "the label team is missing",
        async |rig, _| applied(rig, POLICY).await,
        async |plane, ()| {
            kubectl(plane, &["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "team"])
                .await
                .map(drop)
        },
    )
    .await
}

/// Replaces the rights to claims in the ClusterRole of the controller.
async fn set_verbs(plane: &ControlPlane, verbs: Value) -> Result<()> {
    let role = kubectl(plane, &["get", "clusterrole", "cilium-node-ipam", "-o", "json"]).await?;
    let role: Value = serde_json::from_str(&role)?;
    let rules = role["rules"].as_array().context("it has rules")?;
    let found = rules.iter().position(|rule| rule["resources"] == json!(["nodeipblocks"]));
    let path = format!("/rules/{}/verbs", found.context("a rule for claims")?);
    let change = json!([{"op": "replace", "path": path, "value": verbs}]).to_string();
    kubectl(plane, &["patch", "clusterrole", "cilium-node-ipam", "--type=json", "-p", &change])
        .await
        .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_said_until_it_is_granted() -> Result<()> {
    said_until_repaired(
        "WriteForbidden",
        "cannot create resource",
        async |rig, _| set_verbs(&rig.control_plane, json!(["list", "watch", "patch", "delete"])).await,
        async |plane, ()| set_verbs(plane, json!(["list", "watch", "create", "patch", "delete"])).await,
    )
    .await
}

/// Every claim that is created gets this answer, until the repair.
async fn said_until_answered_otherwise(words: &str, fault: Fault) -> Result<()> {
    let refuse = async |_: &Rig, proxy: &Proxy| {
        Ok(proxy.plant(Requests::new(Verb::Create, Kind::Block), fault, Often::Always))
    };
    said_until_repaired("WriteFailed", words, refuse, async |_, planted| {
        drop(planted);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_space_is_said_until_it_has_some() -> Result<()> {
    said_until_answered_otherwise("507", Fault::Status(507)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_always_has_too_many_requests_is_said_until_it_has_fewer() -> Result<()> {
    said_until_answered_otherwise("429", Fault::TooMany(1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_an_answer_is_said_until_there_is_one() -> Result<()> {
    said_until_answered_otherwise("create NodeIPBlock", Fault::CutBefore).await
}
