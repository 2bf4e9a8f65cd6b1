//! The tests that take longer than `make test` has time for; `make test-routes` runs them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::Cidr;
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use tokio::task::JoinSet;

use super::{configurations, create_template, flags, node, options};
use crate::scene::{insist_for, join, wait_ready_within};
use crate::support::controller::Controller;
use crate::support::objects::PoolSpec;
use crate::support::rig::{Rig, under_oracle};

const N_NODES: usize = 64;
const N_BLOCKS: usize = 3;
/// For each wait, of all nodes.
const SOON: std::time::Duration = std::time::Duration::from_secs(150);

/// A version of an FRRConfiguration: the second of its write, and its addresses.
type Version = (i64, AddressSet);
type Versions = Arc<Mutex<BTreeMap<String, Vec<Version>>>>;

/// Each write makes FRR reload, which takes seconds.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_grow_together_are_written_once_in_three_seconds() -> Result<()> {
    under_oracle(options(), async |rig| {
        create_template(rig).await?;
        let mut tasks = JoinSet::new();
        let versions = record(rig, &mut tasks);
        let pool = PoolSpec::new("p")
            .ipv4(28, &["10.1.0.0/20"])
            .with("perNode", serde_json::json!({"maxBlocks": N_BLOCKS}));
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&[])).await?;
        let nodes: Vec<_> = (0..N_NODES).map(|number| node(&format!("n{number}"))).collect();
        let agents = join(rig, &nodes).await?;
        wait_ready_within(rig, &agents, SOON).await?;
        insist_for(rig, SOON, async || {
            for agent in &agents {
                agent.allocate_many("ns/pod-", N_BLOCKS * 16);
            }
            let n_blocks = |name: &str| rig.cluster.published(name).map_or(0, |seen| seen.pod_cidrs.len());
            let behind = agents.iter().filter(|agent| n_blocks(agent.name()) < N_BLOCKS).count();
            ensure!(behind == 0, "{behind} nodes have fewer than {N_BLOCKS} blocks");
            Ok(())
        })
        .await?;
        insist_for(rig, SOON, async || {
            for agent in &agents {
                let blocks = rig.cluster.published(agent.name()).unwrap_or_default().pod_cidrs;
                let blocks: AddressSet =
                    blocks.iter().map(|block| block.parse::<Cidr>()).collect::<Result<_, _>>()?;
                let found = super::of_node(rig, agent.name()).await?;
                ensure!(addresses(&found)? == blocks, "{}: {:?}", agent.name(), found.data);
            }
            Ok(())
        })
        .await?;
        let versions = versions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, versions) in &versions {
            for pair in versions.windows(2) {
                let [(before, had), (after, has)] = pair else { continue };
                // The clock of the server has whole seconds here, and a write may take a while to it.
                ensure!(after - before >= 2, "{name} was written {} s after its last write", after - before);
                let lost: Vec<Cidr> = had.cidrs().filter(|cidr| !has.covers(*cidr)).collect();
                ensure!(lost.is_empty(), "{name} lost {lost:?}");
            }
        }
        ensure!(versions.len() == N_NODES, "{} objects", versions.len());
        eprintln!("{} writes for {N_NODES} nodes", versions.values().map(Vec::len).sum::<usize>());
        Ok((controller, agents, tasks))
    })
    .await
}

/// Keeps every version of the controller's FRRConfigurations.
fn record(rig: &Rig, tasks: &mut JoinSet<()>) -> Versions {
    let versions = Versions::default();
    let (kept, alarm, api) = (versions.clone(), rig.control_plane.alarm.clone(), configurations(rig).0);
    tasks.spawn(async move {
        if let Err(error) = follow(&api, &kept).await {
            alarm.raise(format!("the watch of FRRConfigurations: {error:#}"));
        }
    });
    versions
}

async fn follow(
    api: &kube::Api<DynamicObject>,
    versions: &Mutex<BTreeMap<String, Vec<Version>>>,
) -> Result<()> {
    let mut events = api.watch(&WatchParams::default(), "0").await?.boxed();
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event? else { continue };
        if object.name_any().starts_with("nodeipam-") {
            let times = object.managed_fields().iter().filter_map(|fields| fields.time.as_ref());
            let written = times.map(|time| time.0.as_second()).max().context("no time")?;
            let version = (written, addresses(&object)?);
            let mut versions = versions.lock().unwrap_or_else(PoisonError::into_inner);
            versions.entry(object.name_any()).or_default().push(version);
        }
    }
    Ok(())
}

fn addresses(object: &DynamicObject) -> Result<AddressSet> {
    let prefixes =
        object.data["spec"]["bgp"]["routers"][0]["prefixes"].as_array().cloned().unwrap_or_default();
    let prefixes = prefixes.iter().filter_map(|prefix| prefix.as_str()).map(str::parse::<Cidr>);
    Ok(prefixes.collect::<Result<_, _>>()?)
}
