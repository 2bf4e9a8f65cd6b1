//! The connection of a command to an API server: through a proxy, with TLS, and with certificates as Go accepts them.
//!
//! kube builds the same for the controller. It knows no proxies without features that also change the controller, and
//! it refuses a server certificate that the kubeconfig trusts by itself.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::rt::{Read, Write};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{ClientBuilder, ConfigExt as _, DynBody};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

use super::proxy::{Protocol, Proxy};
use crate::controller::client::Transport;

/// A client of this server.
pub(super) fn client(config: &Config, proxy: Option<&Proxy>) -> anyhow::Result<ClientBuilder<Transport>> {
    let mut tcp = HttpConnector::new();
    // It also connects to the address of a proxy.
    tcp.enforce_http(false);
    let tls = tls(config)?;
    let Some(proxy) = proxy else { return over(tcp, config, tls) };
    if proxy.protocol == Protocol::Socks5 {
        let mut socks = SocksV5::new(proxy.uri.clone(), tcp);
        if let Some((user, password)) = proxy.credentials.clone() {
            socks = socks.with_auth(user, password);
        }
        return over(socks, config, tls);
    }
    let authorization = proxy.credentials.as_ref().map(|(user, password)| {
        HeaderValue::try_from(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
    });
    let authorization = authorization.transpose()?;
    if proxy.protocol == Protocol::Https {
        let https = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http().enable_http1();
        return over(tunnel(proxy, authorization, https.wrap_connector(tcp)), config, tls);
    }
    over(tunnel(proxy, authorization, tcp), config, tls)
}

fn tunnel<C>(proxy: &Proxy, authorization: Option<HeaderValue>, connector: C) -> Tunnel<C> {
    let tunnel = Tunnel::new(proxy.uri.clone(), connector);
    match authorization {
        Some(authorization) => tunnel.with_auth(authorization),
        None => tunnel,
    }
}

/// A client whose connections to the server are made by `connector`.
fn over<C>(connector: C, config: &Config, tls: ClientConfig) -> anyhow::Result<ClientBuilder<Transport>>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name.clone().try_into()?));
    }
    let https: HttpsConnector<C> = https.enable_http1().wrap_connector(connector);
    let mut limited = TimeoutConnector::new(https);
    limited.set_connect_timeout(config.connect_timeout);
    limited.set_read_timeout(config.read_timeout);
    limited.set_write_timeout(config.write_timeout);
    let client = legacy::Client::builder(TokioExecutor::new()).build(limited);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client)
        .map_response(|answer: Response<hyper::body::Incoming>| {
            answer.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>)
        });
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace.clone()))
}

/// The TLS of a connection.
fn tls(config: &Config) -> anyhow::Result<ClientConfig> {
    let mut tls = config.rustls_client_config()?;
    if let Some(trusted) = config.root_cert.as_ref().filter(|_| !config.accept_invalid_certs) {
        let trusted = trusted.iter().map(|der| CertificateDer::from(der.clone())).collect();
        tls.dangerous().set_certificate_verifier(Arc::new(Trusted::new(trusted)?));
    }
    Ok(tls)
}

/// Verifies as Go does: a certificate of the kubeconfig is trusted as an authority, and also as the server's own.
#[derive(Debug)]
struct Trusted {
    certificates: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

impl Trusted {
    fn new(certificates: Vec<CertificateDer<'static>>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone())?;
        }
        Ok(Self { certificates, authorities: WebPkiServerVerifier::builder(Arc::new(roots)).build()? })
    }
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.authorities.verify_server_cert(server, intermediates, name, ocsp_response, now);
        match &verified {
            // The period of validity was checked before these.
            Err(Error::InvalidCertificate(error))
                if has_no_issuer(error) && self.certificates.iter().any(|trusted| trusted == server) =>
            {
                verify_server_name(&ParsedCertificate::try_from(server)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            Ok(_) | Err(_) => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, server, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, server, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Whether a certificate was refused because no trusted authority has verifiably issued it, or because it is an
/// authority itself.
fn has_no_issuer(error: &CertificateError) -> bool {
    match error {
        CertificateError::UnknownIssuer
        // An authority has the name of the issuer, and another key, or one that can't be used.
        | CertificateError::BadSignature
        | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => true,
        CertificateError::Other(other) => {
            matches!(other.0.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
        }
        _ => false,
    }
}
