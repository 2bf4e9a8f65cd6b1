//! A real Prometheus that scrapes controllers and evaluates the alerts that are shipped, with shortened times.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::control_plane::{ControlPlane, tool};
use super::tails;

/// The pause between two looks at its log or its API. It announces nothing, so it has to be asked.
const PAUSE: Duration = Duration::from_millis(100);

/// From start to its API, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(60);

/// The words of its log when its API answers.
const READY: &str = "Server is ready to receive web requests.";

const CONFIG: &str = "\
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: cilium-node-ipam
    file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]
";

/// A running Prometheus; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Prometheus {
    _child: Child,
    folder: PathBuf,
    address: String,
}

impl Prometheus {
    /// Starts one without targets, which scrapes without TLS.
    pub(crate) async fn start(plane: &ControlPlane) -> Result<Self> {
        Self::start_with(plane, "").await
    }

    /// Starts one without targets, which scrapes over TLS with a bearer token, as an installation on the same network does.
    /// Both files are read again for each scrape.
    pub(crate) async fn start_secured(
        plane: &ControlPlane,
        token: &Path,
        issuer: &Path,
        name: &str,
    ) -> Result<Self> {
        let settings = json!({
            "scheme": "https",
            "authorization": {"credentials_file": token},
            "tls_config": {"ca_file": issuer, "server_name": name},
        });
        let settings: Vec<String> = settings
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("    {key}: {value}\n"))
            .collect();
        Self::start_with(plane, &settings.concat()).await
    }

    /// Starts one with further settings of its job.
    async fn start_with(plane: &ControlPlane, settings: &str) -> Result<Self> {
        let folder = plane.dir().join("prometheus");
        fs::create_dir_all(&folder)?;
        let rules = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/alerts.yaml"))?;
        fs::write(folder.join("rules.yaml"), shortened(&rules))?;
        fs::write(folder.join("prometheus.yaml"), format!("{CONFIG}{settings}"))?;
        fs::write(folder.join("targets.json"), "[]")?;
        let log = folder.join("prometheus.log");
        let output = File::create(&log)?;
        let child = Command::new(tool("NODEIPAM_PROMETHEUS", "prometheus"))
            .args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data"])
            .arg("--web.listen-address=127.0.0.1:0")
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()?;
        let listening = Regex::new(r#"msg="Listening on".* address=(127\.0\.0\.1:\d+)"#)?;
        let limit = tokio::time::Instant::now() + START;
        let address = loop {
            let text = fs::read_to_string(&log)?;
            // It listens before it can answer.
            if let Some(found) = listening.captures(&text).filter(|_| text.contains(READY)) {
                break found[1].to_owned();
            }
            let tail = || tails::tail(&log);
            ensure!(tokio::time::Instant::now() < limit, "Prometheus is not ready:\n{}", tail());
            tokio::time::sleep(PAUSE).await;
        };
        Ok(Self { _child: child, folder, address })
    }

    /// Scrapes these addresses from now on.
    pub(crate) fn scrape(&self, addresses: &[String]) -> Result<()> {
        // It may read while this writes, so the file comes as a whole.
        let new = self.folder.join("targets.new");
        fs::write(&new, json!([{"targets": addresses}]).to_string())?;
        Ok(fs::rename(new, self.folder.join("targets.json"))?)
    }

    /// The names of the alerts that fire, without their prefix.
    pub(crate) async fn firing(&self) -> Result<BTreeSet<String>> {
        let answer: Value = serde_json::from_str(&self.get("/api/v1/alerts").await?)?;
        let alerts = answer["data"]["alerts"].as_array().context("no alerts")?;
        let names = alerts
            .iter()
            .filter(|alert| alert["state"] == "firing")
            .filter_map(|alert| alert["labels"]["alertname"].as_str()?.strip_prefix("CiliumNodeIPAM"))
            .map(str::to_owned);
        Ok(names.collect())
    }

    /// Returns when exactly these alerts fire.
    pub(crate) async fn wait_firing(&self, expected: &[&str], deadline: Duration) -> Result<()> {
        let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
        let limit = tokio::time::Instant::now() + deadline;
        loop {
            let firing = self.firing().await?;
            if firing == expected {
                return Ok(());
            }
            ensure!(
                tokio::time::Instant::now() < limit,
                "after {deadline:?} these alerts fire: {firing:?}, and not {expected:?}"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns when this alert fires, alone or with others.
    pub(crate) async fn wait_fires(&self, alert: &str, deadline: Duration) -> Result<()> {
        let limit = tokio::time::Instant::now() + deadline;
        loop {
            let firing = self.firing().await?;
            if firing.contains(alert) {
                return Ok(());
            }
            ensure!(
                tokio::time::Instant::now() < limit,
                "after {deadline:?} {firing:?} fire, and not {alert}"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns when this query has a result.
    pub(crate) async fn wait_data(&self, query: &str, deadline: Duration) -> Result<()> {
        let encoded: Vec<String> = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/query?query={}", encoded.concat());
        let limit = tokio::time::Instant::now() + deadline;
        loop {
            let answer = self.get(&path).await.context(query.to_owned())?;
            let answer: Value = serde_json::from_str(&answer)?;
            if answer["data"]["result"].as_array().is_some_and(|result| !result.is_empty()) {
                return Ok(());
            }
            ensure!(tokio::time::Instant::now() < limit, "after {deadline:?} no data: {query}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The body of a GET, in a version of HTTP that has no chunks.
    async fn get(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await??;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        ensure!(head.split(' ').nth(1) == Some("200"), "{answer}");
        Ok(body.to_owned())
    }
}

/// The rules with a second in place of each `for`, of each minute of a threshold, and a few scrapes in place of each range.
fn shortened(rules: &str) -> String {
    let durations = Regex::new(r"(?m)^(\s+for:) .*$").expect("the pattern is well formed");
    let ranges = Regex::new(r"\[[0-9]+[mh]\]").expect("the pattern is well formed");
    let minutes =
        Regex::new(r"(_bucket\[15m\]\)\)\)|_lapse_seconds) > 60").expect("the pattern is well formed");
    let rules = minutes.replace_all(rules, "$1 > 1");
    assert!(rules.matches(" > 1\n").count() >= 2, "both thresholds of a minute");
    ranges.replace_all(&durations.replace_all(&rules, "$1 1s"), "[4s]").into_owned()
}
