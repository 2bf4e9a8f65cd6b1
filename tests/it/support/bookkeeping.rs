//! Whether the running controllers agree with the objects. The metrics of a controller are compared with a count of the
//! objects. Its own comparison of everything derived must have found no difference since.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::cluster::Cluster;
use super::controller;
use super::objects::Kind;
use super::views::Claim;

/// The pause between two looks at `/metrics`, which is at most a second old.
const PAUSE: Duration = Duration::from_millis(100);

/// The log of a controller with broken bookkeeping contains one of these.
const BROKEN: [&str; 2] = ["panicked at", "BrokenInvariant"];

/// Series by name and labels.
type Metrics = BTreeMap<String, String>;

/// Returns when every controller that runs in `dir` agrees with the objects.
pub(crate) async fn wait_agreement(dir: &Path, cluster: &Cluster, deadline: Duration) -> Result<()> {
    assert_unbroken(dir)?;
    for address in files(dir, "address") {
        // A controller that is stopped has no address any more.
        let limit = tokio::time::Instant::now() + deadline;
        let mut first = None;
        loop {
            let difference = match metrics(&address).await {
                Ok(now) => difference(first.get_or_insert_with(|| now.clone()), &now, cluster),
                // A machine that is busy with other tests may refuse a connection.
                Err(error) => Some(format!("it has ended or hangs: {error:#}")),
            };
            let Some(difference) = difference else { break };
            if tokio::time::Instant::now() > limit {
                bail!(
                    "the controller of {} does not agree with the objects: {difference}",
                    address.display()
                );
            }
            // No event announces a new value.
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Fails if a controller that runs or ran in `dir` has found its bookkeeping broken.
pub(crate) fn assert_unbroken(dir: &Path) -> Result<()> {
    for log in files(dir, "log") {
        let text = fs::read_to_string(&log)?;
        if let Some(line) = text.lines().find(|line| BROKEN.iter().any(|word| line.contains(word))) {
            bail!("{}: {line}", log.display());
        }
    }
    Ok(())
}

/// A difference between the controller and the objects.
fn difference(first: &Metrics, now: &Metrics, cluster: &Cluster) -> Option<String> {
    let value = |metrics: &Metrics, name: &str| metrics.get(name).cloned().unwrap_or_default();
    let checks = "cilium_node_ipam_self_checks_total";
    // One self-check may have been in progress at the first look.
    let (before, after): (u64, u64) = (value(first, checks).parse().ok()?, value(now, checks).parse().ok()?);
    if after < before + 2 {
        return Some(format!("{} self-checks so far", after - before));
    }
    expected(cluster).into_iter().find_map(|(name, expected)| {
        let found = value(now, &name);
        (found != expected).then(|| format!("{name} is {found:?}, and should be {expected}"))
    })
}

/// The metrics that a controller should serve for these objects.
fn expected(cluster: &Cluster) -> Metrics {
    let mut expected = Metrics::new();
    expected.insert("cilium_node_ipam_self_check_differences".to_owned(), "0".to_owned());
    for (kind, name) in [
        (Kind::Node, "Node"),
        (Kind::CiliumNode, "CiliumNode"),
        (Kind::Pool, "NodeIPPool"),
        (Kind::Block, "NodeIPBlock"),
    ] {
        let series = format!("cilium_node_ipam_objects{{kind=\"{name}\"}}");
        expected.insert(series, cluster.objects(kind).len().to_string());
    }
    let claims: Vec<Claim> = cluster.objects(Kind::Block).iter().map(|block| Claim::of(block)).collect();
    for pool in cluster.objects(Kind::Pool) {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        for (family, separator) in [("ipv4", '.'), ("ipv6", ':')] {
            if pool.data["spec"][family].is_null() {
                continue;
            }
            let series = |state: &str| {
                format!(
                    "cilium_node_ipam_pool_blocks{{pool=\"{name}\",family=\"{family}\",state=\"{state}\"}}"
                )
            };
            for (state, word) in [("Held", "held"), ("Cooling", "cooling")] {
                let is_one = |claim: &&Claim| {
                    claim.pool == name && claim.state == state && claim.cidr.contains(separator)
                };
                expected.insert(series(word), claims.iter().filter(is_one).count().to_string());
            }
            // In a pool with several sizes a block on a node counts as the blocks of `blockSize` that it takes.
            let is_on_node = |claim: &&Claim| {
                claim.pool == name && claim.state != "Cooling" && claim.cidr.contains(separator)
            };
            let prefix = |claim: &Claim| claim.cidr.rsplit_once('/')?.1.parse::<u32>().ok();
            let usual = pool.data["spec"][family]["blockSize"].as_u64().and_then(|size| size.try_into().ok());
            let on_nodes: Vec<&Claim> = claims.iter().filter(is_on_node).collect();
            if on_nodes.iter().any(|claim| prefix(claim) != usual) {
                let bits = if family == "ipv4" { 32 } else { 128 };
                let size = |prefix: Option<u32>| 1u128 << (bits - prefix.unwrap_or(bits)).min(64);
                let addresses: u128 = on_nodes.iter().map(|claim| size(prefix(claim))).sum();
                let n_held = on_nodes.iter().filter(|claim| claim.state == "Held").count();
                let held = addresses.div_ceil(size(usual)) - (on_nodes.len() - n_held) as u128;
                expected.insert(series("held"), held.to_string());
            }
        }
    }
    expected
}

async fn metrics(address: &Path) -> Result<Metrics> {
    let (code, text) = controller::get(address, "/metrics").await?;
    if code != 200 {
        bail!("/metrics: {code}");
    }
    let series = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    Ok(series.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The files of controllers in the directory with this extension.
fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = dir.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("controller-") && path.extension().is_some_and(|found| found == extension)
    };
    entries.filter(is_one).collect()
}
