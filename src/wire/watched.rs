//! One guard around every object that a watch or list brings: it is read straight into what the world keeps, and
//! one that can't be read is a value too.
//!
//! Without it a single bad object fails the whole page of a list for ever, and is dropped from a watch without a word.
//! Keeps the invariant that reading a [`Watched`] never fails on valid JSON.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{GROUP, NodeIPBlock, VERSION, cilium_node};
use crate::model::names::Revision;
use crate::model::observation::{Kind, Object, Unreadable};
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::Cidr;

/// The part of an object's metadata that is always read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Meta {
    /// The name.
    #[serde(default)]
    pub name: String,
    /// The uid.
    #[serde(default)]
    pub uid: String,
    /// The version, as text.
    #[serde(default, rename = "resourceVersion")]
    pub resource_version: String,
    #[serde(default, rename = "creationTimestamp")]
    creation_timestamp: Option<String>,
    #[serde(default, rename = "deletionTimestamp")]
    deletion_timestamp: Option<String>,
}

impl Meta {
    /// The version; zero where it is no integer, which is older than everything.
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision::parse(&self.resource_version).unwrap_or_default()
    }

    /// When the object was created; the epoch, and so the oldest of all, where that can't be read.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        self.creation_timestamp.as_deref().and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Whether somebody deletes the object.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// How the objects of one kind are found and read.
pub trait Wire: std::fmt::Debug + Clone + Send + Sync + 'static {
    /// The kind.
    const KIND: Kind;
    /// API group; empty for the core group.
    const GROUP: &'static str;
    /// API version.
    const VERSION: &'static str;
    /// The name in paths.
    const PLURAL: &'static str;

    /// Reads one object.
    fn read(json: &str, meta: &Meta) -> Result<Object, String>;
}

/// Nodes.
#[derive(Debug, Clone)]
pub struct Nodes;
/// CiliumNodes.
#[derive(Debug, Clone)]
pub struct CiliumNodes;
/// NodeIPPools.
#[derive(Debug, Clone)]
pub struct Pools;
/// NodeIPBlocks.
#[derive(Debug, Clone)]
pub struct Claims;

impl Wire for Nodes {
    const KIND: Kind = Kind::Node;
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "nodes";

    fn read(json: &str, meta: &Meta) -> Result<Object, String> {
        cilium_node::read_node(json, meta).map(Object::Node).map_err(|error| error.to_string())
    }
}

impl Wire for CiliumNodes {
    const KIND: Kind = Kind::CiliumNode;
    const GROUP: &'static str = "cilium.io";
    const VERSION: &'static str = "v2";
    const PLURAL: &'static str = "ciliumnodes";

    fn read(json: &str, meta: &Meta) -> Result<Object, String> {
        cilium_node::read_cilium_node(json, meta).map(Object::CiliumNode).map_err(|error| error.to_string())
    }
}

impl Wire for Pools {
    const KIND: Kind = Kind::Pool;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
    const PLURAL: &'static str = "nodeippools";

    fn read(json: &str, meta: &Meta) -> Result<Object, String> {
        super::pool_status::read(json, meta).map(Object::Pool).map_err(|error| error.to_string())
    }
}

impl Wire for Claims {
    const KIND: Kind = Kind::Claim;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
    const PLURAL: &'static str = "nodeipblocks";

    fn read(json: &str, _: &Meta) -> Result<Object, String> {
        let block: NodeIPBlock = serde_json::from_str(json).map_err(|error| error.to_string())?;
        (&block).try_into().map(Object::Claim).map_err(|invalid: super::InvalidObject| invalid.to_string())
    }
}

/// An object of the kind `W`, read or unreadable.
#[derive(Debug, Clone)]
pub struct Watched<W> {
    meta: ObjectMeta,
    object: Object,
    wire: PhantomData<W>,
}

impl<W> Watched<W> {
    /// The object.
    #[must_use]
    pub fn into_object(self) -> Object {
        self.object
    }
}

impl<'de, W: Wire> Deserialize<'de> for Watched<W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Envelope {
            #[serde(default)]
            metadata: Meta,
        }

        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let json = raw.get();
        let (meta, object) = match serde_json::from_str::<Envelope>(json) {
            Ok(Envelope { metadata }) => {
                let object = W::read(json, &metadata);
                (metadata, object)
            }
            Err(error) => (Meta::default(), Err(error.to_string())),
        };
        let object = object.unwrap_or_else(|reason| {
            Object::Unreadable(
                W::KIND,
                Unreadable {
                    name: meta.name.clone(),
                    revision: meta.revision(),
                    reason,
                    addresses: every_address_in(json),
                },
            )
        });
        let meta = ObjectMeta {
            name: Some(meta.name),
            uid: Some(meta.uid),
            resource_version: Some(meta.resource_version),
            ..ObjectMeta::default()
        };
        Ok(Self { meta, object, wire: PhantomData })
    }
}

impl<W: Wire> Resource for Watched<W> {
    type DynamicType = ();
    type Scope = kube::core::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        W::KIND.as_str().into()
    }

    fn group((): &()) -> Cow<'_, str> {
        W::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        W::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        W::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// Every address and prefix that stands anywhere behind the metadata of an object that can't be read.
fn every_address_in(json: &str) -> AddressSet {
    let mut found = AddressSet::new();
    let Ok(Value::Object(fields)) = serde_json::from_str::<Value>(json) else {
        return found;
    };
    let mut open: Vec<&Value> =
        fields.iter().filter(|(key, _)| *key != "metadata").map(|(_, value)| value).collect();
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => take_text(text, &mut found),
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                for (key, value) in fields {
                    take_text(key, &mut found);
                    open.push(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    found
}

fn take_text(text: &str, found: &mut AddressSet) {
    if let Ok(address) = text.parse::<IpAddr>() {
        found.insert(address);
    } else if let Some(cidr) = Cidr::parse_lenient(text) {
        found.insert_cidr(cidr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::observation::PoolObject;
    use crate::net::cidr::Family;

    fn read<W: Wire>(json: &str) -> Object {
        serde_json::from_str::<Watched<W>>(json).unwrap().into_object()
    }

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
        assert_eq!(node.revision, Revision(7));
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

    /// It is the IPv4 address in a text that the agent never looks up.
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

    #[test]
    fn what_cannot_be_read_is_taken_and_reported() {
        let object = read::<CiliumNodes>(
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7","annotations":{"a":"1.1.1.1"}},
                "spec":{"ipam":{"podCIDRs":"10.0.0.0/27","pool":{"10.0.9.1":{}}}},
                "status":{"ipam":{"used":{"10.0.9.9":{"owner":"ns/p"}}}}}"#,
        );
        let Object::Unreadable(Kind::CiliumNode, unreadable) = object else { panic!("{object:?}") };
        assert_eq!((unreadable.name.as_str(), unreadable.revision), ("n", Revision(7)));
        assert_eq!(format!("{:?}", unreadable.addresses), "{10.0.0.0/27, 10.0.9.1/32, 10.0.9.9/32}");
        assert!(unreadable.reason.contains("expected a sequence"), "{}", unreadable.reason);
    }

    /// A server without the rule may have stored it. Its addresses are too many to be offered one by one.
    #[test]
    fn a_claim_larger_than_any_block_takes_its_whole_range() {
        let object = read::<Claims>(
            r#"{"apiVersion":"nodeipam.io/v1alpha1","kind":"NodeIPBlock",
                "metadata":{"name":"fd00-0000-0000-0000-0000-0000-0000-0000-64","uid":"u","resourceVersion":"7",
                            "creationTimestamp":"2026-11-21T03:00:00Z"},
                "spec":{"cidr":"fd00::/64","pool":"p","node":"n","nodeUID":"nu","withheld":["fd00::1"],
                        "state":"Held","since":"2026-11-21T03:00:00Z"}}"#,
        );
        let Object::Unreadable(Kind::Claim, unreadable) = object else { panic!("{object:?}") };
        assert_eq!(format!("{:?}", unreadable.addresses), "{fd00::/64}");
        assert!(unreadable.reason.contains("at most 1024 addresses"), "{}", unreadable.reason);
    }

    #[test]
    fn even_metadata_of_the_wrong_type_is_a_value() {
        let object = read::<Nodes>(r#"{"metadata":{"name":5}}"#);
        assert!(matches!(object, Object::Unreadable(Kind::Node, _)), "{object:?}");
    }

    /// Trap 18: however a pool is wrong, what it keeps from others follows from the ranges in it that can be read.
    #[test]
    fn a_pool_that_cannot_be_read_reserves_the_ranges_in_it() {
        let check = |spec: &str, expected: &str| {
            let object = read::<Pools>(&format!(
                r#"{{"metadata":{{"name":"p","uid":"u","resourceVersion":"7","creationTimestamp":"1970-01-01T00:00:09Z",
                     "generation":3,"finalizers":["f"],"annotations":{{"a":"10.9.0.0/24"}}}},
                    "spec":{spec},"status":{{"conditions":"of another form"}}}}"#
            ));
            let Object::Pool(object) = object else { panic!("{object:?}") };
            assert_eq!((object.generation, object.finalizers.as_slice()), (3, &["f".to_owned()][..]));
            let read = match object.pool {
                Ok(pool) => format!("{:?}", pool.families[&Family::V4].cidrs.keys()),
                Err(invalid) => {
                    let reserved = invalid.reserved;
                    assert_eq!((reserved.name.as_str(), reserved.uid.as_str()), ("p", "u"));
                    assert_eq!(reserved.created.as_second(), 9);
                    format!("{}; reserved {:?}", invalid.findings.join("; "), reserved.cidrs)
                }
            };
            assert_eq!(read, expected);
        };
        check(r#"{"ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.1.0.0/24"}]}}"#, "[10.1.0.0/24]");
        // A value that breaks a rule, and one of another type.
        check(
            r#"{"priority":2000000000,"ipv4":{"blockSize":28,"cidrs":[{"cidr":"10.1.0.0/24"},{"cidr":"10.1.0.0/25"}]}}"#,
            "spec.ipv4.cidrs: \"10.1.0.0/25\": must not overlap each other; \
             spec.priority: 2000000000: must be between -1000000000 and 1000000000; reserved {10.1.0.0/24, 10.1.0.0/25}",
        );
        check(
            r#"{"ipv4":{"blockSize":"28","cidrs":[{"cidr":"10.1.0.0/24"}],"exclude":["10.1.0.0/28"]}}"#,
            "spec: invalid type: string \"28\", expected i32; reserved {10.1.0.0/24}",
        );
        // Ranges in forms that this version does not know; one of them is no range.
        check(
            r#"{"ipv4":{"cidrs":{"10.1.0.0/24":{},"ten":{}}},"ipv6":{"cidrs":["fd00::1/64","fd00::/129"]}}"#,
            "spec: invalid type: map, expected a sequence; reserved {10.1.0.0/24, fd00::/64}",
        );
        // What no pool may have would keep all others from serving.
        for range in ["0.0.0.0/0", "0.0.0.0/1", "127.0.0.0/24", "::/0", "::ffff:0.0.0.0/96", "fc00::/6"] {
            let object = read::<Pools>(&format!(
                r#"{{"metadata":{{"name":"p"}},"spec":{{"ipv4":{{"cidrs":[{{"cidr":"{range}"}},"10.1.0.0/24"]}}}}}}"#
            ));
            let Object::Pool(PoolObject { pool: Err(invalid), .. }) = object else { panic!("{object:?}") };
            assert_eq!(format!("{:?}", invalid.reserved.cidrs), "{10.1.0.0/24}", "{range}");
        }
        check("null", "spec: invalid type: null, expected struct NodeIPPoolSpec; reserved {}");
    }
}
