//! The alarm: the first failure anywhere in a test, and the bell that wakes waiting tasks.
//!
//! Violations arrive while a test waits for something else. Every wait is under the alarm, so that the reported failure
//! is the cause and not the time-out that follows from it.

use std::future::Future;

use anyhow::{Result, anyhow};
use tokio::sync::watch;

/// The first failure. Clones are one alarm.
#[derive(Clone, Debug)]
pub(crate) struct Alarm(watch::Sender<Option<String>>);

impl Alarm {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Records `what`, unless something was recorded before it.
    pub(crate) fn raise(&self, what: impl Into<String>) {
        let what = what.into();
        eprintln!("harness: {what}");
        self.0.send_if_modified(|first| {
            let quiet = first.is_none();
            if quiet {
                *first = Some(what);
            }
            quiet
        });
    }

    /// Fails if the alarm was raised.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.borrow().as_ref().map_or(Ok(()), |what| Err(anyhow!("{what}")))
    }

    /// Returns when the alarm is raised.
    pub(crate) async fn raised(&self) -> anyhow::Error {
        match self.0.subscribe().wait_for(Option::is_some).await {
            Ok(what) => anyhow!("{}", what.as_deref().unwrap_or_default()),
            // Not reached: self holds the sender, so it is not dropped.
            Err(gone) => anyhow!(gone),
        }
    }

    /// The outcome of `work`, or the alarm if that comes first.
    pub(crate) async fn over<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            what = self.raised() => Err(what),
            outcome = work => outcome,
        }
    }
}

/// Says that something may have changed. The listener must look the change up: rings are merged.
#[derive(Clone, Debug)]
pub(crate) struct Bell(watch::Sender<u64>);

impl Bell {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(crate) fn ring(&self) {
        self.0.send_modify(|rings| *rings += 1);
    }

    /// A listener for every ring from now on.
    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}
