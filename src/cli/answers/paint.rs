//! Colours of answers for people.
//!
//! They reach terminals only: `anstream` removes them elsewhere, and where `NO_COLOR` is set
//! ([`super::Cluster::print`]).

use anstyle::{AnsiColor, Style};

/// Something is wrong, and pods wait for it.
pub(super) const WRONG: Style = AnsiColor::Red.on_default().bold();
/// Something waits, or is in progress.
pub(super) const WAITS: Style = AnsiColor::Yellow.on_default();
/// Nothing is wrong.
pub(super) const FINE: Style = AnsiColor::Green.on_default();
/// No more than a remark.
pub(super) const PLAIN: Style = Style::new();

/// A text in a style.
pub(super) fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_painted_text_is_the_text_where_nobody_sees_colours() {
        for style in [WRONG, WAITS, FINE, PLAIN] {
            let text = painted(style, "Exhausted");
            assert_eq!(anstream::adapter::strip_str(&text).to_string(), "Exhausted");
            assert_eq!(text == "Exhausted", style == PLAIN);
        }
    }
}
