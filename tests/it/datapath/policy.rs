//! Policies for the traffic to pods, before and after endpoint routes are turned on.

use anyhow::{Result, ensure};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::machine::Setup;
use super::{FLAGS, address, reach, with_lab};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::objects::PoolSpec;
use crate::support::rig::Rig;

/// Denies the traffic to pods, except from their own node.
async fn deny_ingress(rig: &Rig) -> Result<()> {
    let policies: Api<NetworkPolicy> = Api::namespaced(rig.cluster.client.clone(), "default");
    let policy = serde_json::from_value(json!({
        "metadata": {"name": "deny"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }))?;
    policies.create(&PostParams::default(), &policy).await?;
    Ok(())
}

/// Without BPF host routing, as here. `preflight` and `docs/cilium.md` say to recreate such pods.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_ran_before_endpoint_routes_are_without_their_ingress_policies() -> Result<()> {
    with_lab(Options::default(), async |rig, lab| {
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, FLAGS).await?;
        let without = Setup { endpoint_routes: false, ..Setup::default() };
        let mut one = lab.join(rig, "one", without).await?;
        let two = lab.join(rig, "two", Setup::default()).await?;
        let (before, from) = (one.add_pod(rig, "before").await?, two.add_pod(rig, "from").await?);
        reach(rig, &two, &[&before]).await?;
        deny_ingress(rig).await?;
        one.wait_ingress_policy(rig, &before).await?;
        let answers = two.answers_of_ten(&from, address(&before)?).await?;
        ensure!(answers == 0, "{answers} answers under the policy");

        one.set_up(Setup::default());
        // The agent says that the policy applies, and another restart changes nothing.
        for _ in 0..2 {
            one.restart_agent(rig, "TERM").await?;
            one.wait_ingress_policy(rig, &before).await?;
            let answers = two.answers_of_ten(&from, address(&before)?).await?;
            ensure!(answers == 10, "{answers} answers of a pod that ran before");
        }
        let after = one.add_pod(rig, "after").await?;
        one.wait_ingress_policy(rig, &after).await?;
        let answers = two.answers_of_ten(&from, address(&after)?).await?;
        ensure!(answers == 0, "{answers} answers of a new pod under the policy");
        Ok((controller, one, two))
    })
    .await
}
