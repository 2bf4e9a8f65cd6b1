//! `cilium-node-ipam completion`: the completion of a shell, and that of the words of a kubectl plugin.
//!
//! A script knows subcommands, flags and fixed values. The completer of the plugin also asks the cluster for the names
//! of nodes and pools; if that fails, it proposes none.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, Command, Parser as _};
use clap_complete::{Shell, generate};
use kube::Api;
use kube::api::{DynamicObject, ListParams};

use super::access::Access;
use super::answers::around::resource;
use super::program::{CalledAs, NAME};
use super::screen;
use crate::wire;

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
    print(proposals(command, words, names).as_bytes())
}

/// The kinds of objects with names that a cluster knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Node,
    Pool,
}

/// The flags of a command line about its cluster.
#[derive(Debug, clap::Parser)]
#[command(ignore_errors = true)]
struct Chosen {
    #[command(flatten)]
    access: Access,

    /// Everything else.
    _rest: Vec<String>,
}

/// How long a person waits for names.
const PATIENCE: Duration = Duration::from_secs(2);

/// The names of the objects of a kind in the cluster that these words choose.
fn names(kind: Named, words: &[String]) -> Vec<String> {
    let list = async {
        let words = std::iter::once(NAME.to_owned()).chain(words.iter().cloned());
        let access = Chosen::try_parse_from(words).ok()?.access;
        let (clients, _) = access.clients().await.ok()?;
        let resource = match kind {
            Named::Node => resource("", "v1", "Node", "nodes"),
            Named::Pool => resource(wire::GROUP, wire::VERSION, "NodeIPPool", "nodeippools"),
        };
        let api: Api<DynamicObject> = Api::all_with(clients.reads.clone(), &resource);
        let found = api.list_metadata(&ListParams::default()).await.ok()?;
        Some(found.items.into_iter().filter_map(|object| object.metadata.name).collect())
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, list).await }).ok().flatten().unwrap_or_default()
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
fn proposals(root: &Command, words: &[String], names: impl Fn(Named, &[String]) -> Vec<String>) -> String {
    let (begun, before) = words.split_last().map_or(("", words), |(last, before)| (last.as_str(), before));
    let mut command = root;
    for word in before {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let awaits = before.last().and_then(|flag| command.get_arguments().find(|arg| is_flag(arg, flag)));
    let known = |arg: &Arg| -> Vec<String> {
        let fixed = arg.get_possible_values();
        let fixed = fixed.iter().map(|value| value.get_name().to_owned());
        fixed.chain(named(arg).into_iter().flat_map(|kind| names(kind, before))).collect()
    };
    let (mut words, directive): (Vec<String>, &str) =
        if let Some(flag) = awaits.filter(|arg| arg.get_action().takes_values()) {
            let is_path = flag
                .get_value_names()
                .into_iter()
                .flatten()
                .any(|name| name.split('|').any(|kind| kind == "FILE" || kind == "DIR"));
            (known(flag), if is_path { FILES } else { ONLY_THESE })
        } else if begun.starts_with('-') {
            let flags = command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
            (flags.collect(), ONLY_THESE)
        } else {
            let subcommands = command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned());
            (subcommands.chain(command.get_positionals().flat_map(known)).collect(), ONLY_THESE)
        };
    words.retain(|word| word.starts_with(begun));
    words.iter().map(|word| format!("{word}\n")).chain([format!("{directive}\n")]).collect()
}

/// The objects that an argument names.
fn named(arg: &Arg) -> Option<Named> {
    let mut kinds = arg.get_value_names().into_iter().flatten().flat_map(|name| name.split('|'));
    kinds.find_map(|kind| match kind {
        "NODE" => Some(Named::Node),
        "POOL" => Some(Named::Pool),
        _ => None,
    })
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

    fn objects(kind: Named, _: &[String]) -> Vec<String> {
        let name = match kind {
            Named::Node => "node-1",
            Named::Pool => "pool-1",
        };
        vec![name.to_owned()]
    }

    fn check(words: &[&str], expected: &str) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        assert_eq!(
            proposals(&definition(), &words, objects).split_whitespace().collect::<Vec<_>>().join(" "),
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
        check(&["why", "node-"], "node-1 :4");
        check(&["cordon", ""], "pool-1 :4");
        check(&["plan", "--relabel", "n"], "node-1 :4");
        check(&["--context", "x", "routes", "--node", ""], "node-1 :4");
        check(&["unknown", "--x"], ":4");
        assert!(proposals(&definition(), &[], objects).starts_with("run\nstatus\n"));
    }
}
