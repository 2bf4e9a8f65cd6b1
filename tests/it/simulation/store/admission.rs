//! The requests that the API server refuses, by the definition of a NodeIPBlock, by the rules for Nodes, and for every
//! kind.
//!
//! The rules themselves are tested on a real API server (`tests/it/api_claim.rs`, `tests/it/api_table.rs`). Here they
//! are evaluated on parsed objects, because the CEL of the definition takes a thousand times as long.

use cilium_node_ipam::model::claim::Claim;
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::model::transitions::State;
use serde_json::Value;

/// Whether an object may change from `before` to `after`; otherwise the rule that it breaks.
pub(super) fn admit(before: &Object, after: &Object, old: &Value, new: &Value) -> Result<(), String> {
    let finalizers = |json: &Value| json["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if new["metadata"]["deletionTimestamp"].is_string() {
        let kept = finalizers(old);
        if let Some(added) = finalizers(new).iter().find(|finalizer| !kept.contains(finalizer)) {
            return Err(format!(
                "no new finalizer ({added}) can be added to an object that is being deleted"
            ));
        }
    }
    match (before, after) {
        (Object::Claim(before), Object::Claim(after)) => admit_claim(before, after),
        (Object::Claim(_), Object::Unreadable(_, unreadable)) => Err(unreadable.reason.clone()),
        (Object::Node(before), Object::Node(after))
            if !before.pod_cidrs.is_empty() && before.pod_cidrs != after.pod_cidrs =>
        {
            Err("the podCIDRs of a Node never change once they are set".to_owned())
        }
        _ => Ok(()),
    }
}

fn admit_claim(before: &Claim, after: &Claim) -> Result<(), String> {
    let fixed = |claim: &Claim| {
        let Claim { cidr, pool, node, excluded, .. } = claim;
        (*cidr, pool.clone(), node.clone(), excluded.clone())
    };
    if fixed(before) != fixed(after) {
        return Err("cidr, pool, node and excluded are immutable".to_owned());
    }
    if before.created_for != after.created_for {
        return Err("createdForCiliumNodeUID is immutable".to_owned());
    }
    let (from, to) = (State::from(&before.state), State::from(&after.state));
    if !from.may_follow().contains(&to) {
        return Err(format!("{from} can't become {to}"));
    }
    if before.node_uid != after.node_uid && to != State::Held {
        return Err(format!("nodeUID changes with {to}"));
    }
    Ok(())
}
