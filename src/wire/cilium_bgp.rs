//! CiliumBGPAdvertisements and CiliumBGPPeeringPolicies on the wire: whether one announces the blocks of nodes.
//!
//! Reading one never fails: an unreadable part announces nothing, as for agents.

use serde_json::Value;

use super::cilium_group::{ApiVersion, GROUP};
use super::side_watched::{KindPath, SideKind};
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

impl SideKind for Speaker {
    type Served = (SpeakerKind, ApiVersion);

    fn path((kind, version): &Self::Served) -> KindPath {
        KindPath { group: GROUP, version: version.as_str(), kind: kind.as_str(), plural: plural(*kind) }
    }

    fn read(json: &str, meta: &Meta) -> Option<Self> {
        let object: Value = serde_json::from_str(json).unwrap_or_default();
        Some(Self { name: meta.name.clone(), announces_blocks: announces_blocks(&object["spec"]) })
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::side_watched::tests::read;
    use super::*;

    #[test]
    fn an_object_announces_blocks_if_one_of_its_parts_does() {
        let announces = |spec: Value| {
            let object = json!({"metadata": {"name": "x", "resourceVersion": "5"}, "spec": spec});
            read::<Speaker>(&object).unwrap().announces_blocks
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
