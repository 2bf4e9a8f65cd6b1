//! `cilium-node-ipam plan`: the difference that a change would make.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::super::object;
use super::super::screen::Line;
use super::{Cluster, Source, Verdict, block_on, fields};
use crate::cli::documents::{Depth, Input, Places};
use crate::controller::dry_run::{self, Proposal};
use crate::forecast::change::{Change, Ranges};
use crate::forecast::outlook::{FirstFull, Outlook, Room, outlook};
use crate::model::counted::{counted, shown};
use crate::model::names::{NodeName, PoolName, ten_by_number, ten_of};
use crate::model::plan::Verdict as NodeVerdict;
use crate::model::pool::RangeState;
use crate::model::status::capped_count;
use crate::net::cidr::Cidr;
use crate::view::departures::{Departure, When};
use crate::view::max_pods::PodCapacity;
use crate::view::overview::{NodeTotals, Overview, PoolRow, Problem};
use crate::wire::check;

/// How many blocks a table for people lists.
const LISTED: usize = 20;
/// The width of a label.
pub(in crate::cli) const LABEL: usize = 10;
/// The indentation of a write that continues on the next line. Reasons of pools are indented less.
const INDENT: usize = 4;

/// Show the difference that a change would make: the pools before and after, which node gets which block, and which
/// nodes would wait.
///
/// It reads the cluster once, changes the copy in memory, and decides with the controller's own planner. Both sides
/// show the cluster after the controller has done everything that it can do. Changes can be combined.
///
/// Without a change it prints the writes that the controller would make now, the nodes that wait, and the nodes that no
/// pool selects.
///
/// Exit codes: 0 no problem would appear, 1 one would, 2 the cluster could not be read or the change is not possible.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam plan\n  cilium-node-ipam plan -f pool.yaml\n  cilium-node-ipam plan \
                        --add-nodes 20 --labels zone=r\n  cilium-node-ipam plan --use 90%\n  cilium-node-ipam plan --drain 10.2.0.0/24 --relabel worker-17 \
                        zone=b"
)]
pub struct Args {
    /// Pools as they would be: a file, a directory, or `-` for standard input. Other pools stay as they are.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", help_heading = CHANGE)]
    filename: Vec<PathBuf>,

    /// Delete this pool. May be repeated.
    #[arg(long, value_name = "POOL", value_parser = object::pool, help_heading = CHANGE)]
    delete_pool: Vec<String>,

    /// Add so many nodes, with the labels of --labels.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=5000), help_heading = CHANGE)]
    add_nodes: Option<u16>,

    /// The labels of the added nodes, separated by commas.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label, requires = "add_nodes", help_heading = CHANGE)]
    labels: Vec<(String, String)>,

    /// Give a Node these labels, separated by commas. `KEY-` removes a label. May be repeated.
    #[arg(long, value_names = ["NODE", "LABELS"], num_args = 2, action = clap::ArgAction::Append, help_heading = CHANGE)]
    relabel: Vec<String>,

    /// Drain all CIDRs of pools within this range. May be repeated.
    #[arg(long, value_name = "CIDR", help_heading = CHANGE)]
    drain: Vec<Cidr>,

    /// Suppose that each node uses this percentage of its addresses, or more if it does already.
    #[arg(long = "use", value_name = "PERCENT", value_parser = percent, help_heading = CHANGE)]
    used: Option<u8>,

    #[command(flatten)]
    cluster: Source,
}

const CHANGE: &str = "Change";

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("must be KEY=VALUE".to_owned()),
    }
}

fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number.filter(|percent| (1..=100).contains(percent)).ok_or_else(|| "must be from 1% to 100%".to_owned())
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    let changes = args.changes()?;
    block_on(async move {
        let read = if args.filename.is_empty() {
            args.cluster.read().await
        } else {
            args.cluster.read_before_installation().await
        };
        let (live, world, now) = read?;
        let policy = args.cluster.access.policy(&live, &world, now).await;
        if changes.is_empty() {
            let proposal = Proposal::of(world.clone(), policy, now);
            let object = proposed(&proposal);
            args.cluster.print("Plan", fields(object), || {
                dry_run::lines(&world, &proposal)
                    .into_iter()
                    .map(|line| Line::from(line).below(INDENT))
                    .collect()
            })?;
            let waits = !proposal.waiting.is_empty() || !proposal.unselected.is_empty();
            return Ok(if waits { Verdict::Found } else { Verdict::Fine });
        }
        let outlook = outlook(&world, &changes, policy, now)?;
        args.cluster.print("Plan", fields(object(&outlook)), || text(&args.cluster, &outlook))?;
        let is_fine = outlook.appearing.is_empty() && outlook.nodes_without_replacement.is_empty();
        Ok(if is_fine { Verdict::Fine } else { Verdict::Found })
    })
}

impl Args {
    /// The changes in the order of their application.
    fn changes(&self) -> anyhow::Result<Vec<Change>> {
        let mut changes = pools(&self.filename)?;
        changes.extend(self.delete_pool.iter().map(|pool| Change::DeletePool(pool.as_str().into())));
        changes.extend(
            self.drain.iter().map(|range| Change::State(Ranges::Within(*range), RangeState::Draining)),
        );
        for words in self.relabel.chunks(2) {
            let [node, text] = words else { bail!("--relabel needs a node and its labels") };
            let mut labels = BTreeMap::new();
            for text in text.split(',') {
                let (key, value) = match text.strip_suffix('-') {
                    Some(key) if !text.contains('=') => (key.to_owned(), None),
                    Some(_) | None => {
                        let pair = label(text).map_err(anyhow::Error::msg);
                        let (key, value) = pair.with_context(|| format!("--relabel: `{text}`"))?;
                        (key, Some(value))
                    }
                };
                labels.insert(key, value);
            }
            let node = object::node(node).map_err(anyhow::Error::msg)?;
            changes.push(Change::Relabel(node.as_str().into(), labels));
        }
        if let Some(n_nodes) = self.add_nodes {
            changes.push(Change::AddNodes(n_nodes.into(), self.labels.iter().cloned().collect()));
        }
        changes.extend(self.used.map(Change::Use));
        Ok(changes)
    }
}

/// The pools in these files. A pool that the server would refuse is an error with its place.
pub(super) fn pools(paths: &[PathBuf]) -> anyhow::Result<Vec<Change>> {
    let is_pool = |value: &Value| check::is_ours(value) && value["kind"] == "NodeIPPool";
    let input = Input::of(paths, Depth::All, Places::Noted, is_pool);
    if let Some(file) = input.unreadable.into_iter().next() {
        return Err(file.error);
    }
    if input.documents.is_empty() && !paths.is_empty() {
        bail!("the files have no NodeIPPool");
    }
    let mut changes = Vec::new();
    for document in &input.documents {
        if let Some(error) = check::check_document(&document.value).first() {
            bail!("{}: {}: {error}", document.place_of(error), document.name());
        }
        let pool = check::offline_pool(&document.value);
        let pool = pool.with_context(|| format!("{} can't be read as a pool", document.name()))?;
        changes.push(Change::Pool(Box::new(pool)));
    }
    Ok(changes)
}

/// `before -> after`, or one value where they are equal.
fn moved(before: &str, after: &str) -> String {
    if before == after { after.to_owned() } else { format!("{before} -> {after}") }
}

/// The numbers of nodes before and after, without those that are zero.
fn of_nodes(before: &NodeTotals, after: &NodeTotals) -> Line {
    let count = |before: usize, after: usize| moved(&before.to_string(), &after.to_string());
    let counts = [
        (before.served, after.served, "served"),
        (before.without_addresses, after.without_addresses, "WITHOUT ADDRESSES"),
        (before.want_growth, after.want_growth, "want growth"),
        (before.no_pool, after.no_pool, "without a pool"),
    ];
    let some = counts.into_iter().filter(|(before, after, what)| before + after > 0 || *what == "served");
    let some: Vec<String> =
        some.map(|(before, after, what)| format!("{} {what}", count(before, after))).collect();
    Line::labelled("nodes", 7, &format!("{}: {}", count(before.all, after.all), some.join(", ")))
}

/// The answer for people.
pub(in crate::cli) fn text(cluster: &Cluster, outlook: &Outlook) -> Vec<Line> {
    let mut lines = vec![of_nodes(&outlook.before.nodes, &outlook.after.nodes), Line::default()];
    let headers = ["POOL", "STATE", "SELECTS", "BLOCKS", "FREE", "WAIT"];
    let rows = both(outlook).into_values().map(|(before, after)| row(before, after));
    lines.extend(cluster.table(headers, rows));
    if !outlook.grants.is_empty() {
        lines.push(Line::default());
        let rows = outlook.grants.iter().take(LISTED);
        let rows =
            rows.map(|grant| vec![grant.node.to_string(), grant.cidr.to_string(), grant.pool.to_string()]);
        lines.extend(cluster.table(["NODE", "GETS BLOCK", "OF POOL"], rows));
        lines.extend(more(outlook.grants.len()).map(Line::from));
    }
    if !outlook.departures.is_empty() {
        lines.push(Line::default());
        let groups = by_time(&outlook.departures);
        let rows = groups
            .into_iter()
            .map(|(when, nodes)| vec![nodes.len().to_string(), when.to_string(), ten_by_number(nodes)]);
        lines.extend(cluster.table(["BLOCKS", "LEAVE", "NODES"], rows));
    }
    lines.push(Line::default());
    let part = |label: &str, text: &str| Line::labelled(label, LABEL, text);
    lines.extend(outlook.room.as_ref().map(|room| part("room", &description(room))));
    lines.extend(outlook.pods.as_ref().map(|pods| part("pods", &of_pods(pods))));
    if let Some(FirstFull { percent, pools, n_nodes: _ }) = &outlook.first_full {
        let pools = ten_of(pools);
        let text = format!(
            "from {percent} % use per node on, nodes get no further block of the first pools: {pools}"
        );
        lines.push(part("use", &text));
    }
    if !outlook.nodes_without_replacement.is_empty() {
        let nodes = counted(outlook.nodes_without_replacement.len(), "node");
        let names = ten_by_number(&outlook.nodes_without_replacement);
        lines.push(part("room", &format!("no pool has a block for {nodes} after the recreation: {names}")));
    }
    lines.extend(outlook.size_effects.iter().map(|effect| part("sizes", effect)));
    lines.extend(outlook.final_effects.iter().map(|effect| part("final", effect)));
    let problem = |problem: &Problem| {
        let is_named = problem.subjects.iter().any(|subject| problem.message.contains(subject.as_str()));
        let names = if is_named { String::new() } else { format!(" ({})", ten_of(&problem.subjects)) };
        format!("{}: {}{names}", problem.kind, problem.message)
    };
    lines.extend(outlook.appearing.iter().map(|found| part("appears", &problem(found))));
    lines.extend(outlook.resolved.iter().map(|found| part("resolved", &problem(found))));
    if outlook.appearing.is_empty() && outlook.nodes_without_replacement.is_empty() {
        lines.push("No problem would appear.".into());
    }
    lines
}

/// The nodes of blocks that leave, by the time.
pub(in crate::cli) fn by_time(departures: &[Departure]) -> BTreeMap<&When, Vec<&NodeName>> {
    let mut groups: BTreeMap<&When, Vec<&NodeName>> = BTreeMap::new();
    for departure in departures {
        groups.entry(&departure.when).or_default().push(&departure.node);
    }
    groups
}

/// The hint that a table is cut.
fn more(n_rows: usize) -> Option<String> {
    let n_more = n_rows.saturating_sub(LISTED);
    (n_more > 0).then(|| format!("and {n_more} more: -o json shows all"))
}

fn description(room: &Room) -> String {
    let pools = ten_of(&room.pools);
    if room.pools.is_empty() {
        "no pool selects a node with these labels".to_owned()
    } else if room.is_enough {
        format!("there is room for {} such nodes and more in {pools}", room.n_nodes)
    } else {
        format!("{pools} can serve {}, and then runs out", counted(room.n_nodes, "such node"))
    }
}

/// How many pods the added nodes can run.
fn of_pods(pods: &PodCapacity) -> String {
    let nodes = counted(pods.n_nodes, "added node");
    let more = match pods.most.saturating_sub(pods.now) {
        0 => String::new(),
        _ => format!(", and at most {} as they grow", shown(pods.most)),
    };
    let limit = match pods.max_pods {
        Some(max_pods) => format!("; kubelet allows {max_pods} on each other node of their first pool"),
        None => String::new(),
    };
    format!("{nodes} can run {} with addresses{more}{limit}", counted(pods.now, "pod"))
}

/// The rows of each pool, before and after.
fn both(outlook: &Outlook) -> BTreeMap<&str, (Option<&PoolRow>, Option<&PoolRow>)> {
    let mut rows: BTreeMap<&str, (Option<&PoolRow>, Option<&PoolRow>)> = BTreeMap::new();
    for row in &outlook.before.pools {
        rows.entry(row.name.as_str()).or_default().0 = Some(row);
    }
    for row in &outlook.after.pools {
        rows.entry(row.name.as_str()).or_default().1 = Some(row);
    }
    rows
}

fn row(before: Option<&PoolRow>, after: Option<&PoolRow>) -> Vec<String> {
    let name = after.or(before).map_or("", |row| row.name.as_str());
    let cells: [fn(&PoolRow) -> String; 5] = [
        |row| row.state.clone(),
        |row| row.selects.to_string(),
        |row| format!("{}/{}", shown(row.held), shown(row.blocks)),
        |row| shown(row.free),
        |row| format!("{}/{}", row.wait_first, row.wait_growth),
    ];
    let cell = |cell: &fn(&PoolRow) -> String| {
        let of = |row: Option<&PoolRow>| row.map_or_else(|| "-".to_owned(), cell);
        moved(&of(before), &of(after))
    };
    std::iter::once(name.to_owned()).chain(cells.iter().map(cell)).collect()
}

/// The answer as JSON.
pub(in crate::cli) fn object(outlook: &Outlook) -> Value {
    let pool = |row: &PoolRow| {
        json!({
            "state": row.state, "selects": row.selects, "held": row.held, "blocks": row.blocks, "free": row.free,
            "waiting": {"first": row.wait_first, "growth": row.wait_growth},
        })
    };
    let pools = both(outlook).into_iter().map(
        |(name, (before, after))| json!({"name": name, "before": before.map(pool), "after": after.map(pool)}),
    );
    let nodes = |overview: &Overview| {
        let nodes = &overview.nodes;
        json!({
            "all": nodes.all, "served": nodes.served, "withoutAddresses": nodes.without_addresses,
            "wantGrowth": nodes.want_growth, "noPool": nodes.no_pool, "notLinux": nodes.not_linux,
        })
    };
    let problems = |problems: &[Problem]| -> Vec<Value> {
        let one = |problem: &Problem| json!({"kind": problem.kind, "message": problem.message, "subjects": problem.subjects});
        problems.iter().map(one).collect()
    };
    let grants = outlook.grants.iter().map(|grant| {
        json!({"node": grant.node.as_str(), "cidr": grant.cidr.to_string(), "pool": grant.pool.as_str()})
    });
    let departures = outlook.departures.iter().map(|departure| {
        json!({
            "cidr": departure.cidr.to_string(), "node": departure.node.as_str(), "pool": departure.pool.as_str(),
            "when": departure.when.as_str(), "why": departure.when.to_string(), "pods": departure.pods,
        })
    });
    let room = outlook.room.as_ref().map(|room| {
        let pools: Vec<&str> = room.pools.iter().map(PoolName::as_str).collect();
        json!({"nodes": room.n_nodes, "more": room.is_enough, "pools": pools})
    });
    let pods = outlook.pods.as_ref().map(|pods| {
        let (now, most) = (capped_count(pods.now), capped_count(pods.most));
        json!({"nodes": pods.n_nodes, "now": now, "most": most, "maxPods": pods.max_pods})
    });
    let first_full = outlook.first_full.as_ref().map(|full| {
        let pools: Vec<&str> = full.pools.iter().map(PoolName::as_str).collect();
        json!({"use": full.percent, "pools": pools, "nodes": full.n_nodes})
    });
    json!({
        "nodes": {"before": nodes(&outlook.before), "after": nodes(&outlook.after)},
        "pools": pools.collect::<Vec<_>>(),
        "grants": grants.collect::<Vec<_>>(),
        "departures": departures.collect::<Vec<_>>(),
        "withoutRoom": outlook.nodes_without_replacement.iter().map(NodeName::as_str).collect::<Vec<_>>(),
        "room": room,
        "pods": pods,
        "firstFull": first_full,
        "sizes": outlook.size_effects,
        "final": outlook.final_effects,
        "appearing": problems(&outlook.appearing),
        "resolved": problems(&outlook.resolved),
    })
}

/// The writes that the controller would do now, and their context, as JSON.
fn proposed(proposal: &Proposal) -> Value {
    let waiting = proposal.waiting.iter().map(|plan| {
        let why = match plan.verdict {
            NodeVerdict::Wait(wait) => Some(wait.to_string()),
            NodeVerdict::Act(_) | NodeVerdict::AtRest => None,
        };
        let refusals: Vec<String> = plan.refusals.iter().map(ToString::to_string).collect();
        json!({"node": plan.node.as_str(), "why": why, "refusals": refusals})
    });
    json!({
        "requests": proposal.requests.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "waiting": waiting.collect::<Vec<_>>(),
        "withoutPool": proposal.unselected.iter().map(NodeName::as_str).collect::<Vec<_>>(),
        "findings": proposal.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
