//! A child process that speaks JSON lines: commands on its standard input, one answer to each and events on its output.
//!
//! The child never outlives its `Peer`: its standard input closes and it is killed, also when a test panics. If the
//! whole test process dies, the child exits because its standard input closes. This file does not know the meaning of
//! commands and events.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// How long a child may take to exit by itself after its standard input has closed. Those of the harness take
/// milliseconds.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A message of a child that is no answer.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A line that is not an answer.
    Event(Value),
    /// The child's output closed, and its `Peer` did not cause it.
    Ended,
}

/// The running child. Many tasks may give commands at once; whether they are carried out at once is the child's
/// business.
#[derive(Debug)]
pub(crate) struct Peer {
    speaker: Arc<Speaker>,
    child: Child,
    _reader: JoinSet<()>,
}

/// The half of a [`Peer`] that can be shared; it does not keep the child alive.
#[derive(Debug)]
pub(crate) struct Speaker {
    name: String,
    stdin: tokio::sync::Mutex<Option<ChildStdin>>,
    asked: Arc<Mutex<Asked>>,
    next_id: AtomicU64,
}

/// Commands with awaited answers. `None` once no answer can come any more.
type Asked = Option<HashMap<u64, oneshot::Sender<Value>>>;

impl Peer {
    /// Starts `command`, which must be without pipes yet. Its standard error is written to the file `log`.
    pub(crate) fn start(
        name: impl Into<String>,
        mut command: Command,
        log: &Path,
        heard: impl FnMut(Heard) + Send + 'static,
    ) -> Result<Self> {
        let name = name.into();
        let log =
            File::options().create(true).append(true).open(log).with_context(|| log.display().to_string())?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // A terminal sends Ctrl-C to the whole group of its program. The children exit when their standard input
            // closes, in the order that this process chooses.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("{name} has no pipes");
        };
        let asked = Arc::new(Mutex::new(Some(HashMap::new())));
        let mut reader = JoinSet::new();
        reader.spawn(read(stdout, Arc::clone(&asked), heard));
        let stdin = tokio::sync::Mutex::new(Some(stdin));
        let speaker = Arc::new(Speaker { name, stdin, asked, next_id: AtomicU64::new(1) });
        Ok(Self { speaker, child, _reader: reader })
    }

    /// The process id, unless the child was seen to exit.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The half that gives commands.
    pub(crate) fn speaker(&self) -> &Arc<Speaker> {
        &self.speaker
    }

    /// As [`Speaker::ask`].
    pub(crate) async fn ask(&self, command: Value, deadline: Duration) -> Result<Value> {
        self.speaker.ask(command, deadline).await
    }

    /// Kills the child, and returns when it has exited.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.speaker.expect_no_answers();
        self.child.kill().await.with_context(|| format!("killing {}", self.speaker.name))
    }
}

impl Peer {
    /// Whether the child exits within this time.
    fn ends_within(&mut self, time: Duration) -> bool {
        let limit = Instant::now() + time;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > limit {
                return false;
            }
            // A blocking wait has no time-out, and Drop can't await.
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

impl Drop for Peer {
    /// Closes standard input and waits, so that the child is gone when its directory is removed.
    fn drop(&mut self) {
        self.speaker.expect_no_answers();
        match self.speaker.stdin.try_lock() {
            Ok(mut stdin) => *stdin = None,
            // A command is being written, and the child does not read it.
            Err(_) => drop(self.child.start_kill()),
        }
        if !self.ends_within(END_TIMEOUT) {
            eprintln!("harness: {} had to be killed", self.speaker.name);
            let _ = self.child.start_kill();
            self.ends_within(END_TIMEOUT);
        }
    }
}

impl Speaker {
    fn expect_no_answers(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Sends a command, an object without `id`, and returns the answer. A refusal is an error.
    pub(crate) async fn ask(&self, command: Value, deadline: Duration) -> Result<Value> {
        let answer = self.ask_leniently(command.clone(), deadline).await?;
        if answer["ok"] != Value::Bool(true) {
            bail!("{}: {command}: {}", self.name, answer["error"].as_str().unwrap_or("no reason given"));
        }
        Ok(answer)
    }

    /// As [`Peer::ask`], but a refusal is an answer too.
    pub(crate) async fn ask_leniently(&self, mut command: Value, deadline: Duration) -> Result<Value> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        command["id"] = id.into();
        let (answered, answer) = oneshot::channel();
        match &mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(asked) => asked.insert(id, answered),
            None => bail!("{} has ended", self.name),
        };
        let line = format!("{command}\n");
        let whole = async {
            {
                let mut kept = self.stdin.lock().await;
                // It is put back after the complete line. If the task is cancelled before, the child exits too.
                let mut stdin = kept.take().context("standard input is closed")?;
                stdin.write_all(line.as_bytes()).await?;
                stdin.flush().await?;
                *kept = Some(stdin);
            }
            answer.await.context("ended before it answered")
        };
        let answer = tokio::time::timeout(deadline, whole)
            .await
            .unwrap_or_else(|_| bail!("no answer in {deadline:?}"));
        if let (Err(_), Some(asked)) =
            (&answer, &mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
        {
            asked.remove(&id);
        }
        answer.with_context(|| format!("{}: {}", self.name, line.trim_end()))
    }
}

async fn read(stdout: ChildStdout, asked: Arc<Mutex<Asked>>, mut heard: impl FnMut(Heard)) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(line) = serde_json::from_str::<Value>(&line) else {
            eprintln!("harness: not a line of the protocol: {line}");
            continue;
        };
        let Some(id) = line["id"].as_u64() else {
            heard(Heard::Event(line));
            continue;
        };
        let waiting =
            asked.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(|asked| asked.remove(&id));
        if let Some(waiting) = waiting {
            // The task that asked may have given up.
            let _ = waiting.send(line);
        }
    }
    // A caller that kills the child removes this first.
    if asked.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
        heard(Heard::Ended);
    }
}
