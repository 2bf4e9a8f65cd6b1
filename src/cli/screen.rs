//! The only way to standard output and standard error.
//!
//! Names and texts of other writers are in most outputs. So each line is made printable here, and its colours are added
//! afterwards: `anstream` removes them where no terminal shows them, and where `NO_COLOR` is set. JSON and YAML get the
//! escapes of their notation, so a reader has the same strings.
//!
//! Lines for people fit the width of the terminal.

mod line;
mod table;
mod wrap;

use std::fmt;
use std::io::{ErrorKind, IsTerminal as _, Write};

use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::Value;
use serde_saphyr::DoubleQuoted;

use crate::model::printable::{is_hidden, printable, printable_json};
use crate::view::audit::catalog::Severity;

pub(super) use line::{Line, PLAIN};
pub(super) use table::Table;

/// Something is wrong, and pods wait for it.
pub(super) const WRONG: Style = AnsiColor::Red.on_default().bold();
/// Something waits, or is in progress.
pub(super) const WAITS: Style = AnsiColor::Yellow.on_default();
/// Nothing is wrong.
pub(super) const FINE: Style = AnsiColor::Green.on_default();

/// The style of a problem.
pub(super) const fn style_for(severity: Severity) -> Style {
    match severity {
        Severity::Error => WRONG,
        Severity::Warning => WAITS,
        Severity::Info => PLAIN,
    }
}

/// Moves the cursor to the top left of a terminal (ECMA-48, as the next two).
const TOP: &str = "\u{1b}[H";
/// Erases the rest of a line.
const ERASE_LINE: &str = "\u{1b}[K";
/// Erases the rest of the screen.
const ERASE_REST: &str = "\u{1b}[J";

/// The reader of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// It reads on.
    Open,
    /// It has closed the pipe, such as `head`, and gets nothing more. That is no error.
    Closed,
}

/// The lines of a table, without headers for a program.
pub(super) fn table_lines(table: Table, has_headers: bool) -> Vec<Line> {
    if has_headers { table.fitted(wrap::size().width) } else { table.bare() }
}

/// Prints lines.
pub(super) fn print_lines<L: Into<Line>>(lines: impl IntoIterator<Item = L>) -> anyhow::Result<Reader> {
    let width = wrap::size().width;
    let lines = lines.into_iter().flat_map(|line| line.into().wrapped(width));
    let text: String = lines.map(|line| line + "\n").collect();
    write_to(&mut anstream::stdout().lock(), text.as_bytes())
}

/// Prints lines from the top of the terminal, over those that are there.
pub(super) fn redraw(lines: &[Line]) -> anyhow::Result<Reader> {
    let size = wrap::size();
    // Without colours the stream would remove all other escapes too.
    let is_plain = anstream::stdout().current_choice() == anstream::ColorChoice::Never;
    let shown = |line: String| if is_plain { strip_str(&line).to_string() } else { line };
    let lines = lines.iter().flat_map(|line| line.wrapped(size.width)).map(shown).collect();
    print_own(redrawn(lines, size.height).as_bytes())
}

/// The lines over those on a terminal with this many lines. A screen that scrolls would lose its top.
fn redrawn(mut lines: Vec<String>, height: Option<usize>) -> String {
    // The cursor is on the last line.
    let n_shown = height.map_or(lines.len(), |height| height.saturating_sub(1));
    if lines.len() > n_shown {
        let n_whole = n_shown.saturating_sub(1);
        let n_more = lines.len() - n_whole;
        lines.truncate(n_whole);
        lines.push(format!("and {n_more} more lines"));
    }
    let ends = format!("{ERASE_LINE}\n");
    let lines: String = lines.into_iter().flat_map(|line| [line, ends.clone()]).collect();
    format!("{TOP}{lines}{ERASE_REST}")
}

/// Prints an object as JSON.
pub(super) fn print_json(object: &Value) -> anyhow::Result<Reader> {
    let text = serde_json::to_string_pretty(object)?;
    print_own(format!("{}\n", printable_json(&text)).as_bytes())
}

/// Prints objects as documents of YAML.
pub(super) fn print_yaml(objects: &[Value]) -> anyhow::Result<Reader> {
    let documents: Vec<String> = objects.iter().map(yaml).collect::<Result<_, _>>()?;
    print_own(documents.join("---\n").as_bytes())
}

/// Prints a document of this program, which has no text of other writers.
pub(super) fn print_own(document: &[u8]) -> anyhow::Result<Reader> {
    write_to(&mut std::io::stdout().lock(), document)
}

fn write_to(out: &mut impl Write, text: &[u8]) -> anyhow::Result<Reader> {
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::Open),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Closed),
        Err(error) => Err(error).context("can't write to standard output"),
    }
}

/// Prints a line on standard error. A command does not fail because it can't.
pub(super) fn note(line: impl fmt::Display) {
    let text = line.to_string();
    let indent = text.len() - text.trim_start_matches(' ').len() + 2;
    let line = Line::from(text);
    let lines = if std::io::stderr().is_terminal() {
        line.below(indent).wrapped(wrap::size().width)
    } else {
        vec![line.to_string()]
    };
    let _ = writeln!(std::io::stderr().lock(), "{}", lines.join("\n"));
}

/// Prints a question on standard error. Its answer is on the same line.
pub(super) fn ask(question: &str) -> anyhow::Result<()> {
    let mut errors = std::io::stderr().lock();
    write!(errors, "{} ", printable(question)).and_then(|()| errors.flush()).context("can't ask")
}

/// An object as YAML. Marks of direction have escapes only in double quotes, and the writer leaves them there.
fn yaml(object: &Value) -> anyhow::Result<String> {
    let text = serde_saphyr::to_string(&Quoted(object))?;
    Ok(printable_json(&text).into_owned())
}

/// A value with double quotes around each string that has a hidden character.
struct Quoted<'a>(&'a Value);

impl Serialize for Quoted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) if text.contains(|char| char != '\n' && is_hidden(char)) => {
                DoubleQuoted(text).serialize(serializer)
            }
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(&Quoted(item)))?;
                list.end()
            }
            Value::Object(fields) => {
                let mut object = serializer.serialize_map(Some(fields.len()))?;
                fields.iter().try_for_each(|(name, field)| object.serialize_entry(name, &Quoted(field)))?;
                object.end()
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                other.serialize(serializer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOSTILE: &str = "a\u{1b}]0;title\u{7}\u{9b}31m\u{202e}b\u{2028}\u{feff}\u{7f}";

    /// A pipe without a reader.
    struct Unread(ErrorKind);

    impl Write for Unread {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_seen_enough_is_no_error() {
        assert_eq!(write_to(&mut Vec::new(), b"text").unwrap(), Reader::Open);
        assert_eq!(write_to(&mut Unread(ErrorKind::BrokenPipe), b"text").unwrap(), Reader::Closed);
        assert!(write_to(&mut Unread(ErrorKind::StorageFull), b"text").is_err());
    }

    #[test]
    fn a_line_has_only_our_colours() {
        let line = Line::from(HOSTILE).and(WRONG, "x\n\u{1b}[32m");
        let shown = r"a\u{1b}]0;title\u{7}\u{9b}31m\u{202e}b\u{2028}\u{feff}\u{7f}";
        assert_eq!(line.to_string(), format!(r"{shown}{WRONG}x\n\u{{1b}}[32m{WRONG:#}"));
        let plain = strip_str(&line.to_string()).to_string();
        assert_eq!(plain, format!(r"{shown}x\n\u{{1b}}[32m"));
    }

    #[test]
    fn a_screen_is_redrawn_from_the_top_and_does_not_scroll() {
        let draw = |n: usize, height| redrawn((1..=n).map(|n| n.to_string()).collect(), height);
        assert_eq!(draw(2, Some(24)), format!("{TOP}1{ERASE_LINE}\n2{ERASE_LINE}\n{ERASE_REST}"));
        assert_eq!(draw(3, Some(4)).matches('\n').count(), 3);
        let cut = format!("{TOP}1{ERASE_LINE}\nand 3 more lines{ERASE_LINE}\n{ERASE_REST}");
        assert_eq!(draw(4, Some(3)), cut);
        assert_eq!(draw(100, None).matches('\n').count(), 100);
    }

    #[test]
    fn yaml_has_escapes_and_keeps_its_strings() {
        let hidden: String = ('\0'..='\u{feff}').filter(|char| is_hidden(*char) && *char != '\n').collect();
        for object in [
            json!({"name": HOSTILE, "list": [HOSTILE, {"more": "\u{202e}"}], "n": 1}),
            json!({"all": hidden}),
            json!({"lines": "a\n\u{202e}b\n"}),
            json!({"plain": "10.0.0.0/24", "text": "two\nlines\n"}),
        ] {
            let text = yaml(&object).unwrap();
            assert!(!text.contains(|char| is_hidden(char) && char != '\n'), "{text:?}");
            let read: Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(read, object, "{text}");
        }
        // As without quotes that nothing needs.
        let plain = json!({"a": ["x", "1"], "b": {"c": null, "d": true}});
        assert_eq!(yaml(&plain).unwrap(), serde_saphyr::to_string(&plain).unwrap());
    }
}
