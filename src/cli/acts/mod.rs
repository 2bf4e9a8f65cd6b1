//! The commands that write: the state of a pool's CIDRs, and the ConfigMap that freezes the controller.
//!
//! They write with the rights of the user, after they have shown the consequences and the user has agreed. They do not
//! know how the controller carries a change out. Every write names the version that was shown, so nothing is
//! overwritten that the user has not seen.

pub mod freeze;
pub mod state;

use std::io::IsTerminal as _;

use anyhow::{Context as _, anyhow, bail};
use kube::api::PatchParams;

use super::answers::Format;
use super::screen;
use crate::controller::client::Clients;

/// The field manager of these writes.
const FIELD_MANAGER: &str = "cilium-node-ipam-cli";

/// Whether the user is asked.
#[derive(Debug, Clone, clap::Args)]
pub struct Consent {
    /// Write without a question. Without a terminal it is required.
    #[arg(short, long)]
    yes: bool,
}

/// The answer of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
}

impl Consent {
    /// Refuses at once if the user can't be asked and has not agreed.
    fn check(&self) -> anyhow::Result<()> {
        if !self.yes && !std::io::stdin().is_terminal() {
            bail!(
                "nothing was written: standard input is no terminal, so the command can't ask; repeat it with --yes"
            );
        }
        Ok(())
    }

    /// Whether the answer comes before the question. For programs it is a single object with the result.
    fn reads_first(&self, output: Format) -> anyhow::Result<bool> {
        let is_for_people = matches!(output, Format::Table | Format::Wide);
        if !is_for_people && !self.yes {
            bail!(
                "nothing was written: -o json and -o yaml show the consequences with the result; repeat it with --yes"
            );
        }
        Ok(is_for_people)
    }

    /// Asks on the terminal.
    fn ask(&self, question: &str) -> anyhow::Result<Answer> {
        if self.yes {
            return Ok(Answer::Yes);
        }
        screen::ask(&format!("{question} [y/N]"))?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).context("can't read the answer")?;
        if matches!(line.trim(), "y" | "Y" | "yes") {
            return Ok(Answer::Yes);
        }
        screen::note("Nothing was written.");
        Ok(Answer::No)
    }
}

pub(in crate::cli) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// The outcome of a write to `object`.
pub(in crate::cli) async fn within<T>(
    clients: &Clients,
    object: &str,
    write: impl Future<Output = Result<T, kube::Error>>,
) -> anyhow::Result<T> {
    let limit = clients.timeout;
    let answer = tokio::time::timeout(limit, write).await;
    let ended = answer.map_err(|_| {
        let limit = humantime::format_duration(limit);
        anyhow!("no answer about {object} within {limit}: run `status` to see whether it was written")
    })?;
    ended.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 409 => anyhow!(
            "nothing was written: {object} has changed since it was read; run the command again, and read the new \
             consequences"
        ),
        kube::Error::Api(status) => anyhow!("can't write {object}: {}", status.message),
        other => anyhow::Error::from(other).context(format!("can't write {object}")),
    })
}
