//! The binary.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "`cli::screen` escapes the texts of other writers"
)]

use std::process::ExitCode;

use cilium_node_ipam::cli::program::CalledAs;
use cilium_node_ipam::cli::{self, Command};
use clap::CommandFactory as _;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| cli::refuse(&error))
}

fn run() -> anyhow::Result<ExitCode> {
    if CalledAs::of_process() == CalledAs::Completer {
        return cli::completion::complete(&Command::command(), &std::env::args().skip(1).collect::<Vec<_>>());
    }
    match cli::parse() {
        Command::Run(args) => cli::run::run(*args),
        Command::Preflight(args) => Ok(cli::answers::end(cli::answers::preflight::run(args))),
        Command::Status(args) => Ok(cli::answers::end(cli::answers::status::run(args))),
        Command::Check(args) => Ok(cli::answers::end(cli::answers::check::run(args))),
        Command::Why(args) => Ok(cli::answers::end(cli::answers::why::run(args))),
        Command::Who(args) => Ok(cli::answers::end(cli::answers::who::run(args))),
        Command::Routes(args) => Ok(cli::answers::end(cli::answers::routes::run(args))),
        Command::Plan(args) => Ok(cli::answers::end(cli::answers::plan::run(args))),
        Command::Bundle(args) => Ok(cli::answers::end(cli::bundle::run(args))),
        Command::Cordon(args) => Ok(cli::answers::end(cli::acts::state::cordon(args))),
        Command::Uncordon(args) => Ok(cli::answers::end(cli::acts::state::uncordon(args))),
        Command::Drain(args) => Ok(cli::answers::end(cli::acts::state::drain(args))),
        Command::Freeze(args) => Ok(cli::answers::end(cli::acts::freeze::freeze(args))),
        Command::Unfreeze(args) => Ok(cli::answers::end(cli::acts::freeze::unfreeze(args))),
        Command::Version(args) => Ok(cli::answers::end(cli::answers::version::run(args))),
        Command::Map(args) => Ok(cli::answers::end(cli::answers::map::run(args))),
        Command::Migrate(args) => Ok(cli::answers::end(cli::migrate::run(args))),
        Command::Crd(args) => cli::crd::run(args),
        Command::Completion(args) => cli::completion::run(&args, Command::command()),
        Command::Explain(args) => cli::explain::run(&args),
        Command::Man(args) => cli::man::run(args, Command::command()),
        Command::Import(args) => cli::import::run(args),
        Command::Validate(args) => cli::validate::run(args),
    }
}
