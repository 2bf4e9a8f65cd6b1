//! Tables as kubectl prints them: without borders, and with two spaces between columns.
//!
//! A table that is wider than the screen continues its last column on further lines. If that leaves too little room for
//! it, the columns that do not fit follow below each row, with their headers.

use anstyle::Style;
use textwrap::core::display_width;

use super::line::Line;
use crate::model::printable::printable;

/// The spaces between two columns.
const GAP: usize = 2;
/// The smallest width in which the last column is continued.
const NARROWEST: usize = 30;
/// The indentation of the columns that follow below their row.
const INDENT: usize = 4;

/// A table with columns of different headers.
#[derive(Debug)]
pub(in crate::cli) struct Table {
    headers: Vec<String>,
    rows: Vec<(Style, Vec<String>)>,
}

impl Table {
    /// A table without rows.
    pub(in crate::cli) fn new<'a>(headers: impl IntoIterator<Item = &'a str>) -> Self {
        Self { headers: headers.into_iter().map(ToOwned::to_owned).collect(), rows: Vec::new() }
    }

    /// Adds a row, with a cell for each header.
    pub(in crate::cli) fn add(&mut self, style: Style, cells: impl IntoIterator<Item = String>) {
        // A line separator in a cell would be a further line of the table.
        let cells = cells.into_iter().map(|cell| printable(&cell).into_owned());
        self.rows.push((style, cells.collect()));
    }

    /// For a program: rows without headers, one line each.
    pub(super) fn bare(self) -> Vec<Line> {
        let widths = self.widths(|_| 0);
        self.rows.iter().map(|(style, cells)| Line::painted(*style, row(cells, &widths))).collect()
    }

    /// For people, on a screen of this width.
    pub(super) fn fitted(self, width: usize) -> Vec<Line> {
        let widths = self.widths(display_width);
        let ends: Vec<usize> = widths
            .iter()
            .scan(0, |end, width| {
                *end += width + GAP;
                Some(*end - GAP)
            })
            .collect();
        let fitting = ends.iter().take_while(|end| **end <= width).count();
        let before_last = ends.iter().rev().nth(1).map_or(0, |end| end + GAP);
        let has_all = fitting == ends.len() || before_last + NARROWEST <= width;
        let n_columns = if has_all { ends.len() } else { fitting.max(1) };
        let mut lines = vec![Line::from(row(&self.headers[..n_columns], &widths))];
        for (style, cells) in &self.rows {
            let (above, below) = cells.split_at(n_columns.min(cells.len()));
            let line = Line::painted(*style, row(above, &widths));
            lines.push(if has_all { line.below(before_last) } else { line });
            let named = self.headers[n_columns..].iter().zip(below).filter(|(_, cell)| *cell != "-");
            let named: Vec<String> =
                named.map(|(header, cell)| format!("{}: {cell}", header.to_lowercase())).collect();
            if !named.is_empty() {
                let text = format!("{}{}", " ".repeat(INDENT), named.join("; "));
                lines.push(Line::painted(*style, text).below(INDENT + GAP));
            }
        }
        lines
    }

    /// The width of each column.
    fn widths(&self, of_header: impl Fn(&str) -> usize) -> Vec<usize> {
        let of_cells = |column: usize| {
            self.rows.iter().filter_map(move |(_, cells)| Some(display_width(cells.get(column)?)))
        };
        let headers = self.headers.iter().enumerate();
        headers
            .map(|(column, header)| of_cells(column).chain([of_header(header)]).max().unwrap_or(0))
            .collect()
    }
}

/// Cells in their columns.
fn row(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| {
        let padding = width.saturating_sub(display_width(cell));
        format!("{cell}{}", " ".repeat(padding + GAP))
    });
    padded.collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::line::PLAIN;
    use super::*;

    fn check(width: usize, expected: &[&str]) {
        let mut table = Table::new(["BLOCK", "IS", "POOL", "WHY"]);
        let cells = |texts: [&str; 4]| texts.map(ToOwned::to_owned);
        table.add(
            PLAIN,
            cells(["10.0.0.0/28", "held", "rack", "the agent of this node uses 5 of 14 addresses"]),
        );
        table.add(PLAIN, cells(["10.0.16.0/28", "節", "-", "-"]));
        let lines = table.fitted(width);
        let shown: Vec<String> = lines.iter().flat_map(|line| line.wrapped(width)).collect();
        assert_eq!(shown, expected, "{width}");
    }

    #[test]
    fn the_last_column_is_continued_where_it_has_room() {
        check(
            80,
            &[
                "BLOCK         IS    POOL  WHY",
                "10.0.0.0/28   held  rack  the agent of this node uses 5 of 14 addresses",
                "10.0.16.0/28  節    -     -",
            ],
        );
        check(
            60,
            &[
                "BLOCK         IS    POOL  WHY",
                "10.0.0.0/28   held  rack  the agent of this node uses 5 of",
                "                          14 addresses",
                "10.0.16.0/28  節    -     -",
            ],
        );
    }

    #[test]
    fn columns_that_do_not_fit_follow_below_their_row() {
        check(
            40,
            &[
                "BLOCK         IS    POOL",
                "10.0.0.0/28   held  rack",
                "    why: the agent of this node uses 5",
                "      of 14 addresses",
                "10.0.16.0/28  節    -",
            ],
        );
        check(
            18,
            &[
                "BLOCK         IS",
                "10.0.0.0/28   held",
                "    pool: rack;",
                "      why: the",
                "      agent of",
                "      this node",
                "      uses 5 of 14",
                "      addresses",
                "10.0.16.0/28  節",
            ],
        );
    }

    #[test]
    fn a_program_gets_one_line_per_row() {
        let mut table = Table::new(["BLOCK", "WHY"]);
        table.add(PLAIN, ["a".to_owned(), "a long text ".repeat(20)]);
        assert_eq!(table.bare(), [Line::from(format!("a  {}", "a long text ".repeat(20).trim_end()))]);
    }
}
