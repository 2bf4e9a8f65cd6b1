//! Which agent versions the nodes run, in words for a person.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::cilium_version::CiliumVersion;
use crate::model::counted::counted;
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::{NodeName, ten_by_number};
use crate::model::plan::TimedState;
use crate::model::time::Now;
use crate::publisher::support::Support;
use crate::world::World;

/// The nodes whose weakest agent is of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census<'a> {
    /// How far it is supported.
    pub support: Support,
    /// The agent version, where it is known.
    pub release: Option<CiliumVersion>,
    /// The nodes.
    pub nodes: Vec<&'a NodeName>,
}

/// The nodes that run Linux by the version of their weakest agent, the weakest first. Costs a pass over the nodes.
#[must_use]
pub fn census(world: &World) -> Vec<Census<'_>> {
    let mut nodes: BTreeMap<(Support, Option<CiliumVersion>), Vec<&NodeName>> = BTreeMap::new();
    for node in world.nodes().filter(|node| node.runs_linux()) {
        nodes.entry(world.support(&node.name)).or_default().push(&node.name);
    }
    nodes.into_iter().map(|((support, release), nodes)| Census { support, release, nodes }).collect()
}

/// For how long a node that holds blocks may have no agent. An upgrade of Cilium and a reboot take minutes.
pub const MAY_LACK_AGENT_FOR: Duration = Duration::from_secs(3600);

/// The finding about all nodes that hold blocks and have had no agent for long. It has the name of the first. Costs a
/// pass over the nodes.
#[must_use]
pub fn missing(world: &World, now: Now) -> Option<Finding> {
    let lack_one = |node: &&NodeName| {
        let since = world.serving(node).and_then(|serving| serving.since(TimedState::AgentAbsent));
        since.is_some_and(|since| since + MAY_LACK_AGENT_FOR <= now.uptime)
    };
    let with_linux = world.nodes().filter(|node| node.runs_linux()).map(|node| &node.name);
    let nodes: Vec<&NodeName> = with_linux.filter(lack_one).collect();
    let message = format!(
        "{} with blocks had no Pod of Cilium's agent for an hour: {}; if the machine is gone, delete the Node \
         and its CiliumNode; else find out why the agent does not run there: kubectl get pods -A -o wide -l \
         k8s-app=cilium",
        counted(nodes.len(), "node"),
        ten_by_number(&nodes)
    );
    Some(Finding::of_node(FindingKind::AgentMissing, nodes.first()?, message))
}

/// A line about the nodes whose agents are too old; `None` if there are none.
#[must_use]
pub fn unsupported<'a>(world: &World, nodes: impl IntoIterator<Item = &'a NodeName>) -> Option<String> {
    let unsupported: Vec<(&NodeName, Option<CiliumVersion>)> = nodes
        .into_iter()
        .map(|node| (node, world.support(node)))
        .filter(|(_, (support, _))| support.is_too_old())
        .map(|(node, (_, release))| (node, release))
        .collect();
    let why = world.reader().why_unsupported(unsupported.iter().filter_map(|(_, release)| *release).min()?);
    let n_nodes = counted(unsupported.len(), "node");
    let names = unsupported.iter().map(|(node, release)| match release {
        Some(release) => format!("{node} ({release})"),
        None => node.to_string(),
    });
    Some(format!("{why}: {n_nodes}, {}", ten_by_number(names)))
}

/// The lines about agent versions that are logged at the start, one per version. Lines about agents that do not work
/// fully say which functions are missing.
#[must_use]
pub fn lines(world: &World) -> Vec<String> {
    census(world).iter().map(|group| explained(world, group)).collect()
}

/// The line about nodes of one agent version.
#[must_use]
pub fn explained(world: &World, Census { support, release, nodes }: &Census<'_>) -> String {
    let n_nodes = counted(nodes.len(), "node");
    let named =
        release.map_or("an unknown version of Cilium".to_owned(), |release| format!("Cilium {release}"));
    let how = match (support, *release) {
        (Support::None | Support::Outdated, Some(release)) => world.reader().why_unsupported(release),
        (Support::None | Support::Outdated, None) | (Support::Unknown, _) => UNKNOWN.to_owned(),
        (Support::Full, _) => return format!("{n_nodes} with {named}: fully supported"),
    };
    format!("{n_nodes} with {named} ({}): {how}", ten_by_number(nodes))
}

/// The consequence and the remedy for agents of an unknown version.
const UNKNOWN: &str = "the controller serves them like a supported version; use an image with a version tag, \
     or label the Pods with app.kubernetes.io/version; reclaim needs --reclaim-unknown-agents; upgrade agents \
     older than docs/cilium.md (Support) allows";
