//! The command line: the arguments of each subcommand, one file per subcommand.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use program::program;

pub mod acts;
pub mod answers;
pub mod bundle;
pub mod completion;
pub mod crd;
mod documents;
pub mod import;
pub mod man;
mod metrics_port;
pub mod program;
pub mod run;
mod screen;
pub mod validate;

/// Gives the nodes of a Cilium cluster blocks of pod addresses, from pools that select nodes by label.
#[derive(Debug, clap::Parser)]
#[command(version, after_help = EXAMPLE)]
#[allow(
    missing_docs,
    reason = "a comment on a variant would replace what its arguments say of the subcommand"
)]
pub enum Command {
    Run(Box<run::Args>),
    Status(answers::status::Args),
    Preflight(answers::preflight::Args),
    Check(answers::check::Args),
    Why(answers::why::Args),
    Who(answers::who::Args),
    Routes(answers::routes::Args),
    Plan(answers::plan::Args),
    Bundle(bundle::Args),
    Cordon(acts::state::Cordon),
    Uncordon(acts::state::Uncordon),
    Drain(acts::state::Drain),
    Freeze(acts::freeze::Freeze),
    Unfreeze(acts::freeze::Unfreeze),
    Map(answers::map::Args),
    Validate(validate::Args),
    Import(import::Args),
    Crd(crd::Args),
    Completion(completion::Args),
    Man(man::Args),
}

const EXAMPLE: &str = "\
Example:
  Check a pool, then show the difference that it would make:
    cilium-node-ipam validate -f pool.yaml
    cilium-node-ipam plan -f pool.yaml";

/// Prints the error of a command on standard error, in one line, and returns its exit code.
#[must_use]
pub fn refuse(error: &anyhow::Error) -> ExitCode {
    screen::note(format_args!("{}: {error:#}", program()));
    ExitCode::FAILURE
}

/// Parses the command line. If it is wrong, the process prints the error and exits.
#[must_use]
pub fn parse() -> Command {
    let command = Command::command().name(program()).bin_name(program());
    let matches = command.get_matches();
    Command::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}
