//! `cilium-node-ipam version`: the versions of this program, of the API server, of the leader, and of the definitions.

use anyhow::Context as _;
use serde_json::json;

use super::super::screen::Line;
use super::around::definitions;
use super::lease::{of_lease, read_lease};
use super::{Cluster, Verdict, block_on, fields};
use crate::controller::lease;
use crate::model::installation::Definition;
use crate::model::names::ten_of;
use crate::wire::installation;

/// The version of this program.
const CLIENT: &str = env!("CARGO_PKG_VERSION");

/// Print the versions of this program, of the API server, of the leading controller, and of the
/// CustomResourceDefinitions.
///
/// Exit codes: 0 printed, 2 the cluster could not be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cilium-node-ipam version\n  cilium-node-ipam version --client")]
pub struct Args {
    /// Print only the version of this program.
    #[arg(long)]
    client: bool,

    #[command(flatten)]
    cluster: Cluster,
}

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Verdict> {
    let Args { client, cluster } = args;
    if client {
        cluster.print("Version", fields(json!({"client": CLIENT})), || vec![format!("client  {CLIENT}")])?;
        return Ok(Verdict::Fine);
    }
    block_on(async move {
        let (clients, server) = cluster.access.clients().await?;
        let version = clients.reads.apiserver_version().await;
        let version = version.with_context(|| format!("can't read the version of {server}"))?.git_version;
        let (leader, sentence) = match read_lease(&clients, &cluster.access.cilium_namespace).await {
            Ok(Some(found)) => {
                let annotations = found.metadata.annotations.as_ref();
                let leader = annotations.and_then(|all| all.get(lease::VERSION)).cloned();
                (leader, of_lease(&found, clients.connectivity.clock.now().wall).1)
            }
            Ok(None) => (None, "no leader: its Lease does not exist".to_owned()),
            Err(why) => (None, format!("unknown: {why}")),
        };
        let mut skipped = Vec::new();
        let found = definitions(&clients, &mut skipped).await?;
        let found: Vec<Definition> = found.iter().filter_map(installation::definition).collect();
        let crds = crds(&found, &skipped);
        let object = json!({"client": CLIENT, "server": version, "leader": leader, "lease": sentence, "definitions": crds});
        cluster.print("Version", fields(object), || {
            let leader = leader.map_or(sentence.clone(), |leader| format!("{leader} ({sentence})"));
            let lines = [("client", CLIENT), ("server", &version), ("leader", &leader), ("crds", &crds)];
            lines.into_iter().map(|(label, text)| Line::labelled(label, 8, text)).collect()
        })?;
        Ok(Verdict::Fine)
    })
}

/// The definitions of the cluster beside those of this program.
fn crds(found: &[Definition], skipped: &[String]) -> String {
    if !skipped.is_empty() {
        return format!("unknown: {}", skipped.join(", "));
    }
    if found.is_empty() {
        return "not installed".to_owned();
    }
    let other = found.iter().filter_map(|definition| {
        let name = &definition.name;
        match &definition.old {
            _ if definition.deleting => Some(format!("{name} is being deleted")),
            Some(old) => Some(format!("{name} is of another version, without {}", ten_of(&old.missing))),
            None => None,
        }
    });
    let other: Vec<String> = other.collect();
    if other.is_empty() { format!("those of {CLIENT}") } else { other.join("; ") }
}
