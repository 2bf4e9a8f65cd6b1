//! The flags of `cilium-node-ipam run`, and the settings that follow from them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use tracing::info;

use crate::cli::metrics_port::{MetricsPort, OBSERVATION};
use crate::controller::gobgp::Daemon;
use crate::controller::mode::ModeSource;
use crate::controller::routes::RouteExport;
use crate::controller::run::Options;
use crate::model::cilium_version::CiliumVersion;
use crate::model::names::FrrName;
use crate::model::startup_taint;
use crate::net::cidr::Family;
use crate::plan::{
    CiliumNodeOrigin, GrowthProof, NodeConditions, PodIpPoolOrigin, Policy, ReclaimPolicy, ScalingPolicy,
    SetLimits,
};
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::mode::Mode;
use crate::publisher::settings::{self, OwnAddresses, Settings};
use crate::publisher::static_mode::NodeField;
use crate::telemetry::logs;
use crate::wire::carrier_patch::ManagedFields;
use crate::wire::gobgp::PathId;
use crate::world::frr::Exporting;
use crate::world::gobgp::{Announcing, GobgpPolicy};

/// Run the controller: give nodes blocks from the pools that select them, and more blocks as they fill up.
///
/// The controller finds its API server in this order: --kubeconfig, KUBECONFIG, ~/.kube/config, its own pod.
///
/// It writes only if `cilium-config` names one of --modes. Otherwise it is passive, and /readyz says why. On SIGTERM
/// it finishes the writes in flight, and then exits.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("speaker").args(["routes_template", "gobgp_address"]))]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Args {
    /// Print the writes that the cluster needs now, one line per write, and exit without writing.
    #[arg(long, help_heading = CLUSTER)]
    pub(super) dry_run: bool,

    /// The kubeconfig file to use instead of KUBECONFIG.
    #[arg(long, value_name = "FILE", help_heading = CLUSTER)]
    pub(super) kubeconfig: Option<PathBuf>,

    /// The namespace of Cilium: of `cilium-config`, CiliumNodeConfigs and the agents' Pods.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "kube-system",
        env = "CILIUM_NAMESPACE",
        help_heading = CILIUM
    )]
    pub(super) cilium_namespace: String,

    /// The modes of Cilium in which the controller may write: crd, multi-pool, cluster-pool, kubernetes.
    ///
    /// In all modes but crd another allocator serves the nodes by default. Name a mode only after you have turned its
    /// other allocator off.
    #[arg(long, value_name = "MODES", value_delimiter = ',', default_value = "crd", help_heading = CILIUM)]
    modes: Vec<IpamMode>,

    /// Where to write a node's blocks in Cilium's mode kubernetes: `spec` (podCIDRs) or `annotations`.
    ///
    /// podCIDRs of a Node are immutable once set. Agents read annotations only with `annotate-k8s-node: true`.
    #[arg(long, value_name = "FIELD", default_value = "spec", help_heading = CILIUM)]
    node_field: NodeField,

    /// The namespace of the controller. Its ConfigMap `cilium-node-ipam` there can freeze the controller.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "kube-system",
        env = "POD_NAMESPACE",
        help_heading = CLUSTER
    )]
    pub(super) namespace: String,

    /// Assume agents of this version in the mode crd, instead of reading `cilium-config`.
    #[arg(long, value_name = "VERSION", requires = "families", help_heading = CILIUM)]
    assume_cilium: Option<CiliumVersion>,

    /// The IP families that the agents run, with --assume-cilium: ipv4, ipv6, or ipv4,ipv6.
    #[arg(
        long,
        value_name = "FAMILIES",
        value_delimiter = ',',
        requires = "assume_cilium",
        value_parser = family,
        help_heading = CILIUM
    )]
    families: Vec<Family>,

    /// The minimum time between two changes of the CiliumNode of a served node; by default 2s to 10s, by the number of
    /// CiliumNodes.
    ///
    /// The default is the time in which --watch-event-budget allows 12 writes. Agents write the same object, and an agent
    /// exits after too many conflicts in a row. First blocks and repairs do not wait, nor does the annotation that proves a
    /// block absent.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, help_heading = REQUESTS)]
    min_write_interval: Option<Duration>,

    /// How long an agent may be silent before the controller sends it a usage query (5s to 2m); by default 30s to 2m, by
    /// the number of CiliumNodes.
    ///
    /// The default is the time in which --watch-event-budget allows one write to each CiliumNode. A draining block is kept if the agent does not answer within 10 intervals. Its node starts no other drain for 2
    /// intervals.
    #[arg(long, value_name = "DURATION", value_parser = usage_query_interval, help_heading = CILIUM)]
    usage_query_interval: Option<Duration>,

    /// How long a node waits for its first block while its Node has a startup taint; 0s turns the wait off.
    ///
    /// A cloud controller, Cluster API or Karpenter removes the taint after it has set the labels of the Node. See
    /// --startup-taint.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "60s",
        value_parser = humantime::parse_duration,
        help_heading = CLUSTER
    )]
    wait_for_initialization: Duration,

    /// A further startup taint: its key, or the first characters of several keys. May be repeated.
    ///
    /// Known are node.cloudprovider.kubernetes.io/uninitialized, node.cluster.x-k8s.io/uninitialized and
    /// karpenter.sh/unregistered. A taint that stays until the node has addresses is refused. Example: --startup-taint
    /// example.com/labels-missing.
    #[arg(
        long = "startup-taint",
        value_name = "PREFIX",
        value_parser = startup_taint::checked,
        help_heading = CLUSTER
    )]
    pub(super) startup_taints: Vec<String>,

    /// Reserve no addresses in a node's first block for the agent's router, health endpoint and ingress.
    ///
    /// The agent may then take them from any block, and that block stays as long as the node exists.
    #[arg(long, help_heading = CILIUM)]
    no_reserved_addresses: bool,

    /// Create the CiliumNode of a selected node as soon as its Node exists, before its agent does.
    ///
    /// The agent takes the object over. Needs the right to create CiliumNodes.
    #[arg(long, help_heading = CILIUM)]
    create_ciliumnodes: bool,

    /// In the mode multi-pool, create the CiliumPodIPPools of all pools, and add missing families and ranges.
    ///
    /// CiliumPodIPPools that another writer created are left unchanged.
    #[arg(long, help_heading = CILIUM)]
    create_podippools: bool,

    /// Write the condition `nodeipam.io/AddressesAvailable` of each Node: False while the node is short of addresses and
    /// can't get more.
    ///
    /// Needs the right to patch the status of Nodes. Remove rules that taint nodes by this condition before the flag is
    /// removed.
    #[arg(long, help_heading = CILIUM)]
    node_condition: bool,

    /// How the routes of nodes' blocks are announced: `frr-k8s` by one FRRConfiguration per node, `gobgp` by the table
    /// of a GoBGP daemon, `off` not at all.
    ///
    /// `off` leaves earlier FRRConfigurations and paths of the controller in place. `remove` deletes those of
    /// --routes-template or --gobgp-address, and so withdraws the routes.
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        default_value_t = RoutesFlag::Off,
        requires_ifs = [("frr-k8s", "routes_template"), ("gobgp", "gobgp_address"), ("remove", "speaker")],
        help_heading = ROUTES
    )]
    routes: RoutesFlag,

    /// The FRRConfigurations whose routers and neighbors nodes get, separated by commas, in the namespace of the frr-k8s
    /// daemons.
    ///
    /// Their `nodeSelector` must match no node. The annotation `nodeipam.io/nodes` of each has the labels of its nodes,
    /// such as `rack=1`; without it, it is for every node. A node needs exactly one.
    #[arg(
        long, value_name = "NAMESPACE/NAME", value_parser = template, value_delimiter = ',', help_heading = ROUTES
    )]
    routes_template: Vec<(String, String)>,

    /// The gRPC API of the GoBGP daemon that announces the routes. It is used without TLS.
    ///
    /// Who can reach this API can change every route: serve it on a loopback address or inside the cluster only.
    #[arg(long, value_name = "HOST:PORT", help_heading = ROUTES)]
    gobgp_address: Option<String>,

    /// Maximum number of paths that the controller has in the table of the GoBGP daemon.
    ///
    /// Above it no path is added.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = ROUTES
    )]
    gobgp_max_prefixes: u32,

    /// The path identifier that marks the controller's paths in the table of the GoBGP daemon.
    ///
    /// Clusters that share a daemon need one each. Paths with another identifier are never changed.
    #[arg(
        long,
        value_name = "N",
        default_value_t = PathId::DEFAULT.0,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = ROUTES
    )]
    gobgp_path_id: u32,

    /// Also reclaim blocks from nodes whose agent is of unknown version.
    ///
    /// Images that are named by digest show no version. Nothing is reclaimed from agents that are older than Cilium
    /// 1.14.2: set this only if all agents are newer.
    #[arg(long, help_heading = RECLAIM)]
    reclaim_unknown_agents: bool,

    /// Maximum number of nodes whose agents release addresses at the same time; by default a fiftieth of the CiliumNodes,
    /// and at least 20.
    ///
    /// The default is lower in a cluster in which --watch-event-budget does not allow that many reclaims per minute. A
    /// reclaim takes nine versions of a CiliumNode.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = RECLAIM)]
    reclaim_at_once: Option<u16>,

    /// Maximum number of blocks that may start draining per minute; by default six times --reclaim-at-once.
    ///
    /// If surplus blocks exceed it, reclaim stops until `freeze-reclaim` is set and removed, or the controller
    /// restarts. Blocks of drained or deleted pools wait for the next minute.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10000), help_heading = RECLAIM)]
    reclaim_per_minute: Option<u16>,

    /// Maximum number of concurrent writes.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..=256),
        help_heading = REQUESTS
    )]
    max_parallel_writes: u16,

    /// Maximum number of watch events per second that writes to CiliumNodes may cause. 0 is no limit.
    ///
    /// Every agent watches every CiliumNode, so one write causes one event per CiliumNode. First blocks of nodes have at
    /// least 20 writes per second.
    #[arg(long, value_name = "N", default_value_t = ScalingPolicy::DEFAULT_BUDGET, help_heading = REQUESTS)]
    watch_event_budget: u32,

    /// Time limit of one request. A write without an answer is settled by reading the object.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = humantime::parse_duration,
        help_heading = REQUESTS
    )]
    pub(super) request_timeout: Duration,

    /// Interval between self-checks, which compare the internal state with all objects.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = pause, help_heading = REQUESTS)]
    self_check_interval: Duration,

    /// Keep `metadata.managedFields` of CiliumNodes. Without it every agent receives half the bytes.
    #[arg(long, help_heading = REQUESTS)]
    keep_managed_fields: bool,

    /// Address of /livez and /readyz, and of /metrics and /map if it is a loopback address.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9920", help_heading = OBSERVATION)]
    pub(super) listen: SocketAddr,

    /// Write the listening address to this file. Useful with port 0 in --listen.
    #[arg(long, value_name = "FILE", help_heading = OBSERVATION)]
    pub(super) address_file: Option<PathBuf>,

    #[command(flatten)]
    pub(super) metrics: MetricsPort,

    /// Format of the log on standard error. RUST_LOG adds to its filter.
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value_t = logs::Format::Text,
        help_heading = OBSERVATION
    )]
    pub(super) log_format: logs::Format,

    /// Elect one replica by the Lease `cilium-node-ipam` in --cilium-namespace.
    ///
    /// The leader writes. All other replicas stand by with up-to-date caches. Without an election addresses stay safe,
    /// but the replicas repeat each other's work.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        action = clap::ArgAction::Set,
        help_heading = ELECTION
    )]
    pub(super) leader_elect: bool,

    /// How long a standby waits after the last change of the Lease before it takes over, in whole seconds.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "15s",
        value_parser = humantime::parse_duration,
        help_heading = ELECTION
    )]
    pub(super) lease_duration: Duration,

    /// How long the leader keeps writing without a successful renewal. Must be shorter than --lease-duration.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = humantime::parse_duration,
        help_heading = ELECTION
    )]
    pub(super) renew_deadline: Duration,

    /// Time between two renewals or attempts. 1.2 times this must be shorter than --renew-deadline.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2s",
        value_parser = humantime::parse_duration,
        help_heading = ELECTION
    )]
    pub(super) retry_period: Duration,
}

const CLUSTER: &str = "Cluster";
const CILIUM: &str = "Cilium";
const ROUTES: &str = "Routes";
const RECLAIM: &str = "Reclaim";
const REQUESTS: &str = "Requests";

const ELECTION: &str = "Leader election";

const EXAMPLES: &str = "\
Examples:
  Print the writes that the cluster of the current kubeconfig needs, without writing:
    cilium-node-ipam run --dry-run
  Serve a cluster in Cilium's mode multi-pool, after its operator has stopped allocating:
    cilium-node-ipam run --modes=multi-pool --create-podippools";

/// How routes are announced, as the flag names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RoutesFlag {
    /// The controller has nothing to do with routes.
    Off,
    /// One FRRConfiguration per node.
    FrrK8s,
    /// Paths in the table of a GoBGP daemon.
    Gobgp,
    /// The controller deletes its FRRConfigurations, or withdraws its paths.
    Remove,
}

/// The namespace and the name of a template.
fn template(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("must be NAMESPACE/NAME of an FRRConfiguration".to_owned()),
    }
}

impl Args {
    /// The options of the controller's loop.
    pub(super) fn options(&self) -> anyhow::Result<Options> {
        Ok(Options {
            mode: self.mode(),
            namespace: self.namespace.clone(),
            cilium_namespace: self.cilium_namespace.clone(),
            policy: self.policy(),
            max_parallel_writes: usize::from(self.max_parallel_writes),
            managed_fields: if self.keep_managed_fields {
                ManagedFields::Kept
            } else {
                ManagedFields::Dropped
            },
            self_check_interval: self.self_check_interval,
            routes: self.routes()?,
        })
    }

    /// How routes are announced.
    fn routes(&self) -> anyhow::Result<Option<RouteExport>> {
        // The command line requires one of both, but not where the other is given.
        let by_frr = |exporting: fn(BTreeSet<FrrName>) -> Exporting| {
            let (namespace, _) = self.routes_template.first().context("--routes-template is required")?;
            if let Some((other, _)) = self.routes_template.iter().find(|(other, _)| other != namespace) {
                bail!(
                    "--routes-template: all templates must be in one namespace, and these are in {namespace} and {other}"
                );
            }
            let names = self.routes_template.iter().map(|(_, name)| name.as_str().into()).collect();
            Ok(Some(RouteExport::FrrK8s { namespace: namespace.clone(), exporting: exporting(names) }))
        };
        let by_gobgp = |announcing| {
            let address = self.gobgp_address.as_ref().context("--gobgp-address is required")?;
            let daemon = Daemon::new(address, PathId(self.gobgp_path_id)).context("--gobgp-address")?;
            let max_prefixes = usize::try_from(self.gobgp_max_prefixes)?;
            let policy = GobgpPolicy { announcing, daemon: address.clone(), max_prefixes };
            Ok(Some(RouteExport::Gobgp { daemon, policy }))
        };
        match self.routes {
            RoutesFlag::Off => Ok(None),
            RoutesFlag::FrrK8s => by_frr(Exporting::By),
            RoutesFlag::Gobgp if !self.leader_elect => {
                bail!("--routes gobgp needs the election: GoBGP accepts the changes of every replica")
            }
            RoutesFlag::Gobgp => by_gobgp(Announcing::Blocks),
            RoutesFlag::Remove if self.gobgp_address.is_some() => by_gobgp(Announcing::Nothing),
            RoutesFlag::Remove => by_frr(|_| Exporting::Nothing),
        }
    }

    /// How Cilium's mode is known.
    pub(super) fn mode(&self) -> ModeSource {
        let own = if self.no_reserved_addresses { OwnAddresses::Anywhere } else { OwnAddresses::Kept };
        let Some(release) = self.assume_cilium else {
            let settings = Settings {
                modes: self.modes.iter().copied().collect(),
                own,
                node_field: self.node_field,
                are_known: true,
            };
            return ModeSource::ConfigMapIn(self.cilium_namespace.clone(), settings);
        };
        info!(version = %release, "--assume-cilium: cilium-config is not read");
        let families = self.families.iter().copied().collect::<BTreeSet<Family>>();
        ModeSource::Assumed(Mode::from(settings::assumed(families, own)), release)
    }

    /// The settings that decisions depend on.
    pub(super) fn policy(&self) -> ScalingPolicy {
        let settings = Policy {
            initialization: self.wait_for_initialization,
            cilium_nodes: if self.create_ciliumnodes {
                CiliumNodeOrigin::Controller
            } else {
                CiliumNodeOrigin::Agent
            },
            pod_ip_pools: if self.create_podippools {
                PodIpPoolOrigin::Controller
            } else {
                PodIpPoolOrigin::Administrator
            },
            reclaim: ReclaimPolicy { unknown_agents: self.reclaim_unknown_agents, ..ReclaimPolicy::DEFAULT },
            node_conditions: if self.node_condition { NodeConditions::Written } else { NodeConditions::Off },
            growth: if self.modes.iter().collect::<BTreeSet<_>>().len() > 1 {
                GrowthProof::Seen
            } else {
                GrowthProof::Listed
            },
            ..Policy::DEFAULT
        };
        ScalingPolicy {
            settings: settings.with_startup_taints(&self.startup_taints),
            budget: self.watch_event_budget,
            set: SetLimits {
                min_write_interval: self.min_write_interval,
                query_interval: self.usage_query_interval,
                at_once: self.reclaim_at_once.map(usize::from),
                per_minute: self.reclaim_per_minute.map(usize::from),
            },
        }
    }
}

/// A duration that is not zero.
fn pause(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be longer than zero".to_owned()),
        Ok(pause) => Ok(pause),
        Err(error) => Err(error.to_string()),
    }
}

/// An agent reports up to 15 s late, and a draining block is kept if the agent does not answer within ten intervals.
/// New pods get no address of the block meanwhile.
fn usage_query_interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if (Duration::from_secs(5)..=Duration::from_secs(120)).contains(&interval) {
        Ok(interval)
    } else {
        Err("must be from 5s to 2m".to_owned())
    }
}

fn family(text: &str) -> Result<Family, String> {
    let found = Family::ALL.into_iter().find(|family| family.as_str() == text);
    found.ok_or_else(|| format!("`{text}` is neither ipv4 nor ipv6"))
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
        assert_eq!(line.args.policy(), ScalingPolicy::of(Policy::DEFAULT));
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
    fn usage_queries_are_neither_a_storm_nor_too_late() {
        for (text, expected) in [
            ("4s", Err("must be from 5s to 2m")),
            ("5s", Ok(Duration::from_secs(5))),
            ("2m", Ok(Duration::from_secs(120))),
            ("121s", Err("must be from 5s to 2m")),
        ] {
            assert_eq!(usage_query_interval(text), expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn each_way_of_routes_requires_what_it_needs() {
        let export = |line: &str| {
            let line = Line::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
            let export = line.args.routes().map_err(|error| error.to_string())?;
            Ok::<_, String>(match export {
                Some(RouteExport::FrrK8s { exporting, .. }) => format!("{exporting:?}"),
                Some(RouteExport::Gobgp { policy, .. }) => {
                    format!("{:?} {}", policy.announcing, policy.daemon)
                }
                None => "nothing".to_owned(),
            })
        };
        let refused = |line: &str| export(line).unwrap_err();
        assert_eq!(export("run").unwrap(), "nothing");
        assert_eq!(export("run --routes gobgp --gobgp-address g:1").unwrap(), "Blocks g:1");
        assert_eq!(export("run --routes remove --gobgp-address g:1").unwrap(), "Nothing g:1");
        assert_eq!(export("run --routes remove --routes-template n/t").unwrap(), "Nothing");
        let by = |templates: &str| export(&format!("run --routes frr-k8s --routes-template {templates}"));
        assert_eq!(by("n/t").unwrap(), r#"By({"t"})"#);
        assert_eq!(by("n/t,n/u").unwrap(), r#"By({"t", "u"})"#);
        let several = by("n/t,m/u").unwrap_err();
        assert!(several.contains("all templates must be in one namespace"), "{several}");
        let other = ["--routes frr-k8s --gobgp-address g:1", "--routes gobgp --routes-template n/t"];
        for line in ["--routes gobgp", "--routes remove", "--routes frr-k8s"].into_iter().chain(other) {
            let why = refused(&format!("run {line}"));
            assert!(why.contains("required"), "{line}: {why}");
        }
        let both = "run --routes gobgp --gobgp-address g:1 --routes-template n/t";
        assert!(refused(both).contains("cannot be used with"), "{}", refused(both));
        assert!(refused("run --routes gobgp --gobgp-address g:1 --leader-elect=false").contains("election"));
        for address in ["g", "g:", ":1", "g:x", "g:70000"] {
            assert_eq!(refused(&format!("run --routes gobgp --gobgp-address {address}")), "--gobgp-address");
        }
    }
}
