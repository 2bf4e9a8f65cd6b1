//! The map as a picture in which each element has its look as attributes.
//!
//! Viewers without style sheets, or without variables in them, draw it the same. It has the colours of the light scheme.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use maud::html;
use regex::{Captures, Regex};

use super::drawing::{GUTTER, Titles, content, title};
use super::layout::{Layout, WIDTH};
use super::{STYLE, by_state, heading, patterns, ranges, urgent_first};
use crate::model::printable::printable_lines;
use crate::view::map::{BlockState, Map};

/// A picture without a script has a title on each block up to this many pieces. With more of them it would be too
/// large.
const MAX_TITLES: usize = 4000;

/// The picture: all pools one below the other.
#[must_use]
pub fn svg(map: &Map) -> String {
    /// The space around the picture.
    const MARGIN: u128 = 100;
    /// The height of a line of text.
    const LINE: u128 = 90;
    let map = &urgent_first(map);
    let n_pieces: usize = ranges(map).map(|range| range.pieces.len()).sum();
    let titles = if n_pieces <= MAX_TITLES { Titles::PerBlock } else { Titles::None };
    let (mut y, mut parts) = (MARGIN + 3 * LINE, Vec::new());
    for pool in &map.pools {
        y += LINE;
        parts.push(html! {
            text.pool x=(MARGIN) y=(y) { (pool.name) tspan.of dx="30" { (pool.state) } }
        });
        y += LINE / 3;
        for family in &pool.families {
            for range in &family.ranges {
                let layout = Layout::of(range);
                y += LINE;
                parts.push(html! {
                    text.range x=(MARGIN) y=(y) { (range.cidr) tspan.of dx="30" { (heading(family, range)) } }
                    svg x=(MARGIN) y=(y + LINE / 3) width=(GUTTER + WIDTH) height=(layout.height)
                        viewBox={ "0 0 " (GUTTER + WIDTH) " " (layout.height) }
                    {
                        (content(family, range, &layout, titles))
                    }
                });
                y += layout.height + LINE / 2;
            }
        }
    }
    let (width, height) = (GUTTER + WIDTH + 2 * MARGIN, y + MARGIN);
    let totals = by_state(ranges(map));
    let shown_states = BlockState::ALL.into_iter().filter(|state| totals.contains_key(state));
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width / 4) height=(height / 4) viewBox={ "0 0 " (width) " " (height) } {
            title { "Address space, as of " (format!("{:.0}", map.at)) }
            defs { (patterns()) }
            rect.page width=(width) height=(height) {}
            text.title x=(MARGIN) y=(MARGIN + LINE) { "Address space" tspan.of dx="30" { (format!("{:.0}", map.at)) } }
            @for (index, state) in shown_states.enumerate() {
                @let x = MARGIN + index as u128 * 340;
                rect class={ "s-" (state.as_str()) } x=(x) y=(MARGIN + 2 * LINE - 44) width="52" height="52" rx="8" {}
                text.key x=(x + 70) y=(MARGIN + 2 * LINE) { (title(state)) }
            }
            @for part in &parts { (part) }
        }
    };
    let picture = with_attributes(&picture.into_string());
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", printable_lines(&picture))
}

/// A rule of the style sheet.
struct Rule {
    /// The element that it is about; empty for any.
    element: &'static str,
    /// The class of the element; empty for any.
    class: &'static str,
    attributes: Vec<(&'static str, String)>,
}

/// The rules for pictures, from the style sheet of the page.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let rules = STYLE.split("/* Pictures").nth(1).and_then(|rules| rules.split("*/").nth(1));
    let rules =
        rules.and_then(|rules| rules.split('@').next()).expect("the style sheet has a part for pictures");
    rules.split('}').filter_map(rule).collect()
});

/// A rule for one element; `None` for one inside of another element of the page.
fn rule(text: &'static str) -> Option<Rule> {
    let (selector, declarations) = text.split_once('{')?;
    let selector = selector.trim();
    let selector = selector.strip_prefix("svg ").unwrap_or(selector);
    let (element, class) = selector.split_once('.').unwrap_or((selector, ""));
    let declared = declarations.split(';').filter_map(|declaration| declaration.split_once(':'));
    let attributes = declared.map(|(name, value)| (name.trim(), colour(value.trim()))).collect();
    (!selector.contains(' ')).then_some(Rule { element, class, attributes })
}

/// A value of the style sheet, or the value of the variable that it names. The first scheme is the light one.
fn colour(value: &str) -> String {
    let Some(name) = value.strip_prefix("var(").and_then(|rest| rest.strip_suffix(')')) else {
        return value.to_owned();
    };
    let value = STYLE.split(&format!("{name}: ")).nth(1).and_then(|rest| rest.split(';').next());
    value.expect("the style sheet sets each variable that it uses").to_owned()
}

/// The same picture, with the rules of the classes in place of the classes.
fn with_attributes(picture: &str) -> String {
    let pattern = Regex::new(r#"<([a-z]+)([^<>]*?) class="([^"]*)""#).expect("the pattern is well formed");
    let replaced = pattern.replace_all(picture, |found: &Captures<'_>| {
        let classes: Vec<&str> = found[3].split(' ').collect();
        let mut attributes = BTreeMap::new();
        for rule in RULES.iter() {
            let is_about = [&found[1], ""].contains(&rule.element)
                && (rule.class.is_empty() || classes.contains(&rule.class));
            if is_about {
                attributes.extend(rule.attributes.iter().map(|(name, value)| (*name, value)));
            }
        }
        let mut element = format!("<{}{}", &found[1], &found[2]);
        for (name, value) in attributes {
            // A write to a string does not fail.
            let _ = write!(element, r#" {name}="{value}""#);
        }
        element
    });
    replaced.into_owned()
}
