//! The picture of a range as SVG.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maud::{Markup, html};

use super::layout::{FOLD_HEIGHT, Layout, Line, LineKind, WIDTH};
use crate::model::counted::{counted, shown};
use crate::net::cidr::{Cidr, address};
use crate::view::map::{Block, BlockState, FamilyMap, Piece, RangeMap, Usage};

/// The width of the addresses beside the rows.
pub(super) const GUTTER: u128 = 600;
/// The smallest distance between two addresses beside the rows.
const LABEL_DISTANCE: u128 = 60;
/// The longest address beside the rows, in characters. Of a longer one the end is shown.
const LABEL_LENGTH: usize = 17;

/// Whether each block that something takes is an element of its own, with a title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Titles {
    /// It is: for a picture without a script.
    PerBlock,
    /// Equal blocks are one element.
    None,
}

/// The look of a block: the class of its element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Paint {
    state: BlockState,
    /// How much of it is used, from 0 to 5; `None` if it is not known.
    shade: Option<u8>,
}

impl Paint {
    fn of(block: &Block) -> Self {
        let shade = block.usage.filter(|_| block.state == BlockState::Held).map(shade);
        Self { state: block.state, shade }
    }

    fn class(self) -> String {
        let shade = self.shade.map(|shade| format!(" u{shade}")).unwrap_or_default();
        format!("s-{}{shade}", self.state.as_str())
    }
}

/// Five steps of use, and one for nearly full blocks.
fn shade(usage: Usage) -> u8 {
    let percent = usage.used.saturating_mul(100) / usage.offered.max(1);
    match percent {
        0 => 0,
        1..25 => 1,
        25..50 => 2,
        50..75 => 3,
        75..90 => 4,
        _ => 5,
    }
}

/// A range in a sentence, for a screen reader.
pub(super) fn summary(range: &RangeMap) -> String {
    let states = range.by_state();
    let states: Vec<String> =
        states.iter().map(|(state, count)| format!("{} {}", shown(*count), title(*state))).collect();
    format!("{}: {}", counted(range.n_blocks(), "block"), states.join(", "))
}

/// The words for a state.
pub(super) const fn title(state: BlockState) -> &'static str {
    match state {
        BlockState::Free => "free",
        BlockState::Held => "held",
        BlockState::Leaving => "must leave",
        BlockState::Draining => "draining",
        BlockState::Releasing => "releasing",
        BlockState::Cooling => "cooling",
        BlockState::Closed => "closed",
        BlockState::Excluded => "excluded",
        BlockState::Foreign => "foreign",
        BlockState::Contested => "on two nodes",
        BlockState::Older => "of an older pool",
    }
}

/// The picture, without the element around it.
pub(super) fn content(family: &FamilyMap, range: &RangeMap, layout: &Layout, titles: Titles) -> Markup {
    let (mut paths, mut of_nodes) = (BTreeMap::<Paint, String>::new(), Vec::new());
    let mut pieces = Pieces { pieces: &range.pieces, at: 0 };
    let pitch = layout.pitch();
    for line in &layout.lines {
        let LineKind::Row = line.kind else { continue };
        for (first, count, piece) in pieces.within(line) {
            let (x, width) = (GUTTER + (first - line.first) * pitch, count * pitch);
            let path = format!("M{x} {}h{width}v{pitch}h-{width}z", line.y);
            if titles == Titles::PerBlock && piece.block.node.is_some() {
                of_nodes.push((Paint::of(&piece.block).class(), path, sentence(family, range, piece)));
            } else {
                paths.entry(Paint::of(&piece.block)).or_default().push_str(&path);
            }
        }
    }
    html! {
        @for (paint, path) in &paths { path class=(paint.class()) d=(path) {} }
        @for (class, path, title) in &of_nodes { path class=(class) d=(path) { title { (title) } } }
        path class="grid" stroke-width=(gap(pitch)) d=(grid(layout)) {}
        @for line in layout.lines.iter().filter(|line| line.kind != LineKind::Row) {
            (fold(family, range, line))
        }
        (labels(family, range, layout))
    }
}

/// The pieces of a range, taken in order.
struct Pieces<'a> {
    pieces: &'a [Piece],
    at: usize,
}

impl<'a> Pieces<'a> {
    /// The parts of the pieces that are in a line, which is behind those before.
    fn within(&mut self, line: &Line) -> Vec<(u128, u128, &'a Piece)> {
        let end = line.first + line.count;
        let mut parts = Vec::new();
        while let Some(piece) = self.pieces.get(self.at) {
            let (first, last) = (piece.first.max(line.first), (piece.first + piece.count).min(end));
            if first < last {
                parts.push((first, last - first, piece));
            }
            if piece.first + piece.count > end {
                break;
            }
            self.at += 1;
        }
        parts
    }
}

/// The width of the gap between blocks of this pitch.
const fn gap(pitch: u128) -> u128 {
    match pitch {
        0..4 => 0,
        4..12 => 1,
        12..24 => 2,
        24..48 => 4,
        48..96 => 6,
        _ => 10,
    }
}

/// The lines between the blocks.
fn grid(layout: &Layout) -> String {
    let (mut path, pitch) = (String::new(), layout.pitch());
    if gap(pitch) == 0 {
        return path;
    }
    // A write to a string does not fail.
    for rows in layout.lines.chunk_by(|one, other| one.kind == other.kind && one.count == other.count) {
        let Some(first) = rows.first().filter(|line| line.kind == LineKind::Row) else { continue };
        let (height, width) = (rows.len() as u128 * pitch, first.count * pitch);
        for column in 0..=first.count {
            let _ = write!(path, "M{} {}v{height}", GUTTER + column * pitch, first.y);
        }
        for row in 0..=rows.len() as u128 {
            let _ = write!(path, "M{GUTTER} {}h{width}", first.y + row * pitch);
        }
    }
    path
}

/// A strip of folded rows.
fn fold(family: &FamilyMap, range: &RangeMap, line: &Line) -> Markup {
    let (class, what) = match line.kind {
        LineKind::Fold(state) => (format!("s-{}", state.as_str()), title(state)),
        LineKind::Rest => ("s-closed".to_owned(), "not drawn: see the table"),
        LineKind::Row => return html! {},
    };
    let blocks = counted(line.count, "block");
    let last = address(first_position(family, range, line.first + line.count) - 1);
    html! {
        rect class={ (class) " fold" } x=(GUTTER) y=(line.y + 6) width=(WIDTH) height=(FOLD_HEIGHT - 12) rx="8" {}
        text class="fold" x=(GUTTER + WIDTH / 2) y=(line.y + 62) text-anchor="middle" {
            "⋯ " (blocks) " " (what) ", up to " (last) " ⋯"
        }
    }
}

/// The first addresses of some of the rows.
fn labels(family: &FamilyMap, range: &RangeMap, layout: &Layout) -> Markup {
    let mut free_from = 0;
    let mut labels = Vec::new();
    for line in layout.lines.iter().filter(|line| line.kind == LineKind::Row) {
        if line.y >= free_from {
            let text = address(first_position(family, range, line.first)).to_string();
            let n_left_out = text.chars().count().saturating_sub(LABEL_LENGTH);
            let text = if n_left_out == 0 {
                text
            } else {
                format!("…{}", text.chars().skip(n_left_out + 1).collect::<String>())
            };
            labels.push((line.y + layout.pitch() / 2 + 18, text));
            free_from = line.y + LABEL_DISTANCE;
        }
    }
    html! {
        @for (y, text) in labels { text class="at" x=(GUTTER - 20) y=(y) text-anchor="end" { (text) } }
    }
}

/// The position of the first address of the block with this number in a range.
fn first_position(family: &FamilyMap, range: &RangeMap, number: u128) -> u128 {
    let block_size = family.family.size_of(family.block_prefix);
    range.cidr.first() + number * block_size
}

/// A block in a sentence, for a picture without a script.
fn sentence(family: &FamilyMap, range: &RangeMap, piece: &Piece) -> String {
    let first = address(first_position(family, range, piece.first));
    let block = Cidr::containing(first, family.block_prefix).map(|block| block.to_string());
    let Block { state, node, usage, note, .. } = &piece.block;
    let mut text = format!("{}, {}", block.unwrap_or_default(), title(*state));
    // A write to a string does not fail.
    if let Some(node) = node {
        let _ = write!(text, ", node {node}");
    }
    if let Some(usage) = usage {
        let _ = write!(text, ", {} of {} addresses used", usage.used, usage.offered);
    }
    if !note.is_empty() {
        let _ = write!(text, ", {note}");
    }
    text
}
