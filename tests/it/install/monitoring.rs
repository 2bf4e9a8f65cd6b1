//! A complete installation with monitoring. Helm installs the chart with the metrics port, the `ServiceMonitor`, the
//! alerts and the dashboard. Two replicas run with its objects, and a real Prometheus scrapes and alerts as under the
//! Prometheus Operator.
//!
//! There is no operator and no kubelet. The test turns a Secret into files, a `ServiceMonitor` into a job, and a
//! `PrometheusRule` into rules, all as the API server has them. Free ports replace those of the values.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec, Secret, Service};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::helm::{CHART, helm};
use super::{NAME, NAMESPACE, SOON, may, start_as, wait_granted};
use crate::scene::{join, nodes, wait_ready};
use crate::scraping::{self, Files};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::controller::{Controller, ELECTED};
use crate::support::eventually::eventually;
use crate::support::kubectl::kubectl;
use crate::support::objects::PoolSpec;
use crate::support::prometheus::Prometheus;
use crate::support::rig::under_oracle;

/// The definitions of the Prometheus Operator.
const DEFINITIONS: &str = "tests/data/prometheus-operator/crds";

/// The Secret with the certificate of the metrics port.
const CERTIFICATE: &str = "metrics-certificate";

/// Where a Prometheus in the cluster has its own token.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Adds the kinds of the Prometheus Operator.
pub(super) async fn define(plane: &ControlPlane) -> Result<()> {
    kubectl(plane, &["apply", "--server-side", "-f", DEFINITIONS]).await?;
    kubectl(plane, &["wait", "--for=condition=Established", "-f", DEFINITIONS]).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_with_monitoring_is_scraped_and_its_alerts_fire_and_resolve() -> Result<()> {
    under_oracle(Options { manifests: Vec::new(), ..Options::default() }, async |rig| {
        let (plane, cluster) = (&rig.control_plane, &rig.cluster);
        plane.keep_to_this_test();
        // The rig needs the definitions at its start, but the chart's own count.
        kubectl(plane, &["delete", "-f", "crds"]).await?;
        define(plane).await?;
        let files = Files::new()?;
        prepare(plane, &files).await?;
        install(plane, &files).await?;

        let first = start(plane, &files).await?;
        let second = start(plane, &files).await?;
        let prometheus =
            Prometheus::start_with(plane, &rules(plane).await?, job(plane, &files).await?).await?;
        let expect = async |alerts: &[&str]| plane.alarm.over(prometheus.wait_firing(alerts, SOON)).await;
        expect(&["ControllerAbsent"]).await?;
        prometheus.scrape(&[scraping::address(&first)?, scraping::address(&second)?])?;
        expect(&[]).await?;

        cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/28"])).await?;
        let mut agents = join(rig, &nodes("served", 1)).await?;
        wait_ready(rig, &agents).await?;
        let waits = join(rig, &nodes("waits", 1)).await?;
        expect(&["NodesWaiting", "NodesWithoutAddresses", "PoolFull"]).await?;
        cluster
            .patch_pool("p", json!({"ipv4": {"cidrs": [{"cidr": "10.1.0.0/28"}, {"cidr": "10.1.1.0/24"}]}}))
            .await?;
        wait_ready(rig, &waits).await?;
        expect(&[]).await?;
        agents.extend(waits);

        for controller in [&first, &second] {
            let log = std::fs::read_to_string(controller.log())?;
            ensure!(!log.to_lowercase().contains("forbidden"), "it wants more rights than it has:\n{log}");
        }
        Ok((first, second, agents))
    })
    .await
}

/// A Prometheus with a ServiceAccount, and the certificate, as an administrator prepares both.
async fn prepare(plane: &ControlPlane, files: &Files) -> Result<()> {
    kubectl(plane, &["create", "namespace", "monitoring"]).await?;
    kubectl(plane, &["-n", "monitoring", "create", "serviceaccount", "prometheus"]).await?;
    let [certificate, key] = [("cert", "tls.crt"), ("key", "tls.key")]
        .map(|(flag, name)| format!("--{flag}={}", files.path(name).display()));
    let create = ["-n", NAMESPACE, "create", "secret", "tls", CERTIFICATE, &certificate, &key];
    kubectl(plane, &create).await?;
    std::fs::write(files.token(), scraping::token(plane, "prometheus").await?)?;
    // From now on they come from the Secret.
    for name in ["tls.crt", "tls.key"] {
        std::fs::remove_file(files.path(name))?;
    }
    Ok(())
}

async fn install(plane: &ControlPlane, files: &Files) -> Result<()> {
    let values = json!({
        "metricsPort": {
            "enabled": true, "certificateSecret": CERTIFICATE, "scrapers": ["monitoring/prometheus"],
        },
        "serviceMonitor": {
            "enabled": true,
            "tlsConfig": {"serverName": scraping::NAME, "ca": {"secret": {"name": CERTIFICATE, "key": "tls.crt"}}},
        },
        "prometheusRule": {"enabled": true},
        "grafanaDashboard": {"enabled": true},
    });
    let file = files.path("values.json");
    std::fs::write(&file, values.to_string())?;
    helm(plane, "3", &["install", NAME, CHART, "--values", file.to_str().context("no UTF-8")?]).await?;
    kubectl(plane, &["wait", "--for=condition=Established", "-f", "crds"]).await?;
    let maps = kubectl(plane, &["-n", NAMESPACE, "get", "configmaps", "-o", "name"]).await?;
    ensure!(maps.contains("dashboard"), "{maps}");
    for namespace in [NAMESPACE, "default"] {
        wait_granted(plane, namespace, &[]).await?;
    }
    eventually(SOON, async || {
        for (group, resource) in
            [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")]
        {
            ensure!(may(plane, group, resource, "create", "", "").await?, "may not create {resource}");
        }
        Ok(())
    })
    .await
}

/// A replica with the arguments of the Deployment, and the files of its Secret.
async fn start(plane: &ControlPlane, files: &Files) -> Result<Controller> {
    let mut deployment: Deployment = Api::namespaced(plane.admin.clone(), NAMESPACE).get(NAME).await?;
    let pod = pod(&mut deployment)?;
    let volume = pod.volumes.iter().flatten().next().context("no volume")?;
    let secret = volume.secret.as_ref().and_then(|secret| secret.secret_name.clone()).context("no Secret")?;
    let secret: Secret = Api::namespaced(plane.admin.clone(), NAMESPACE).get(&secret).await?;
    for (name, content) in secret.data.into_iter().flatten() {
        std::fs::write(files.path(&name), content.0)?;
    }
    let container = &mut pod.containers[0];
    let port = metrics_port(container)?;
    let mount = container.volume_mounts.iter().flatten().next().context("no mount")?.mount_path.clone();
    let folder = files.folder().to_str().context("no UTF-8")?;
    let arguments = container.args.as_mut().context("no arguments")?;
    let mut listens = false;
    for argument in arguments {
        if *argument == format!("--metrics-listen=:{port}") {
            "--metrics-listen=127.0.0.1:0".clone_into(argument);
            listens = true;
        }
        *argument = argument.replace(&mount, folder);
    }
    ensure!(listens, "no metrics port");
    start_as(plane, deployment, &[ELECTED]).await
}

fn pod(deployment: &mut Deployment) -> Result<&mut PodSpec> {
    deployment.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).context("no pod")
}

fn metrics_port(container: &Container) -> Result<i32> {
    let port = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some("metrics"));
    Ok(port.context("no port for metrics")?.container_port)
}

async fn monitoring_object(plane: &ControlPlane, kind: &str) -> Result<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("monitoring.coreos.com", "v1", kind));
    Ok(Api::namespaced_with(plane.admin.clone(), NAMESPACE, &resource).get(NAME).await?)
}

/// The rules of the `PrometheusRule`.
async fn rules(plane: &ControlPlane) -> Result<String> {
    let rule = monitoring_object(plane, "PrometheusRule").await?;
    Ok(serde_json::to_string_pretty(&rule.data["spec"])?)
}

/// The job of the `ServiceMonitor`. The Service that it selects leads to the replicas.
async fn job(plane: &ControlPlane, files: &Files) -> Result<Value> {
    let monitor = monitoring_object(plane, "ServiceMonitor").await?.data;
    let [endpoint] = &monitor["spec"]["endpoints"].as_array().context("no endpoints")?[..] else {
        anyhow::bail!("one endpoint, not {monitor}")
    };
    let mut deployment: Deployment = Api::namespaced(plane.admin.clone(), NAMESPACE).get(NAME).await?;
    let template = deployment.spec.as_ref().and_then(|spec| spec.template.metadata.clone());
    let of_pods = template.and_then(|metadata| metadata.labels).context("no labels")?;
    let service: Service = Api::namespaced(plane.admin.clone(), NAMESPACE).get(NAME).await?;
    let spec = service.spec.context("no spec")?;
    let selected: BTreeMap<String, String> =
        serde_json::from_value(monitor["spec"]["selector"]["matchLabels"].clone())?;
    let labels = service.metadata.labels.context("no labels")?;
    for (selector, labels) in [(&selected, &labels), (&spec.selector.context("no selector")?, &of_pods)] {
        let is_selected =
            !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        ensure!(is_selected, "{selector:?} does not select {labels:?}");
    }
    let port =
        spec.ports.into_iter().flatten().find(|port| port.name.as_deref() == endpoint["port"].as_str());
    let target = serde_json::to_value(port.context("no such port")?.target_port)?;
    let container = &pod(&mut deployment)?.containers[0];
    let is_target = container.ports.iter().flatten().any(|port| port.name.as_deref() == target.as_str());
    ensure!(is_target, "no port {target} of the container");

    ensure!(endpoint["bearerTokenFile"] == TOKEN, "{endpoint}");
    let tls = &endpoint["tlsConfig"];
    ensure!(tls["ca"]["secret"] == json!({"name": CERTIFICATE, "key": "tls.crt"}), "{tls}");
    let name = monitor["spec"]["jobLabel"].as_str().and_then(|label| labels.get(label));
    Ok(json!({
        "job_name": name.context("no job")?,
        "scheme": endpoint["scheme"],
        "authorization": {"credentials_file": files.token()},
        "tls_config": {"ca_file": files.certificate(), "server_name": tls["serverName"]},
    }))
}
