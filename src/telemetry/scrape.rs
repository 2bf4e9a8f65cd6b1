//! The metrics port: `/metrics` and `/map` over TLS, for users that may get them.
//!
//! Unlike the port of `http.rs` it may be open to other hosts. So nothing is shown before the API server has
//! accepted the user.

use std::net::SocketAddr;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Telemetry;
use super::access::Access;
use super::certificate::Certificate;
use super::connections::{HEADER_LIMIT, converse, serve_clients};
use super::http::{map, metrics};

/// Binds the address to serve on. All addresses of both families are those of IPv4 where the kernel has no IPv6.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.is_ipv6() && address.ip().is_unspecified() => {
            let of_ipv4 = SocketAddr::from(([0u8; 4], address.port()));
            TcpListener::bind(of_ipv4).await.map_err(|_| error)
        }
        bound => bound,
    }
}

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    mut certificate: Certificate,
    access: Access,
    telemetry: Telemetry,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let routes = Router::new().route("/metrics", get(metrics)).route("/map", get(map)).with_state(telemetry);
    let conversation = |stream: TcpStream| {
        let acceptor = TlsAcceptor::from(certificate.current());
        // A client that has disconnected already has no address.
        let client = stream.peer_addr().map(|peer| access.of_client(peer.ip()));
        let (routes, stop) = (routes.clone(), stop.clone());
        async move {
            let Ok(access) = client else { return };
            let routes = routes.layer(from_fn_with_state(access, Access::guard));
            match timeout(HEADER_LIMIT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => converse(stream, routes, stop).await,
                Ok(Err(error)) => debug!(%error, "TLS handshake failed"),
                Err(_) => debug!("TLS handshake took too long"),
            }
        }
    };
    serve_clients(listener, stop.clone(), conversation).await
}
