//! A guard around every object that a watch or a list shows. It reads the object straight into the value that the world
//! keeps, and an unreadable object becomes a value too.
//!
//! Without it, a single bad object fails the whole page of a list every time, and a watch drops it silently. Knows no
//! kind: each kind implements [`Wire`] in its own file. Invariant: reading a [`Watched`] never fails on valid JSON.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::kind::Kind;
use crate::model::names::{NodeName, PoolName};
use crate::model::node::Malformed;
use crate::model::observation::{Object, Unreadable};
use crate::model::pool::widest_block;
use crate::model::revision::{Revision, Store};
use crate::model::time::Timestamp;
use crate::net::addresses::AddressSet;
use crate::net::cidr::{Cidr, Family};

/// The shortest prefixes that one node can have in any mode of Cilium or Kubernetes. By default a node gets a /24, and
/// /64 or /120 of IPv6; both can be set. A /16 has a hundred times the addresses that a kubelet needs for its pods. A
/// /48 is the prefix of a whole site (RFC 4193, RFC 6177). The range of a cluster is mostly wider: `10.0.0.0/8`.
const SHORTEST_OF_A_NODE: (u8, u8) = (16, 48);
/// The shortest prefixes of a pool: no private range is larger than `10.0.0.0/8` (RFC 1918) and `fd00::/8` (RFC 4193).
const SHORTEST_OF_A_POOL: (u8, u8) = (8, 8);

/// Whether a range in an object of this kind can be real: a claim has one block, and other objects of nodes have at
/// most the addresses of one node. A wider range is a mistake, and would occupy every pool of the cluster.
///
/// So would an IPv6 range around the IPv4-mapped addresses, such as `::/64`: on the number line it contains all of
/// IPv4. No pool can have IPv6 addresses of that range.
fn can_be_real(kind: Kind, range: Cidr) -> bool {
    let (ipv4, ipv6) = match kind {
        Kind::Claim => (widest_block(Family::V4), widest_block(Family::V6)),
        Kind::Node | Kind::CiliumNode => SHORTEST_OF_A_NODE,
        Kind::Pool => SHORTEST_OF_A_POOL,
    };
    let has_all_of_ipv4 = || range.contains(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    match range.family() {
        Family::V4 => range.prefix_len() >= ipv4,
        Family::V6 => range.prefix_len() >= ipv6 && !has_all_of_ipv4(),
    }
}

/// The CIDRs of a list. A text in unusual form occupies the range that it means, and is reported as well.
pub(super) fn read_cidrs(
    kind: Kind,
    field: &str,
    texts: Vec<String>,
    malformed: &mut Vec<Malformed>,
) -> Vec<Cidr> {
    let mut cidrs = Vec::with_capacity(texts.len());
    for (index, text) in texts.into_iter().enumerate() {
        let meant = Cidr::parse_lenient(&text).filter(|cidr| can_be_real(kind, *cidr));
        cidrs.extend(meant);
        if meant.is_none() || text.parse::<Cidr>().is_err() {
            malformed.push(Malformed { field: format!("{field}[{index}]"), value: text });
        }
    }
    cidrs
}

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

/// The metadata that a watch needs of an object.
impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> Self {
        Self {
            name: Some(meta.name),
            uid: Some(meta.uid),
            resource_version: Some(meta.resource_version),
            ..Self::default()
        }
    }
}

impl Meta {
    /// The metadata of the object in this JSON; empty if it has none.
    pub(super) fn of_object(json: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Envelope {
            #[serde(default)]
            metadata: Meta,
        }

        Ok(serde_json::from_str::<Envelope>(json)?.metadata)
    }

    /// The version, of the store of the object's kind; `None` if it is not a positive integer.
    #[must_use]
    pub fn revision<S: Store>(&self) -> Option<Revision<S>> {
        Revision::parse(&self.resource_version)
    }

    /// When the object was created. If that can't be read: the epoch, and so the object counts as the oldest of all.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        self.creation_timestamp.as_deref().and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Whether the object is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// How the objects of one kind are found and read; each kind implements it in the file of its wire types.
pub trait Wire: std::fmt::Debug + Clone + Send + Sync + 'static {
    /// The kind.
    const KIND: Kind;
    /// API group; empty for the core group.
    const GROUP: &'static str;
    /// API version.
    const VERSION: &'static str;
    /// The name in paths.
    const PLURAL: &'static str;
    /// The store that objects of the kind live in.
    type Store: Store;

    /// The node of an unreadable object, if it names one.
    #[must_use]
    fn node_named_in(_object: &Value) -> Option<NodeName> {
        None
    }

    /// The pool of an unreadable object, if it names one.
    #[must_use]
    fn pool_named_in(_object: &Value) -> Option<PoolName> {
        None
    }

    /// Reads one object, in this version.
    fn read(json: &str, meta: &Meta, revision: Revision<Self::Store>) -> Result<Object, String>;
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
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let json = raw.get();
        let (meta, object) = match Meta::of_object(json) {
            Ok(metadata) => {
                let object = metadata.revision().map_or_else(
                    || {
                        Err(format!(
                            "metadata.resourceVersion is `{}`, which is not a positive integer",
                            metadata.resource_version
                        ))
                    },
                    |revision| W::read(json, &metadata, revision),
                );
                (metadata, object)
            }
            Err(error) => (Meta::default(), Err(error.to_string())),
        };
        let object = object.unwrap_or_else(|reason| {
            let object = serde_json::from_str::<Value>(json).unwrap_or_default();
            let named = every_address_in(W::KIND, &object);
            Object::Unreadable(
                W::KIND,
                Unreadable {
                    name: meta.name.clone(),
                    revision: meta.revision::<W::Store>().map(Into::into),
                    node: W::node_named_in(&object),
                    pool: W::pool_named_in(&object),
                    reason: named.added_to(reason),
                    addresses: named.taken,
                },
            )
        });
        Ok(Self { meta: meta.into(), object, wire: PhantomData })
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

/// The addresses and ranges in an unreadable object.
struct Named {
    kind: Kind,
    /// The addresses, and the ranges that can be real.
    taken: AddressSet,
    /// The ranges that can't be real.
    too_wide: BTreeSet<Cidr>,
}

impl Named {
    fn insert(&mut self, text: &str) {
        if let Ok(address) = text.parse::<IpAddr>() {
            self.taken.insert(address);
        } else if let Some(range) = Cidr::parse_lenient(text) {
            if can_be_real(self.kind, range) {
                self.taken.insert_cidr(range);
            } else {
                self.too_wide.insert(range);
            }
        }
    }

    /// Why the object can't be read, and which of its ranges are not taken.
    fn added_to(&self, reason: String) -> String {
        if self.too_wide.is_empty() {
            return reason;
        }
        let ranges: Vec<String> = self.too_wide.iter().map(ToString::to_string).collect();
        let holder = match self.kind {
            Kind::Claim => "block",
            Kind::Node | Kind::CiliumNode => "node",
            Kind::Pool => "pool",
        };
        format!("{reason}; too wide for any {holder} and therefore ignored: {}", ranges.join(" "))
    }
}

/// Every address and prefix anywhere in an unreadable object, except in its metadata.
fn every_address_in(kind: Kind, object: &Value) -> Named {
    let mut named = Named { kind, taken: AddressSet::new(), too_wide: BTreeSet::new() };
    let fields = object.as_object().into_iter().flatten().filter(|(key, _)| *key != "metadata");
    each_text_in(fields.map(|(_, value)| value).collect(), |text| named.insert(text));
    named
}

/// Calls `take` for every text anywhere in these values, keys of maps included.
pub(super) fn each_text_in(mut open: Vec<&Value>, mut take: impl FnMut(&str)) {
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => take(text),
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                fields.keys().for_each(|key| take(key));
                open.extend(fields.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::revision::Core;

    /// Reads one object as a watch does.
    pub(in crate::wire) fn read<W: Wire>(json: &str) -> Object {
        serde_json::from_str::<Watched<W>>(json).unwrap().into_object()
    }

    /// A kind without readable objects.
    #[derive(Debug, Clone)]
    struct Refused;

    impl Wire for Refused {
        const KIND: Kind = Kind::Node;
        const GROUP: &'static str = "";
        const VERSION: &'static str = "v1";
        const PLURAL: &'static str = "nodes";
        type Store = Core;

        fn read(_: &str, _: &Meta, _: Revision<Core>) -> Result<Object, String> {
            Err("refused".to_owned())
        }
    }

    #[test]
    fn what_cannot_be_read_is_taken_and_reported() {
        let object = read::<Refused>(
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7","annotations":{"a":"1.1.1.1"}},
                "spec":{"ipam":{"podCIDRs":"10.0.0.0/27","pool":{"10.0.9.1":{}}}},
                "status":{"ipam":{"used":{"10.0.9.9":{"owner":"ns/p"}}}}}"#,
        );
        let Object::Unreadable(Kind::Node, unreadable) = object else { panic!("{object:?}") };
        assert_eq!(
            (unreadable.name.as_str(), unreadable.revision),
            ("n", Some(Revision::<Core>::of(7).into()))
        );
        assert_eq!(format!("{:?}", unreadable.addresses), "{10.0.0.0/27, 10.0.9.1/32, 10.0.9.9/32}");
        assert_eq!(unreadable.reason, "refused");
    }

    #[test]
    fn a_range_too_wide_for_a_node_takes_nothing_and_is_named() {
        let object = read::<Refused>(
            r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7"},
                "spec":{"podCIDRs":["0.0.0.0/0","::/0","10.0.0.0/7","fd00::/7","::ffff:0.0.0.0/97","::/80"],
                        "clusters":["10.0.0.0/15","fd00::/47"],
                        "nodes":["10.0.0.0/16","fd00::/48","192.0.2.0/24","::1:0:0:0/80"],"pool":{"11.0.0.1":{}}}}"#,
        );
        let Object::Unreadable(_, unreadable) = object else { panic!("{object:?}") };
        assert_eq!(
            format!("{:?}", unreadable.addresses),
            "{10.0.0.0/16, 11.0.0.1/32, 192.0.2.0/24, ::1:0:0:0/80, fd00::/48}"
        );
        assert_eq!(
            unreadable.reason,
            "refused; too wide for any node and therefore ignored: ::/0 ::/80 0.0.0.0/0 0.0.0.0/1 10.0.0.0/7 10.0.0.0/15 \
             fc00::/7 fd00::/47"
        );
    }

    /// A claim has one block, and the definition of claims limits its size.
    #[test]
    fn a_claim_takes_no_more_than_the_largest_block() {
        let object = read::<crate::wire::Claims>(
            r#"{"metadata":{"name":"x","uid":"u","resourceVersion":"7"},
                "spec":{"cidr":"10.0.0.0/8","node":"a","withhold":["10.0.0.0/15","10.2.0.0/16","fd00::/63","fd00:1::/64"]}}"#,
        );
        let Object::Unreadable(Kind::Claim, unreadable) = object else { panic!("{object:?}") };
        assert_eq!(format!("{:?}", unreadable.addresses), "{10.2.0.0/16, fd00:1::/64}");
        let too_wide = "too wide for any block and therefore ignored: 10.0.0.0/8 10.0.0.0/15 fd00::/63";
        assert!(unreadable.reason.ends_with(too_wide), "{}", unreadable.reason);
    }

    #[test]
    fn even_metadata_of_the_wrong_type_is_a_value() {
        let object = read::<Refused>(r#"{"metadata":{"name":5}}"#);
        assert!(matches!(object, Object::Unreadable(Kind::Node, _)), "{object:?}");
    }
}
