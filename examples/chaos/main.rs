//! Chaos for as long as a person asks for, on real API servers: replicas that are killed and halted, requests that are
//! lost, delayed and refused, stores that are killed and full, and nodes that join and leave all the time.
//!
//! There is one cluster per mode of Cilium. Each has an oracle that reads every version of every claim and carrier, and
//! the agents report each address that they hold. At the end the chaos stops, and the clusters must converge. The exit
//! code is 1 if an oracle, an agent or a final check objects.

#[path = "../../tests/it/support/mod.rs"]
mod support;

mod faults;
mod machine;
mod replicas;
mod summary;
mod world;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use tokio::time::Instant;

use crate::summary::Summary;
use crate::support::signals::Interrupts;
use crate::world::World;

/// Disturbs the controller in every way that the tests know, for a long time, on real API servers.
#[derive(Debug, Parser)]
struct Args {
    /// How long the chaos lasts. To converge takes some minutes more.
    #[arg(long, value_name = "MINUTES", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,

    /// How many nodes, of all modes together.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u16).range(2..=2000))]
    nodes: u16,

    /// The number that chooses the actions. The order in which they meet is not chosen.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

/// The modes of Cilium: there is one cluster per mode.
const MODES: [&str; 2] = ["crd", "multi-pool"];

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("make chaos MINUTES={} NODES={} SEED={seed}", args.minutes, args.nodes);
    let per_mode = usize::from(args.nodes) / MODES.len();
    let length = Duration::from_secs(60 * args.minutes);
    let began = Instant::now();
    let mut interrupts = Interrupts::new()?;
    let runs =
        MODES.iter().zip(0..).map(|(mode, number)| run(mode, per_mode, length, seed.wrapping_add(number)));
    let outcomes = tokio::select! {
        outcomes = futures::future::join_all(runs) => outcomes,
        () = interrupts.next() => {
            println!("interrupted after {} s", began.elapsed().as_secs());
            return Ok(ExitCode::from(130));
        }
    };
    let mut failed = false;
    for (mode, (summary, outcome)) in MODES.iter().zip(outcomes) {
        println!("\n{mode}, {per_mode} nodes:\n{summary}");
        if let Err(error) = outcome {
            failed = true;
            println!("VIOLATION in {mode}: {error:#}");
        }
    }
    println!("\n{} s in all", began.elapsed().as_secs());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The run of one mode. Its summary counts up to the failure, if there is one.
async fn run(mode: &'static str, n_nodes: usize, length: Duration, seed: u64) -> (Summary, Result<()>) {
    let summary = Summary::default();
    let outcome = async {
        let world = World::start(mode, summary.clone()).await?;
        let outcome = Box::pin(world.run(n_nodes, length, seed)).await;
        if outcome.is_err() {
            world.rig.control_plane.print_tails();
        }
        outcome
    };
    let outcome = Box::pin(outcome).await;
    (summary, outcome)
}
