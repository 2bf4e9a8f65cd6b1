//! `cilium-node-ipam completion`: the completion of a shell, and that of the words of a kubectl plugin.
//!
//! Knows no cluster: it completes subcommands, flags and fixed values, and no names of objects.

use std::process::ExitCode;

use clap::{Arg, Command};
use clap_complete::{Shell, generate};

use super::program::CalledAs;
use super::screen;

/// Print the completion script of a shell.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  source <(cilium-node-ipam completion bash)\n  cilium-node-ipam completion fish > \
                        ~/.config/fish/completions/cilium-node-ipam.fish"
)]
pub struct Args {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

/// Runs the subcommand of this command.
pub fn run(args: &Args, command: Command) -> anyhow::Result<ExitCode> {
    print(script(command, args.shell, CalledAs::of_process()).as_bytes())
}

/// Runs as the completer that kubectl starts for `kubectl nodeipam <TAB>`, with these words behind `nodeipam`.
pub fn complete(command: &Command, words: &[String]) -> anyhow::Result<ExitCode> {
    print(proposals(command, words).as_bytes())
}

fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    screen::print_own(text)?;
    Ok(ExitCode::SUCCESS)
}

/// The script, which completes the file of this name.
fn script(mut command: Command, shell: Shell, called: CalledAs) -> String {
    let mut script = Vec::new();
    generate(shell, &mut command, called.file(), &mut script);
    let script = String::from_utf8_lossy(&script);
    // clap_complete 4.6.11 writes a dash in the name of the program in two ways into the script for bash. The script
    // then completes nothing behind a subcommand.
    script.replace(&called.file().replace('-', "__subcmd__"), &called.file().replace('-', "__"))
}

/// kubectl should complete only the printed words: `ShellCompDirectiveNoFileComp` of cobra.
const ONLY_THESE: &str = ":4";
/// kubectl should complete names of files: `ShellCompDirectiveDefault` of cobra.
const FILES: &str = ":0";

/// The completions of the last word: one word per line, and then the directive of cobra.
fn proposals(root: &Command, words: &[String]) -> String {
    let (begun, before) = words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let mut command = root;
    for word in before {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let awaits = before.last().and_then(|flag| command.get_arguments().find(|arg| is_flag(arg, flag)));
    let fixed = |arg: &Arg| -> Vec<String> {
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
    };
    let (mut words, directive): (Vec<String>, &str) =
        if let Some(flag) = awaits.filter(|arg| arg.get_action().takes_values()) {
            let is_path = flag
                .get_value_names()
                .into_iter()
                .flatten()
                .any(|name| name.split('|').any(|kind| kind == "FILE" || kind == "DIR"));
            (fixed(flag), if is_path { FILES } else { ONLY_THESE })
        } else if begun.starts_with('-') {
            let flags = command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
            (flags.collect(), ONLY_THESE)
        } else {
            let subcommands = command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned());
            (subcommands.chain(command.get_positionals().flat_map(fixed)).collect(), ONLY_THESE)
        };
    words.retain(|word| word.starts_with(begun));
    words.iter().map(|word| format!("{word}\n")).chain([format!("{directive}\n")]).collect()
}

/// Whether a word is this flag, in its long or short form.
pub(super) fn is_flag(arg: &Arg, word: &str) -> bool {
    let long = word.strip_prefix("--").is_some_and(|long| arg.get_long() == Some(long));
    let short = word.strip_prefix('-').is_some_and(|short| {
        let mut letters = short.chars();
        arg.get_short().is_some_and(|letter| letters.next() == Some(letter)) && letters.next().is_none()
    });
    long || short
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, ValueEnum as _};

    use super::*;

    fn definition() -> Command {
        crate::cli::Command::command()
    }

    #[test]
    fn every_shell_gets_a_script_for_the_name_that_was_called() {
        for shell in Shell::value_variants() {
            for called in [CalledAs::Program, CalledAs::Plugin] {
                let script = script(definition(), *shell, called);
                assert!(script.contains(called.file()), "{shell} {called:?}");
                assert!(script.contains("no-headers") && script.contains("status"), "{shell} {called:?}");
            }
        }
    }

    #[test]
    fn bash_completes_the_flags_of_a_subcommand() {
        for called in [CalledAs::Program, CalledAs::Plugin] {
            let name = called.file();
            let test = format!(
                "{}\nCOMP_WORDS=({name} status --no); COMP_CWORD=2\n_{} {name} --no status\necho \"${{COMPREPLY[@]}}\"",
                script(definition(), Shell::Bash, called),
                name.replace('-', "__"),
            );
            let output = std::process::Command::new("bash").args(["-c", &test]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "--no-headers\n", "{output:?}");
        }
    }

    fn check(words: &[&str], expected: &str) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        assert_eq!(
            proposals(&definition(), &words).split_whitespace().collect::<Vec<_>>().join(" "),
            expected,
            "{words:?}"
        );
    }

    #[test]
    fn words_of_the_plugin_are_completed_from_its_subcommands_flags_and_values() {
        check(&["st"], "status :4");
        check(&["status", "--no"], "--no-headers :4");
        check(&["status", "-o", ""], "table wide json yaml :4");
        check(&["status", "--output", "j"], "json :4");
        check(&["status", "--kubeconfig", ""], ":0");
        check(&["completion", "b"], "bash :4");
        check(&["why", "node-"], ":4");
        check(&["unknown", "--x"], ":4");
        assert!(proposals(&definition(), &[]).starts_with("run\nstatus\n"));
    }
}
