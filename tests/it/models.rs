//! The models of agents that the simulation runs (`simulation/agent`), compared with Cilium's own agent of 1.20.2. Both
//! obey the same random commands. After each command Cilium's agent must reach a state that the model may have.
//!
//! A model may be in several states at a time where they depend on unseen moments. For example, an agent may or may not
//! have seen a write before it writes itself. So there are several [`worlds`](worlds::Worlds) at a time, and those that
//! differ from the observation are dropped. If none remains, the model is wrong.

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

/// The number of sequences that run side by side, each on a node of its own.
const SEEDS: u64 = 8;

/// Commands of a sequence.
const COMMANDS: usize = 60;

/// How long an agent may take to show the expected state. Nothing takes more than a second or two on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rules that these tests break on purpose: the nodes have no claims, addresses are removed while pods have them, and
/// annotations are no CIDRs.
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

/// `MODEL_SEED` is the first seed, `MODEL_CASES` the number of seeds. A failure names its seed.
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

/// The phase of the agent's process.
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
