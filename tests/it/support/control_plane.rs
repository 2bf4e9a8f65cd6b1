//! A real etcd and a real kube-apiserver, and the oracle that reads every version of every claim and CiliumNode.
//!
//! They run in their own processes, from the binary that `make tools` builds, on free ports. Their directory is deleted
//! with them. A violation that the oracle reports raises the alarm at once. A test that leaves only objects behind
//! passes the servers on to the next test ([`servers`](super::servers)).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::alarm::Alarm;
use super::families::Families;
use super::findings::OracleReport;
use super::peer::Speaker;
use super::servers::{START_TIMEOUT, Servers};
use super::tails;

/// When asked to exit, kube-apiserver may wait a minute for requests in flight.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// For every other command. The oracle first catches up with the store.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);

/// The chart's output for the modes crd and multi-pool.
const RIGHTS: &str = "tests/it/install/rendered/multi-pool.yaml";

/// The options of a control plane.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The families of the agents, as `cilium-config` says.
    pub(crate) families: Families,
    /// The mode of Cilium, as `cilium-config` says.
    pub(crate) ipam: &'static str,
    /// In mode kubernetes: the controller writes annotations of Nodes, and agents read them.
    pub(crate) annotations: bool,
    /// Whether `cilium-config` exists.
    pub(crate) cilium_config: bool,
    /// Whether etcd writes through to the disk. Only a test of a machine that loses its power needs it.
    pub(crate) fsync: bool,
    /// Directories of CRDs besides Cilium's; by default this repository's, if it has any.
    pub(crate) crds: Vec<PathBuf>,
    /// Other manifests to apply, in order. By default the rights of the controller, if this repository has them.
    pub(crate) manifests: Vec<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (crds, rights) = (root.join("crds"), root.join(RIGHTS));
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

    /// For tests without the product. Of its kinds only claims exist, and a claim may have any form.
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
    /// Has all rights.
    pub(crate) admin: Client,
    /// Has the rights that the product's manifests grant it.
    pub(crate) controller: Client,
    pub(crate) admin_kubeconfig: PathBuf,
    pub(crate) controller_kubeconfig: PathBuf,
    /// The URL of the API server.
    pub(crate) server: String,
    pub(crate) options: Options,
    pub(crate) alarm: Alarm,
    /// The event of the control plane when it was ready.
    pub(crate) ready: Value,
    /// `None` only while this is dropped.
    servers: Option<Servers>,
    /// Whether these servers serve another test after this one.
    handed_on: AtomicBool,
    dir: TempDir,
}

impl ControlPlane {
    /// Starts the servers and returns when they answer. Dropping this stops them.
    ///
    /// # Panics
    /// If the binary was not built: a missing binary must not let a test pass.
    pub(crate) async fn start(options: Options) -> Result<Self> {
        let servers = Servers::start(&options).await?;
        Self::with(servers, options, false).await
    }

    /// As [`ControlPlane::start`], or with servers that another test has left unchanged.
    pub(crate) async fn borrow(options: Options) -> Result<Self> {
        let servers = Servers::renewed_or_started(&options).await?;
        Self::with(servers, options, true).await
    }

    async fn with(servers: Servers, options: Options, handed_on: bool) -> Result<Self> {
        let alarm = Alarm::new();
        servers.serve(&alarm);
        let ready = servers.ready.clone();
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
            servers: Some(servers),
            handed_on: AtomicBool::new(handed_on),
            dir: tempfile::Builder::new().prefix("nodeipam-it-").tempdir()?,
        })
    }

    fn servers(&self) -> &Servers {
        self.servers.as_ref().expect("only drop takes them")
    }

    /// Marks these servers as changed for good: no other test gets them.
    pub(crate) fn keep_to_this_test(&self) {
        self.handed_on.store(false, Ordering::Relaxed);
    }

    async fn ask(&self, command: Value, deadline: Duration) -> Result<Value> {
        self.servers().peer.ask(command, deadline).await
    }

    /// Prints the last lines of all logs, including those of the servers.
    pub(crate) fn print_tails(&self) {
        tails::print(self.dir());
        tails::print(self.servers_dir());
    }

    /// The directory for the logs of the test's processes. It is deleted with the control plane.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The directory with the data of the servers. It is deleted with them.
    pub(crate) fn servers_dir(&self) -> &Path {
        self.servers().dir()
    }

    /// The process id of the supervisor. The servers die with it.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.servers().peer.pid()
    }

    /// The sender of commands to the control plane, for users that outlive a borrow.
    pub(crate) fn speaker(&self) -> Arc<Speaker> {
        Arc::clone(self.servers().peer.speaker())
    }

    /// Asks a server to exit, and returns when it has.
    pub(crate) async fn stop(&self, target: Target) -> Result<()> {
        self.keep_to_this_test();
        self.ask(json!({"cmd": "stop", "target": target.name()}), STOP_TIMEOUT).await.map(drop)
    }

    /// Kills a server, and returns when it has exited.
    pub(crate) async fn kill(&self, target: Target) -> Result<()> {
        self.keep_to_this_test();
        self.ask(json!({"cmd": "kill", "target": target.name()}), ASK_TIMEOUT).await.map(drop)
    }

    /// Starts a server that was stopped or killed, and returns when it answers.
    pub(crate) async fn restart(&self, target: Target) -> Result<()> {
        self.ask(json!({"cmd": "start", "target": target.name()}), START_TIMEOUT).await.map(drop)
    }

    /// Copies the store. Both servers start again on their data.
    pub(crate) async fn backup(&self) -> Result<()> {
        self.keep_to_this_test();
        self.ask(json!({"cmd": "backup"}), START_TIMEOUT).await.map(drop)
    }

    /// Replaces the store with its last copy. Both servers start again, and the oracle starts anew with the content of
    /// the store.
    pub(crate) async fn restore(&self) -> Result<()> {
        self.keep_to_this_test();
        self.ask(json!({"cmd": "restore"}), START_TIMEOUT).await.map(drop)
    }

    /// Replaces the store with the folder that `etcdutl` has restored. Only etcd starts again: the API server waits for
    /// [`ControlPlane::restart`].
    pub(crate) async fn restore_store(&self, folder: &Path) -> Result<()> {
        self.keep_to_this_test();
        let command = json!({"cmd": "restore", "folder": folder, "onlyEtcd": true});
        self.ask(command, START_TIMEOUT).await.map(drop)
    }

    /// The oracle's verdict on everything that was written before this call.
    pub(crate) async fn oracle(&self) -> Result<OracleReport> {
        let answer = self.ask(json!({"cmd": "oracle"}), ASK_TIMEOUT).await?;
        serde_json::from_value(answer).context("the oracle's report")
    }

    /// Announces a violation that the test causes on purpose. `None` means any.
    pub(crate) async fn allow(&self, rule: &str, node: Option<&str>, cidr: Option<&str>) -> Result<()> {
        let command =
            json!({"cmd": "allow", "rule": rule, "node": node.unwrap_or(""), "cidr": cidr.unwrap_or("")});
        self.ask(command, ASK_TIMEOUT).await.map(drop)
    }

    /// Limits the time that a claim may be Releasing from now on. The first limit is a minute.
    pub(crate) async fn limit_releasing(&self, limit: Duration) -> Result<()> {
        let command = json!({"cmd": "limit", "releasing": format!("{}ms", limit.as_millis())});
        self.ask(command, ASK_TIMEOUT).await.map(drop)
    }

    /// From now on a block that is removed with a usage query is judged when its agent has answered. A pod may get an
    /// address of it in the moment of the removal, and then the agent keeps the block.
    pub(crate) async fn judge_at_answers(&self) -> Result<()> {
        self.ask(json!({"cmd": "answers"}), ASK_TIMEOUT).await.map(drop)
    }

    /// Reports to the oracle which addresses the agent of `node` gave back, and then which ones it took.
    pub(crate) async fn holds(&self, node: &str, add: &[&str], remove: &[&str]) -> Result<()> {
        let command = json!({"cmd": "holds", "node": node, "add": add, "remove": remove});
        self.ask(command, ASK_TIMEOUT).await.map(drop)
    }

    /// Compacts the store, after the oracle has read everything.
    pub(crate) async fn compact(&self) -> Result<()> {
        self.ask(json!({"cmd": "compact"}), ASK_TIMEOUT).await.map(drop)
    }

    /// Compacts the store before the oracle has read everything, which is a violation.
    pub(crate) async fn compact_behind_oracle(&self) -> Result<()> {
        self.ask(json!({"cmd": "compact", "behindOracle": true}), ASK_TIMEOUT).await.map(drop)
    }

    /// Lets etcd refuse writes, as it does when its store has used up its quota, or accept them again.
    pub(crate) async fn fill_store(&self, store: Store) -> Result<()> {
        self.keep_to_this_test();
        let full = matches!(store, Store::Full);
        self.ask(json!({"cmd": "space", "full": full}), ASK_TIMEOUT).await.map(drop)
    }

    /// Turns on or off the deletion of CiliumNodes of deleted Nodes, as Kubernetes' garbage collector does it.
    pub(crate) async fn collect_garbage(&self, collect: Collect) -> Result<()> {
        let enabled = matches!(collect, Collect::On);
        self.ask(json!({"cmd": "gc", "enabled": enabled}), ASK_TIMEOUT).await.map(drop)
    }

    /// Fails if the oracle found anything, or if another part raised the alarm.
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

impl Drop for ControlPlane {
    /// Passes the servers on, unless the test has failed or has changed them for good.
    fn drop(&mut self) {
        let Some(servers) = self.servers.take() else { return };
        let sound = !std::thread::panicking() && self.alarm.check().is_ok();
        if sound && self.handed_on.load(Ordering::Relaxed) {
            servers.hand_on();
        }
    }
}

/// Whether the store of etcd takes writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Store {
    /// It has used up its quota.
    Full,
    /// It has space.
    Open,
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
/// If it is missing: a missing program must not let a test pass.
pub(crate) fn tool(variable: &str, name: &str) -> PathBuf {
    let path = std::env::var_os(variable)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("build/bin").join(name), PathBuf::from);
    assert!(
        path.is_file(),
        "{} is missing: run `make tools` or `make build/bin/{name}` (or set {variable})",
        path.display()
    );
    path
}

/// The program of the control plane: that of `make tools`, or that of the version of Kubernetes which
/// `NODEIPAM_KUBERNETES` names (`make test-kubernetes`).
///
/// # Panics
/// If it is missing: no other version may take its place.
pub(crate) fn control_plane_program() -> PathBuf {
    tool("NODEIPAM_CONTROLPLANE", &control_plane_of(asked_version().as_deref()))
}

/// The version of Kubernetes that the tests are asked to run with, such as `1.33`.
pub(crate) fn asked_version() -> Option<String> {
    std::env::var("NODEIPAM_KUBERNETES").ok().filter(|version| !version.is_empty())
}

/// The name of the control plane with this version of Kubernetes.
pub(crate) fn control_plane_of(version: Option<&str>) -> String {
    version.map_or_else(|| "controlplane".to_owned(), |version| format!("controlplane-{version}"))
}

/// Fails if a control plane that reports `running`, such as `v1.33.13`, has another minor version than the tests ask
/// for.
pub(crate) fn ensure_version(asked: Option<&str>, running: &str) -> Result<()> {
    let is_asked_for = |asked: &str| {
        running
            .strip_prefix('v')
            .is_some_and(|running| running.strip_prefix(asked).is_some_and(|rest| rest.starts_with('.')))
    };
    match asked {
        Some(asked) if !is_asked_for(asked) => {
            bail!("the control plane runs Kubernetes {running}, and NODEIPAM_KUBERNETES asks for {asked}")
        }
        Some(_) | None => Ok(()),
    }
}

/// A client from a kubeconfig file.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn holds_yaml(dir: &Path) -> bool {
    dir.read_dir().is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.path().extension().is_some_and(|extension| extension == "yaml"))
    })
}
