//! The map of the address space: its size, its colours, and its behaviour in a browser.

mod browser;
mod colours;
mod fleet;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use cilium_node_ipam::page;
use tokio::process::Command;

use browser::Browser;
use fleet::fleet;

/// The maximum size of a page or picture at 5,000 nodes.
const LIMIT: usize = 2 * 1024 * 1024;

#[test]
fn pages_of_5000_nodes_are_below_2_mib() {
    let map = fleet(5000);
    for (name, text) in [("html", page::map::html(&map)), ("svg", page::map::svg(&map))] {
        println!("{name}: {} KiB", text.len() / 1024);
        assert!(text.len() < LIMIT, "{} bytes of {name}", text.len());
    }
}

/// The policy of the page would stop it too.
#[test]
fn pages_name_no_other_file() {
    let map = fleet(300);
    for text in [page::map::html(&map), page::map::svg(&map)] {
        let text = text.replace("http://www.w3.org/2000/svg", "");
        for word in ["http:", "https:", "//", "src=", "@import", "fetch(", "XMLHttpRequest", "sendBeacon"] {
            // A comment of the script has two slashes and a space.
            let found = text.match_indices(word).find(|(at, _)| !text[*at..].starts_with("// "));
            assert_eq!(found.map(|(at, _)| &text[at..(at + 60).min(text.len())]), None, "{word}");
        }
    }
}

/// Viewers that know no style sheets draw it too.
#[test]
fn a_picture_has_its_look_as_attributes() {
    let picture = page::map::svg(&fleet(300));
    for word in ["class=", "var(", "<style"] {
        assert_eq!(picture.find(word), None, "{word}");
    }
    for state in ["leaving", "draining", "cooling"] {
        assert!(picture.contains(&format!(r#"fill="url(#p-{state})""#)), "{state}");
    }
    // Text and fill of the light scheme.
    for part in [r##"fill="#17202b""##, r#"font-size="56px""#, r##"fill="#ebeff3""##] {
        assert!(picture.contains(part), "{part}");
    }
    assert!(!picture.contains(r#"fill="" "#), "each element has a colour");
}

/// The pages, and pictures of them in both schemes, for a person to look at: in the folder that `MAP_FOLDER` names.
#[tokio::test]
async fn every_scheme_and_size_is_drawn_in_a_browser() -> Result<()> {
    let given = std::env::var_os("MAP_FOLDER").map(PathBuf::from);
    let own = tempfile::tempdir()?;
    let folder = given.as_deref().unwrap_or(own.path());
    for n_nodes in [300, 5000] {
        let map = fleet(n_nodes);
        let file = folder.join(format!("{n_nodes}.html"));
        std::fs::write(&file, page::map::html(&map))?;
        std::fs::write(file.with_extension("svg"), page::map::svg(&map))?;
        for (scheme, width, height) in
            [("light", 1440, 1000), ("dark", 1440, 1000), ("light", 390, 900), ("dark", 390, 900)]
        {
            let browser = Browser::open(&file, "", scheme, (width, height)).await?;
            let picture = browser.screenshot().await?;
            std::fs::write(folder.join(format!("{n_nodes}-{scheme}-{width}.png")), picture)?;
            // Nothing is wider than the window.
            let wider = browser
                .script("const of = document.documentElement; return of.scrollWidth - of.clientWidth")
                .await?;
            assert_eq!(wider, 0, "{scheme} {width}");
            browser.expect_no_errors().await?;
        }
    }
    Ok(())
}

/// The picture of the page in `docs/commands/map.md`, of `examples/cluster`. `UPDATE_DOCS=1` writes it. Fonts differ
/// between machines, so only its size is compared.
#[tokio::test]
async fn the_page_of_the_example_is_a_picture_of_the_documents_in_a_browser() -> Result<()> {
    const SIZE: (u32, u32) = (1000, 680);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("map.html");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cilium-node-ipam"));
    command.args(["map", "--from"]).arg(root.join("examples/cluster")).arg("-o").arg(&file);
    let output = command.output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let browser = Browser::open(&file, "#find=f03", "light", SIZE).await?;
    ensure!(browser.text("#found").await? == "f03: 1 block", "{}", browser.text("#found").await?);
    let drawn = browser.screenshot().await?;
    browser.expect_no_errors().await?;
    let picture = root.join("docs/images/map-page.png");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&picture, &drawn)?;
    }
    // The header of a PNG: width and height are the first fields of its first chunk.
    let size = |png: &[u8]| Some((number(png.get(16..20)?), number(png.get(20..24)?)));
    for png in [&drawn, &std::fs::read(&picture)?] {
        ensure!(size(png) == Some(SIZE), "{:?}", size(png));
    }
    Ok(())
}

/// A number of four bytes, the highest one first.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| (number << 8) | u32::from(*byte))
}

#[tokio::test]
async fn a_search_a_click_and_keys_show_a_block_in_a_browser() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("map.html");
    std::fs::write(&file, page::map::html(&fleet(300)))?;
    let browser = Browser::open(&file, "#find=edge-00-007", "light", (1200, 900)).await?;

    // A link to a search, with all blocks of the node.
    let shown = browser.text("#detail-text").await?;
    assert!(shown.contains("10.0.97.192/26") && shown.contains("fd00:1::380/122"), "{shown}");
    assert_eq!(browser.text("#found").await?, "edge-00-007: 2 blocks");
    let n_marked = browser.script("return document.querySelectorAll('.outlines rect').length").await?;
    assert_eq!(n_marked, 3, "both blocks, and the one that is shown");

    // Addresses of both families, of free blocks, and of none.
    for (query, found, text) in [
        ("10.0.97.200", "10.0.97.200 is in 10.0.97.192/26", "edge-00-007"),
        ("fd00:1::385", "fd00:1::385 is in fd00:1::380/122", "edge-00-007"),
        ("fd00:1:0:1::", "fd00:1:0:1:: is in fd00:1:0:1::/122", "free"),
        ("10.0.124.9", "10.0.124.9 is in 10.0.124.0/26", "has 10.0.124.0/24 without a claim"),
        ("10.0.96.192", "10.0.96.192 is in 10.0.96.192/26", "also on CiliumNode edge-00-020"),
        ("BATCH-00-001", "batch-00-001: 1 block", "10.0.33.64/27"),
    ] {
        browser.search(query).await?;
        assert_eq!(browser.text("#found").await?, found);
        let shown = browser.text("#detail-text").await?;
        assert!(shown.contains(text), "{query}: {shown}");
    }
    browser.search("192.168.0.1").await?;
    assert_eq!(browser.text("#found").await?, "no pool has 192.168.0.1");
    browser.search("old-00").await?;
    assert_eq!(browser.text("#found").await?, "pool old-00");

    // The middle of a block is clicked, with the scale of the window.
    let field = ".field[aria-label*='10.0.96.0/19']";
    browser.click_block(field, 5).await?;
    let shown = browser.text("#detail-text").await?;
    assert!(shown.contains("10.0.97.64/26") && shown.contains("edge-00-005"), "{shown}");

    // A screen reader hears each step of the cursor.
    browser.keys(field, "\u{e011}\u{e014}\u{e015}").await?;
    let said = browser.text("#said").await?;
    assert!(said.starts_with("10.0.104.64/26, held, node edge-00-033"), "{said}");
    browser.keys(field, "\u{e007}").await?;
    assert!(browser.text("#detail-text").await?.contains("edge-00-033"));
    browser.keys(field, "\u{e00c}").await?;
    assert_eq!(browser.script("return document.getElementById('detail').hidden").await?, true);

    // The blocks of the node are a list, on which the focus stays. Escape leads back to the map.
    let focused = "return document.activeElement.closest('#detail') && document.activeElement.textContent";
    browser.keys(field, "\u{e007}").await?;
    for entry in [2, 1] {
        browser.keys(&format!("#detail li:nth-child({entry}) button"), "\u{e007}").await?;
        let block = browser.text("#detail h3").await?;
        assert_eq!(browser.script(focused).await?, block, "entry {entry}");
        assert_eq!(browser.text("#detail [aria-current]").await?, block);
    }
    browser.keys("#detail [aria-current]", "\u{e00c}").await?;
    let focused = browser.script("return document.activeElement.getAttribute('aria-label')").await?;
    assert!(focused.as_str().is_some_and(|label| label.contains("10.0.96.0/19")), "{focused}");

    // The legend picks a state, and the table has the same blocks.
    browser.click(".legend button[data-state=cooling]").await?;
    let bright =
        "return [...document.querySelectorAll('.field path:not(.dim):not(.grid)')].map(p => p.classList[0])";
    let bright = browser.script(bright).await?;
    let is_cooling = |class: &serde_json::Value| class == "s-cooling";
    assert!(bright.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(is_cooling)), "{bright}");
    browser.script("document.querySelectorAll('details').forEach(d => { d.open = true })").await?;
    let rows = browser.text("figure:has(.field[aria-label*='10.0.96.0/19']) table").await?;
    assert!(rows.contains("10.0.97.64/26"), "{rows}");
    browser.expect_no_errors().await
}
