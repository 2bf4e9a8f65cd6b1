//! The objects around the world, listed from a cluster page by page.
//!
//! A kind that the server does not serve, or that may not be listed, is skipped and named.

use anyhow::{Context as _, anyhow};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use serde_json::Value;

use crate::controller::client::{Clients, FIELD_MANAGER, ReadError};
use crate::model::surroundings::Surroundings;
use crate::wire::{self, crds, surroundings};

/// The cause for which a kind is skipped that may not be listed.
pub(super) const FORBIDDEN: &str = "because you are not allowed to list them";

/// The cause for which a kind is skipped that can't be listed for another reason, which follows.
pub(in crate::cli) const UNREADABLE: &str = "because they can't be listed";

/// The cause for which a kind has no objects: it is not installed.
pub(in crate::cli) const UNKNOWN: &str = "because the server does not know the kind";

/// Objects per page.
const PAGE_SIZE: u32 = 500;

/// The objects around the world, and the kinds that are missing.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct Objects {
    pub(super) around: Surroundings,
    /// The kinds that were not looked at, each with the reason.
    pub(super) skipped: Vec<String>,
}

/// Group, versions from the newest on, kind, and the name in paths.
pub(in crate::cli) type ServedKind = (&'static str, &'static [&'static str], &'static str, &'static str);

/// The kinds with addresses that belong to other systems.
pub(in crate::cli) const RANGES: [ServedKind; 5] = [
    ("", &["v1"], "Service", "services"),
    ("networking.k8s.io", &["v1"], "ServiceCIDR", "servicecidrs"),
    ("cilium.io", &["v2", "v2alpha1"], "CiliumLoadBalancerIPPool", "ciliumloadbalancerippools"),
    ("cilium.io", &["v2alpha1"], "CiliumResourceIPPool", "ciliumresourceippools"),
    ("metallb.io", &["v1beta1"], "IPAddressPool", "ipaddresspools"),
];

/// The kinds that a bundle has beside [`RANGES`].
pub(in crate::cli) const BUNDLED: [ServedKind; 10] = [
    (wire::GROUP, &[wire::VERSION], "NodeIPPool", "nodeippools"),
    (wire::GROUP, &[wire::VERSION], "NodeIPBlock", "nodeipblocks"),
    ("", &["v1"], "Node", "nodes"),
    ("cilium.io", &["v2"], "CiliumNode", "ciliumnodes"),
    ("cilium.io", &["v2", "v2alpha1"], "CiliumNodeConfig", "ciliumnodeconfigs"),
    ("cilium.io", &["v2", "v2alpha1"], "CiliumPodIPPool", "ciliumpodippools"),
    ("", &["v1"], "Pod", "pods"),
    ("apps", &["v1"], "DaemonSet", "daemonsets"),
    ("apiregistration.k8s.io", &["v1"], "APIService", "apiservices"),
    ("", &["v1"], "Event", "events"),
];

/// The kinds that a bundle has under known names only.
const NAMED: [(&str, &str); 3] = [
    ("ConfigMap", "configmaps"),
    ("Lease", "leases"),
    ("CustomResourceDefinition", "customresourcedefinitions"),
];

/// The further kinds of an audit.
const AUDITED: [ServedKind; 3] = [
    ("", &["v1"], "Pod", "pods"),
    (wire::GROUP, &[wire::VERSION], "NodeIPPool", "nodeippools"),
    (wire::GROUP, &[wire::VERSION], "NodeIPBlock", "nodeipblocks"),
];

/// Whether the server serves a kind in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Served {
    Yes,
    No,
}

/// The kind of the objects in a file of a bundle.
pub(super) fn kind_of(file: &str) -> Option<&'static str> {
    let (_, name) = file.rsplit_once('/').unwrap_or(("", file));
    let (plural, _) = name.split_once('-')?;
    let listed = BUNDLED.into_iter().chain(RANGES).map(|(_, _, kind, plural)| (kind, plural));
    let (kind, _) = listed.chain(NAMED).find(|(_, known)| *known == plural)?;
    Some(kind)
}

/// A kind in a version.
pub(in crate::cli) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") },
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Lists all of them.
pub(super) async fn list(clients: &Clients) -> anyhow::Result<Objects> {
    let mut objects = ranges(clients).await?;
    for kind in AUDITED {
        add_kind(clients, kind, &mut objects).await?;
    }
    for found in definitions(clients, &mut objects.skipped).await? {
        surroundings::add(&mut objects.around, &found, FIELD_MANAGER);
    }
    Ok(objects)
}

/// Lists the kinds with addresses that belong to other systems.
pub(super) async fn ranges(clients: &Clients) -> anyhow::Result<Objects> {
    let mut objects = Objects::default();
    for kind in RANGES {
        if let Err(error) = add_kind(clients, kind, &mut objects).await {
            // The kind of another system may have a conversion of its own, which fails.
            let (_, _, kind, _) = kind;
            objects.skipped.push(format!("{kind}s, {UNREADABLE}: {}", error.root_cause()));
        }
    }
    Ok(objects)
}

/// Whether a kind that was skipped has addresses that belong to other systems.
pub(super) fn is_of_range(skipped: &str) -> bool {
    RANGES.iter().any(|(_, _, kind, _)| skipped.starts_with(&format!("{kind}s, ")))
}

/// Adds the objects of a kind, in the newest version that the server serves.
async fn add_kind(clients: &Clients, kind: ServedKind, objects: &mut Objects) -> anyhow::Result<()> {
    let (group, versions, kind, plural) = kind;
    for version in versions {
        let resource = resource(group, version, kind, plural);
        let api: Api<DynamicObject> = Api::all_with(clients.reads.clone(), &resource);
        let Objects { around, skipped } = &mut *objects;
        let page = |page: Vec<DynamicObject>| {
            for found in page {
                surroundings::add(around, &plain(found, kind)?, FIELD_MANAGER);
            }
            Ok(())
        };
        if list_kind(clients, &api, ListParams::default(), kind, skipped, page).await? == Served::Yes {
            break;
        }
    }
    Ok(())
}

/// Lists the objects of a kind that these parameters select, page by page.
pub(in crate::cli) async fn list_kind(
    clients: &Clients,
    api: &Api<DynamicObject>,
    params: ListParams,
    kind: &str,
    skipped: &mut Vec<String>,
    mut take: impl FnMut(Vec<DynamicObject>) -> anyhow::Result<()>,
) -> anyhow::Result<Served> {
    let mut params = params.limit(PAGE_SIZE);
    loop {
        let answer = tokio::time::timeout(clients.timeout, api.list(&params)).await;
        let within = || humantime::format_duration(clients.timeout);
        let page = match answer.map_err(|_| anyhow!("can't list {kind}s: no answer within {}", within()))? {
            Ok(page) => page,
            Err(error) => return refused(&format!("{kind}s"), error, skipped),
        };
        take(page.items)?;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(Served::Yes),
        }
    }
}

/// Our definitions that exist. Without the right to read one, no further one is read.
pub(super) async fn definitions(clients: &Clients, skipped: &mut Vec<String>) -> anyhow::Result<Vec<Value>> {
    let kind = "CustomResourceDefinition";
    let resource = resource("apiextensions.k8s.io", "v1", kind, "customresourcedefinitions");
    let api: Api<DynamicObject> = Api::all_with(clients.reads.clone(), &resource);
    let mut definitions = Vec::new();
    for definition in crds::all() {
        let name = definition.json["metadata"]["name"].as_str().unwrap_or_default();
        match api.get(name).await {
            Ok(found) => definitions.push(plain(found, kind)?),
            Err(error) => {
                if refused(&format!("{kind}s"), error, skipped)? == Served::Yes {
                    break;
                }
            }
        }
    }
    Ok(definitions)
}

/// An object as JSON. Items of a list have no kind of their own.
pub(in crate::cli) fn plain(object: DynamicObject, kind: &str) -> anyhow::Result<Value> {
    let mut object = serde_json::to_value(object).context("an object is plain data")?;
    object["kind"] = Value::from(kind);
    Ok(object)
}

/// A kind without a right to it, or that the server does not serve, is skipped.
fn refused(what: &str, error: kube::Error, skipped: &mut Vec<String>) -> anyhow::Result<Served> {
    match &error {
        // A cluster without Cilium's load balancer, or an API server before 1.33, has no such kind.
        kube::Error::Api(status) if status.code == 404 => Ok(Served::No),
        kube::Error::Api(status) if status.is_forbidden() => {
            skipped.push(format!("{what}, {FORBIDDEN}"));
            Ok(Served::Yes)
        }
        _other => Err(ReadError::from(error)).with_context(|| format!("can't list {what}")),
    }
}
