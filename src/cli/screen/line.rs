//! A line for people: texts of any content, each in a style.

use std::fmt;

use anstyle::Style;

use super::wrap;
use crate::model::printable::printable;

/// No more than a remark.
pub(in crate::cli) const PLAIN: Style = Style::new();

/// A line for people: texts of any content, each in a style.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct Line {
    texts: Vec<(Style, String)>,
    /// The column at which it continues, if it may be broken.
    below: Option<usize>,
}

impl<T: Into<String>> From<T> for Line {
    fn from(text: T) -> Self {
        Self::painted(PLAIN, text)
    }
}

impl Line {
    /// A text in a style.
    pub(in crate::cli) fn painted(style: Style, text: impl Into<String>) -> Self {
        Self::default().and(style, text)
    }

    /// A text behind a label of this width. It continues below the text, and a command stays beside its label.
    pub(in crate::cli) fn labelled(label: &str, width: usize, text: &str) -> Self {
        let line = Self::from(format!("{label:<width$}{text}"));
        if wrap::is_one_word(text) { line } else { line.below(width) }
    }

    /// The line with a further text.
    pub(in crate::cli) fn and(mut self, style: Style, text: impl Into<String>) -> Self {
        self.texts.push((style, text.into()));
        self
    }

    /// The line, which continues at this column where it is longer than the screen is wide. All other lines stay as
    /// they are.
    pub(in crate::cli) const fn below(mut self, column: usize) -> Self {
        self.below = Some(column);
        self
    }

    /// Its lines on a screen of this width.
    pub(super) fn wrapped(&self, width: usize) -> Vec<String> {
        match self.below {
            Some(column) => wrap::wrapped(&self.to_string(), width, column),
            None => vec![self.to_string()],
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.texts.iter().try_for_each(|(style, text)| write!(f, "{style}{}{style:#}", printable(text)))
    }
}
