//! The flags of the metrics port of `run`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use tokio::net::TcpListener;

use crate::telemetry::certificate::{Certificate, CertificateFiles};
use crate::telemetry::scrape;

/// The heading of the flags about metrics and other views of the process.
pub(super) const OBSERVATION: &str = "Observation";

/// The metrics port.
#[derive(Debug, Clone, clap::Args)]
#[allow(clippy::struct_field_names, reason = "the names are those of the flags")]
pub(super) struct MetricsPort {
    /// Address of /metrics and /map for other hosts, over TLS and for users with a bearer token; `:PORT` for all
    /// addresses.
    ///
    /// The API server checks the token (TokenReview), and whether its user may get the path (SubjectAccessReview). That
    /// needs the rights of the ClusterRole system:auth-delegator.
    #[arg(long, value_name = "ADDRESS", value_parser = address, help_heading = OBSERVATION)]
    metrics_listen: Option<SocketAddr>,

    /// The certificate of --metrics-listen in PEM. It is read again when it changes. Without it, one is self-signed.
    #[arg(long, value_name = "FILE", requires_all = ["metrics_listen", "metrics_key"], help_heading = OBSERVATION)]
    metrics_certificate: Option<PathBuf>,

    /// The private key of --metrics-certificate in PEM.
    #[arg(long, value_name = "FILE", requires = "metrics_certificate", help_heading = OBSERVATION)]
    metrics_key: Option<PathBuf>,
}

impl MetricsPort {
    /// Binds the port, and reads or makes its certificate; `None` without the port. `name` is that of this process.
    pub(super) async fn open(&self, name: &str) -> anyhow::Result<Option<(TcpListener, Certificate)>> {
        let Some(address) = self.metrics_listen else { return Ok(None) };
        let listener = scrape::bind(address).await.with_context(|| format!("can't listen on {address}"))?;
        let files = self.metrics_certificate.clone().zip(self.metrics_key.clone());
        let names = vec![name.to_owned(), "localhost".to_owned()];
        let certificate = match files {
            Some((certificate, key)) => Certificate::of_files(CertificateFiles { certificate, key }, names),
            None => Certificate::self_signed(names),
        };
        Ok(Some((listener, certificate.context("can't serve --metrics-listen")?)))
    }
}

/// An address with its port; `:PORT` for all addresses of both families.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').map(str::parse);
    match port {
        Some(Ok(port)) => Ok(([0u16; 8], port).into()),
        Some(Err(_)) => Err("must be :PORT or ADDRESS:PORT".to_owned()),
        None => text.parse().map_err(|_| "must be :PORT or ADDRESS:PORT".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_that_of_all_addresses() {
        assert_eq!(address(":9921"), Ok("[::]:9921".parse().unwrap()));
        assert_eq!(address("10.0.0.7:9921"), Ok("10.0.0.7:9921".parse().unwrap()));
        assert!(address("9921").is_err() && address(":x").is_err() && address("10.0.0.7").is_err());
    }
}
