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

/// Objects per page.
const PAGE_SIZE: u32 = 500;

/// The objects around the world, and the kinds that are missing.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) around: Surroundings,
    /// The kinds that were not looked at, each with the reason.
    pub(super) skipped: Vec<String>,
}

/// The kinds: group, versions from the newest on, kind, and the name in paths.
const KINDS: [(&str, &[&str], &str, &str); 6] = [
    ("", &["v1"], "Pod", "pods"),
    ("", &["v1"], "Service", "services"),
    ("networking.k8s.io", &["v1"], "ServiceCIDR", "servicecidrs"),
    ("cilium.io", &["v2", "v2alpha1"], "CiliumLoadBalancerIPPool", "ciliumloadbalancerippools"),
    (wire::GROUP, &[wire::VERSION], "NodeIPPool", "nodeippools"),
    (wire::GROUP, &[wire::VERSION], "NodeIPBlock", "nodeipblocks"),
];

/// Whether the server serves a kind in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Served {
    Yes,
    No,
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
    let mut objects = Objects::default();
    for (group, versions, kind, plural) in KINDS {
        for version in versions {
            let resource = resource(group, version, kind, plural);
            let api: Api<DynamicObject> = Api::all_with(clients.reads.clone(), &resource);
            let Objects { around, skipped } = &mut objects;
            let page = |page: Vec<DynamicObject>| {
                for found in page {
                    surroundings::add(around, &plain(found, kind)?, FIELD_MANAGER);
                }
                Ok(())
            };
            let listed = list_kind(clients, &api, ListParams::default(), kind, skipped, page).await?;
            if listed == Served::Yes {
                break;
            }
        }
    }
    for found in definitions(clients, &mut objects.skipped).await? {
        surroundings::add(&mut objects.around, &found, FIELD_MANAGER);
    }
    Ok(objects)
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
