//! The allocators of Cilium's operator beside the controller. Both parts of Cilium, the operator and the agents, are
//! its own code.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;

use crate::agent_pods::wait_reported;
use crate::multi_pool::carried;
use crate::restored::page::{Page, Shell};
use crate::scene::{PROMPT, SOON, ask, wait_claims_carried};
use crate::support::agent::{Agent, Make};
use crate::support::cilium_operator::CiliumOperator;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::preparation::prepare;
use crate::support::rig::{Rig, under_oracle};
use crate::support::views::{Claim, Published};

const MULTI_POOL: &str = "multi-pool";
const CLUSTER_POOL: &str = "cluster-pool";

/// More pods than the first block of a node, a /28, has addresses.
const PODS: usize = 20;

/// The controller keeps the names of all writers on CiliumNodes, so that a test sees the writers.
const KEEP_NAMES: &[&str] = &["--min-write-interval", "0s", "--keep-managed-fields"];

fn of_mode(ipam: &'static str) -> Options {
    Options { ipam, ..Options::default() }
}

/// The ranges that the operator gives out in mode multi-pool.
async fn create_pod_ip_pool(rig: &Rig, range: &str) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cilium.io", "v2alpha1", "CiliumPodIPPool"));
    let api: Api<DynamicObject> = Api::all_with(rig.cluster.client.clone(), &resource);
    let spec = json!({"ipv4": {"cidrs": [range], "maskSize": 28}});
    let pool = DynamicObject::new("default", &resource).data(json!({"spec": spec}));
    api.create(&PostParams::default(), &pool).await.context("creating the CiliumPodIPPool")?;
    Ok(())
}

fn pool() -> PoolSpec {
    PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"]).with("reuseAfter", "1s")
}

async fn start(rig: &Rig, node: NodeSpec) -> Result<Agent> {
    rig.cluster.create_node(&node).await?;
    let mut agent = rig.agents.agent_with(Make::Real, &node.name, rig.agents.settings());
    agent.start()?;
    Ok(agent)
}

/// Returns when the agent of a new node serves pods. It may see its CIDRs before the test does.
async fn join(rig: &Rig, node: NodeSpec) -> Result<Agent> {
    let name = node.name.clone();
    let mut agent = start(rig, node).await?;
    agent.wait_ready(SOON).await?;
    rig.cluster.wait_published(&name, "CIDRs", SOON, |seen| !seen.pod_cidrs.is_empty()).await?;
    Ok(agent)
}

async fn wait_finding(rig: &Rig, controller: &Controller, count: &str) -> Result<()> {
    let reported = format!("cilium_node_ipam_findings{{kind=\"SecondAllocator\"}} {count}\n");
    wait_reported(rig, controller, "/metrics", &[&reported]).await
}

fn lie_in(cidrs: &BTreeSet<String>, range: &str) -> bool {
    !cidrs.is_empty() && cidrs.iter().all(|cidr| cidr.starts_with(range))
}

/// Removes the signs of all nodes, by the commands of the page.
pub(crate) async fn remove_signs(rig: &Rig) -> Result<()> {
    let page = include_str!("../../docs/how-to/take-over-from-cilium-operator.md");
    let commands = Page::of(page).next()?;
    ensure!(commands.contains("managedFields"), "the page has other commands:\n{commands}");
    Shell::new(&rig.control_plane)?.run(&commands).await.map(drop)
}

/// The names of all writers of a CiliumNode.
async fn writers(rig: &Rig, node: &str) -> Result<BTreeSet<String>> {
    let fields = rig.cluster.read(Kind::CiliumNode, node).await?.metadata.managed_fields;
    Ok(fields.into_iter().flatten().filter_map(|field| field.manager).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_an_operator_serves_in_multi_pool_mode_is_left_to_it_until_it_is_off() -> Result<()> {
    under_oracle(of_mode(MULTI_POOL), async |rig| {
        rig.control_plane.allow("cidr-without-claim", Some("n"), None).await?;
        create_pod_ip_pool(rig, "10.1.1.0/24").await?;
        let operator = CiliumOperator::start(rig, MULTI_POOL, &[]).await?;
        let mut agent = join(rig, NodeSpec::new("n")).await?;
        ensure!(lie_in(&carried(rig, "n"), "10.1.1."), "{:?}", carried(rig, "n"));

        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/23"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        wait_finding(rig, &controller, "1").await?;
        for number in 0..PODS {
            ask(rig, &agent, &format!("ns/pod-{number}")).await?;
        }
        ensure!(lie_in(&carried(rig, "n"), "10.1.1."), "{:?}", carried(rig, "n"));
        ensure!(rig.cluster.objects(Kind::Block).is_empty(), "a claim was made");

        operator.end().await?;
        remove_signs(rig).await?;
        wait_finding(rig, &controller, "0").await?;
        wait_claims_carried(rig).await?;
        for number in 0..PODS {
            ask(rig, &agent, &format!("ns/more-{number}")).await?;
        }
        let grown = |seen: &Published| seen.pod_cidrs.iter().any(|cidr| cidr.starts_with("10.1.0."));
        rig.cluster.wait_published("n", "a block of ours", SOON, grown).await?;
        agent.restart_and_restore(SOON).await?;
        Ok((controller, agent))
    })
    .await
}

/// For example, its chart was upgraded without `operator.extraArgs`. It allocates for nodes that we serve, and for one
/// that joins.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_begins_beside_us_in_multi_pool_mode_costs_no_pod_its_address() -> Result<()> {
    under_oracle(of_mode(MULTI_POOL), async |rig| {
        rig.control_plane.allow("cidr-without-claim", None, None).await?;
        // It gives out the lowest of the range, and our blocks are not among the first.
        prepare(rig, 28).await?;
        rig.cluster.create_pool(&pool()).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agent = join(rig, NodeSpec::new("n")).await?;
        for number in 0..PODS {
            ask(rig, &agent, &format!("ns/pod-{number}")).await?;
        }
        wait_claims_carried(rig).await?;
        let operator = CiliumOperator::start(rig, MULTI_POOL, &[]).await?;
        let mut newcomer = join(rig, NodeSpec::new("m")).await?;
        for number in 0..PODS {
            ask(rig, &agent, &format!("ns/more-{number}")).await?;
            ask(rig, &newcomer, &format!("ns/new-{number}")).await?;
        }
        agent.restart_and_restore(SOON).await?;
        newcomer.restart_and_restore(SOON).await?;

        operator.end().await?;
        remove_signs(rig).await?;
        wait_finding(rig, &controller, "0").await?;
        for number in 0..PODS {
            ask(rig, &newcomer, &format!("ns/late-{number}")).await?;
        }
        agent.restart_and_restore(SOON).await?;
        newcomer.restart_and_restore(SOON).await?;
        Ok((controller, agent, newcomer))
    })
    .await
}

/// A cluster can be taken over node by node: an operator from 1.18.8 on ignores these nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_an_operator_is_told_to_ignore_is_ours_in_multi_pool_mode() -> Result<()> {
    under_oracle(of_mode(MULTI_POOL), async |rig| {
        rig.control_plane.allow("cidr-without-claim", Some("theirs"), None).await?;
        create_pod_ip_pool(rig, "10.9.0.0/24").await?;
        rig.cluster.create_pool(&pool().select("ipam", "ours")).await?;
        let controller = Controller::start_ready(&rig.control_plane, KEEP_NAMES).await?;
        let operator = CiliumOperator::start(rig, MULTI_POOL, &[]).await?;
        let ours = NodeSpec::new("ours").label("ipam", "ours").annotation("ipam.cilium.io/ignore", "true");
        let mut agent = join(rig, ours).await?;
        let mut other = join(rig, NodeSpec::new("theirs")).await?;
        for number in 0..PODS {
            ask(rig, &agent, &format!("ns/pod-{number}")).await?;
            ask(rig, &other, &format!("ns/their-{number}")).await?;
        }
        ensure!(lie_in(&carried(rig, "ours"), "10.1.0."), "{:?}", carried(rig, "ours"));
        ensure!(lie_in(&carried(rig, "theirs"), "10.9.0."), "{:?}", carried(rig, "theirs"));
        let writers = writers(rig, "ours").await?;
        ensure!(!writers.iter().any(|name| name.starts_with("cilium-operator")), "{writers:?}");
        agent.restart_and_restore(SOON).await?;
        other.restart_and_restore(SOON).await?;
        Ok((controller, operator, agent, other))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_allocates_nothing_leaves_multi_pool_mode_to_us() -> Result<()> {
    leaves_all_to_us(MULTI_POOL).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_allocates_nothing_leaves_cluster_pool_mode_to_us() -> Result<()> {
    leaves_all_to_us(CLUSTER_POOL).await
}

/// In this mode it has the same setting as the agents.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_leaves_kubernetes_mode_to_us() -> Result<()> {
    leaves_all_to_us("kubernetes").await
}

async fn leaves_all_to_us(ipam: &'static str) -> Result<()> {
    under_oracle(of_mode(ipam), async |rig| {
        prepare(rig, 28).await?;
        rig.cluster.create_pool(&pool()).await?;
        let operator = CiliumOperator::start(rig, "kubernetes", &[]).await?;
        let controller = Controller::start_ready(&rig.control_plane, KEEP_NAMES).await?;
        let mut agent = join(rig, NodeSpec::new("n")).await?;
        let n_pods = if ipam == MULTI_POOL { PODS } else { 5 };
        for number in 0..n_pods {
            ask(rig, &agent, &format!("ns/pod-{number}")).await?;
        }
        wait_claims_carried(rig).await?;
        agent.restart_and_restore(SOON).await?;
        let writers = writers(rig, "n").await?;
        ensure!(writers.contains("cilium-agent"), "the names of writers are there: {writers:?}");
        ensure!(!writers.iter().any(|name| name.starts_with("cilium-operator")), "{writers:?}");
        Ok((controller, operator, agent))
    })
    .await
}

/// Each node has a block of the operator or one of ours, and keeps the block with which it started.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_gave_in_cluster_pool_mode_is_adopted_or_left_alone() -> Result<()> {
    under_oracle(of_mode(CLUSTER_POOL), async |rig| {
        rig.control_plane.allow("cidr-without-claim", None, None).await?;
        // One of ours, and then others.
        let ranges =
            ["--cluster-pool-ipv4-cidr", "10.1.0.0/28,10.9.0.0/24", "--cluster-pool-ipv4-mask-size", "28"];
        let operator = CiliumOperator::start(rig, CLUSTER_POOL, &ranges).await?;
        let mut first = join(rig, NodeSpec::new("first")).await?;
        first.allocate("ns/pod").await?;
        let mut second = join(rig, NodeSpec::new("second")).await?;
        second.allocate("ns/pod").await?;
        let given = [carried(rig, "first"), carried(rig, "second")];
        ensure!(lie_in(&given[0], "10.1.0.0/28") && lie_in(&given[1], "10.9.0."), "{given:?}");

        rig.cluster.create_pool(&pool()).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let reported = ["cilium_node_ipam_findings{kind=\"ForeignPodCIDRs\"} 1\n"];
        wait_reported(rig, &controller, "/metrics", &reported).await?;
        let is_adopted = async || Ok(rig.cluster.claims_of("first").len() == 1);
        rig.cluster.wait_until("the block of the first to be claimed", SOON, is_adopted).await?;
        ensure!(rig.cluster.claims_of("second").is_empty(), "a claim was made for the second");
        first.restart_and_restore(SOON).await?;
        second.restart_and_restore(SOON).await?;
        ensure!(given == [carried(rig, "first"), carried(rig, "second")], "{given:?} was changed");

        // Without the operator, a node that joins is ours.
        operator.end().await?;
        let mut third = join(rig, NodeSpec::new("third")).await?;
        third.allocate("ns/pod").await?;
        ensure!(lie_in(&carried(rig, "third"), "10.1.0."), "{:?}", carried(rig, "third"));
        third.restart_and_restore(SOON).await?;
        rig.excuse("second");
        Ok((controller, first, second, third))
    })
    .await
}

/// If the controller is faster, the operator replaces the block a second later, and the agent keeps using the replaced
/// block.
#[tokio::test(flavor = "multi_thread")]
async fn no_block_that_an_operator_may_have_replaced_in_cluster_pool_mode_goes_to_another_node() -> Result<()>
{
    under_oracle(of_mode(CLUSTER_POOL), async |rig| {
        for rule in ["cidr-without-claim", "podcidrs-changed", "held-address-withdrawn"] {
            rig.control_plane.allow(rule, None, None).await?;
        }
        let ranges = ["--cluster-pool-ipv4-cidr", "10.1.1.0/24", "--cluster-pool-ipv4-mask-size", "28"];
        let operator = CiliumOperator::start(rig, CLUSTER_POOL, &ranges).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/23"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let mut agents = Vec::new();
        for number in 0..4 {
            let node = format!("n{number}");
            let agent = join(rig, NodeSpec::new(&node)).await?;
            let pod = agent.allocate("ns/pod").await?;
            // Or it sees the block before it has chosen one, and reports an error.
            let has_answered = async || {
                let object = rig.cluster.object(Kind::CiliumNode, &node).context("its CiliumNode")?;
                let error = &object.data["status"]["ipam"]["operator-status"]["error"];
                Ok(lie_in(&carried(rig, &node), "10.1.1.") || error.is_string())
            };
            rig.cluster.wait_until("the operator's CIDR", SOON, has_answered).await?;
            agents.push((node, agent, pod));
        }
        operator.end().await?;
        // This controller has not seen the earlier CIDRs.
        controller.sigkill().await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let is_claimed = async || {
            Ok(agents.iter().all(|(node, ..)| {
                let carried = carried(rig, node);
                rig.cluster.claims_of(node).iter().any(|claim| carried.contains(&claim.cidr))
            }))
        };
        rig.cluster.wait_until("the CIDRs of the operator to be claims", SOON, is_claimed).await?;
        let mut late = join(rig, NodeSpec::new("late")).await?;
        late.allocate("ns/pod").await?;
        late.restart_and_restore(SOON).await?;
        for (node, _, pod) in &agents {
            let address = pod.ipv4.context("it has an address")?;
            let claims = rig.cluster.claims_of(node);
            let holds = |claim: &Claim| {
                let block: Result<IpNet, _> = claim.cidr.parse();
                claim.state == "Held" && block.is_ok_and(|block| block.contains(&address))
            };
            ensure!(claims.iter().any(holds), "{address} of {node}: {claims:?}");
        }
        Ok((controller, agents, late))
    })
    .await
}
