//! Signals: to other processes, and those that ask this one to exit.

use anyhow::{Result, ensure};
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Sends a signal (`STOP`, `CONT`, `TERM`) to a process.
pub(crate) async fn send(pid: impl std::fmt::Display, signal: &str) -> Result<()> {
    // The shell's built-in: a signal from here would need unsafe code or one more crate.
    let status = Command::new("sh").arg("-c").arg(format!("kill -{signal} {pid}")).status().await?;
    ensure!(status.success(), "kill -{signal} {pid}: {status}");
    Ok(())
}

/// The signals by which a person or a system asks a program to exit.
pub(crate) struct Interrupts([Signal; 3]);

impl Interrupts {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
