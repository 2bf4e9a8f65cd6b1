//! The objects that only an audit reads: Pods, ranges of Services and load balancers, definitions, and the field
//! managers of our own objects.
//!
//! Knows no rule about them. A field that can't be read counts as absent: most of these objects are not ours.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::crds;
use super::json::{text, texts};
use crate::model::surroundings::{
    OldDefinition, OtherRange, OtherWriter, PodAddresses, RangeOwner, Surroundings, WaitingPod,
};
use crate::net::cidr::Cidr;
use crate::net::notation::{Span, any_notation};

/// Adds an object of any kind. Objects of other kinds, and fields that no audit needs, are ignored.
pub fn add(around: &mut Surroundings, object: &Value, own_writer: &str) {
    match text(&object["kind"]) {
        "Pod" => {
            around.pods.extend(pod(object));
            around.waiting.extend(waiting(object));
        }
        "CiliumNode" => around.users.extend(users(object)),
        "Service" => around.ranges.extend(service(object)),
        "ServiceCIDR" => {
            let cidrs = texts(&object["spec"]["cidrs"]).filter_map(Cidr::parse_lenient);
            around.ranges.extend(range(RangeOwner::Services, "ServiceCIDR", name(object), cidrs));
        }
        "CiliumLoadBalancerIPPool" => {
            let blocks = object["spec"]["blocks"].as_array().into_iter().flatten().flat_map(block);
            let kind = "CiliumLoadBalancerIPPool";
            around.ranges.extend(range(RangeOwner::LoadBalancers, kind, name(object), blocks));
        }
        "IPAddressPool" => {
            let cidrs = texts(&object["spec"]["addresses"]).filter_map(any_notation).flatten();
            let kind = "IPAddressPool";
            around.ranges.extend(range(RangeOwner::LoadBalancers, kind, &namespaced(object), cidrs));
        }
        "CiliumResourceIPPool" => {
            let families = ["ipv4", "ipv6"].into_iter();
            let cidrs = families
                .flat_map(|family| texts(&object["spec"][family]["cidrs"]))
                .filter_map(any_notation)
                .flatten();
            around.ranges.extend(range(RangeOwner::Devices, "CiliumResourceIPPool", name(object), cidrs));
        }
        "NodeIPPool" => writers(around, object, "NodeIPPool", &["status"], own_writer),
        "NodeIPBlock" => writers(around, object, "NodeIPBlock", &["spec", "status"], own_writer),
        "CustomResourceDefinition" => around.old_definitions.extend(old_definition(object)),
        _ => {}
    }
}

fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

pub(super) fn namespaced(object: &Value) -> String {
    format!("{}/{}", text(&object["metadata"]["namespace"]), name(object))
}

/// The addresses inside the cluster that a Service has, and those outside of it.
fn service(object: &Value) -> impl Iterator<Item = OtherRange> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let inside = texts(&spec["clusterIPs"]).chain(spec["clusterIP"].as_str());
    let ingress = status["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    let outside = texts(&spec["externalIPs"]).chain(ingress.filter_map(|found| found["ip"].as_str()));
    let range = |owner, addresses: BTreeSet<Cidr>| range(owner, "Service", &namespaced(object), addresses);
    let inside = range(RangeOwner::Services, inside.filter_map(single).collect());
    let outside = range(RangeOwner::LoadBalancers, outside.filter_map(single).collect());
    inside.into_iter().chain(outside)
}

fn single(address: &str) -> Option<Cidr> {
    address.parse::<IpAddr>().ok().map(|address| Cidr::single(address.to_canonical()))
}

/// Whether a Pod has addresses of its own, or waits for some: it is not on the network of its host, and not finished.
fn needs_address(pod: &Value) -> bool {
    pod["spec"]["hostNetwork"] != true && !matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
}

/// A Pod that is bound to a node and has no address yet. One that is being deleted waits for none.
fn waiting(object: &Value) -> Option<WaitingPod> {
    let (meta, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let node = spec["nodeName"].as_str().filter(|node| !node.is_empty())?;
    let is_starting = status["phase"] == "Pending" && !meta["deletionTimestamp"].is_string();
    if !is_starting || !needs_address(object) || status["podIP"].is_string() {
        return None;
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut bound = conditions.filter(|found| found["type"] == "PodScheduled" && found["status"] == "True");
    let bound = bound.next().and_then(|found| found["lastTransitionTime"].as_str());
    let since = bound.or(meta["creationTimestamp"].as_str())?.parse().ok()?;
    Some(WaitingPod { name: namespaced(object), node: node.into(), since })
}

/// A Pod that has addresses of its own.
fn pod(object: &Value) -> Option<PodAddresses> {
    let (spec, status) = (&object["spec"], &object["status"]);
    if !needs_address(object) {
        return None;
    }
    let listed = status["podIPs"].as_array().into_iter().flatten().filter_map(|found| found["ip"].as_str());
    let found: BTreeSet<IpAddr> = listed
        .chain(status["podIP"].as_str())
        .filter_map(|address| Some(address.parse::<IpAddr>().ok()?.to_canonical()))
        .collect();
    (!found.is_empty()).then(|| PodAddresses {
        name: namespaced(object),
        node: spec["nodeName"].as_str().map(Into::into),
        addresses: found.into_iter().collect(),
    })
}

/// The pods with used addresses of an agent. Its own addresses have an owner without a namespace.
fn users(cilium_node: &Value) -> impl Iterator<Item = (IpAddr, String)> {
    let used = cilium_node["status"]["ipam"]["used"].as_object().into_iter().flatten();
    used.filter_map(|(address, entry)| {
        let owner = entry["owner"].as_str().filter(|owner| owner.contains('/'))?;
        Some((address.parse::<IpAddr>().ok()?.to_canonical(), owner.to_owned()))
    })
}

fn range(
    owner: RangeOwner,
    kind: &'static str,
    name: &str,
    cidrs: impl IntoIterator<Item = Cidr>,
) -> Option<OtherRange> {
    let cidrs: Vec<Cidr> = cidrs.into_iter().collect();
    (!cidrs.is_empty()).then(|| OtherRange { owner, kind, name: name.to_owned(), cidrs })
}

/// The ranges of one block of a `CiliumLoadBalancerIPPool`: a CIDR, or a first and a last address.
fn block(block: &Value) -> Vec<Cidr> {
    if let Some(cidr) = block["cidr"].as_str() {
        return Cidr::parse_lenient(cidr).into_iter().collect();
    }
    let start: Option<IpAddr> = block["start"].as_str().and_then(|text| text.parse().ok());
    let stop: Option<IpAddr> = block["stop"].as_str().and_then(|text| text.parse().ok());
    let span = start.and_then(|start| Span::between(start, stop.unwrap_or(start)));
    span.map(Span::cidrs).unwrap_or_default()
}

/// The managers of fields that only the controller sets. Everything in `metadata` may have any writer.
fn writers(
    around: &mut Surroundings,
    object: &Value,
    kind: &'static str,
    fields: &[&'static str],
    own_writer: &str,
) {
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let manager = text(&entry["manager"]);
        let sets = |field: &&&str| entry["fieldsV1"].get(format!("f:{field}")).is_some();
        for field in fields.iter().filter(sets).filter(|_| manager != own_writer) {
            let (name, manager) = (name(object).to_owned(), manager.to_owned());
            around.writers.push(OtherWriter { kind, name, manager, field });
        }
    }
}

/// The features that a definition in the cluster lacks; `None` if it lacks none, or is no definition of ours.
pub(super) fn old_definition(installed: &Value) -> Option<OldDefinition> {
    let ours =
        crds::all().iter().find(|ours| ours.json["metadata"]["name"] == installed["metadata"]["name"])?;
    let version = |crd: &Value| {
        let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        versions.into_iter().find(|version| version["name"] == super::VERSION).cloned().unwrap_or_default()
    };
    let (mut expected, mut found) = (BTreeSet::new(), BTreeSet::new());
    features(&version(&ours.json), "", &mut expected);
    features(&version(installed), "", &mut found);
    let missing: Vec<String> = expected.difference(&found).cloned().collect();
    (!missing.is_empty()).then(|| OldDefinition { name: name(installed).to_owned(), missing })
}

/// The fields, rules and columns of a version of a definition.
fn features(version: &Value, path: &str, found: &mut BTreeSet<String>) {
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    found.extend(columns.map(|column| format!("column {}", text(&column["name"]))));
    let root = version.get("schema").map_or(version, |schema| &schema["openAPIV3Schema"]);
    let rules = root["x-kubernetes-validations"].as_array().into_iter().flatten();
    found.extend(rules.map(|rule| format!("rule `{}`", text(&rule["message"]))));
    for (name, field) in root["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        features(field, &path, found);
        found.insert(path);
    }
    if let Some(items) = root.get("items") {
        features(items, path, found);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn around(objects: &[Value]) -> Surroundings {
        let mut around = Surroundings::default();
        for object in objects {
            add(&mut around, object, "cilium-node-ipam");
        }
        around
    }

    #[test]
    fn pods_on_the_host_and_finished_pods_have_no_address_of_their_own() {
        let pod = |name: &str, spec: &Value, phase: &str| {
            json!({"kind": "Pod", "metadata": {"namespace": "a", "name": name}, "spec": spec,
                   "status": {"phase": phase, "podIP": "10.0.0.5", "podIPs": [{"ip": "10.0.0.5"}, {"ip": "fd00::5"}]}})
        };
        let found = around(&[
            pod("web", &json!({"nodeName": "n"}), "Running"),
            pod("agent", &json!({"nodeName": "n", "hostNetwork": true}), "Running"),
            pod("job", &json!({"nodeName": "n"}), "Succeeded"),
        ]);
        let [web] = &found.pods[..] else { panic!("{found:?}") };
        assert_eq!((web.name.as_str(), web.addresses.len()), ("a/web", 2));
    }

    #[test]
    fn a_pod_waits_from_its_binding_on_until_it_has_an_address() {
        let bound =
            json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-25T12:00:00Z"}]);
        let pod = |name: &str, spec: &Value, status: &Value| {
            json!({"kind": "Pod", "spec": spec, "status": status,
                   "metadata": {"namespace": "a", "name": name, "creationTimestamp": "2026-11-25T11:00:00Z"}})
        };
        let on_node = json!({"nodeName": "n"});
        let mut deleted = pod("deleted", &on_node, &json!({"phase": "Pending"}));
        deleted["metadata"]["deletionTimestamp"] = "2026-11-25T12:00:00Z".into();
        let found = around(&[
            pod("bound", &on_node, &json!({"phase": "Pending", "conditions": bound})),
            pod("made", &on_node, &json!({"phase": "Pending"})),
            pod("served", &on_node, &json!({"phase": "Pending", "podIP": "10.0.0.5"})),
            pod("host", &json!({"nodeName": "n", "hostNetwork": true}), &json!({"phase": "Pending"})),
            pod("done", &on_node, &json!({"phase": "Failed"})),
            pod("unbound", &json!({}), &json!({"phase": "Pending"})),
            deleted,
        ]);
        let waiting = found.waiting.iter().map(|pod| format!("{} {} {}", pod.node, pod.name, pod.since));
        let expected = ["n a/bound 2026-11-25T12:00:00Z", "n a/made 2026-11-25T11:00:00Z"];
        assert_eq!(waiting.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_pod_has_the_address_that_it_says_or_else_that_its_agent_says() {
        let found = around(&[
            json!({"kind": "CiliumNode", "metadata": {"name": "n"}, "status": {"ipam": {"used": {
                "10.0.0.4": {"owner": "router"}, "10.0.0.5": {"owner": "a/old"}, "10.0.0.6": {"owner": "a/db"},
                "10.0.0.7": {}, "odd": {"owner": "a/odd"},
            }}}}),
            json!({"kind": "Pod", "metadata": {"namespace": "a", "name": "web"}, "status": {"podIP": "10.0.0.5"}}),
        ]);
        let pods = found.by_address();
        let pods: Vec<String> = pods.iter().map(|(address, pod)| format!("{address} {pod}")).collect();
        assert_eq!(pods, ["10.0.0.5 a/web", "10.0.0.6 a/db"]);
    }

    #[test]
    fn ranges_of_services_and_load_balancers_are_read_in_every_form() {
        let found = around(&[
            json!({"kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]}}),
            json!({"kind": "Service", "metadata": {"namespace": "a", "name": "headless"},
                   "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
            json!({"kind": "CiliumLoadBalancerIPPool", "metadata": {"name": "lb"},
                   "spec": {"blocks": [{"cidr": "10.1.0.0/24"}, {"start": "10.2.0.0", "stop": "10.2.0.3"}]}}),
            json!({"kind": "IPAddressPool", "metadata": {"namespace": "metallb-system", "name": "lb"},
                   "spec": {"addresses": ["10.3.0.0/24", "10.4.0.0 - 10.4.0.3", "any"]}}),
            json!({"kind": "CiliumResourceIPPool", "metadata": {"name": "nic"},
                   "spec": {"ipv4": {"cidrs": ["10.5.0.0/24"]}, "ipv6": {"cidrs": ["fd00::/64"]}}}),
        ]);
        let cidrs: Vec<String> =
            found.ranges.iter().flat_map(|range| &range.cidrs).map(ToString::to_string).collect();
        let expected = [
            "10.96.0.0/12",
            "10.1.0.0/24",
            "10.2.0.0/30",
            "10.3.0.0/24",
            "10.4.0.0/30",
            "10.5.0.0/24",
            "fd00::/64",
        ];
        assert_eq!(cidrs, expected);
    }

    #[test]
    fn a_service_has_addresses_inside_and_outside_of_the_cluster() {
        let found = around(&[json!({
            "kind": "Service", "metadata": {"namespace": "a", "name": "web"},
            "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "externalIPs": ["10.1.0.7"]},
            "status": {"loadBalancer": {"ingress": [{"ip": "10.1.0.8"}, {"hostname": "lb.example.com"}]}},
        })]);
        let shown: Vec<String> = found
            .ranges
            .iter()
            .map(|range| format!("{:?} {} {} {:?}", range.owner, range.kind, range.name, range.cidrs))
            .collect();
        let expected = [
            "Services Service a/web [10.96.0.9/32]",
            "LoadBalancers Service a/web [10.1.0.7/32, 10.1.0.8/32]",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn another_writer_of_a_claim_is_found_and_the_controller_is_none() {
        let claim = |manager: &str, field: &str| {
            json!({"kind": "NodeIPBlock", "metadata": {"name": "b", "managedFields": [
                {"manager": manager, "fieldsV1": {field: {}}}]}})
        };
        assert_eq!(
            around(&[claim("cilium-node-ipam", "f:spec"), claim("kubectl", "f:metadata")]).writers,
            []
        );
        assert_eq!(around(&[claim("kubectl-edit", "f:spec")]).writers.len(), 1);
    }

    #[test]
    fn a_definition_that_lacks_a_field_is_old_and_ours_is_not() {
        for ours in crds::all() {
            let mut crd = ours.json.clone();
            assert_eq!(around(&[crd.clone()]).old_definitions, []);
            let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            schema["properties"]["spec"]["properties"] = json!({});
            let [old] = &around(&[crd]).old_definitions[..] else { panic!("{}", ours.kind) };
            assert!(old.missing.iter().any(|field| field.starts_with("spec.")), "{old:?}");
        }
    }
}
