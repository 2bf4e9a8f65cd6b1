//! The product as its users run it: the binary, in a process of its own.
//!
//! Its log is a file beside the control plane's. On failure the rig prints the last lines.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cilium_node_ipam::model::counted::counted;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::control_plane::ControlPlane;
use super::proxy::Proxy;
use super::{signals, tails};

/// From start to `/readyz`, with the lists of a large cluster, on a machine that is busy with other tests.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between two looks at its HTTP server or its log. The process can't notify this one, so this one polls.
const PROBE_PAUSE: Duration = Duration::from_millis(25);

/// From SIGTERM to the exit. The controller waits for its writes in flight.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// For a complete dry run: it lists everything and plans once.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a controller compares its state with all objects, unless a test sets it. A controller exits at a
/// difference.
const SELF_CHECK_INTERVAL: [&str; 2] = [SELF_CHECK_FLAG, "1s"];
const SELF_CHECK_FLAG: &str = "--self-check-interval";

/// Logs every finding on its own line. Otherwise findings beyond a number are only counted, and how many come at once
/// varies.
const LOG_FILTER: &str = "cilium_node_ipam::controller::report::finding_log=debug";

/// The flag of a controller that takes part in an election.
pub(crate) const ELECTED: &str = "--leader-elect=true";

/// Numbers the log files of this process.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A running controller. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Controller {
    child: Child,
    log: PathBuf,
    address_file: PathBuf,
}

impl Controller {
    /// Starts `cilium-node-ipam run` with these flags beside the necessary ones, with the controller's rights.
    pub(crate) fn start(control_plane: &ControlPlane, flags: &[&str]) -> Result<Self> {
        Self::spawn(control_plane, &control_plane.controller_kubeconfig, flags)
    }

    /// As [`Controller::start_ready`], with a proxy between it and the API server.
    pub(crate) async fn start_ready_behind(
        control_plane: &ControlPlane,
        proxy: &Proxy,
        flags: &[&str],
    ) -> Result<Self> {
        let mut controller = Self::spawn(control_plane, proxy.kubeconfig(), flags)?;
        control_plane.alarm.over(controller.wait_ready()).await?;
        Ok(controller)
    }

    /// As [`Controller::start`], with a proxy between it and the API server.
    pub(crate) fn start_behind(control_plane: &ControlPlane, proxy: &Proxy, flags: &[&str]) -> Result<Self> {
        Self::spawn(control_plane, proxy.kubeconfig(), flags)
    }

    fn spawn(control_plane: &ControlPlane, kubeconfig: &Path, flags: &[&str]) -> Result<Self> {
        Self::spawn_program(control_plane, command(kubeconfig), flags)
    }

    fn spawn_program(control_plane: &ControlPlane, mut program: Command, flags: &[&str]) -> Result<Self> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let log = control_plane.dir().join(format!("controller-{number}.log"));
        let address_file = control_plane.dir().join(format!("controller-{number}.address"));
        let output = File::create(&log)?;
        let child = program
            .env("RUST_LOG", LOG_FILTER)
            .args(["run", "--listen", "127.0.0.1:0", "--address-file"])
            .arg(&address_file)
            .args(SELF_CHECK_INTERVAL.iter().filter(|_| !flags.contains(&SELF_CHECK_FLAG)))
            .args(modes(control_plane))
            .args(election(flags))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Self { child, log, address_file })
    }

    /// Starts a controller and waits until it is ready.
    pub(crate) async fn start_ready(control_plane: &ControlPlane, flags: &[&str]) -> Result<Self> {
        let mut controller = Self::start(control_plane, flags)?;
        control_plane.alarm.over(controller.wait_ready()).await?;
        Ok(controller)
    }

    /// As [`Controller::start_ready`], with the program of another version.
    pub(crate) async fn start_ready_other(
        control_plane: &ControlPlane,
        program: &Path,
        flags: &[&str],
    ) -> Result<Self> {
        let command = command_of(program, &control_plane.controller_kubeconfig);
        let mut controller = Self::spawn_program(control_plane, command, flags)?;
        control_plane.alarm.over(controller.wait_ready()).await?;
        Ok(controller)
    }

    /// Returns when `/readyz` says 200. It is an error if the controller exits instead.
    pub(crate) async fn wait_ready(&mut self) -> Result<()> {
        let limit = tokio::time::Instant::now() + READY_TIMEOUT;
        loop {
            let answer = self.get("/readyz").await;
            if matches!(&answer, Ok((200, _))) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the controller has ended, {status}:\n{}", tails::tail(&self.log));
            }
            if tokio::time::Instant::now() > limit {
                bail!(
                    "the controller is not ready after {READY_TIMEOUT:?}: {answer:?}\n{}",
                    tails::tail(&self.log)
                );
            }
            tokio::time::sleep(PROBE_PAUSE).await;
        }
    }

    /// The status code and body of a GET of its HTTP server.
    pub(crate) async fn get(&self, path: &str) -> Result<(u16, String)> {
        get(&self.address_file, path).await
    }

    /// Returns when `look` accepts the answer to a GET of `path`. The answer is an error as long as the port is closed.
    /// An error of `look` is returned at once. `what` names the awaited answer.
    pub(crate) async fn wait_answer(
        &self,
        path: &str,
        what: &str,
        deadline: Duration,
        mut look: impl FnMut(&Result<(u16, String)>) -> Result<bool>,
    ) -> Result<()> {
        let limit = tokio::time::Instant::now() + deadline;
        loop {
            let answer = self.get(path).await;
            if look(&answer)? {
                return Ok(());
            }
            ensure!(
                tokio::time::Instant::now() < limit,
                "waited {deadline:?} in vain for {what}: {answer:?}"
            );
            tokio::time::sleep(PROBE_PAUSE).await;
        }
    }

    /// Waits until it exits by itself, and returns its exit status.
    pub(crate) async fn wait_ended(mut self, deadline: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(deadline, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("the controller still runs after {deadline:?}:\n{}", tails::tail(&self.log)),
        }
    }

    /// The address of its HTTP server.
    pub(crate) fn address(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.address_file).context("its address")?.trim().to_owned())
    }

    /// Its exit status, if it has exited by itself.
    pub(crate) fn has_exited(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Returns when a line of its log has these words. The process can't notify this one, so this polls the file.
    pub(crate) async fn wait_logged(&self, words: &str, deadline: Duration) -> Result<()> {
        let limit = tokio::time::Instant::now() + deadline;
        while !std::fs::read_to_string(&self.log)?.contains(words) {
            if tokio::time::Instant::now() > limit {
                bail!("{words:?} was not logged in {deadline:?}:\n{}", tails::tail(&self.log));
            }
            tokio::time::sleep(PROBE_PAUSE).await;
        }
        Ok(())
    }

    /// Kills it as the kernel or a power cut would, and returns when it has exited.
    pub(crate) async fn sigkill(mut self) -> Result<()> {
        self.child.kill().await.context("killing the controller")
    }

    /// Asks it to exit, as Kubernetes does, and returns its exit status.
    pub(crate) async fn sigterm_and_wait(mut self) -> Result<ExitStatus> {
        self.signal("TERM").await?;
        match tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => {
                bail!("the controller runs {STOP_TIMEOUT:?} after SIGTERM:\n{}", tails::tail(&self.log))
            }
        }
    }

    /// Halts it (`STOP`) or continues it (`CONT`), like a virtual machine that is suspended.
    pub(crate) async fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.child.id().context("the controller has ended")?;
        signals::send(pid, signal).await
    }
}

impl Drop for Controller {
    /// Removes its address file: another test's controller may get the port.
    fn drop(&mut self) {
        // It may be about to write the address. After a wait for its exit, this does nothing.
        let _ = self.child.start_kill();
        let _ = std::fs::remove_file(&self.address_file);
    }
}

/// The status code and body of a GET of the HTTP server whose address is in the file.
pub(crate) async fn get(address_file: &Path, path: &str) -> Result<(u16, String)> {
    let address = std::fs::read_to_string(address_file).context("its address")?;
    let mut stream = TcpStream::connect(address.trim()).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await??;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no HTTP answer")?;
    Ok((code, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// The writes that a fresh controller would send now, or the reads before them, one line each.
pub(crate) async fn dry_run(control_plane: &ControlPlane) -> Result<Vec<String>> {
    let text = dry_run_output(control_plane).await?;
    let proposed: Vec<_> =
        text.lines().filter(|line| line.starts_with("would ")).map(str::to_owned).collect();
    // The last line proves that the dry run is complete and that no line was missed. A read is proposed where a write
    // depends on it, and does not count as a write.
    let n_writes = proposed.iter().filter(|line| !line.starts_with("would first ")).count();
    let end = format!("proposed {}", counted(n_writes, "write"));
    if text.lines().last() != Some(end.as_str()) {
        bail!("the dry run did not end with {end:?}:\n{text}");
    }
    Ok(proposed)
}

/// Everything that a dry run prints.
pub(crate) async fn dry_run_output(control_plane: &ControlPlane) -> Result<String> {
    let run = command(&control_plane.controller_kubeconfig)
        .args(["run", "--dry-run", "--listen", "127.0.0.1:0"])
        .args(modes(control_plane))
        .stdin(Stdio::null())
        .output();
    let Ok(output) = tokio::time::timeout(DRY_RUN_TIMEOUT, run).await else {
        bail!("the dry run takes longer than {DRY_RUN_TIMEOUT:?}");
    };
    let output = output?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("the dry run ended with {}:\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(text.into_owned())
}

/// Without an election, unless a test asks for one: the successor of a killed controller would wait until its lease
/// expires.
fn election<'a>(flags: &[&str]) -> Option<&'a str> {
    (!flags.contains(&ELECTED)).then_some("--leader-elect=false")
}

/// The permission to write in the mode of the cluster, where it is not the default.
fn modes(control_plane: &ControlPlane) -> Vec<&'static str> {
    match (control_plane.options.ipam, control_plane.options.annotations) {
        ("crd", _) => Vec::new(),
        (ipam, false) => vec!["--modes", ipam],
        (ipam, true) => vec!["--modes", ipam, "--node-field", "annotations"],
    }
}

/// Fails if a fresh controller would write anything.
pub(crate) async fn assert_no_writes_proposed(control_plane: &ControlPlane) -> Result<()> {
    let writes = dry_run(control_plane).await?;
    if writes.is_empty() { Ok(()) } else { bail!("a fresh controller would write:\n{}", writes.join("\n")) }
}

/// The product's binary: the one that `NODEIPAM_CONTROLLER` names, or the one that cargo built for this test, or the
/// one beside or above this program. An example is one directory below.
fn program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("NODEIPAM_CONTROLLER") {
        return Ok(named.into());
    }
    if let Some(built) = option_env!("CARGO_BIN_EXE_cilium-node-ipam") {
        return Ok(built.into());
    }
    let this = std::env::current_exe()?;
    let near = this.ancestors().skip(1).take(2).map(|dir| dir.join("cilium-node-ipam"));
    near.into_iter()
        .find(|path| path.is_file())
        .context("no cilium-node-ipam beside this program: run `cargo build`")
}

/// The product with this kubeconfig.
pub(crate) fn command(kubeconfig: &Path) -> Command {
    // A missing binary shows as an error of the start, which names it.
    command_of(&program().unwrap_or_else(|_| "cilium-node-ipam".into()), kubeconfig)
}

/// A program of any version with this kubeconfig.
fn command_of(program: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("KUBECONFIG", kubeconfig).kill_on_drop(true);
    command
}
