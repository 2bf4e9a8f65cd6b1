//! `cilium-node-ipam run`: the controller, and its dry run.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::controller::client::Clients;
use crate::controller::contact::Contact;
use crate::controller::dry_run;
use crate::controller::gather::{self, GatherOptions};
use crate::controller::lead::Lead;
use crate::controller::lease::{Election, Timing};
use crate::controller::mode::ModeSource;
use crate::controller::run::Options;
use crate::controller::tasks::Tasks;
use crate::model::release::Release;
use crate::net::cidr::Family;
use crate::plan::{CiliumNodeOrigin, PodIpPoolOrigin, Policy, ReclaimPolicy};
use crate::publisher::Mode;
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::settings::{self, OwnAddresses, Settings};
use crate::publisher::static_mode::NodeField;
use crate::telemetry::{Telemetry, http, logs};
use crate::wire::carrier_patch::ManagedFields;

/// Run the controller: give nodes blocks of the pools that select them, and more as they fill.
///
/// It finds its API server by --kubeconfig, then KUBECONFIG, then ~/.kube/config, then the pod that it runs in. It
/// writes only where `cilium-config` names a mode of --modes; elsewhere it stays passive and /readyz says why. SIGTERM ends it
/// cleanly: writes in flight are finished first.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Args {
    /// Say what would be written to the cluster as it is now, one line per write, and exit. Nothing is written.
    #[arg(long)]
    dry_run: bool,

    /// A kubeconfig file to use instead of those in KUBECONFIG.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The namespace of Cilium: of its ConfigMap `cilium-config`, which says its mode, of its CiliumNodeConfigs, which
    /// change that for some nodes, and of its agents' Pods.
    #[arg(long, value_name = "NAME", default_value = "kube-system", env = "CILIUM_NAMESPACE")]
    cilium_namespace: String,

    /// The modes of Cilium in which the controller may write, separated by commas: crd, multi-pool, cluster-pool,
    /// kubernetes. In all but crd another allocator serves the nodes by default, and has to be turned off first.
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "crd")]
    modes: Vec<IpamMode>,

    /// What of a Node is written in Cilium's mode kubernetes: `spec` (podCIDRs, which nobody can change later), or
    /// `annotations`, which agents read with `annotate-k8s-node: true` only.
    #[arg(long, value_name = "FIELD", default_value = "spec")]
    node_field: NodeField,

    /// The controller's own namespace, where its ConfigMap `cilium-node-ipam` can freeze it.
    #[arg(long, value_name = "NAME", default_value = "kube-system", env = "POD_NAMESPACE")]
    namespace: String,

    /// Vouch for the agents instead of reading `cilium-config`: they have this version, are in `ipam: crd` mode, and
    /// run the --families.
    #[arg(long, value_name = "VERSION", requires = "families")]
    assume_cilium: Option<Release>,

    /// The families that the agents run, with --assume-cilium: ipv4, ipv6, or both, separated by a comma.
    #[arg(long, value_name = "FAMILIES", value_delimiter = ',', requires = "assume_cilium", value_parser = family)]
    families: Vec<Family>,

    /// The shortest time between two changes of a served node's CiliumNode. Agents write the same object, and an
    /// agent that gets too many conflicts in a row ends. Only the annotation that proves a block absent does not wait.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration)]
    min_write_interval: Duration,

    /// How long an agent may be silent before it is asked which addresses it uses, and how long before it is asked again.
    /// A block that is to leave a node is kept if its agent does not answer for ten times that, and rests for twice that.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = question_interval)]
    question_interval: Duration,

    /// Keep no address of a node's first block for the router, health and ingress of its agent. They may be in any block
    /// then, and that block stays for as long as the node lives.
    #[arg(long)]
    no_own_addresses: bool,

    /// Create the CiliumNode of a selected node as soon as its Node appears, instead of waiting until its agent does.
    /// The agent takes it over.
    #[arg(long)]
    create_ciliumnodes: bool,

    /// In mode multi-pool, create the CiliumPodIPPool of each name under which pools give blocks, and add to it what it lacks
    /// when pools change. One that somebody else has created is left as it is.
    #[arg(long)]
    create_podippools: bool,

    /// Take blocks back also from nodes whose agent is Cilium 1.12 or 1.13, or of an unknown release, where pools ask for
    /// it. Agents of 1.12 may give an address to a pod while they are asked to let it go, and ten conflicts in a row end
    /// agents of both.
    #[arg(long)]
    reclaim_opt_in: bool,

    /// On how many nodes at once agents are asked to let the addresses of a block go.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    reclaim_at_once: u16,

    /// How many blocks may begin to leave nodes that live within a minute. Those of pools that are drained or deleted
    /// wait for the next. If more would leave that nodes do not need, none does any more until freeze-reclaim has been
    /// turned on and off again, or the process ends.
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u16).range(1..=10000))]
    reclaim_per_minute: u16,

    /// The maximum number of concurrent writes.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    max_parallel_writes: u16,

    /// The time limit of one request. A write without an answer is then settled by reading the object.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    request_timeout: Duration,

    /// How often to compare the bookkeeping with the objects that it follows from. Each check reads everything once.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = pause)]
    self_check_interval: Duration,

    /// Leave `metadata.managedFields` of CiliumNodes as it is. Removing it halves what every agent has to receive.
    #[arg(long)]
    keep_managed_fields: bool,

    /// Where to serve /livez, /readyz and /metrics.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9920")]
    listen: SocketAddr,

    /// Write the address in use to this file, for --listen with port 0.
    #[arg(long, value_name = "FILE")]
    address_file: Option<PathBuf>,

    /// The format of log lines on standard error. RUST_LOG says what is logged.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = logs::Format::Text)]
    log_format: logs::Format,

    /// Elect one replica by the Lease `cilium-node-ipam` in --cilium-namespace. The leader writes; every other replica
    /// stands by with its world in step. Addresses are safe without it, but replicas then repeat each other's work.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    leader_elect: bool,

    /// How long a standby waits after the last change of the Lease that it saw, before it takes over. Whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = humantime::parse_duration)]
    lease_duration: Duration,

    /// How long the leader keeps writing without a successful renewal. Must be shorter than --lease-duration.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    renew_deadline: Duration,

    /// The time between two renewals, and between two attempts. 1.2 times this must be shorter than --renew-deadline.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration)]
    retry_period: Duration,
}

/// The name of this process in the Lease: its Pod's name, which people know, and its Pod's uid, which no other process ever
/// has. Outside of a Pod both are replaced: by the name of the machine, and by chance.
fn identity(pod: Option<(String, String)>, machine: &str) -> String {
    let (name, uid) =
        pod.unwrap_or_else(|| (machine.to_owned(), uuid::Uuid::new_v4().as_hyphenated().to_string()));
    format!("{name}_{uid}")
}

/// The name and uid of the Pod in which this process runs, as the manifests pass them.
fn pod() -> Option<(String, String)> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let uid = variable("POD_UID")?;
    Some((variable("POD_NAME").unwrap_or_else(|| "pod".to_owned()), uid))
}

/// The name of the machine, for people: `/etc/hostname` or the name that the shell exports.
fn machine() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "unknown".to_owned())
}

/// A duration that is not zero.
fn pause(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be longer than zero".to_owned()),
        Ok(pause) => Ok(pause),
        Err(error) => Err(error.to_string()),
    }
}

/// An agent reports up to 15 s late, and a block is kept if it has let ten questions go by. As long as it is asked, its
/// block is closed to pods.
fn question_interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if (Duration::from_secs(5)..=Duration::from_secs(120)).contains(&interval) {
        Ok(interval)
    } else {
        Err("must be from 5s to 2m".to_owned())
    }
}

fn family(text: &str) -> Result<Family, String> {
    match text {
        "ipv4" => Ok(Family::V4),
        "ipv6" => Ok(Family::V6),
        other => Err(format!("`{other}` is neither ipv4 nor ipv6")),
    }
}

/// Runs the controller, or its dry run.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    logs::start(args.log_format);
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(start(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn start(args: Args) -> anyhow::Result<()> {
    let config = config(args.kubeconfig.as_ref()).await?;
    info!(version = env!("CARGO_PKG_VERSION"), server = %config.cluster_url, "starting");
    let telemetry = Telemetry::start();
    let contact = Contact::new(telemetry.standing.clone());
    let timing = Timing::new(args.lease_duration, args.renew_deadline, args.retry_period)?;
    let lead = if args.leader_elect { Lead::to_be_won() } else { Lead::unelected() };
    let clients = Clients::new(&config, args.request_timeout, contact.clone(), lead)
        .context("can't create a client")?;
    if args.dry_run {
        let options = GatherOptions {
            mode: mode(&args),
            namespace: args.namespace.clone(),
            cilium_namespace: args.cilium_namespace.clone(),
            time_limit: gather::TIME_LIMIT,
        };
        return dry_run::run(&clients, &options, policy(&args)).await;
    }
    let election = args
        .leader_elect
        .then(|| {
            let identity = identity(pod(), &machine());
            Election::new(&config, contact, args.cilium_namespace.clone(), identity, timing)
        })
        .transpose()
        .context("can't create a client")?;
    serve(args, clients, election, telemetry).await
}

async fn serve(
    args: Args,
    clients: Clients,
    election: Option<Election>,
    telemetry: Telemetry,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let listener =
        http::bind(args.listen).await.with_context(|| format!("can't listen on {}", args.listen))?;
    let address = listener.local_addr()?;
    if let Some(file) = &args.address_file {
        announce(file, address)
            .with_context(|| format!("can't write the address file {}", file.display()))?;
    }
    info!(%address, "listening");
    let mut tasks = Tasks::default();
    tasks.spawn("http", http::serve(listener, telemetry.clone(), stop.clone()));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopper = stop.clone();
    tasks.spawn("signals", async move {
        tokio::select! {
            _ = terminate.recv() => info!("SIGTERM"),
            _ = interrupt.recv() => info!("SIGINT"),
            () = stopper.cancelled() => {}
        }
        stopper.cancel();
        Ok(())
    });

    let end = crate::controller::run::run(clients, election, options(&args), telemetry, stop.clone()).await;
    stop.cancel();
    tasks.finish().await;
    end
}

/// Writes the address file in one step, so that nobody reads half an address.
fn announce(file: &Path, address: SocketAddr) -> std::io::Result<()> {
    let part = file.with_extension("part");
    std::fs::write(&part, address.to_string())?;
    std::fs::rename(part, file)
}

fn options(args: &Args) -> Options {
    Options {
        mode: mode(args),
        namespace: args.namespace.clone(),
        cilium_namespace: args.cilium_namespace.clone(),
        policy: policy(args),
        max_parallel_writes: usize::from(args.max_parallel_writes),
        managed_fields: if args.keep_managed_fields { ManagedFields::Kept } else { ManagedFields::Dropped },
        self_check_interval: args.self_check_interval,
    }
}

fn mode(args: &Args) -> ModeSource {
    let own = if args.no_own_addresses { OwnAddresses::Anywhere } else { OwnAddresses::Kept };
    let Some(release) = args.assume_cilium else {
        let settings =
            Settings { modes: args.modes.iter().copied().collect(), own, node_field: args.node_field };
        return ModeSource::ConfigMapIn(args.cilium_namespace.clone(), settings);
    };
    info!(version = %release, "Cilium's settings are taken from the command line");
    let families = args.families.iter().copied().collect::<BTreeSet<Family>>();
    ModeSource::Assumed(Mode::Active(settings::assumed(families, own)), release)
}

fn policy(args: &Args) -> Policy {
    Policy {
        min_write_interval: args.min_write_interval,
        question_interval: args.question_interval,
        cilium_nodes: if args.create_ciliumnodes {
            CiliumNodeOrigin::Controller
        } else {
            CiliumNodeOrigin::Agent
        },
        pod_ip_pools: if args.create_podippools {
            PodIpPoolOrigin::Controller
        } else {
            PodIpPoolOrigin::Administrator
        },
        reclaim: ReclaimPolicy {
            opt_in: args.reclaim_opt_in,
            at_once: args.reclaim_at_once.into(),
            per_minute: args.reclaim_per_minute.into(),
        },
    }
}

async fn config(kubeconfig: Option<&PathBuf>) -> anyhow::Result<Config> {
    match kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file)
                .with_context(|| format!("can't read the kubeconfig {}", file.display()))?;
            Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
        }
        None => Config::infer().await.context(
            "found no API server: set --kubeconfig or KUBECONFIG, or run in a pod with a service account",
        ),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_command_line_without_flags_is_the_default_policy() {
        let line = Line::try_parse_from(["run"]).unwrap();
        assert_eq!(policy(&line.args), Policy::DEFAULT);
    }

    #[test]
    fn a_process_is_known_by_its_pod_or_else_by_chance() {
        let pod = || Some(("ipam-1".to_owned(), "0a1b".to_owned()));
        assert_eq!(identity(pod(), "machine"), "ipam-1_0a1b");
        let (one, other) = (identity(None, "machine"), identity(None, "machine"));
        assert!(one.starts_with("machine_") && one != other, "{one} {other}");
    }

    #[test]
    fn the_election_is_turned_off_by_false_alone() {
        let leads = |line: &[&str]| Line::try_parse_from(line).map(|line| line.args.leader_elect).ok();
        assert_eq!(leads(&["run"]), Some(true));
        assert_eq!(leads(&["run", "--leader-elect"]), Some(true));
        assert_eq!(leads(&["run", "--leader-elect=false"]), Some(false));
        assert_eq!(leads(&["run", "--leader-elect", "false"]), None);
    }

    #[test]
    fn questions_are_neither_a_storm_nor_too_late() {
        for (text, expected) in [
            ("4s", Err("must be from 5s to 2m")),
            ("5s", Ok(Duration::from_secs(5))),
            ("2m", Ok(Duration::from_secs(120))),
            ("121s", Err("must be from 5s to 2m")),
        ] {
            assert_eq!(question_interval(text), expected.map_err(str::to_owned), "{text}");
        }
    }
}
