//! A claim as the controller makes it, on the real API server: accepted, found by its fields, read back, kept.

#![allow(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

use cilium_node_ipam::model::claim::{Claim, ClaimState};
use cilium_node_ipam::model::request::NewClaim;
use cilium_node_ipam::model::time::Timestamp;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::Cidr;
use cilium_node_ipam::wire::NodeIPBlock;
use cilium_node_ipam::wire::block::new_claim;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::control_plane::{ControlPlane, Options};

const SINCE: Timestamp = Timestamp::constant(1_795_230_000, 123_000_000);

fn made(cidr: &str) -> NodeIPBlock {
    let cidr: Cidr = cidr.parse().unwrap();
    let excluded: AddressSet = [cidr.first_address(), cidr.last_address()].into_iter().collect();
    new_claim(&NewClaim {
        cidr,
        pool: "beijing".into(),
        node: "node-7".into(),
        node_uid: "n1".into(),
        pod_ip_pool: None,
        excluded,
        created_for: Some("c1".into()),
        since: SINCE,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_claim_is_accepted_found_and_read_back() -> anyhow::Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let api: Api<NodeIPBlock> = Api::all(control_plane.admin.clone());
    for (text, name) in [
        ("10.0.0.32/27", "10.0.0.32-27"),
        ("fd00:10:1::40/122", "fd00-0010-0001-0000-0000-0000-0000-0040-122"),
        // It offers no address, but it is recorded all the same.
        ("10.0.1.0/31", "10.0.1.0-31"),
    ] {
        let created = api.create(&PostParams::default(), &made(text)).await?;
        assert_eq!(created.metadata.name.as_deref(), Some(name));
        assert_eq!(created.spec, made(text).spec);
        let claim = Claim::try_from(&created)?;
        assert_eq!(claim.cidr.to_string(), text);
        assert_eq!((claim.state, claim.since), (ClaimState::Held, SINCE));
        assert_eq!(claim.excluded.len(), 2);
        assert_eq!(claim.created_for, Some("c1".into()));

        let again = api.create(&PostParams::default(), &made(text)).await;
        assert!(matches!(again, Err(kube::Error::Api(status)) if status.code == 409), "the name is the lock");
    }
    for (selector, expected) in
        [("spec.node=node-7", 3), ("spec.node=node-8", 0), ("spec.pool=beijing,spec.state=Held", 3)]
    {
        let found = api.list(&ListParams::default().fields(selector)).await?;
        assert_eq!(found.items.len(), expected, "{selector}");
    }

    // After a deletion by a user it stays, and counts.
    api.delete("10.0.0.32-27", &DeleteParams::default()).await?;
    let claim = Claim::try_from(&api.get("10.0.0.32-27").await?)?;
    assert!(claim.deleting);

    // Its finalizer keeps it through its states, and the last write of its life removes that.
    for spec in [json!({"state": "Releasing", "reason": "NodeGone"}), json!({"state": "Cooling"})] {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": [Claim::FINALIZER]}, "spec": spec}));
        api.patch("10.0.0.32-27", &PatchParams::default(), &patch).await?;
    }
    let last = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    api.patch("10.0.0.32-27", &PatchParams::default(), &last).await?;
    assert!(api.get_opt("10.0.0.32-27").await?.is_none());
    Ok(())
}
