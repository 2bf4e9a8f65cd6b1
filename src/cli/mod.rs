//! The command line: the arguments of each subcommand, one file per subcommand.

use clap::{CommandFactory as _, FromArgMatches as _};

use program::program;

pub mod answers;
pub mod crd;
pub mod program;
pub mod run;
pub mod validate;

/// Gives the nodes of a Cilium cluster their pod addresses, from pools chosen by node labels.
#[derive(Debug, clap::Parser)]
#[command(version)]
#[allow(
    missing_docs,
    reason = "a comment on a variant would replace what its arguments say of the subcommand"
)]
pub enum Command {
    Run(Box<run::Args>),
    Status(answers::status::Args),
    Why(answers::why::Args),
    Who(answers::who::Args),
    Validate(validate::Args),
    Crd(crd::Args),
}

/// Parses the command line, or ends the process with what is wrong with it.
#[must_use]
pub fn parse() -> Command {
    let command = Command::command().name(program()).bin_name(program());
    let matches = command.get_matches();
    Command::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}
