//! A child process that speaks JSON lines: a command on its standard input, one answer to it and events on its output.
//!
//! The child never outlives its `Peer`: its standard input closes and it is killed, also when a test panics. If the
//! whole test process dies, the closed standard input is what ends it. What commands and events mean is not known here.

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

/// How long a child may take to end by itself once its standard input is closed. Those of the harness take milliseconds.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// What a child says unasked.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A line that is not an answer.
    Event(Value),
    /// The child's output ended, so it is dead or dying.
    Ended,
}

/// The running child. Commands may be given from many tasks at once; whether they are carried out at once is the child's
/// business.
#[derive(Debug)]
pub(crate) struct Peer {
    name: String,
    child: Child,
    stdin: tokio::sync::Mutex<Option<ChildStdin>>,
    asked: Arc<Mutex<Asked>>,
    next_id: AtomicU64,
    _reader: JoinSet<()>,
}

/// Commands whose answers are awaited; `None` once no answer can come any more.
type Asked = Option<HashMap<u64, oneshot::Sender<Value>>>;

impl Peer {
    /// Starts `command`, which must be without pipes yet. Its standard error goes to the file `log`.
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
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("{name} has no pipes");
        };
        let asked = Arc::new(Mutex::new(Some(HashMap::new())));
        let mut reader = JoinSet::new();
        reader.spawn(read(stdout, Arc::clone(&asked), heard));
        Ok(Self {
            name,
            child,
            stdin: tokio::sync::Mutex::new(Some(stdin)),
            asked,
            next_id: AtomicU64::new(1),
            _reader: reader,
        })
    }

    /// The process id, as long as the child was not seen to end.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Gives a command, an object without `id`, and returns the answer; an answer that says no is an error.
    pub(crate) async fn ask(&self, command: Value, deadline: Duration) -> Result<Value> {
        let answer = self.ask_leniently(command.clone(), deadline).await?;
        if answer["ok"] != Value::Bool(true) {
            bail!("{}: {command}: {}", self.name, answer["error"].as_str().unwrap_or("no reason given"));
        }
        Ok(answer)
    }

    /// As [`Peer::ask`], but an answer that says no is an answer too.
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
                let mut stdin = self.stdin.lock().await;
                let stdin = stdin.as_mut().context("standard input is closed")?;
                stdin.write_all(line.as_bytes()).await?;
                stdin.flush().await?;
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

    /// Ends the child without giving it a chance, and returns when it is gone.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("killing {}", self.name))
    }
}

impl Drop for Peer {
    /// Closes standard input and waits, so that nothing of the child is left when its directory is removed.
    fn drop(&mut self) {
        *self.stdin.get_mut() = None;
        let limit = Instant::now() + END_TIMEOUT;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > limit {
                eprintln!("harness: {} had to be killed", self.name);
                let _ = self.child.start_kill();
                return;
            }
            // There is no blocking wait with a time-out, and Drop can't await.
            std::thread::sleep(Duration::from_millis(2));
        }
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
            // Who asked may have given up.
            let _ = waiting.send(line);
        }
    }
    *asked.lock().unwrap_or_else(PoisonError::into_inner) = None;
    heard(Heard::Ended);
}
