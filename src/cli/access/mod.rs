//! The access of a command to its cluster: the flags that choose it, as kubectl has them, and the first contact.
//!
//! Each kubeconfig and environment that kubectl accepts is accepted here (`tests/it/kubectls_sister.rs`). A server that
//! can't be used is one sentence within [`FIRST_ANSWER`].

mod connection;
mod flags;
mod kubeconfig;
mod plugin;
mod proxy;
mod words;

use std::time::Duration;

use anyhow::{anyhow, bail};
pub use flags::Access;
use http::{Request, Uri};
use kube::{Client, Config};
use kubeconfig::Target;
use serde_json::Value;

use crate::controller::client::Clients;
use crate::controller::connectivity::Connectivity;
use crate::controller::lead::Lead;

/// The time limit of one request without --request-timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit of the first answer without --request-timeout. A person waits for it.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// For the fuzzers.
#[cfg(fuzzing)]
pub(in crate::cli) fn parse_proxy(text: &str) {
    drop(proxy::Proxy::parse(text, "the fuzzer"));
}

impl Access {
    /// Clients of the cluster, which has answered, and its address.
    pub(in crate::cli) async fn clients(&self) -> anyhow::Result<(Clients, Uri)> {
        let mut target = kubeconfig::target(self).await?;
        let first_answer = self.request_timeout.unwrap_or(FIRST_ANSWER);
        target.config.connect_timeout = Some(first_answer);
        let Target { config, proxy, origin } = target;
        let place = match &proxy {
            Some(proxy) => format!("{origin}, through the proxy {} of {}", proxy.uri, proxy.origin),
            None => origin,
        };
        let timeout = self.request_timeout.unwrap_or(REQUEST_TIMEOUT);
        let client = |config: &Config| connection::client(config, proxy.as_ref());
        let unusable = |error: anyhow::Error| anyhow!("{} ({place})", words::of_client(&error));
        // Without the layers of the controller, which replace the cause of a failure by its words.
        let first = client(&config).map_err(unusable)?.build();
        let server = config.cluster_url.clone();
        let why = match tokio::time::timeout(first_answer, greet(&first, &server)).await {
            Ok(Ok(())) => {
                let clients =
                    Clients::by(&config, timeout, Connectivity::default(), Lead::unelected(), |config| {
                        client(&config)
                    });
                return Ok((clients.map_err(unusable)?, server));
            }
            Ok(Err(Unusable::Refused(why))) => bail!("{why}: API server {server} ({place})"),
            Ok(Err(Unusable::Unreachable(error))) => {
                words::of_connection(&*error, &server, config.root_cert.is_some())
            }
            Err(_) => words::no_answer(),
        };
        bail!("can't reach the API server {server} ({place}): {why}")
    }

    /// The time limit for everything, which is at least this long.
    pub(in crate::cli) fn time_limit(&self, least: Duration) -> Duration {
        self.request_timeout.map_or(least, |limit| limit.max(least))
    }
}

/// Why a server can't be used.
enum Unusable {
    /// There is no connection.
    Unreachable(Box<dyn std::error::Error + Send + Sync>),
    /// It has answered.
    Refused(String),
}

/// The first request, which needs no right.
async fn greet(client: &Client, server: &Uri) -> Result<(), Unusable> {
    const NOT_KUBERNETES: &str = "this is no API server of Kubernetes";
    let refused = |why: &str| Err(Unusable::Refused(why.to_owned()));
    let request = Request::get("/version").body(Vec::new()).expect("a path without variables is valid");
    match client.request::<Value>(request).await {
        Ok(version) if version["gitVersion"].is_string() => Ok(()),
        Ok(_) | Err(kube::Error::SerdeError(_)) => refused(NOT_KUBERNETES),
        Err(kube::Error::Api(status)) => match status.code {
            401 => refused("the server does not accept your credentials (401)"),
            // Such a server is Kubernetes, and busy or strict.
            403 | 429 => Ok(()),
            400 if server.scheme_str() == Some("http") => {
                refused("the server may expect TLS: use https:// in `server`")
            }
            400 | 404 | 405 => refused(NOT_KUBERNETES),
            code => refused(&format!("the server can't answer now ({code}): {}", status.message.trim())),
        },
        Err(kube::Error::Service(error)) => Err(Unusable::Unreachable(error)),
        Err(kube::Error::HyperError(error)) => Err(Unusable::Unreachable(error.into())),
        Err(other) => Err(Unusable::Refused(other.to_string())),
    }
}
