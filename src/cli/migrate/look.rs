//! A look at a cluster whose nodes move, and its parts in text and JSON.

use std::collections::BTreeSet;

use anyhow::anyhow;
use serde_json::{Value, json};

use crate::cli::answers::{Listed, Source, pods};
use crate::cli::screen::{self, FINE, Line, PLAIN, WRONG};
use crate::model::names::NodeName;
use crate::view::moving::{Gate, Move, Moves, PodsByNode, Step};

/// A cluster that was read once, with the Pods of its nodes.
pub(super) struct Look {
    pub(super) listed: Listed,
    pub(super) pods: PodsByNode,
}

impl Look {
    /// Reads everything, and the Pods of these nodes or of all.
    pub(super) async fn at(source: &Source, nodes: Option<&BTreeSet<NodeName>>) -> anyhow::Result<Self> {
        let listed = source.list().await?;
        let pods = pods::by_node(&listed.live, nodes).await?;
        Ok(Self { listed, pods })
    }

    pub(super) fn moves(&self) -> anyhow::Result<Moves<'_>> {
        Moves::of(&self.listed.world).map_err(|why| anyhow!("{why}: see docs/how-to/move-in.md"))
    }
}

/// The gates of a step, for people.
pub(super) fn gate_lines(gates: &[Gate]) -> Vec<Line> {
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
