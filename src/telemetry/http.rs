//! The HTTP endpoints `/livez`, `/readyz`, `/metrics` and `/map`, without authentication.
//!
//! On a loopback address only requests to such an address are answered. A web page of another site may have the browser
//! of an administrator send requests through `kubectl port-forward`, under a name that its owner points to 127.0.0.1
//! (DNS rebinding). The `Host` of those requests is that name.

use std::net::IpAddr;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, X_CONTENT_TYPE_OPTIONS};
use axum::http::uri::Authority;
use axum::middleware::{Next, from_fn};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::connections::{converse, serve_clients};
use super::readiness::Readiness;
use super::{Telemetry, heartbeat, metrics};
use crate::model::failure::Failure;
use crate::model::freeze::Switch;
use crate::model::printable::printable;
use crate::page;

/// Serves until `stop`, and then for at most [`super::connections::STOP_LIMIT`].
pub async fn serve(
    listener: TcpListener,
    telemetry: Telemetry,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    // Both name pools or nodes, and clients have no identity on this port.
    let is_local = listener.local_addr()?.ip().is_loopback();
    let routes = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", if is_local { get(metrics) } else { get(only_local) })
        .route("/map", if is_local { get(map) } else { get(only_local) })
        .with_state(telemetry);
    let routes = if is_local { routes.layer(from_fn(only_to_loopback)) } else { routes };
    serve_clients(listener, stop.clone(), |stream| converse(stream, routes.clone(), stop.clone())).await
}

/// Answers a request to `localhost` or a loopback address, as kubelet, Prometheus on the same host and a browser behind
/// `kubectl port-forward` send it. A request without a `Host` comes from no browser.
async fn only_to_loopback(request: Request, next: Next) -> Response {
    let asked = request.headers().get(HOST);
    if asked.is_none_or(|host| host.to_str().is_ok_and(is_loopback)) {
        return next.run(request).await;
    }
    let why = "this port answers only requests to localhost or to a loopback address\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// Whether a `Host` names this machine.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| name.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

/// 200 while the loop is running; 503 with the reason if it is stuck and the process should be restarted.
async fn livez(State(telemetry): State<Telemetry>) -> (StatusCode, String) {
    answer(heartbeat::verdict(telemetry.heartbeat.silence()))
}

/// 200 if the controller serves, frozen or not; 503 with the reason if it does not serve yet, or may not. A standby
/// names the leader first. Then a line per switch of the freeze that is on, per kind that is not followed, per
/// forbidden request, and per write that fails. The last lines name the tasks that the controller skips although it serves.
async fn readyz(State(telemetry): State<Telemetry>) -> (StatusCode, String) {
    let (code, mut text) = answer(match telemetry.readiness() {
        Readiness::Ready => Ok(()),
        Readiness::NotReady(why) | Readiness::Passive(why) => Err(why),
    });
    let freeze = telemetry.freeze();
    let frozen = Switch::ALL.into_iter().filter_map(|switch| freeze.description(switch));
    let frozen = frozen.map(|reported| format!("frozen: {reported}"));
    for line in telemetry
        .leader()
        .line()
        .into_iter()
        .chain(frozen)
        .chain(telemetry.api_health.lines())
        .chain(telemetry.failures().iter().map(Failure::description))
        .chain(telemetry.remarks())
    {
        text.push_str(&printable(&line));
        text.push('\n');
    }
    (code, text)
}

pub(super) async fn metrics(State(telemetry): State<Telemetry>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], telemetry.metrics_text())
}

/// The map of the address space as a page.
pub(super) async fn map(State(telemetry): State<Telemetry>) -> Response {
    match telemetry.maps.ask().await {
        Some(drawn) => {
            let headers = [
                (CONTENT_SECURITY_POLICY, page::map::header_policy()),
                (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
            ];
            (headers, Html(drawn.page(page::map::html))).into_response()
        }
        None => answer(Err("no map: the controller has not read the whole cluster yet".to_owned()))
            .into_response(),
    }
}

async fn only_local() -> (StatusCode, &'static str) {
    (StatusCode::FORBIDDEN, "this path is served only on a loopback address and on --metrics-listen\n")
}

fn answer(verdict: Result<(), String>) -> (StatusCode, String) {
    match verdict {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", printable(&why))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::super::connections::{HEADER_LIMIT, MAX_CONNECTIONS, STOP_LIMIT};
    use super::*;
    use crate::model::freeze::Freeze;
    use crate::telemetry::leader::Leader;
    use crate::view::map::Map;

    #[tokio::test(start_paused = true)]
    async fn half_sent_requests_do_not_hold_up_the_end() {
        let mut server = Server::start().await;
        let _half_sent = [server.send_half().await, server.send_half().await];
        // Connections are accepted in order: with this answer the server has the two above.
        let _idle = server.probe().await;

        server.stop.cancel();

        let end = timeout(STOP_LIMIT * 2, server.tasks.join_next()).await;
        end.expect("the server ends").expect("there is a server").expect("no panic").expect("no error");
    }

    #[tokio::test(start_paused = true)]
    async fn a_half_sent_request_is_closed_after_its_time() {
        let server = Server::start().await;
        let mut half_sent = server.send_half().await;

        timeout(HEADER_LIMIT * 2, closed(&mut half_sent)).await.expect("the server closes it");
    }

    #[tokio::test(start_paused = true)]
    async fn readyz_names_what_is_not_followed_and_fails_after_a_minute_of_it() {
        let telemetry = Telemetry::start();
        let readyz = || async { super::readyz(State(telemetry.clone())).await };
        telemetry.set_readiness(Readiness::Ready);
        for (kind, _) in telemetry.api_health.lapses() {
            telemetry.api_health.follows(kind);
        }
        assert_eq!(readyz().await, (StatusCode::OK, "ok\n".to_owned()));
        telemetry.api_health.lapsed("Node", "no route to host".to_owned());
        tokio::time::advance(Duration::from_secs(41)).await;
        let text = "ok\nno watch of Node for 41 s: no route to host\n".to_owned();
        assert_eq!(readyz().await, (StatusCode::OK, text));
        tokio::time::advance(Duration::from_secs(20)).await;
        telemetry.api_health.note_answer();
        let (code, text) = readyz().await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.starts_with("no watch for more than 60 s: Node\nno watch of Node for"), "{text}");
        let metrics = telemetry.metrics_text();
        for line in [
            "ready 0",
            "watch_lapse_seconds{kind=\"Node\"} 61.0",
            "watch_lapse_seconds{kind=\"NodeIPPool\"} 0.0",
        ] {
            assert!(metrics.contains(&format!("cilium_node_ipam_{line}\n")), "{line} is not in\n{metrics}");
        }
        telemetry.api_health.follows("Node");
        assert_eq!(readyz().await, (StatusCode::OK, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn readyz_says_what_is_frozen_and_stays_ready() {
        let telemetry = Telemetry::start();
        let readyz = || async { super::readyz(State(telemetry.clone())).await };
        telemetry.set_readiness(Readiness::Ready);
        telemetry.set_freeze(Freeze::of([(Switch::Writes, "of a test".to_owned())]));
        let text =
            "ok\nfrozen: no claim, CiliumNode, Node, CiliumPodIPPool, FRRConfiguration or finalizer is written: of a test\n"
                .to_owned();
        assert_eq!(readyz().await, (StatusCode::OK, text));
        telemetry.set_freeze(Freeze::default());
        assert_eq!(readyz().await, (StatusCode::OK, "ok\n".to_owned()));
    }

    #[tokio::test]
    async fn other_hosts_get_neither_metrics_nor_the_map_of_a_port_without_authentication() {
        let server = Server::at([0, 0, 0, 0]).await;
        for (path, expected) in
            [("/metrics", "HTTP/1.1 403"), ("/map", "HTTP/1.1 403"), ("/livez", "HTTP/1.1 200")]
        {
            let mut stream = TcpStream::connect(("127.0.0.1", server.address.port())).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(expected), "{path}: {answer}");
        }
    }

    /// Otherwise a web page of another site could read the names of nodes through `kubectl port-forward`.
    #[tokio::test]
    async fn a_loopback_port_answers_only_requests_to_a_loopback_address() {
        let server = Server::start().await;
        for (host, is_answered) in [
            ("Host: localhost:9920\r\n", true),
            ("Host: LOCALHOST\r\n", true),
            ("Host: 127.0.0.1:9920\r\n", true),
            ("Host: 127.9.9.9\r\n", true),
            ("Host: [::1]:9920\r\n", true),
            ("", true),
            ("Host: rebound.example.com:9920\r\n", false),
            ("Host: localhost.example.com\r\n", false),
            ("Host: 127.0.0.1.example.com\r\n", false),
            ("Host: 192.0.2.1:9920\r\n", false),
            ("Host: \r\n", false),
        ] {
            for path in ["/map", "/metrics", "/readyz", "/livez"] {
                let mut stream = TcpStream::connect(server.address).await.unwrap();
                // The map of a loop that does not run is never answered, so the method is one that no path has.
                let request = format!("DELETE {path} HTTP/1.0\r\n{host}\r\n");
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                let expected = if is_answered { " 405 " } else { " 421 " };
                assert!(
                    answer.lines().next().is_some_and(|line| line.contains(expected)),
                    "{host}{path}: {answer}"
                );
            }
        }
    }

    #[tokio::test]
    async fn the_map_is_that_of_the_loop() {
        let telemetry = Telemetry::start();
        let answer = async {
            telemetry.maps.wanted().await;
            let at = crate::model::time::Timestamp::UNIX_EPOCH;
            telemetry.maps.answer(Map {
                at,
                mode: Err("a <test>".to_owned()),
                pools: Vec::new(),
                waiting: Vec::new(),
                problems: Vec::new(),
            });
        };
        let (response, ()) = tokio::join!(super::map(State(telemetry.clone())), answer);
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && policy.ends_with("frame-ancestors 'none'"),
            "{policy}"
        );
        let page = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let page = String::from_utf8(page.to_vec()).unwrap();
        assert!(page.contains("passive: a &lt;test&gt;") && !page.contains("<test>"), "{page}");
    }

    #[tokio::test]
    async fn metrics_say_why_the_process_does_not_serve() {
        let telemetry = Telemetry::start();
        let serving = || {
            let text = telemetry.metrics_text();
            let lines = text.lines().filter_map(|line| line.strip_prefix("cilium_node_ipam_serving{reason="));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(serving(), ["\"not_ready\"} 0"]);
        for (kind, _) in telemetry.api_health.lapses() {
            telemetry.api_health.follows(kind);
        }
        telemetry.set_readiness(Readiness::Passive("ipam is eni".to_owned()));
        assert_eq!(serving(), ["\"passive\"} 0"]);
        telemetry.set_readiness(Readiness::Ready);
        assert_eq!(serving(), ["\"\"} 1"]);
        telemetry.set_freeze(Freeze::of([(Switch::Reclaim, "of a test".to_owned())]));
        assert_eq!(serving(), ["\"\"} 1"], "nodes get blocks all the same");
        telemetry.set_freeze(Freeze::of([(Switch::Writes, "of a test".to_owned())]));
        assert_eq!(serving(), ["\"frozen\"} 0"]);
        telemetry.set_leader(Leader::Other("ipam-7f_0a1b".to_owned()));
        assert_eq!(serving(), ["\"standby\"} 0"]);
    }

    // The clock is not paused: with nothing else to do it would jump to the time-out of the half-sent requests.
    #[tokio::test]
    async fn a_probe_over_the_bound_takes_the_place_of_the_oldest_connection() {
        let server = Server::start().await;
        let mut half_sent = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            half_sent.push(server.send_half().await);
        }

        let before_they_time_out = HEADER_LIMIT / 2;
        timeout(before_they_time_out, server.probe()).await.expect("/livez answers at once");

        let oldest = closed(&mut half_sent[0]);
        timeout(before_they_time_out, oldest).await.expect("the oldest is closed");
        let mut byte = [0];
        let next = half_sent[1].try_read(&mut byte).map_err(|error| error.kind());
        assert_eq!(next, Err(std::io::ErrorKind::WouldBlock), "the others stay open");
    }

    struct Server {
        address: SocketAddr,
        stop: CancellationToken,
        tasks: JoinSet<anyhow::Result<()>>,
    }

    impl Server {
        async fn start() -> Self {
            Self::at([127, 0, 0, 1]).await
        }

        async fn at(address: [u8; 4]) -> Self {
            let listener = TcpListener::bind(SocketAddr::from((address, 0))).await.unwrap();
            let address = listener.local_addr().unwrap();
            let stop = CancellationToken::new();
            let mut tasks = JoinSet::new();
            tasks.spawn(serve(listener, Telemetry::start(), stop.clone()));
            Self { address, stop, tasks }
        }

        /// A connection with half a request line.
        async fn send_half(&self) -> TcpStream {
            let mut connection = TcpStream::connect(self.address).await.unwrap();
            connection.write_all(b"GET /li").await.unwrap();
            connection
        }

        /// A connection on which /livez has answered.
        async fn probe(&self) -> TcpStream {
            let mut connection = TcpStream::connect(self.address).await.unwrap();
            connection.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\nok\n") {
                let n_bytes = connection.read_buf(&mut answer).await.unwrap();
                assert_ne!(n_bytes, 0, "closed after {:?}", String::from_utf8_lossy(&answer));
            }
            connection
        }
    }

    /// Waits until the server has closed the connection. It resets it if it had not read all that was sent.
    async fn closed(connection: &mut TcpStream) {
        let mut rest = Vec::new();
        match connection.read_to_end(&mut rest).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}
