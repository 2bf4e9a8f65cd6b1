//! The command line: the arguments of each subcommand, one file per subcommand.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use completion::is_flag;

use program::program;

pub mod access;
pub mod acts;
pub mod answers;
pub mod bundle;
pub mod completion;
pub mod crd;
mod documents;
pub mod explain;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod import;
pub mod man;
mod metrics_port;
pub mod migrate;
mod object;
pub mod program;
pub mod run;
mod screen;
mod selector;
mod site;
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
    Explain(explain::Args),
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
    Migrate(migrate::Args),
    Version(answers::version::Args),
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
    let words = behind_subcommand(&command, std::env::args_os().collect());
    let matches = command.get_matches_from(words);
    Command::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// The words of a command line, with flags in front of the subcommand moved behind it: kubectl takes them in both
/// places. Unknown words stay, and clap reports them.
fn behind_subcommand(root: &clap::Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let flag = |word: &str| {
        let subcommands = root.get_subcommands().flat_map(clap::Command::get_arguments);
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        let short: String = word.chars().take(2).collect();
        let is_named =
            |arg: &&clap::Arg| is_flag(arg, name) || (!word.starts_with("--") && is_flag(arg, &short));
        subcommands.into_iter().find(is_named)
    };
    let mut n_flags = 0;
    while let Some(word) =
        words.get(1 + n_flags).and_then(|word| word.to_str()).filter(|word| word.starts_with('-'))
    {
        let Some(arg) = flag(word) else { return words };
        let has_value = word.contains('=') || (!word.starts_with("--") && word.chars().count() > 2);
        n_flags += if arg.get_action().takes_values() && !has_value { 2 } else { 1 };
    }
    if words.len() > 1 + n_flags {
        words[1..=1 + n_flags].rotate_right(1);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_may_be_in_front_of_the_subcommand() {
        let check = |line: &str, expected: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let moved = behind_subcommand(&Command::command(), words);
            let moved: Vec<&str> = moved.iter().filter_map(|word| word.to_str()).collect();
            assert_eq!(moved.join(" "), expected);
        };
        check("p status --context a", "p status --context a");
        check("p --context a status -w", "p status --context a -w");
        check("p --context=a -nb -w -n c why n1", "p why --context=a -nb -w -n c n1");
        check("p --unknown a status", "p --unknown a status");
        check("p --version", "p --version");
        check("p --context a", "p --context a");
        check("p", "p");
    }
}
