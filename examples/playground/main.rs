//! The playground of `docs/tutorial.md`: a real API server with the controller, for a person with kubectl.
//!
//! Nodes get machines with Cilium's own agent, and Pods addresses of it (`tests/it/support/machines.rs`). It runs until
//! Ctrl-C, and then no process and no file is left.

#[path = "../../tests/it/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::support::control_plane::Options;
use crate::support::machines::Machines;
use crate::support::playground::{environment, start_controller};
use crate::support::rig::Rig;
use crate::support::signals::Interrupts;

/// Where a shell finds the playground, below the folder of the project.
const FOLDER: &str = "build/playground";

#[tokio::main]
async fn main() -> ExitCode {
    match play().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the playground has failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn play() -> Result<()> {
    let mut interrupts = Interrupts::new()?;
    println!("Starting etcd and kube-apiserver.");
    let rig = tokio::select! {
        biased;
        () = interrupts.next() => return Ok(()),
        rig = Rig::start(Options::default()) => rig?,
    };
    let controller = start_controller(&rig.control_plane).await?;
    let machines = Machines::start(&rig);
    let folder = Folder::create(&rig)?;
    println!(
        "Kubernetes {} runs at {}, and the controller serves it. In another terminal, in this folder:\n\n    \
         . {FOLDER}/environment\n\n`leave` there brings that terminal back, and Ctrl-C here ends everything.",
        rig.control_plane.ready["version"].as_str().unwrap_or("?"),
        rig.control_plane.server,
    );
    let outcome = tokio::select! {
        biased;
        () = interrupts.next() => Ok(()),
        what = rig.cluster.alarm.raised() => Err(what),
    };
    if outcome.is_err() {
        rig.control_plane.print_tails();
    }
    println!("Ending the controller, the agents and the servers.");
    let ended = controller.sigterm_and_wait().await;
    // Agents exit before the servers that they talk to.
    drop(machines);
    drop(folder);
    drop(rig);
    outcome?;
    ended.map(drop)
}

/// The folder with the file that a shell reads. It is removed with everything that a person has put there.
struct Folder(PathBuf);

impl Folder {
    fn create(rig: &Rig) -> Result<Self> {
        let this = std::env::current_exe()?;
        // An example lies one folder below the programs.
        let programs = this.ancestors().nth(2).context("the program is in a folder")?;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
        std::fs::create_dir_all(&path)?;
        std::fs::write(path.join("environment"), environment(&rig.control_plane, programs, &path))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing depends on it any more.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
