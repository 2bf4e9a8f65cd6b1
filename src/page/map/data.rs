//! The blocks of a map as the script of the page reads them, in few bytes.
//!
//! A block of a node costs about twenty bytes, and a run of equal blocks about five. `map.js` has the reader of this
//! form.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::layout::{Layout, Line, LineKind};
use crate::model::printable::printable;
use crate::model::time::Timestamp;
use crate::view::map::{Block, BlockState, FamilyMap, Map, RangeMap};

/// Texts that occur often, each once.
#[derive(Default)]
struct Texts {
    numbers: BTreeMap<String, usize>,
    texts: Vec<String>,
}

impl Texts {
    fn number(&mut self, text: &str) -> usize {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        // The script shows them.
        self.texts.push(printable(text).into_owned());
        self.numbers.insert(text.to_owned(), self.texts.len() - 1);
        self.texts.len() - 1
    }
}

/// The names of nodes, and the notes on blocks.
#[derive(Default)]
struct Tables {
    nodes: Texts,
    notes: Texts,
}

/// The data of a page, as JSON that may stand in a script element.
pub(super) fn encoded(map: &Map, layouts: &[Layout]) -> String {
    let mut tables = Tables::default();
    let mut layouts = layouts.iter();
    let mut ranges = Vec::new();
    for (pool, family) in families(map) {
        for range in &family.ranges {
            let layout = layouts.next().filter(|_| !range.pieces.is_empty());
            ranges.push(json!({
                "pool": printable(pool), "cidr": range.cidr.to_string(), "block": family.block_prefix,
                "columns": layout.map_or(0, |layout| layout.columns).to_string(),
                "lines": layout.map(|layout| lines(&layout.lines)).unwrap_or_default(),
                "pieces": pieces(range, &mut tables),
            }));
        }
        for (cidr, block) in &family.outside {
            let mut piece = String::new();
            write_block(&mut piece, 1, block, &mut tables);
            ranges.push(json!({
                "pool": printable(pool), "cidr": cidr.to_string(), "block": cidr.prefix_len(), "columns": "0",
                "lines": "", "pieces": piece,
            }));
        }
    }
    let states: serde_json::Map<String, Value> =
        BlockState::ALL.iter().map(|state| (state.letter().to_string(), state.as_str().into())).collect();
    let data =
        json!({"states": states, "nodes": tables.nodes.texts, "notes": tables.notes.texts, "ranges": ranges});
    // No end of a script element can be in it.
    data.to_string().replace('<', "\\u003c")
}

/// The families of all pools, each with the name of its pool.
pub(super) fn families(map: &Map) -> impl Iterator<Item = (&str, &FamilyMap)> {
    map.pools.iter().flat_map(|pool| pool.families.iter().map(|family| (pool.name.as_str(), family)))
}

/// A letter per line, and its upper edge, first block and number of blocks.
fn lines(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let letter = match line.kind {
            LineKind::Row => 'r',
            LineKind::Fold(_) | LineKind::Rest => 'f',
        };
        write_fields(&mut text, letter, &[line.y, line.first, line.count].map(Some));
    }
    text
}

fn pieces(range: &RangeMap, tables: &mut Tables) -> String {
    let mut text = String::new();
    for piece in &range.pieces {
        write_block(&mut text, piece.count, &piece.block, tables);
    }
    text
}

/// The letter of the state, and its numbers: how many blocks, the node, used and offered addresses, since and until
/// when, and the note.
fn write_block(text: &mut String, count: u128, block: &Block, tables: &mut Tables) {
    let seconds = |time: Option<Timestamp>| time.and_then(|time| u128::try_from(time.as_second()).ok());
    let number = |number: usize| number as u128;
    let note = Some(block.note.as_str()).filter(|note| !note.is_empty());
    let fields = [
        Some(count).filter(|count| *count != 1),
        block.node.as_ref().map(|node| number(tables.nodes.number(node.as_str()))),
        block.usage.map(|usage| usage.used.into()),
        block.usage.map(|usage| usage.offered.into()),
        seconds(block.since),
        seconds(block.until),
        note.map(|note| number(tables.notes.number(note))),
    ];
    write_fields(text, block.state.letter(), &fields);
}

/// A letter, and the fields with commas between them. Unknown fields at the end are left out.
fn write_fields(text: &mut String, letter: char, fields: &[Option<u128>]) {
    let n_known = fields.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    text.push(letter);
    for (index, field) in fields[..n_known].iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        if let Some(number) = field {
            write_number(text, *number);
        }
    }
    text.push(';');
}

/// A number in base 36.
fn write_number(text: &mut String, number: u128) {
    if number >= 36 {
        write_number(text, number / 36);
    }
    // The remainder is below 36.
    let digit = u32::try_from(number % 36).ok().and_then(|digit| char::from_digit(digit, 36));
    text.push(digit.unwrap_or('0'));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::map::tests::Cluster;

    fn check_number(number: u128, expected: &str) {
        let mut text = String::new();
        write_number(&mut text, number);
        assert_eq!(text, expected);
        assert_eq!(u128::from_str_radix(&text, 36), Ok(number));
    }

    #[test]
    fn numbers_are_in_base_36() {
        check_number(0, "0");
        check_number(35, "z");
        check_number(36, "10");
        check_number(u128::MAX, "f5lxx1zz5pnorynqglhzmsp33");
    }

    #[test]
    fn a_block_is_a_letter_and_numbers_and_what_is_not_known_is_left_out() {
        let map = Cluster::default()
            .pool("a", "01", r#""ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.0.0.0/24"}]}"#)
            .claim("10.0.0.0/28", "a", "n1", "Held")
            .claim("10.0.0.32/28", "a", "n2", "Cooling/NodeGone")
            .node("n1", &["10.0.0.0/28"], &["10.0.0.1"])
            .map();
        let range = &map.pools[0].families[0].ranges[0];
        let layout = Layout::of(range);
        let data: Value = serde_json::from_str(&encoded(&map, &[layout])).unwrap();
        assert_eq!(data["ranges"][0]["pieces"], "h,0,1,g,t85s00;.;c,1,,,t85s00,t85us0,0;.d;");
        assert_eq!(data["ranges"][0]["lines"], "r0,0,g;");
        assert_eq!(data["nodes"], json!(["n1", "n2"]));
        assert_eq!(data["notes"], json!(["NodeGone"]));
    }
}
