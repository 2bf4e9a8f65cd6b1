//! `migrate check`: whether the cluster as a whole is ready for a move.

use std::collections::BTreeMap;

use anyhow::bail;

use crate::cli::answers::preflight::{facts, print};
use crate::cli::answers::{Cluster, Gathered, Verdict, block_on};
use crate::publisher::ipam_mode::IpamMode;
use crate::publisher::mode::{Mode, Publishers};
use crate::view::preflight::{Line, Point, State, preflight};

/// Check whether the cluster is ready for a move to the mode crd: other allocators, and the settings of Cilium as agents
/// in that mode need them.
///
/// It reads the cluster once and writes nothing. The lines are those of `preflight`, as if `cilium-config` had
/// `ipam: crd` already.
///
/// Exit codes: 0 no failure and no warning, 1 there is one, 2 the cluster could not be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cilium-node-ipam migrate check")]
pub(super) struct Args {
    #[command(flatten)]
    cluster: Cluster,
}

/// The points about allocators, which count in the present mode.
const OF_PRESENT_MODE: [Point; 2] = [Point::CiliumOperator, Point::ControllerManager];

/// The points about the settings with which agents start in the mode crd.
const OF_CRD: [Point; 13] = [
    Point::Agents,
    Point::Routing,
    Point::NativeCidr,
    Point::EndpointRoutes,
    Point::Masquerade,
    Point::OwnRange,
    Point::RequiredPodCidrs,
    Point::Announcements,
    Point::AnnotateNode,
    Point::StaticIpTags,
    Point::Kvstore,
    Point::Families,
    Point::Size,
];

/// The lines of the check that fail.
pub(super) async fn failures(cluster: &Cluster) -> anyhow::Result<Vec<Line>> {
    let lines = lines(cluster).await?;
    Ok(lines.into_iter().filter(|line| line.state == State::Fail).collect())
}

async fn lines(cluster: &Cluster) -> anyhow::Result<Vec<Line>> {
    let (Gathered { clients, world, .. }, unlisted) = cluster.access.gather_readable().await?;
    let installation = facts::of_cluster(&clients, &cluster.access, unlisted).await?;
    let Mode::Active(publishers) = world.mode() else {
        bail!("cilium-config can't be read, or its mode is not served: cilium-node-ipam preflight");
    };
    let Some(crd) = publishers.of_mode(IpamMode::Crd) else {
        bail!(
            "nodes of the mode {} can't move one by one: see docs/how-to/move-in.md",
            publishers.ipam_mode()
        );
    };
    let others = BTreeMap::from([(publishers.ipam_mode(), Ok((**publishers).clone()))]);
    let moved = Publishers::from(crd.clone()).beside(others, Vec::new()).assumed();
    let mut supposed = world.clone();
    supposed.suppose_mode(Mode::Active(moved));
    let of = |world, points: &'static [Point]| {
        preflight(world, &installation).into_iter().filter(|line| points.contains(&line.point))
    };
    let mut lines: Vec<Line> = of(&world, &OF_PRESENT_MODE).chain(of(&supposed, &OF_CRD)).collect();
    lines.sort_by_key(|line| line.state);
    Ok(lines)
}

pub(super) fn run(args: Args) -> anyhow::Result<Verdict> {
    block_on(async move { print(&args.cluster, "MigrationCheck", &lines(&args.cluster).await?) })
}
