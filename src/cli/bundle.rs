//! `cilium-node-ipam bundle`: the facts about a cluster that a supporter needs, in one file.
//!
//! Lists page by page and writes each page at once. It reads no Secret, and removes environment, arguments, volumes
//! and annotations from Pods. It does not know how the commands read a bundle: `answers` does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DynamicObject, ListParams, LogParams};
use serde_json::{Value, json};

use super::access::Access;
use super::answers::around::{BUNDLED, RANGES, Served, UNKNOWN, UNREADABLE, list_kind, plain, resource};
use super::answers::files::BUNDLE;
use super::answers::replicas::OUR_PODS;
use super::answers::{API_VERSION, Gathered, Verdict, block_on};
use super::screen;
use crate::controller::broken_invariant::BrokenInvariant;
use crate::controller::client::Clients;
use crate::controller::dry_run::{self, Proposal};
use crate::controller::lease;
use crate::model::kind::Kind;
use crate::model::printable::printable;
use crate::model::time::{Now, Timestamp};
use crate::plan::Policy;
use crate::wire::{crds, freeze};
use crate::world::World;
use redact::Redactor;
use unread::remove_unread;

mod redact;
mod unread;

/// The port of the controller for /metrics and /readyz.
const PORT: u16 = 9920;
/// How many lines of each log are kept.
const LOG_LINES: i64 = 20_000;

/// Write objects, findings, settings, events, metrics and logs into one file for support.
///
/// `status`, `why`, `who`, `check`, `plan`, `preflight` and `routes` read it with --from instead of a cluster. It
/// contains no Secrets. The environment, arguments, volumes and annotations of Pods are removed. The file names
/// everything that was left out, and the causes.
///
/// Exit codes: 0 written, 2 the cluster could not be read or the file could not be written.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam bundle -o bundle.tar.gz --redact\n  cilium-node-ipam status --from \
                        bundle.tar.gz"
)]
pub struct Args {
    /// The file to write. It must not exist.
    #[arg(short = 'o', long = "output-file", value_name = "FILE.tar.gz", required = true)]
    file: PathBuf,

    /// Replace the names of pods, nodes and namespaces, each by the same other name everywhere. Remove annotations and
    /// settings of Cilium that this program does not read.
    #[arg(long)]
    redact: bool,

    #[command(flatten)]
    access: Access,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    if !args.file.to_string_lossy().ends_with(".tar.gz") {
        bail!("the name of the file must end with .tar.gz: {}", args.file.display());
    }
    block_on(async move {
        // First, so that no object is older than the time of the bundle.
        let (Gathered { clients, world, now }, unlisted) = args.access.gather_readable().await?;
        if let (Some((kind, why)), true) = (unlisted.first_key_value(), unlisted.len() == Kind::ALL.len()) {
            bail!("no kind can be listed; {}s: {why}", kind.as_str());
        }
        let redactor = if args.redact { Some(redactor(&clients, &args, &world).await?) } else { None };
        let mut bundle = Bundle::create(&args.file, redactor, now.wall)?;
        bundle.objects(&clients).await?;
        let has_lease = bundle.named(&clients, &args).await?;
        let policy = args.access.policy_in(&clients, &world, now).await;
        bundle.plan(&world, &unlisted, policy, now)?;
        bundle.processes(&clients, &args.access.namespace).await?;
        let server = match clients.reads.apiserver_version().await {
            Ok(version) => Some(version.git_version),
            Err(error) => {
                bundle.left_out.push(format!("the version of the API server: {error}"));
                None
            }
        };
        let about = json!({
            "apiVersion": API_VERSION, "kind": BUNDLE, "metadata": {"name": "bundle"},
            "time": now.wall.to_string(), "version": env!("CARGO_PKG_VERSION"), "server": server,
            "ciliumNamespace": args.access.cilium_namespace, "namespace": args.access.namespace, "hasLease": has_lease,
            "redacted": args.redact, "leftOut": bundle.left_out,
        });
        bundle.json("bundle.json", &about)?;
        for left_out in &bundle.left_out {
            screen::note(format_args!("left out: {left_out}"));
        }
        bundle.finish()?;
        screen::print_lines([format!("{} is written.", args.file.display())])?;
        Ok(Verdict::Fine)
    })
}

/// The other names of all nodes, pods and namespaces.
async fn redactor(clients: &Clients, args: &Args, world: &World) -> anyhow::Result<Redactor> {
    let (mut nodes, mut pods, mut namespaces) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (kind, plural, names) in [
        ("Node", "nodes", &mut nodes),
        ("Pod", "pods", &mut pods),
        ("Namespace", "namespaces", &mut namespaces),
    ] {
        let api: Api<DynamicObject> = Api::all_with(clients.reads.clone(), &resource("", "v1", kind, plural));
        let mut skipped = Vec::new();
        let take = |page: Vec<DynamicObject>| {
            names.extend(page.into_iter().filter_map(|found| found.metadata.name));
            Ok(())
        };
        list_kind(clients, &api, ListParams::default(), kind, &mut skipped, take).await?;
        if !skipped.is_empty() {
            bail!("can't redact without the right to list {plural}: {}", skipped.join(", "));
        }
    }
    // Nodes that no longer exist have claims.
    nodes.extend(world.claims().map(|known| known.claim.node.to_string()));
    let kept = [args.access.cilium_namespace.as_str(), args.access.namespace.as_str()];
    Ok(Redactor::of(&nodes, &pods, &namespaces, &kept))
}

/// A file that is being written.
struct Bundle {
    archive: tar::Builder<GzEncoder<File>>,
    redactor: Option<Redactor>,
    time: Timestamp,
    left_out: Vec<String>,
}

impl Bundle {
    fn create(path: &Path, redactor: Option<Redactor>, time: Timestamp) -> anyhow::Result<Self> {
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("can't create {}", path.display()))?;
        let archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        Ok(Self { archive, redactor, time, left_out: Vec::new() })
    }

    fn finish(self) -> anyhow::Result<()> {
        let encoder = self.archive.into_inner().context("can't write the bundle")?;
        encoder.finish().context("can't write the bundle")?.sync_all().context("can't write the bundle")
    }

    fn text(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let text = match &self.redactor {
            Some(redactor) => redactor.text(text),
            None => text.to_owned(),
        };
        self.write(name, text.as_bytes())
    }

    fn json(&mut self, name: &str, object: &Value) -> anyhow::Result<()> {
        let mut object = object.clone();
        if let Some(redactor) = &self.redactor {
            remove_unread(&mut object);
            redactor.object(&mut object);
        }
        self.write(name, serde_json::to_string(&object)?.as_bytes())
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time.as_second().try_into().unwrap_or_default());
        self.archive
            .append_data(&mut header, format!("bundle/{name}"), bytes)
            .context("can't write the bundle")
    }

    /// The findings and due writes. They are left out if a kind is missing without which they would be wrong.
    fn plan(
        &mut self,
        world: &World,
        unlisted: &BTreeMap<Kind, String>,
        policy: Policy,
        now: Now,
    ) -> anyhow::Result<()> {
        let broken = BrokenInvariant::of(world.check()).err().map(|error| error.to_string());
        let missing = unlisted.iter().map(|(kind, why)| format!("{}s can't be listed: {why}", kind.as_str()));
        if let Some(why) = missing.chain(broken).next() {
            self.left_out.push(format!("plan.txt, because {why}"));
            return Ok(());
        }
        let proposal = Proposal::of(world.clone(), policy, now);
        let lines = dry_run::lines(world, &proposal);
        self.text(
            "plan.txt",
            &lines.iter().map(|line| printable(line).into_owned() + "\n").collect::<String>(),
        )
    }

    /// The objects of all kinds, one file per page. A kind that can't be listed is left out; pages that were listed
    /// before stay.
    async fn objects(&mut self, clients: &Clients) -> anyhow::Result<()> {
        for (group, versions, kind, plural) in BUNDLED.into_iter().chain(RANGES) {
            let mut skipped = Vec::new();
            let mut is_served = false;
            for version in versions {
                let resource = resource(group, version, kind, plural);
                let api: Api<DynamicObject> = Api::all_with(clients.reads.clone(), &resource);
                let mut number = 0;
                let mut unwritten = None;
                let page = |page: Vec<DynamicObject>| {
                    number += 1;
                    let items: anyhow::Result<Vec<Value>> =
                        page.into_iter().map(|found| stripped(found, &resource.api_version, kind)).collect();
                    let list = json!({"apiVersion": "v1", "kind": "List", "items": items?});
                    let written = self.json(&format!("objects/{plural}-{number:04}.json"), &list);
                    written.or_else(|error| {
                        unwritten = Some(error);
                        bail!("the page was not written")
                    })
                };
                let listed = list_kind(clients, &api, ListParams::default(), kind, &mut skipped, page).await;
                if let Some(error) = unwritten {
                    return Err(error);
                }
                is_served = match listed {
                    Ok(served) => served == Served::Yes,
                    Err(error) => {
                        skipped.push(format!("{kind}s, {UNREADABLE}: {}", error.root_cause()));
                        true
                    }
                };
                if is_served {
                    break;
                }
            }
            if !is_served {
                self.left_out.push(format!("{kind}s, {UNKNOWN}"));
            }
            self.left_out.append(&mut skipped);
        }
        Ok(())
    }

    /// The objects of known names; whether there is a Lease.
    async fn named(&mut self, clients: &Clients, args: &Args) -> anyhow::Result<Option<bool>> {
        let config_maps = resource("", "v1", "ConfigMap", "configmaps");
        let leases = resource("coordination.k8s.io", "v1", "Lease", "leases");
        let definitions =
            resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
        let mut has_lease = None;
        let in_namespace = |namespace: &str, resource| {
            Api::<DynamicObject>::namespaced_with(clients.reads.clone(), namespace, resource)
        };
        let mut wanted = vec![
            (
                &config_maps,
                in_namespace(&args.access.cilium_namespace, &config_maps),
                "cilium-config".to_owned(),
            ),
            (&config_maps, in_namespace(&args.access.namespace, &config_maps), freeze::CONFIG_MAP.to_owned()),
            (&leases, in_namespace(&args.access.cilium_namespace, &leases), lease::NAME.to_owned()),
        ];
        for definition in crds::all() {
            let name = definition.json["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            wanted.push((&definitions, Api::all_with(clients.reads.clone(), &definitions), name));
        }
        for (resource, api, name) in wanted {
            let found = tokio::time::timeout(clients.timeout, api.get_opt(&name)).await;
            match found {
                Ok(Ok(found)) => {
                    if resource.kind == "Lease" {
                        has_lease = Some(found.is_some());
                    }
                    if let Some(found) = found {
                        let object = stripped(found, &resource.api_version, &resource.kind)?;
                        self.json(&format!("objects/{}-{name}.json", resource.plural), &object)?;
                    }
                }
                Ok(Err(error)) => self.left_out.push(format!("{} {name}: {error}", resource.kind)),
                Err(_) => self.left_out.push(format!("{} {name}: no answer", resource.kind)),
            }
        }
        Ok(has_lease)
    }

    /// Metrics, readiness and logs of each process of the controller.
    async fn processes(&mut self, clients: &Clients, namespace: &str) -> anyhow::Result<()> {
        let api: Api<Pod> = Api::namespaced(clients.reads.clone(), namespace);
        let pods = match api.list(&ListParams::default().labels(OUR_PODS)).await {
            Ok(pods) => pods.items,
            Err(error) => {
                self.left_out.push(format!("metrics, /readyz and logs of the controller: {error}"));
                return Ok(());
            }
        };
        if pods.is_empty() {
            let why = format!(
                "metrics, /readyz and logs of the controller, because namespace {namespace} has no Pod with {OUR_PODS}"
            );
            self.left_out.push(why);
        }
        for (number, pod) in pods.iter().enumerate() {
            let Some(name) = pod.metadata.name.as_deref() else { continue };
            let folder = format!("controller-{}", number + 1);
            self.text(&format!("{folder}/pod.txt"), &format!("{name}\n"))?;
            for path in ["metrics", "readyz"] {
                let target = format!("/api/v1/namespaces/{namespace}/pods/{name}:{PORT}/proxy/{path}");
                let request = http::Request::get(target).body(Vec::new()).context("a path is valid")?;
                let text = tokio::time::timeout(clients.timeout, clients.reads.request_text(request)).await;
                self.fetched(&folder, path, name, text)?;
            }
            for previous in [false, true] {
                let params = LogParams {
                    previous,
                    tail_lines: Some(LOG_LINES),
                    timestamps: true,
                    ..LogParams::default()
                };
                let file = if previous { "log-before-restart" } else { "log" };
                let text = tokio::time::timeout(clients.timeout, api.logs(name, &params)).await;
                self.fetched(&folder, file, name, text)?;
            }
        }
        Ok(())
    }

    fn fetched<E>(
        &mut self,
        folder: &str,
        file: &str,
        pod: &str,
        text: Result<Result<String, kube::Error>, E>,
    ) -> anyhow::Result<()> {
        let why = match text {
            Ok(Ok(text)) => return self.text(&format!("{folder}/{file}.txt"), &text),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        self.left_out.push(format!("{file} of Pod {pod}: {why}"));
        Ok(())
    }
}

/// The object without fields that may be confidential or that no command reads.
fn stripped(found: DynamicObject, api_version: &str, kind: &str) -> anyhow::Result<Value> {
    let mut object = plain(found, kind)?;
    object["apiVersion"] = Value::from(api_version);
    let reads_managers = ["NodeIPPool", "NodeIPBlock", "CiliumNode"].contains(&kind);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if !reads_managers {
            metadata.remove("managedFields");
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations
                .retain(|key, _| kind != "Pod" && key != "kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    if kind == "DaemonSet" {
        let template = object["spec"]["template"]["spec"].take();
        object["spec"] = json!({"template": {"spec": images_of(&template)}});
    }
    if kind == "Pod" {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("generateName");
        }
        // A container may write its last message there.
        for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
            for status in object["status"][list].as_array_mut().into_iter().flatten() {
                for state in ["state", "lastState"] {
                    if let Some(ended) = status[state]["terminated"].as_object_mut() {
                        ended.remove("message");
                    }
                }
            }
        }
        let spec = &mut object["spec"];
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("volumes");
            spec.remove("imagePullSecrets");
        }
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container
                        .retain(|key, _| ["name", "image", "ports", "resources"].contains(&key.as_str()));
                }
            }
        }
    }
    Ok(object)
}

/// The containers of a Pod with their images, and nothing else.
fn images_of(spec: &Value) -> Value {
    let of = |list: &str| -> Value {
        let containers = spec[list].as_array().into_iter().flatten();
        containers.map(|container| json!({"name": container["name"], "image": container["image"]})).collect()
    };
    json!({"initContainers": of("initContainers"), "containers": of("containers")})
}
