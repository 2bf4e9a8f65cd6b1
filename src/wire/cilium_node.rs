//! The CiliumNode on the wire, read leniently into the value that the world keeps.
//!
//! Text that is no address becomes a [`Malformed`] value, never an error of the whole object. Reading skips everything
//! that no decision needs, such as the fields of each writer in `managedFields` (`docs/cilium.md`, Size). The names of
//! the pods with an address are read and not kept.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::cilium_group::{self, ApiVersion};
use super::multi_pool::{self, WirePools};
use super::watched::{Meta, Wire, read_cidrs};
use crate::model::crd::{CrdFields, ReleaseMark};
use crate::model::kind::Kind;
use crate::model::multi_pool::PoolsFields;
use crate::model::node::{CiliumNode, Malformed, OperatorWrite};
use crate::model::observation::Object;
use crate::model::revision::{Custom, Revision};
use crate::net::address_map::AddressMap;
use crate::net::addresses::AddressSet;

/// CiliumNodes.
#[derive(Debug, Clone)]
pub struct CiliumNodes;

impl Wire for CiliumNodes {
    const KIND: Kind = Kind::CiliumNode;
    const GROUP: &'static str = cilium_group::GROUP;
    const VERSION: &'static str = ApiVersion::V2.as_str();
    const PLURAL: &'static str = "ciliumnodes";
    type Store = Custom;

    fn read(json: &str, meta: &Meta, revision: Revision<Custom>) -> Result<Object, String> {
        let wire: WireCiliumNode = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let spec = wire.spec.unwrap_or_default();
        let own = own_addresses(&spec);
        let ipam = spec.ipam.unwrap_or_default();
        let status = wire.status.and_then(|status| status.ipam).unwrap_or_default();

        let mut malformed = Vec::new();
        let listed = ipam.pod_cidrs.unwrap_or_default();
        let pod_cidrs = read_cidrs(Kind::CiliumNode, "spec.ipam.podCIDRs", listed, &mut malformed);
        let (requested, allocated) = multi_pool::read(ipam.pools.unwrap_or_default(), &mut malformed);
        let operator_error =
            status.operator.and_then(|operator| operator.error).filter(|error| !error.is_empty());
        let managers = wire.metadata.and_then(|metadata| metadata.managed_fields).into_iter().flatten();
        let pool = ipam.pool.unwrap_or_default();
        let used = status.used;
        let marks = status.release_ips.unwrap_or_default();
        for (field, keys) in [
            ("spec.ipam.pool", Some(&pool.keys)),
            ("status.ipam.used", used.as_ref().map(|used| &used.keys)),
            ("status.ipam.release-ips", Some(&marks.keys)),
        ] {
            let texts = keys.into_iter().flat_map(|keys| keys.malformed.iter().cloned());
            malformed.extend(texts.map(|value| Malformed { field: field.to_owned(), value }));
        }
        Ok(Object::CiliumNode(CiliumNode {
            name: meta.name.as_str().into(),
            uid: meta.uid.as_str().into(),
            revision,
            created: meta.created(),
            deleting: meta.is_deleting(),
            addresses: spec.addresses.iter().flatten().filter_map(|entry| entry.ip.parse().ok()).collect(),
            crd: CrdFields {
                pod_cidrs,
                pool: pool.keys.addresses,
                owners: pool.owners.into_iter().collect(),
                min_allocate: ipam.min_allocate.unwrap_or_default(),
                own: used.iter().flat_map(|used| &used.owners).filter_map(own_use).collect(),
                used: used.map(|used| used.keys.addresses),
                marks: marks.by_address,
            },
            pools: PoolsFields { requested, allocated, own, operator_error },
            operator: managers
                .filter(|entry| entry.manager.starts_with("cilium-operator"))
                .map(write_of)
                .next(),
            malformed,
        }))
    }
}

fn write_of(entry: WireManager) -> OperatorWrite {
    OperatorWrite { manager: entry.manager, at: entry.time.and_then(|time| time.parse().ok()) }
}

/// The use of an address by the agent itself; `None` if a pod has the address.
fn own_use((address, owner): &(IpAddr, String)) -> Option<(IpAddr, &'static str)> {
    let purpose = ["router", "health", "ingress"].into_iter().find(|purpose| purpose == owner)?;
    Some((*address, purpose))
}

/// The addresses that an agent reports as its own. In crd mode `status.ipam.used` shows those of a pool too.
fn own_addresses(spec: &WireSpec) -> AddressMap<&'static str> {
    let routers = spec.addresses.iter().flatten().filter(|entry| entry.of == "CiliumInternalIP");
    let endpoints = [(&spec.health, "health"), (&spec.ingress, "ingress")].into_iter();
    let of_endpoints = endpoints.flat_map(|(endpoint, purpose)| {
        let values = endpoint.iter().flat_map(|own| [&own.ipv4, &own.ipv6]).flatten();
        values.filter_map(Value::as_str).map(move |text| (text, purpose))
    });
    routers
        .map(|entry| (entry.ip.as_str(), "router"))
        .chain(of_endpoints)
        .filter_map(|(text, purpose)| Some((text.parse::<IpAddr>().ok()?.to_canonical(), purpose)))
        .collect()
}

#[derive(Deserialize)]
struct WireCiliumNode {
    metadata: Option<WireMeta>,
    spec: Option<WireSpec>,
    status: Option<WireStatus>,
}

#[derive(Deserialize)]
struct WireMeta {
    #[serde(rename = "managedFields")]
    managed_fields: Option<Vec<WireManager>>,
}

/// A writer of the object, by its name and the time of its last write. That of an operator's program is `cilium-operator`, or that with a suffix for
/// the cloud.
#[derive(Deserialize)]
struct WireManager {
    #[serde(default)]
    manager: String,
    time: Option<String>,
}

#[derive(Default, Deserialize)]
struct WireSpec {
    addresses: Option<Vec<WireAddress>>,
    health: Option<WireOwn>,
    ingress: Option<WireOwn>,
    ipam: Option<WireIpamSpec>,
}

#[derive(Deserialize)]
struct WireAddress {
    #[serde(default, rename = "type")]
    of: String,
    #[serde(default)]
    ip: String,
}

/// The addresses of an endpoint of the agent itself. A value that is no text is left out, because nothing reads it.
#[derive(Deserialize)]
struct WireOwn {
    #[serde(default)]
    ipv4: Option<Value>,
    #[serde(default)]
    ipv6: Option<Value>,
}

#[derive(Default, Deserialize)]
struct WireIpamSpec {
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
    pool: Option<Entries>,
    pools: Option<WirePools>,
    #[serde(rename = "min-allocate")]
    min_allocate: Option<u32>,
}

#[derive(Deserialize)]
struct WireStatus {
    ipam: Option<WireIpamStatus>,
}

#[derive(Default, Deserialize)]
struct WireIpamStatus {
    used: Option<Entries>,
    #[serde(rename = "release-ips")]
    release_ips: Option<Marks>,
    #[serde(rename = "operator-status")]
    operator: Option<WireOperator>,
}

#[derive(Deserialize)]
struct WireOperator {
    error: Option<String>,
}

/// The keys of a map by address.
#[derive(Debug, Default)]
struct Keys {
    addresses: AddressSet,
    malformed: Vec<String>,
}

impl Keys {
    /// Notes a key. An address in unusual form counts both as an address and as malformed: the agent looks keys up by
    /// canonical text. So it would offer such an address and never find it again (`docs/cilium.md`, Choosing an
    /// address). IPv4-mapped text is an unusual form of the IPv4 address.
    fn insert(&mut self, text: &str) -> Option<IpAddr> {
        let address = text.parse().ok().map(|address: IpAddr| address.to_canonical());
        if let Some(address) = address {
            self.addresses.insert(address);
        }
        if address.is_none_or(|address| address.to_string() != text) {
            self.malformed.push(text.to_owned());
        }
        address
    }
}

/// The entries of `status.ipam.release-ips`.
#[derive(Debug, Default)]
struct Marks {
    keys: Keys,
    by_address: BTreeMap<IpAddr, ReleaseMark>,
}

impl<'de> Deserialize<'de> for Marks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut marks = Self::default();
        for (key, value) in BTreeMap::<String, Value>::deserialize(deserializer)? {
            if let Some(address) = marks.keys.insert(&key) {
                let mark = match value.as_str() {
                    Some("marked-for-release") => ReleaseMark::Marked,
                    Some("ready-for-release") => ReleaseMark::Ready,
                    Some("do-not-release") => ReleaseMark::DoNotRelease,
                    Some("released") => ReleaseMark::Released,
                    _ => ReleaseMark::Unknown,
                };
                marks.by_address.insert(address, mark);
            }
        }
        Ok(marks)
    }
}

/// The entries of `spec.ipam.pool` or of `status.ipam.used`, which may have an owner each.
#[derive(Debug, Default)]
struct Entries {
    keys: Keys,
    owners: Vec<(IpAddr, String)>,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Entry {
            owner: Option<String>,
        }

        struct EntriesVisitor;

        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of entries by address")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Entries::default();
                while let Some((key, entry)) = map.next_entry::<String, Option<Entry>>()? {
                    let address = entries.keys.insert(&key);
                    let owner = entry.and_then(|entry| entry.owner).filter(|owner| !owner.is_empty());
                    if let (Some(address), Some(owner)) = (address, owner) {
                        entries.owners.push((address, owner));
                    }
                }
                Ok(entries)
            }
        }

        deserializer.deserialize_map(EntriesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::watched::tests::read;

    #[test]
    fn a_cilium_node_is_read_leniently() {
        let object = read::<CiliumNodes>(
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7","managedFields":[{"x":1}]},
                "spec":{"addresses":[{"type":"InternalIP","ip":"192.168.0.1"},{"type":"CiliumInternalIP"}],
                        "ipam":{"podCIDRs":["10.0.0.0/27","10.0.1.5/27"],
                                "pool":{"10.0.0.1":{},"10.0.0.2":{"owner":"router"},"10.0.0.3":null,"x":{}}}},
                "status":{"ipam":{"used":null,"release-ips":{"010.0.0.4":"released"}}}}"#,
        );
        let Object::CiliumNode(node) = object else { panic!("{object:?}") };
        assert_eq!(node.revision, Revision::of(7));
        assert_eq!(format!("{:?}", node.crd.pod_cidrs), "[10.0.0.0/27, 10.0.1.0/27]");
        assert_eq!(format!("{:?}", node.crd.pool), "{10.0.0.1/32, 10.0.0.2/31}");
        assert_eq!(format!("{:?}", node.crd.owners), r#"{10.0.0.2: "router"}"#);
        assert_eq!(node.crd.used, None);
        let malformed: Vec<String> =
            node.malformed.iter().map(|found| format!("{}={}", found.field, found.value)).collect();
        assert_eq!(
            malformed,
            ["spec.ipam.podCIDRs[1]=10.0.1.5/27", "spec.ipam.pool=x", "status.ipam.release-ips=010.0.0.4"]
        );
    }

    /// The agent never looks up an IPv4 address by such a text.
    #[test]
    fn an_ipv4_mapped_address_is_the_ipv4_one_and_not_canonical() {
        let object = read::<CiliumNodes>(
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},
                "spec":{"ipam":{"podCIDRs":["::ffff:10.0.0.0/123"],"pool":{"::ffff:10.0.0.1":{"owner":"router"}}}},
                "status":{"ipam":{"used":{"::ffff:a00:2":{}},"release-ips":{"::ffff:10.0.0.3":"released"}}}}"#,
        );
        let Object::CiliumNode(node) = object else { panic!("{object:?}") };
        let malformed: Vec<&str> = node.malformed.iter().map(|found| found.value.as_str()).collect();
        assert_eq!(malformed, ["::ffff:10.0.0.0/123", "::ffff:10.0.0.1", "::ffff:a00:2", "::ffff:10.0.0.3"]);
        assert_eq!(format!("{:?}", crate::publisher::carried_by_cilium_node(&node)), "{10.0.0.0/27}");
        assert_eq!(format!("{:?}", node.crd.owners), r#"{10.0.0.1: "router"}"#);
        assert_eq!(format!("{:?}", node.crd.marks), "{10.0.0.3: Released}");
    }

    /// On the number line it contains all of IPv4, so it would occupy every IPv4 pool.
    #[test]
    fn an_ipv6_range_around_all_of_ipv4_is_malformed_and_takes_nothing() {
        let object = read::<CiliumNodes>(
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},
                "spec":{"ipam":{"podCIDRs":["::/64","0.0.0.0/0","10.0.0.0/8","10.0.0.0/16"]}}}"#,
        );
        let Object::CiliumNode(node) = object else { panic!("{object:?}") };
        assert_eq!(format!("{:?}", node.crd.pod_cidrs), "[10.0.0.0/16]");
        let malformed: Vec<&str> = node.malformed.iter().map(|found| found.value.as_str()).collect();
        assert_eq!(malformed, ["::/64", "0.0.0.0/0", "10.0.0.0/8"]);
    }

    #[test]
    fn what_the_agent_has_for_itself_is_told_from_what_pods_have() {
        let object = read::<CiliumNodes>(
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},"status":{"ipam":{"used":{
                "10.0.0.1":{"owner":"router"},"10.0.0.2":{"owner":"health","resource":"x"},"10.0.0.3":{},
                "10.0.0.4":{"owner":"ns/router"},"10.0.0.5":null,"10.0.0.6":{"owner":null},"fd00::1":{"owner":"ingress"}
            }}}}"#,
        );
        let Object::CiliumNode(node) = object else { panic!("{object:?}") };
        let own: Vec<String> = node.crd.own.iter().map(|(address, own)| format!("{address} {own}")).collect();
        assert_eq!(own, ["10.0.0.1 router", "10.0.0.2 health", "fd00::1 ingress"]);
        assert_eq!(node.crd.used.map(|used| used.len()), Some(7));
    }

    #[test]
    fn one_of_another_shape_is_unreadable_and_takes_its_addresses() {
        let object = read::<CiliumNodes>(
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7","annotations":{"a":"1.1.1.1"}},
                "spec":{"ipam":{"podCIDRs":"10.0.0.0/27","pool":{"10.0.9.1":{}}}},
                "status":{"ipam":{"used":{"10.0.9.9":{"owner":"ns/p"}}}}}"#,
        );
        let Object::Unreadable(Kind::CiliumNode, unreadable) = object else { panic!("{object:?}") };
        assert_eq!(
            (unreadable.name.as_str(), unreadable.revision),
            ("n", Some(Revision::<Custom>::of(7).into()))
        );
        assert_eq!(format!("{:?}", unreadable.addresses), "{10.0.0.0/27, 10.0.9.1/32, 10.0.9.9/32}");
        assert!(unreadable.reason.contains("expected a sequence"), "{}", unreadable.reason);
    }
}
