//! The demo: the product at work on a real API server, for a person who watches and for `make demo ONCE=1`.
//!
//! etcd, kube-apiserver, the controller's binary and three of the agents are the real ones; the other agents are
//! imitated. Everything that is shown is read from the API, and each wait is for a state of it. With `--once` the
//! scenes are played once, the result is checked, and the exit code shows it. Without it, the load rises and falls
//! until Ctrl-C. Either way no process and no file is left.

#[path = "../../tests/it/support/mod.rs"]
mod support;

mod checks;
mod chronicle;
mod events;
mod fleet;
mod mode;
mod scene;
mod screen;
mod script;
mod shared;
mod stage;
mod state;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use crate::mode::Mode;
use crate::scene::Scene;
use crate::screen::{Pace, Screen};
use crate::script::{Item, Script};
use crate::stage::Stage;
use crate::state::State;
use crate::support::signals::Interrupts;

/// The exit code that a shell reports for a program that Ctrl-C has stopped.
const INTERRUPTED: u8 = 130;

/// How long a person gets to look at the result of a scene. Nothing depends on it, and `--once` does without.
const LOOK: Duration = Duration::from_secs(4);

/// Shows cilium-node-ipam at work on a real API server, with simulated nodes.
#[derive(Debug, Parser)]
struct Args {
    /// Play the scenes once, check the result and end: 0 if everything held.
    #[arg(long)]
    once: bool,

    /// How many nodes with imitated agents; three with Cilium's own join them.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u16).range(9..=1500))]
    nodes: u16,

    /// The mode of Cilium.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::Crd)]
    mode: Mode,
}

/// How the demo finished, if nothing went wrong.
enum End {
    Played,
    Interrupted,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("no runtime")
        .and_then(|runtime| runtime.block_on(show(&args)));
    match outcome {
        // Without --once, Ctrl-C is the normal way to stop.
        Ok(End::Interrupted) if args.once => ExitCode::from(INTERRUPTED),
        Ok(End::Played | End::Interrupted) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the demo has failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// From the first line to the last. In every case, everything that was started has stopped when this returns.
async fn show(args: &Args) -> Result<End> {
    let mut interrupts = Interrupts::new()?;
    let script = Script::new(args.mode, usize::from(args.nodes));
    let mut screen = Screen::new(if args.once { Pace::Machine } else { Pace::Person });
    screen.say(&script.opening());
    screen.say("Starting etcd and kube-apiserver, with an oracle that reads every version of every block and CiliumNode.");
    let started = tokio::select! {
        biased;
        () = interrupts.next() => {
            screen.say("Interrupted.");
            return Ok(End::Interrupted);
        }
        started = Stage::start(args.mode) => started,
    };
    let mut stage = started?;
    screen.say(&stage.introduction());

    let outcome = tokio::select! {
        biased;
        () = interrupts.next() => Ok(End::Interrupted),
        outcome = perform(args, &script, &mut stage, &mut screen) => outcome,
    };
    screen.leave();
    if outcome.is_err() {
        stage.print_logs();
    } else if !args.once {
        screen.print(&table::pools(&State::seen(&stage.rig.cluster)));
    }
    screen.say("Ending the controller, the agents and the servers.");
    let closed = stage.close().await;
    let end = outcome?;
    closed?;
    Ok(end)
}

async fn perform(args: &Args, script: &Script, stage: &mut Stage, screen: &mut Screen) -> Result<End> {
    for item in &script.items {
        match item {
            Item::Scene(scene) => play(args, scene, script, stage, screen).await?,
            Item::LeftOut(why) => screen.say(why),
        }
    }
    if args.once {
        return judge(script, stage, screen).await;
    }
    for scene in script.encore.iter().cycle() {
        play(args, scene, script, stage, screen).await?;
    }
    Ok(End::Played)
}

async fn play(
    args: &Args,
    scene: &Scene,
    script: &Script,
    stage: &mut Stage,
    screen: &mut Screen,
) -> Result<()> {
    stage.play(scene, &script.members, screen).await?;
    if args.once { Ok(()) } else { stage.linger(scene, LOOK, screen).await }
}

/// The table and the checks, from a fresh look at the API.
async fn judge(script: &Script, stage: &Stage, screen: &mut Screen) -> Result<End> {
    let seen = State::read(&stage.rig.cluster).await?;
    screen.print(&table::pools(&seen));
    let checks = checks::all(script, stage, &seen).await;
    let failed = checks.iter().filter(|check| !check.holds).count();
    for check in &checks {
        screen.print(&check.to_string());
    }
    if failed > 0 {
        bail!("{failed} of {} checks failed", checks.len());
    }
    Ok(End::Played)
}
