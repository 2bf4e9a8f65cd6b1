//! The map of the address space as a page and as a picture.
//!
//! Both are one file that asks for nothing elsewhere; the policy in the page forbids it to. The page is complete
//! without its script, which adds hover, click, keys and search from the data at its end.

mod data;
mod drawing;
mod layout;
mod picture;

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::model::counted::{counted, shown};
use crate::model::names::ten_by_number;
use crate::model::pool::RangeState;
use crate::model::printable::printable_lines;
use crate::model::status::FamilyCounts;
use crate::net::cidr::Family;
use crate::view::map::{BlockState, FamilyMap, Map, PoolMap, RangeMap};
use data::{encoded, families};
use drawing::{GUTTER, Titles, content, summary, title};
use layout::{Layout, WIDTH};

pub use picture::svg;

const STYLE: &str = include_str!("map.css");
const SCRIPT: &str = include_str!("map.js");

/// Nothing is fetched, sent or framed.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'";

/// The policy for the header of an answer with the page. It also keeps other pages from framing it, which the page
/// itself can't.
#[must_use]
pub fn header_policy() -> String {
    format!("{POLICY}; frame-ancestors 'none'")
}

/// The page.
#[must_use]
pub fn html(map: &Map) -> String {
    let map = &urgent_first(map);
    let layouts: Vec<Layout> = ranges(map).map(Layout::of).collect();
    let mut drawn = layouts.iter();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Address space" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                svg width="0" height="0" style="position:absolute" aria-hidden="true" { defs { (patterns()) } }
                (header(map))
                main {
                    (attention(map))
                    (overview(map))
                    @for (number, pool) in map.pools.iter().enumerate() { (section(number, pool, &mut drawn)) }
                    @if map.pools.is_empty() { p { "The cluster has no pools." } }
                }
                aside #detail hidden aria-label="Block" {
                    button #close type="button" aria-label="Close" { "×" }
                    div #detail-text aria-live="polite" {}
                }
                div #tip role="tooltip" hidden {}
                div #said.hidden aria-live="polite" {}
                script #data type="application/json" { (PreEscaped(encoded(map, &layouts))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    printable_lines(&page.into_string()).into_owned()
}

/// The same map with the pools first that need a look: blocks on two nodes, then little that is free.
fn urgent_first(map: &Map) -> Map {
    let mut map = map.clone();
    map.pools.sort_by_cached_key(|pool| {
        let states = by_state(pool.families.iter().flat_map(|family| &family.ranges));
        let contested = states.contains_key(&BlockState::Contested);
        let free = pool.families.iter().map(|family| {
            let FamilyCounts { blocks, free, .. } = family.counts;
            u128::from(free) * 1000 / u128::from(blocks.max(1))
        });
        (!contested, free.min(), pool.name.clone())
    });
    map
}

fn header(map: &Map) -> Markup {
    let totals = by_state(ranges(map));
    html! {
        header {
            div.bar {
                h1 { "Address space" }
                p.of {
                    @match &map.mode {
                        Ok(mode) => { "mode " (mode) ", " },
                        Err(why) => { strong { "passive: " (why) } ", " },
                    }
                    (counted(map.pools.len(), "pool")) ", as of "
                    time datetime=(format!("{:.0}", map.at)) { (format!("{:.0}", map.at)) }
                }
                form #search role="search" autocomplete="off" {
                    label for="query" { "Find an address, node or pool" }
                    input #query type="search" list="matches" placeholder="10.0.4.17, node-12, pool" spellcheck="false";
                    datalist #matches {}
                    button type="submit" { "Find" }
                    output #found for="query" aria-live="polite" {}
                }
            }
            ul.legend aria-label="Legend" {
                @for state in BlockState::ALL {
                    @let count = totals.get(&state).copied().unwrap_or_default();
                    @if count > 0 || is_usual(state) {
                        li {
                            button type="button" aria-pressed="false" data-state=(state.as_str()) title=(meaning(state)) {
                                (swatch(state, None)) (title(state)) " " span.n { (shown(count)) }
                            }
                        }
                    }
                }
                li.shades {
                    "used: "
                    @for (shade, text) in ["0 %", "1 %", "25 %", "50 %", "75 %", "90 %"].iter().enumerate() {
                        span { (swatch(BlockState::Held, Some(shade))) (text) }
                    }
                }
            }
        }
    }
}

/// Whether the legend has a state that no block is in.
const fn is_usual(state: BlockState) -> bool {
    matches!(state, BlockState::Free | BlockState::Held | BlockState::Draining | BlockState::Cooling)
}

/// The meaning of a state.
const fn meaning(state: BlockState) -> &'static str {
    match state {
        BlockState::Free => "The next node may get it.",
        BlockState::Held => "A node holds it. The stronger the color, the more of its addresses are used.",
        BlockState::Leaving => {
            "A node holds it until it can do without it: its range drains, or its pool is being deleted."
        }
        BlockState::Draining => "It is leaving its node, and takes no new pods.",
        BlockState::Releasing => "Its node has given it up, and that is not proven yet.",
        BlockState::Cooling => "It waits before another node may get it.",
        BlockState::Closed => "Its CIDR is Cordoned or Draining, or its pool gives out no blocks.",
        BlockState::Excluded => "The pool excludes it, or has no address in it to offer.",
        BlockState::Foreign => "Something takes it that is no claim of this pool.",
        BlockState::Contested => "A node holds it, and another one has addresses of it too.",
        BlockState::Older => "An older pool declares it as well, and keeps it.",
    }
}

fn swatch(state: BlockState, shade: Option<usize>) -> Markup {
    let shade = shade.map(|shade| format!(" u{shade}")).unwrap_or_default();
    html! {
        svg.swatch viewBox="0 0 48 48" aria-hidden="true" {
            rect class={ "s-" (state.as_str()) (shade) } width="48" height="48" rx="8" {}
        }
    }
}

/// The ranges of all pools, in the order of the pools and their families.
fn ranges(map: &Map) -> impl Iterator<Item = &RangeMap> {
    families(map).flat_map(|(_, family)| &family.ranges)
}

/// How many blocks of these ranges are in each state.
fn by_state<'a>(ranges: impl IntoIterator<Item = &'a RangeMap>) -> BTreeMap<BlockState, u128> {
    let mut counts: BTreeMap<BlockState, u128> = BTreeMap::new();
    for (state, count) in ranges.into_iter().flat_map(RangeMap::by_state) {
        let total = counts.entry(state).or_default();
        *total = total.saturating_add(count);
    }
    counts
}

/// The nodes without addresses and the problems, if there are any.
fn attention(map: &Map) -> Markup {
    /// The maximum number of problems on the page. `status` shows all.
    const MAX_PROBLEMS: usize = 50;
    html! {
        @if !map.waiting.is_empty() || !map.problems.is_empty() {
            section.overview aria-labelledby="problems" {
                h2 #problems.hidden { "Problems" }
                @if !map.waiting.is_empty() {
                    p.waiting { (counted(map.waiting.len(), "node")) " without addresses: " (ten_by_number(&map.waiting)) }
                }
                ul.problems {
                    @for problem in map.problems.iter().take(MAX_PROBLEMS) {
                        li { strong { (problem.kind) } " " (problem.message) }
                    }
                    @if map.problems.len() > MAX_PROBLEMS { li { "and " (map.problems.len() - MAX_PROBLEMS) " more" } }
                }
            }
        }
    }
}

/// The table of all pools: for a glance, and for a screen reader in place of the pictures.
fn overview(map: &Map) -> Markup {
    html! {
        section.overview aria-labelledby="pools" {
            h2 #pools.hidden { "Pools" }
            div.scroll tabindex="0" role="region" aria-labelledby="pools" {
                table {
                    caption.hidden { "The blocks of each pool by state" }
                    thead { tr {
                        th scope="col" { "Pool" } th scope="col" { "State" } th scope="col" { "Family" }
                        th scope="col" { "Blocks by state" } th.n scope="col" { "Blocks" } th.n scope="col" { "Held" }
                        th.n scope="col" { "Free" } th.n scope="col" { "Draining" } th.n scope="col" { "Cooling" }
                        th.n scope="col" { "Unavailable" } th.n scope="col" { "Addresses used" }
                    } }
                    tbody { @for (number, pool) in map.pools.iter().enumerate() { (rows(number, pool)) } }
                }
            }
        }
    }
}

fn rows(number: usize, pool: &PoolMap) -> Markup {
    let name = html! { a href={ "#pool-" (number) } { (pool.name) } };
    html! {
        @if pool.families.is_empty() {
            tr { th scope="row" { (name) } td { (badge(&pool.state)) } td colspan="9" { "no readable ranges" } }
        }
        @for family in &pool.families {
            @let FamilyCounts { blocks, held, draining, cooling, free, unavailable, .. } = family.counts;
            tr {
                th scope="row" { (name) }
                td { (badge(&pool.state)) }
                td { (family.family) }
                td.share { (bar(&by_state(&family.ranges))) }
                td.n { (shown(blocks)) }
                td.n { (shown(held)) }
                td.n.none[free == 0] { (shown(free)) }
                td.n { (shown(draining)) }
                td.n { (shown(cooling)) }
                td.n { (shown(unavailable)) }
                td.n { @match family.counts.used_percent() {
                    Some(percent) => { (percent) " %" },
                    None => { "–" },
                } }
            }
        }
    }
}

fn badge(state: &str) -> Markup {
    let is_calm = ["Cordoned", "Draining", "Deleting"].contains(&state);
    html! { span.badge.good[state == "Ready"].calm[is_calm] { (state) } }
}

/// The shares of the states of blocks, side by side.
fn bar(counts: &BTreeMap<BlockState, u128>) -> Markup {
    /// The order from taken to free.
    const ORDER: [BlockState; 11] = [
        BlockState::Contested,
        BlockState::Held,
        BlockState::Leaving,
        BlockState::Draining,
        BlockState::Releasing,
        BlockState::Cooling,
        BlockState::Foreign,
        BlockState::Older,
        BlockState::Excluded,
        BlockState::Closed,
        BlockState::Free,
    ];
    /// A few blocks among many are visible too.
    const LEAST: u128 = 12;
    const LENGTH: u128 = 1000;
    let all = counts.values().fold(0u128, |sum, count| sum.saturating_add(*count)).max(1);
    let mut x = 0;
    let mut parts = Vec::new();
    for state in ORDER {
        let Some(count) = counts.get(&state).filter(|count| **count > 0) else { continue };
        // Of so many blocks that they can't be multiplied, a thousandth is a number without a remainder worth drawing.
        let width = count.checked_mul(LENGTH).map_or_else(|| count / (all / LENGTH), |scaled| scaled / all);
        let width = width.max(LEAST).min(LENGTH - x);
        parts.push((state, x, width));
        x += width;
    }
    html! {
        svg.shares viewBox="0 0 1000 60" preserveAspectRatio="none" aria-hidden="true" {
            @for (state, x, width) in &parts {
                rect class=(plain(*state)) x=(x) width=(width) height="60" {}
            }
        }
    }
}

/// The class of the colour of a state without its pattern, which a bar would distort.
fn plain(state: BlockState) -> String {
    let has_pattern = !matches!(state, BlockState::Free | BlockState::Held);
    format!("{}-{}", if has_pattern { "b" } else { "s" }, state.as_str())
}

fn section<'a>(number: usize, pool: &PoolMap, layouts: &mut impl Iterator<Item = &'a Layout>) -> Markup {
    html! {
        section.pool id={ "pool-" (number) } aria-labelledby={ "pool-name-" (number) } {
            h2 id={ "pool-name-" (number) } { (pool.name) " " (badge(&pool.state)) }
            @for family in &pool.families {
                @for range in &family.ranges {
                    @if let Some(layout) = layouts.next() { (field(pool, family, range, layout)) }
                }
                @if !family.outside.is_empty() {
                    div.outside data-outside=(family.outside.len()) {
                        p {
                            "Outside of the ranges of the pool: "
                            @for (cidr, block) in family.outside.iter().take(50) {
                                span.chip {
                                    (swatch(block.state, None)) (cidr) " "
                                    @if let Some(node) = &block.node { (node) }
                                }
                            }
                            @if family.outside.len() > 50 { "and " (family.outside.len() - 50) " more" }
                        }
                    }
                }
            }
        }
    }
}

/// A range with its picture.
fn field(pool: &PoolMap, family: &FamilyMap, range: &RangeMap, layout: &Layout) -> Markup {
    let heading = heading(family, range);
    html! {
        figure {
            figcaption { strong { (range.cidr) } " " span.of { (heading) } }
            @if range.pieces.is_empty() {
                p.of { "The range is smaller than a block." }
            } @else {
                div.field tabindex="0" role="application" aria-roledescription="map of blocks"
                    aria-label={ "Pool " (pool.name) ", " (range.cidr) ", " (summary(range))
                        ". Arrow keys move between blocks, Enter shows one." }
                {
                    svg role="img" aria-hidden="true" class=[(layout.columns > 256).then_some("wide")]
                        viewBox={ "0 0 " (GUTTER + WIDTH) " " (layout.height) }
                    {
                        (content(family, range, layout, Titles::None))
                        g.outlines {}
                    }
                }
                details.list { summary { "Table" } div.scroll {} }
            }
        }
    }
}

/// The words beside the CIDR of a range.
fn heading(family: &FamilyMap, range: &RangeMap) -> String {
    let declared = match range.declared {
        RangeState::Active => "",
        RangeState::Cordoned => ", Cordoned",
        RangeState::Draining => ", Draining",
    };
    let size = if family.family == Family::V4 { "/" } else { "IPv6 /" };
    format!("{} of {size}{}{declared}", counted(range.n_blocks(), "block"), family.block_prefix)
}

/// The patterns of states that colour alone would not separate.
fn patterns() -> Markup {
    let striped = [
        ("leaving", "M0 6h24", "rotate(135)"),
        ("draining", "M0 6h24", "rotate(45)"),
        ("releasing", "M0 6h24", "rotate(135)"),
        ("closed", "M0 6h24", "rotate(45)"),
        ("older", "M0 6h24", "rotate(135)"),
        ("excluded", "M0 6h24M6 0v24", "rotate(45)"),
        ("foreign", "M0 6h24M6 0v24", "rotate(0)"),
        ("contested", "M0 6h24M6 0v24", "rotate(45)"),
    ];
    html! {
        @for (name, path, transform) in striped {
            pattern id={ "p-" (name) } width="24" height="24" patternUnits="userSpaceOnUse" patternTransform=(transform) {
                rect class={ "b-" (name) } width="24" height="24" {}
                path class={ "l-" (name) } d=(path) stroke-width="5" {}
            }
        }
        pattern id="p-cooling" width="24" height="24" patternUnits="userSpaceOnUse" {
            rect.b-cooling width="24" height="24" {}
            circle.l-cooling cx="12" cy="12" r="5" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::printable::is_hidden;
    use crate::view::map::tests::Cluster;

    #[test]
    fn a_hostile_name_is_shown_with_escapes() {
        let hostile = "n\u{1b}[31m\u{9b}\u{202e}\u{2028}<b>";
        let mut map = Cluster::default()
            .pool("a", "01", r#""ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.0.0.0/24"}]}"#)
            .claim("10.0.0.0/28", "a", "n1", "Held")
            .claim("10.9.0.0/28", "a", "n1", "Held")
            .map();
        map.mode = Err(hostile.to_owned());
        let pool = &mut map.pools[0];
        (pool.name, pool.state) = (hostile.into(), hostile.to_owned());
        let family = &mut pool.families[0];
        let blocks = family.ranges[0].pieces.iter_mut().map(|piece| &mut piece.block);
        for block in blocks.chain(family.outside.iter_mut().map(|(_, block)| block)) {
            (block.node, block.note) = (Some(hostile.into()), hostile.to_owned());
        }
        let layouts: Vec<Layout> = ranges(&map).map(Layout::of).collect();
        let data: serde_json::Value = serde_json::from_str(&encoded(&map, &layouts)).unwrap();
        let shown = r"n\u{1b}[31m\u{9b}\u{202e}\u{2028}<b>";
        assert_eq!([&data["nodes"][0], &data["notes"][0], &data["ranges"][0]["pool"]], [shown; 3]);
        for text in [html(&map), svg(&map)] {
            assert!(!text.contains(|char| char != '\n' && is_hidden(char)));
            assert!(text.contains(r"n\u{1b}[31m\u{9b}\u{202e}\u{2028}&lt;b&gt;"));
        }
    }
}
