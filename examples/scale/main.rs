//! How fast the controller serves a cluster that exists already, on a real API server, with and without latency on its
//! writes. Prints its measurements; judges nothing.
//!
//! Nodes and CiliumNodes are made first, without agents, so that only the controller and the server are measured. Both
//! share the machine with this program.

#[path = "../../tests/it/support/mod.rs"]
mod support;

mod audience;
mod reclaim;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;

use crate::audience::{Audience, Heard};
use crate::support::cluster::Cluster;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::controller::{Controller, command};
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::preparation::create_default_pool;
use crate::support::proxy::{Fault, Often, Proxy, Requests, Verb};
use crate::support::rig::Rig;
use crate::support::views::Published;

/// The maximum number of concurrent requests that create the cluster.
const PARALLEL: usize = 16;

/// The maximum time of each wait.
const PATIENCE: Duration = Duration::from_secs(1800);

/// The default of the controller. Tests check every second, which is a tenth of the CPU with 3,000 nodes.
const AS_INSTALLED: [&str; 2] = ["--self-check-interval", "5m"];

/// Without watchers, their limit on events has no use. It allows 20 first blocks per second with 5,000 nodes.
const UNWATCHED: [&str; 4] = ["--self-check-interval", "5m", "--watch-event-budget", "0"];

/// Measures how fast the controller serves many nodes.
#[derive(Debug, Parser)]
struct Args {
    /// How many nodes.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    nodes: u16,

    /// How much later each claim and each patch reaches the server in the second run.
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = humantime::parse_duration)]
    write_delay: Duration,

    /// How many pools; each selects as many nodes as the others.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pools: u16,

    /// Measure only `cilium-node-ipam status` of a cluster in which all nodes are served.
    #[arg(long, conflicts_with = "scrape")]
    status: bool,

    /// Measure only a scrape of `/metrics` of a controller that serves all nodes.
    #[arg(long)]
    scrape: bool,

    /// Measure the load that as many watchers of CiliumNodes are for the API server while all nodes are served.
    #[arg(long, value_name = "N", conflicts_with_all = ["status", "scrape"])]
    watchers: Option<u16>,

    /// The mode of Cilium, with --watchers.
    #[arg(long, value_name = "MODE", default_value = "crd", value_parser = ["crd", "multi-pool", "cluster-pool"])]
    mode: String,

    /// The prefix length of a node's block, with --watchers.
    #[arg(long, value_name = "N", default_value_t = 28, value_parser = clap::value_parser!(u8).range(24..=28))]
    block_size: u8,

    /// How many nodes grow and give a block back after that, with --watchers, in crd mode.
    #[arg(long, value_name = "N", default_value_t = 0)]
    reclaim: u16,

    /// More flags of the controller, separated by spaces, with --watchers.
    #[arg(long, value_name = "FLAGS", default_value = "", allow_hyphen_values = true)]
    flags: String,
}

/// How often `/metrics` is read.
const SCRAPES: usize = 20;

/// The result of one run.
struct Measured {
    ready: Duration,
    served: Duration,
    ready_again: Duration,
    memory: Memory,
    /// The time on a CPU, per node.
    milliseconds_of_cpu: f64,
    microseconds_per_decision: f64,
    status: Status,
    scrape: Scrape,
}

/// The memory of a process in KiB, as the kernel counts it.
struct Memory {
    /// The maximum that it ever held.
    peak: u64,
    /// The part of its present memory that is its program: pages of files, which the kernel can drop and read again.
    program: u64,
}

/// A scrape of `/metrics`: its size, its series, and how long it takes from the request to the last byte.
struct Scrape {
    bytes: usize,
    series: usize,
    median: Duration,
    longest: Duration,
}

/// How long `cilium-node-ipam status` took, and the maximum memory that it ever held.
struct Status {
    took: Duration,
    peak_memory: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let names: Vec<String> = (0..args.nodes).map(|number| format!("node-{number:05}")).collect();
    if args.status {
        let Status { took, peak_memory } = run(&names, args.pools, Duration::ZERO).await?.status;
        println!("{} nodes: status took {:.1} s and {peak_memory}", names.len(), took.as_secs_f64());
        return Ok(());
    }
    if args.scrape {
        let Scrape { bytes, series, median, longest } = run(&names, args.pools, Duration::ZERO).await?.scrape;
        println!(
            "{} nodes, {} pools: a scrape has {} KiB in {series} series, and took {:.1} ms (median of {SCRAPES}; the longest \
             {:.1} ms)",
            names.len(),
            args.pools,
            bytes / 1024,
            median.as_secs_f64() * 1e3,
            longest.as_secs_f64() * 1e3,
        );
        return Ok(());
    }
    if let Some(n_watchers) = args.watchers {
        return watched(&names, usize::from(n_watchers), &args).await;
    }
    println!("{} nodes, one block each: two writes per node", names.len());
    println!(
        "| writes | ready | all served | nodes per second | ready again | peak memory | of it program | CPU per node | per decision |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let prompt = run(&names, args.pools, Duration::ZERO).await?;
    print("prompt", &prompt, names.len());
    let delayed = run(&names, args.pools, args.write_delay).await?;
    print(&format!("{:?} late", args.write_delay), &delayed, names.len());
    let kept = prompt.served.as_secs_f64() / delayed.served.as_secs_f64();
    println!("with late writes {:.0} % as many nodes per second are served", kept * 100.0);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "thousands")]
fn print(writes: &str, measured: &Measured, nodes: usize) {
    let Measured {
        ready, served, ready_again, memory, milliseconds_of_cpu, microseconds_per_decision, ..
    } = measured;
    println!(
        "| {writes} | {:.1} s | {:.1} s | {:.0} | {:.1} s | {} | {} | {milliseconds_of_cpu:.2} ms | \
         {microseconds_per_decision:.0} us |",
        ready.as_secs_f64(),
        served.as_secs_f64(),
        nodes as f64 / served.as_secs_f64(),
        ready_again.as_secs_f64(),
        mebibytes(memory.peak),
        mebibytes(memory.program),
    );
}

/// One cluster, from its first list to the last node that is served, and a second start.
async fn run(names: &[String], n_pools: u16, delay: Duration) -> Result<Measured> {
    let n_nodes = u16::try_from(names.len())?;
    let control_plane = ControlPlane::start(Options::default()).await?;
    let alarm = control_plane.alarm.clone();
    let families = control_plane.options.families;
    let cluster = Cluster::start(control_plane.admin.clone(), families, alarm).await?;
    eprintln!("making {} nodes", names.len());
    let pool_of = |number: usize| format!("pool-{:04}", number % usize::from(n_pools));
    let nodes: Vec<NodeSpec> = names
        .iter()
        .enumerate()
        .map(|(number, name)| NodeSpec::new(name).label("pool", &pool_of(number)))
        .collect();
    cluster.create_nodes(&nodes).await?;
    create_cilium_nodes(&cluster, names).await?;
    // Each pool has 4096 blocks, and one pool alone has enough for all nodes.
    let ranges = if n_pools == 1 { vec!["10.0.0.0/12".to_owned()] } else { ranges(n_pools) };
    stream::iter(ranges.iter().enumerate())
        .map(async |(number, range)| {
            let name = pool_of(number);
            let pool = PoolSpec::new(&name).select("pool", &name).ipv4(28, &[range]);
            cluster.create_pool(&pool).await.map(drop)
        })
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;

    let served = served_from_now(&cluster);
    // Both runs pass the proxy, so that only the delay differs.
    let proxy = Proxy::start(&control_plane, cluster.bell.clone()).await?;
    let _late = [(Verb::Create, Kind::Block), (Verb::Patch, Kind::CiliumNode)]
        .map(|(verb, kind)| proxy.plant(Requests::new(verb, kind), Fault::Delay(delay), Often::Always));
    eprintln!("starting the controller");
    let began = Instant::now();
    let controller = Controller::start_ready_behind(&control_plane, &proxy, &UNWATCHED).await?;
    let ready = began.elapsed();
    let n_served = || served.lock().unwrap_or_else(PoisonError::into_inner).len();
    cluster.wait_until("all nodes to be served", PATIENCE, async || Ok(n_served() == names.len())).await?;
    let all_served = began.elapsed();
    let memory = memory(controller.pid())?;
    let (_, metrics) = controller.get("/metrics").await?;
    let milliseconds_of_cpu = value(&metrics, "process_cpu_seconds_total")? * 1e3 / f64::from(n_nodes);
    let decisions = |part: &str| {
        value(&metrics, &format!("cilium_node_ipam_decision_duration_seconds_{part}{{kind=\"node\"}}"))
    };
    let microseconds_per_decision = decisions("sum")? / decisions("count")? * 1e6;
    let scrape = scrape(&controller).await?;
    controller.sigkill().await?;
    let status = status(&control_plane).await?;

    let began = Instant::now();
    let controller = Controller::start_ready_behind(&control_plane, &proxy, &UNWATCHED).await?;
    let ready_again = began.elapsed();
    controller.sigkill().await?;
    control_plane.assert_clean().await?;
    Ok(Measured {
        ready,
        served: all_served,
        ready_again,
        memory,
        milliseconds_of_cpu,
        microseconds_per_decision,
        status,
        scrape,
    })
}

/// The CiliumNodes of agents that wait for their first addresses.
async fn create_cilium_nodes(cluster: &Cluster, names: &[String]) -> Result<()> {
    let ipam = if cluster.ipam == "multi-pool" {
        json!({"pools": {"requested": [{"pool": "default", "needed": {"ipv4-addrs": 8}}]}})
    } else {
        json!({})
    };
    stream::iter(names)
        .map(async |name| {
            let object = Kind::CiliumNode.object(name, json!({"spec": {"ipam": ipam}}));
            cluster.create(&object, Kind::CiliumNode).await.map(drop)
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

/// When each node is first seen served, by the watch of this program.
fn served_from_now(cluster: &Cluster) -> Arc<Mutex<BTreeMap<String, Instant>>> {
    let served = Arc::new(Mutex::new(BTreeMap::new()));
    let listener = Arc::clone(&served);
    cluster.cache().subscribe(Box::new(move |kind, name, object| {
        let shows = |object: &Arc<_>| !Published::of(object).pod_cidrs.is_empty();
        if kind == Kind::CiliumNode && object.is_some_and(shows) {
            let mut served = listener.lock().unwrap_or_else(PoisonError::into_inner);
            served.entry(name.to_owned()).or_insert_with(Instant::now);
        }
    }));
    served
}

/// Serves all nodes while watchers receive every event, and prints the cost.
///
/// Not every watcher is of the audience: the controller, this program and its oracle have one each.
async fn watched(names: &[String], n_watchers: usize, args: &Args) -> Result<()> {
    let ipam = ["crd", "multi-pool", "cluster-pool"].into_iter().find(|mode| *mode == args.mode);
    let ipam = ipam.context("clap allows no other")?;
    let rig = Rig::start(Options { ipam, ..Options::default() }).await?;
    let (control_plane, cluster) = (&rig.control_plane, &rig.cluster);
    let n_reclaimed = usize::from(args.reclaim);
    ensure!(
        ipam == "crd" || n_reclaimed == 0,
        "--reclaim: in the mode {ipam} agents give blocks back by themselves"
    );
    ensure!(n_reclaimed <= names.len(), "--reclaim: there are only {} nodes", names.len());
    eprintln!("making {} nodes", names.len());
    cluster.create_nodes(&names.iter().map(NodeSpec::new).collect::<Vec<_>>()).await?;
    create_cilium_nodes(cluster, names).await?;
    if ipam == "multi-pool" {
        create_default_pool(&cluster.client, args.block_size).await?;
    }
    eprintln!("gathering {n_watchers} watchers");
    let audience = Audience::gather(control_plane, n_watchers).await?;
    let flags: Vec<&str> = AS_INSTALLED.into_iter().chain(args.flags.split_whitespace()).collect();
    let controller = Controller::start_ready(control_plane, &flags).await?;
    let served = served_from_now(cluster);
    let pid = api_server(control_plane)?;
    audience.count_from_now();
    let (cpu, began) = (seconds_of_cpu(pid)?, Instant::now());
    cluster.create_pool(&PoolSpec::new("default").ipv4(args.block_size, &["10.0.0.0/8"])).await?;
    let served_at = || served.lock().unwrap_or_else(PoisonError::into_inner).clone();
    cluster
        .wait_until("all nodes to be served", PATIENCE, async || Ok(served_at().len() == names.len()))
        .await?;
    let all_served = began.elapsed();
    let cpu = seconds_of_cpu(pid)? - cpu;
    let n_observed = names.len() * audience.heard(n_watchers)?.observers;
    // A watch that was cut may have been between two lists when a node was served; its observer sees that node never.
    let mut patience = 100;
    while audience.n_seen() < n_observed && patience > 0 {
        patience -= 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let heard = audience.heard(n_watchers)?;
    let memory = memory(Some(pid))?;
    let times: Vec<Instant> = served_at().into_values().collect();
    print_watched(began, all_served, cpu, &memory, &heard, &times);
    let reclaimed = &names[..n_reclaimed];
    if !reclaimed.is_empty() {
        eprintln!("growing {n_reclaimed} nodes");
        let agents = reclaim::grow(&rig, reclaimed, args.block_size).await?;
        reclaim::reclaim(&rig, reclaimed, &audience, n_watchers).await?;
        drop(agents);
    }
    controller.sigkill().await?;
    drop(audience);
    control_plane.assert_clean().await
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run")]
fn print_watched(
    began: Instant,
    all_served: Duration,
    cpu: f64,
    memory: &Memory,
    heard: &Heard,
    served: &[Instant],
) {
    let (seconds, n_nodes) = (all_served.as_secs_f64(), served.len() as f64);
    let quantiles = |times: &[Instant]| {
        let mut times: Vec<f64> = times.iter().map(|at| (*at - began).as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
        [50, 99].map(|percent| at(percent).map_or_else(|| "-".to_owned(), |time| format!("{time:.1} s")))
    };
    let ([served_50, served_99], [seen_50, seen_99]) = (quantiles(served), quantiles(&heard.seen));
    let (events, bytes) = (heard.events as f64, heard.bytes as f64);
    println!(
        "| nodes/s | events/s | MiB/s | events per node | KiB per event | API server CPU | its memory | cut | lists | served p50, p99 | seen p50, p99 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    println!(
        "| {:.0} | {:.0} | {:.1} | {:.0} | {:.1} | {cpu:.1} s in {seconds:.1} s | {} | {} | {} | {served_50}, \
         {served_99} | {seen_50}, {seen_99} |",
        n_nodes / seconds,
        events / seconds,
        bytes / seconds / 1024.0 / 1024.0,
        events / n_nodes,
        if heard.events == 0 { 0.0 } else { bytes / events / 1024.0 },
        mebibytes(memory.peak),
        heard.cuts,
        heard.lists,
    );
}

/// The process of the API server, a child of the control plane's.
fn api_server(control_plane: &ControlPlane) -> Result<u32> {
    let parent = control_plane.pid().context("the control plane has ended")?;
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Ok(stat) = Stat::of(pid)
            && stat.parent == parent
            && std::fs::read(format!("/proc/{pid}/cmdline"))?
                .split(|byte| *byte == 0)
                .any(|argument| argument.starts_with(b"--etcd-servers"))
        {
            return Ok(pid);
        }
    }
    anyhow::bail!("the control plane has no API server")
}

fn seconds_of_cpu(pid: u32) -> Result<f64> {
    // The unit of these fields is 1/100 s on every Linux of today.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(Stat::of(pid)?.ticks as f64 / 100.0)
}

/// A part of `/proc/PID/stat`.
struct Stat {
    parent: u32,
    /// The time on a CPU, in user and kernel mode.
    ticks: u64,
}

impl Stat {
    fn of(pid: u32) -> Result<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name of the program is in parentheses, and may contain anything.
        let (_, rest) = text.rsplit_once(')').context("no name")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |index: usize| fields.get(index).copied().with_context(|| format!("field {index}"));
        Ok(Self {
            parent: field(1)?.parse()?,
            ticks: field(11)?.parse::<u64>()? + field(12)?.parse::<u64>()?,
        })
    }
}

/// A range of 65,536 addresses for each pool, from 10.0.0.0 on.
fn ranges(n_pools: u16) -> Vec<String> {
    (0..n_pools).map(|number| format!("{}.{}.0.0/16", 10 + number / 256, number % 256)).collect()
}

/// Reads `/metrics` several times, as a scraper does.
async fn scrape(controller: &Controller) -> Result<Scrape> {
    let (mut times, mut text) = (Vec::new(), String::new());
    for _ in 0..SCRAPES {
        let began = Instant::now();
        let (code, answer) = controller.get("/metrics").await?;
        times.push(began.elapsed());
        ensure!(code == 200, "{code}: {answer}");
        text = answer;
    }
    times.sort_unstable();
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    Ok(Scrape { bytes: text.len(), series, median: times[SCRAPES / 2], longest: times[SCRAPES - 1] })
}

/// Runs `cilium-node-ipam status` without a controller. No replica leads then, so it finds a problem.
async fn status(plane: &ControlPlane) -> Result<Status> {
    let mut command = command(&plane.admin_kubeconfig);
    command.arg("status").stdout(Stdio::null());
    let began = Instant::now();
    let mut process = command.spawn()?;
    // The kernel forgets the size of a process when it exits, so the size is read every 5 ms.
    let mut peak = 0;
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    let ended = loop {
        tokio::select! {
            biased;
            ended = process.wait() => break ended?,
            _ = tick.tick() => peak = peak.max(memory(process.id()).map_or(0, |memory| memory.peak)),
        }
    };
    let took = began.elapsed();
    ensure!(ended.code() == Some(1), "{ended}");
    Ok(Status { took, peak_memory: mebibytes(peak) })
}

fn mebibytes(kib: u64) -> String {
    format!("{} MiB", kib / 1024)
}

fn memory(pid: Option<u32>) -> Result<Memory> {
    let pid = pid.context("it has ended")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context(name.to_owned())?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    };
    Ok(Memory { peak: field("VmHWM:")?, program: field("RssFile:")? })
}

/// The value of a series.
fn value(metrics: &str, series: &str) -> Result<f64> {
    let of_series = |line: &str| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned);
    Ok(metrics.lines().find_map(of_series).context(series.to_owned())?.trim().parse()?)
}
