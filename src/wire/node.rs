//! The Node on the wire: labels, keys of taints, addresses, podCIDRs, the annotations that take their place, the
//! condition of this controller, the number of pods that kubelet allows, and nothing else of it.
//!
//! Addresses that are no IP addresses are skipped. A podCIDR that is no CIDR is reported. `carrier_patch` makes the
//! patches of Nodes in the mode in which they carry blocks.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::precondition::bound_to;
use super::watched::{Meta, Wire, read_cidrs};
use crate::model::availability::{Availability, NODE_CONDITION};
use crate::model::kind::Kind;
use crate::model::node::{
    AddressKind, Annotated, HOLD_GROWTH, IGNORE_FORMER_MODE, Malformed, Node, NodeAddress,
    POD_CIDR_ANNOTATIONS,
};
use crate::model::observation::Object;
use crate::model::request::NodeConditionWrite;
use crate::model::revision::{Core, Revision};
use crate::net::cidr::{Cidr, Family};

/// The annotations that name these pod CIDRs to agents of every version.
pub(super) fn pod_cidr_annotations(cidrs: &[Cidr]) -> Map<String, Value> {
    let of_key = |(family, key): (Family, &str)| {
        let cidr = cidrs.iter().find(|cidr| cidr.family() == family)?;
        Some((key.to_owned(), cidr.to_string().into()))
    };
    POD_CIDR_ANNOTATIONS.into_iter().filter_map(of_key).collect()
}

/// The annotation that gives a carrier a later version. On a Node its value is a revision of the claims.
pub(super) const LATER_THAN: &str = "nodeipam.io/later-than";

/// Nodes.
#[derive(Debug, Clone)]
pub struct Nodes;

impl Wire for Nodes {
    const KIND: Kind = Kind::Node;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "nodes";
    type Store = Core;

    fn read(json: &str, meta: &Meta, revision: Revision<Core>) -> Result<Object, String> {
        let wire: WireNode = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let status = wire.status.unwrap_or_default();
        let addresses = status.addresses.unwrap_or_default();
        let mut annotations = wire.metadata.annotations.unwrap_or_default();
        let spec = wire.spec.unwrap_or_default();
        let taints = spec.taints.unwrap_or_default();
        let mut listed = spec.pod_cidrs.unwrap_or_default();
        // The server keeps both fields equal. A CIDR that is only in the old field counts too.
        listed.extend(spec.pod_cidr.filter(|cidr| !cidr.is_empty() && !listed.contains(cidr)));
        let mut malformed = Vec::new();
        let pod_cidrs = read_cidrs(Kind::Node, "spec.podCIDRs", listed, &mut malformed);
        let (annotated, malformed_annotations) = read_annotations(&mut annotations);
        Ok(Object::Node(Node {
            name: meta.name.as_str().into(),
            uid: meta.uid.as_str().into(),
            revision,
            created: meta.created(),
            labels: wire.metadata.labels.unwrap_or_default(),
            deleting: meta.is_deleting(),
            taints: taints.into_iter().map(|taint| taint.key).collect(),
            // Hostnames are skipped.
            addresses: addresses
                .into_iter()
                .filter_map(|entry| {
                    Some(NodeAddress { address: entry.address.parse().ok()?, kind: read_kind(&entry.kind) })
                })
                .collect(),
            pod_cidrs,
            later_than: annotations.remove(LATER_THAN).and_then(|text| Revision::parse(&text)),
            malformed,
            annotated,
            malformed_annotations,
            former_mode_ignored: annotations.remove(IGNORE_FORMER_MODE).map(Into::into),
            growth_hold: annotations.remove(HOLD_GROWTH),
            availability: read_availability(&status.conditions.unwrap_or_default()),
            max_pods: status.allocatable.and_then(|allocatable| read_count(&allocatable.pods?)),
        }))
    }
}

/// The name of an address type; `None` if agents do not take over addresses of this type.
pub(super) const fn name_of(kind: AddressKind) -> Option<&'static str> {
    match kind {
        AddressKind::Internal => Some("InternalIP"),
        AddressKind::External => Some("ExternalIP"),
        AddressKind::Other => None,
    }
}

fn read_kind(text: &str) -> AddressKind {
    let kinds = [AddressKind::Internal, AddressKind::External];
    kinds.into_iter().find(|kind| name_of(*kind) == Some(text)).unwrap_or(AddressKind::Other)
}

fn read_availability(conditions: &[WireNodeCondition]) -> Option<Availability> {
    let shown = conditions.iter().find(|condition| condition.kind == NODE_CONDITION)?;
    Availability::read(&shown.status, &shown.reason)
}

/// A number of objects as a quantity, which the API server writes in its shortest form: 1000 is `1k`.
fn read_count(quantity: &Value) -> Option<u32> {
    let text = match quantity {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _other => return None,
    };
    let (digits, factor) = match text.strip_suffix('k') {
        Some(digits) => (digits, 1000),
        None => (text.as_str(), 1),
    };
    digits.parse::<u32>().ok()?.checked_mul(factor)
}

/// The condition of a Node as a strategic merge patch of its status. Such a patch leaves the other conditions as they
/// are, which a merge patch would replace.
#[must_use]
pub fn condition_patch(write: &NodeConditionWrite) -> Value {
    let availability = write.availability;
    let mut condition = json!({
        "type": NODE_CONDITION,
        "status": availability.status(),
        "reason": availability.as_str(),
        "message": availability.message(),
        "lastHeartbeatTime": write.at.to_string(),
    });
    if let Some(transition) = write.transition {
        condition["lastTransitionTime"] = transition.to_string().into();
    }
    bound_to(&write.uid, write.revision, json!({ "status": { "conditions": [condition] } }))
}

/// The pod CIDRs in annotations. A text in unusual form occupies the range that it means, and is reported as well.
fn read_annotations(annotations: &mut BTreeMap<String, String>) -> (Vec<Annotated>, Vec<Malformed>) {
    let (mut annotated, mut malformed) = (Vec::new(), Vec::new());
    for (family, key) in POD_CIDR_ANNOTATIONS {
        let Some(text) = annotations.remove(key).filter(|text| !text.is_empty()) else { continue };
        let mut odd = Vec::new();
        let cidrs = read_cidrs(Kind::Node, key, vec![text.clone()], &mut odd);
        let of_family = cidrs.iter().copied().filter(|cidr| cidr.family() == family);
        annotated.extend(of_family.map(|cidr| Annotated { key, cidr }));
        if !odd.is_empty() || cidrs.iter().any(|cidr| cidr.family() != family) {
            malformed.push(Malformed { field: format!("metadata.annotations[{key}]"), value: text });
        }
    }
    (annotated, malformed)
}

#[derive(Deserialize)]
struct WireNode {
    metadata: WireNodeMeta,
    spec: Option<WireNodeSpec>,
    status: Option<WireNodeStatus>,
}

#[derive(Deserialize)]
struct WireNodeMeta {
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
struct WireNodeSpec {
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<String>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
    taints: Option<Vec<WireTaint>>,
}

#[derive(Deserialize)]
struct WireTaint {
    #[serde(default)]
    key: String,
}

#[derive(Default, Deserialize)]
struct WireNodeStatus {
    addresses: Option<Vec<WireNodeAddress>>,
    conditions: Option<Vec<WireNodeCondition>>,
    allocatable: Option<WireAllocatable>,
}

#[derive(Deserialize)]
struct WireAllocatable {
    pods: Option<Value>,
}

#[derive(Deserialize)]
struct WireNodeCondition {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct WireNodeAddress {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    address: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::watched::tests::read;

    fn node(json: &str) -> Node {
        let object = read::<Nodes>(json);
        let Object::Node(node) = object else { panic!("{object:?}") };
        node
    }

    #[test]
    fn pod_cidrs_are_read_from_the_spec_and_from_the_annotations_of_every_release() {
        let node = node(
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7","annotations":{
                  "network.cilium.io/ipv4-pod-cidr":"10.0.1.0/28","io.cilium.network.ipv4-pod-cidr":"10.0.2.0/28",
                  "io.cilium.network.ipv6-pod-cidr":"fd00::/124","network.cilium.io/ipv6-pod-cidr":"",
                  "network.cilium.io/ipv4-health-ip":"10.0.1.3"}},
                "spec":{"podCIDR":"10.0.0.0/28","podCIDRs":["10.0.0.0/28"]}}"#,
        );
        assert_eq!(format!("{:?}", node.pod_cidrs), "[10.0.0.0/28]");
        let annotated: Vec<String> =
            node.annotated.iter().map(|found| format!("{}={}", found.key, found.cidr)).collect();
        assert_eq!(
            annotated,
            [
                "network.cilium.io/ipv4-pod-cidr=10.0.1.0/28",
                "io.cilium.network.ipv4-pod-cidr=10.0.2.0/28",
                "io.cilium.network.ipv6-pod-cidr=fd00::/124",
            ]
        );
        assert_eq!((node.malformed, node.malformed_annotations), (Vec::new(), Vec::new()));
    }

    #[test]
    fn the_keys_of_taints_are_read() {
        let node = node(
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},
                "spec":{"taints":[{"key":"a","value":"true"},{"key":"b/c","effect":"NoSchedule"}]}}"#,
        );
        assert_eq!(node.taints, ["a", "b/c"]);
    }

    #[test]
    fn the_number_of_pods_that_kubelet_allows_is_read_in_every_form() {
        let max_pods = |allocatable: &str| {
            let status = format!(r#"{{"allocatable":{allocatable}}}"#);
            let meta = r#""name":"n","uid":"u","resourceVersion":"7""#;
            node(&format!(r#"{{"metadata":{{{meta}}},"status":{status}}}"#)).max_pods
        };
        for (allocatable, expected) in [
            (r#"{"cpu":"4","pods":"110"}"#, Some(110)),
            (r#"{"pods":"1k"}"#, Some(1000)),
            (r#"{"pods":250}"#, Some(250)),
            (r#"{"pods":"0"}"#, Some(0)),
            (r#"{"pods":"many"}"#, None),
            (r#"{"cpu":"4"}"#, None),
            ("null", None),
        ] {
            assert_eq!(max_pods(allocatable), expected, "{allocatable}");
        }
    }

    #[test]
    fn the_creation_time_is_read() {
        let created = |meta: &str| {
            let node =
                node(&format!(r#"{{"metadata":{{"name":"n","uid":"u","resourceVersion":"7"{meta}}}}}"#));
            node.created.to_string()
        };
        let at = "2026-11-25T12:50:42Z";
        assert_eq!(created(&format!(r#","creationTimestamp":"{at}""#)), at);
        assert_eq!(created(""), "1970-01-01T00:00:00Z");
    }

    /// Such a text does no harm unless an option makes agents read annotations.
    #[test]
    fn an_annotation_that_is_no_cidr_of_its_family_is_kept_apart() {
        for (text, takes) in [("10.0.0.5/28", 1), ("x", 0), ("fd00::/124", 0), ("0.0.0.0/0", 0)] {
            let node = node(&format!(
                r#"{{"metadata":{{"name":"n","uid":"u","resourceVersion":"7",
                     "annotations":{{"network.cilium.io/ipv4-pod-cidr":"{text}"}}}}}}"#
            ));
            assert_eq!((node.annotated.len(), node.malformed), (takes, Vec::new()), "{text}");
            let [malformed] = &node.malformed_annotations[..] else { panic!("{text}") };
            assert_eq!(
                (malformed.field.as_str(), malformed.value.as_str()),
                ("metadata.annotations[network.cilium.io/ipv4-pod-cidr]", text)
            );
        }
    }

    #[test]
    fn agents_of_every_release_find_what_is_written() {
        let cidrs: Vec<Cidr> = ["10.0.0.0/28", "fd00::/124"].map(|text| text.parse().unwrap()).into();
        assert_eq!(
            Value::from(pod_cidr_annotations(&cidrs)),
            serde_json::json!({
                "network.cilium.io/ipv4-pod-cidr": "10.0.0.0/28",
                "io.cilium.network.ipv4-pod-cidr": "10.0.0.0/28",
                "network.cilium.io/ipv6-pod-cidr": "fd00::/124",
                "io.cilium.network.ipv6-pod-cidr": "fd00::/124",
            })
        );
        assert_eq!(pod_cidr_annotations(&cidrs[..1]).len(), 2);
    }
}
