//! `examples/cluster`: the cluster of `docs/commands.md` as files, for a look without any server.
//!
//! The test of bundles writes it (`UPDATE_DOCS=1`), and the tests of the commands compare the page with a real API server.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::answers::{ask_with, documented};

/// A command answers from the files as the page shows it, without a kubeconfig.
#[tokio::test(flavor = "multi_thread")]
async fn each_command_answers_from_the_files_as_the_page_shows() -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cluster");
    for command in ["status", "check", "why f09", "plan --add-nodes 3 --labels zone=e"] {
        let arguments: Vec<&str> = command.split(' ').chain(["--from", folder]).collect();
        let said = ask_with(Path::new("/nonexistent"), &arguments).await?;
        ensure!(said.code == Some(1), "{command}: {:?} {}", said.code, said.errors);
        documented(command, &said)?;
    }
    let map = ask_with(Path::new("/nonexistent"), &["map", "--from", folder, "-o", "-.svg"]).await?;
    ensure!(map.code == Some(0) && map.text.contains("10.2.0.0/24"), "{}{}", map.text, map.errors);
    Ok(())
}

/// `docs/how-to/give-back-a-range.md`: an entry of `cidrs` is split, and one half drains.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_is_split_keeps_the_blocks_of_its_nodes() -> Result<()> {
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cluster");
    let ask = async |arguments: &[&str]| ask_with(Path::new("/nonexistent"), arguments).await;
    let whole = ask(&["plan", "--from", from, "--drain", "10.4.0.0/23"]).await?;
    ensure!(
        whole.code == Some(2) && whole.errors.contains("split 10.4.0.0/22 in the pool first"),
        "{}",
        whole.errors
    );

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rack.json");
    let pool = json!({
        "apiVersion": "nodeipam.io/v1alpha1", "kind": "NodeIPPool", "metadata": {"name": "rack"},
        "spec": {
            "nodeSelector": {"matchLabels": {"zone": "r"}},
            "ipv4": {"blockSize": 28, "cidrs": [{"cidr": "10.4.0.0/23", "state": "Cordoned"}, {"cidr": "10.4.2.0/23"}]},
        },
    });
    std::fs::write(&file, pool.to_string())?;
    let file = file.to_string_lossy();
    let split = ask(&["plan", "--from", from, "-f", &*file]).await?;
    ensure!(
        split.says("10/64 -> 10/42") && split.says("No problem would appear."),
        "{}{}",
        split.text,
        split.errors
    );
    let drained = ask(&["plan", "--from", from, "-f", &*file, "--drain", "10.4.0.0/23"]).await?;
    ensure!(
        drained.says("when the node rejoins (reboot): the first block of a node stays"),
        "{}",
        drained.text
    );
    Ok(())
}
