//! The real kubectl, run from the repository with the administrator's rights.

use std::process::Stdio;

use anyhow::{Result, ensure};
use tokio::process::Command;

use super::control_plane::{ControlPlane, tool};

/// Runs it with these arguments, and returns its output.
pub(crate) async fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(tool("NODEIPAM_KUBECTL", "kubectl"));
    command.args(arguments);
    run(plane, command).await
}

/// Applies a manifest, also over the fields of other owners.
pub(crate) async fn apply(plane: &ControlPlane, manifest: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("manifest.yaml");
    std::fs::write(&file, manifest)?;
    let file = file.to_string_lossy();
    kubectl(plane, &["apply", "--server-side", "--force-conflicts", "-f", &file]).await.map(drop)
}

/// Runs a command as [`kubectl`] is run.
pub(crate) async fn run(plane: &ControlPlane, mut command: Command) -> Result<String> {
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("KUBECONFIG", &plane.admin_kubeconfig)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = plane.alarm.over(async { Ok(command.output().await?) }).await?;
    let (stdout, stderr) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.success(), "{:?}: {}\n{stdout}{stderr}", command.as_std(), output.status);
    Ok(stdout)
}
