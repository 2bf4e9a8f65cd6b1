//! `cilium-node-ipam preflight`: whether a cluster is ready for the controller.

use std::path::PathBuf;

use anyhow::bail;
use serde_json::{Value, json};

use super::super::screen;
use super::plan::pools;
use super::{Cluster, Gathered, Source, Verdict, block_on, fields};
use crate::model::counted::counted;
use crate::model::installation::Installation;
use crate::model::kind::Kind;
use crate::model::time::Now;
use crate::view::preflight::{Line, State, preflight};
use crate::world::World;

pub(in crate::cli) mod facts;
pub(super) mod rights;

/// Check before the installation whether the cluster is ready: versions, settings of Cilium, other allocators, ranges
/// and rights.
///
/// It reads the cluster once and writes nothing. With -f it checks pools as they would be. Each line is `ok`, `WARN`,
/// `FAIL`, or `?` for a point that could not be seen. A line that is not `ok` has its remedy, or says how to look.
///
/// Exit codes: 0 no failure and no warning, 1 there is one, 2 the cluster could not be read.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam preflight -f pools.yaml\n  cilium-node-ipam preflight -f pools.yaml -o \
                        json"
)]
pub struct Args {
    /// Pools as they would be: a file, a directory, or `-` for standard input. Other pools stay as they are.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    cluster: Source,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    let changes = pools(&args.filename)?;
    block_on(async move {
        let (mut world, installation, now) = args.read().await?;
        for change in &changes {
            change.apply(&mut world, now.wall)?;
        }
        if let (Some(why), Err(_)) = (installation.unlisted.get(&Kind::Node), &installation.settings) {
            bail!(
                "neither Nodes nor cilium-config can be read: {why}; ask for the rights that docs/commands.md \
                 (Conventions) lists"
            );
        }
        print(&args.cluster, "Preflight", &preflight(&world, &installation))
    })
}

impl Args {
    async fn read(&self) -> anyhow::Result<(World, Installation, Now)> {
        if let Some(path) = &self.cluster.from {
            return facts::of_files(path, self.cluster.namespaces());
        }
        let (Gathered { clients, world, now }, unlisted) = self.cluster.access.gather_readable().await?;
        let installation = facts::of_cluster(&clients, &self.cluster.access, unlisted).await?;
        Ok((world, installation, now))
    }
}

/// Prints these lines with their counts, as an answer of this kind.
pub(in crate::cli) fn print(cluster: &Cluster, kind: &str, lines: &[Line]) -> anyhow::Result<Verdict> {
    let count = |state: State| lines.iter().filter(|line| line.state == state).count();
    let answer = json!({
        "items": lines.iter().map(object).collect::<Vec<_>>(),
        "failures": count(State::Fail), "warnings": count(State::Warn), "unseen": count(State::Unseen),
    });
    cluster.print(kind, fields(answer), || {
        let mut text: Vec<screen::Line> = lines.iter().flat_map(shown).collect();
        let unseen = match count(State::Unseen) {
            0 => String::new(),
            n => format!("{n} not seen, "),
        };
        let (failures, warnings) =
            (counted(count(State::Fail), "failure"), counted(count(State::Warn), "warning"));
        let counts = format!("{failures}, {warnings}, {unseen}{} ok.", count(State::Ok));
        text.extend([screen::Line::default(), counts.into()]);
        text
    })?;
    let is_wrong = lines.iter().any(|line| line.state < State::Unseen);
    Ok(if is_wrong { Verdict::Found } else { Verdict::Fine })
}

fn shown(line: &Line) -> Vec<screen::Line> {
    let label = format!("{:<5} {:<24} ", line.state.as_str(), line.point.as_str());
    let width = label.len();
    let mut lines = vec![screen::Line::labelled(&label, width, &line.text)];
    lines.extend(line.remedy.as_deref().map(|remedy| {
        let what = if line.state == State::Unseen { "look: " } else { "fix: " };
        screen::Line::labelled(&format!("{}{what}", " ".repeat(width)), width + what.len(), remedy)
    }));
    lines
}

fn object(line: &Line) -> Value {
    let state = match line.state {
        State::Ok => "ok",
        State::Warn => "warn",
        State::Fail => "fail",
        State::Unseen => "unseen",
    };
    json!({"point": line.point.as_str(), "state": state, "text": line.text, "remedy": line.remedy})
}
