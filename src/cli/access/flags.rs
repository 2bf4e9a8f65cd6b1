//! The flags that choose a cluster and a user. They have the names and the meaning that kubectl gives them.

use std::path::PathBuf;
use std::time::Duration;

/// The time limit for `--request-timeout 0`.
const UNLIMITED: Duration = Duration::from_secs(24 * 3600);

/// Where the cluster is.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct Access {
    /// Use this kubeconfig file instead of KUBECONFIG and ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Use this context of the kubeconfig instead of the current one.
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,

    /// Use this cluster of the kubeconfig instead of that of the context.
    #[arg(long, value_name = "NAME")]
    pub(super) cluster: Option<String>,

    /// Use this user of the kubeconfig instead of that of the context.
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,

    /// The address of the API server, instead of that of the kubeconfig.
    #[arg(short, long, value_name = "URL")]
    pub(super) server: Option<String>,

    /// Authenticate with this bearer token.
    #[arg(long, value_name = "TOKEN")]
    pub(super) token: Option<String>,

    /// Act as this user, with your right to impersonate it.
    #[arg(long = "as", value_name = "USER")]
    pub(super) impersonate: Option<String>,

    /// Act as a member of this group. May be repeated.
    #[arg(long = "as-group", value_name = "GROUP")]
    pub(super) impersonate_groups: Vec<String>,

    /// The time limit of one request, such as 30s. By default it is 10 s, and 5 s for the first one. 0 is no limit.
    #[arg(long, value_name = "DURATION", value_parser = request_timeout)]
    pub(super) request_timeout: Option<Duration>,

    /// The namespace of Cilium: of `cilium-config`, of its agents and of the controller's Lease.
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub(in crate::cli) cilium_namespace: String,

    /// The namespace of the controller, where its ConfigMap `cilium-node-ipam` can freeze it.
    #[arg(short, long, value_name = "NAME", default_value = "kube-system")]
    pub(in crate::cli) namespace: String,
}

/// A time limit as kubectl takes it: a duration, or a number of seconds.
fn request_timeout(text: &str) -> Result<Duration, String> {
    let limit = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string())?,
    };
    Ok(if limit.is_zero() { UNLIMITED } else { limit })
}
