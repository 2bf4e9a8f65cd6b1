//! The contact with the API server, as every request shows it: when the server last answered, which watches it has
//! accepted, which requests it forbids, and its time.
//!
//! One layer around both clients notes the outcome of each request. No back-off depends on it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Method, Request, Response, StatusCode, Uri};
use kube::client::Body;
use tower::{BoxError, Layer, Service};
use tracing::info;

use super::clock::Clock;
use super::warnings::Warnings;
use crate::model::speaker::SpeakerKind;
use crate::telemetry::Telemetry;
use crate::telemetry::api_health::{
    AGENT_PODS, ApiHealth, CONFIG_MAPS, FRR_CONFIGURATIONS, FRR_NODE_STATES, LEASE, LEASES, NODE_CONFIGS,
    POD_IP_POOLS, Right,
};
use crate::telemetry::metrics::ApiRequests;
use crate::wire::watched::Wire;
use crate::wire::{CiliumNodes, Claims, Nodes, Pools, agent_pod, cilium_bgp, frr, node_config, pod_ip_pool};

/// The contact with the API server. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Connectivity {
    /// The part of it that `/readyz` shows.
    pub api_health: ApiHealth,
    /// The clock of the process, which follows the time of the server.
    pub clock: Clock,
    /// Their counts.
    requests: ApiRequests,
    warnings: Warnings,
}

impl Connectivity {
    /// The contact of a process; `telemetry` serves its counts.
    #[must_use]
    pub fn new(telemetry: &Telemetry) -> Self {
        let api_health = telemetry.api_health.clone();
        let requests = telemetry.metrics.api_requests();
        Self { api_health, requests, ..Self::default() }
    }

    /// Takes in the outcome of a request: the code of the answer, if there was one. `asked` is the right for it, if
    /// it is about objects.
    fn note(&self, asked: Option<&Right>, answer: Option<StatusCode>) {
        let Some(code) = answer else { return };
        self.api_health.note_answer();
        let Some(asked) = asked else { return };
        if code == StatusCode::FORBIDDEN {
            self.api_health.forbid(asked.clone());
        } else if code.is_success() {
            self.api_health.allow(asked);
            if asked.verb == WATCH
                && let Some(kind) = kind_of(asked)
                && let Some(lapse) = self.api_health.follows(kind)
            {
                info!(kind, after = ?lapse, "watching again");
            }
        }
    }
}

const WATCH: &str = "watch";

/// The kind of the objects that are asked for, if it is one that is followed.
fn kind_of(asked: &Right) -> Option<&'static str> {
    if asked.resource == "configmaps" {
        let followed = CONFIG_MAPS.iter().find(|followed| asked.name.as_deref() == Some(followed.name));
        return followed.map(|followed| followed.kind);
    }
    let kinds = [
        (Nodes::PLURAL, Nodes::KIND.as_str()),
        (CiliumNodes::PLURAL, CiliumNodes::KIND.as_str()),
        (Pools::PLURAL, Pools::KIND.as_str()),
        (Claims::PLURAL, Claims::KIND.as_str()),
        (agent_pod::PLURAL, AGENT_PODS),
        (pod_ip_pool::PLURAL, POD_IP_POOLS),
        (node_config::PLURAL, NODE_CONFIGS),
        (LEASES, LEASE),
        (frr::CONFIGURATIONS, FRR_CONFIGURATIONS),
        (frr::NODE_STATES, FRR_NODE_STATES),
        (cilium_bgp::plural(SpeakerKind::Advertisement), SpeakerKind::Advertisement.as_str()),
        (cilium_bgp::plural(SpeakerKind::PeeringPolicy), SpeakerKind::PeeringPolicy.as_str()),
    ];
    kinds.into_iter().find(|(plural, _)| *plural == asked.resource).map(|(_, kind)| kind)
}

/// The right that a request needs, by its path: `/api/VERSION/…` or `/apis/GROUP/VERSION/…`, then perhaps
/// `namespaces/NAME`, then the resource, and perhaps the name of an object and a subresource. In a namespace it is the
/// right to the one object that the query selects by its name, where it does: a Role can give it for that alone.
///
/// `None` for a path without a resource, by which a client discovers kinds: no rule of this controller grants it, and
/// the controller does without.
fn right_for(method: &Method, uri: &Uri) -> Option<Right> {
    let mut segments = uri.path().split('/').filter(|segment| !segment.is_empty());
    let group = match segments.next() {
        Some("apis") => segments.next().unwrap_or_default(),
        Some(_) | None => "",
    };
    let mut segments = segments.skip(1).peekable();
    let namespace = segments.next_if_eq(&"namespaces").and_then(|_| segments.next()).map(str::to_owned);
    let resource = segments.next()?;
    let name = segments.next();
    let resource = match segments.next() {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource.to_owned(),
    };
    let parts = || uri.query().into_iter().flat_map(|query| query.split('&'));
    let selected = parts().find_map(|part| part.strip_prefix("fieldSelector=metadata.name%3D"));
    let object = namespace.as_ref().and(selected).map(str::to_owned);
    let is_watch = || parts().any(|part| part == "watch=true");
    let verb = match *method {
        Method::POST => "create",
        Method::PATCH => "patch",
        Method::PUT => "update",
        Method::DELETE => "delete",
        _ if is_watch() => WATCH,
        _ if name.is_some() => "get",
        _ => "list",
    };
    Some(Right { verb, group: group.to_owned(), resource, namespace, name: object })
}

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
#[error("can't reach the API server at {server}: {cause}{hint}")]
pub(super) struct Unreachable {
    server: Uri,
    /// The first cause, such as `Connection refused (os error 111)`.
    cause: String,
    hint: &'static str,
}

/// The remedy where the address is that of the Service `kubernetes`, which kube-proxy or its replacement serves.
const NO_SERVICE: &str = "; if Cilium replaces kube-proxy, set k8sServiceHost and k8sServicePort of the chart to an \
                          address that needs no Service";

impl Unreachable {
    fn new(server: &Uri, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut cause = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let service = std::env::var("KUBERNETES_SERVICE_HOST").unwrap_or_default();
        let is_service = !service.is_empty() && server.host() == Some(service.as_str());
        let hint = if is_service { NO_SERVICE } else { "" };
        Self { server: server.clone(), cause: cause.to_string(), hint }
    }
}

/// Lets a contact see every request of a client and its outcome.
#[derive(Debug, Clone)]
pub(super) struct Observe {
    connectivity: Connectivity,
    server: Uri,
}

impl Observe {
    /// A layer for the client of this server.
    pub(super) fn new(connectivity: Connectivity, server: &Uri) -> Self {
        Self { connectivity, server: server.clone() }
    }
}

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed { inner, connectivity: self.connectivity.clone(), server: self.server.clone() }
    }
}

/// A client whose requests are seen.
#[derive(Debug, Clone)]
pub(super) struct Observed<S> {
    inner: S,
    connectivity: Connectivity,
    server: Uri,
}

impl<S, B> Service<Request<Body>> for Observed<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = right_for(request.method(), request.uri());
        let (connectivity, server) = (self.connectivity.clone(), self.server.clone());
        let sent = connectivity.requests.begins(asked.as_ref());
        let sent_at = connectivity.clock.uptime();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let Ok(answer) = &answer {
                sent.answered(answer.status());
                connectivity.api_health.note_time(connectivity.clock.uptime().saturating_sub(sent_at));
            }
            connectivity.note(asked.as_ref(), answer.as_ref().ok().map(Response::status));
            if let Ok(answer) = &answer {
                connectivity.warnings.note(answer.headers());
                // A proxy answers errors by itself, and with its own date.
                if answer.status().is_success() {
                    connectivity.clock.hear(answer.headers(), sent_at);
                }
            }
            answer.map_err(|error| Unreachable::new(&server, error.into().as_ref()).into())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_path_tells_the_right_that_it_needs() {
        let check = |method: Method, path: &str, expected: &str| {
            let right = right_for(&method, &path.parse().unwrap());
            assert_eq!(right.map(|right| right.to_string()).unwrap_or_default(), expected, "{path}");
        };
        check(Method::GET, "http://server:6443/api/v1/nodes?limit=1", "list nodes");
        check(Method::GET, "/api/v1/nodes?watch=true&resourceVersion=5", "watch nodes");
        check(Method::GET, "/apis/cilium.io/v2/ciliumnodes?&limit=100", "list ciliumnodes of cilium.io");
        let status = "/apis/cilium.io/v2/ciliumnodes/a/status?fieldManager=x";
        check(Method::PATCH, status, "patch ciliumnodes/status of cilium.io");
        let block = "/apis/nodeipam.io/v1alpha1/nodeipblocks/10.0.0.0-28";
        check(Method::DELETE, block, "delete nodeipblocks of nodeipam.io");
        let config = "/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dx";
        check(Method::GET, config, "list configmaps named x in namespace kube-system");
        let event = "/apis/events.k8s.io/v1/namespaces/default/events";
        check(Method::POST, event, "create events of events.k8s.io in namespace default");
        check(Method::GET, "/api/v1/nodes/a", "get nodes");
        check(Method::GET, "/apis/cilium.io/v2", "");
    }

    fn list() -> Right {
        right_for(&Method::GET, &"/api/v1/nodes".parse().unwrap()).unwrap()
    }

    #[test]
    fn an_accepted_watch_is_followed_and_a_list_is_not() {
        let connectivity = Connectivity::default();
        let ask = |path: &str| {
            connectivity.note(right_for(&Method::GET, &path.parse().unwrap()).as_ref(), Some(StatusCode::OK));
        };
        let lapses =
            || connectivity.api_health.lapses().into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
        assert_eq!(lapses(), ["CiliumNode", "Node", "NodeIPBlock", "NodeIPPool"]);
        ask("/api/v1/nodes");
        assert_eq!(lapses().len(), 4);
        ask("/api/v1/nodes?watch=true");
        assert_eq!(lapses(), ["CiliumNode", "NodeIPBlock", "NodeIPPool"]);
    }

    #[test]
    fn a_watch_of_one_config_map_is_not_that_of_another() {
        let connectivity = Connectivity::default();
        let kind = CONFIG_MAPS[0].kind;
        connectivity.api_health.starts_to_follow(kind);
        let watch = |name: &str| {
            let path = "/api/v1/namespaces/kube-system/configmaps?&fieldSelector=metadata.name%3D";
            let uri = format!("{path}{name}&watch=true").parse().unwrap();
            connectivity.note(right_for(&Method::GET, &uri).as_ref(), Some(StatusCode::OK));
            connectivity.api_health.lapses().iter().all(|(lapsed, _)| *lapsed != kind)
        };
        assert!(!watch("another"));
        assert!(watch(CONFIG_MAPS[0].name));
    }

    #[test]
    fn a_refusal_is_forgotten_when_a_request_of_its_kind_succeeds() {
        let connectivity = Connectivity::default();
        connectivity.note(Some(&list()), Some(StatusCode::FORBIDDEN));
        connectivity.note(None, Some(StatusCode::FORBIDDEN));
        let watch = Right { verb: WATCH, ..list() };
        connectivity.note(Some(&watch), Some(StatusCode::OK));
        assert_eq!(connectivity.api_health.forbidden(Duration::ZERO), [list()]);
        connectivity.note(Some(&list()), Some(StatusCode::OK));
        assert_eq!(connectivity.api_health.forbidden(Duration::ZERO), []);
    }

    #[test]
    fn an_error_names_the_server_and_the_first_cause() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let outer = anyhow::Error::from(refused).context("client error (Connect)");
        let server = "https://10.96.0.1:443/".parse().unwrap();
        let reported = Unreachable::new(&server, outer.as_ref()).to_string();
        assert_eq!(reported, "can't reach the API server at https://10.96.0.1:443/: connection refused");
    }
}
