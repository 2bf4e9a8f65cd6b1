//! `cilium-node-ipam status`: the state of the cluster on one screen.

use std::time::Duration;

use anstyle::Style;
use serde_json::{Value, json};

use super::super::program::program;
use super::super::screen::{self, FINE, Line, PLAIN, Reader, Table, WAITS, WRONG, style_for};
use super::controller::{CLOCK_TOLERANCE, Controller, NO_LEADER};
use super::follow::{self, Screen};
use super::{Cluster, Source, Verdict, block_on, fields, pods};
use crate::model::counted::{counted, shown};
use crate::model::names::ten_of;
use crate::model::time::Timestamp;
use crate::view::audit::catalog::Severity;
use crate::view::overview::{NodeTotals, Overview, PoolRow, Problem, overview, sort};
use crate::view::{late, waiting_pods};

/// Show the state of the cluster on one screen: who leads, how nodes are served, the pools, and every problem with its
/// remedy.
///
/// It reads the cluster once and decides with the controller's own planner. It works while the controller is down, and
/// says so.
///
/// Each problem is an error, a warning or information, as `check` says. The worst comes first.
///
/// Exit codes: 0 no errors and no warnings, 1 there are some, 2 the cluster could not be read.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam status\n  cilium-node-ipam status --wait --timeout 10m\n  cilium-node-ipam status -o json | jq '.pools[] | \
         select(.free == 0)'"
)]
pub struct Args {
    /// Look again every 2 s, or less often in a large cluster, until it is interrupted. A terminal is redrawn, with the
    /// time in the first line; elsewhere each answer is printed that differs from the last one.
    #[arg(short, long)]
    watch: bool,

    /// Wait until there is no error and no warning, and print the last answer.
    #[arg(long, conflicts_with = "watch")]
    wait: bool,

    /// The time limit of --wait. The exit code is then 1.
    #[arg(
        long, value_name = "DURATION", default_value = "5m", value_parser = humantime::parse_duration, requires = "wait"
    )]
    timeout: Duration,

    #[command(flatten)]
    cluster: Source,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    block_on(async move {
        let cluster = &args.cluster;
        let look = async || Answer::of(cluster).await;
        let answer = if args.watch {
            let screen = Screen::of(cluster.output);
            let show = |answer: &Answer| match screen {
                Screen::Redraw => screen::redraw(&answer.dated(cluster)),
                Screen::Append => answer.print(cluster),
            };
            follow::watch(screen, look, show).await?
        } else if args.wait {
            let reported = |answer: &Answer| counted(answer.wrong().count(), "problem");
            let answer = follow::wait(args.timeout, look, Answer::verdict, reported).await?;
            answer.print(cluster)?;
            answer
        } else {
            let answer = look().await?;
            answer.print(cluster)?;
            answer
        };
        Ok(answer.verdict())
    })
}

/// The width of a label.
const LABEL: usize = 12;

/// The longest forecast that is shown: it extends the grants of six hours.
const LONGEST: Duration = Duration::from_secs(90 * 86_400);

/// The answer about a cluster.
struct Answer {
    controller: Controller,
    overview: Overview,
    /// The kinds that could not be listed, each with the reason: without Pods, none that waits for an address is counted.
    skipped: Vec<String>,
}

impl Answer {
    async fn of(cluster: &Source) -> anyhow::Result<Self> {
        let listed = cluster.list().await?;
        let controller = Controller::of(&listed, &cluster.access).await;
        let mut overview = overview(&listed.world, &listed.plans, listed.now.wall);
        let late = late::problems(&listed.world, &listed.plans, controller.pace.as_deref(), listed.now.wall);
        let objects = pods::waiting(&listed.live).await?;
        let hanging = waiting_pods::problem(&listed.world, &objects.around.waiting, listed.now.wall);
        overview.problems.splice(0..0, controller.problems.iter().cloned().chain(late).chain(hanging));
        sort(&mut overview.problems);
        let skipped = objects.skipped.into_iter().filter(|skipped| pods::is_of_pods(skipped)).collect();
        Ok(Self { controller, overview, skipped })
    }

    fn verdict(&self) -> Verdict {
        if self.wrong().next().is_none() { Verdict::Fine } else { Verdict::Found }
    }

    /// The errors and warnings.
    fn wrong(&self) -> impl Iterator<Item = &Problem> {
        self.overview.problems.iter().filter(|problem| problem.severity < Severity::Info)
    }

    fn print(&self, cluster: &Cluster) -> anyhow::Result<Reader> {
        let mut object = fields(object(&self.controller, &self.overview));
        object.insert("skipped".to_owned(), json!(self.skipped));
        cluster.print("Status", object, || self.text(cluster))
    }

    /// The text below its time.
    fn dated(&self, cluster: &Cluster) -> Vec<Line> {
        let title = format!("{} status at {:.0}, until Ctrl-C", program(), self.controller.now);
        let mut lines = vec![title.into(), Line::default()];
        lines.extend(self.text(cluster));
        lines
    }

    fn text(&self, cluster: &Cluster) -> Vec<Line> {
        let mut lines = text(cluster, &self.controller, &self.overview);
        let skipped = self.skipped.iter();
        lines.extend(skipped.map(|skipped| Line::from(format!("Not seen: {skipped}.")).below(2)));
        lines
    }
}

/// Whether two answers say the same. The age of the Lease changes all the time, and is in a sentence about it.
impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        let of_controller =
            |answer: &Self| (answer.controller.leader.clone(), answer.controller.mode.clone());
        let problems = |answer: &Self| -> Vec<(&'static str, String)> {
            let said = |problem: &Problem| {
                if problem.kind == NO_LEADER { String::new() } else { problem.message.clone() }
            };
            answer.overview.problems.iter().map(|problem| (problem.kind, said(problem))).collect()
        };
        of_controller(self) == of_controller(other)
            && self.overview.nodes == other.overview.nodes
            && self.overview.pools == other.overview.pools
            && problems(self) == problems(other)
    }
}

fn text(cluster: &Cluster, controller: &Controller, overview: &Overview) -> Vec<Line> {
    let mut lines = vec![of_controller(controller), of_nodes(&overview.nodes), Line::default()];
    if overview.pools.is_empty() {
        lines.push("The cluster has no pools: kubectl apply -f POOL.yaml".into());
    } else {
        let mut headers = vec!["POOL", "STATE", "SELECTS", "BLOCKS", "FREE", "WAIT", "OLDEST", "LASTS"];
        headers.extend(cluster.wide(["LARGEST", "PRIORITY", "SELECTOR", "CIDRS(HELD/ALL)"]));
        let mut table = Table::new(headers);
        for pool in &overview.pools {
            let row = row(pool, controller.now).into_iter().chain(cluster.wide(more(pool)));
            table.add(style_of(pool), row);
        }
        lines.extend(cluster.table_lines(table));
    }
    lines.push(Line::default());
    lines.extend(verdict_line(overview));
    for (number, problem) in overview.problems.iter().enumerate() {
        let line = Line::from(format!("{:>3}  ", number + 1)).and(style_for(problem.severity), problem.kind);
        lines.push(line.and(PLAIN, format!(": {}", problem.message)).below(5));
        lines.extend(problem.next.iter().map(|next| format!("     next: {} {next}", program()).into()));
    }
    lines
}

fn of_controller(controller: &Controller) -> Line {
    let plain = |text: String| (PLAIN, text);
    let mode = match &controller.mode {
        Ok(mode) => (PLAIN, format!("mode {mode}")),
        Err(_) => (WRONG, "PASSIVE".to_owned()),
    };
    let frozen = if controller.frozen.is_empty() { (PLAIN, "not frozen") } else { (WRONG, "FROZEN") };
    let replicas = controller.replicas.map(|replicas| {
        let text = format!("{} of {} ready", replicas.ready, counted(replicas.all, "replica"));
        (if replicas.ready == replicas.all { PLAIN } else { WAITS }, text)
    });
    let last_write = controller.last_write.map(|at| match since(at, controller.now) {
        Some(since) => format!("last write {since} ago"),
        None => "last write at an unknown time".to_owned(),
    });
    let parts = [
        controller.version.clone().map(plain),
        replicas,
        Some(plain(controller.lease.clone())),
        Some(mode),
        Some((frozen.0, frozen.1.to_owned())),
        last_write.map(plain),
        controller.pace.as_ref().map(|pace| (WAITS, format!("paced: {pace}"))),
    ];
    let mut line = Line::from("controller  ").below(LABEL);
    for (index, (style, text)) in parts.into_iter().flatten().enumerate() {
        line = line.and(PLAIN, if index > 0 { ", " } else { "" }).and(style, text);
    }
    line
}

/// The numbers of nodes, without those that are zero.
fn of_nodes(nodes: &NodeTotals) -> Line {
    let line = Line::from(format!("nodes       {}: {} served", nodes.all, nodes.served)).below(LABEL);
    let counts = [
        (nodes.without_addresses, WRONG, "WITHOUT ADDRESSES"),
        (nodes.want_growth, PLAIN, "want growth"),
        (nodes.no_pool, PLAIN, "without a pool"),
        (nodes.not_linux, PLAIN, "not Linux"),
    ];
    let some = counts.into_iter().filter(|(count, ..)| *count > 0);
    some.fold(line, |line, (count, style, what)| line.and(PLAIN, ", ").and(style, format!("{count} {what}")))
}

/// The sentence that nothing is wrong. A node without addresses that is not late yet is no problem, but not fine either.
fn verdict_line(overview: &Overview) -> Option<Line> {
    if overview.problems.iter().any(|problem| problem.severity < Severity::Info) {
        return None;
    }
    let waiting = overview.nodes.without_addresses;
    if waiting > 0 {
        let nodes = counted(waiting, "node");
        let text = format!("{nodes} without addresses, not late yet: {} why NODE", program());
        return Some(Line::painted(WAITS, text));
    }
    let text =
        if overview.problems.is_empty() { "No problem found." } else { "No problem found. For information:" };
    Some(Line::painted(FINE, text))
}

/// The style of the line of a pool.
fn style_of(pool: &PoolRow) -> Style {
    match pool.state.as_str() {
        "Ready" if pool.wait_first == 0 => PLAIN,
        "Draining" => WAITS,
        _ => WRONG,
    }
}

fn row(pool: &PoolRow, now: Timestamp) -> Vec<String> {
    let oldest = pool.oldest.values().min().map(|at| since(*at, now).unwrap_or_else(|| "?".to_owned()));
    vec![
        pool.name.to_string(),
        pool.state.clone(),
        pool.selects.to_string(),
        format!("{}/{}", shown(pool.held), shown(pool.blocks)),
        shown(pool.free),
        format!("{}/{}", pool.wait_first, pool.wait_growth),
        oldest.unwrap_or_else(|| "-".to_owned()),
        lasts(pool),
    ]
}

/// How long the free blocks of a pool last, if nodes get them as in the last hours.
fn lasts(pool: &PoolRow) -> String {
    match pool.full_in.values().min() {
        Some(left) if *left > LONGEST => format!(">{}", age(LONGEST.as_secs().cast_signed())),
        Some(left) if !left.is_zero() => format!("~{}", age(left.as_secs().cast_signed())),
        // It is full, or there is no trend.
        Some(_) | None => "-".to_owned(),
    }
}

/// The cells of the wide form.
fn more(pool: &PoolRow) -> [String; 4] {
    let (priority, selector) = match &pool.asked {
        Some((priority, selector)) if selector.is_empty() => (priority.to_string(), "all nodes".to_owned()),
        Some((priority, selector)) => (priority.to_string(), selector.clone()),
        None => ("?".to_owned(), "?".to_owned()),
    };
    let cidrs = pool
        .cidrs
        .iter()
        .map(|(cidr, counts)| format!("{cidr}={}/{}", shown(counts.held), shown(counts.blocks)));
    let largest: Vec<String> = pool.largest_free.values().map(|prefix| format!("/{prefix}")).collect();
    let largest = if largest.is_empty() { "-".to_owned() } else { largest.join(",") };
    [largest, priority, selector, ten_of(cidrs)]
}

/// The time since a moment; `None` if it is in the future: a wrong clock has set it.
pub(super) fn since(at: Timestamp, now: Timestamp) -> Option<String> {
    let since = now.duration_since(at);
    (since >= -CLOCK_TOLERANCE).then(|| age(since.as_secs()))
}

/// A time span as kubectl prints ages.
fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn cidrs_of(pool: &PoolRow) -> Vec<Value> {
    let cidrs = pool.cidrs.iter().map(|(cidr, counts)| {
        json!({
            "cidr": cidr.to_string(), "total": counts.blocks, "held": counts.held, "draining": counts.draining,
            "cooling": counts.cooling, "free": counts.free, "foreign": counts.foreign, "excluded": counts.excluded,
        })
    });
    cidrs.collect()
}

fn object(controller: &Controller, overview: &Overview) -> Value {
    let nodes = &overview.nodes;
    let pools = overview.pools.iter().map(|pool| {
        json!({
            "name": pool.name.as_str(), "cidrs": cidrs_of(pool), "state": pool.state, "selects": pool.selects, "held": pool.held,
            "blocks": pool.blocks, "free": pool.free,
            "waiting": {"first": pool.wait_first, "growth": pool.wait_growth},
            "waitingSince": pool.oldest.iter().map(|(need, since)| (need.as_str().to_owned(), since.to_string().into()))
                .collect::<serde_json::Map<_, _>>(),
            "largestFree": pool.largest_free.iter().map(|(family, prefix)| (family.as_str().to_owned(), (*prefix).into()))
                .collect::<serde_json::Map<String, Value>>(),
            "fullInSeconds": pool.full_in.iter().map(|(family, left)| (family.as_str().to_owned(), left.as_secs().into()))
                .collect::<serde_json::Map<_, _>>(),
        })
    });
    let problems = overview.problems.iter().map(|problem| {
        json!({
            "kind": problem.kind, "severity": problem.severity.as_str(), "message": problem.message,
            "subjects": problem.subjects,
            "next": problem.next.as_ref().map(|next| format!("{} {next}", program())),
        })
    });
    json!({
        "controller": {
            "leader": controller.leader, "lease": controller.lease, "version": controller.version,
            "replicas": controller.replicas.map(|replicas| json!({"all": replicas.all, "ready": replicas.ready})),
            "lastWrite": controller.last_write.map(|at| at.to_string()), "paced": controller.pace, "mode": controller.mode.as_ref().ok(),
            "passive": controller.mode.as_ref().err(), "frozen": controller.frozen,
        },
        "nodes": {
            "all": nodes.all, "served": nodes.served, "withoutAddresses": nodes.without_addresses,
            "wantGrowth": nodes.want_growth, "noPool": nodes.no_pool, "notLinux": nodes.not_linux,
        },
        "pools": pools.collect::<Vec<_>>(),
        "problems": problems.collect::<Vec<_>>(),
    })
}
