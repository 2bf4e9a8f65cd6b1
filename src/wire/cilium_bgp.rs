//! CiliumBGPAdvertisements and CiliumBGPPeeringPolicies on the wire: whether one announces the blocks of nodes.
//!
//! Reading one never fails: an unreadable part announces nothing, as for agents.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::cilium_group::{CiliumVersion, GROUP};
use super::watched::Meta;
use crate::model::speaker::{Speaker, SpeakerKind};

/// The name of a kind in paths.
#[must_use]
pub const fn plural(kind: SpeakerKind) -> &'static str {
    match kind {
        SpeakerKind::Advertisement => "ciliumbgpadvertisements",
        SpeakerKind::PeeringPolicy => "ciliumbgppeeringpolicies",
    }
}

/// An object of these kinds as a watch shows it.
#[derive(Debug, Clone)]
pub struct WatchedSpeaker {
    meta: ObjectMeta,
    speaker: Speaker,
}

impl WatchedSpeaker {
    /// Its value.
    #[must_use]
    pub fn into_speaker(self) -> Option<Speaker> {
        Some(self.speaker)
    }
}

impl<'de> Deserialize<'de> for WatchedSpeaker {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let meta = object.get("metadata").and_then(|meta| Meta::deserialize(meta).ok()).unwrap_or_default();
        let announces_blocks = announces_blocks(&object["spec"]);
        let speaker = Speaker { name: meta.name.clone(), announces_blocks };
        Ok(Self { meta: meta.into(), speaker })
    }
}

fn announces_blocks(spec: &Value) -> bool {
    let any =
        |list: &Value, is: fn(&Value) -> bool| list.as_array().is_some_and(|items| items.iter().any(is));
    any(&spec["advertisements"], |advertisement| {
        matches!(advertisement["advertisementType"].as_str(), Some("PodCIDR" | "CiliumPodIPPool"))
    }) || any(&spec["virtualRouters"], |router| {
        router["exportPodCIDR"] == true || router["podIPPoolSelector"].is_object()
    })
}

impl Resource for WatchedSpeaker {
    type DynamicType = (SpeakerKind, CiliumVersion);
    type Scope = kube::core::ClusterResourceScope;

    fn kind((kind, _): &Self::DynamicType) -> Cow<'_, str> {
        kind.as_str().into()
    }

    fn group(_: &Self::DynamicType) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((_, version): &Self::DynamicType) -> Cow<'_, str> {
        version.as_str().into()
    }

    fn plural((kind, _): &Self::DynamicType) -> Cow<'_, str> {
        plural(*kind).into()
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
    fn an_object_announces_blocks_if_one_of_its_parts_does() {
        let announces = |spec: Value| {
            let object = json!({"metadata": {"name": "x", "resourceVersion": "5"}, "spec": spec});
            serde_json::from_value::<WatchedSpeaker>(object).unwrap().into_speaker().unwrap().announces_blocks
        };
        let of_type = |name: &str| json!({"advertisements": [{"advertisementType": "Service"}, {"advertisementType": name}]});
        assert!(announces(of_type("PodCIDR")) && announces(of_type("CiliumPodIPPool")));
        assert!(!announces(of_type("Interface")));
        let router = |router: Value| json!({"virtualRouters": [{}, router]});
        assert!(announces(router(json!({"exportPodCIDR": true}))));
        assert!(announces(router(json!({"podIPPoolSelector": {}}))));
        assert!(!announces(router(json!({"exportPodCIDR": false, "podIPPoolSelector": null}))));
        assert!(!announces(Value::Null) && !announces(json!({"advertisements": 5})));
    }
}
