//! `cilium-node-ipam routes`: the prefixes that nodes should announce.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use super::super::object;
use super::super::screen::Line;
use super::{Live, Source, Verdict, block_on, fields};
use crate::controller::gobgp::Daemon;
use crate::controller::routes::read_node_states;
use crate::model::frr::FrrNodeState;
use crate::model::names::{NodeName, by_number, ten_of};
use crate::net::cidr::{Cidr, Family};
use crate::routes::compare::{Difference, Led};
use crate::routes::{NodeRoutes, NotAnnounced, announced, is_shared, next_hops};
use crate::wire::gobgp::PathId;
use crate::world::World;

/// List the prefixes that each node should announce: its published blocks, adjacent blocks as one prefix.
///
/// Exit codes: 0 all published blocks can be announced, and with --compare are; 1 some are not; 2 the cluster could not
/// be read.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cilium-node-ipam routes\n  cilium-node-ipam routes --format linux | sh -x\n  \
                  cilium-node-ipam routes --format frr --asn 64512 --node node-a\n  \
                  cilium-node-ipam routes --compare --gobgp-address 10.96.0.17:50051"
)]
pub struct Args {
    /// Only this node. May be repeated.
    #[arg(long, value_name = "NODE", value_parser = object::node)]
    node: Vec<String>,

    /// Compare with the networks that the frr-k8s daemon of each node runs, as its FRRNodeState says; or with the table
    /// of --gobgp-address.
    #[arg(long, conflicts_with = "format")]
    compare: bool,

    /// The gRPC API of the GoBGP daemon that announces the routes.
    #[arg(long, value_name = "HOST:PORT", requires = "compare")]
    gobgp_address: Option<String>,

    /// The path identifier that marks the controller's paths in the table of the GoBGP daemon.
    #[arg(long, value_name = "N", default_value_t = PathId::DEFAULT.0, requires = "gobgp_address")]
    gobgp_path_id: u32,

    /// Print configuration instead of a table.
    #[arg(long, value_name = "FORMAT", value_enum, conflicts_with = "output")]
    format: Option<Syntax>,

    /// The AS number of the nodes, with --format frr.
    #[arg(long, value_name = "NUMBER", required_if_eq("format", "frr"))]
    asn: Option<u32>,

    #[command(flatten)]
    cluster: Source,
}

/// The syntax of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Syntax {
    /// Commands for a Linux router: each prefix via the InternalIP of its node.
    Linux,
    /// Static protocols for a BIRD 2 router, in the same way.
    Bird,
    /// `network` lines for FRR on each node, with `no bgp network import-check`.
    Frr,
}

/// A node, its routes and its next hops.
struct Announcing<'a> {
    node: &'a NodeName,
    routes: &'a NodeRoutes,
    hops: BTreeMap<Family, IpAddr>,
    /// How its daemon differs, with --compare.
    difference: Option<Difference>,
}

impl Announcing<'_> {
    /// Its prefixes of a family, each with the next hop, and those without one.
    fn hop(&self, prefix: Cidr) -> Option<IpAddr> {
        self.hops.get(&prefix.family()).copied()
    }
}

impl Args {
    /// The routes that daemons run.
    async fn running(
        &self,
        live: &Live,
        world: &World,
        routes: &BTreeMap<NodeName, NodeRoutes>,
    ) -> anyhow::Result<Led> {
        if let Some(address) = &self.gobgp_address {
            let daemon = Daemon::new(address, PathId(self.gobgp_path_id)).context("--gobgp-address")?;
            let rib = daemon.list().await;
            let rib = rib.map_err(|why| anyhow!("can't list the table of GoBGP {address}: {why}"))?;
            return Ok(Led::of(world, routes, &rib));
        }
        let Live::Cluster(clients) = live else {
            bail!("--compare needs a cluster, or --gobgp-address: remove --from")
        };
        let states = read_node_states(clients).await.context("can't list FRRNodeStates")?;
        let of_state = |state: FrrNodeState| (state.node, state.networks.unwrap_or_default());
        Ok(Led { to_nodes: states.into_iter().map(of_state).collect(), astray: BTreeMap::new() })
    }
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    block_on(async move {
        let (live, world, _) = args.cluster.read().await?;
        let routes = announced(&world);
        let running = if args.compare { Some(args.running(&live, &world, &routes).await?) } else { None };
        let unknown: Vec<&String> =
            args.node.iter().filter(|name| world.node(&name.as_str().into()).is_none()).collect();
        if !unknown.is_empty() {
            bail!("no such Node: {}", ten_of(unknown));
        }
        let is_wanted =
            |name: &NodeName| args.node.is_empty() || args.node.iter().any(|wanted| wanted == name.as_str());
        let mut nodes: Vec<Announcing<'_>> = routes
            .iter()
            .filter(|(name, _)| is_wanted(name))
            .map(|(node, routes)| Announcing {
                node,
                routes,
                hops: hops(&world, node),
                difference: running.as_ref().map(|running| {
                    Difference::of(&world, routes, &running.to_nodes.get(node).cloned().unwrap_or_default())
                }),
            })
            .collect();
        nodes.sort_by(|one, other| by_number(one.node.as_str(), other.node.as_str()));
        let astray: BTreeMap<Cidr, String> =
            running.filter(|_| args.node.is_empty()).map(|running| running.astray).unwrap_or_default();
        let reasons = nodes.iter().flat_map(|node| node.routes.not_announced.values());
        let mut differences = nodes.iter().filter_map(|node| node.difference.as_ref());
        let is_wrong = reasons.clone().any(NotAnnounced::is_wrong)
            || differences.any(|found| !found.is_empty())
            || !astray.is_empty();
        let verdict = if is_wrong { Verdict::Found } else { Verdict::Fine };
        let items: Vec<Value> = nodes.iter().map(object).collect();
        let mut answer = json!({"items": items});
        if args.compare {
            let lines = astray.iter().map(|(prefix, hop)| json!({"prefix": prefix.to_string(), "via": hop}));
            answer["astray"] = lines.collect();
        }
        args.cluster.print("Routes", fields(answer), || match args.format {
            None if args.compare => {
                let headers = ["NODE", "PREFIXES", "MISSING", "UNEXPECTED"];
                let without_node = astray.iter().map(|(prefix, hop)| {
                    let none = || "-".to_owned();
                    vec![none(), none(), none(), format!("{prefix} via {hop}")]
                });
                args.cluster.table(headers, nodes.iter().map(compared).chain(without_node))
            }
            None => args.cluster.table(["NODE", "VIA", "PREFIXES", "NOT ANNOUNCED"], nodes.iter().map(row)),
            Some(Syntax::Linux) => nodes.iter().flat_map(linux).map(Line::from).collect(),
            Some(Syntax::Bird) => bird(&nodes).into_iter().map(Line::from).collect(),
            Some(Syntax::Frr) => {
                // The command line has required it.
                nodes
                    .iter()
                    .flat_map(|node| frr(node, args.asn.unwrap_or_default()))
                    .map(Line::from)
                    .collect()
            }
        })?;
        Ok(verdict)
    })
}

/// The next hops of a node. An address that another Node lists too is none: it leads to one of the two machines.
fn hops(world: &World, node: &NodeName) -> BTreeMap<Family, IpAddr> {
    let Some(node) = world.node(node) else { return BTreeMap::new() };
    let mut hops = next_hops(world, node);
    hops.retain(|_, hop| !is_shared(world, node, *hop));
    hops
}

fn listed<T: ToString>(items: impl IntoIterator<Item = T>, between: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(between) }
}

fn compared(node: &Announcing<'_>) -> Vec<String> {
    let difference = node.difference.clone().unwrap_or_default();
    vec![
        node.node.to_string(),
        listed(&node.routes.prefixes, ","),
        listed(&difference.missing, ","),
        listed(&difference.unexpected, ","),
    ]
}

fn row(node: &Announcing<'_>) -> Vec<String> {
    let not_announced = node.routes.not_announced.iter().map(|(block, reason)| format!("{block}: {reason}"));
    vec![
        node.node.to_string(),
        listed(node.hops.values(), ","),
        listed(&node.routes.prefixes, ","),
        listed(not_announced, "; "),
    ]
}

fn object(node: &Announcing<'_>) -> Value {
    let not_announced = node
        .routes
        .not_announced
        .iter()
        .map(|(block, reason)| json!({"block": block.to_string(), "why": reason.to_string()}));
    let texts = |prefixes: &BTreeSet<Cidr>| prefixes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut object = json!({
        "node": node.node.as_str(),
        "via": node.hops.values().map(ToString::to_string).collect::<Vec<_>>(),
        "prefixes": texts(&node.routes.prefixes),
        "notAnnounced": not_announced.collect::<Vec<_>>(),
    });
    if let Some(difference) = &node.difference {
        object["missing"] = json!(texts(&difference.missing));
        object["unexpected"] = json!(texts(&difference.unexpected));
    }
    object
}

fn linux(node: &Announcing<'_>) -> Vec<String> {
    let line = |prefix: &Cidr| match node.hop(*prefix) {
        Some(hop) => format!("ip route replace {prefix} via {hop} # {}", node.node),
        None => without_hop("#", node, *prefix),
    };
    node.routes.prefixes.iter().map(line).collect()
}

fn bird(nodes: &[Announcing<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    for family in Family::ALL {
        let of_family = nodes.iter().flat_map(|node| {
            let prefixes = node.routes.prefixes.iter().filter(move |prefix| prefix.family() == family);
            prefixes.map(move |prefix| match node.hop(*prefix) {
                Some(hop) => format!("  route {prefix} via {hop}; # {}", node.node),
                None => format!("  {}", without_hop("#", node, *prefix)),
            })
        });
        lines.push(format!("protocol static nodeipam_{family} {{"));
        lines.push(format!("  {family};"));
        lines.extend(of_family);
        lines.push("}".to_owned());
    }
    lines
}

fn frr(node: &Announcing<'_>, asn: u32) -> Vec<String> {
    let mut lines = vec![
        format!("! node {}", node.node),
        format!("router bgp {asn}"),
        " no bgp network import-check".to_owned(),
    ];
    for family in Family::ALL {
        let of_family = node.routes.prefixes.iter().filter(|prefix| prefix.family() == family);
        let networks: Vec<String> = of_family.map(|prefix| format!("  network {prefix}")).collect();
        if !networks.is_empty() {
            lines.push(format!(" address-family {family} unicast"));
            lines.extend(networks);
            lines.push(" exit-address-family".to_owned());
        }
    }
    lines.push("exit".to_owned());
    lines
}

fn without_hop(comment: &str, node: &Announcing<'_>, prefix: Cidr) -> String {
    let family = prefix.family();
    format!(
        "{comment} {prefix} of node {}: its Node has no {family} InternalIP that no other Node lists",
        node.node
    )
}
