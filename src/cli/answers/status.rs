//! `cilium-node-ipam status`: the state of the cluster on one screen.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::{Value, json};

use super::super::program::program;
use super::{Cluster, Listed, Verdict, block_on, fields};
use crate::controller::lease;
use crate::model::counted::shown;
use crate::model::freeze::Switch;
use crate::model::time::Timestamp;
use crate::publisher::Mode;
use crate::view::overview::{Overview, PoolRow, Problem, overview};

/// Show the state of the cluster on one screen: who leads, how nodes are served, the pools, and every problem with its
/// remedy.
///
/// It reads the cluster once and decides with the controller's own planner. It works while the controller is down, and says
/// so.
///
/// Exit codes: 0 nothing is wrong, 1 there is a problem, 2 the cluster could not be read.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam status\n  cilium-node-ipam status -o json | jq '.pools[] | \
         select(.free == 0)'"
)]
pub struct Args {
    #[command(flatten)]
    cluster: Cluster,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    block_on(async move {
        let listed = args.cluster.access.list().await?;
        let controller = Controller::of(&listed, &args.cluster.access.cilium_namespace).await;
        let mut overview = overview(&listed.world, &listed.plans);
        overview.problems.splice(0..0, controller.problems.clone());
        let verdict = if overview.problems.is_empty() { Verdict::Fine } else { Verdict::Found };
        let object = object(&controller, &overview);
        args.cluster.print("Status", fields(object), || text(&args.cluster, &controller, &overview))?;
        Ok(verdict)
    })
}

/// What is known of the controller itself.
struct Controller {
    /// Who holds the Lease, by the name of its Pod.
    leader: Option<String>,
    /// In a sentence, for people.
    lease: String,
    /// The mode of Cilium, or why the controller is passive.
    mode: Result<String, String>,
    /// What is frozen, a sentence each.
    frozen: Vec<String>,
    problems: Vec<Problem>,
    /// The time of the list.
    now: Timestamp,
}

impl Controller {
    async fn of(listed: &Listed, namespace: &str) -> Self {
        let api: Api<Lease> = Api::namespaced(listed.clients.reads.clone(), namespace);
        let found = tokio::time::timeout(listed.clients.timeout, api.get_opt(lease::NAME)).await;
        let name = format!("Lease {namespace}/{}", lease::NAME);
        let (leader, lease, is_led) = match found {
            Ok(Ok(Some(lease))) => of_lease(&lease, listed.now.wall),
            Ok(Ok(None)) => (None, format!("no leader: {name} does not exist"), false),
            Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                (None, format!("leader unknown: you are not allowed to get {name}"), true)
            }
            Ok(Err(_)) | Err(_) => (None, format!("leader unknown: no answer for {name}"), true),
        };
        let world = &listed.world;
        let mode = match world.mode() {
            Mode::Active(publisher) => Ok(publisher.ipam_mode().as_str().to_owned()),
            Mode::Passive(why) => Err(why.clone()),
        };
        let frozen: Vec<String> =
            Switch::ALL.into_iter().filter_map(|switch| world.freeze().told(switch)).collect();
        let problem = |kind, message: String, next: Option<&str>| Problem {
            kind,
            subjects: Vec::new(),
            message,
            next: next.map(str::to_owned),
        };
        let mut problems = Vec::new();
        if !is_led {
            let message = format!(
                "no controller is running, and nodes get no more blocks ({lease}): kubectl -n {namespace} get \
                 pods -l app.kubernetes.io/name=cilium-node-ipam"
            );
            problems.push(problem("NoLeader", message, None));
        }
        if let Err(why) = &mode {
            problems.push(problem("Passive", format!("the controller is passive: {why}"), None));
        }
        problems.extend(frozen.iter().map(|what| problem("Frozen", format!("frozen: {what}"), None)));
        Self { leader, lease, mode, frozen, problems, now: listed.now.wall }
    }
}

/// Who holds a Lease, a sentence about it, and whether its holder is at work.
fn of_lease(lease: &Lease, now: Timestamp) -> (Option<String>, String, bool) {
    let spec = lease.spec.clone().unwrap_or_default();
    let Some(holder) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
        return (None, "no leader: the Lease has no holder".to_owned(), false);
    };
    let name = holder.split_once('_').map_or(holder.as_str(), |(name, _)| name).to_owned();
    let age = spec.renew_time.map(|renewed| now.duration_since(renewed.0).as_secs().max(0));
    let duration = i64::from(spec.lease_duration_seconds.unwrap_or(15));
    match age {
        // Twice: the clocks of two machines differ.
        Some(age) if age > 2 * duration => {
            let sentence =
                format!("no leader: {name} renewed its Lease {age} s ago, and it is valid for {duration} s");
            (Some(name), sentence, false)
        }
        Some(age) => (Some(name.clone()), format!("{name} leads, renewed {age} s ago"), true),
        None => (Some(name.clone()), format!("{name} leads"), true),
    }
}

fn text(cluster: &Cluster, controller: &Controller, overview: &Overview) -> Vec<String> {
    let mode = match &controller.mode {
        Ok(mode) => format!("mode {mode}"),
        Err(_) => "PASSIVE".to_owned(),
    };
    let frozen = if controller.frozen.is_empty() { "not frozen" } else { "FROZEN" };
    let nodes = &overview.nodes;
    let mut lines = vec![
        format!("controller  {}, {mode}, {frozen}", controller.lease),
        format!(
            "nodes       {}: {} served, {} WITHOUT ADDRESSES, {} want growth, {} without a pool, {} not Linux",
            nodes.all,
            nodes.served,
            nodes.without_addresses,
            nodes.want_growth,
            nodes.no_pool,
            nodes.not_linux
        ),
        String::new(),
    ];
    if overview.pools.is_empty() {
        lines.push("The cluster has no pools: kubectl apply -f POOL.yaml".to_owned());
    } else {
        let headers = ["POOL", "STATE", "SELECTS", "BLOCKS", "FREE", "WAIT(FIRST/GROW)", "OLDEST"];
        lines.extend(cluster.table(&headers, overview.pools.iter().map(|pool| row(pool, controller.now))));
    }
    lines.push(String::new());
    if overview.problems.is_empty() {
        lines.push("No problem found.".to_owned());
    }
    for (number, problem) in overview.problems.iter().enumerate() {
        lines.push(format!("{:>3}  {}: {}", number + 1, problem.kind, problem.message));
        lines.extend(problem.next.iter().map(|next| format!("     next: {} {next}", program())));
    }
    lines
}

fn row(pool: &PoolRow, now: Timestamp) -> Vec<String> {
    let oldest = pool.oldest.values().min().map(|since| age(now.duration_since(*since).as_secs()));

    vec![
        pool.name.to_string(),
        pool.state.clone(),
        pool.selects.to_string(),
        format!("{}/{}", shown(pool.held), shown(pool.blocks)),
        shown(pool.free),
        format!("{}/{}", pool.wait_first, pool.wait_growth),
        oldest.unwrap_or_else(|| "-".to_owned()),
    ]
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

fn object(controller: &Controller, overview: &Overview) -> Value {
    let nodes = &overview.nodes;
    let pools = overview.pools.iter().map(|pool| {
        json!({
            "name": pool.name.as_str(), "state": pool.state, "selects": pool.selects, "held": pool.held,
            "blocks": pool.blocks, "free": pool.free,
            "waiting": {"first": pool.wait_first, "growth": pool.wait_growth},
            "waitingSince": pool.oldest.iter().map(|(need, since)| (need.as_str().to_owned(), since.to_string().into()))
                .collect::<serde_json::Map<_, _>>(),
        })
    });
    let problems = overview.problems.iter().map(|problem| {
        json!({
            "kind": problem.kind, "message": problem.message, "subjects": problem.subjects,
            "next": problem.next.as_ref().map(|next| format!("{} {next}", program())),
        })
    });
    json!({
        "controller": {
            "leader": controller.leader, "lease": controller.lease, "mode": controller.mode.as_ref().ok(),
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
