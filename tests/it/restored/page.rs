//! The commands of a page, such as `docs/how-to/restore-etcd.md`, in their order.
//!
//! A test carries out the page. It runs the commands that can run here, and imitates the commands for machines. It
//! fails if a command is changed or added on the page.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::control_plane::{ControlPlane, tool};
use crate::support::playground::environment;

const RESTORE: &str = include_str!("../../../docs/how-to/restore-etcd.md");

/// The blocks of commands that are still to do, in the order of the page.
pub(crate) struct Page(VecDeque<String>);

impl Page {
    /// A whole page.
    pub(crate) fn of(text: &str) -> Self {
        Self(blocks(text))
    }

    /// The page about a restore of etcd.
    pub(super) fn of_the_restore() -> Self {
        Self::of(RESTORE)
    }

    /// The next block of commands.
    pub(crate) fn next(&mut self) -> Result<String> {
        self.0.pop_front().context("the page has no more commands")
    }

    /// Passes over a block for machines. The caller imitates it.
    pub(super) fn stand_in_for(&mut self, expected: &[&str]) -> Result<()> {
        let next = self.next()?;
        ensure!(next.lines().eq(expected.iter().copied()), "the page has other commands:\n{next}");
        Ok(())
    }

    pub(super) fn assert_done(self) -> Result<()> {
        ensure!(self.0.is_empty(), "the page has more commands: {:?}", self.0);
        Ok(())
    }
}

/// Every block `sh` of a text, without the indentation of its list.
fn blocks(text: &str) -> VecDeque<String> {
    let mut blocks = VecDeque::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start() != "```sh" {
            continue;
        }
        let indentation = line.len() - line.trim_start().len();
        let content = lines.by_ref().take_while(|line| line.trim_start() != "```");
        let content: Vec<_> = content.map(|line| line.get(indentation..).unwrap_or_default()).collect();
        blocks.push_back(content.join("\n"));
    }
    blocks
}

/// The shell of an administrator who has the tools of Kubernetes, etcd and the product.
pub(crate) struct Shell<'a> {
    plane: &'a ControlPlane,
    folder: TempDir,
    environment: String,
}

impl<'a> Shell<'a> {
    pub(crate) fn new(plane: &'a ControlPlane) -> Result<Self> {
        let program = Path::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
        let programs = program.parent().context("the program is in a folder")?;
        let folder = tempfile::tempdir()?;
        let mut environment = environment(plane, programs, folder.path());
        for (variable, name) in [("NODEIPAM_ETCDCTL", "etcdctl"), ("NODEIPAM_ETCDUTL", "etcdutl")] {
            let tool = tool(variable, name);
            let folder = tool.parent().unwrap_or(Path::new("/"));
            environment = format!("{environment}export PATH='{}':\"$PATH\"\n", folder.display());
        }
        let etcd = plane.ready["etcd"].as_str().context("the URL of etcd")?;
        environment = format!("{environment}export ETCDCTL_ENDPOINTS='{etcd}'\n");
        Ok(Self { plane, folder, environment })
    }

    /// A file in the folder of the shell.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs commands, and returns their output.
    pub(crate) async fn run(&self, commands: &str) -> Result<String> {
        let (status, output) = self.answer(commands).await?;
        ensure!(status.success(), "{commands}: {status}\n{output}");
        Ok(output)
    }

    /// Runs commands that may report a problem.
    pub(super) async fn answer(&self, commands: &str) -> Result<(ExitStatus, String)> {
        let mut bash = Command::new("bash");
        bash.arg("-c").arg(format!("set -euo pipefail\nexec 2>&1\n{}{commands}", self.environment));
        bash.current_dir(self.folder.path()).stdin(Stdio::null()).kill_on_drop(true);
        let output = self.plane.alarm.over(async { Ok(bash.output().await?) }).await?;
        Ok((output.status, String::from_utf8(output.stdout)?))
    }
}

#[test]
fn blocks_lose_the_indentation_of_their_list() {
    let text =
        "1. Do:\n\n   ```sh\n   one '{\n     two}'\n   ```\n\n```yaml\nno: sh\n```\n```sh\nthree\n```\n";
    assert_eq!(blocks(text), ["one '{\n  two}'", "three"]);
}
