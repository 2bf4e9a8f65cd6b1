//! The binary.

use std::process::ExitCode;

use cilium_node_ipam::cli;
use clap::Parser;

/// Gives the nodes of a Cilium cluster their pod addresses, from pools chosen by node labels.
#[derive(Parser)]
#[command(version)]
enum Command {
    Run(cli::run::Args),
    Crd(cli::crd::Args),
    Validate(cli::validate::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    match Command::parse() {
        Command::Run(args) => cli::run::run(args),
        Command::Crd(args) => cli::crd::run(args),
        Command::Validate(args) => cli::validate::run(args),
    }
}
