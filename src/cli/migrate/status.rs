//! `migrate status`: how far each node is.

use serde_json::json;

use super::look::{Look, object};
use super::routes::exported;
use crate::cli::answers::{Source, Verdict, block_on, fields};
use crate::cli::program::program;
use crate::cli::screen::{FINE, Line, PLAIN, Table, WAITS, WRONG};
use crate::cli::selector::{self, NodeSelector};
use crate::model::counted::counted;
use crate::model::names::ten_of;
use crate::view::moving::{Direction, Move, State, next_step};

/// Show how far each node has moved to the mode crd: the worst first.
///
/// STATE: Foreign: blocks of its agent are no claims. Claimed: they are, and the agent runs in the old mode. Prepared:
/// all addresses are on the CiliumNode, and the agent has not taken them up. Moved: it has, and the growth of the node is
/// held. Committed: the node grows. Back: it has gone back, and something of crd is left. Blocked: a person must look.
///
/// PODS: those with an address in the blocks of the node, and those with another one. ROUTES: whether the frr-k8s daemon
/// of the node runs all of its prefixes; `-` if no daemon runs one. BACK: the cost of a return now.
///
/// Exit codes: 0 a restart of any agent loses no pod, 1 one would lose a pod now or a held node is full, 2 the cluster
/// could not be read.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam migrate status -l topology.kubernetes.io/zone=rack-1\n  cilium-node-ipam migrate \
                  status -o json | jq '.nodes[] | select(.state == \"Prepared\")'"
)]
pub(super) struct Args {
    /// Only the nodes with these labels, as kubectl takes them. The exit code is about these nodes.
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = selector::nodes)]
    selector: Option<NodeSelector>,

    #[command(flatten)]
    cluster: Source,
}

pub(super) fn run(args: Args) -> anyhow::Result<Verdict> {
    block_on(async move {
        let look = Look::at(&args.cluster, None).await?;
        let moves = look.moves()?;
        let found = look.found(args.selector.as_ref())?;
        let world = &look.listed.world;
        let with_steps: Vec<_> = found
            .iter()
            .filter_map(|found| {
                let node = world.node(&found.node)?;
                Some((found, next_step(&moves, node, found, Direction::Forth)))
            })
            .collect();
        let counts: Vec<(State, usize)> = State::ALL
            .into_iter()
            .map(|state| (state, found.iter().filter(|found| found.state == state).count()))
            .filter(|(_, n)| *n > 0)
            .collect();
        let problems = problems(&found, look.pods.as_ref().err());
        let routes = exported(&look.listed).await;
        let nodes = with_steps.iter().map(|(found, (step, gates))| {
            let mut object = object(found, step, gates);
            object["routes"] = routes.get(&found.node).copied().into();
            object
        });
        let nodes: Vec<_> = nodes.collect();
        let object = json!({
            "counts": counts.iter().map(|(state, n)| (state.as_str().to_owned(), (*n).into()))
                .collect::<serde_json::Map<_, _>>(),
            "nodes": nodes, "problems": problems,
        });
        args.cluster.print("Migration", fields(object), || {
            let said: Vec<String> =
                counts.iter().map(|(state, n)| format!("{n} {}", state.as_str())).collect();
            let mut lines: Vec<Line> = vec![
                format!("{}: {}", counted(found.len(), "node"), said.join(", ")).into(),
                Line::default(),
            ];
            let headers =
                ["NODE", "STATE", "MODE", "BLOCKS", "PODS(IN/OUT)", "AGENT", "ROUTES", "BACK", "NEXT"];
            let mut table = Table::new(headers);
            for (found, (step, _)) in &with_steps {
                let style = match found.state {
                    State::Blocked | State::Foreign => WRONG,
                    State::Prepared | State::Back => WAITS,
                    State::Claimed | State::New | State::Moved | State::Committed => PLAIN,
                };
                let row = [
                    found.node.to_string(),
                    found.state.as_str().to_owned(),
                    found.mode.as_ref().map_or("?", |mode| mode.as_str()).to_owned(),
                    if found.blocks.is_empty() { "-".to_owned() } else { ten_of(&found.blocks) },
                    found.pods_in_out(),
                    if found.agent_pods.is_empty() { "none".to_owned() } else { found.agent.clone() },
                    routes.get(&found.node).copied().unwrap_or("-").to_owned(),
                    found.way_back(),
                    step.in_words(),
                ];
                table.add(style, row);
            }
            lines.extend(args.cluster.table_lines(table));
            lines.push(Line::default());
            if problems.is_empty() {
                let agent = if args.selector.is_some() { "any of these agents" } else { "any agent" };
                lines.push(Line::painted(FINE, format!("A restart of {agent} loses no pod.")));
            }
            lines.extend(problems.iter().map(|problem| Line::painted(WRONG, problem.clone()).below(2)));
            lines
        })?;
        Ok(if problems.is_empty() { Verdict::Fine } else { Verdict::Found })
    })
}

/// The present problems, a sentence each.
fn problems(found: &[Move], unlisted: Option<&String>) -> Vec<String> {
    let mut problems = Vec::new();
    if let Some(why) = unlisted {
        problems.push(format!(
            "The Pods of nodes are not known, so a restart of any agent may lose pods: {why}."
        ));
    }
    for found in found {
        if let Err(why) = &found.mode {
            problems.push(format!("{}: a restart of its agent may lose pods: {why}", found.node));
        }
        if let Some(lost) = found.lost_at_restart.as_ref().ok().filter(|lost| !lost.is_empty()) {
            problems.push(format!(
                "{}: do not restart its agent: {} would lose their network: {}",
                found.node,
                counted(lost.len(), "pod"),
                ten_of(lost)
            ));
        }
        if found.is_full {
            problems.push(format!(
                "{}: it needs more addresses, and its growth is held: {} migrate commit {}",
                found.node,
                program(),
                found.node
            ));
        }
    }
    problems
}
