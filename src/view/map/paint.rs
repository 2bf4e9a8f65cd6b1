//! A row of blocks that is painted over, layer by layer.
//!
//! Does not know the meaning of the layers. Keeps one invariant: the pieces are in order, disjoint, and together they
//! are the whole row.

use std::collections::BTreeMap;

use crate::ledger::block_numbers::{BlockNumber, BlockRun};

/// A row of blocks, each with its last paint.
#[derive(Debug)]
pub(super) struct Row<T> {
    /// The last block of each piece with its paint, by its first.
    pieces: BTreeMap<BlockNumber, (BlockNumber, T)>,
    whole: BlockRun,
}

impl<T: Clone + PartialEq> Row<T> {
    /// A row of one piece.
    pub(super) fn new(whole: BlockRun, paint: T) -> Self {
        Self { pieces: [(whole.first, (whole.last, paint))].into(), whole }
    }

    /// Paints over the part of the row that is in `run`.
    pub(super) fn paint(&mut self, run: BlockRun, paint: T) {
        let Some(run) = run.intersection(self.whole) else { return };
        self.cut(run.first);
        if let Some(next) = run.last.get().checked_add(1) {
            self.cut(BlockNumber::new(next));
        }
        let covered: Vec<BlockNumber> =
            self.pieces.range(run.first..=run.last).map(|(first, _)| *first).collect();
        for first in covered {
            self.pieces.remove(&first);
        }
        self.pieces.insert(run.first, (run.last, paint));
    }

    /// Makes this block the first of a piece, if it is in the row.
    fn cut(&mut self, at: BlockNumber) {
        let Some((_, (last, paint))) = self.pieces.range_mut(..at).next_back() else { return };
        if *last >= at {
            let rest = (*last, paint.clone());
            // The piece has a block before this one, so this is not block 0.
            *last = BlockNumber::new(at.get() - 1);
            self.pieces.insert(at, rest);
        }
    }

    /// The pieces in order. Neighbours of the same paint are one.
    pub(super) fn into_pieces(self) -> Vec<(BlockRun, T)> {
        let mut pieces: Vec<(BlockRun, T)> = Vec::new();
        for (first, (last, paint)) in self.pieces {
            match pieces.last_mut() {
                Some((run, before)) if *before == paint => run.last = last,
                Some(_) | None => pieces.push((BlockRun { first, last }, paint)),
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(first: u128, last: u128) -> BlockRun {
        BlockRun { first: BlockNumber::new(first), last: BlockNumber::new(last) }
    }

    proptest! {
        #[test]
        fn a_row_shows_what_was_painted_last(
            layers in proptest::collection::vec((0u128..40, 0u128..12, 1u8..5), 0..20),
        ) {
            let mut row = Row::new(run(5, 30), 0u8);
            let mut model = [0u8; 26];
            for (first, length, paint) in layers {
                row.paint(run(first, first + length), paint);
                for number in first..=first + length {
                    if (5..=30).contains(&number) {
                        model[usize::try_from(number - 5).unwrap()] = paint;
                    }
                }
            }
            let pieces = row.into_pieces();
            let flat: Vec<u8> =
                pieces.iter().flat_map(|(run, paint)| run.iter().map(move |_| *paint)).collect();
            prop_assert_eq!(flat.as_slice(), model.as_slice());
            prop_assert!(pieces.windows(2).all(|pair| pair[0].1 != pair[1].1), "{:?}", pieces);
        }
    }
}
