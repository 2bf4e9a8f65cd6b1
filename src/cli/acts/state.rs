//! `cordon`, `uncordon` and `drain`: the state of a pool's CIDRs.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch};
use serde_json::{Value, json};

use super::super::object;
use super::{Answer, Consent, patch_params, within};
use crate::cli::answers::plan::{LABEL, by_time, object, text};
use crate::cli::answers::unreadable::Unreadable;
use crate::cli::answers::{Cluster, Gathered, Verdict, block_on, fields};
use crate::cli::program::program;
use crate::cli::screen::{self, Line};
use crate::controller::client::{Clients, ReadError};
use crate::forecast::change::{Change, Ranges};
use crate::forecast::outlook::outlook;
use crate::model::claim::ClaimState;
use crate::model::counted::counted;
use crate::model::names::{PoolName, ten_by_number, ten_of};
use crate::model::pool::RangeState;
use crate::net::cidr::Cidr;
use crate::view::departures::departures;
use crate::view::rejoin::{Rejoin, rejoins};
use crate::wire::NodeIPPool;
use crate::world::World;

/// How often a drain is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How often a write is repeated because the status of the pool has changed, about once per second.
const ATTEMPTS: u32 = 10;

/// The CIDRs and the consent to write them.
#[derive(Debug, Clone, clap::Args)]
pub struct Target {
    /// A pool, or a range with whole CIDRs of pools.
    #[arg(value_name = "POOL|CIDR", value_parser = ranges)]
    ranges: Ranges,

    #[command(flatten)]
    consent: Consent,

    #[command(flatten)]
    cluster: Cluster,
}

/// Stop giving out blocks of a pool, or of its CIDRs within a range. Blocks that nodes hold stay.
///
/// It shows the consequences, and asks before it writes. It sets `state: Cordoned` in the spec of the pool, with your
/// own rights.
///
/// Exit codes: 0 written, or nothing to write; 1 you declined; 2 it could not be written.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  cilium-node-ipam cordon rack-1")]
pub struct Cordon {
    #[command(flatten)]
    target: Target,
}

/// Give out blocks of a pool again, or of its CIDRs within a range. It also stops a drain.
///
/// It shows the consequences, and asks before it writes. It sets `state: Active` in the spec of the pool, with your own
/// rights.
///
/// Exit codes: 0 written, or nothing to write; 1 you declined; 2 it could not be written.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  cilium-node-ipam uncordon 10.64.0.0/19")]
pub struct Uncordon {
    #[command(flatten)]
    target: Target,
}

/// Reclaim the blocks of a pool, or of its CIDRs within a range, and give out no more of them.
///
/// It shows which blocks can leave now, which leave when pods are deleted, and which need the recreation of a node. It
/// asks before it writes. It sets `state: Draining` in the spec of the pool, with your own rights. The controller does
/// the rest.
///
/// Exit codes: 0 written, or nothing to write; 1 you declined, or --timeout is over; 2 it could not be written.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Example:\n  cilium-node-ipam drain 10.64.0.0/19 --wait\n  cilium-node-ipam uncordon 10.64.0.0/19   # \
                        stops the drain"
)]
pub struct Drain {
    #[command(flatten)]
    target: Target,

    /// Wait until all blocks have left their nodes. Shows progress on standard error, and the causes of the wait.
    #[arg(long)]
    wait: bool,

    /// Stop waiting after this time.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, requires = "wait")]
    timeout: Option<Duration>,
}

/// Runs `cordon`.
pub fn cordon(args: Cordon) -> anyhow::Result<Verdict> {
    block_on(async move { set(&args.target, RangeState::Cordoned).await })
}

/// Runs `uncordon`.
pub fn uncordon(args: Uncordon) -> anyhow::Result<Verdict> {
    block_on(async move { set(&args.target, RangeState::Active).await })
}

/// Runs `drain`.
pub fn drain(args: Drain) -> anyhow::Result<Verdict> {
    block_on(async move {
        let verdict = set(&args.target, RangeState::Draining).await?;
        if !args.wait || verdict == Verdict::Found {
            return Ok(verdict);
        }
        wait(&args.target, args.timeout).await
    })
}

fn ranges(text: &str) -> Result<Ranges, String> {
    match text.parse() {
        Ok(range) => Ok(Ranges::Within(range)),
        Err(_) => object::pool(text).map(|pool| Ranges::Of(pool.as_str().into())),
    }
}

/// Shows the consequences, asks, and writes.
async fn set(target: &Target, state: RangeState) -> anyhow::Result<Verdict> {
    target.consent.check()?;
    let cluster = &target.cluster;
    let Gathered { clients, world, now } = cluster.access.gather().await?;
    let ranges = target.ranges.clone();
    let mut found = ranges.of(&world)?;
    for cidrs in found.values_mut() {
        cidrs.retain(|_, before| *before != state);
    }
    found.retain(|_, cidrs| !cidrs.is_empty());
    let policy = cluster.access.policy_in(&clients, &world, now).await;
    let outlook = outlook(&world, &[Change::State(ranges.clone(), state)], policy, now)?;
    let is_table = target.consent.reads_first(cluster.output)?;
    let mut lines = text(cluster, &outlook);
    lines.extend(found.iter().flat_map(|(pool, cidrs)| {
        cidrs
            .iter()
            .map(move |(cidr, before)| format!("pool {pool}: {cidr} {before:?} -> {state:?}"))
            .map(|write| Line::labelled("write", LABEL, &write))
    }));
    if state == RangeState::Draining {
        lines.extend(of_rejoins(&rejoins(&world, &outlook.departures)));
    }
    let mut object = object(&outlook);
    object["changes"] = changes(&found, state);
    if is_table {
        cluster.print("StateChange", fields(object.clone()), || lines)?;
    }
    if found.is_empty() {
        screen::note(format_args!("All CIDRs of {ranges} are {state:?} already: nothing was written."));
    } else if target.consent.ask("Write this?")? == Answer::No {
        return Ok(Verdict::Found);
    }
    // All of them are as they were shown, or none is written.
    for pool in found.keys() {
        unchanged(&clients, &world, pool).await?;
    }
    let mut written = Vec::new();
    for (pool, cidrs) in &found {
        let wrote = write(&clients, &world, pool, cidrs, state).await;
        wrote.with_context(|| match written.as_slice() {
            [] => "no pool was written".to_owned(),
            [..] => format!("these pools were written before: {}", ten_of(&written)),
        })?;
        written.push(pool.to_string());
    }
    if is_table {
        let pools = found.iter();
        screen::print_lines(pools.map(|(pool, cidrs)| {
            Line::from(format!("pool {pool} {} ({})", done(state), ten_of(cidrs.keys()))).below(2)
        }))?;
    } else {
        object["written"] = Value::from(!found.is_empty());
        cluster.print("StateChange", fields(object), Vec::<String>::new)?;
    }
    Ok(Verdict::Fine)
}

/// How the first blocks leave their nodes: the commands of one node, and the command that prints those of the others.
fn of_rejoins(rejoins: &[Rejoin]) -> Vec<Line> {
    let Some(first) = rejoins.first() else { return Vec::new() };
    let (nodes, program) = (counted(rejoins.len(), "node"), program());
    let names = ten_by_number(rejoins.iter().map(|rejoin| &rejoin.node));
    let text = format!(
        "a first block leaves only when its node rejoins, and {nodes} must: {names}; with all gates of a node: \
         {program} migrate rejoin NODE; for {}:",
        first.node
    );
    let mut lines = vec![Line::labelled("rejoin", LABEL, &text)];
    lines.extend(first.commands().into_iter().map(|command| Line::from(format!("{:LABEL$}{command}", ""))));
    lines.extend(first.costs().into_iter().map(|cost| Line::labelled("cost", LABEL, &cost)));
    lines
}

/// The result of a write of this state, after the name of a pool.
fn done(state: RangeState) -> &'static str {
    match state {
        RangeState::Active => "uncordoned",
        RangeState::Cordoned => "cordoned",
        RangeState::Draining => "draining",
    }
}

fn changes(found: &BTreeMap<PoolName, BTreeMap<Cidr, RangeState>>, state: RangeState) -> Value {
    let all = found.iter().flat_map(|(pool, cidrs)| {
        cidrs.iter().map(move |(cidr, before)| {
            json!({
                "pool": pool.as_str(), "cidr": cidr.to_string(), "before": format!("{before:?}"),
                "after": format!("{state:?}"),
            })
        })
    });
    all.collect()
}

/// A pool whose declaration is the one that the user has seen. Its status changes all the time.
async fn unchanged(clients: &Clients, world: &World, pool: &PoolName) -> anyhow::Result<DynamicObject> {
    let object = format!("NodeIPPool {pool}");
    let shown = world.pool_object(pool).context("a pool with CIDRs exists")?;
    let found = within(clients, &object, pools(clients).get(pool.as_str())).await?;
    let is_same = found.metadata.uid.as_deref() == Some(shown.uid.as_str())
        && found.metadata.generation == Some(shown.generation);
    if !is_same {
        bail!("{object} has changed since it was read; run the command again, and read the new consequences");
    }
    Ok(found)
}

fn pools(clients: &Clients) -> Api<DynamicObject> {
    Api::all_with(clients.writes.clone(), &ApiResource::erase::<NodeIPPool>(&()))
}

/// Writes the state of these CIDRs of one pool, as the user has seen it.
async fn write(
    clients: &Clients,
    world: &World,
    pool: &PoolName,
    cidrs: &BTreeMap<Cidr, RangeState>,
    state: RangeState,
) -> anyhow::Result<()> {
    let object = format!("NodeIPPool {pool}");
    let mut n_left = ATTEMPTS;
    loop {
        let found = unchanged(clients, world, pool).await?;
        let patch = Patch::Merge(patch_of(&found, cidrs, state));
        let (api, params) = (pools(clients), patch_params());
        let write = async {
            match api.patch(pool.as_str(), &params, &patch).await {
                // The controller has written the status in between.
                Err(kube::Error::Api(status)) if status.code == 409 && n_left > 0 => Ok(false),
                answer => answer.map(|_| true),
            }
        };
        if within(clients, &object, write).await? {
            return Ok(());
        }
        n_left -= 1;
    }
}

/// The patch of this version of a pool.
fn patch_of(found: &DynamicObject, cidrs: &BTreeMap<Cidr, RangeState>, state: RangeState) -> Value {
    let mut spec = json!({});
    for family in ["ipv4", "ipv6"] {
        let mut list = found.data["spec"][family]["cidrs"].clone();
        let mut is_changed = false;
        for entry in list.as_array_mut().into_iter().flatten() {
            let cidr: Option<Cidr> = entry["cidr"].as_str().and_then(|text| text.parse().ok());
            if cidr.is_some_and(|cidr| cidrs.contains_key(&cidr)) {
                entry["state"] = Value::from(format!("{state:?}"));
                is_changed = true;
            }
        }
        if is_changed {
            // A patch replaces a list as a whole.
            spec[family] = json!({"cidrs": list});
        }
    }
    json!({"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": spec})
}

/// Waits until all blocks have left their nodes, at most for this time, and reports each change on standard error.
async fn wait(target: &Target, limit: Option<Duration>) -> anyhow::Result<Verdict> {
    let ranges = target.ranges.clone();
    let n_left = Cell::new(None);
    let look = async || {
        let Gathered { world, .. } = target.cluster.access.gather().await?;
        let n_held = n_held(&world, &ranges);
        n_left.set(Some(n_held));
        Ok((n_held, progress(&world, &ranges)))
    };
    let waiting = until_none(look, |line| screen::note(line));
    let Some(limit) = limit else { return waiting.await };
    if let Ok(ended) = tokio::time::timeout(limit, waiting).await {
        return ended;
    }
    screen::note(match n_left.get() {
        Some(1) => "timed out: 1 block remains; the drain continues".to_owned(),
        Some(n_left) => format!("timed out: {n_left} blocks remain; the drain continues"),
        None => "timed out: the cluster did not answer; the drain continues".to_owned(),
    });
    Ok(Verdict::Found)
}

/// Looks again and again until no block is left, and says each change. A look that fails is reported and repeated: the
/// drain continues without it. If it would fail again, such as without the right to list, the wait fails too.
async fn until_none(
    look: impl AsyncFn() -> anyhow::Result<(usize, Vec<String>)>,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Verdict> {
    let mut before = Vec::new();
    loop {
        let (n_left, lines) = match look().await {
            Ok((n_left, lines)) => (Some(n_left), lines),
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => {
                (None, vec![format!("{error:#}; the drain continues, and the command looks again")])
            }
        };
        if lines != before {
            for line in &lines {
                say(line);
            }
        }
        if n_left == Some(0) {
            return Ok(Verdict::Fine);
        }
        before = lines;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether the same request would fail again until an administrator changes something.
fn is_final(error: &anyhow::Error) -> bool {
    error.is::<Unreadable>()
        || error.chain().any(|cause| cause.downcast_ref::<ReadError>().is_some_and(ReadError::is_final))
}

/// The number of blocks that are still on their nodes.
fn n_held(world: &World, ranges: &Ranges) -> usize {
    let claims = world.claims().map(|known| &known.claim).filter(|claim| ranges.has(claim));
    claims.filter(|claim| !matches!(claim.state, ClaimState::Cooling(_))).count()
}

/// The blocks that are still on their nodes, and the causes.
fn progress(world: &World, ranges: &Ranges) -> Vec<String> {
    let n_held = n_held(world, ranges);
    if n_held == 0 {
        return vec![format!("all blocks of {ranges} have left their nodes")];
    }
    let departures = departures(world, |claim| ranges.has(claim));
    let mut lines = vec![format!("{} of {ranges} on nodes", counted(n_held, "block"))];
    lines.extend(by_time(&departures).into_iter().map(|(when, nodes)| {
        let pods: BTreeSet<&String> = departures
            .iter()
            .filter(|leaving| leaving.when == *when)
            .flat_map(|leaving| &leaving.pods)
            .collect();
        let pods = if pods.is_empty() { String::new() } else { format!("; pods: {}", ten_by_number(pods)) };
        format!("  {} {when}: {}{pods}", counted(nodes.len(), "block"), ten_by_number(nodes))
    }));
    let rejoins = rejoins(world, &departures);
    lines.extend(rejoins.first().map(|first| format!("  next: {} migrate rejoin {}", program(), first.node)));
    lines
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use anyhow::anyhow;
    use kube::core::Status;

    use super::*;

    type Look = anyhow::Result<(usize, Vec<String>)>;

    /// The end of a wait with these looks, and the lines on the way.
    async fn waited(looks: Vec<Look>) -> (anyhow::Result<Verdict>, Vec<String>) {
        let looks = RefCell::new(VecDeque::from(looks));
        let mut said = Vec::new();
        let look = async || looks.borrow_mut().pop_front().expect("there is a further look");
        let end = until_none(look, |line| said.push(line.to_owned())).await;
        (end, said)
    }

    fn left(n_left: usize) -> (usize, Vec<String>) {
        (n_left, vec![format!("{n_left} left")])
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_fails_does_not_end_the_wait() {
        let fails = || Err(anyhow!("can't list Nodes within 1m"));
        let (end, said) =
            waited(vec![Ok(left(2)), Ok(left(2)), fails(), fails(), Ok(left(2)), Ok(left(0))]).await;
        assert_eq!(end.unwrap(), Verdict::Fine);
        let failure = "can't list Nodes within 1m; the drain continues, and the command looks again";
        assert_eq!(said, ["2 left", failure, "2 left", "0 left"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_would_fail_again_ends_the_wait() {
        let status = Status::failure("nodes is forbidden", "Forbidden").with_code(403).boxed();
        let forbidden = anyhow!(ReadError::from(kube::Error::Api(status))).context("can't list Nodes");
        let (end, said) = waited(vec![Ok(left(2)), Err(forbidden)]).await;
        assert!(end.unwrap_err().to_string().contains("can't list Nodes"));
        assert_eq!(said, ["2 left"]);
    }
}
