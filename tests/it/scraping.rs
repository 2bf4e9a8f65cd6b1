//! The metrics port with the rights that the chart grants: a real Prometheus scrapes two replicas through TLS with the
//! token of its ServiceAccount, which the real API server checks; others are refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use regex::Regex;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::scene::SOON;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::controller::{Controller, ELECTED};
use crate::support::eventually::eventually;
use crate::support::kubectl::kubectl;
use crate::support::prometheus::Prometheus;
use crate::support::rig::under_oracle;

/// As the chart renders it with the metrics port.
const RENDERED: &str = "tests/it/install/rendered/metrics-port.yaml";

/// The name in the certificate.
pub(crate) const NAME: &str = "metrics.example.com";

#[tokio::test(flavor = "multi_thread")]
async fn only_users_with_the_right_scrape_both_replicas_through_tls() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let plane = &rig.control_plane;
        plane.keep_to_this_test();
        grant_rights(plane).await?;
        let prometheus_token = token(plane, "prometheus").await?;
        let visitor_token = token(plane, "visitor").await?;
        let files = Files::new()?;
        std::fs::write(files.token(), &prometheus_token)?;

        let [certificate, key] =
            [("certificate", "tls.crt"), ("key", "tls.key")].map(|(flag, name)| files.flag(flag, name));
        let flags = [ELECTED, "--metrics-listen=127.0.0.1:0", &certificate, &key];
        let first = Controller::start_ready(plane, &flags).await?;
        let second = Controller::start_ready(plane, &flags).await?;
        let addresses = [address(&first)?, address(&second)?];
        let prometheus = Prometheus::start_secured(plane, &files.token(), &files.certificate(), NAME).await?;
        prometheus.scrape(&addresses)?;
        let has_data = async |query: &str| plane.alarm.over(prometheus.wait_data(query, SOON)).await;
        has_data("count(up == 1) == 2").await?;
        has_data("sum(cilium_node_ipam_leader) == 1").await?;

        for address in &addresses {
            let get = async |path: &str, token: Option<&str>| get(address, &files, path, token).await;
            for (path, token, expected) in [
                ("/metrics", None, 401),
                ("/metrics", Some("stolen"), 401),
                ("/metrics", Some(&*visitor_token), 403),
                ("/metrics", Some(&*prometheus_token), 200),
                ("/map", Some(&*prometheus_token), 403),
                ("/readyz", Some(&*prometheus_token), 404),
            ] {
                let (code, text) = get(path, token).await?;
                ensure!(code == expected, "{path}: {code} instead of {expected}: {text}");
            }
        }
        // The right to the map is one of its own.
        kubectl(plane, &["create", "clusterrole", "map", "--verb=get", "--non-resource-url=/map"]).await?;
        bind(plane, "map", "visitor").await?;
        let (_, forbidden) = get(&addresses[0], &files, "/metrics", Some(&visitor_token)).await?;
        let user = "system:serviceaccount:monitoring:visitor may not get /metrics: bind the user";
        ensure!(forbidden.starts_with(user), "{forbidden}");
        eventually(SOON, async || {
            let (code, text) = get(&addresses[0], &files, "/map", Some(&visitor_token)).await?;
            ensure!(code == 200 && text.contains("<svg"), "{code}: {text}");
            Ok(())
        })
        .await?;

        // A new certificate, as cert-manager writes it.
        files.write_certificate()?;
        for address in &addresses {
            eventually(SOON, async || {
                let (code, text) = get(address, &files, "/metrics", Some(&prometheus_token)).await?;
                ensure!(code == 200, "{code}: {text}");
                Ok(())
            })
            .await?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        has_data(&format!("count(timestamp(up == 1) > {now}) == 2")).await?;

        // A flood of wrong tokens is not passed on to the API server, and no scraper suffers.
        let mut codes = BTreeSet::new();
        for number in 0..20 {
            codes.insert(get(&addresses[0], &files, "/metrics", Some(&format!("wrong-{number}"))).await?.0);
        }
        ensure!(codes == BTreeSet::from([401, 429]), "{codes:?}");
        let (code, text) = get(&addresses[0], &files, "/metrics", Some(&prometheus_token)).await?;
        ensure!(code == 200, "{code}: {text}");

        for controller in [&first, &second] {
            let log = std::fs::read_to_string(controller.log())?;
            ensure!(!log.contains(&visitor_token) && !log.contains("stolen"), "a token is logged:\n{log}");
            ensure!(!log.to_lowercase().contains("forbidden (403)"), "a right is missing:\n{log}");
        }
        Ok((first, second))
    })
    .await
}

/// Grants the rights of the chart for the metrics port, and creates two users. `prometheus` is the scraper in its
/// values.
async fn grant_rights(plane: &ControlPlane) -> Result<()> {
    let rendered = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(RENDERED))?;
    let is_of_port = |document: &&str| {
        document.contains("kind: ClusterRole")
            && ["  name: cilium-node-ipam-reviews\n", "  name: cilium-node-ipam-scraper\n"]
                .iter()
                .any(|name| document.contains(name))
    };
    let rights: Vec<&str> = rendered.split("\n---\n").filter(is_of_port).collect();
    ensure!(rights.len() == 4, "{rights:?}");
    let file = plane.dir().join("rights.yaml");
    std::fs::write(&file, rights.join("\n---\n"))?;
    kubectl(plane, &["apply", "--server-side", "-f", file.to_str().context("no UTF-8")?]).await?;
    kubectl(plane, &["create", "namespace", "monitoring"]).await?;
    for user in ["prometheus", "visitor"] {
        kubectl(plane, &["-n", "monitoring", "create", "serviceaccount", user]).await?;
    }
    Ok(())
}

async fn bind(plane: &ControlPlane, role: &str, user: &str) -> Result<String> {
    let [role_flag, user] = [format!("--clusterrole={role}"), format!("--serviceaccount=monitoring:{user}")];
    kubectl(plane, &["create", "clusterrolebinding", role, &role_flag, &user]).await
}

pub(crate) async fn token(plane: &ControlPlane, user: &str) -> Result<String> {
    let token = kubectl(plane, &["-n", "monitoring", "create", "token", user]).await?;
    Ok(token.trim().to_owned())
}

/// The address of the metrics port, which the log names.
pub(crate) fn address(controller: &Controller) -> Result<String> {
    let log = std::fs::read_to_string(controller.log())?;
    // In the format text or json.
    let line = Regex::new(r#"listening for scrapers.*address(?:=|":")(127\.0\.0\.1:\d+)"#)?;
    let found = line.captures(&log).with_context(|| format!("no metrics port:\n{log}"))?;
    Ok(found[1].to_owned())
}

/// The files of the metrics port and of its scraper.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Result<Self> {
        let files = Self { folder: tempfile::tempdir()? };
        files.write_certificate()?;
        Ok(files)
    }

    /// Writes a new certificate for the same name, and its key. The pair does not fit in between.
    fn write_certificate(&self) -> Result<()> {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec![NAME.to_owned()])?;
        std::fs::write(self.certificate(), cert.pem())?;
        Ok(std::fs::write(self.path("tls.key"), signing_key.serialize_pem())?)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.path("tls.crt")
    }

    pub(crate) fn token(&self) -> PathBuf {
        self.path("token")
    }

    fn flag(&self, flag: &str, name: &str) -> String {
        format!("--metrics-{flag}={}", self.path(name).display())
    }
}

/// The code and the body of a GET over TLS. Trusts only the certificate in the file.
async fn get(address: &str, files: &Files, path: &str, token: Option<&str>) -> Result<(u16, String)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files.certificate())?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(NAME.try_into()?, stream).await?;
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n{authorization}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    tokio::time::timeout(SOON, stream.read_to_end(&mut answer)).await??;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no HTTP answer")?;
    Ok((code, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}
