//! Random commands, the same for both. After each of them the agent gets a usage query. Then both CiliumNodes must say
//! the same, except which address was drawn.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Addresses as _, Stage, blocks, without_name};
use crate::scene::SOON;
use crate::support::agent::{Agent, plain};
use crate::support::views::Published;

/// Commands per seed. A seed takes about half a minute, most of it for answers of Cilium's agent.
const COMMANDS: usize = 40;

/// Few enough pods, so that a block of eight is sometimes full and sometimes not.
const PODS: u32 = 7;

/// An address in no pool.
const NOBODY: &str = "0.0.0.0";

const FENCE: &str = "nodeipam.io/fenced";

/// The next command. Its address is drawn among those that differ in more than their number.
#[derive(Clone, Copy, Debug)]
enum Command {
    /// A pod comes, or is deleted if it exists.
    Pod(u32),
    /// An entry of `release-ips` is written or, if empty, deleted.
    Mark(&'static str, u32),
    /// An entry of the pool gets another owner, or none.
    Fence(bool, u32),
    /// An unused entry is kept for a pod.
    Keep {
        pod: u32,
        draw: u32,
    },
    /// An address leaves the pool, or returns.
    Pool(u32),
    Restart,
    TouchNode,
}

impl Command {
    fn draw(rng: &mut fastrand::Rng) -> Self {
        let (number, draw) = (rng.u32(..PODS), rng.u32(..));
        match rng.u32(..20) {
            0..8 => Self::Pod(number),
            8..11 => Self::Mark("marked-for-release", draw),
            11 => Self::Mark("ready-for-release", draw),
            12 => Self::Mark("released", draw),
            13 => Self::Mark("", draw),
            14 => Self::Fence(true, draw),
            15 => Self::Fence(false, draw),
            16 => Self::Keep { pod: number, draw },
            17 => Self::Pool(draw),
            18 => Self::Restart,
            _ => Self::TouchNode,
        }
    }
}

impl Stage<'_> {
    /// Plays that many commands of this seed, and returns the story of their outcomes.
    pub(super) async fn random(&mut self, agent: &mut Agent, seed: u64) -> Result<String> {
        // Addresses of pods leave the pool.
        self.rig.control_plane.allow("held-address-withdrawn", Some(&self.name), None).await?;
        self.rig.control_plane.allow("withdrawn-without-consent", Some(&self.name), None).await?;
        agent.start()?;
        self.wait("the CiliumNode", |_| true).await?;
        self.publish(0).await?;
        agent.wait_ready(SOON).await?;
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut story = format!("seed {seed}\n");
        let mut reported = self.settle(agent).await?;
        for number in 0..COMMANDS {
            let command = Command::draw(&mut rng);
            let outcome = self.obey(agent, command, &reported).await?;
            reported = self.settle(agent).await?;
            writeln!(story, "{number} {command:?}: {outcome}")?;
            for (kind, count) in self.kinds(&reported) {
                writeln!(story, "    {count} {kind}")?;
            }
        }
        Ok(story)
    }

    async fn obey(&self, agent: &mut Agent, command: Command, seen: &Published) -> Result<String> {
        match command {
            Command::Pod(number) => {
                let pod = format!("ns/{number}");
                if used(seen).values().any(|owner| plain(owner) == pod) {
                    agent.release(&pod).await?;
                    return Ok("went".to_owned());
                }
                let outcome = agent.allocate(&pod).await;
                Ok(outcome.map_or_else(|error| without_name(&error.to_string()), |_| "came".to_owned()))
            }
            Command::Mark(state, draw) => {
                let Some((kind, address)) = self.pick(seen, draw, |_| true) else { return Ok(String::new()) };
                let entry = if state.is_empty() { Value::Null } else { state.into() };
                self.patch_status(json!({"status": {"ipam": {"release-ips": {address: entry}}}})).await?;
                Ok(kind)
            }
            Command::Fence(on, draw) => {
                let picked = self.pick(seen, draw, |address| seen.pool.contains_key(address));
                self.own(picked, if on { FENCE.into() } else { Value::Null }).await
            }
            Command::Keep { pod, draw } => {
                let pod = format!("ns/{pod}");
                // Of two entries for one pod Cilium takes either.
                if seen.pool.values().any(|owner| *owner == pod) {
                    return Ok("kept already".to_owned());
                }
                let free =
                    |address: &str| seen.pool.contains_key(address) && !used(seen).contains_key(address);
                self.own(self.pick(seen, draw, free), pod.into()).await
            }
            Command::Pool(draw) => {
                let Some((kind, address)) = self.pick(seen, draw, |_| true) else { return Ok(String::new()) };
                let entry = if seen.pool.contains_key(&address) { Value::Null } else { json!({}) };
                self.patch(json!({"spec": {"ipam": {"pool": {address: entry}}}})).await?;
                Ok(kind)
            }
            Command::Restart => {
                let started = agent.restart(SOON).await?;
                let addresses = self.addresses(seen);
                let plainly = |why: &String| {
                    addresses.iter().fold(why.clone(), |why, address| why.replace(address, "(address)"))
                };
                let lost: BTreeMap<_, _> =
                    started.lost.iter().map(|(owner, why)| (owner, plainly(why))).collect();
                Ok(format!("lost {lost:?}"))
            }
            Command::TouchNode => agent.touch_node().await.map(|()| String::new()),
        }
    }

    async fn own(&self, picked: Option<(String, String)>, owner: Value) -> Result<String> {
        let Some((kind, address)) = picked else { return Ok("none".to_owned()) };
        self.patch(json!({"spec": {"ipam": {"pool": {address: {"owner": owner}}}}})).await?;
        Ok(kind)
    }

    /// Sends a usage query, so that the CiliumNode then has everything that the agent has to report.
    async fn settle(&self, agent: &Agent) -> Result<Published> {
        self.patch_status(json!({"status": {"ipam": {"release-ips": {NOBODY: null}}}})).await?;
        self.wait("the end of the question before", |seen| !seen.release.contains_key(NOBODY)).await?;
        self.probe().await?;
        let seen = self.without_stale_refusals().await?;
        let held: BTreeMap<_, _> =
            agent.held().await?.into_iter().map(|(address, owner)| (address.to_string(), owner)).collect();
        ensure!(used(&seen) == held, "{} says {:?} and holds {held:?}", self.name, seen.used);
        Ok(seen)
    }

    /// Deletes refusals on addresses that are free by now, so that all addresses that a pod may draw are of one kind.
    async fn without_stale_refusals(&self) -> Result<Published> {
        let seen = || self.rig.cluster.published(&self.name).context("its CiliumNode");
        let before = seen()?;
        let refused = before.release.iter().filter(|(_, state)| *state == "do-not-release");
        let stale: BTreeSet<&String> = refused
            .map(|(address, _)| address)
            .filter(|address| *address != NOBODY && !used(&before).contains_key(*address))
            .collect();
        if stale.is_empty() {
            return Ok(before);
        }
        let entries: Value = stale.iter().map(|address| ((*address).clone(), Value::Null)).collect();
        self.patch_status(json!({"status": {"ipam": {"release-ips": entries}}})).await?;
        let gone = |seen: &Published| !stale.iter().any(|address| seen.release.contains_key(*address));
        self.wait("the end of stale refusals", gone).await?;
        seen()
    }

    /// An address that `fits`, by its kind: of several of a kind it does not matter which. The agent's own are left
    /// alone, because a start that finds none free would fail.
    fn pick(&self, seen: &Published, draw: u32, fits: impl Fn(&str) -> bool) -> Option<(String, String)> {
        let own = |address: &String| used(seen).get(address).is_some_and(|owner| !owner.contains('/'));
        let kinds: BTreeMap<_, _> = self
            .addresses(seen)
            .into_iter()
            .filter(|address| fits(address) && !own(address))
            .map(|address| (kind(seen, &address), address))
            .collect();
        let number = usize::try_from(draw).ok()?.checked_rem(kinds.len())?;
        kinds.into_iter().nth(number)
    }

    /// The number of addresses of each kind.
    fn kinds(&self, seen: &Published) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for address in self.addresses(seen) {
            *kinds.entry(kind(seen, &address)).or_default() += 1;
        }
        kinds
    }

    /// The addresses of the block, and the others that the CiliumNode names.
    fn addresses(&self, seen: &Published) -> BTreeSet<String> {
        let block = blocks(self.families, self.number, 0).into_iter().flat_map(|block| block.hosts_all());
        let named = seen.release.keys().filter(|address| *address != NOBODY);
        block.map(|address| address.to_string()).chain(named.cloned()).collect()
    }
}

fn used(seen: &Published) -> BTreeMap<String, String> {
    seen.used.clone().unwrap_or_default()
}

/// Everything that the CiliumNode says about an address.
fn kind(seen: &Published, address: &str) -> String {
    let pool =
        seen.pool.get(address).map_or_else(|| "not in the pool".to_owned(), |owner| format!("for {owner:?}"));
    let used =
        used(seen).get(address).map_or_else(|| "unused".to_owned(), |owner| format!("used by {owner}"));
    let mark = seen.release.get(address).map_or("no mark", String::as_str);
    format!("{pool}, {used}, {mark}")
}
