//! The index of the decision records: each record has one row, and a row names only existing records and rooms.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// This name means all rooms.
const ALL: &str = "all";

/// The places beside the rooms of `src` that a record may be about.
const BESIDE: [&str; 2] = ["manifests", "tests"];

#[test]
fn every_record_has_a_row_in_the_index() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut records = BTreeMap::new();
    for entry in fs::read_dir(root.join("docs/decisions"))? {
        let name = entry?.file_name().into_string().ok().context("a name that is no text")?;
        if let Some((number, _)) = name.split_once('-') {
            records.insert(number.parse::<u32>().context(name.clone())?, name);
        }
    }
    let index = fs::read_to_string(root.join("docs/decisions/README.md"))?;
    let rows: Vec<Vec<&str>> = index
        .lines()
        .filter(|line| line.starts_with("| ["))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let link = |number: u32| Some(format!("[{number}]({})", records.get(&number)?));
    let expected: Vec<Option<String>> = records.keys().map(|number| link(*number)).collect();
    let found: Vec<Option<String>> = rows.iter().map(|row| row.first().map(ToString::to_string)).collect();
    ensure!(found == expected, "docs/decisions/README.md needs these rows in order: {expected:#?}");
    for row in &rows {
        let [number, title, status, rooms] = row[..] else { anyhow::bail!("not four cells: {row:?}") };
        ensure!(!title.is_empty(), "{number} has no title");
        if let Some(later) = status.strip_prefix("overtaken by ") {
            for later in later.split(", ") {
                let is_link = expected.iter().flatten().any(|link| link == later);
                ensure!(
                    is_link && later != number,
                    "{number} is overtaken by {later}, which is no other record"
                );
            }
        } else {
            ensure!(status == "valid", "{number} has the status {status:?}");
        }
        for room in rooms.split(", ") {
            let is_room = root.join("src").join(room).is_dir();
            ensure!(is_room || room == ALL || BESIDE.contains(&room), "{number} names the room {room:?}");
        }
    }
    Ok(())
}
