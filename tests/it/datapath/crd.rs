//! Mode crd with native routing: growth, drain, reclaim, a block that moves to another node, and restarts of agents.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::lab::GATEWAY;
use super::machine::{Pod, Setup};
use super::ping::Pings;
use super::{FLAGS, MORE_THAN_ONE_BLOCK, address, reach, with_lab};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::families::{Families, Family};
use crate::support::objects::PoolSpec;
use crate::support::rig::Rig;
use crate::support::views::Published;

/// The ranges of the first blocks, of a block that moves, and of its replacement.
const FIRST: &str = "10.1.0.0/24";
const MOVES: &str = "10.2.0.0/28";
const REPLACES: &str = "10.3.0.0/24";

/// From the last pod of a block until the block is free. The agent reports its use every 5 s here.
const LEAVES_WITHIN: Duration = Duration::from_secs(200);

/// Sets the states of the ranges. Those without a state are removed.
async fn set_ranges(rig: &Rig, states: &[(&str, &str)]) -> Result<()> {
    let cidrs: Vec<_> = states.iter().map(|(cidr, state)| json!({"cidr": cidr, "state": state})).collect();
    rig.cluster.patch_pool("p", json!({"ipv4": {"cidrs": cidrs}})).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_is_drained_and_moves_to_another_node() -> Result<()> {
    with_lab(Options::default(), async |rig, lab| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &[FIRST]).with("reuseAfter", "5s")).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let mut one = lab.join(rig, "one", Setup::default()).await?;
        let mut two = lab.join(rig, "two", Setup::default()).await?;
        let (a, b) = (one.add_pod(rig, "a").await?, two.add_pod(rig, "b").await?);
        let mut pings = Pings::default();
        pings.add(one.ping_from(rig, &a, "a to b", address(&b)?).await?);
        pings.add(two.ping_from(rig, &b, "b to a", address(&a)?).await?);
        pings.add(one.ping(rig, "the node of a to a", address(&a)?).await?);
        pings.add(two.ping(rig, "the node of b to a", address(&a)?).await?);
        pings.add(one.ping_from(rig, &a, "a to a host outside", GATEWAY[0].parse()?).await?);

        // The node grows into a block of the other range. Routes to it are there as soon as its addresses are.
        set_ranges(rig, &[(FIRST, "Cordoned"), (MOVES, "Active")]).await?;
        let grown = one.add_pods(rig, "grown-", MORE_THAN_ONE_BLOCK).await?;
        let (second, stay): (Vec<&Pod>, Vec<&Pod>) = grown.iter().partition(|pod| pod.is_in(MOVES));
        ensure!(second.len() > 2 && !stay.is_empty(), "{grown:?}");
        two.wait_route(rig, MOVES, Some(&one)).await?;
        reach(rig, &two, &second).await?;
        pings.add(two.ping_from(rig, &b, "b to the first block", address(stay[0])?).await?);
        pings.add(two.ping_from(rig, &b, "b to the second block", address(second[0])?).await?);

        // The block drains beside pods that stay. Its own pods keep their network until they are deleted.
        set_ranges(rig, &[(FIRST, "Cordoned"), (MOVES, "Draining"), (REPLACES, "Active")]).await?;
        let is_fenced = |seen: &Published| {
            let mut entries = seen.pool.iter().filter(|(address, _)| address.starts_with("10.2."));
            entries.all(|(_, owner)| !owner.is_empty())
        };
        rig.cluster.wait_published("one", "a fence", LEAVES_WITHIN, is_fenced).await?;
        let later = one.add_pods(rig, "later-", 4).await?;
        // The agent may have given an address away before it saw the fence.
        let gone: Vec<&Pod> =
            second.iter().copied().chain(later.iter().filter(|pod| pod.is_in(MOVES))).collect();
        let kept = later.iter().find(|pod| !pod.is_in(MOVES));
        reach(rig, &two, &gone).await?;
        pings.finish(rig, "b to the second block").await?;
        for pod in &gone {
            one.remove_pod(rig, pod).await?;
        }
        let is_off = |seen: &Published| !seen.pod_cidrs.contains(&MOVES.to_owned());
        rig.cluster.wait_published("one", "the end of the block", LEAVES_WITHIN, is_off).await?;
        two.wait_route(rig, MOVES, None).await?;
        let is_free = async || Ok(rig.cluster.claims_of("one").iter().all(|claim| claim.cidr != MOVES));
        rig.cluster.wait_until("the block to be free", LEAVES_WITHIN, is_free).await?;

        // The other node gets it, and its pods get addresses that pods of the first node had.
        set_ranges(rig, &[(FIRST, "Cordoned"), (MOVES, "Active"), (REPLACES, "Cordoned")]).await?;
        let moved = two.add_pods(rig, "moved-", MORE_THAN_ONE_BLOCK).await?;
        let moved: Vec<&Pod> = moved.iter().filter(|pod| pod.is_in(MOVES)).collect();
        ensure!(!moved.is_empty(), "{:?}", rig.cluster.published("two"));
        one.wait_route(rig, MOVES, Some(&two)).await?;
        reach(rig, &one, &moved).await?;
        pings.add(one.ping_from(rig, &a, "a to the moved block", address(moved[0])?).await?);
        if let Some(kept) = kept {
            pings.add(two.ping_from(rig, &b, "b to the replacement", address(kept)?).await?);
        }

        one.restart_agent(rig, "TERM").await?;
        one.restart_agent(rig, "KILL").await?;
        two.restart_agent(rig, "TERM").await?;
        let last = one.add_pod(rig, "last").await?;
        reach(rig, &two, &[&last]).await?;
        pings.none_lost(rig, "crd: growth, drain, reclaim, a block moves, restarts of agents").await?;
        Ok((controller, one, two))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn both_families_grow_into_a_third_block_without_excluded_addresses() -> Result<()> {
    let options = Options::of(Families::Dual);
    with_lab(options, async |rig, lab| {
        let mut pool = PoolSpec::new("p").ipv4(28, &[FIRST]).ipv6(124, &["fd00:1::/120"]);
        for (family, excluded) in [("ipv4", "10.1.0.4/31"), ("ipv6", "fd00:1::4/127")] {
            pool.spec[family]["exclude"] = json!([excluded]);
        }
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let mut one = lab.join(rig, "one", Setup::default()).await?;
        let mut two = lab.join(rig, "two", Setup::default()).await?;
        let (a, b) = (one.add_pod(rig, "a").await?, two.add_pod(rig, "b").await?);
        let mut pings = Pings::default();
        for family in [Family::V4, Family::V6] {
            pings.add(one.ping_from(rig, &a, &format!("a to b, {family:?}"), b.address(family)?).await?);
            pings.add(two.ping_from(rig, &b, &format!("b to a, {family:?}"), a.address(family)?).await?);
            pings.add(two.ping(rig, &format!("the node of b to a, {family:?}"), a.address(family)?).await?);
        }

        let grown = one.add_pods(rig, "grown-", 2 * MORE_THAN_ONE_BLOCK).await?;
        let blocks = rig.cluster.published("one").unwrap_or_default().pod_cidrs;
        ensure!(blocks.len() >= 6, "{blocks:?}");
        let excluded = ["10.1.0.4/31", "fd00:1::4/127"];
        ensure!(grown.iter().all(|pod| excluded.iter().all(|cidr| !pod.is_in(cidr))), "{grown:?}");
        for block in &blocks {
            two.wait_route(rig, block, Some(&one)).await?;
        }
        let of_block = |block: &String| grown.iter().find(|pod| pod.is_in(block));
        let of_blocks: Vec<&Pod> = blocks.iter().filter_map(of_block).collect();
        reach(rig, &two, &of_blocks).await?;
        one.restart_agent(rig, "TERM").await?;
        two.restart_agent(rig, "KILL").await?;
        reach(rig, &two, &of_blocks).await?;
        pings.none_lost(rig, "crd, both families: growth into a third block, restarts of agents").await?;
        Ok((controller, one, two))
    })
    .await
}
