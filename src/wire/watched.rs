//! One guard around every object that a watch or list brings: it is read straight into what the world keeps, and
//! one that can't be read is a value too.
//!
//! Without it a single bad object fails the whole page of a list every time, and is silently dropped from a watch.
//! Knows no kind: each kind implements [`Wire`] in its own file. Keeps the invariant that reading a [`Watched`] never
//! fails on valid JSON.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::kind::Kind;
use crate::model::observation::{Object, Unreadable};
use crate::model::revision::{Revision, Store};
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
    /// The version, of the store of the object's kind; `None` where it is no positive integer.
    #[must_use]
    pub fn revision<S: Store>(&self) -> Option<Revision<S>> {
        Revision::parse(&self.resource_version)
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
        #[derive(Deserialize)]
        struct Envelope {
            #[serde(default)]
            metadata: Meta,
        }

        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let json = raw.get();
        let (meta, object) = match serde_json::from_str::<Envelope>(json) {
            Ok(Envelope { metadata }) => {
                let object = metadata.revision().map_or_else(
                    || {
                        Err(format!(
                            "metadata.resourceVersion is `{}`, which is no positive integer",
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
            Object::Unreadable(
                W::KIND,
                Unreadable {
                    name: meta.name.clone(),
                    revision: meta.revision::<W::Store>().map(Into::into),
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

/// Every address and prefix anywhere in an object that can't be read, except in its metadata.
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
pub(super) mod tests {
    use super::*;
    use crate::model::revision::Core;

    /// Reads one object as a watch does.
    pub(in crate::wire) fn read<W: Wire>(json: &str) -> Object {
        serde_json::from_str::<Watched<W>>(json).unwrap().into_object()
    }

    /// A kind of which no object can be read.
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
    fn even_metadata_of_the_wrong_type_is_a_value() {
        let object = read::<Refused>(r#"{"metadata":{"name":5}}"#);
        assert!(matches!(object, Object::Unreadable(Kind::Node, _)), "{object:?}");
    }
}
