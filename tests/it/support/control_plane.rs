//! A real etcd and a real kube-apiserver, and the oracle that reads every version of every claim and CiliumNode.
//!
//! They run in processes of their own, of the binary that `make tools` builds, on free ports and in a directory that
//! goes away with them. A violation that the oracle reports raises the alarm at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::watch;

use super::alarm::Alarm;
use super::families::Families;
use super::findings::{Finding, OracleReport};
use super::peer::{Heard, Peer, Speaker};
use super::tails;

/// The first start on a busy machine of two cores took 25 s; an idle one takes three.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// kube-apiserver may wait a minute for requests in flight when it is asked to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// Every other command; the oracle first catches up with the store.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);

/// How the control plane is started.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The families that the agents run, as `cilium-config` says.
    pub(crate) families: Families,
    /// The mode of Cilium, as `cilium-config` says.
    pub(crate) ipam: &'static str,
    /// In mode kubernetes: the controller writes annotations of Nodes, and agents read them.
    pub(crate) annotations: bool,
    /// Whether `cilium-config` exists.
    pub(crate) cilium_config: bool,
    /// Whether etcd writes through to the disk. Needed only where a machine that loses its power is the subject.
    pub(crate) fsync: bool,
    /// Directories of CRDs besides Cilium's; by default this repository's, if it has any.
    pub(crate) crds: Vec<PathBuf>,
    /// What else is applied, in order; by default the rights of the controller, if this repository has them.
    pub(crate) manifests: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (crds, rights) = (root.join("crds"), root.join("manifests/rbac.yaml"));
        Self {
            families: Families::V4,
            ipam: "crd",
            annotations: false,
            cilium_config: true,
            fsync: false,
            crds: if holds_yaml(&crds) { vec![crds] } else { Vec::new() },
            manifests: if rights.is_file() { vec![rights] } else { Vec::new() },
        }
    }
}

impl Options {
    /// The defaults, with agents of these families.
    pub(crate) fn of(families: Families) -> Self {
        Self { families, ..Self::default() }
    }

    /// For tests without the product: of its kinds there are only claims, and those of any form.
    pub(crate) fn without_product(families: Families) -> Self {
        let claims = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/lenient-nodeipblocks.yaml");
        Self { crds: vec![claims], manifests: Vec::new(), ..Self::of(families) }
    }
}

/// A server of the control plane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Etcd,
    ApiServer,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "apiserver",
        }
    }
}

/// The running control plane.
pub(crate) struct ControlPlane {
    /// May do everything.
    pub(crate) admin: Client,
    /// May do what the product's manifests allow it.
    pub(crate) controller: Client,
    pub(crate) admin_kubeconfig: PathBuf,
    pub(crate) controller_kubeconfig: PathBuf,
    /// The URL of the API server.
    pub(crate) server: String,
    pub(crate) options: Options,
    pub(crate) alarm: Alarm,
    /// What the control plane said when it was ready.
    pub(crate) ready: Value,
    peer: Peer,
    // After the peer: the servers must be gone before their directory is removed.
    dir: TempDir,
}

impl ControlPlane {
    /// Starts the servers and returns when they answer.
    ///
    /// # Panics
    /// If the binary was not built: no test may pass because it is missing.
    pub(crate) async fn start(options: Options) -> Result<Self> {
        let program = tool("NODEIPAM_CONTROLPLANE", "controlplane");
        let dir = tempfile::Builder::new().prefix("nodeipam-it-").tempdir()?;
        let alarm = Alarm::new();
        let command = command(&program, dir.path(), &options);
        let log = dir.path().join("controlplane.log");
        let (said, mut saying) = watch::channel(None);
        let events = alarm.clone();
        let peer = Peer::start("controlplane", command, &log, move |heard| match heard {
            Heard::Event(event) if event["event"] == "ready" => drop(said.send_replace(Some(event))),
            Heard::Event(event) => judge(&events, &event),
            Heard::Ended => events.raise("the control plane has ended"),
        })?;
        let ready = async {
            let ready =
                saying.wait_for(Option::is_some).await.context("the control plane ended as it started")?;
            ready.clone().context("nothing said")
        };
        let ready = tokio::time::timeout(START_TIMEOUT, alarm.over(ready))
            .await
            .unwrap_or_else(|_| bail!("the control plane was not ready in {START_TIMEOUT:?}"))
            .inspect_err(|_| tails::print(dir.path()))?;
        let path = |field: &str| ready[field].as_str().map(PathBuf::from).with_context(|| field.to_owned());
        let (admin_kubeconfig, controller_kubeconfig) =
            (path("adminKubeconfig")?, path("controllerKubeconfig")?);
        Ok(Self {
            admin: client(&admin_kubeconfig).await?,
            controller: client(&controller_kubeconfig).await?,
            admin_kubeconfig,
            controller_kubeconfig,
            server: ready["server"].as_str().unwrap_or_default().to_owned(),
            options,
            alarm,
            ready,
            peer,
            dir,
        })
    }

    /// Where processes of the test keep their logs; it goes away with the control plane.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process id of the supervisor, whose death takes the servers along.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.peer.pid()
    }

    /// What gives commands to the control plane, for those who outlive a borrow.
    pub(crate) fn speaker(&self) -> Arc<Speaker> {
        Arc::clone(self.peer.speaker())
    }

    /// Asks a server to end, and returns when it has.
    pub(crate) async fn stop(&self, target: Target) -> Result<()> {
        self.peer.ask(json!({"cmd": "stop", "target": target.name()}), STOP_TIMEOUT).await.map(drop)
    }

    /// Ends a server without giving it a chance, and returns when it is gone.
    pub(crate) async fn kill(&self, target: Target) -> Result<()> {
        self.peer.ask(json!({"cmd": "kill", "target": target.name()}), ASK_TIMEOUT).await.map(drop)
    }

    /// Starts a server that was stopped or killed, and returns when it answers.
    pub(crate) async fn restart(&self, target: Target) -> Result<()> {
        self.peer.ask(json!({"cmd": "start", "target": target.name()}), START_TIMEOUT).await.map(drop)
    }

    /// Copies the store. Both servers start again on their data.
    pub(crate) async fn backup(&self) -> Result<()> {
        self.peer.ask(json!({"cmd": "backup"}), START_TIMEOUT).await.map(drop)
    }

    /// Puts the last copy in the place of the store. Both servers start again, and the oracle begins anew with what
    /// the store holds then.
    pub(crate) async fn restore(&self) -> Result<()> {
        self.peer.ask(json!({"cmd": "restore"}), START_TIMEOUT).await.map(drop)
    }

    /// What the oracle makes of everything that was written before this call.
    pub(crate) async fn oracle(&self) -> Result<OracleReport> {
        let answer = self.peer.ask(json!({"cmd": "oracle"}), ASK_TIMEOUT).await?;
        serde_json::from_value(answer).context("the oracle's report")
    }

    /// Announces a violation that the test causes on purpose. `None` means any.
    pub(crate) async fn allow(&self, rule: &str, node: Option<&str>, cidr: Option<&str>) -> Result<()> {
        let command =
            json!({"cmd": "allow", "rule": rule, "node": node.unwrap_or(""), "cidr": cidr.unwrap_or("")});
        self.peer.ask(command, ASK_TIMEOUT).await.map(drop)
    }

    /// Says how long a claim may be Releasing from now on; it is a minute at first.
    pub(crate) async fn limit_releasing(&self, limit: Duration) -> Result<()> {
        let command = json!({"cmd": "limit", "releasing": format!("{}ms", limit.as_millis())});
        self.peer.ask(command, ASK_TIMEOUT).await.map(drop)
    }

    /// Tells the oracle what the agent of `node` took and gave back; what was given back comes first.
    pub(crate) async fn holds(&self, node: &str, add: &[&str], remove: &[&str]) -> Result<()> {
        let command = json!({"cmd": "holds", "node": node, "add": add, "remove": remove});
        self.peer.ask(command, ASK_TIMEOUT).await.map(drop)
    }

    /// Compacts the store, after the oracle has read everything.
    pub(crate) async fn compact(&self) -> Result<()> {
        self.peer.ask(json!({"cmd": "compact"}), ASK_TIMEOUT).await.map(drop)
    }

    /// Compacts the store before the oracle has read everything, which is a violation.
    pub(crate) async fn compact_behind_oracle(&self) -> Result<()> {
        self.peer.ask(json!({"cmd": "compact", "behindOracle": true}), ASK_TIMEOUT).await.map(drop)
    }

    /// Turns on or off the deletion of CiliumNodes whose Node is gone, as Kubernetes' garbage collector does it.
    pub(crate) async fn collect_garbage(&self, collect: Collect) -> Result<()> {
        let enabled = matches!(collect, Collect::On);
        self.peer.ask(json!({"cmd": "gc", "enabled": enabled}), ASK_TIMEOUT).await.map(drop)
    }

    /// Fails if anything was found, by the oracle or by anyone else who raises the alarm.
    pub(crate) async fn assert_clean(&self) -> Result<()> {
        self.alarm.check()?;
        let report = self.oracle().await?;
        if let Some(first) = report.violations.first() {
            bail!("{} violations; the first: {first}", report.violations_total.max(report.violations.len()));
        }
        // The oracle may have caught up only now.
        self.alarm.check()
    }
}

/// Whether garbage is collected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Collect {
    On,
    Off,
}

/// The path of a program that `make tools` builds, or that `variable` names.
///
/// # Panics
/// If it is missing: no test may pass because of that.
pub(crate) fn tool(variable: &str, name: &str) -> PathBuf {
    let path = std::env::var_os(variable)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("build/bin").join(name), PathBuf::from);
    assert!(path.is_file(), "{} is missing: run `make tools` (or set {variable})", path.display());
    path
}

/// A client from a kubeconfig file.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn command(program: &Path, dir: &Path, options: &Options) -> Command {
    let mut command = Command::new(program);
    command.arg("run").arg("--data").arg(dir.join("data"));
    command
        .arg(format!("--ipv4={}", options.families.ipv4()))
        .arg(format!("--ipv6={}", options.families.ipv6()));
    command.arg(format!("--cilium-config={}", options.cilium_config)).arg("--ipam").arg(options.ipam);
    if options.fsync {
        command.arg("--fsync");
    }
    for crds in &options.crds {
        command.arg("--crds").arg(crds);
    }
    for manifests in &options.manifests {
        command.arg("--manifests").arg(manifests);
    }
    command
}

/// Raises the alarm if the event is bad news.
fn judge(alarm: &Alarm, event: &Value) {
    match event["event"].as_str().unwrap_or_default() {
        "violation" => match serde_json::from_value::<Finding>(event.clone()) {
            Ok(finding) if finding.planted => {}
            Ok(finding) => alarm.raise(format!("the oracle: {finding}")),
            Err(error) => alarm.raise(format!("an unreadable violation: {error}: {event}")),
        },
        "fatal" | "died" => alarm.raise(format!("the control plane: {event}")),
        _ => {}
    }
}

fn holds_yaml(dir: &Path) -> bool {
    dir.read_dir().is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.path().extension().is_some_and(|extension| extension == "yaml"))
    })
}
