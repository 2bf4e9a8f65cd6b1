//! The kubeconfig, read as kubectl reads it: its files, and the context, cluster and user in them that flags choose or
//! replace.
//!
//! Knows no server. kube's own reader fails on files that are missing, takes an empty `current-context` for a name, and
//! compares the exceptions of the environment with the proxy.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use http::Uri;
use kube::Config;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};

use super::flags::Access;
use super::plugin;
use super::proxy::Proxy;

/// The way to an API server.
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) proxy: Option<Proxy>,
    /// The place of the settings, for people: a context, or the Pod of this process.
    pub(super) origin: String,
}

/// The target that flags, files and the environment name.
pub(super) async fn target(access: &Access) -> anyhow::Result<Target> {
    let (kubeconfig, place) = read(access.kubeconfig.as_deref())?;
    if access.server.is_none() && kubeconfig.contexts.is_empty() && kubeconfig.clusters.is_empty() {
        return in_pod(access);
    }
    let Chosen { mut cluster, mut user, origin } = Chosen::of(access, kubeconfig, &place)?;
    if let Some(server) = &access.server {
        cluster.server = Some(server.clone());
        // It belongs to the server of the file.
        cluster.tls_server_name = None;
    }
    let server = cluster.server.clone().filter(|server| !server.is_empty());
    let server = server.with_context(|| format!("{origin} has no `server`"))?;
    let has_tls = cluster.certificate_authority.is_some()
        || cluster.certificate_authority_data.is_some()
        || cluster.insecure_skip_tls_verify.is_some()
        || user.client_certificate.is_some()
        || user.client_certificate_data.is_some();
    let server = if server.contains("://") {
        server
    } else {
        format!("{}://{server}", if has_tls { "https" } else { "http" })
    };
    let uri: Uri =
        server.parse().ok().with_context(|| format!("{origin}: `{server}` is no address of a server"))?;
    let proxy = match cluster.proxy_url.as_deref().filter(|text| !text.is_empty()) {
        Some(text) => Some(Proxy::parse(text, "proxy-url")?),
        None => Proxy::of_environment(&uri, |name| std::env::var(name).ok())?,
    };
    identify(access, &mut user)?;
    plugin::resolve(&mut user, &cluster)?;
    // kube would read the environment otherwise.
    cluster.proxy_url = Some(server.clone());
    cluster.server = Some(server);
    let config = Config::from_custom_kubeconfig(alone(cluster, user), &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| anyhow!("{origin}: {error}"))?;
    config.proxy_url = None;
    Ok(Target { config, proxy, origin })
}

/// The API server of the cluster in which this process runs.
fn in_pod(access: &Access) -> anyhow::Result<Target> {
    let files = access.kubeconfig.clone().map_or_else(files, |file| vec![file]);
    let nothing = match &files[..] {
        [] => "KUBECONFIG names no file".to_owned(),
        [file] if !file.exists() => format!("{} does not exist", file.display()),
        [..] => format!("there is no cluster in {}", named(&files)),
    };
    if access.context.is_some() || access.cluster.is_some() || access.user.is_some() {
        bail!("--context, --cluster and --user choose from a kubeconfig, and {nothing}");
    }
    let Ok(mut config) = Config::incluster() else {
        bail!(
            "no cluster is configured: {nothing}; set --kubeconfig, KUBECONFIG or --server, or run in a Pod with a \
             ServiceAccount"
        );
    };
    identify(access, &mut config.auth_info)?;
    Ok(Target { config, proxy: None, origin: "the ServiceAccount of this Pod".to_owned() })
}

/// Applies the flags about the user.
fn identify(access: &Access, user: &mut AuthInfo) -> anyhow::Result<()> {
    if let Some(token) = &access.token {
        user.token = Some(token.clone().into());
        (user.token_file, user.exec, user.auth_provider) = (None, None, None);
        (user.username, user.password) = (None, None);
    }
    if let Some(name) = &access.impersonate {
        user.impersonate = Some(name.clone());
    }
    if !access.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(access.impersonate_groups.clone());
    }
    if user.impersonate.is_none() && user.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty())
    {
        bail!("--as-group needs --as, because a group without a user can't be impersonated");
    }
    Ok(())
}

/// The files that kubectl reads without --kubeconfig.
fn files() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        Some(list) => std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    }
}

fn named(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The merged content of the files, and their names. Files of a list may be missing; the file of the flag must exist.
fn read(flag: Option<&Path>) -> anyhow::Result<(Kubeconfig, String)> {
    let files = match flag {
        Some(file) => vec![file.to_owned()],
        None => files().into_iter().filter(|file| file.exists()).collect(),
    };
    let mut merged = Kubeconfig::default();
    for file in &files {
        let mut one = Kubeconfig::read_from(file).map_err(|error| {
            let text = match &error {
                KubeconfigError::ReadConfig(error, _) => error.to_string(),
                // A parser shows the lines around an error below its message.
                other => other.to_string(),
            };
            anyhow!(
                "the kubeconfig {} can't be read: {}",
                file.display(),
                text.lines().next().unwrap_or_default()
            )
        })?;
        one.current_context = one.current_context.filter(|name| !name.is_empty());
        // kubectl ignores both.
        (one.kind, one.api_version) = (None, None);
        merged = merged.merge(one)?;
    }
    Ok((merged, named(&files)))
}

/// A cluster and a user of the files.
struct Chosen {
    cluster: Cluster,
    user: AuthInfo,
    /// For people: the context, or the server of the flag.
    origin: String,
}

impl Chosen {
    fn of(access: &Access, kubeconfig: Kubeconfig, place: &str) -> anyhow::Result<Self> {
        let Kubeconfig { contexts, clusters, auth_infos, current_context, .. } = kubeconfig;
        let names = list(contexts.iter().map(|found| found.name.as_str()));
        let wanted = access.context.clone().or(current_context);
        let (context, origin) = match &wanted {
            Some(name) => {
                let found = contexts.into_iter().find(|found| found.name == *name);
                let found = found.and_then(|found| found.context);
                let found = found
                    .with_context(|| format!("the context `{name}` does not exist in {place}; {names}"))?;
                (found, format!("context `{name}` of {place}"))
            }
            None if access.cluster.is_some() || access.server.is_some() => {
                (Context::default(), flags(access))
            }
            None => bail!(
                "no context is chosen in {place}: set --context, or run `kubectl config use-context`; {names}"
            ),
        };
        let names = list(clusters.iter().map(|found| found.name.as_str()));
        let name = access.cluster.clone().unwrap_or(context.cluster);
        let cluster = clusters.into_iter().find(|found| found.name == name).and_then(|found| found.cluster);
        let cluster = match cluster {
            Some(cluster) => cluster,
            None if access.server.is_some() && access.cluster.is_none() => Cluster::default(),
            None => bail!("the cluster `{name}` does not exist in {place}; {names}"),
        };
        let names = list(auth_infos.iter().map(|found| found.name.as_str()));
        let user = match access.user.clone().or(context.user).filter(|name| !name.is_empty()) {
            Some(name) => {
                let user = auth_infos.into_iter().find(|found| found.name == name);
                // A user may be empty: `user: {}` and no field at all are the same.
                let user = user.map(|found| found.auth_info.unwrap_or_default());
                user.with_context(|| format!("the user `{name}` does not exist in {place}; {names}"))?
            }
            None => AuthInfo::default(),
        };
        Ok(Self { cluster, user, origin })
    }
}

fn flags(access: &Access) -> String {
    let server = access.server.as_ref().map(|server| format!("--server {server}"));
    server.or_else(|| Some(format!("--cluster {}", access.cluster.as_ref()?))).unwrap_or_default()
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("those that exist: {}", names.join(", "))
    }
}

/// A kubeconfig with only this cluster and this user.
fn alone(cluster: Cluster, user: AuthInfo) -> Kubeconfig {
    let name = "chosen".to_owned();
    let context = Context { cluster: name.clone(), user: Some(name.clone()), ..Context::default() };
    Kubeconfig {
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some(name),
        ..Kubeconfig::default()
    }
}
