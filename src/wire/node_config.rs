//! CiliumNodeConfigs on the wire: which nodes one selects, and which keys of `cilium-config` it sets for them.
//!
//! Reading one never fails: one whose selector can't be read selects nobody. No agent starts beside such an object.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;
use kube_core::Selector;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::cilium_group::{CiliumVersion, GROUP};
use super::watched::Meta;
use crate::model::node_config::NodeConfig;

/// The kind.
pub const KIND: &str = "CiliumNodeConfig";
/// The name in paths.
pub const PLURAL: &str = "ciliumnodeconfigs";

/// A CiliumNodeConfig as a watch shows it.
#[derive(Debug, Clone)]
pub struct WatchedNodeConfig {
    meta: ObjectMeta,
    config: NodeConfig,
}

impl WatchedNodeConfig {
    /// What it says.
    #[must_use]
    pub fn into_config(self) -> NodeConfig {
        self.config
    }
}

impl<'de> Deserialize<'de> for WatchedNodeConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let meta = object.get("metadata").and_then(|meta| Meta::deserialize(meta).ok()).unwrap_or_default();
        let defaults = object["spec"]["defaults"].as_object().into_iter().flatten();
        let config = NodeConfig {
            name: meta.name.clone(),
            selector: selector(&object["spec"]["nodeSelector"]),
            defaults: defaults
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect::<BTreeMap<String, String>>(),
        };
        Ok(Self { meta: meta.into(), config })
    }
}

/// Which nodes are selected: all by an empty selector, none without one or by one that can't be read.
fn selector(wire: &Value) -> Option<Selector> {
    let wire: Option<LabelSelector> = Deserialize::deserialize(wire).ok()?;
    Selector::try_from(wire?).ok()
}

impl Resource for WatchedNodeConfig {
    type DynamicType = CiliumVersion;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(_: &CiliumVersion) -> Cow<'_, str> {
        KIND.into()
    }

    fn group(_: &CiliumVersion) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version(version: &CiliumVersion) -> Cow<'_, str> {
        version.as_str().into()
    }

    fn plural(_: &CiliumVersion) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_selects_as_agents_read_it() {
        let metadata = json!({"name": "rack-1", "uid": "u", "resourceVersion": "7"});
        let selects = |selector: Value| {
            let spec = json!({"defaults": {"ipam": "crd", "odd": 5}, "nodeSelector": selector});
            let object = json!({"metadata": metadata, "spec": spec});
            let config = serde_json::from_value::<WatchedNodeConfig>(object).unwrap().into_config();
            assert_eq!(config.name, "rack-1");
            assert_eq!(config.defaults, [("ipam".to_owned(), "crd".to_owned())].into());
            ["1", "2"].map(|rack| config.selects(&[("rack".to_owned(), rack.to_owned())].into()))
        };
        assert_eq!(selects(json!({"matchLabels": {"rack": "1"}})), [true, false]);
        let odd = json!({"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["1"]}]});
        assert_eq!(selects(odd), [false, true]);
        assert_eq!(selects(json!({})), [true, true]);
        assert_eq!(selects(Value::Null), [false, false]);
        let unknown = json!({"matchExpressions": [{"key": "rack", "operator": "Near", "values": ["1"]}]});
        assert_eq!(selects(unknown), [false, false]);
        assert_eq!(selects(json!(5)), [false, false]);
    }
}
