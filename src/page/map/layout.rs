//! Where each block of a range is drawn: rows of blocks in the order of their addresses.
//!
//! A row has a power of two of blocks, so it is a prefix. Rows were chosen over a Hilbert curve because a person finds
//! an address in them, and because many rows of equal blocks can be folded into one strip. A range with 2^58 blocks
//! then still shows the few that are taken. Lengths are in quarters of a pixel, so that all are whole numbers.

use crate::view::map::{BlockState, Piece, RangeMap};

/// The width of the rows.
pub(super) const WIDTH: u128 = 3072;
/// The numbers of blocks in a row. The first is taken with which the picture is not too high.
const COLUMNS: [u128; 6] = [32, 64, 128, 256, 512, 1024];
/// The height up to which longer rows are not tried: 480 pixels.
const MAX_HEIGHT: u128 = 1920;
/// The height of a strip of folded rows: enough for its text.
pub(super) const FOLD_HEIGHT: u128 = 92;
/// With no more rows than this, none is folded: the picture then shows true proportions.
const UNFOLDED_ROWS: u128 = 24;
/// The smallest number of rows that are worth a strip.
const FOLDED_ROWS: u128 = 4;
/// The maximum number of lines. The rest of the range is one strip.
const MAX_LINES: usize = 2048;

/// The picture of a range.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// How many blocks a row has.
    pub(super) columns: u128,
    /// Its lines from top to bottom.
    pub(super) lines: Vec<Line>,
    /// Its height.
    pub(super) height: u128,
}

/// A line of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    /// Its upper edge.
    pub(super) y: u128,
    /// The number of its first block.
    pub(super) first: u128,
    /// How many blocks it has.
    pub(super) count: u128,
    pub(super) kind: LineKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// A row of single blocks.
    Row,
    /// Many rows, which are all in this state.
    Fold(BlockState),
    /// The rest of a range that has too many rows to draw.
    Rest,
}

impl Layout {
    /// The layout of a range.
    pub(super) fn of(range: &RangeMap) -> Self {
        let [narrow @ .., widest] = COLUMNS;
        let mut layouts = narrow.into_iter().map(|columns| Self::with(range, columns));
        layouts.find(|layout| layout.height <= MAX_HEIGHT).unwrap_or_else(|| Self::with(range, widest))
    }

    /// The width and height of a block with its gap.
    pub(super) const fn pitch(&self) -> u128 {
        WIDTH / self.columns
    }

    fn with(range: &RangeMap, columns: u128) -> Self {
        let (n_blocks, pitch) = (range.n_blocks(), WIDTH / columns);
        let folds = n_blocks > columns * UNFOLDED_ROWS;
        let mut layout = Self { columns, lines: Vec::new(), height: 0 };
        let mut next = 0;
        for piece in &range.pieces {
            let end = piece.first + piece.count;
            if folds && let Some((first, rows)) = whole_rows(piece, columns) {
                layout.rows(&mut next, first, pitch);
                layout.push(first, rows * columns, LineKind::Fold(piece.block.state), FOLD_HEIGHT);
                next = first + rows * columns;
            }
            if layout.lines.len() > MAX_LINES {
                layout.push(next, n_blocks - next, LineKind::Rest, FOLD_HEIGHT);
                return layout;
            }
            // The next piece may continue the last row.
            let full = end - end % columns;
            layout.rows(&mut next, full, pitch);
        }
        layout.rows(&mut next, n_blocks, pitch);
        layout
    }

    /// Adds rows from `next` up to `end`.
    fn rows(&mut self, next: &mut u128, end: u128, pitch: u128) {
        while *next < end && self.lines.len() <= MAX_LINES {
            let count = self.columns.min(end - *next);
            self.push(*next, count, LineKind::Row, pitch);
            *next += count;
        }
    }

    fn push(&mut self, first: u128, count: u128, kind: LineKind, height: u128) {
        self.lines.push(Line { y: self.height, first, count, kind });
        self.height += height;
    }
}

/// The first block and the number of rows that a piece fills, if they are worth a strip.
fn whole_rows(piece: &Piece, columns: u128) -> Option<(u128, u128)> {
    let first = piece.first.div_ceil(columns) * columns;
    let rows = (piece.first + piece.count).saturating_sub(first) / columns;
    (rows >= FOLDED_ROWS).then_some((first, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pool::RangeState;
    use crate::view::map::Block;
    use proptest::prelude::*;

    fn range(counts: &[u128]) -> RangeMap {
        let mut pieces = Vec::new();
        let mut first = 0;
        for (index, count) in counts.iter().enumerate() {
            let state = if index % 2 == 0 { BlockState::Free } else { BlockState::Held };
            let block =
                Block { state, node: None, usage: None, since: None, until: None, note: String::new() };
            pieces.push(Piece { first, count: *count, block });
            first += count;
        }
        RangeMap { cidr: "10.0.0.0/8".parse().unwrap(), declared: RangeState::Active, pieces }
    }

    fn drawn(layout: &Layout) -> Vec<(char, u128)> {
        let kind = |line: &Line| match line.kind {
            LineKind::Row => 'r',
            LineKind::Fold(_) => 'f',
            LineKind::Rest => '…',
        };
        layout.lines.iter().map(|line| (kind(line), line.count)).collect()
    }

    #[test]
    fn a_small_range_is_drawn_in_its_proportions() {
        let layout = Layout::of(&range(&[8]));
        assert_eq!((layout.columns, drawn(&layout)), (32, vec![('r', 8)]));
        assert_eq!(drawn(&Layout::of(&range(&[256, 256]))), [('r', 32); 16]);
    }

    #[test]
    fn a_huge_range_shows_the_few_blocks_that_are_taken() {
        let layout = Layout::of(&range(&[1, 1, (1 << 58) - 2]));
        assert_eq!(drawn(&layout), [('r', 32), ('f', (1 << 58) - 32)]);
        assert_eq!(layout.height, 96 + FOLD_HEIGHT);
    }

    #[test]
    fn a_full_range_of_a_million_blocks_is_no_higher_than_it_must_be() {
        let alternating = vec![1; 1 << 20];
        let layout = Layout::of(&range(&alternating));
        assert_eq!((layout.columns, layout.height), (1024, 1024 * 3));
    }

    proptest! {
        #[test]
        fn every_block_is_in_one_line(counts in proptest::collection::vec(1u128..5000, 1..60)) {
            let range = range(&counts);
            let layout = Layout::of(&range);
            let (mut next, mut y) = (0, 0);
            for line in &layout.lines {
                prop_assert_eq!((line.first, line.y), (next, y));
                next += line.count;
                y += if line.kind == LineKind::Row { layout.pitch() } else { FOLD_HEIGHT };
                prop_assert_eq!(line.first % layout.columns, 0);
            }
            prop_assert_eq!((next, y), (range.n_blocks(), layout.height));
        }
    }
}
