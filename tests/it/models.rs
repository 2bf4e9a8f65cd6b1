//! The models of agents that the simulation runs (`simulation/agent`), compared with Cilium's own agent of 1.20.2: both
//! obey the same commands, drawn at random, and after each of them Cilium's agent must come to show what the model may.
//!
//! A model may do several things at a time where it depends on moments that nobody sees, such as whether an agent has
//! heard of a write before it writes itself. So there are several [`worlds`](worlds::Worlds) at a time, and those that
//! differ from what was seen are dropped; when none is left, the model is wrong.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use kube::api::DynamicObject;

use crate::support::control_plane::Options;
use crate::support::rig::{Rig, without_product};

mod machine;
mod pools;
mod single;
mod worlds;

/// How many sequences run side by side, each on a node of its own.
const SEEDS: u64 = 8;

/// Commands of a sequence.
const COMMANDS: usize = 60;

/// How long an agent may take to show what it must. Nothing takes more than a second or two on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What nobody here keeps, because these nodes have no claims, addresses are taken off under pods, and annotations are no CIDRs.
const BROKEN: [&str; 9] = [
    "undecodable",
    "overlapping-podcidrs",
    "address-in-two-pools",
    "address-outside-podcidrs",
    "cidr-without-claim",
    "used-twice",
    "held-address-withdrawn",
    "withdrawn-without-consent",
    "podcidrs-changed",
];

/// `MODEL_SEED` is the first seed, `MODEL_CASES` how many there are. A failure names its seed.
fn seeds() -> Result<std::ops::Range<u64>> {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(Ok(default), |text| text.parse()).with_context(|| name.to_owned())
    };
    let first = number("MODEL_SEED", 1)?;
    Ok(first..first + number("MODEL_CASES", SEEDS)?)
}

/// Plays a sequence for each seed, all at the same time.
async fn compare(options: Options, play: impl AsyncFn(&Rig, u64) -> Result<()>) -> Result<()> {
    without_product(options, async |rig| {
        for rule in BROKEN {
            rig.control_plane.allow(rule, None, None).await?;
        }
        let sequences = seeds()?.map(|seed| {
            let play = &play;
            async move { play(rig, seed).await.with_context(|| format!("MODEL_SEED={seed} MODEL_CASES=1")) }
        });
        try_join_all(sequences).await.map(drop)
    })
    .await
}

/// How far the process of the agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Down,
    /// It waits for addresses.
    Waiting,
    Restoring,
    Running,
}

/// The number of a version, by which those of one object are in order.
fn version(object: &DynamicObject) -> u64 {
    object.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}
