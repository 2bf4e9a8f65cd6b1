//! `cilium-node-ipam crd`: prints the CustomResourceDefinitions, or writes them as files.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use super::screen;
use crate::wire::crds;

/// Print the CustomResourceDefinitions of NodeIPPool and NodeIPBlock.
///
/// Their version is that of this program. At an upgrade, apply them before the controller.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// Write one file per definition into this directory instead of printing them.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

const EXAMPLE: &str = "\
Example:
  Install or upgrade the definitions:
    cilium-node-ipam crd | kubectl apply --server-side -f -";

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { out } = args;
    if let Some(directory) = out {
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("can't create {}", directory.display()))?;
        for definition in crds::all() {
            let path = directory.join(definition.file);
            std::fs::write(&path, definition.yaml())
                .with_context(|| format!("can't write {}", path.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    for definition in crds::all() {
        screen::print_own(format!("---\n{}", definition.yaml()).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}
