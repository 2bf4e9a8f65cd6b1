//! Signals to processes.

use anyhow::{Result, ensure};
use tokio::process::Command;

/// Sends a signal (`STOP`, `CONT`, `TERM`) to a process.
pub(crate) async fn send(pid: impl std::fmt::Display, signal: &str) -> Result<()> {
    // The shell's built-in: a signal from here would need unsafe code or one more crate.
    let status = Command::new("sh").arg("-c").arg(format!("kill -{signal} {pid}")).status().await?;
    ensure!(status.success(), "kill -{signal} {pid}: {status}");
    Ok(())
}
