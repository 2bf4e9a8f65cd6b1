//! The HTTP endpoints `/livez`, `/readyz` and `/metrics`.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::readiness::Readiness;
use super::{Telemetry, heartbeat, metrics};

/// Binds the address to serve on.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until told to stop.
pub async fn serve(
    listener: TcpListener,
    telemetry: Telemetry,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let routes = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(telemetry);
    axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await?;
    Ok(())
}

/// 200 while the loop is running; 503 with the reason if it is stuck and the process should be restarted.
async fn livez(State(telemetry): State<Telemetry>) -> (StatusCode, String) {
    answer(heartbeat::verdict(telemetry.heartbeat.silence()))
}

/// 200 if the controller serves; 503 with the reason if it does not serve yet, or may not.
async fn readyz(State(telemetry): State<Telemetry>) -> (StatusCode, String) {
    answer(match telemetry.readiness() {
        Readiness::Ready => Ok(()),
        Readiness::NotReady(why) => Err(why),
    })
}

async fn metrics(State(telemetry): State<Telemetry>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], telemetry.metrics.text())
}

fn answer(verdict: Result<(), String>) -> (StatusCode, String) {
    match verdict {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}
