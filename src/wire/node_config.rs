//! CiliumNodeConfigs on the wire: which nodes one selects, and which keys of `cilium-config` it sets for them.
//!
//! Reading one never fails: an unreadable selector selects no node. No agent starts while such an object exists.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::Selector;
use serde::Deserialize;
use serde_json::Value;

use super::cilium_group::{ApiVersion, GROUP};
use super::side_watched::{KindPath, SideKind};
use super::watched::Meta;
use crate::model::node_config::NodeConfig;

/// The kind.
pub const KIND: &str = "CiliumNodeConfig";
/// The name in paths.
pub const PLURAL: &str = "ciliumnodeconfigs";

impl SideKind for NodeConfig {
    type Served = ApiVersion;

    fn path(version: &ApiVersion) -> KindPath {
        KindPath { group: GROUP, version: version.as_str(), kind: KIND, plural: PLURAL }
    }

    fn read(json: &str, meta: &Meta) -> Option<Self> {
        let object: Value = serde_json::from_str(json).unwrap_or_default();
        let defaults = object["spec"]["defaults"].as_object().into_iter().flatten();
        Some(Self {
            name: meta.name.clone(),
            selector: selector(&object["spec"]["nodeSelector"]),
            defaults: defaults
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect::<BTreeMap<String, String>>(),
        })
    }
}

/// The selected nodes: all if the selector is empty, none if it is absent or can't be read.
fn selector(wire: &Value) -> Option<Selector> {
    let wire: Option<LabelSelector> = Deserialize::deserialize(wire).ok()?;
    Selector::try_from(wire?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::side_watched::tests::read;
    use super::*;

    #[test]
    fn it_selects_as_agents_read_it() {
        let metadata = json!({"name": "rack-1", "uid": "u", "resourceVersion": "7"});
        let selects = |selector: Value| {
            let spec = json!({"defaults": {"ipam": "crd", "odd": 5}, "nodeSelector": selector});
            let object = json!({"metadata": metadata, "spec": spec});
            let config: NodeConfig = read(&object).unwrap();
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
