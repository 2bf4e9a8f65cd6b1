//! The installation as an administrator does it: `make install`, `make upgrade` and `make uninstall` with the real
//! kubectl against the real API server. It also judges the image's recipe as far as possible without a daemon.
//!
//! There is no kubelet and no Deployment controller. The test runs the binary with the deployment's own arguments and
//! with the service account's rights. It writes the status in place of a Deployment controller.

#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

mod admission;
mod alerts;
mod chart;
mod dashboard;
pub(crate) mod helm;
mod image;
mod monitoring;
mod queries;
mod release;
mod rendered;
mod unset;
mod upgrade;
pub(crate) mod values;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
};
use k8s_openapi::api::core::v1::{Namespace, Pod, PodTemplateSpec};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::agent::Make;
use crate::support::control_plane::{ControlPlane, Options, tool};
use crate::support::controller::Controller;
use crate::support::eventually::eventually;
use crate::support::families::Families;
use crate::support::kubectl::{kubectl, run};
use crate::support::objects::{Kind, NodeSpec};
use crate::support::rig::under_oracle;

const NAME: &str = "cilium-node-ipam";
const NAMESPACE: &str = "kube-system";
const EVERYWHERE: &str = "every namespace";
const ZONE: &str = "topology.kubernetes.io/zone";
const MANIFEST: &str = "manifests/install.yaml";
const EXAMPLE: &str = "manifests/examples/pool.yaml";

/// Each ConfigMap that the controller reads.
const CONFIG_MAPS: [&str; 2] = ["cilium-config", NAME];

/// For each wait, on a machine that may be busy with other tests.
const SOON: Duration = Duration::from_secs(60);

/// Every right of the controller, with its namespace and purpose. A granted right that is missing here is one too many,
/// and a line here that is not granted is one too few.
const RIGHTS: [(&str, &str, &str, &[&str], &str); 14] = [
    (
        EVERYWHERE,
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        &["get"],
        "whether they are being deleted; two by name",
    ),
    (EVERYWHERE, "", "nodes", &["list", "watch"], "labels, addresses and taints"),
    (EVERYWHERE, "", "pods", &["list"], "who has an address of a block before it leaves its node"),
    (NAMESPACE, "", "configmaps", &["list", "watch"], "Cilium's configuration, and the freeze; two by name"),
    (NAMESPACE, "", "pods", &["list", "watch"], "versions and restarts of Cilium's agents"),
    (NAMESPACE, "cilium.io", "ciliumnodeconfigs", &["list", "watch"], "settings of single nodes"),
    (
        NAMESPACE,
        "coordination.k8s.io",
        "leases",
        &["get", "list", "watch", "create", "update"],
        "the election; one by name",
    ),
    ("default", "events.k8s.io", "events", &["create"], "events on objects without a namespace"),
    (EVERYWHERE, "cilium.io", "ciliumnodes", &["list", "watch", "patch"], "to publish the blocks of nodes"),
    (EVERYWHERE, "cilium.io", "ciliumnodes/status", &["patch"], "usage queries to agents"),
    (EVERYWHERE, "nodeipam.io", "nodeippools", &["list", "watch", "patch"], "the finalizer"),
    (EVERYWHERE, "nodeipam.io", "nodeippools/status", &["patch"], "the status"),
    (
        EVERYWHERE,
        "nodeipam.io",
        "nodeipblocks",
        &["list", "watch", "create", "patch", "delete"],
        "the claims",
    ),
    (EVERYWHERE, "nodeipam.io", "nodeipblocks/status", &["patch"], "the reason why a drain waits"),
];

/// The definitions that the controller may read.
const DEFINITIONS: [&str; 2] = ["nodeippools.nodeipam.io", "nodeipblocks.nodeipam.io"];

/// Actions that a thief of the controller's token would try: group, resource, verb, namespace, name.
const REFUSED: [(&str, &str, &str, &str, &str); 29] = [
    ("apiextensions.k8s.io", "customresourcedefinitions", "get", "", "another.nodeipam.io"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "delete", "", "nodeippools.nodeipam.io"),
    ("", "nodes", "patch", "", ""),
    ("", "nodes/status", "patch", "", ""),
    ("", "pods", "create", NAMESPACE, ""),
    ("", "secrets", "get", NAMESPACE, ""),
    ("", "secrets", "list", "", ""),
    ("", "configmaps", "list", "", ""),
    ("", "configmaps", "list", NAMESPACE, "another"),
    ("", "configmaps", "patch", NAMESPACE, "cilium-config"),
    ("", "configmaps", "patch", NAMESPACE, NAME),
    ("coordination.k8s.io", "leases", "update", NAMESPACE, "another"),
    ("coordination.k8s.io", "leases", "delete", NAMESPACE, NAME),
    ("", "serviceaccounts/token", "create", NAMESPACE, NAME),
    ("cilium.io", "ciliumnodes", "create", "", ""),
    ("cilium.io", "ciliumnodes", "delete", "", ""),
    ("cilium.io", "ciliumnodes", "update", "", ""),
    ("cilium.io", "ciliumnodeconfigs", "list", "", ""),
    ("cilium.io", "ciliumnodeconfigs", "patch", NAMESPACE, "any"),
    ("cilium.io", "ciliumpodippools", "list", "", ""),
    ("cilium.io", "ciliumbgpadvertisements", "list", "", ""),
    ("cilium.io", "ciliumpodippools", "create", "", ""),
    ("cilium.io", "ciliumpodippools", "patch", "", ""),
    ("frrk8s.metallb.io", "frrnodestates", "list", "", ""),
    ("frrk8s.metallb.io", "frrconfigurations", "list", "", ""),
    ("nodeipam.io", "nodeippools", "create", "", ""),
    ("nodeipam.io", "nodeippools", "delete", "", ""),
    ("nodeipam.io", "nodeipblocks", "deletecollection", "", ""),
    ("rbac.authorization.k8s.io", "clusterroles", "patch", "", NAME),
];

#[tokio::test(flavor = "multi_thread")]
async fn installation_serves_and_its_removal_takes_nothing() -> Result<()> {
    under_oracle(Options { manifests: Vec::new(), ..Options::default() }, async |rig| {
        let (plane, cluster) = (&rig.control_plane, &rig.cluster);
        make(plane, "install", &["IMAGE=registry.example.com/nodeipam:1"]).await?;
        let first = versions(plane).await?;
        ensure!(first.contains("Deployment/cilium-node-ipam "), "not what the manifests hold:\n{first}");
        make(plane, "install", &["IMAGE=registry.example.com/nodeipam:1"]).await?;
        ensure!(versions(plane).await? == first, "installed again it changed:\n{first}");
        kubectl(plane, &["apply", "-f", EXAMPLE]).await?;
        cluster.create_node(&NodeSpec::new("n0").label(ZONE, "beijing")).await?;
        let controller = start(plane).await?;
        let mut agent = rig.agents.agent_with(Make::Fake, "n0", rig.agents.settings());
        agent.start()?;
        agent.wait_ready(SOON).await?;
        agent.allocate("ns/before").await?;

        let arguments = ["IMAGE=registry.example.com/nodeipam:2", "TIMEOUT=60s"];
        tokio::try_join!(
            make(plane, "upgrade", &arguments),
            roll_out(plane, "registry.example.com/nodeipam:2")
        )?;

        controller.sigterm_and_wait().await?;
        let published = cluster.published("n0").context("no CiliumNode")?;
        let said = make(plane, "uninstall", &["PURGE="]).await?;
        ensure!(said.contains("pools and claims are kept"), "{said}");
        let left = kubectl(plane, &["get", "--ignore-not-found", "-f", MANIFEST]).await?;
        ensure!(left.is_empty(), "left behind: {left}");
        agent.allocate("ns/after").await?;
        let now = cluster.published("n0").context("no CiliumNode")?;
        ensure!(now.pod_cidrs == published.pod_cidrs && now.pool == published.pool, "{published:?}\n{now:?}");
        ensure!(cluster.claims_of("n0").len() == published.pod_cidrs.len(), "claims are gone");

        // The next one continues where this one stopped.
        make(plane, "install", &["IMAGE=registry.example.com/nodeipam:2"]).await?;
        cluster.create_node(&NodeSpec::new("n1").label(ZONE, "beijing")).await?;
        let controller = start(plane).await?;
        let mut joined = rig.agents.agent_with(Make::Fake, "n1", rig.agents.settings());
        joined.start()?;
        joined.wait_ready(SOON).await?;
        rig.assert_settled().await?;
        let log = std::fs::read_to_string(controller.log())?;
        ensure!(!log.to_lowercase().contains("forbidden"), "it wants more rights than it has:\n{log}");
        Ok((controller, agent, joined))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_removes_every_trace_but_the_addresses() -> Result<()> {
    let bare = Options { crds: Vec::new(), manifests: Vec::new(), ..Options::of(Families::V4) };
    let plane = ControlPlane::start(bare).await?;
    // The test deletes claims while CiliumNodes carry their blocks, on purpose.
    for rule in ["cidr-without-claim", "claim-deleted-while-carried"] {
        plane.allow(rule, None, None).await?;
    }
    let refused = make(&plane, "upgrade", &["IMAGE=x"]).await.unwrap_err().to_string();
    ensure!(refused.contains("see `make install`"), "{refused}");
    make(&plane, "install", &["IMAGE=x"]).await?;
    kubectl(&plane, &["apply", "-f", EXAMPLE]).await?;
    let node = NodeSpec::new("n0").label(ZONE, "beijing");
    let (nodes, cilium_nodes) = (Kind::Node.api(&plane.admin), Kind::CiliumNode.api(&plane.admin));
    nodes.create(&PostParams::default(), &node.object(0)).await?;
    cilium_nodes.create(&PostParams::default(), &Kind::CiliumNode.object("n0", json!({"spec": {}}))).await?;
    let controller = start(&plane).await?;
    let served = |object: Option<&kube::api::DynamicObject>| {
        object.is_some_and(|object| object.data["spec"]["ipam"]["podCIDRs"][0].is_string())
    };
    tokio::time::timeout(SOON, await_condition(cilium_nodes.clone(), "n0", served)).await??;
    controller.sigterm_and_wait().await?;
    let before = cilium_nodes.get("n0").await?;

    let said = make(&plane, "uninstall", &["PURGE=1"]).await?;
    ensure!(said.contains("all pools and all claims are gone"), "{said}");
    let definitions = kubectl(&plane, &["get", "--ignore-not-found", "-f", "crds"]).await?;
    ensure!(definitions.is_empty(), "left behind: {definitions}");
    ensure!(cilium_nodes.get("n0").await?.data == before.data, "the CiliumNode changed");
    // A repeated uninstall is no error.
    make(&plane, "uninstall", &["PURGE=1"]).await?;
    plane.assert_clean().await
}

#[test]
fn rights_are_those_on_the_page_of_security() -> Result<()> {
    let rows = RIGHTS.map(|(namespace, group, resource, verbs, purpose)| {
        let place = if namespace == EVERYWHERE { "everywhere" } else { namespace };
        let group = if group.is_empty() { "core" } else { group };
        format!("| {place} | {group} | {resource} | {} | {purpose} |\n", verbs.join(", "))
    });
    let page = std::fs::read_to_string("docs/security.md")?;
    let (_, table) = page.split_once("|---|---|---|---|---|\n").context("no table of rights")?;
    ensure!(table == rows.concat(), "docs/security.md must end with\n{}", rows.concat());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_what_it_uses_and_no_more() -> Result<()> {
    let plane =
        ControlPlane::start(Options { manifests: vec![MANIFEST.into()], ..Options::default() }).await?;
    for namespace in [NAMESPACE, "default", "any-other"] {
        wait_granted(&plane, namespace, &[]).await?;
    }
    for (group, resource, verb, namespace, name) in REFUSED {
        ensure!(!may(&plane, group, resource, verb, namespace, name).await?, "may {verb} {resource}.{group}");
    }
    // The check can say yes.
    for name in CONFIG_MAPS {
        ensure!(may(&plane, "", "configmaps", "list", NAMESPACE, name).await?, "can't read {name}");
    }
    Ok(())
}

/// Returns when the controller has exactly the rights that it needs in a namespace, and `more`. The server watches
/// rights as other clients watch objects, so new rights may not count yet.
async fn wait_granted(plane: &ControlPlane, namespace: &str, more: &[&str]) -> Result<()> {
    let needed: BTreeSet<_> = RIGHTS
        .into_iter()
        .filter(|right| right.0 == EVERYWHERE || right.0 == namespace)
        .flat_map(|(_, group, resource, verbs, _)| {
            verbs.iter().map(move |verb| format!("{verb} {group}/{resource}"))
        })
        .chain(more.iter().map(ToString::to_string))
        .collect();
    eventually(SOON, async || {
        let granted = granted(plane, namespace).await?;
        ensure!(granted == needed, "in the namespace {namespace} {granted:?} are granted, not {needed:?}");
        Ok(())
    })
    .await
}

/// The controller's rights in a namespace, as the server reports them.
async fn granted(plane: &ControlPlane, namespace: &str) -> Result<BTreeSet<String>> {
    let reviews: Api<SelfSubjectRulesReview> = Api::all(plane.controller.clone());
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) },
        ..SelfSubjectRulesReview::default()
    };
    let status = reviews.create(&PostParams::default(), &review).await?.status.context("no answer")?;
    let mut granted = BTreeSet::new();
    for rule in status.resource_rules {
        for group in rule.api_groups.iter().flatten() {
            // Every user may ask for its own name and rights.
            if group == "authentication.k8s.io" || group == "authorization.k8s.io" {
                continue;
            }
            for resource in rule.resources.iter().flatten() {
                granted.extend(rule.verbs.iter().map(|verb| format!("{verb} {group}/{resource}")));
                let names: Vec<&str> = rule.resource_names.iter().flatten().map(String::as_str).collect();
                let is_one_of_ours = || matches!(names[..], [name] if CONFIG_MAPS.contains(&name));
                let is_right = match resource.as_str() {
                    "configmaps" => is_one_of_ours(),
                    // A right to create can't be bound to a name.
                    "customresourcedefinitions" => names == DEFINITIONS,
                    "leases" if rule.verbs != ["create"] => names == [NAME],
                    _ => names.is_empty(),
                };
                ensure!(is_right, "{resource}: {names:?}");
            }
        }
    }
    Ok(granted)
}

async fn may(
    plane: &ControlPlane,
    group: &str,
    resource: &str,
    verb: &str,
    namespace: &str,
    name: &str,
) -> Result<bool> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: text(group),
                resource: text(resource),
                subresource: text(subresource),
                verb: text(verb),
                namespace: text(namespace),
                name: text(name),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(plane.controller.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.context("no answer")?.allowed)
}

/// The judge is the server's own Pod Security admission, at its strictest level.
#[tokio::test(flavor = "multi_thread")]
async fn pod_is_restricted_but_for_the_host_network_and_every_field_is_known() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let namespaces: Api<Namespace> = Api::all(plane.admin.clone());
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = serde_json::from_value(json!({"metadata": {"name": "restricted", "labels": labels}}))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let pods: Api<Pod> = Api::namespaced(plane.admin.clone(), "restricted");
    let mut pod = pod(deployment().spec.context("no spec")?.template);

    let error = pods.create(&PostParams::default(), &pod).await.unwrap_err().to_string();
    // The host network implies the other two: ports of the host, and health checks that name a host.
    let (_, violations) =
        error.split_once("violates PodSecurity \"restricted:latest\": ").context(error.clone())?;
    let (violations, _) = violations.split_once(": Forbidden").unwrap_or((violations, ""));
    assert_eq!(
        violations,
        "host namespaces (hostNetwork=true), hostPort (container \"controller\" uses hostPort 9920), probe or \
         lifecycle host (container \"controller\" uses probe or lifecycle host \"127.0.0.1\")"
    );
    // Without these no violation remains, so the pod is otherwise as restricted as a pod can be.
    let spec = pod.spec.as_mut().unwrap();
    spec.host_network = None;
    let container = &mut spec.containers[0];
    (container.ports, container.liveness_probe, container.readiness_probe) = (None, None, None);
    pods.create(&PostParams::default(), &pod).await?;
    knows_every_field(&plane).await
}

/// The server knows every field that a value of the chart can set.
async fn knows_every_field(plane: &ControlPlane) -> Result<()> {
    for namespace in ["addresses", "cilium", "frr-k8s-system", "monitoring"] {
        kubectl(plane, &["create", "namespace", namespace]).await?;
    }
    monitoring::define(plane).await?;
    let path = "tests/it/install/rendered/everything.yaml";
    kubectl(plane, &["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", path])
        .await
        .map(drop)
}

fn pod(template: PodTemplateSpec) -> Pod {
    let mut metadata = template.metadata.unwrap_or_default();
    metadata.name = Some(NAME.to_owned());
    Pod { metadata, spec: template.spec, status: None }
}

#[test]
fn deployment_fits_the_binary() {
    let spec = deployment().spec.unwrap();
    let pod = spec.template.spec.unwrap();
    let [container] = &pod.containers[..] else { panic!("one container") };
    let arguments = container.args.clone().unwrap();
    let listen = arguments.iter().find_map(|argument| argument.strip_prefix("--listen=")).unwrap();
    let (host, port) = listen.rsplit_once(':').unwrap();
    let ports = container.ports.clone().unwrap();
    assert_eq!(ports[0].container_port.to_string(), port);
    for (probe, path) in [(&container.liveness_probe, "/livez"), (&container.readiness_probe, "/readyz")] {
        let get = probe.clone().unwrap().http_get.unwrap();
        assert_eq!((get.path.as_deref(), get.host.as_deref()), (Some(path), Some(host)));
        assert_eq!(Some(serde_json::to_value(get.port).unwrap()), ports[0].name.clone().map(Value::from));
    }
    assert_eq!(container.image, Some(format!("{NAME}:{}", env!("CARGO_PKG_VERSION"))));

    // clap exits with 2 if an argument is wrong. These are right, and a kubeconfig is missing.
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"))
        .args(&arguments)
        .args(["--kubeconfig", "/nonexistent/kubeconfig"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("can't read the kubeconfig /nonexistent/kubeconfig"), "{stderr}");
}

#[test]
fn deployment_can_run_where_nothing_else_can() {
    let spec = deployment().spec.unwrap();
    // One leads and one is on standby. Both use one port of their host, so each needs its own host, also in an upgrade.
    assert_eq!(spec.replicas, Some(2));
    let rolling = serde_json::to_value(spec.strategy.unwrap()).unwrap();
    assert_eq!(
        rolling,
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
    );
    let labels = spec.template.metadata.unwrap().labels.unwrap();
    let affinity = spec.template.spec.as_ref().unwrap().affinity.clone().unwrap().pod_anti_affinity.unwrap();
    let [apart] = &affinity.required_during_scheduling_ignored_during_execution.unwrap()[..] else {
        panic!("one rule")
    };
    let selected = apart.label_selector.clone().unwrap().match_labels.unwrap();
    assert_eq!((apart.topology_key.as_str(), selected), ("kubernetes.io/hostname", labels));
    let pod = spec.template.spec.unwrap();
    assert_eq!((pod.host_network, pod.dns_policy.as_deref()), (Some(true), Some("Default")));
    assert_eq!(pod.priority_class_name.as_deref(), Some("system-cluster-critical"));
    let tolerations = pod.tolerations.unwrap();
    // As in Kubernetes (GetMatchingTolerations), the first match of a taint counts.
    let seconds = |key: &str, effect: &str| {
        let matching = tolerations.iter().find(|toleration| {
            toleration.key.as_deref().is_none_or(|its| its == key)
                && toleration.operator.as_deref() == Some("Exists")
                && toleration.effect.as_deref().is_none_or(|its| its == effect)
        });
        matching.unwrap_or_else(|| panic!("{key}:{effect} is not tolerated")).toleration_seconds
    };
    for key in ["node.cilium.io/agent-not-ready", "node.kubernetes.io/not-ready", "example.com/any"] {
        for effect in ["NoSchedule", "NoExecute"] {
            assert_eq!(seconds(key, effect), None, "{key}:{effect}");
        }
    }
    let unreachable = "node.kubernetes.io/unreachable";
    assert_eq!((seconds(unreachable, "NoExecute"), seconds(unreachable, "NoSchedule")), (Some(30), None));
    let security = pod.containers[0].security_context.clone().unwrap();
    assert_eq!(security.read_only_root_filesystem, Some(true));
    assert!(pod.volumes.is_none(), "it keeps nothing");
}

#[test]
fn example_pool_is_valid() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"))
        .args(["validate", "-f", EXAMPLE])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout, "1 object checked, 0 problems found, 0 warnings\n");
    assert!(output.status.success());
}

/// Runs the controller as the deployment does, but on its own port, once it has its rights.
async fn start(plane: &ControlPlane) -> Result<Controller> {
    for namespace in [NAMESPACE, "default"] {
        wait_granted(plane, namespace, &[]).await?;
    }
    start_with(plane, &[]).await
}

/// As [`start`], with further arguments, and without waiting for rights.
async fn start_with(plane: &ControlPlane, more: &[&str]) -> Result<Controller> {
    start_as(plane, deployment(), more).await
}

/// As [`start_with`], for this Deployment.
async fn start_as(plane: &ControlPlane, deployment: Deployment, more: &[&str]) -> Result<Controller> {
    let pod = deployment.spec.and_then(|spec| spec.template.spec).context("no pod")?;
    let arguments = pod.containers[0].args.clone().context("no arguments")?;
    let own: Vec<_> = arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| *argument != "run" && !argument.starts_with("--listen="))
        .chain(more.iter().copied())
        .collect();
    Controller::start_ready(plane, &own).await
}

/// Writes the status as a Deployment controller does when the pods with `image` have become ready.
async fn roll_out(plane: &ControlPlane, image: &str) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(plane.admin.clone(), NAMESPACE);
    let wanted = |deployment: Option<&Deployment>| {
        let pod = deployment.and_then(|deployment| deployment.spec.as_ref()?.template.spec.as_ref());
        pod.is_some_and(|pod| pod.containers[0].image.as_deref() == Some(image))
    };
    let seen = tokio::time::timeout(SOON, await_condition(deployments.clone(), NAME, wanted)).await??;
    let seen = seen.context("no Deployment")?;
    let n = seen.spec.and_then(|spec| spec.replicas);
    let status = json!({"status": {
        "observedGeneration": seen.metadata.generation,
        "replicas": n, "updatedReplicas": n, "readyReplicas": n, "availableReplicas": n,
    }});
    deployments.patch_status(NAME, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// The installed objects, with their versions.
async fn versions(plane: &ControlPlane) -> Result<String> {
    let columns =
        "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{\"\\n\"}{end}";
    kubectl(plane, &["get", "-f", "crds", "-f", MANIFEST, "-o", columns]).await
}

/// Runs `make` as an administrator would, and returns its output.
async fn make(plane: &ControlPlane, target: &str, arguments: &[&str]) -> Result<String> {
    let kubectl = format!("KUBECTL={}", tool("NODEIPAM_KUBECTL", "kubectl").display());
    let mut command = Command::new("make");
    // The `make` that runs the tests must not influence this one.
    command.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("MAKELEVEL");
    // Without Helm, unless an argument names one.
    command.args(["--no-print-directory", target, &kubectl, "HELM="]).args(arguments);
    run(plane, command).await
}

fn deployment() -> Deployment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(MANIFEST);
    let text = std::fs::read_to_string(path).unwrap();
    let is_it = |document: &&str| document.contains("\nkind: Deployment\n");
    serde_saphyr::from_str(text.split("\n---\n").find(is_it).unwrap()).unwrap()
}
