//! A real Prometheus that scrapes controllers and evaluates the alerts that are shipped, with shortened times.
//!
//! It announces nothing, so it has to be asked.

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
use super::eventually::eventually;
use super::tails;

/// From start to its API, on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(60);

/// The words of its log when its API answers.
const READY: &str = "Server is ready to receive web requests.";

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
        Self::start_with(plane, &shipped_rules()?, json!({})).await
    }

    /// Starts one without targets, which scrapes over TLS with a bearer token, as an installation on the same network
    /// does. Both files are read again for each scrape.
    pub(crate) async fn start_secured(
        plane: &ControlPlane,
        token: &Path,
        issuer: &Path,
        name: &str,
    ) -> Result<Self> {
        let job = json!({
            "scheme": "https",
            "authorization": {"credentials_file": token},
            "tls_config": {"ca_file": issuer, "server_name": name},
        });
        Self::start_with(plane, &shipped_rules()?, job).await
    }

    /// Starts one without targets, with these rules, and with further settings of its job.
    pub(crate) async fn start_with(plane: &ControlPlane, rules: &str, mut job: Value) -> Result<Self> {
        if job["job_name"].is_null() {
            job["job_name"] = "cilium-node-ipam".into();
        }
        job["file_sd_configs"] = json!([{"files": ["targets.json"], "refresh_interval": "1s"}]);
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [job],
        });
        let folder = plane.dir().join("prometheus");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("rules.yaml"), shortened(rules))?;
        // YAML has all of JSON.
        fs::write(folder.join("prometheus.yaml"), config.to_string())?;
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
        let address = eventually(START, async || {
            let text = fs::read_to_string(&log)?;
            // It listens before it can answer.
            let found = listening.captures(&text).filter(|_| text.contains(READY));
            let found = found.with_context(|| format!("Prometheus is not ready:\n{}", tails::tail(&log)))?;
            Ok(found[1].to_owned())
        })
        .await?;
        Ok(Self { _child: child, folder, address })
    }

    /// Scrapes these addresses from now on.
    pub(crate) fn scrape(&self, addresses: &[String]) -> Result<()> {
        self.set_targets(&json!([{"targets": addresses}]))
    }

    /// Scrapes this address from now on. Its series belong to this instance, like those of a process that restarts in
    /// its pod.
    pub(crate) fn scrape_as(&self, instance: &str, address: &str) -> Result<()> {
        self.set_targets(&json!([{"targets": [address], "labels": {"instance": instance}}]))
    }

    fn set_targets(&self, targets: &Value) -> Result<()> {
        // Prometheus may read during the write, so the file is replaced by a complete one.
        let new = self.folder.join("targets.new");
        fs::write(&new, targets.to_string())?;
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
        eventually(deadline, async || {
            let firing = self.firing().await?;
            ensure!(firing == expected, "these alerts fire: {firing:?}, and not {expected:?}");
            Ok(())
        })
        .await
    }

    /// Returns when this alert fires, alone or with others.
    pub(crate) async fn wait_fires(&self, alert: &str, deadline: Duration) -> Result<()> {
        eventually(deadline, async || {
            let firing = self.firing().await?;
            ensure!(firing.contains(alert), "{firing:?} fire, and not {alert}");
            Ok(())
        })
        .await
    }

    /// Returns when this query has a result.
    pub(crate) async fn wait_data(&self, query: &str, deadline: Duration) -> Result<()> {
        let encoded: Vec<String> = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/v1/query?query={}", encoded.concat());
        eventually(deadline, async || {
            let answer: Value = serde_json::from_str(&self.get(&path).await.context(query.to_owned())?)?;
            let has_data = answer["data"]["result"].as_array().is_some_and(|result| !result.is_empty());
            ensure!(has_data, "no data: {query}");
            Ok(())
        })
        .await
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

/// The rules with the default values.
fn shipped_rules() -> Result<String> {
    Ok(fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/alerts.yaml"))?)
}

/// The rules with shortened times. A second replaces each `for` and each minute of a threshold. A minute replaces the
/// hour in which restarts are counted, and a few scrapes replace each other range.
fn shortened(rules: &str) -> String {
    let replaced = |rules: &str, pattern: &str, with: &str, least: usize| {
        let pattern = Regex::new(pattern).expect("the pattern is well formed");
        assert!(pattern.find_iter(rules).count() >= least, "{pattern} in\n{rules}");
        pattern.replace_all(rules, with).into_owned()
    };
    let rules = replaced(rules, r#"(_bucket\[15m\]\)\)\)|_lapse_seconds|reclaim\\?"\}\)) > 60"#, "$1 > 1", 3);
    let rules = replaced(&rules, r#"(?m)(^\s+"?for"?:) [^,\n]*"#, "$1 1s", 20);
    let rules = replaced(&rules, r"\[[0-9]+m\]", "[4s]", 5);
    replaced(&rules, r"\[1h\]", "[1m]", 1)
}
