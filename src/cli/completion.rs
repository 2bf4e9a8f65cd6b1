//! `cilium-node-ipam completion`: the completion of a shell, and that of the words of a kubectl plugin.
//!
//! Knows no cluster: it completes subcommands, flags and fixed values, and no names of objects.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, CommandFactory as _};
use clap_complete::{Shell, generate};

use super::Command;
use super::program::CalledAs;

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

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    print(&script(args.shell, CalledAs::of_process()))
}

/// Runs as what kubectl calls for `kubectl nodeipam <TAB>`, with these words behind `nodeipam`.
pub fn complete(words: &[String]) -> anyhow::Result<ExitCode> {
    print(proposals(words).as_bytes())
}

fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    std::io::stdout().lock().write_all(text).context("can't write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// The script, which completes the file of this name.
fn script(shell: Shell, called: CalledAs) -> Vec<u8> {
    let mut script = Vec::new();
    generate(shell, &mut Command::command(), called.file(), &mut script);
    script
}

/// kubectl should complete nothing but what is printed: `ShellCompDirectiveNoFileComp` of cobra.
const ONLY_THESE: &str = ":4";
/// kubectl should complete names of files: `ShellCompDirectiveDefault` of cobra.
const FILES: &str = ":0";

/// What the last of the words may become: one word per line, and then the directive of cobra.
fn proposals(words: &[String]) -> String {
    let root = Command::command();
    let (begun, before) = words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let mut command = &root;
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
fn is_flag(arg: &Arg, word: &str) -> bool {
    let long = word.strip_prefix("--").is_some_and(|long| arg.get_long() == Some(long));
    let short = word.strip_prefix('-').is_some_and(|short| {
        let mut letters = short.chars();
        arg.get_short().is_some_and(|letter| letters.next() == Some(letter)) && letters.next().is_none()
    });
    long || short
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_gets_a_script_for_the_name_that_was_called() {
        for shell in Shell::value_variants() {
            for called in [CalledAs::Program, CalledAs::Plugin] {
                let script = String::from_utf8(script(*shell, called)).unwrap();
                assert!(script.contains(called.file()), "{shell} {called:?}");
                assert!(script.contains("no-headers") && script.contains("status"), "{shell} {called:?}");
            }
        }
    }

    fn check(words: &[&str], expected: &str) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        assert_eq!(proposals(&words).split_whitespace().collect::<Vec<_>>().join(" "), expected, "{words:?}");
    }

    #[test]
    fn words_of_the_plugin_are_completed_from_its_subcommands_flags_and_values() {
        check(&["st"], "status :4");
        check(&["status", "--no"], "--no-headers :4");
        check(&["status", "-o", ""], "table json yaml :4");
        check(&["status", "--output", "j"], "json :4");
        check(&["status", "--kubeconfig", ""], ":0");
        check(&["completion", "b"], "bash :4");
        check(&["why", "node-"], ":4");
        check(&["unknown", "--x"], ":4");
        assert!(proposals(&[]).starts_with("run\nstatus\n"));
    }
}
