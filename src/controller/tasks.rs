//! The only place that spawns tasks that live as long as the process: every task has a name, and its end is seen.

use std::future::Future;

use tokio::task::JoinSet;
use tracing::Instrument;

/// Tasks that belong together and end together.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<(&'static str, anyhow::Result<()>)>,
}

impl Tasks {
    /// Starts a task.
    pub fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let span = tracing::debug_span!("task", name);
        // In a box: a task is as large as its largest write, and is moved several times before it runs.
        let task = Box::pin(task);
        self.set.spawn(async move { (name, task.await) }.instrument(span));
    }

    /// Waits for the next task to end: its name and its result. Without tasks it waits for ever. Cancel-safe.
    pub async fn next_end(&mut self) -> (&'static str, anyhow::Result<()>) {
        match self.set.join_next().await {
            Some(Ok(end)) => end,
            Some(Err(error)) => ("unknown", Err(error.into())),
            None => std::future::pending().await,
        }
    }

    /// Waits for the end of every task.
    pub async fn finish(&mut self) {
        while self.set.join_next().await.is_some() {}
    }
}

/// The error for a task that returned although the process did not stop it.
pub(super) fn ended(name: &str, end: anyhow::Result<()>) -> anyhow::Error {
    match end {
        Ok(()) => anyhow::anyhow!("the task `{name}` stopped unexpectedly"),
        Err(error) => error.context(format!("the task `{name}` failed")),
    }
}
