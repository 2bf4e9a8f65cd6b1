//! Texts of other writers, made safe to show: no character of them moves the cursor, changes a colour or the order of
//! the text, or starts a line.
//!
//! Every output passes one of these functions once, at its edge. Invariant: a printable text stays as it is.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character controls a terminal or the order of a text, or is a line separator: controls (C0, DEL, C1),
/// marks and overrides of direction, U+FEFF, U+2028 and U+2029.
#[must_use]
pub fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

/// A line with its hidden characters as escapes such as `\n` and `\u{202e}`.
///
/// ```
/// use cilium_node_ipam::model::printable::printable;
///
/// assert_eq!(printable("node-1"), "node-1");
/// assert_eq!(printable("node\u{1b}[31m\n\u{202e}1"), r"node\u{1b}[31m\n\u{202e}1");
/// ```
#[must_use]
pub fn printable(line: &str) -> Cow<'_, str> {
    replaced(line, |_| true, |out, char| write!(out, "{}", char.escape_default()))
}

/// A text of several lines, with its other hidden characters as escapes.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |char| char != '\n', |out, char| write!(out, "{}", char.escape_default()))
}

/// JSON with the hidden characters of its strings as escapes of JSON, so its readers get the same strings. Those below
/// U+0020 have escapes already.
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    replaced(json, |char| char >= ' ', |out, char| write!(out, "\\u{:04x}", u32::from(char)))
}

/// The text with its hidden characters replaced, if they are `wanted`.
fn replaced(
    text: &str,
    wanted: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char) -> std::fmt::Result,
) -> Cow<'_, str> {
    let is_replaced = |char: char| is_hidden(char) && wanted(char);
    if !text.contains(is_replaced) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_replaced(char) {
            escape(&mut out, char).expect("a string takes all");
        } else {
            out.push(char);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hidden_character_is_escaped_and_no_other_one() {
        let hidden = [
            ('\0'..='\u{1f}', "C0"),
            ('\u{7f}'..='\u{9f}', "DEL and C1"),
            ('\u{61c}'..='\u{61c}', "a mark of direction"),
            ('\u{200e}'..='\u{200f}', "marks of direction"),
            ('\u{2028}'..='\u{202e}', "separators and overrides"),
            ('\u{2066}'..='\u{2069}', "isolates"),
            ('\u{feff}'..='\u{feff}', "the byte order mark"),
        ];
        for char in '\0'..=char::MAX {
            let is_hidden = hidden.iter().any(|(range, _)| range.contains(&char));
            let text = char.to_string();
            let shown = printable(&text);
            assert_eq!(shown != text, is_hidden, "{char:?}");
            assert_eq!(printable(&shown), shown);
        }
        assert_eq!(printable("é 节点 \\u{1b} 10.0.0.0/24"), "é 节点 \\u{1b} 10.0.0.0/24");
    }

    #[test]
    fn lines_stay_lines_and_json_keeps_its_strings() {
        assert_eq!(printable_lines("a\u{9b}\r\nb\n"), "a\\u{9b}\\r\nb\n");
        let object = serde_json::json!({"a\u{202e}": ["\u{1b}[2J\n", "\u{7f}\u{9b}\u{feff}é"]});
        let text = serde_json::to_string_pretty(&object).unwrap();
        let shown = printable_json(&text);
        assert!(!shown.contains(|char| is_hidden(char) && char != '\n'), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), object);
    }
}
