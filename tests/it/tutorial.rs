//! `docs/tutorial.md` as its reader works through it: each command runs on the playground and prints the output that
//! the page shows.
//!
//! A block `console` has commands with their output. A block `yaml` has the content of the file that the text before it
//! names last. A block `sh` has the commands that lead into the playground. [`VARYING`] lists the values that differ
//! between readers; runs of white space count as one. A command that only reads is repeated until its output is the shown
//! one, because controller and agents need a moment. The tutorial says so.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::control_plane::Options;
use crate::support::machines::Machines;
use crate::support::playground::{environment, start_controller};
use crate::support::rig::{Rig, under_oracle};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tutorial.md");

/// The way of a reader into the playground. The test is there already.
const SETUP: [&str; 2] = ["make playground", ". build/playground/environment"];

/// The columns of the terminal that the page shows.
const COLUMNS: usize = 80;

/// The minimum number of commands of the tutorial. Fewer would mean that the test does not read it properly.
const FEWEST: usize = 15;

/// The first words of commands that may be repeated.
const READING: [&str; 6] = [
    "kubectl get ",
    "cilium-node-ipam status",
    "cilium-node-ipam why",
    "cilium-node-ipam who",
    "cilium-node-ipam plan",
    "cilium-node-ipam check",
];

/// For each output. A node gets a block in a second, and loses one in ten.
const SOON: Duration = Duration::from_secs(60);

/// As [`SOON`], with `UPDATE_DOCS=1`, which writes the last output into the page.
const SETTLED: Duration = Duration::from_secs(15);

/// The pause before a reading command is repeated. It is a process, so no event announces another output.
const PAUSE: Duration = Duration::from_millis(100);

/// Values that differ: a pattern, and a word in place of every match.
const VARYING: [(&str, &str); 8] = [
    // Ages of objects: 5s, 3m20s, (12s).
    (r"(?m)(^|[\s(])(\d+[dhms])+([\s)]|$)", "${1}AGE${3}"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    // Agents draw the addresses of pods.
    (r"\b10\.64\.(\d+)\.\d+(\s|$)", "10.64.${1}.POD${2}"),
    // So the number of pods with addresses of one block varies too.
    (r"\b\d+\s+(of\s+\d+\s+addresses|addresses\s+of\s+it)", "SOME ${1}"),
    (r";\s+pods?\s+(default/web-\d+[,\s]*)+(and \d+ more)?", "; PODS "),
    (r"(10\.64\.1\.0-28 +worker-1 +rack-1 +Draining +)\d+", "${1}SOME"),
    // `drain --wait` reports each cause that it sees between two looks.
    (r"(?m)^(1 block of \S+ on nodes\n( .*\n)*)+", "PROGRESS\n"),
    // The leader is named after its machine.
    (r"(?m)^controller +\S+,\s+\S+\s+leads", "controller VERSION, LEADER leads"),
];

/// A part of the tutorial.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    /// A file that the reader writes: name and content.
    File(&'a str, &'a str),
    /// A command, and the output that is shown.
    Command(&'a str, &'a str),
    Setup(&'a str),
}

#[tokio::test(flavor = "multi_thread")]
async fn tutorial_shows_what_each_command_prints() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let controller = start_controller(&rig.control_plane).await?;
        let machines = Machines::start(rig);
        work_through(rig).await?;
        Ok((controller, machines))
    })
    .await
}

async fn work_through(rig: &Rig) -> Result<()> {
    let tutorial = std::fs::read_to_string(PATH)?;
    let parts = parts(&tutorial)?;
    let setup: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Setup(text) => Some(text.trim_end()),
            Part::File(..) | Part::Command(..) => None,
        })
        .collect();
    ensure!(setup == SETUP, "other commands lead into the playground: {setup:?}");
    let n_commands = parts.iter().filter(|part| matches!(part, Part::Command(..))).count();
    ensure!(n_commands >= FEWEST, "only {n_commands} commands");
    let rewrites = std::env::var_os("UPDATE_DOCS").is_some();
    let shell = Shell::new(rig, if rewrites { SETTLED } else { SOON })?;
    let (mut updated, mut rest) = (String::new(), tutorial.as_str());
    for part in &parts {
        match part {
            Part::Setup(_) => {}
            Part::File(name, content) => std::fs::write(shell.folder.path().join(name), content)?,
            Part::Command(command, shown) => {
                let output = shell.run_until(command, shown).await?;
                let is_narrow = output.lines().all(|line| line.chars().count() <= COLUMNS);
                ensure!(is_narrow, "`{command}` prints lines of more than {COLUMNS} columns:\n{output}");
                let is_shown = plain(&output) == plain(shown);
                ensure!(
                    is_shown || rewrites,
                    "docs/tutorial.md shows another output of `{command}`:\n{output}"
                );
                let (before, after) =
                    rest.split_once(&format!("$ {command}\n{shown}")).context("read before")?;
                let output = if is_shown { shown } else { output.trim_end() };
                let end = if shown.is_empty() && !output.is_empty() { "\n" } else { "" };
                updated = format!("{updated}{before}$ {command}\n{output}{end}");
                rest = after;
            }
        }
    }
    if rewrites {
        std::fs::write(PATH, updated + rest)?;
    }
    Ok(())
}

/// The reader's shell.
struct Shell<'a> {
    rig: &'a Rig,
    folder: TempDir,
    environment: String,
    limit: Duration,
}

impl<'a> Shell<'a> {
    fn new(rig: &'a Rig, limit: Duration) -> Result<Self> {
        let program = Path::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
        let programs = program.parent().context("the program is in a folder")?;
        let folder = tempfile::tempdir()?;
        let environment = environment(&rig.control_plane, programs, folder.path());
        Ok(Self { rig, folder, environment, limit })
    }

    /// Runs a command, again if it only reads and its output is not yet the one shown.
    async fn run_until(&self, command: &str, shown: &str) -> Result<String> {
        let may_repeat = READING.iter().any(|start| command.starts_with(start));
        let limit = tokio::time::Instant::now() + self.limit;
        loop {
            let output = self.run(command).await?;
            if !may_repeat || plain(&output) == plain(shown) || tokio::time::Instant::now() > limit {
                return Ok(output);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn run(&self, command: &str) -> Result<String> {
        let mut bash = Command::new("bash");
        // A terminal shows both outputs.
        bash.arg("-c").arg(format!("exec 2>&1\nexport COLUMNS={COLUMNS}\n{}{command}", self.environment));
        bash.current_dir(self.folder.path()).stdin(Stdio::null()).kill_on_drop(true);
        let output = self.rig.cluster.alarm.over(async { Ok(bash.output().await?) }).await?;
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// The output without the values that differ between readers.
fn plain(output: &str) -> String {
    let varying = VARYING.iter().map(|(pattern, word)| (Regex::new(pattern).expect("it is tested"), word));
    let text = varying.fold(output.to_owned(), |text, (pattern, word)| {
        // Twice, because two matches may share a space.
        let once = pattern.replace_all(&text, *word);
        pattern.replace_all(&once, *word).into_owned()
    });
    // A value of another length may move the words behind it to the next line.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn parts(tutorial: &str) -> Result<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    let mut pieces = tutorial.split("```");
    let mut before = pieces.next().unwrap_or_default();
    while let (Some(block), Some(after)) = (pieces.next(), pieces.next()) {
        let (language, content) = block.split_once('\n').context("a block without a line")?;
        match language {
            "yaml" => parts.push(Part::File(last_file(before)?, content)),
            "sh" => parts.push(Part::Setup(content)),
            "console" => {
                let content =
                    content.trim_end().strip_prefix("$ ").context("a block begins with a command")?;
                parts.extend(content.split("\n$ ").map(|piece| {
                    let (command, output) = piece.split_once('\n').unwrap_or((piece, ""));
                    Part::Command(command, output)
                }));
            }
            other => anyhow::bail!("a block of {other:?}: neither console, yaml nor sh"),
        }
        before = after;
    }
    Ok(parts)
}

/// The last file that a text names.
fn last_file(text: &str) -> Result<&str> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|code| Path::new(code).extension().is_some_and(|extension| extension == "yaml"))
        .last()
        .context("no file is named before a yaml block")
}

#[test]
fn tutorial_is_read_as_files_and_commands() -> Result<()> {
    let text = "Go:\n```sh\nmake x\n```\nWrite `a.yaml`, or `b.yaml`:\n```yaml\nk: v\n```\n\
                ```console\n$ one\nout\nput\n$ two\n$ three\nend\n```\n";
    let expected = [
        Part::Setup("make x\n"),
        Part::File("b.yaml", "k: v\n"),
        Part::Command("one", "out\nput"),
        Part::Command("two", ""),
        Part::Command("three", "end"),
    ];
    ensure!(parts(text)? == expected, "{:?}", parts(text)?);
    Ok(())
}

#[test]
fn only_what_varies_is_left_out_of_a_comparison() {
    let shown = "NAME   AGE\nweb-1  3m20s\nweb-2  5s   10.64.0.7\ncontroller  0.1.0, host leads, mode crd, last write 0s ago\n";
    let seen = "NAME AGE\nweb-1 4s\nweb-2  1m  10.64.0.12\ncontroller  0.2.0, other leads, mode crd, last write 12m ago\n";
    assert_eq!(plain(shown), plain(seen));
    let shown = "1 block of 10.64.1.0/27 on nodes\n  1 block now: worker-1\n1 block of 10.64.1.0/27 on nodes\nall left\n";
    assert_eq!(plain(shown), plain("1 block of 10.64.1.0/27 on nodes\nall left\n"));
    let shown = "uses addresses; pods\n  default/web-2,\n  default/web-10\n\nproblem";
    assert_eq!(plain(shown), plain("uses addresses; pod default/web-7\n\nproblem"));
    for (one, other) in [
        ("10.64.0.0/28", "10.64.0.16/28"),
        ("10.64.0.7", "10.64.1.7"),
        ("web-1 Running 3s", "web-1 Pending 3s"),
        ("uses 5 of 14 addresses", "uses 5 of 28 addresses"),
        ("1 block of 10.64.1.0/27 on nodes\nall left\n", "all left\n"),
        ("5 nodes", "6 nodes"),
    ] {
        assert_ne!(plain(one), plain(other));
    }
}
