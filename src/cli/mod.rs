//! The command line: the arguments of each subcommand, one file per subcommand.

pub mod answers;
pub mod crd;
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
