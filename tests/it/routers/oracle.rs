//! The oracle of tests with real routers: the table at a quiet point, and the routes that must never have existed.
//! Routers other than that of the lab have the addresses of nodes in place of their names.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family};

use crate::scene::insist_for;
use crate::support::lab::{Change, Lab, Route, addresses};
use crate::support::objects::Kind;
use crate::support::rig::Rig;

/// A daemon of frr-k8s reports its configuration every 30 s, and a session may have to time out first.
const QUIET_WITHIN: Duration = Duration::from_secs(150);

/// The routes that follow from the claims: the fewest prefixes for the blocks of each node, by its own address.
pub(crate) fn expected(rig: &Rig) -> Result<BTreeSet<Route>> {
    let mut routes = BTreeSet::new();
    for node in rig.cluster.objects(Kind::Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        for (family, via) in [Family::V4, Family::V6].into_iter().zip(addresses(&node.data)) {
            let claims = rig.cluster.claims_of(&name);
            let blocks = claims.iter().map(|claim| claim.cidr.parse::<Cidr>());
            let blocks = blocks.filter(|block| block.as_ref().is_ok_and(|block| block.family() == family));
            let blocks: AddressSet = blocks.collect::<Result<_, _>>()?;
            let (node, via) = (&name, &via);
            routes.extend(blocks.cidrs().map(|prefix| Route {
                prefix: prefix.to_string(),
                node: node.clone(),
                via: via.clone(),
            }));
        }
    }
    Ok(routes)
}

/// Returns when the router has exactly the routes that follow from the claims, and this number of nodes have some.
pub(super) async fn wait_right(rig: &Rig, lab: &Lab, n_nodes: usize) -> Result<BTreeSet<Route>> {
    insist_for(rig, QUIET_WITHIN, async || {
        let (expected, found) = (expected(rig)?, lab.table().await?);
        let nodes: BTreeSet<&String> = expected.iter().map(|route| &route.node).collect();
        ensure!(nodes.len() == n_nodes, "{nodes:?} have blocks");
        ensure!(found.len() == expected.len(), "the router has {found:#?}, and {expected:#?} are expected");
        let found: BTreeSet<Route> = found.into_iter().collect();
        ensure!(found == expected, "the router has {found:#?}, and {expected:#?} are expected");
        Ok(found)
    })
    .await
}

/// Fails if the router ever had an address by way of two nodes. Returns the number of changes. Must be called at a
/// quiet point: unless the log leads to the table, it proves nothing.
pub(super) async fn assert_never_two_ways(lab: &Lab) -> Result<usize> {
    let changes = lab.changes().await?;
    never_two_ways(&changes, &lab.table().await?)?;
    Ok(changes.len())
}

/// As [`assert_never_two_ways`], for these changes, which must lead to this table.
pub(crate) fn never_two_ways(changes: &[Change], found: &[Route]) -> Result<()> {
    let mut routes = BTreeSet::new();
    for change in changes {
        follow(&mut routes, change)?;
        let Ok(new) = change.prefix.parse::<Cidr>() else { continue };
        let other = routes.iter().find(|(prefix, node)| *node != change.node && prefix.overlaps(new));
        ensure!(change.what == "removed" || other.is_none(), "{change:?} beside {other:?}");
    }
    let mut table = BTreeSet::new();
    for route in found {
        table.insert((route.prefix.parse::<Cidr>()?, route.node.clone()));
    }
    ensure!(
        !routes.is_empty() && routes == table,
        "the log leads to {routes:?}, and the router has {table:?}"
    );
    Ok(())
}

/// Fails if a session went down, or the router lacked an address of a node that it had, since the change with this
/// number.
pub(super) async fn assert_no_flap(lab: &Lab, node: &str, from: usize) -> Result<()> {
    no_flap(&lab.changes().await?, node, from)
}

/// As [`assert_no_flap`], for these changes.
pub(crate) fn no_flap(changes: &[Change], node: &str, from: usize) -> Result<()> {
    let mut routes = BTreeSet::new();
    let mut had = AddressSet::default();
    let mut was_up = false;
    for (number, change) in changes.iter().enumerate() {
        follow(&mut routes, change)?;
        let of_node = routes.iter().filter(|(_, of)| of == node);
        let has: AddressSet = of_node.map(|(prefix, _)| *prefix).collect();
        if number >= from && change.node == node {
            ensure!(!was_up || !is_down(change), "{change:?}");
            let lost: Vec<Cidr> = had.cidrs().filter(|cidr| !has.covers(*cidr)).collect();
            ensure!(lost.is_empty(), "{change:?} takes {lost:?} away: {:#?}", &changes[from..=number]);
        }
        had = has;
        was_up |= change.node == node && change.what == "up";
    }
    Ok(())
}

/// The sessions of a node that are up.
pub(super) fn up(changes: &[Change], node: &str) -> BTreeSet<String> {
    let mut up = BTreeSet::new();
    for change in changes.iter().filter(|change| change.node == node && change.prefix.is_empty()) {
        match change.what.as_str() {
            "up" => drop(up.insert(change.session.clone())),
            _ => drop(up.remove(&change.session)),
        }
    }
    up
}

/// Returns when this number of sessions of a node are up.
pub(super) async fn wait_sessions(rig: &Rig, lab: &Lab, node: &str, count: usize) -> Result<()> {
    insist_for(rig, QUIET_WITHIN, async || {
        let up = up(&lab.changes().await?, node);
        ensure!(up.len() == count, "{up:?} are up");
        Ok(())
    })
    .await
}

/// Whether a session went down, or was never up.
pub(super) fn is_down(change: &Change) -> bool {
    change.prefix.is_empty() && change.what == "start"
}

/// The routes after a change.
fn follow(routes: &mut BTreeSet<(Cidr, String)>, change: &Change) -> Result<()> {
    if change.prefix.is_empty() {
        return Ok(());
    }
    let route = (change.prefix.parse::<Cidr>()?, change.node.clone());
    match change.what.as_str() {
        "added" | "updated" | "replaced" => drop(routes.insert(route)),
        "removed" => drop(routes.remove(&route)),
        _ => {}
    }
    Ok(())
}
