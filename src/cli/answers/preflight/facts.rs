//! The facts of an installation, from a cluster or from files. A kind that can't be read is a fact that was not seen.

use std::collections::BTreeMap;
use std::path::Path;

use kube::Api;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use super::rights;
use crate::cli::access::Access;
use crate::cli::answers::around::{self, definitions, list_kind, plain, resource};
use crate::cli::answers::files::{self, Namespaces};
use crate::cli::answers::replicas;
use crate::controller::client::Clients;
use crate::model::installation::{Guard, Installation, Seen};
use crate::model::kind::Kind;
use crate::model::time::Now;
use crate::publisher::ipam_mode::IpamMode;
use crate::wire::{admission, installation};
use crate::world::World;

/// The ConfigMap with the settings of Cilium.
const SETTINGS: &str = "cilium-config";

/// The group of webhooks and policies.
const ADMISSION: &str = "admissionregistration.k8s.io";

/// The namespace of kube-controller-manager, where its Pods can be seen.
const CONTROL_PLANE: &str = "kube-system";

/// The objects of a kind.
type Objects = Seen<Vec<Value>>;

/// The facts of a cluster. Only a server that does not answer is an error.
pub(in crate::cli) async fn of_cluster(
    clients: &Clients,
    access: &Access,
    unlisted: BTreeMap<Kind, String>,
) -> anyhow::Result<Installation> {
    let cilium = access.cilium_namespace.as_str();
    let list = async |group: &str,
                      version: &str,
                      kind: &str,
                      plural: &str,
                      namespace: Option<&str>,
                      labels: &str| {
        listed(clients, group, version, kind, plural, namespace, ListParams::default().labels(labels)).await
    };
    let server = clients.reads.apiserver_version().await;
    let settings = {
        let params = ListParams::default().fields(&format!("metadata.name={SETTINGS}"));
        listed(clients, "", "v1", "ConfigMap", "configmaps", Some(cilium), params).await?
    };
    let settings: Seen<Option<BTreeMap<String, String>>> = settings.map(|found| found.first().map(data));
    let daemon_sets = list("apps", "v1", "DaemonSet", "daemonsets", None, "").await?;
    let operators = list("apps", "v1", "Deployment", "deployments", Some(cilium), "").await?;
    let own =
        list("apps", "v1", "Deployment", "deployments", Some(&access.namespace), replicas::OUR_PODS).await?;
    let managers = "component=kube-controller-manager";
    let managers = list("", "v1", "Pod", "pods", Some(CONTROL_PLANE), managers).await?;
    let services = list("apiregistration.k8s.io", "v1", "APIService", "apiservices", None, "").await?;
    let ranges = around::ranges(clients).await?;
    let (mut webhooks, mut policies) = (Vec::new(), Vec::new());
    for (kind, plural) in admission::WEBHOOKS {
        webhooks.push(list(ADMISSION, "v1", kind, plural, None, "").await?);
    }
    for (kind, plural) in admission::POLICIES {
        policies.push(list(ADMISSION, "v1", kind, plural, None, "").await?);
    }
    let mut skipped = Vec::new();
    let definitions = definitions(clients, &mut skipped).await?;
    let definitions = seen(definitions, &skipped);
    let mode = settings.as_ref().ok().and_then(Option::as_ref);
    let mode = mode.and_then(|settings| settings.get("ipam")).and_then(|text| text.parse::<IpamMode>().ok());
    Ok(Installation {
        server: server
            .map(|version| version.git_version)
            .map_err(|error| format!("the API server does not say: {error}")),
        cilium_namespace: cilium.to_owned(),
        namespace: access.namespace.clone(),
        settings,
        unlisted,
        definitions: definitions.map(|found| found.iter().filter_map(installation::definition).collect()),
        unavailable: services.map(|found| found.iter().filter_map(installation::unavailable).collect()),
        daemon_sets: daemon_sets.map(|found| found.iter().map(installation::daemon_set).collect()),
        operators: operators.map(|found| found.iter().filter_map(installation::cilium_operator).collect()),
        controller_managers: managers
            .map(|found| found.iter().filter_map(installation::controller_manager).collect()),
        exporter: own.map(|found| found.iter().find_map(installation::exporter)),
        ranges: ranges.around.ranges,
        unlisted_ranges: ranges.skipped,
        guards: guards(webhooks, policies),
        user: rights::of_user(clients, access).await,
        controller: rights::of_controller(clients, access, mode).await,
    })
}

/// The facts in files, which say nothing of rights.
pub(super) fn of_files(path: &Path, namespaces: Namespaces) -> anyhow::Result<(World, Installation, Now)> {
    let read = files::in_bundle(path, namespaces)?;
    let bundle = read.by_kind.get(files::BUNDLE).and_then(|found| found.first());
    let of_kind = |kind: &str| -> Objects {
        if let Some(found) = read.by_kind.get(kind) {
            return Ok(found.clone());
        }
        // A bundle has every kind that it does not name as left out, except Deployments.
        let left_out = bundle.map(|bundle| bundle["leftOut"].as_array().into_iter().flatten());
        let named = format!("{kind}s, ");
        let why = left_out.map(|mut all| {
            all.find_map(|why| why.as_str().filter(|why| why.starts_with(&named)).map(ToOwned::to_owned))
        });
        match why {
            Some(Some(why)) => Err(format!("not in the bundle: {why}")),
            Some(None) if kind != "Deployment" => Ok(Vec::new()),
            Some(None) | None => Err(format!("the files have no {kind}")),
        }
    };
    let cilium = read.namespaces.cilium.clone();
    let config_maps = of_kind("ConfigMap");
    let is_settings = |found: &&Value| {
        found["metadata"]["name"] == SETTINGS && found["metadata"]["namespace"] == cilium.as_str()
    };
    let settings = config_maps.and_then(|found| match found.iter().find(is_settings) {
        Some(found) => Ok(Some(data(found))),
        None => Err(format!("the files have no ConfigMap {cilium}/{SETTINGS}")),
    });
    let is_there = |found: &&Value| found["metadata"]["namespace"] == cilium.as_str();
    let exporter = of_kind("Deployment").map(|found| found.iter().find_map(installation::exporter));
    let operators = of_kind("Deployment")
        .map(|found| found.iter().filter(is_there).filter_map(installation::cilium_operator).collect());
    let rights = "files do not show rights".to_owned();
    let server = bundle.and_then(|bundle| bundle["server"].as_str());
    // Without a bundle, most clusters have no objects of the other kinds.
    let is_missing = |kind: &&str| bundle.is_some() || matches!(*kind, "Service" | "ServiceCIDR");
    let kinds = around::RANGES.iter().map(|(_, _, kind, _)| *kind).filter(is_missing);
    let causes = kinds.filter_map(|kind| of_kind(kind).err());
    let unlisted_ranges = causes.filter(|why| !why.ends_with(around::UNKNOWN)).collect();
    let unlisted = [Kind::Pool, Kind::Claim, Kind::Node, Kind::CiliumNode].into_iter();
    let unlisted = unlisted.filter_map(|kind| Some((kind, of_kind(kind.as_str()).err()?))).collect();
    let mut facts = Installation {
        server: server.map(ToOwned::to_owned).ok_or_else(|| "the files do not name it".to_owned()),
        cilium_namespace: cilium.clone(),
        namespace: read.namespaces.own.clone(),
        settings,
        unlisted,
        definitions: of_kind("CustomResourceDefinition")
            .map(|found| found.iter().filter_map(installation::definition).collect()),
        unavailable: of_kind("APIService")
            .map(|found| found.iter().filter_map(installation::unavailable).collect()),
        daemon_sets: of_kind("DaemonSet").map(|found| found.iter().map(installation::daemon_set).collect()),
        operators,
        controller_managers: of_kind("Pod")
            .map(|found| found.iter().filter_map(installation::controller_manager).collect()),
        exporter,
        ranges: Vec::new(),
        unlisted_ranges,
        guards: Err("files do not show webhooks".to_owned()),
        user: Err(rights.clone()),
        controller: Err(rights),
    };
    let now = read.now;
    let files::Files { world, objects, .. } = read.into_files()?;
    facts.ranges = objects.around.ranges;
    Ok((world, facts, now))
}

/// The guards that can stop writes of the controller, by the configurations of webhooks, and by policies and their bindings.
fn guards(webhooks: Vec<Objects>, policies: Vec<Objects>) -> Seen<Vec<Guard>> {
    let webhooks: Vec<Vec<Value>> = webhooks.into_iter().collect::<Seen<_>>()?;
    let policies: Vec<Vec<Value>> = policies.into_iter().collect::<Seen<_>>()?;
    let mut guards: Vec<Guard> = webhooks.iter().flatten().flat_map(admission::webhooks).collect();
    if let [policies, bindings] = &policies[..] {
        guards.extend(admission::policies(policies, bindings));
    }
    Ok(guards)
}

/// The data of a ConfigMap.
fn data(config_map: &Value) -> BTreeMap<String, String> {
    let entries = config_map["data"].as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The objects of a kind; none if the server does not serve it.
async fn listed(
    clients: &Clients,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
    namespace: Option<&str>,
    params: ListParams,
) -> anyhow::Result<Objects> {
    let resource = resource(group, version, kind, plural);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(clients.reads.clone(), namespace, &resource),
        None => Api::all_with(clients.reads.clone(), &resource),
    };
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    let take = |page: Vec<DynamicObject>| {
        for object in page {
            found.push(plain(object, kind)?);
        }
        Ok(())
    };
    list_kind(clients, &api, params, kind, &mut skipped, take).await?;
    Ok(seen(found, &skipped))
}

/// These objects, or why they were not seen.
fn seen(found: Vec<Value>, skipped: &[String]) -> Objects {
    if skipped.is_empty() { Ok(found) } else { Err(format!("not seen: {}", skipped.join(", "))) }
}
