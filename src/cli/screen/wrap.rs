//! Lines that fit the screen: its width, and the places where a long line may be continued on the next one.

use std::iter;

use terminal_size::terminal_size_of;
use textwrap::core::Word;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// The width where no terminal shows the output.
const PIPED: usize = 100;
/// A text in fewer columns is no longer readable.
const NARROWEST: usize = 40;
/// Commands in texts. They are copied into a shell, so each of them stays on one line, however long it is.
const COMMANDS: [&str; 2] = ["kubectl ", "cilium-node-ipam crd "];
/// The texts after a command.
const ENDS: [&str; 7] = ["; ", ", ", ": ", ". ", " (", ")", "`"];

/// The columns and lines of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: usize,
    /// `None` where no terminal shows the output.
    pub(super) height: Option<usize>,
}

/// The size of standard output. `COLUMNS` is the width wherever it is set.
pub(super) fn size() -> Size {
    let terminal = terminal_size_of(std::io::stdout());
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let width = columns.filter(|n| *n > 0).or(terminal.map(|(width, _)| width.0.into())).unwrap_or(PIPED);
    Size { width: width.max(NARROWEST), height: terminal.map(|(_, height)| height.0.into()) }
}

/// A text in lines of this width. Each line but the first is indented by this many columns.
pub(super) fn wrapped(text: &str, width: usize, indent: usize) -> Vec<String> {
    let indent = " ".repeat(indent);
    let options = Options::new(width)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_separator(WordSeparator::Custom(words))
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Whether a text stays on one line.
pub(super) fn is_one_word(text: &str) -> bool {
    end_of_word(text) == text.len()
}

/// The parts of a text that stay on one line, each with the spaces behind it.
fn words(text: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let mut rest = text;
    Box::new(iter::from_fn(move || {
        let (word, after) = rest.split_at(end_of_word(rest));
        rest = after;
        (!word.is_empty()).then(|| Word::from(word))
    }))
}

/// The end of the first word of a text. A command and a text in backticks are one word.
fn end_of_word(text: &str) -> usize {
    let inner = text.trim_start_matches(['(', '`']);
    let opened = text.len() - inner.len();
    let is_quoted = text[..opened].ends_with('`');
    let is_command = COMMANDS.iter().any(|command| inner.starts_with(command));
    let kept = if is_quoted {
        inner.find('`')
    } else if is_command {
        Some(ENDS.iter().filter_map(|end| inner.find(end)).min().unwrap_or(inner.len()))
    } else {
        None
    };
    let from = kept.map_or(0, |length| opened + length);
    let space = text[from..].find(' ').map_or(text.len(), |at| from + at);
    text.len() - text[space..].trim_start_matches(' ').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_continues_below_its_text() {
        let lines = wrapped("cause  a first pool has no free block", 20, 7);
        assert_eq!(lines, ["cause  a first pool", "       has no free", "       block"]);
        assert_eq!(wrapped("", 20, 7), [""]);
        assert_eq!(wrapped("  1  short", 20, 5), ["  1  short"]);
        assert_eq!(
            wrapped("a-word-that-is-longer-than-the-line x", 20, 2),
            ["a-word-that-is-longer-than-the-line", "  x"]
        );
    }

    #[test]
    fn a_command_is_not_broken() {
        let lines = wrapped("no leader: kubectl -n kube-system get pods -l a=b; look there, and wait", 20, 2);
        let command = "  kubectl -n kube-system get pods -l a=b;";
        assert_eq!(lines, ["no leader:", command, "  look there, and", "  wait"]);
        let lines =
            wrapped("give it up: `kubectl delete nib 10.0.0.0-28`, or (kubectl get nip,nib -A) wait", 20, 0);
        let commands = ["`kubectl delete nib 10.0.0.0-28`,", "or", "(kubectl get nip,nib -A)"];
        assert_eq!(lines, ["give it up:", commands[0], commands[1], commands[2], "wait"]);
        assert!(is_one_word("kubectl get nip -o wide") && !is_one_word("kubectl get nip; wait"));
        assert_eq!(wrapped("an open `quote of a text", 12, 0), ["an open", "`quote of a", "text"]);
    }

    #[test]
    fn colours_take_no_columns_and_wide_characters_take_two() {
        assert_eq!(wrapped("\u{1b}[31mred\u{1b}[0m red", 7, 0), ["\u{1b}[31mred\u{1b}[0m red"]);
        assert_eq!(wrapped("節点 節点", 8, 0), ["節点", "節点"]);
    }
}
