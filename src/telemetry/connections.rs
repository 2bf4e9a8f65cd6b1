//! The open connections of an HTTP server.
//!
//! No client can cost the process much: [`MAX_CONNECTIONS`] bounds their number, [`HEADER_LIMIT`] the time of a
//! request header, and [`STOP_LIMIT`] the wait of a process that exits.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error};

/// How many connections are open at a time; one more closes the oldest. Kubelet opens one per health check, each
/// Prometheus keeps one, and a person needs a few: about ten. This leaves room for several times that. It is a small
/// part of the 1024 descriptors that a process usually may have.
pub(super) const MAX_CONNECTIONS: usize = 64;

/// How long a client may take to send the header of a request, and how long a connection may stay idle. Clients send a
/// header in one packet, and have given up by then: kubelet after the 3 s or 5 s of the manifests, Prometheus after its
/// default of 10 s.
pub(super) const HEADER_LIMIT: Duration = Duration::from_secs(10);

/// How long a stopped server waits for the answers that it has started. They come from memory, in milliseconds, and
/// the rest of the time is for the network to the client. It is short beside the 30 s that the kubelet grants to the
/// process, which also has to finish its writes.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Has a conversation with each client until the server is stopped, and then waits for at most [`STOP_LIMIT`].
pub(super) async fn serve_clients<Conversation>(
    mut listener: TcpListener,
    stop: CancellationToken,
    mut conversation: impl FnMut(TcpStream) -> Conversation,
) -> anyhow::Result<()>
where
    Conversation: Future<Output = ()> + Send + 'static,
{
    let mut connections = Connections::default();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(()) = connections.next_end() => {}
            // Unlike that of `TcpListener`, this `accept` deals with errors: it logs them, and waits while there are
            // no descriptors.
            (stream, peer) = Listener::accept(&mut listener) => connections.open(peer, conversation(stream)),
        }
    }
    drop(listener);
    connections.finish().await;
    Ok(())
}

/// The open connections.
#[derive(Default)]
struct Connections {
    /// Not `controller::tasks`: that room is above this one, and has no way to abort a single task.
    tasks: JoinSet<()>,
    /// The oldest first.
    by_age: VecDeque<AbortHandle>,
}

impl Connections {
    /// Opens one, which lasts as long as `conversation`.
    fn open(&mut self, peer: SocketAddr, conversation: impl Future<Output = ()> + Send + 'static) {
        self.by_age.retain(|connection| !connection.is_finished());
        // Waiting for room instead would let clients that send nothing delay the kubelet's liveness check.
        if self.by_age.len() >= MAX_CONNECTIONS
            && let Some(oldest) = self.by_age.pop_front()
        {
            debug!("{MAX_CONNECTIONS} connections are open: closing the oldest");
            oldest.abort();
        }
        let span = tracing::debug_span!("http connection", %peer);
        self.by_age.push_back(self.tasks.spawn(conversation.instrument(span)));
    }

    /// Waits for the end of one, if one is open. Cancel-safe.
    async fn next_end(&mut self) -> Option<()> {
        self.tasks.join_next().await.map(log_panic)
    }

    /// Waits until all connections are closed, and closes the rest after [`STOP_LIMIT`].
    async fn finish(mut self) {
        let ended = async {
            while let Some(end) = self.tasks.join_next().await {
                log_panic(end);
            }
        };
        if tokio::time::timeout(STOP_LIMIT, ended).await.is_err() {
            debug!(open = self.tasks.len(), "closing the remaining connections");
            self.tasks.shutdown().await;
        }
    }
}

/// Answers the requests of one connection until it is closed. Once stopped, it finishes the request in progress.
pub(super) async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    routes: Router,
    stop: CancellationToken,
) {
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_LIMIT)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
    );
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        end = connection.as_mut() => end,
    };
    if let Err(error) = end {
        debug!(%error, "HTTP connection failed");
    }
}

/// Logs how a connection was closed if that is a defect; one that was closed to make room is none.
fn log_panic(end: Result<(), JoinError>) {
    if let Err(error) = end
        && error.is_panic()
    {
        error!(%error, "an HTTP connection panicked");
    }
}
