//! FRRConfigurations and FRRNodeStates of frr-k8s on the wire.
//!
//! A template is copied unread, except for its selector and its prefixes: a field that a later version of frr-k8s adds
//! needs no change here. Reading one never fails: an unreadable part makes it differ from the object that the
//! controller would write.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::json::texts;
use super::node::LATER_THAN;
use super::pod_ip_pool::OURS;
use super::side_watched::{KindPath, SideKind};
use super::watched::Meta;
use crate::model::frr::{
    FOR_NODES, FrrChange, FrrConfiguration, FrrNodeState, FrrPurpose, FrrWrite, HOSTNAME_LABEL,
    LEFT_OUT_VRFS, Selector, Sessions, name_of,
};
use crate::model::names::NodeName;
use crate::net::cidr::{Cidr, Family};

/// The API group.
pub const GROUP: &str = "frrk8s.metallb.io";
/// The only version of the group.
pub const VERSION: &str = "v1beta1";
/// The name of FRRConfigurations in paths.
pub const CONFIGURATIONS: &str = "frrconfigurations";
/// The name of FRRNodeStates in paths.
pub const NODE_STATES: &str = "frrnodestates";

/// The annotation that names the node of an FRRConfiguration of the controller.
const NODE: &str = "nodeipam.io/node";
/// The annotation with the sessions of an FRRConfiguration of the controller. Its `spec` can't have all of them while
/// it has no prefixes: `withCommunity` and `withLocalPref` may not be empty.
const SESSIONS: &str = "nodeipam.io/sessions";
/// The field of sessions with the VRFs that get no prefixes. No field of a `spec` has this name.
const WITHOUT_PREFIXES: &str = "vrfsWithoutPrefixes";
/// The lists of `toAdvertise` whose entries have prefixes.
const MARKED: [&str; 2] = ["withCommunity", "withLocalPref"];

impl SideKind for FrrConfiguration {
    type Served = ();

    fn path((): &()) -> KindPath {
        KindPath { group: GROUP, version: VERSION, kind: "FRRConfiguration", plural: CONFIGURATIONS }
    }

    /// Its content; `None` if it has no version.
    fn read(json: &str, meta: &Meta) -> Option<Self> {
        let object: Value = serde_json::from_str(json).unwrap_or_default();
        let revision = meta.revision()?;
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let node: Option<NodeName> = metadata["annotations"][NODE].as_str().map(Into::into);
        let is_ours = metadata["labels"][OURS.0] == OURS.1;
        let of_node = node.filter(|node| is_ours && name_of(node).as_str() == meta.name);
        let selector = selector(&spec["nodeSelector"]);
        let prefixes = prefixes(spec);
        let written = metadata["annotations"][SESSIONS].as_str().filter(|_| of_node.is_some());
        let written = written.map(|text| Sessions::from(text.to_owned()));
        let left_out = metadata["annotations"][LEFT_OUT_VRFS].as_str().filter(|_| of_node.is_none());
        let left_out: BTreeSet<&str> = left_out.into_iter().flat_map(names).collect();
        let routers = || spec["bgp"]["routers"].as_array().into_iter().flatten();
        let vrfs = routers().filter_map(|router| vrf_of(router.as_object()?));
        let is_as_written = |sessions: &Sessions| match &selector {
            Selector::Hostname(hostname) => spec_of(sessions, hostname, &prefixes) == *spec,
            Selector::Every | Selector::Other => false,
        };
        let is_exact = written.as_ref().is_some_and(is_as_written);
        let sessions = written.filter(|_| is_exact).unwrap_or_else(|| sessions(spec, &left_out));
        Some(Self {
            name: meta.name.as_str().into(),
            uid: meta.uid.as_str().into(),
            revision,
            of_node,
            selector,
            prefixes,
            sessions,
            is_deleting: meta.is_deleting(),
            n_routers: routers().count(),
            for_nodes: for_nodes(metadata["annotations"][FOR_NODES].as_str().unwrap_or_default()),
            vrfs: vrfs.filter(|vrf| !left_out.contains(vrf)).map(str::to_owned).collect(),
            is_exact,
        })
    }
}

impl SideKind for FrrNodeState {
    type Served = ();

    fn path((): &()) -> KindPath {
        KindPath { group: GROUP, version: VERSION, kind: "FRRNodeState", plural: NODE_STATES }
    }

    /// Its content; `None` if it has no version.
    fn read(json: &str, meta: &Meta) -> Option<Self> {
        let object: Value = serde_json::from_str(json).unwrap_or_default();
        let running = object["status"]["runningConfig"].as_str();
        Some(Self {
            node: meta.name.as_str().into(),
            revision: meta.revision()?,
            networks: running.filter(|text| !text.trim().is_empty()).and_then(networks),
        })
    }
}

/// The networks that a running configuration of FRR originates; `None` if one can't be read.
fn networks(running: &str) -> Option<BTreeSet<Cidr>> {
    let lines = running.lines().filter_map(|line| line.trim().strip_prefix("network "));
    lines.map(|rest| Cidr::parse_lenient(rest.split_whitespace().next()?)).collect()
}

fn selector(wire: &Value) -> Selector {
    let labels = wire["matchLabels"].as_object();
    let n_expressions = wire["matchExpressions"].as_array().map_or(0, Vec::len);
    match labels.filter(|labels| !labels.is_empty()) {
        None if n_expressions == 0 => Selector::Every,
        Some(labels) if labels.len() == 1 && n_expressions == 0 => {
            let hostname = labels.get(HOSTNAME_LABEL).and_then(Value::as_str);
            hostname.map_or(Selector::Other, |hostname| Selector::Hostname(hostname.to_owned()))
        }
        Some(_) | None => Selector::Other,
    }
}

/// Every prefix that is announced, or may be.
fn prefixes(spec: &Value) -> BTreeSet<Cidr> {
    let list = |value: &Value| -> Vec<Cidr> { texts(value).filter_map(Cidr::parse_lenient).collect() };
    let routers = spec["bgp"]["routers"].as_array().into_iter().flatten();
    routers
        .flat_map(|router| {
            let neighbors = router["neighbors"].as_array().into_iter().flatten();
            let allowed =
                neighbors.flat_map(|neighbor| list(&neighbor["toAdvertise"]["allowed"]["prefixes"]));
            list(&router["prefixes"]).into_iter().chain(allowed.collect::<Vec<_>>())
        })
        .collect()
}

/// Labels as `KEY=VALUE`, separated by commas.
fn for_nodes(text: &str) -> Result<BTreeMap<String, String>, String> {
    let labels = text.split(',').map(str::trim).filter(|label| !label.is_empty());
    let label = |label: &str| {
        let (key, value) = label.split_once('=')?;
        let is_plain =
            |part: &str| part.chars().all(|char| char.is_ascii_alphanumeric() || "-._/".contains(char));
        (!key.is_empty() && is_plain(key) && is_plain(value)).then(|| (key.to_owned(), value.to_owned()))
    };
    labels.map(label).collect::<Option<_>>().ok_or_else(|| text.to_owned())
}

/// The names in a text, separated by commas.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The VRF of a router; `None` for that of the host.
fn vrf_of(router: &Map<String, Value>) -> Option<&str> {
    router.get("vrf").and_then(Value::as_str).filter(|vrf| !vrf.is_empty())
}

/// Calls `of_router` for each router of a `spec` with its VRF, and `to_advertise` for `toAdvertise` of each neighbor,
/// with the families of its session and the VRF.
fn change(
    spec: &mut Value,
    of_router: impl Fn(&mut Map<String, Value>, Option<&str>),
    to_advertise: impl Fn(&mut Map<String, Value>, &[Family], Option<&str>),
) {
    for router in objects_in(spec.pointer_mut("/bgp/routers")) {
        let vrf = vrf_of(router).map(str::to_owned);
        of_router(router, vrf.as_deref());
        for neighbor in objects_in(router.get_mut("neighbors")) {
            let families = families(neighbor);
            let advertised = neighbor.entry("toAdvertise").or_insert_with(|| json!({}));
            if let Some(advertised) = advertised.as_object_mut() {
                to_advertise(advertised, &families, vrf.as_deref());
                if advertised.is_empty() {
                    neighbor.remove("toAdvertise");
                }
            }
        }
    }
}

/// The objects of a list.
fn objects_in(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The families of a session: that of its address, or both.
fn families(neighbor: &Map<String, Value>) -> Vec<Family> {
    let has_both = neighbor.get("dualStackAddressFamily") == Some(&Value::Bool(true));
    let address = neighbor.get("address").and_then(Value::as_str).and_then(|text| text.parse().ok());
    match address.filter(|_| !has_both) {
        Some(address) => vec![Family::of(address)],
        None => Family::ALL.to_vec(),
    }
}

/// A `spec` without its selector and its prefixes, as text. With the VRFs that get no prefixes.
fn sessions(spec: &Value, left_out: &BTreeSet<&str>) -> Sessions {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("nodeSelector");
        if !left_out.is_empty() {
            fields.insert(WITHOUT_PREFIXES.to_owned(), json!(left_out));
        }
    }
    change(
        &mut spec,
        |router, _| drop(router.remove("prefixes")),
        |advertised, _, _| {
            advertised.remove("allowed");
            for marked in MARKED {
                for entry in objects_in(advertised.get_mut(marked)) {
                    entry.remove("prefixes");
                }
            }
        },
    );
    spec.to_string().into()
}

/// The `spec` with these sessions, for the node with this hostname.
fn spec_of(sessions: &Sessions, hostname: &str, prefixes: &BTreeSet<Cidr>) -> Value {
    let mut spec: Value = serde_json::from_str(sessions.as_str()).unwrap_or_default();
    let left_out =
        spec.as_object_mut().and_then(|fields| fields.remove(WITHOUT_PREFIXES)).unwrap_or_default();
    let left_out: BTreeSet<&str> = texts(&left_out).collect();
    let listed = |of: &[Family], vrf: Option<&str>| -> Value {
        let is_left_out = vrf.is_some_and(|vrf| left_out.contains(vrf));
        let listed = prefixes.iter().filter(|prefix| !is_left_out && of.contains(&prefix.family()));
        listed.map(ToString::to_string).collect::<Vec<_>>().into()
    };
    change(
        &mut spec,
        |router, vrf| drop(router.insert("prefixes".to_owned(), listed(&Family::ALL, vrf))),
        |advertised, families, vrf| {
            // A webhook refuses other prefixes than those of the session, and an empty list of marked ones.
            let of_session = listed(families, vrf);
            let allowed = json!({"mode": "filtered", "prefixes": of_session.clone()});
            advertised.insert("allowed".to_owned(), allowed);
            for marked in MARKED {
                if of_session.as_array().is_none_or(Vec::is_empty) {
                    advertised.remove(marked);
                }
                for entry in objects_in(advertised.get_mut(marked)) {
                    entry.insert("prefixes".to_owned(), of_session.clone());
                }
            }
        },
    );
    if let Some(fields) = spec.as_object_mut() {
        let selector = json!({"matchLabels": {(HOSTNAME_LABEL): hostname}});
        fields.insert("nodeSelector".to_owned(), selector);
    }
    spec
}

/// The object that a write creates or replaces; `None` if the write deletes it.
#[must_use]
pub fn object(write: &FrrWrite, namespace: &str) -> Option<Value> {
    let none = BTreeSet::new();
    let (hostname, sessions, prefixes) = match &write.change {
        FrrChange::Create { hostname, sessions } => (hostname, sessions, &none),
        FrrChange::Replace { hostname, sessions, prefixes, .. } => (hostname, sessions, prefixes),
        FrrChange::Delete { .. } => return None,
    };
    let mut object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "FRRConfiguration",
        "metadata": {
            "name": write.name.as_str(),
            "namespace": namespace,
            "labels": {(OURS.0): OURS.1},
            "annotations": {(NODE): write.node.as_str(), (SESSIONS): sessions.as_str()},
        },
        "spec": spec_of(sessions, hostname, prefixes),
    });
    if let FrrChange::Replace { uid, revision, purpose, .. } = &write.change {
        object["metadata"]["uid"] = json!(uid.as_str());
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        if let FrrPurpose::LaterThan(released) = purpose {
            object["metadata"]["annotations"][LATER_THAN] = json!(released.to_string());
        }
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::super::side_watched::tests::read;
    use super::*;
    use crate::model::revision::Revision;

    /// A template with every field that has prefixes.
    fn template() -> Value {
        json!({
            "metadata": {"name": "template", "uid": "t", "resourceVersion": "5"},
            "spec": {
                "nodeSelector": {"matchLabels": {"nodeipam.io/template": "true"}},
                "bgp": {
                    "bfdProfiles": [{"name": "fast"}],
                    "routers": [{
                        "asn": 64512,
                        "prefixes": ["192.0.2.0/24"],
                        "neighbors": [
                            {"address": "192.0.2.1", "asn": 64513, "holdTime": "90s", "disableMP": false,
                             "toAdvertise": {
                                "allowed": {"mode": "all"},
                                "withCommunity": [{"community": "64512:1", "prefixes": ["192.0.2.0/24"]}],
                             }},
                            {"address": "192.0.2.2", "asn": 64513, "toReceive": {"allowed": {"mode": "all"}}},
                        ],
                    }],
                },
            },
        })
    }

    fn write(change: FrrChange) -> FrrWrite {
        let node: NodeName = "node-a".into();
        FrrWrite { name: name_of(&node), node, change }
    }

    fn cidrs(texts: &[&str]) -> BTreeSet<Cidr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// The object as the server stores it.
    fn stored(write: &FrrWrite, revision: &str) -> Value {
        let mut object = object(write, "frr-k8s-system").unwrap();
        object["metadata"]["resourceVersion"] = json!(revision);
        object["metadata"]["uid"] = json!("u");
        object
    }

    #[test]
    fn a_template_is_for_the_nodes_with_its_labels() {
        let read = |text: &str| for_nodes(text).map(|labels| format!("{labels:?}"));
        assert_eq!(read("").unwrap(), "{}");
        assert_eq!(read(" rack=1 ").as_deref(), Ok(r#"{"rack": "1"}"#));
        assert_eq!(read("a/rack=1,,zone=b").as_deref(), Ok(r#"{"a/rack": "1", "zone": "b"}"#));
        for text in ["rack", "rack!=1", "rack==1", "=1", "rack in (a)", "rack = 1"] {
            assert_eq!(read(text), Err(text.to_owned()));
        }
    }

    #[test]
    fn what_is_written_is_read_back_as_the_same() {
        let of_template: FrrConfiguration = read(&template()).unwrap();
        assert_eq!((&of_template.selector, of_template.n_routers), (&Selector::Other, 1));
        assert_eq!(of_template.of_node, None);
        let sessions = of_template.sessions;
        let create = write(FrrChange::Create { hostname: "a".to_owned(), sessions: sessions.clone() });
        let created = stored(&create, "7");
        let found: FrrConfiguration = read(&created).unwrap();
        assert!(create.is_shown_by(&found), "{found:?}");
        assert_eq!((found.of_node, found.prefixes), (Some("node-a".into()), BTreeSet::new()));
        let first = &created["spec"]["bgp"]["routers"][0]["neighbors"][0];
        assert_eq!(first["toAdvertise"], json!({"allowed": {"mode": "filtered", "prefixes": []}}));

        let prefixes = cidrs(&["10.0.0.0/26", "fd00::/120"]);
        let replace = write(FrrChange::Replace {
            uid: "u".into(),
            revision: Revision::of(7),
            hostname: "a".to_owned(),
            sessions: found.sessions,
            prefixes: prefixes.clone(),
            purpose: FrrPurpose::Prefixes,
        });
        let replaced = stored(&replace, "8");
        let found: FrrConfiguration = read(&replaced).unwrap();
        assert!(replace.is_shown_by(&found), "{found:?}");
        assert_eq!((&found.sessions, &found.prefixes), (&sessions, &prefixes));
        let router = &replaced["spec"]["bgp"]["routers"][0];
        let listed = json!(["10.0.0.0/26", "fd00::/120"]);
        assert_eq!(router["prefixes"], listed);
        let allowed = json!({"mode": "filtered", "prefixes": ["10.0.0.0/26"]});
        let marked = json!([{"community": "64512:1", "prefixes": ["10.0.0.0/26"]}]);
        assert_eq!(
            router["neighbors"][0]["toAdvertise"],
            json!({"allowed": allowed, "withCommunity": marked})
        );
        assert_eq!(router["neighbors"][1]["toAdvertise"], json!({"allowed": allowed}));
        assert_eq!(router["neighbors"][0]["holdTime"], "90s");
        assert_eq!(replaced["spec"]["bgp"]["bfdProfiles"], json!([{"name": "fast"}]));
    }

    /// Its sessions stay, and announce nothing of nodes.
    #[test]
    fn a_router_of_a_vrf_announces_the_routes_of_nodes_unless_it_is_left_out() {
        let mut template = template();
        let mut red = template["spec"]["bgp"]["routers"][0].clone();
        red["vrf"] = json!("red");
        template["spec"]["bgp"]["routers"].as_array_mut().unwrap().push(red);
        let first_prefixes = |template: &Value| {
            let sessions = read::<FrrConfiguration>(template).unwrap().sessions;
            let replace = write(FrrChange::Replace {
                uid: "u".into(),
                revision: Revision::of(7),
                hostname: "a".to_owned(),
                sessions,
                prefixes: cidrs(&["10.0.0.0/26"]),
                purpose: FrrPurpose::Prefixes,
            });
            let replaced = stored(&replace, "8");
            let found: FrrConfiguration = read(&replaced).unwrap();
            assert!(replace.is_shown_by(&found) && found.is_exact, "{found:?}");
            assert!(replaced["spec"].get(WITHOUT_PREFIXES).is_none(), "{replaced}");
            let routers = replaced["spec"]["bgp"]["routers"].clone();
            let of_router = |at: usize| {
                let allowed = &routers[at]["neighbors"][0]["toAdvertise"]["allowed"]["prefixes"];
                (routers[at]["prefixes"].clone(), allowed.clone())
            };
            (of_router(0), of_router(1))
        };
        let all = (json!(["10.0.0.0/26"]), json!(["10.0.0.0/26"]));
        assert_eq!(first_prefixes(&template), (all.clone(), all.clone()));
        assert_eq!(read::<FrrConfiguration>(&template).unwrap().vrfs, ["red".to_owned()].into());
        template["metadata"]["annotations"] = json!({LEFT_OUT_VRFS: "blue, red"});
        assert_eq!(first_prefixes(&template), (all, (json!([]), json!([]))));
        assert_eq!(read::<FrrConfiguration>(&template).unwrap().vrfs, BTreeSet::new());
    }

    #[test]
    fn an_object_that_another_writer_has_changed_differs() {
        let sessions = read::<FrrConfiguration>(&template()).unwrap().sessions;
        let create = write(FrrChange::Create { hostname: "a".to_owned(), sessions });
        let found = |path: &str, value: Value| {
            let mut object = stored(&create, "7");
            *object.pointer_mut(path).unwrap() = value;
            read::<FrrConfiguration>(&object).unwrap()
        };
        let dropped = found("/spec/nodeSelector", json!({}));
        assert_eq!((&dropped.selector, dropped.is_exact), (&Selector::Every, false));
        let other = found("/spec/nodeSelector/matchLabels", json!({"rack": "1"}));
        assert_eq!(other.selector, Selector::Other);
        let of_neighbor = "/spec/bgp/routers/0/neighbors/0/toAdvertise/allowed";
        let more = found(of_neighbor, json!({"mode": "all", "prefixes": ["10.9.0.0/16"]}));
        assert_eq!((more.prefixes, more.is_exact), (cidrs(&["10.9.0.0/16"]), false));
        let odd = found("/spec/bgp/routers/0/prefixes", json!(["odd"]));
        assert!(!odd.is_exact);
        let foreign = found("/metadata/labels", json!({"app.kubernetes.io/managed-by": "helm"}));
        assert_eq!(foreign.of_node, None);
        let renamed = found("/metadata/annotations/nodeipam.io~1node", json!("node-b"));
        assert_eq!(renamed.of_node, None, "the name is of another node");
    }

    #[test]
    fn the_networks_of_a_running_configuration_are_found() {
        let running = "router bgp 64512\n address-family ipv4 unicast\n  network 10.0.0.0/26\n  network 10.1.0.0/26 \
                       route-map x\n exit-address-family\n address-family ipv6 unicast\n  network fd00::/120\nip \
                       prefix-list a seq 1 permit 10.2.0.0/24\n";
        let object =
            json!({"metadata": {"name": "a", "resourceVersion": "5"}, "status": {"runningConfig": running}});
        let state: FrrNodeState = read(&object).unwrap();
        assert_eq!(state.networks, Some(cidrs(&["10.0.0.0/26", "10.1.0.0/26", "fd00::/120"])));
    }

    #[test]
    fn a_running_configuration_that_is_missing_or_unreadable_is_no_proof() {
        for status in [json!({}), json!({"runningConfig": " "}), json!({"runningConfig": " network odd\n"})] {
            let object = json!({"metadata": {"name": "a", "resourceVersion": "5"}, "status": status});
            let state: FrrNodeState = read(&object).unwrap();
            assert_eq!(state.networks, None, "{status}");
        }
    }
}
