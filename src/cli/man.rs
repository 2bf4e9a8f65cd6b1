//! `cilium-node-ipam man`: the manual pages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Command;
use clap_mangen::{Man, generate_to};

use super::screen;

/// Print the manual page of the program, or write the pages of all subcommands.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cilium-node-ipam man --out ~/.local/share/man/man1")]
pub struct Args {
    /// Write one page per subcommand into this directory instead of printing the page of the program.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the subcommand of this command.
pub fn run(args: Args, command: Command) -> anyhow::Result<ExitCode> {
    if let Some(directory) = args.out {
        write_all(command, &directory)?;
    } else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page).context("can't make the page")?;
        screen::print_own(&page)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_all(command: Command, directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("can't create {}", directory.display()))?;
    generate_to(command, directory).with_context(|| format!("can't write to {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_program_and_each_subcommand_have_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("man1");
        write_all(crate::cli::Command::command(), &directory).unwrap();
        let found: BTreeSet<String> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let page = |name: &str| format!("cilium-node-ipam{name}.1");
        for command in crate::cli::Command::command().get_subcommands() {
            let expected = page(&format!("-{}", command.get_name()));
            assert!(found.contains(&expected), "{expected} of {found:?}");
        }
        assert!(found.contains(&page("")), "{found:?}");
        let status = std::fs::read_to_string(directory.join(page("-status"))).unwrap();
        assert!(status.contains("no\\-headers"), "{status}");
    }
}
