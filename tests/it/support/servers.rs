//! The processes of a control plane, which may outlive the test for which they were started.
//!
//! To start them costs two seconds of CPU, to remove what a test has left a fourteenth of one. So a test that is done
//! hands them on, and the next one that needs servers with the same definitions and rights has everything else removed
//! (`tests/controlplane/renew.go`). Where that does not succeed, because a test has changed what is not removed, they end.

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
use super::control_plane::{Options, tool};
use super::findings::Finding;
use super::peer::{Heard, Peer};
use super::tails;

/// The first start on a busy machine of two cores took 25 s; an idle one takes three.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(180);

/// How long it may take until the clients of the last test are gone, and what that has left.
const RENEW_TIMEOUT: Duration = Duration::from_secs(60);

/// How many control planes may wait for a test. Each has half a gigabyte.
const MOST_WAITING: usize = 4;

/// Reads what the control planes say: a test's own runtime ends with it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control-planes")
        .enable_all()
        .build()
        .expect("a thread and a selector are all that it needs")
});

/// Those that wait for a test, the first handed on first.
static WAITING: Mutex<Vec<Servers>> = Mutex::new(Vec::new());

/// The processes, and what they were started with.
pub(super) struct Servers {
    pub(super) peer: Peer,
    /// What the control plane said when it was ready.
    pub(super) ready: Value,
    listener: Arc<Mutex<Hears>>,
    installed: Installed,
    // After the peer: the servers must be gone before their directory is removed.
    dir: TempDir,
}

/// What a control plane keeps for its life.
#[derive(Debug, PartialEq, Eq)]
struct Installed {
    fsync: bool,
    crds: Vec<PathBuf>,
    manifests: Vec<PathBuf>,
}

/// Who hears bad news.
enum Hears {
    Test(Alarm),
    /// Nobody uses the servers. Bad news makes them useless.
    Nobody,
    Useless,
}

impl Servers {
    /// Starts them, and returns when they answer.
    ///
    /// # Panics
    /// If the binary was not built.
    pub(super) async fn start(options: &Options) -> Result<Self> {
        let program = tool("NODEIPAM_CONTROLPLANE", "controlplane");
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
                    Heard::Event(event) => bad_news(&event).into_iter().for_each(|what| tell(&hears, what)),
                    Heard::Ended => tell(&hears, "the control plane has ended".to_owned()),
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
        Ok(Self { peer, ready, listener, installed: Installed::of(options), dir })
    }

    /// Servers that another test has handed on, without anything of it, or new ones.
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

    /// From now on the alarm is raised by bad news.
    pub(super) fn serve(&self, alarm: &Alarm) {
        *lock(&self.listener) = Hears::Test(alarm.clone());
    }

    /// Lets another test have them.
    pub(super) fn hand_on(self) {
        *lock(&self.listener) = Hears::Nobody;
        let mut waiting = waiting();
        waiting.push(self);
        // The last of those that go was used by a test of other servers than the next ones.
        let too_many = waiting.len().saturating_sub(MOST_WAITING);
        let ended: Vec<_> = waiting.drain(..too_many).collect();
        drop(waiting);
        drop(ended);
    }

    /// Where they keep their data and logs.
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

fn tell(hears: &Mutex<Hears>, what: String) {
    let mut hears = lock(hears);
    match &*hears {
        Hears::Test(alarm) => alarm.raise(what),
        Hears::Nobody | Hears::Useless => *hears = Hears::Useless,
    }
}

/// What is bad about this event.
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
    // A test process that ends leaves it to the control plane to remove the directory.
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
