//! The processes of a control plane, which may outlive the test for which they were started.
//!
//! To start them costs two seconds of CPU; to remove the objects of a test costs a fourteenth of one. So a finished
//! test passes them on. The next test that needs servers with the same definitions and rights removes everything else
//! (`tests/controlplane/renew.go`). If the removal fails, because a test has changed more than that, the servers exit.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::alarm::Alarm;
use super::control_plane::{Options, asked_version, control_plane_program, ensure_version};
use super::findings::Finding;
use super::peer::{Heard, Peer};
use super::tails;

/// The first start on a busy machine of two cores took 25 s; an idle one takes three.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(180);

/// How long the clients of the last test may take to disconnect, and its objects to be deleted.
const RENEW_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum number of control planes that wait for a test. Each has half a gigabyte of memory.
const MOST_WAITING: usize = 4;

/// Reads the events of the control planes: the runtime of a test stops with the test.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control-planes")
        .enable_all()
        .build()
        .expect("a thread and a selector are all that it needs")
});

/// The servers that wait for a test. Those that have waited longest come first.
static WAITING: Mutex<Vec<Servers>> = Mutex::new(Vec::new());

/// The processes, and the options that they were started with.
pub(super) struct Servers {
    pub(super) peer: Peer,
    /// The event of the control plane when it was ready.
    pub(super) ready: Value,
    listener: Arc<Mutex<Hears>>,
    installed: Installed,
    // After the peer: the servers must have exited before their directory is removed.
    dir: TempDir,
}

/// The properties that a control plane keeps for its life.
#[derive(Debug, PartialEq, Eq)]
struct Installed {
    fsync: bool,
    crds: Vec<PathBuf>,
    manifests: Vec<PathBuf>,
}

/// The listener for bad news.
enum Hears {
    Test(Alarm),
    /// No test uses the servers. Bad news makes them useless.
    Nobody,
    Useless,
}

impl Servers {
    /// Starts them, and returns when they answer.
    ///
    /// # Panics
    /// If the binary was not built.
    pub(super) async fn start(options: &Options) -> Result<Self> {
        let program = control_plane_program();
        let dir = tempfile::Builder::new().prefix("nodeipam-servers-").tempdir()?;
        let alarm = Alarm::new();
        let listener = Arc::new(Mutex::new(Hears::Test(alarm.clone())));
        let (said, mut saying) = watch::channel(None);
        let log = dir.path().join("controlplane.log");
        let peer = {
            let hears = Arc::clone(&listener);
            let _own = RUNTIME.enter();
            Peer::start(
                "controlplane",
                command(&program, dir.path(), options),
                &log,
                move |news| match news {
                    Heard::Event(event) if event["event"] == "ready" => drop(said.send_replace(Some(event))),
                    Heard::Event(event) => bad_news(&event).into_iter().for_each(|what| note(&hears, what)),
                    Heard::Ended => note(&hears, "the control plane has ended".to_owned()),
                },
            )?
        };
        let ready = async {
            let ready =
                saying.wait_for(Option::is_some).await.context("the control plane ended as it started")?;
            ready.clone().context("nothing said")
        };
        let ready = tokio::time::timeout(START_TIMEOUT, alarm.over(ready))
            .await
            .unwrap_or_else(|_| bail!("the control plane was not ready in {START_TIMEOUT:?}"))
            .inspect_err(|_| tails::print(dir.path()))?;
        ensure_version(asked_version().as_deref(), ready["version"].as_str().unwrap_or_default())?;
        Ok(Self { peer, ready, listener, installed: Installed::of(options), dir })
    }

    /// Servers from another test, without the objects of that test, or new ones.
    pub(super) async fn renewed_or_started(options: &Options) -> Result<Self> {
        while let Some(servers) = Self::take(options) {
            match servers.renew(options).await {
                Ok(()) => return Ok(servers),
                Err(error) => eprintln!("harness: these servers serve no other test: {error:#}"),
            }
        }
        Self::start(options).await
    }

    fn take(options: &Options) -> Option<Self> {
        let mut waiting = waiting();
        let wanted = Installed::of(options);
        let at = waiting.iter().position(|servers| servers.installed == wanted)?;
        Some(waiting.remove(at))
    }

    async fn renew(&self, options: &Options) -> Result<()> {
        let command = json!({
            "cmd": "renew",
            "ipv4": options.families.ipv4(),
            "ipv6": options.families.ipv6(),
            "ipam": options.ipam,
            "ciliumConfig": options.cilium_config,
        });
        self.peer.ask(command, RENEW_TIMEOUT).await?;
        ensure!(!matches!(*lock(&self.listener), Hears::Useless), "something happened to them");
        Ok(())
    }

    /// From now on bad news raises the alarm.
    pub(super) fn serve(&self, alarm: &Alarm) {
        *lock(&self.listener) = Hears::Test(alarm.clone());
    }

    /// Makes them available to another test.
    pub(super) fn hand_on(self) {
        *lock(&self.listener) = Hears::Nobody;
        let mut waiting = waiting();
        waiting.push(self);
        // The servers that have waited longest exit: the recent tests needed other ones.
        let too_many = waiting.len().saturating_sub(MOST_WAITING);
        let ended: Vec<_> = waiting.drain(..too_many).collect();
        drop(waiting);
        drop(ended);
    }

    /// The directory with their data and logs.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Installed {
    fn of(options: &Options) -> Self {
        let Options { fsync, crds, manifests, .. } = options.clone();
        Self { fsync, crds, manifests }
    }
}

fn waiting() -> MutexGuard<'static, Vec<Servers>> {
    lock(&WAITING)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(hears: &Mutex<Hears>, what: String) {
    let mut hears = lock(hears);
    match &*hears {
        Hears::Test(alarm) => alarm.raise(what),
        Hears::Nobody | Hears::Useless => *hears = Hears::Useless,
    }
}

/// The bad news of an event, if any.
fn bad_news(event: &Value) -> Option<String> {
    match event["event"].as_str().unwrap_or_default() {
        "violation" => match serde_json::from_value::<Finding>(event.clone()) {
            Ok(finding) if finding.planted => None,
            Ok(finding) => Some(format!("the oracle: {finding}")),
            Err(error) => Some(format!("an unreadable violation: {error}: {event}")),
        },
        "fatal" | "died" => Some(format!("the control plane: {event}")),
        _ => None,
    }
}

fn command(program: &Path, dir: &Path, options: &Options) -> Command {
    let mut command = Command::new(program);
    // If the test process exits, the control plane removes the directory.
    command.arg("run").arg("--data").arg(dir.join("data")).arg("--remove").arg(dir);
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
