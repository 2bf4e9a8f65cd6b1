//! Nodes that join: many at once, beside a controller that restarts, and the order in which blocks are given.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::scene::{
    SOON, join, join_one, n_claims, nodes, versions, wait_claims_carried, wait_ready, wait_ready_within,
};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::{Kind, NodeSpec, PoolSpec};
use crate::support::rig::{Rig, under_oracle};

const MANY: usize = 300;

/// A client with the common budget of five requests a second and bursts of ten would need 118 s for the claims and
/// patches alone.
const WITHOUT_A_HIDDEN_BUDGET: Duration = Duration::from_secs(110);

/// With that budget there would be no more claims than this in any ten seconds. A machine that is busy with other tests
/// may take longer than the time above, but does not spread the claims as evenly.
const IN_TEN_SECONDS: usize = 60;

/// For all of them, on a machine that is busy with other tests.
const JOINED: Duration = Duration::from_secs(330);

/// Nothing is given out before all owners are known, and no default of a client throttles the product.
#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_nodes_join_and_a_restart_serves_only_the_newcomer() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(27, &["10.64.0.0/16"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, &[]).await?;

        let began = Instant::now();
        let agents = join(rig, &nodes("n", MANY)).await?;
        wait_ready_within(rig, &agents, JOINED).await?;
        let took = began.elapsed();
        wait_claims_carried(rig).await?;
        let most = most_in_ten_seconds(rig);
        ensure!(
            took < WITHOUT_A_HIDDEN_BUDGET || most > IN_TEN_SECONDS,
            "{MANY} nodes joined in {took:?}, and got at most {most} claims in ten seconds"
        );
        ensure!(n_claims(rig) == MANY, "{} claims for {MANY} nodes", n_claims(rig));

        // The canary joins while the controller starts, and finds 300 blocks that it must not get.
        controller.sigkill().await?;
        let kinds = [Kind::CiliumNode, Kind::Block];
        let before = versions(rig, &kinds).await?;
        let starting = Controller::start_ready(&rig.control_plane, &[]);
        let canary = join_one(rig, NodeSpec::new("canary"));
        let (controller, canary) = tokio::try_join!(starting, canary)?;
        wait_claims_carried(rig).await?;

        let [theirs] = &rig.cluster.claims_of("canary")[..] else {
            anyhow::bail!("the canary holds {:?}", rig.cluster.claims_of("canary"));
        };
        let holders = before.iter().filter(|(kind, name, _)| *kind == Kind::Block && *name == theirs.name);
        ensure!(holders.count() == 0, "the canary got {}, which was held", theirs.name);
        let after: BTreeSet<_> = versions(rig, &kinds).await?;
        let touched: Vec<_> = before.difference(&after).collect();
        ensure!(touched.is_empty(), "the restart changed {touched:?}");
        Ok((controller, agents, canary))
    })
    .await
}

/// The maximum number of claims that were made within ten seconds.
fn most_in_ten_seconds(rig: &Rig) -> usize {
    let claims = rig.cluster.objects(Kind::Block);
    let made = claims.iter().filter_map(|claim| claim.metadata.creation_timestamp.as_ref());
    let made: Vec<i64> = made.map(|at| at.0.as_second()).collect();
    let within = |start: i64| made.iter().filter(|at| (start..start + 10).contains(*at)).count();
    made.iter().map(|start| within(*start)).max().unwrap_or_default()
}

/// Addresses are ordered as numbers. As texts, `10.1.0.128` would come before `10.1.0.64`. Each node gets the lower
/// half of a pair, so that its next block is beside it. When no pair is left, nodes get the other halves in order.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_given_in_numeric_order_one_write_at_a_time() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(27, &["10.1.0.0/24"])).await?;
        // The flag is the only limit of requests, and the smallest value still serves.
        let controller = Controller::start_ready(&rig.control_plane, &["--max-parallel-writes", "1"]).await?;
        let expected = [0, 64, 128, 192, 32, 96, 160, 224];
        let mut agents = Vec::new();
        for (number, expected) in expected.into_iter().enumerate() {
            let name = format!("n{number}");
            agents.push(join_one(rig, NodeSpec::new(&name)).await?);
            let published = rig.cluster.published(&name).context("its CiliumNode")?;
            ensure!(
                published.pod_cidrs == [format!("10.1.0.{expected}/27")],
                "{name} got {:?}",
                published.pod_cidrs
            );
        }
        Ok(controller)
    })
    .await
}

/// The cost of a grant does not grow with the pool: pools of 2^24 and of 2^64 addresses serve as any other does.
#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_a_pool_costs_nothing() -> Result<()> {
    under_oracle(Options::of(crate::support::families::Families::Dual), async |rig| {
        let pool = PoolSpec::new("p").ipv4(27, &["10.0.0.0/8"]).ipv6(122, &["fd00:1::/64"]);
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, &[]).await?;
        let agents = join(rig, &nodes("n", 20)).await?;
        wait_ready(rig, &agents).await?;
        wait_claims_carried(rig).await?;
        let status =
            crate::scene::wait_status(rig, "p", "20 served nodes", |status| status["nodes"]["served"] == 20)
                .await?;
        ensure!(status["ipv4"]["blocks"]["total"] == 1 << 19, "{status}");
        ensure!(status["ipv4"]["blocks"]["free"] == (1 << 19) - 20, "{status}");
        // 2^58 blocks; the maximum of a count is 2^53 - 1.
        ensure!(status["ipv6"]["blocks"]["total"] == (1_u64 << 53) - 1, "{status}");
        Ok(controller)
    })
    .await
}

/// Finds errors in the arithmetic of sizes: every size of block offers the addresses of a block of that size. The table
/// is written out, so that no formula of the product is checked by a formula of the same author.
#[tokio::test(flavor = "multi_thread")]
async fn every_size_of_block_offers_what_it_holds() -> Result<()> {
    // Offered addresses of a block, and blocks of a fresh node: eight free ones beside those of router and health.
    const IPV4: [(u8, usize, usize); 11] = [
        (22, 1022, 1),
        (23, 510, 1),
        (24, 254, 1),
        (25, 126, 1),
        (26, 62, 1),
        (27, 30, 1),
        (28, 14, 1),
        (29, 6, 2),
        (30, 2, 5),
        (31, 2, 5),
        (32, 1, 10),
    ];
    const IPV6: [(u8, usize, usize); 11] = [
        (118, 1024, 1),
        (119, 512, 1),
        (120, 256, 1),
        (121, 128, 1),
        (122, 64, 1),
        (123, 32, 1),
        (124, 16, 1),
        (125, 8, 2),
        (126, 4, 3),
        (127, 2, 5),
        (128, 1, 10),
    ];
    under_oracle(Options::of(crate::support::families::Families::Dual), async |rig| {
        let mut specs = Vec::new();
        for (index, ((ipv4, ..), (ipv6, ..))) in IPV4.into_iter().zip(IPV6).enumerate() {
            let (ipv4_range, ipv6_range) =
                (format!("10.{index}.0.0/{}", ipv4 - 4), format!("fd00:{:x}::/{}", index + 1, ipv6 - 4));
            let pool = PoolSpec::new(format!("p{index}")).select("size", &index.to_string());
            rig.cluster.create_pool(&pool.ipv4(ipv4, &[&ipv4_range]).ipv6(ipv6, &[&ipv6_range])).await?;
            specs.push(NodeSpec::new(format!("n{index}")).label("size", &index.to_string()));
        }
        let controller = Controller::start_ready(&rig.control_plane, crate::scene::PROMPT).await?;
        let agents = join(rig, &specs).await?;
        wait_ready(rig, &agents).await?;
        for (index, (ipv4, ipv6)) in IPV4.into_iter().zip(IPV6).enumerate() {
            let expected = (ipv4.2 + ipv6.2, ipv4.1 * ipv4.2 + ipv6.1 * ipv6.2);
            let what = format!("{} blocks with {} addresses", expected.0, expected.1);
            let node = format!("n{index}");
            rig.cluster
                .wait_published(&node, &what, SOON, |seen| {
                    (seen.pod_cidrs.len(), seen.pool.len()) == expected
                })
                .await
                .with_context(|| format!("{:?}", rig.cluster.published(&node).map(|seen| seen.pod_cidrs)))?;
        }
        wait_claims_carried(rig).await?;
        Ok(controller)
    })
    .await
}
