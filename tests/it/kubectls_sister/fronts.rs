//! Servers between a client and the API server: proxies, TLS with another certificate, and servers that are none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A running server. Dropping it closes its connections.
pub(super) struct Front {
    pub(super) address: SocketAddr,
    /// The number of connections that it has accepted.
    accepted: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Front {
    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Serves each connection with `serve`. A connection that fails is closed.
    pub(super) async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> Result<Self>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepted = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&accepted);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let served = serve(stream);
                connections.spawn(async move { drop(served.await) });
            }
        });
        Ok(Self { address, accepted, _tasks: tasks })
    }

    /// A proxy that speaks HTTP's CONNECT, and connects to `upstream` for any name.
    pub(super) async fn connect(upstream: SocketAddr) -> Result<Self> {
        Self::start(move |client| tunnel(client, upstream)).await
    }

    /// The same behind TLS with this certificate and key.
    pub(super) async fn connect_tls(
        upstream: SocketAddr,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self> {
        let server =
            ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(server));
        Self::start(move |client| {
            let acceptor = acceptor.clone();
            async move { tunnel(acceptor.accept(client).await?, upstream).await }
        })
        .await
    }

    /// A proxy that speaks SOCKS 5 without authentication, and connects to `upstream` for any name.
    pub(super) async fn socks(upstream: SocketAddr) -> Result<Self> {
        Self::start(move |mut client| async move {
            let mut hello = [0; 2];
            client.read_exact(&mut hello).await?;
            client.read_exact(&mut vec![0; hello[1].into()]).await?;
            client.write_all(&[5, 0]).await?;
            let mut request = [0; 4];
            client.read_exact(&mut request).await?;
            let n_bytes = match request[3] {
                1 => 4,
                3 => client.read_u8().await?.into(),
                _ => 16,
            };
            client.read_exact(&mut vec![0; n_bytes + 2]).await?;
            client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
            forward(client, upstream).await
        })
        .await
    }

    /// TLS with this certificate and key, and TLS to `upstream`, which `authority` has signed.
    pub(super) async fn tls(
        upstream: SocketAddr,
        authority: CertificateDer<'static>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self> {
        let server = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(client));
        let name = ServerName::from(upstream.ip());
        Self::start(move |client| {
            let (acceptor, connector, name) = (acceptor.clone(), connector.clone(), name.clone());
            async move {
                let client = acceptor.accept(client).await?;
                let server = connector.connect(name, TcpStream::connect(upstream).await?).await?;
                both_ways(client, server).await
            }
        })
        .await
    }

    /// A server that answers the first bytes of each connection with these.
    pub(super) async fn saying(answer: &'static [u8]) -> Result<Self> {
        Self::start(move |mut client| async move {
            let _n_bytes = client.read(&mut [0; 4096]).await?;
            client.write_all(answer).await.context("an answer")
        })
        .await
    }

    /// A server that never answers.
    pub(super) async fn silent() -> Result<Self> {
        Self::start(|mut client| async move {
            let mut all = Vec::new();
            client.read_to_end(&mut all).await?;
            Ok(())
        })
        .await
    }
}

/// Answers a request for a tunnel, and is one to `upstream` from then on.
async fn tunnel(mut client: impl AsyncRead + AsyncWrite + Unpin, upstream: SocketAddr) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    client.flush().await?;
    forward(client, upstream).await
}

async fn forward(client: impl AsyncRead + AsyncWrite + Unpin, upstream: SocketAddr) -> Result<()> {
    both_ways(client, TcpStream::connect(upstream).await?).await
}

async fn both_ways(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<()> {
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
