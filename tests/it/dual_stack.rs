//! Two families: a first grant covers both or is not made, and afterwards each family grows by itself.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::chronicle::uid;
use crate::scene::{
    PROMPT, SOON, cilium_node, join, join_one, n_claims, nodes, wait_claims_carried, wait_n_claims,
    wait_ready, wait_status,
};
use crate::support::agent::Agent;
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::families::{Families, Family};
use crate::support::objects::{Kind, NodeSpec, PoolSpec, claim, claim_name, created_for, with_finalizer};
use crate::support::rig::under_oracle;

/// Half a grant must not leak the other half: if one family is exhausted, no block of the other is taken, and no node
/// waits forever.
#[tokio::test(flavor = "multi_thread")]
async fn no_half_grant_where_one_family_is_exhausted() -> Result<()> {
    under_oracle(Options::of(Families::Dual), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/27"]).ipv6(122, &["fd00:1::/112"]);
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agents = join(rig, &nodes("n", 6)).await?;
        let status = wait_status(rig, "p", "four waiting nodes and two served", |status| {
            status["nodes"]["waiting"] == 4 && status["nodes"]["served"] == 2
        })
        .await?;
        // 2^10 blocks of /122 in a /112; the waiting nodes hold none of them.
        ensure!(status["ipv6"]["blocks"]["free"] == 1024 - 2, "{status}");
        wait_n_claims(rig, 4).await?;
        for agent in &agents {
            let claims = rig.cluster.claims_of(agent.name());
            ensure!([0, 2].contains(&claims.len()), "half a grant: {claims:?}");
        }
        wait_claims_carried(rig).await?;

        // The missing family alone is enough for all.
        rig.cluster.create_pool(&PoolSpec::new("more").ipv4(28, &["10.2.0.0/24"])).await?;
        wait_ready(rig, &agents).await?;
        wait_claims_carried(rig).await?;
        ensure!(n_claims(rig) == 12, "{} claims", n_claims(rig));
        Ok(controller)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_family_grows_by_itself() -> Result<()> {
    under_oracle(Options::of(Families::Dual), async |rig| {
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/20"]).ipv6(122, &["fd00:1::/112"]);
        rig.cluster.create_pool(&pool).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agent = Agent::Fake(join_one(rig, NodeSpec::new("n")).await?);
        // 2 addresses for the agent and 30 pods: more than two blocks of 14 in one family, half a block in the other.
        let mut n_pods = 0;
        while n_pods < 30 {
            let filled = agent.allocate_many(&format!("ns/{n_pods}-"), 30 - n_pods).await?;
            n_pods += filled.allocated.len();
            let room = n_pods + 2;
            rig.cluster
                .wait_published("n", "room for one more pod", SOON, |seen| {
                    seen.pool.keys().filter(|key| Family::of_text(key) == Family::V4).count() > room
                })
                .await?;
        }
        let n_of = |family| {
            let cidrs = rig.cluster.published("n").unwrap_or_default().pod_cidrs;
            cidrs.iter().filter(|cidr| Family::of_text(cidr) == family).count()
        };
        // 32 of 42 are 76 %, and 10 are free.
        ensure!((n_of(Family::V4), n_of(Family::V6)) == (3, 1), "{:?}", rig.cluster.published("n"));
        wait_claims_carried(rig).await?;
        Ok(controller)
    })
    .await
}

/// Two nodes each hold the block that the other lacks, as two replicas may leave them. Both wait until a person gives
/// up one of the blocks.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_half_grants_a_person_gives_one_up() -> Result<()> {
    under_oracle(Options::of(Families::Dual), async |rig| {
        // One block of each family is all that there is.
        let pool = PoolSpec::new("p").ipv4(28, &["10.1.0.0/28"]).ipv6(124, &["fd00:1::/124"]);
        rig.cluster.create_pool(&pool.with("reuseAfter", "1s")).await?;
        for (name, block) in [("has-ipv4", "10.1.0.0/28"), ("has-ipv6", "fd00:1::/124")] {
            rig.excuse(name);
            rig.cluster.create_node(&NodeSpec::new(name)).await?;
            rig.cluster.create(&cilium_node(name, &json!({"pools": {}})), Kind::CiliumNode).await?;
            let claim = claim(block, "p", name, &uid(rig, Kind::Node, name).await?, "Held");
            let claim = created_for(claim, &uid(rig, Kind::CiliumNode, name).await?);
            rig.cluster.create(&with_finalizer(claim), Kind::Block).await?;
        }
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        controller.wait_logged("give it up: `kubectl delete nib fd00-0001", SOON).await?;
        let given_up = claim_name("fd00:1::/124");
        rig.cluster.delete(Kind::Block, &given_up).await?;
        let status = wait_status(rig, "p", "one node served, and one that waits", |status| {
            status["nodes"]
                == json!({"selected": 2, "served": 1, "waiting": 1, "wantGrowth": 0, "without": 1})
        })
        .await?;
        ensure!(status["ipv4"]["blocks"]["held"] == 1 && status["ipv6"]["blocks"]["held"] == 1, "{status}");
        let one_has_all = async || {
            let claims = ["has-ipv4", "has-ipv6"].map(|name| rig.cluster.claims_of(name).len());
            Ok(claims.contains(&2) && claims.contains(&0))
        };
        rig.cluster.wait_until("one node to have both claims", SOON, one_has_all).await?;
        wait_claims_carried(rig).await?;
        Ok(controller)
    })
    .await
}

/// A pool that lacks a family of the agents serves no node by itself, and its counts say so.
#[tokio::test(flavor = "multi_thread")]
async fn agents_decide_which_families_there_are() -> Result<()> {
    under_oracle(Options::of(Families::Dual), async |rig| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, PROMPT).await?;
        let agents = join(rig, &nodes("n", 1)).await?;
        wait_status(rig, "p", "a waiting node", |status| status["nodes"]["waiting"] == 1).await?;
        ensure!(n_claims(rig) == 0, "{} claims", n_claims(rig));
        let unwritten = rig.cluster.published("n0").unwrap_or_default();
        ensure!(unwritten.pod_cidrs.is_empty() && unwritten.pool.is_empty(), "{unwritten:?}");
        let family = json!({"spec": {"ipv6": {"blockSize": 122, "cidrs": [{"cidr": "fd00:1::/112"}]}}});
        rig.cluster.patch(Kind::Pool, "p", family).await?;
        wait_ready(rig, &agents).await?;
        Ok(controller)
    })
    .await
}
