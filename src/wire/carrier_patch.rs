//! The writes to carriers: merge patches of CiliumNodes and Nodes, and a new CiliumNode.

use serde_json::{Map, Value, json};

use super::multi_pool;
use super::node::{LATER_THAN, name_of, pod_cidr_annotations};
use super::precondition::bound_to;
use crate::model::carrier::CarrierChange;
use crate::model::crd::{CrdChange, FENCE, MarkChange};
use crate::model::kind::Kind;
use crate::model::names::Uid;
use crate::model::request::{BumpVersion, NewCiliumNode, Publication, UsageQuery, Withdrawal};
use crate::model::revision::AnyRevision;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// Whether a patch removes `metadata.managedFields`, which halves the object for every agent of the cluster
/// (`docs/cilium.md`, Size).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagedFields {
    /// They are removed.
    Dropped,
    /// They stay.
    Kept,
}

/// A publication as a merge patch. It carries the uid and the version that it was decided on (safety rule 4), and
/// names no key that it does not change.
#[must_use]
pub fn merge_patch(publication: &Publication, managed_fields: ManagedFields) -> Value {
    let mut patch = change_patch(&publication.uid, publication.revision, &publication.change);
    // Nodes keep them: agents do not watch Nodes for the writes of others.
    let is_of_cilium_node = publication.change.carrier_kind() == Kind::CiliumNode;
    if managed_fields == ManagedFields::Dropped && is_of_cilium_node {
        patch["metadata"]["managedFields"] = json!([{}]);
    }
    patch
}

/// A usage query, or the removal of its mark, as a merge patch of the status subresource.
#[must_use]
pub fn usage_query_patch(query: &UsageQuery) -> Value {
    change_patch(&query.uid, query.revision, &query.change)
}

/// A step by which blocks leave a node, as a merge patch: of the status if the change is of the status, else of the
/// object.
#[must_use]
pub fn withdrawal_patch(withdrawal: &Withdrawal, managed_fields: ManagedFields) -> Value {
    let mut patch = change_patch(&withdrawal.uid, withdrawal.revision, &withdrawal.change);
    if managed_fields == ManagedFields::Dropped && !withdrawal.change.is_of_status() {
        patch["metadata"]["managedFields"] = json!([{}]);
    }
    patch
}

/// A change of a carrier as a merge patch that carries uid and version.
fn change_patch(uid: &Uid, revision: AnyRevision, change: &CarrierChange) -> Value {
    let patch = match change {
        CarrierChange::Crd(CrdChange::Blocks { pod_cidrs, entries, unfenced }) => {
            let entry =
                |owner: Option<&str>| owner.map_or_else(|| json!({}), |owner| json!({ "owner": owner }));
            let added = entries.iter().map(|(address, owner)| (address.to_string(), entry(*owner)));
            let no_owner = json!({ "owner": null });
            let unfenced = of_each(unfenced, &no_owner);
            of_ipam(Some(pod_cidrs), added.chain(unfenced).collect())
        }
        CarrierChange::Crd(CrdChange::Fence(addresses)) => {
            of_ipam(None, of_each(addresses, &json!({ "owner": FENCE })).collect())
        }
        CarrierChange::Crd(CrdChange::Remove { pod_cidrs, entries, .. }) => {
            of_ipam(Some(pod_cidrs), of_each(entries, &Value::Null).collect())
        }
        CarrierChange::Crd(CrdChange::Marks(marks)) => {
            let marks: Map<String, Value> = marks
                .iter()
                .map(|(address, mark)| {
                    let mark = match mark {
                        MarkChange::Ask => json!("marked-for-release"),
                        MarkChange::Release => json!("released"),
                        MarkChange::Remove => Value::Null,
                    };
                    (address.to_string(), mark)
                })
                .collect();
            json!({ "status": { "ipam": { "release-ips": marks } } })
        }
        CarrierChange::MultiPool(change) => multi_pool::change_patch(change),
        CarrierChange::ClusterPool(pod_cidrs) => {
            json!({ "spec": { "ipam": { "podCIDRs": texts(pod_cidrs) } } })
        }
        CarrierChange::Kubernetes(cidrs) => {
            json!({ "spec": { "podCIDR": cidrs.first().map(ToString::to_string), "podCIDRs": texts(cidrs) } })
        }
        CarrierChange::Annotations(cidrs) => {
            json!({ "metadata": { "annotations": pod_cidr_annotations(cidrs) } })
        }
    };
    bound_to(uid, revision, patch)
}

/// A patch of the map in `spec.ipam`. The map has hundreds of entries, and `json!` would copy them.
fn of_ipam(pod_cidrs: Option<&[Cidr]>, pool: Map<String, Value>) -> Value {
    let mut patch = json!({ "spec": { "ipam": {} } });
    let ipam = &mut patch["spec"]["ipam"];
    if let Some(pod_cidrs) = pod_cidrs {
        ipam["podCIDRs"] = texts(pod_cidrs).into();
    }
    ipam["pool"] = pool.into();
    patch
}

fn texts(cidrs: &[Cidr]) -> Vec<String> {
    cidrs.iter().map(ToString::to_string).collect()
}

/// The same value for each address.
fn of_each<'a>(addresses: &'a AddressSet, value: &'a Value) -> impl Iterator<Item = (String, Value)> + 'a {
    addresses.iter().map(|address| (address.to_string(), value.clone()))
}

/// A change without an effect, except that the carrier gets a later version.
#[must_use]
pub fn bump_version_patch(bump: &BumpVersion) -> Value {
    let later_than = json!({ LATER_THAN: bump.later_than.to_string() });
    bound_to(&bump.uid, bump.revision, json!({ "metadata": { "annotations": later_than } }))
}

/// A CiliumNode as its agent would create it: owned by the Node, with its labels and addresses
/// (`docs/cilium.md`, Start of an agent).
#[must_use]
pub fn new_cilium_node(new: &NewCiliumNode) -> Value {
    let addresses: Vec<Value> = new
        .addresses
        .iter()
        .filter_map(|of| Some(json!({ "type": name_of(of.kind)?, "ip": of.address.to_string() })))
        .collect();
    json!({
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNode",
        "metadata": {
            "name": new.node.as_str(),
            "labels": new.labels,
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Node", "name": new.node.as_str(), "uid": new.node_uid.as_str() },
            ],
        },
        "spec": { "addresses": addresses },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::node::{AddressKind, NodeAddress};

    #[test]
    fn a_new_ciliumnode_has_what_its_agent_would_write() {
        let address = |kind: AddressKind, text: &str| NodeAddress { kind, address: text.parse().unwrap() };
        let new = NewCiliumNode {
            node: "n".into(),
            node_uid: "1-2-3".into(),
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            addresses: vec![
                address(AddressKind::Internal, "192.0.2.1"),
                address(AddressKind::Internal, "2001:db8:0::1"),
                address(AddressKind::External, "198.51.100.1"),
                address(AddressKind::Other, "203.0.113.1"),
            ],
        };
        let expected = json!({
            "apiVersion": "cilium.io/v2",
            "kind": "CiliumNode",
            "metadata": {
                "name": "n",
                "labels": {"zone": "a"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1-2-3"}],
            },
            "spec": {
                "addresses": [
                    {"type": "InternalIP", "ip": "192.0.2.1"},
                    {"type": "InternalIP", "ip": "2001:db8::1"},
                    {"type": "ExternalIP", "ip": "198.51.100.1"},
                ],
            },
        });
        assert_eq!(new_cilium_node(&new), expected);
    }
}
