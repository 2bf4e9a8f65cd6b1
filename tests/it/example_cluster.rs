//! `examples/cluster`: the cluster of `docs/commands.md` as files, for a look without any server.
//!
//! The test of bundles writes it (`UPDATE_DOCS=1`), and the tests of the commands compare the page with a real API server.

use std::path::Path;

use anyhow::{Result, ensure};

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
