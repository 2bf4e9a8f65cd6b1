//! The picture of the dashboard in the documents: each panel in its place, with its title. It has no data, because a
//! Grafana draws that. `UPDATE_DOCS=1` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::{WIDTH, dashboard, list, text};

const PICTURE: &str = "docs/images/dashboard.svg";

/// The width of a column of Grafana, the height of a line of panels, and the space between them.
const COLUMN: u64 = 38;
const LINE: u64 = 50;
const GAP: u64 = 6;

/// The styles of the other pictures.
const HEAD: &str = r"<style>
rect.page{fill:#fff;stroke:#d0d7de}
.box{fill:#eef3fb;stroke:#3b5b92;stroke-width:1}
text{fill:#222}.row{font-weight:600;font-size:15px}.mark{stroke:#3b5b92;stroke-width:1.5;fill:none}.bar{fill:#3b5b92}
@media (prefers-color-scheme: dark){rect.page{fill:#0d1117;stroke:#30363d}text{fill:#eee}.box{fill:#22324f}.mark{stroke:#8fb0e8}.bar{fill:#8fb0e8}}
</style>
";

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// A sign for the kind of a panel, in the lower part of its box.
fn sign(kind: &str, x: u64, y: u64, width: u64) -> String {
    let step = width / 8;
    match kind {
        "stat" => format!(
            r#"<path class="mark" d="M{} {y}v16M{} {y}v16M{} {}h20M{} {}h20"/>"#,
            x + 5,
            x + 13,
            x,
            y + 5,
            x - 1,
            y + 11
        ),
        "timeseries" => format!(
            r#"<path class="mark" d="M{x} {}l{step} -3l{step} -5l{step} 2l{step} -4l{step} 1l{step} 3l{step} -6"/>"#,
            y + 15
        ),
        "bargauge" => (0..3).fold(String::new(), |bars, n| {
            bars + &format!(
                r#"<rect class="bar" x="{x}" y="{}" width="{}" height="4"/>"#,
                y + 6 * n,
                step * (6 - 2 * n)
            )
        }),
        "state-timeline" => format!(
            r#"<rect class="bar" x="{x}" y="{}" width="{}" height="8"/><rect class="bar" x="{}" y="{}" width="{}" height="8"/>"#,
            y + 4,
            step * 3,
            x + step * 3 + 4,
            y + 4,
            step * 4
        ),
        other => panic!("{other} has no sign"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// The dashboard as a picture. Each line of panels has the same height; in Grafana their heights differ.
fn drawn(dashboard: &Value) -> String {
    let mut lines: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for panel in list(&dashboard["panels"]) {
        lines.entry(number(&panel["gridPos"]["y"])).or_default().push(panel);
    }
    let (mut body, mut y) = (String::new(), 16);
    for panels in lines.into_values() {
        let is_row = panels.iter().any(|panel| panel["type"] == "row");
        for panel in panels {
            let (at, title) = (&panel["gridPos"], escaped(text(&panel["title"])));
            let x = 14 + number(&at["x"]) * COLUMN;
            let width = number(&at["w"]) * COLUMN - GAP;
            if is_row {
                let _ = writeln!(body, r#"<text class="row" x="{x}" y="{}">{title}</text>"#, y + 16);
                continue;
            }
            let _ = writeln!(
                body,
                r#"<rect class="box" x="{x}" y="{y}" width="{width}" height="{LINE}" rx="4"/>"#
            );
            let _ = writeln!(body, r#"<text x="{}" y="{}">{title}</text>"#, x + 10, y + 18);
            let _ = writeln!(body, "{}", sign(text(&panel["type"]), x + 10, y + 27, width - 20));
        }
        y += if is_row { 26 } else { LINE + GAP };
    }
    let (width, height) = (WIDTH * COLUMN + 22, y + 8);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>The panels of the dashboard</title>\n{HEAD}\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n{body}</svg>\n",
        width - 1,
        height - 1
    )
}

#[test]
fn the_picture_has_every_panel_in_its_place() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE);
    let drawn = drawn(&dashboard());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, drawn).unwrap();
    } else {
        let present = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(present == drawn, "{PICTURE} is old; UPDATE_DOCS=1 writes it");
    }
}
