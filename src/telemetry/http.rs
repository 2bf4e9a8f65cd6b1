//! `/livez` and `/readyz`.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::controller::run::Readiness;

/// Binds the address to serve on.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until told to stop.
pub async fn serve(
    listener: TcpListener,
    readiness: watch::Receiver<Readiness>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let routes = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(readiness);
    axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await?;
    Ok(())
}

/// 200 when the controller serves; 503 with the reason when it does not, or may not.
async fn readyz(State(readiness): State<watch::Receiver<Readiness>>) -> (StatusCode, String) {
    match &*readiness.borrow() {
        Readiness::Ready => (StatusCode::OK, "ok\n".to_owned()),
        Readiness::NotReady(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}
