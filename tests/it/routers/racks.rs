//! Racks with a router each, as `docs/how-to/bgp-per-rack.md` sets them up: its pool, its template and the configuration of
//! its router are those of the test, for each row of its table.
//!
//! Each router is an FRR in a network of its own. At each quiet point it has exactly the prefixes of the nodes of its rack.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};
use cilium_node_ipam::net::cidr::Cidr;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::oracle::expected;
use super::{MOVES_WITHIN, RELEASES_WITHIN, Scene, create_frr_k8s_pod, frr_k8s};
use crate::chronicle::wait_gone;
use crate::routes::{configurations, node, of_node, options};
use crate::scene::{PROMPT, SOON, insist, insist_for};
use crate::support::controller::Controller;
use crate::support::kubectl::apply;
use crate::support::lab::{Lab, Route, Sessions};
use crate::support::objects::Kind;
use crate::support::rig::{Rig, under_oracle};

const PAGE: &str = include_str!("../../../docs/how-to/bgp-per-rack.md");

/// The label that says in which rack a node is.
const RACK: &str = "topology.kubernetes.io/zone";

/// A row of the table of the page.
#[derive(Debug, PartialEq)]
struct Rack {
    name: &'static str,
    nodes: Cidr,
    range: Cidr,
    router: &'static str,
    address: &'static str,
}

/// The racks of the page.
fn racks() -> Result<[Rack; 2]> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("| rack |")).skip(2);
    let rows: Vec<Rack> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [name, nodes, range, router, address] = cells[..] else {
                anyhow::bail!("{line} has other columns")
            };
            Ok(Rack { name, nodes: nodes.parse()?, range: range.parse()?, router, address })
        })
        .collect::<Result<_>>()?;
    rows.try_into().map_err(|rows| anyhow::anyhow!("{rows:?} are not two racks"))
}

/// The only block of code of the page in this language that has these words.
fn printed(language: &str, words: &str) -> Result<&'static str> {
    let opening = format!("```{language}\n");
    let blocks = PAGE.split(&*opening).skip(1).filter_map(|rest| rest.split("```").next());
    let found: Vec<&str> = blocks.filter(|block| block.contains(words)).collect();
    let [only] = found[..] else { anyhow::bail!("{} blocks of {language} have {words:?}", found.len()) };
    Ok(only)
}

impl Rack {
    /// A text of the page, which is for the first rack, for this one.
    fn adapted(&self, text: &str) -> Result<String> {
        let [first, _] = racks()?;
        let [of_first, of_this] = [&first, self].map(|rack| {
            [
                rack.name.to_owned(),
                rack.nodes.to_string(),
                rack.range.to_string(),
                rack.router.to_owned(),
                rack.address.to_owned(),
            ]
        });
        let pairs = of_first.iter().zip(&of_this);
        Ok(pairs.fold(text.to_owned(), |text, (of_first, of_this)| text.replace(of_first, of_this)))
    }

    /// The address of the node with this number, without and with its prefix length.
    fn node_address(&self, number: u32) -> Result<(Ipv4Addr, String)> {
        let address = ipv4_in(self.nodes, number)?;
        Ok((address, format!("{address}/{}", self.nodes.prefix_len())))
    }
}

/// The address of this number in an IPv4 range.
fn ipv4_in(range: Cidr, number: u32) -> Result<Ipv4Addr> {
    let text = range.to_string();
    let (first, _) = text.split_once('/').context("no length")?;
    Ok(Ipv4Addr::from(u32::from(first.parse::<Ipv4Addr>()?) + number))
}

/// The cluster of the page, without nodes.
async fn start(rig: &Rig) -> Result<(Scene, [Rack; 2], Controller)> {
    rig.control_plane.limit_releasing(RELEASES_WITHIN).await?;
    let frr_k8s = frr_k8s(rig).await?;
    let lab = Lab::start(rig, Sessions::Drop).await?;
    let racks = racks()?;
    let router = printed("text", "router bgp")?;
    let [pool, template] = [printed("yaml", "kind: NodeIPPool")?, printed("yaml", "kind: FRRConfiguration")?];
    for rack in &racks {
        let address = format!("{}/{}", rack.address, rack.nodes.prefix_len());
        lab.start_router(rack.router, &address, &rack.adapted(router)?).await?;
        apply(&rig.control_plane, &rack.adapted(pool)?).await?;
        // The webhook serves when its watches are up.
        let template = rack.adapted(template)?;
        insist(rig, async || apply(&rig.control_plane, &template).await).await?;
    }
    let (_, templates) = PAGE.split_once("'routes.template=").context("no value of the chart")?;
    let (templates, _) = templates.split_once('\'').context("no end of it")?;
    let templates = templates.replace('\\', "");
    let flags = [PROMPT, &["--routes", "frr-k8s", "--routes-template", &templates]].concat();
    let controller = Controller::start_ready(&rig.control_plane, &flags).await?;
    let scene = Scene { lab, _frr_k8s: frr_k8s, agents: BTreeMap::new() };
    Ok((scene, racks, controller))
}

/// A node joins in this rack, with the address of this number.
async fn join(rig: &Rig, scene: &mut Scene, rack: &Rack, name: &str, number: u32) -> Result<()> {
    let (address, with_length) = rack.node_address(number)?;
    rig.cluster.create_node(&node(name).label(RACK, rack.name).at(address.into())).await?;
    create_frr_k8s_pod(rig, name).await?;
    scene.lab.power_on_in(name, rack.router, &with_length).await?;
    scene.start_agent(rig, name).await
}

/// The routes that the router of a rack should have: those of the nodes with its label, in its range.
fn of_rack(rig: &Rig, rack: &Rack) -> Result<BTreeSet<Route>> {
    let nodes = rig.cluster.objects(Kind::Node);
    let is_in = |name: &str| {
        let labels = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
        let labels = labels.and_then(|node| node.metadata.labels.as_ref());
        labels.and_then(|labels| labels.get(RACK)).is_some_and(|value| value == rack.name)
    };
    let in_range = |prefix: &str| prefix.parse::<Cidr>().is_ok_and(|prefix| rack.range.covers(prefix));
    Ok(expected(rig)?.into_iter().filter(|route| is_in(&route.node) && in_range(&route.prefix)).collect())
}

/// Returns when each router has exactly the routes of its rack, and these nodes have some.
async fn wait_right(rig: &Rig, lab: &Lab, racks: &[(&Rack, &[&str])]) -> Result<()> {
    insist_for(rig, MOVES_WITHIN, async || {
        for (rack, nodes) in racks {
            let (expected, found) = (of_rack(rig, rack)?, lab.table_of(rack.router).await?);
            let with_routes: BTreeSet<&str> = expected.iter().map(|route| &*route.node).collect();
            ensure!(
                with_routes == nodes.iter().copied().collect(),
                "{}: {with_routes:?} have blocks",
                rack.name
            );
            ensure!(
                found.iter().eq(&expected),
                "{} has {found:#?}, and {expected:#?} are expected",
                rack.router
            );
        }
        Ok(())
    })
    .await
}

/// Fails unless the only neighbor of a node is this router.
async fn assert_neighbor(rig: &Rig, node: &str, rack: &Rack) -> Result<()> {
    let object = of_node(rig, node).await?;
    let neighbors =
        object.data["spec"]["bgp"]["routers"][0]["neighbors"].as_array().cloned().unwrap_or_default();
    let addresses: Vec<&str> = neighbors.iter().filter_map(|neighbor| neighbor["address"].as_str()).collect();
    ensure!(addresses == [rack.address], "{node} has sessions with {addresses:?}");
    Ok(())
}

/// Returns when each of these nodes has this finding about its template.
async fn wait_found(controller: &Controller, nodes: &[&str], why: &str) -> Result<()> {
    for node in nodes {
        let words = format!("{why} finding=\"RouteWithheld\" kind=\"Node\" name=\"{node}\"");
        controller.wait_logged(&words, SOON).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_router_has_the_nodes_of_its_rack() -> Result<()> {
    under_oracle(options(), async |rig| {
        let (mut scene, [one, two], controller) = start(rig).await?;
        for (rack, name, number) in [(&one, "a1", 10), (&two, "b1", 10), (&one, "a2", 11), (&two, "b2", 11)] {
            join(rig, &mut scene, rack, name, number).await?;
        }
        let (of_one, of_two) = (["a1", "a2"], ["b1", "b2"]);
        wait_right(rig, &scene.lab, &[(&one, &of_one), (&two, &of_two)]).await?;
        for (rack, nodes) in [(&one, of_one), (&two, of_two)] {
            for name in nodes {
                assert_neighbor(rig, name, rack).await?;
            }
        }
        scene.grow(rig, "a1", 2).await?;
        wait_right(rig, &scene.lab, &[(&one, &of_one), (&two, &of_two)]).await?;

        // A pod, and the routers that send to it.
        let block: Cidr = rig.cluster.claims_of("b1")[0].cidr.parse()?;
        let pod = ipv4_in(block, 5)?.to_string();
        scene.lab.add_address("b1", &format!("{pod}/32")).await?;
        ensure!(scene.lab.is_reached_by(two.router, &pod).await?, "{} does not reach {pod}", two.router);
        ensure!(!scene.lab.is_reached_by(one.router, &pod).await?, "{} reaches {pod}", one.router);

        // Two templates for a node, and none: both are findings, and routes stay.
        let for_nodes = async |labels: &str| {
            let patch = json!({"metadata": {"annotations": {"nodeipam.io/nodes": labels}}});
            configurations(rig)
                .0
                .patch(two.name, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .map(drop)
        };
        for_nodes("").await?;
        let why =
            "rack-1, rack-2 are for it; give each node one template by the annotation nodeipam.io/nodes";
        wait_found(&controller, &of_one, why).await?;
        wait_right(rig, &scene.lab, &[(&one, &of_one), (&two, &of_two)]).await?;
        for_nodes(&format!("{RACK}=rack-3")).await?;
        let why = "no template is for it; give one of them its labels in the annotation nodeipam.io/nodes";
        wait_found(&controller, &of_two, why).await?;
        wait_right(rig, &scene.lab, &[(&one, &of_one), (&two, &of_two)]).await?;
        for_nodes(&format!("{RACK}={}", two.name)).await?;

        // The label of a node changes while it runs: no router has its blocks until the label is back.
        rig.cluster.relabel_node("a2", &[(RACK, Some(two.name))]).await?;
        wait_right(rig, &scene.lab, &[(&one, &["a1"]), (&two, &of_two)]).await?;
        assert_neighbor(rig, "a2", &two).await?;
        controller.wait_logged("their pools do not select it", SOON).await?;
        rig.cluster.relabel_node("a2", &[(RACK, Some(one.name))]).await?;
        wait_right(rig, &scene.lab, &[(&one, &of_one), (&two, &of_two)]).await?;

        // It moves as the page says: its Node is deleted, and it joins in the other rack with a block of that. Until its
        // claims are deleted, it would get its former block back.
        rig.cluster.patch_pool(one.name, json!({"reuseAfterNodeLoss": "1s"})).await?;
        // Its machine is shut down, so its sessions are closed.
        scene.lab.act("kill-frr", "a2").await?;
        scene.lose(rig, "a2").await?;
        wait_gone(rig, Kind::CiliumNode, "a2").await?;
        insist_for(rig, MOVES_WITHIN, async || {
            let claims = rig.cluster.claims_of("a2");
            ensure!(claims.is_empty(), "{claims:?}");
            Ok(())
        })
        .await?;
        wait_right(rig, &scene.lab, &[(&one, &["a1"]), (&two, &of_two)]).await?;
        rig.excuse("a2");
        join(rig, &mut scene, &two, "a2", 12).await?;
        wait_right(rig, &scene.lab, &[(&one, &["a1"]), (&two, &["a2", "b1", "b2"])]).await?;
        assert_neighbor(rig, "a2", &two).await?;
        Ok((controller, scene))
    })
    .await
}
