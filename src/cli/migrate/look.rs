//! A look at a cluster whose nodes move, and its parts in text and JSON.

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use serde_json::{Value, json};

use crate::cli::answers::controller::why_unled;
use crate::cli::answers::{Listed, Source, pods};
use crate::cli::program::program;
use crate::cli::screen::{self, FINE, Line, PLAIN, WRONG};
use crate::cli::selector::NodeSelector;
use crate::model::names::{NodeName, ten_of};
use crate::net::cidr::Cidr;
use crate::view::moving::{Direction, Gate, Move, Moves, PodsByNode, Step, next_step};
use crate::view::rejoin::Rejoin;
use crate::world::World;

/// A cluster that was read once, with the Pods of its nodes.
pub(super) struct Look {
    pub(super) listed: Listed,
    pub(super) pods: PodsByNode,
    /// Why no replica of the controller leads, if that is known.
    unled: Option<String>,
}

impl Look {
    /// Reads everything, and the Pods of these nodes or of all.
    pub(super) async fn at(source: &Source, nodes: Option<&BTreeSet<NodeName>>) -> anyhow::Result<Self> {
        let listed = source.list().await?;
        let pods = pods::by_node(&listed.live, nodes).await?;
        let unled = why_unled(&listed, &source.access).await;
        Ok(Self { listed, pods, unled })
    }

    pub(super) fn moves(&self) -> anyhow::Result<Moves<'_>> {
        Moves::of(&self.listed.world).map_err(|why| anyhow!("{why}: see docs/how-to/move-in.md"))
    }

    /// How far the nodes with these labels have moved, or all nodes: the worst first. Fails if no node has the labels.
    pub(super) fn found(&self, selector: Option<&NodeSelector>) -> anyhow::Result<Vec<Move>> {
        let mut found = self.moves()?.all(&self.pods, &self.listed.plans);
        let Some(selector) = selector else { return Ok(found) };
        let world = &self.listed.world;
        found.retain(|found| world.node(&found.node).is_some_and(|node| selector.selects(&node.labels)));
        if found.is_empty() {
            bail!("no Node that runs Linux has the labels `{selector}`: kubectl get nodes -l '{selector}'");
        }
        Ok(found)
    }
}

/// The state of a node, its next step, and the gates of that step.
pub(super) struct Reached {
    pub(super) found: Move,
    pub(super) step: Step,
    pub(super) gates: Vec<Gate>,
}

impl Reached {
    /// `None` if the Node does not exist. `rejoined` has the blocks of the node after a rejoin.
    pub(super) fn of(
        look: &Look,
        found: Move,
        direction: Direction,
        rejoined: impl FnOnce(&NodeName) -> Vec<Cidr>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(node) = look.listed.world.node(&found.node) else { return Ok(None) };
        let (step, mut gates) = next_step(&look.moves()?, node, &found, direction);
        if direction == Direction::Forth && step.needs_controller() {
            gates.push(controller(look.unled.as_ref()));
        }
        if let Step::Rejoin(rejoin) = &step {
            gates.push(replacement(&look.listed.world, rejoin, &rejoined(&rejoin.node)));
        }
        Ok(Some(Self { found, step, gates }))
    }

    pub(super) fn is_open(&self) -> bool {
        self.gates.iter().all(Gate::is_open)
    }

    /// The state of the node, the gates of its next step, and its commands.
    pub(super) fn lines(&self, cilium_namespace: &str) -> Vec<Line> {
        let found = &self.found;
        let title = format!("{}: {}, next: {}", found.node, found.state.as_str(), self.step.in_words());
        let mut lines = vec![Line::from(title).below(2)];
        lines.extend(gate_lines(&self.gates));
        if self.is_open() {
            lines.extend(self.step.costs().into_iter().map(|cost| Line::labelled("  cost  ", 8, &cost)));
            let commands = self.step.commands(&found.node, cilium_namespace);
            lines.extend(commands.into_iter().map(|command| Line::from(format!("  {command}"))));
        }
        lines
    }

    /// The same for programs.
    pub(super) fn object(&self, cilium_namespace: &str) -> Value {
        let mut object = object(&self.found, &self.step, &self.gates);
        object["commands"] = self.step.commands(&self.found.node, cilium_namespace).into();
        object["costs"] = self.step.costs().into();
        object
    }
}

/// The gate of a step that the controller continues.
fn controller(unled: Option<&String>) -> Gate {
    match unled {
        None => Gate { name: "controller", text: "no sign that it is away".to_owned(), remedy: None },
        Some(why) => Gate {
            name: "controller",
            text: why.clone(),
            remedy: Some(format!("`{} status` says why; without it the node gets no addresses.", program())),
        },
    }
}

/// The gate of a rejoin: another block comes first in each family.
fn replacement(world: &World, rejoin: &Rejoin, after: &[Cidr]) -> Gate {
    let leaves = |block: &Cidr| world.claim(*block).is_some_and(|known| world.must_leave(&known.claim));
    let first = |block: &Cidr| after.iter().find(|other| other.family() == block.family());
    let new: Vec<&Cidr> = rejoin.blocks.iter().filter_map(first).filter(|block| !leaves(block)).collect();
    let is_open = new.len() == rejoin.blocks.len();
    Gate {
        name: "new-block",
        text: if is_open {
            format!("{} comes first after that", ten_of(&new))
        } else {
            format!("no pool of the node has another block in place of {}", ten_of(&rejoin.blocks))
        },
        remedy: (!is_open).then(|| {
            "Add a CIDR to a pool that selects the node, or raise its `perNode.maxBlocks`.".to_owned()
        }),
    }
}

/// The gates of a step, for people.
fn gate_lines(gates: &[Gate]) -> Vec<Line> {
    let line = |gate: &Gate| {
        let (style, word) = if gate.is_open() { (FINE, "ok  ") } else { (WRONG, "FAIL") };
        let first = Line::painted(PLAIN, "  ").and(style, word);
        let first = first.and(PLAIN, format!("  {:<13} {}", gate.name, gate.text)).below(22);
        let fix = gate.remedy.iter().map(|remedy| Line::labelled("                      fix: ", 27, remedy));
        std::iter::once(first).chain(fix).collect::<Vec<_>>()
    };
    gates.iter().flat_map(line).collect()
}

pub(super) fn object(found: &Move, step: &Step, gates: &[Gate]) -> Value {
    json!({
        "name": found.node.as_str(), "state": found.state.as_str(),
        "mode": found.mode.as_ref().ok().map(|mode| mode.as_str()),
        "blocks": found.blocks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "unclaimed": found.unclaimed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "pods": found.pods.as_ref().ok().map(|(inside, outside)| json!({"inside": inside, "outside": outside})),
        "agent": found.agent, "held": found.is_held, "full": found.is_full,
        "lostAtRestart": found.lost_at_restart.as_ref().ok(), "lostOnReturn": found.lost_on_return.as_ref().ok(),
        "next": step.in_words(),
        "gates": gates.iter().map(|gate| json!({
            "name": gate.name, "open": gate.is_open(), "text": gate.text, "remedy": gate.remedy,
        })).collect::<Vec<_>>(),
    })
}

/// Prints a line about a node on standard error.
pub(super) fn note(node: &NodeName, what: &str) {
    screen::note(format_args!("{node}: {what}"));
}
