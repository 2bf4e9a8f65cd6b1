//! `migrate rejoin`: the commands by which nodes lose the first blocks that must leave them. It writes nothing.

use std::collections::BTreeSet;

use anyhow::bail;
use serde_json::json;

use super::look::{Look, Reached};
use crate::cli::answers::{Source, Verdict, block_on, fields};
use crate::cli::object as names;
use crate::cli::program::program;
use crate::cli::screen::{self, Line};
use crate::cli::selector::{self, NodeSelector};
use crate::model::counted::counted;
use crate::model::names::{NodeName, ten_of};
use crate::view::departures::departures_of;
use crate::view::moving::{Direction, Move, State};
use crate::view::rejoin::rejoins;

/// Print how nodes lose the first blocks that must leave them: gates, costs and commands. It writes nothing.
///
/// A first block never drains by itself, because its agent has addresses of its own there. A node whose machine boots
/// with an empty CiliumNode gets another block in front. Then the old one leaves when no pod uses it.
///
/// Drain the range first: `drain POOL`. Let one node rejoin after the other; without a node it takes the first ones.
///
/// Exit codes: 0 all gates are open or no node must rejoin, 1 a gate is closed, 2 the cluster could not be read.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam migrate rejoin worker-17\n  cilium-node-ipam migrate rejoin --batch 3 \
                  -l topology.kubernetes.io/zone=rack-1"
)]
pub(super) struct Args {
    /// The nodes, each as a name or `node/NAME`.
    #[arg(value_name = "NODE", value_parser = names::node)]
    nodes: Vec<String>,

    /// How many nodes, where none is named.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "nodes")]
    batch: usize,

    /// Only nodes with these labels, as kubectl takes them.
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = selector::nodes, conflicts_with = "nodes")]
    selector: Option<NodeSelector>,

    #[command(flatten)]
    cluster: Source,
}

pub(super) fn run(args: Args) -> anyhow::Result<Verdict> {
    block_on(async move {
        let named: Vec<NodeName> = args.nodes.iter().map(|name| name.as_str().into()).collect();
        let meant: BTreeSet<NodeName> = named.iter().cloned().collect();
        let look = Look::at(&args.cluster, (!named.is_empty()).then_some(&meant)).await?;
        let world = &look.listed.world;
        if let Some(missing) = named.iter().find(|name| world.node(name).is_none()) {
            bail!("Node {missing} does not exist: kubectl get nodes");
        }
        let found = look.found(args.selector.as_ref())?;
        let must_rejoin = |found: &Move| !rejoins(world, &departures_of(world, &found.node)).is_empty();
        let all: Vec<&Move> = found.iter().filter(|found| must_rejoin(found)).collect();
        let (mut lines, mut objects) = (Vec::new(), Vec::new());
        let mut verdict = Verdict::Fine;
        let chosen: Vec<&Move> = if named.is_empty() {
            all.iter().copied().take(args.batch).collect()
        } else {
            all.iter().copied().filter(|found| meant.contains(&found.node)).collect()
        };
        let chosen_nodes: Vec<NodeName> = chosen.iter().map(|found| found.node.clone()).collect();
        let mut after = look.listed.rejoined(&chosen_nodes);
        for found in &chosen {
            if found.state != State::Committed {
                screen::note(format_args!(
                    "{} is {}, and rejoins when it is Committed: {} migrate status",
                    found.node,
                    found.state.as_str(),
                    program()
                ));
                verdict = Verdict::Found;
                continue;
            }
            let blocks = after.remove(&found.node).unwrap_or_default();
            let Some(reached) = Reached::of(&look, (*found).clone(), Direction::Forth, |_| blocks)? else {
                continue;
            };
            if !reached.is_open() {
                verdict = Verdict::Found;
            }
            lines.extend(reached.lines(&args.cluster.access.cilium_namespace));
            objects.push(reached.object(&args.cluster.access.cilium_namespace));
        }
        for name in &named {
            if !all.iter().any(|found| found.node == *name) {
                lines.push(Line::from(format!("{name}: none of its first blocks must leave")));
            }
        }
        if named.is_empty() && all.is_empty() {
            let which =
                args.selector.as_ref().map(|selector| format!(" with {selector}")).unwrap_or_default();
            lines.push(format!("No node{which} has a first block that must leave.").into());
        }
        let left: Vec<&NodeName> =
            all.iter().filter(|found| !chosen.contains(found)).map(|found| &found.node).collect();
        if !left.is_empty() {
            lines.push(
                Line::from(format!("{} after that: {}", counted(left.len(), "node"), ten_of(&left))).below(2),
            );
        }
        let object =
            json!({"nodes": objects, "left": left.iter().map(|name| name.as_str()).collect::<Vec<_>>()});
        args.cluster.print("MigrationRejoin", fields(object), || lines)?;
        Ok(verdict)
    })
}
