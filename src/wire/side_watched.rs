//! Objects of kinds beside the world, as a watch or a list shows them.
//!
//! Reading one never fails: the parts that can't be read are unknown. Knows no kind: each implements [`SideKind`] in
//! its own file.

use std::borrow::Cow;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::watched::Meta;

/// How the objects of one kind are found and read. The kind implements it as the value that the core has of an object.
pub trait SideKind: Debug + Clone + Send + Sync + 'static {
    /// The facts needed to find them, such as the version that the server serves.
    type Served: Send + Sync + 'static;

    /// Where they are.
    #[must_use]
    fn path(served: &Self::Served) -> KindPath;

    /// The value of an object; `None` if nothing can be known of it.
    #[must_use]
    fn read(json: &str, meta: &Meta) -> Option<Self>;
}

/// The names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindPath {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The name in paths.
    pub plural: &'static str,
}

/// An object as the server has it, and its value.
#[derive(Debug, Clone)]
pub struct SideWatched<V> {
    meta: ObjectMeta,
    value: Option<V>,
}

impl<V> SideWatched<V> {
    /// The value; `None` if nothing can be known of the object.
    #[must_use]
    pub fn into_value(self) -> Option<V> {
        self.value
    }
}

impl<'de, V: SideKind> Deserialize<'de> for SideWatched<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let meta = Meta::of_object(raw.get()).unwrap_or_default();
        let value = V::read(raw.get(), &meta);
        Ok(Self { meta: meta.into(), value })
    }
}

impl<V: SideKind> Resource for SideWatched<V> {
    type DynamicType = V::Served;
    type Scope = DynamicResourceScope;

    fn kind(served: &V::Served) -> Cow<'_, str> {
        V::path(served).kind.into()
    }

    fn group(served: &V::Served) -> Cow<'_, str> {
        V::path(served).group.into()
    }

    fn version(served: &V::Served) -> Cow<'_, str> {
        V::path(served).version.into()
    }

    fn plural(served: &V::Served) -> Cow<'_, str> {
        V::path(served).plural.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::Value;

    use super::*;

    /// Reads one object as a watch does.
    pub(in crate::wire) fn read<V: SideKind>(object: &Value) -> Option<V> {
        serde_json::from_value::<SideWatched<V>>(object.clone()).unwrap().into_value()
    }
}
