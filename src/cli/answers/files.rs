//! A world from files of objects, as `kubectl get -o yaml` or `-o json` prints them.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde::Deserialize as _;
use serde_json::Value;

use super::around::{self, Objects};
use super::replicas::{OUR_PODS, Replicas};
use crate::cli::documents::{self, Depth, Document, Input, Places, Unreadable};
use crate::cli::screen;
use crate::controller::client::FIELD_MANAGER;
use crate::controller::clock::Clock;
use crate::controller::lease;
use crate::model::agent::AgentNews;
use crate::model::counted::counted;
use crate::model::definition::{DefinitionNews, DefinitionState};
use crate::model::kind::Kind;
use crate::model::node_config::NodeConfigNews;
use crate::model::observation::{Listing, Object, Observation};
use crate::model::pod_ip_pool::PodIpPoolNews;
use crate::model::revision::AnyRevision;
use crate::model::time::Now;
use crate::publisher::Publisher;
use crate::publisher::mode::Mode;
use crate::publisher::settings::{Settings, from_config};
use crate::wire::freeze::{self, freeze_of};
use crate::wire::side_watched::SideWatched;
use crate::wire::watched::{Watched, Wire};
use crate::wire::{CiliumNodes, Claims, Nodes, Pools, installation, surroundings};
use crate::world::World;
use crate::world::gather::Gathering;

/// The kind of the object that describes a bundle.
pub(in crate::cli) const BUNDLE: &str = "Bundle";

/// How many files are named that could not be read.
const NAMED: usize = 10;

/// The namespaces of Cilium and of the controller.
#[derive(Debug, Clone)]
pub(super) struct Namespaces {
    pub(super) cilium: String,
    pub(super) own: String,
}

/// Objects from files.
pub(super) struct Files {
    pub(super) world: World,
    pub(super) objects: Objects,
    /// The time of the bundle, or else the time of the command.
    pub(super) now: Now,
    /// The namespaces of the bundle, or else those of the command.
    pub(super) namespaces: Namespaces,
    /// The Lease of the controller; an error says that it is unknown.
    pub(super) lease: Result<Option<Lease>, String>,
    /// The Pods of the controller.
    pub(super) replicas: Option<Replicas>,
}

/// The documents in files, before they are a world.
pub(super) struct Documents {
    pub(super) by_kind: BTreeMap<String, Vec<Value>>,
    pub(super) now: Now,
    pub(super) namespaces: Namespaces,
    objects: Objects,
    /// Whether they may be only a part of a cluster's objects: those that a bundle could read.
    is_of_part: bool,
}

/// The objects in a bundle, or in a directory of files.
pub(super) fn read_bundle(path: &Path, namespaces: Namespaces) -> anyhow::Result<Files> {
    let documents = in_bundle(path, namespaces)?;
    if !documents.is_of_part {
        return documents.with_pools();
    }
    let is_of_world = |skipped: &&String| {
        Kind::ALL.iter().any(|kind| skipped.starts_with(&format!("{}s, ", kind.as_str())))
    };
    for skipped in documents.objects.skipped.iter().filter(is_of_world) {
        screen::note(format_args!("not in the bundle: {skipped}"));
    }
    documents.into_files()
}

/// The objects in these files. They have a pool or a claim.
pub(super) fn read(paths: &[PathBuf], namespaces: Namespaces) -> anyhow::Result<Files> {
    let input = input(paths);
    if let Some(file) = input.unreadable.into_iter().next() {
        return Err(file.error);
    }
    Documents::of(input.documents, &[], namespaces).with_pools()
}

impl Documents {
    fn with_pools(self) -> anyhow::Result<Files> {
        let has = |kind: Kind| self.by_kind.contains_key(kind.as_str());
        if !has(Kind::Pool) && !has(Kind::Claim) {
            bail!(
                "the files have neither a NodeIPPool nor a NodeIPBlock: kubectl get nip,nib,nodes,ciliumnodes,pods -A -o \
             yaml > objects.yaml"
            );
        }
        self.into_files()
    }

    /// Sorts documents by kind. A bundle names the kinds that it lacks.
    fn of(found: Vec<Document>, unreadable: &[Unreadable], mut namespaces: Namespaces) -> Self {
        let mut by_kind: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let mut objects = Objects::default();
        let mut now = Clock::default().now();
        for document in found {
            let mut value = document.value;
            surroundings::add(&mut objects.around, &value, FIELD_MANAGER);
            complete(&mut value);
            let kind = value["kind"].as_str().unwrap_or_default().to_owned();
            by_kind.entry(kind).or_default().push(value);
        }
        let unread: Vec<String> = unreadable.iter().map(unread).collect();
        let bundle = by_kind.get_mut(BUNDLE).and_then(|found| found.first_mut());
        let is_of_part = bundle.is_some() || !unread.is_empty();
        if let Some(bundle) = bundle {
            // All readers of a bundle look there.
            if let Some(left_out) = bundle["leftOut"].as_array_mut() {
                left_out.extend(unread.into_iter().map(Value::from));
            }
            let left_out = bundle["leftOut"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let kinds = left_out
                .filter(|text| text.ends_with(around::FORBIDDEN) || text.contains(around::UNREADABLE));
            objects.skipped = kinds.map(ToOwned::to_owned).collect();
            let text = |key: &str| bundle[key].as_str();
            now.wall = text("time").and_then(|time| time.parse().ok()).unwrap_or(now.wall);
            if let Some(name) = text("ciliumNamespace") {
                name.clone_into(&mut namespaces.cilium);
            }
            if let Some(name) = text("namespace") {
                name.clone_into(&mut namespaces.own);
            }
        } else {
            let missing =
                ["Node", "CiliumNode", "Pod"].into_iter().filter(|kind| !by_kind.contains_key(*kind));
            objects.skipped = missing.map(|kind| format!("{kind}s, because the files have none")).collect();
            objects.skipped.extend(unread);
        }
        Self { by_kind, now, namespaces, objects, is_of_part }
    }

    /// The world of these objects. A kind that is missing has no objects.
    pub(super) fn into_files(self) -> anyhow::Result<Files> {
        let Self { by_kind, now, namespaces, mut objects, is_of_part: _ } = self;
        let bundle = by_kind.get(BUNDLE).and_then(|found| found.first());
        let lease = lease(by_kind.get("Lease").map(Vec::as_slice).unwrap_or_default(), bundle, &namespaces);
        let replicas = replicas(by_kind.get("Pod").map(Vec::as_slice).unwrap_or_default(), &namespaces);
        let world = gathered(&by_kind, &namespaces, &mut objects)?;
        Ok(Files { world, objects, now, namespaces, lease, replicas })
    }
}

/// The documents in a bundle, or in a directory of files. A file in it that can't be read is skipped and named on
/// standard error.
pub(super) fn in_bundle(path: &Path, namespaces: Namespaces) -> anyhow::Result<Documents> {
    if !path.is_dir() {
        documents::regular(path)?;
    }
    let mut input = input(&[path.to_owned()]);
    if input.documents.is_empty() && !input.unreadable.is_empty() {
        return Err(input.unreadable.swap_remove(0).error);
    }
    for file in input.unreadable.iter().take(NAMED) {
        screen::note(format_args!("skipped: {:#}", file.error));
    }
    if !input.unreadable.is_empty() {
        let files = counted(input.unreadable.len(), "unreadable file");
        screen::note(format_args!("{files} skipped in {}: the answer lacks their objects", path.display()));
    }
    Ok(Documents::of(input.documents, &input.unreadable, namespaces))
}

fn input(paths: &[PathBuf]) -> Input {
    Input::of(paths, Depth::All, Places::Dropped, |value| value["kind"].is_string())
}

/// The kinds whose objects a file had, with the cause for which it could not be read.
fn unread(file: &Unreadable) -> String {
    let kind = around::kind_of(&file.file).map_or_else(|| "Object".to_owned(), ToOwned::to_owned);
    format!("{kind}s, {}: {:#}", around::UNREADABLE, file.error)
}

/// The Lease of the controller. Only a bundle says that there is none.
fn lease(found: &[Value], bundle: Option<&Value>, namespaces: &Namespaces) -> Result<Option<Lease>, String> {
    let is_ours = |found: &&Value| {
        found["metadata"]["name"] == lease::NAME
            && found["metadata"]["namespace"] == namespaces.cilium.as_str()
    };
    match found.iter().find(is_ours).and_then(|found| Lease::deserialize(found).ok()) {
        Some(lease) => Ok(Some(lease)),
        None if bundle.is_some_and(|bundle| bundle["hasLease"] == false) => Ok(None),
        None => Err("the files have no Lease of it".to_owned()),
    }
}

/// The Pods of the controller among these.
fn replicas(pods: &[Value], namespaces: &Namespaces) -> Option<Replicas> {
    let (key, value) = OUR_PODS.split_once('=')?;
    let ours = pods.iter().filter(|pod| {
        pod["metadata"]["namespace"] == namespaces.own.as_str() && pod["metadata"]["labels"][key] == value
    });
    let pods: Vec<Pod> = ours.filter_map(|pod| Pod::deserialize(pod).ok()).collect();
    Replicas::of(&pods)
}

/// A manifest that was never in a cluster has no uid and no version.
fn complete(value: &mut Value) {
    let uid = value["metadata"]["name"].clone();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.entry("resourceVersion").or_insert_with(|| "1".into());
        metadata.entry("uid").or_insert(uid);
    }
}

fn gathered(
    by_kind: &BTreeMap<String, Vec<Value>>,
    namespaces: &Namespaces,
    objects: &mut Objects,
) -> anyhow::Result<World> {
    let of_kind = |kind: &str| by_kind.get(kind).map(Vec::as_slice).unwrap_or_default();
    let config_map = |namespace: &str, name: &str| {
        let found = of_kind("ConfigMap")
            .iter()
            .find(|found| found["metadata"]["name"] == name && found["metadata"]["namespace"] == namespace);
        found.and_then(|found| ConfigMap::deserialize(found).ok())
    };
    let mut gathering = Gathering::default();
    let config = config_map(&namespaces.cilium, "cilium-config");
    gathering.set_mode(if let Some(config) = config {
        let settings = Settings::of_every_mode();
        from_config(&config.data.unwrap_or_default(), &settings)
    } else {
        let missing = "the settings of Cilium, because ConfigMap cilium-config is not in the files; the mode crd \
                       is assumed";
        objects.skipped.push(missing.to_owned());
        Mode::from(Publisher::default())
    });
    let own = config_map(&namespaces.own, freeze::CONFIG_MAP);
    gathering.set_freeze(freeze_of(own.as_ref(), &namespaces.own));
    let agents = of_kind("Pod").iter().filter(|pod| {
        pod["metadata"]["labels"]["k8s-app"] == "cilium"
            && pod["metadata"]["namespace"] == namespaces.cilium.as_str()
    });
    let agents: Vec<_> = agents.filter_map(|pod| SideWatched::deserialize(pod).ok()?.into_value()).collect();
    let has_all_pods =
        by_kind.contains_key(BUNDLE) && !objects.skipped.iter().any(|skipped| skipped.starts_with("Pods"));
    gathering.observe_agents(if agents.is_empty() && !has_all_pods {
        AgentNews::Unlisted("the files have no Pod of Cilium's agent".to_owned())
    } else {
        AgentNews::Listed(agents)
    });
    let configs = of_kind("CiliumNodeConfig").iter();
    let configs = configs.filter_map(|found| SideWatched::deserialize(found).ok()?.into_value());
    gathering.observe_node_configs(NodeConfigNews::Listed(configs.collect()));
    let pools = of_kind("CiliumPodIPPool").iter();
    let pools = pools.filter_map(|found| SideWatched::deserialize(found).ok()?.into_value());
    gathering.observe_pod_ip_pools(PodIpPoolNews::Listed(pools.collect()));
    for listing in [
        listing::<Pools>(of_kind("NodeIPPool"))?,
        listing::<Claims>(of_kind("NodeIPBlock"))?,
        listing::<Nodes>(of_kind("Node"))?,
        listing::<CiliumNodes>(of_kind("CiliumNode"))?,
    ] {
        gathering.observe(Observation::Listed(listing));
    }
    for definition in of_kind("CustomResourceDefinition").iter().filter_map(installation::definition) {
        let state = if definition.deleting { DefinitionState::Deleting } else { DefinitionState::Kept };
        gathering.observe_definition(DefinitionNews { name: definition.name, state });
    }
    gathering.complete().map_err(|gathering| anyhow!("there is no list of {:?}", gathering.missing()))
}

/// The objects of a kind, as if one list had shown them.
fn listing<W: Wire>(values: &[Value]) -> anyhow::Result<Listing> {
    let mut objects: Vec<Object> = Vec::new();
    for value in values {
        objects.push(serde_json::from_str::<Watched<W>>(&value.to_string())?.into_object());
    }
    let number = |object: &Object| match object.revision() {
        Some(AnyRevision::Custom(revision)) => revision.number(),
        Some(AnyRevision::Core(revision)) => revision.number(),
        None => 1,
    };
    let newest = objects.iter().map(number).max().and_then(NonZeroU64::new).unwrap_or(NonZeroU64::MIN);
    let at = AnyRevision::new(W::KIND, newest);
    Ok(Listing { kind: W::KIND, at_least: at, at_most: at, objects })
}
