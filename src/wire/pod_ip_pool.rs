//! CiliumPodIPPools on the wire: the families of each, with `maskSize` and ranges. Nothing else is kept.
//!
//! Reading one never fails: a family that can't be read counts as absent, as for agents. A patch changes two fields of
//! a family. An entry that is more than a CIDR is written as it was read, so fields of a newer Cilium stay.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cilium_group::{ApiVersion, GROUP};
use super::json::text;
use super::precondition::bound_to;
use super::side_watched::{KindPath, SideKind};
use super::watched::Meta;
use crate::model::pod_ip_pool::{PodIpPool, PodIpRange, PodIpRanges};
use crate::model::request::PodIpPoolWrite;
use crate::net::cidr::Family;

/// The kind.
pub const KIND: &str = "CiliumPodIPPool";
/// The name in paths.
pub const PLURAL: &str = "ciliumpodippools";

/// The label that marks an object of the controller, and its value.
pub const OURS: (&str, &str) = ("app.kubernetes.io/managed-by", "cilium-node-ipam");

impl SideKind for PodIpPool {
    type Served = ApiVersion;

    fn path(version: &ApiVersion) -> KindPath {
        KindPath { group: GROUP, version: version.as_str(), kind: KIND, plural: PLURAL }
    }

    /// Its content; `None` if it has no version.
    fn read(json: &str, meta: &Meta) -> Option<Self> {
        let object: Value = serde_json::from_str(json).unwrap_or_default();
        Some(Self {
            name: meta.name.as_str().into(),
            uid: meta.uid.as_str().into(),
            revision: meta.revision()?,
            families: families(&object["spec"]),
            is_ours: object["metadata"]["labels"][OURS.0] == OURS.1,
        })
    }
}

/// The object that a write creates in this version; `None` if the write adds to one.
#[must_use]
pub fn new_pod_ip_pool(write: &PodIpPoolWrite, version: ApiVersion) -> Option<Value> {
    write.on.is_none().then(|| {
        json!({
            "apiVersion": format!("{GROUP}/{}", version.as_str()),
            "kind": KIND,
            "metadata": {"name": write.name.as_str(), "labels": {(OURS.0): OURS.1}},
            "spec": spec_of(write),
        })
    })
}

/// The merge patch of a write that adds to an object, for the version that it was decided on.
#[must_use]
pub fn patch(write: &PodIpPoolWrite) -> Option<Value> {
    let (uid, revision) = write.on.as_ref()?;
    Some(bound_to(uid, revision, json!({"spec": spec_of(write)})))
}

/// Pods may not get the first and last address of a CIDR, as by default: blocks are counted without them.
fn spec_of(write: &PodIpPoolWrite) -> Value {
    let families = write.families.iter().map(|(family, ranges)| {
        let cidrs: Vec<Value> = ranges.cidrs.iter().map(entry_of).collect();
        let ranges = json!({"cidrs": cidrs, "maskSize": ranges.mask_size});
        (family.as_str().to_owned(), ranges)
    });
    Value::Object(families.collect())
}

/// An entry of `cidrs`.
fn entry_of(range: &PodIpRange) -> Value {
    // It was written by `range_of`, from JSON.
    let entry = range.entry.as_ref().and_then(|json| serde_json::from_str(json).ok());
    entry.unwrap_or_else(|| json!(range.cidr))
}

fn range_of(entry: &Value) -> PodIpRange {
    match entry.as_str() {
        Some(cidr) => cidr.to_owned().into(),
        None => PodIpRange { cidr: text(&entry["cidr"]).to_owned(), entry: Some(entry.to_string()) },
    }
}

fn families(spec: &Value) -> BTreeMap<Family, PodIpRanges> {
    let ranges = |family: Family| {
        let ranges = &spec[family.as_str()];
        let mask_size = u8::try_from(ranges["maskSize"].as_u64()?).ok()?;
        let cidrs = ranges["cidrs"].as_array().into_iter().flatten();
        Some((family, PodIpRanges { mask_size, cidrs: cidrs.map(range_of).collect() }))
    };
    Family::ALL.into_iter().filter_map(ranges).collect()
}

#[cfg(test)]
mod tests {
    use super::super::side_watched::tests::read;
    use super::*;
    use crate::model::revision::Revision;

    #[test]
    fn what_can_be_read_of_it_counts() {
        let metadata = json!({"name": "web", "uid": "u", "resourceVersion": "7"});
        let sizes = |spec: Value| {
            let pool: PodIpPool = read(&json!({"metadata": metadata, "spec": spec})).unwrap();
            assert_eq!((pool.name.as_str(), pool.is_ours), ("web", false));
            let sizes = pool.families.iter().map(|(family, ranges)| format!("{family} {}", ranges.mask_size));
            sizes.collect::<Vec<_>>().join(", ")
        };
        let v4 = json!({"cidrs": ["10.1.0.0/16"], "maskSize": 26});
        let v6 = json!({"cidrs": ["fd00::/64"], "maskSize": 122});
        assert_eq!(sizes(json!({})), "");
        assert_eq!(sizes(json!({"ipv4": v4, "ipv6": v6})), "ipv4 26, ipv6 122");
        assert_eq!(sizes(json!({"ipv4": {"cidrs": 5}, "ipv6": v6})), "ipv6 122");
        assert_eq!(sizes(Value::Null), "");
        assert_eq!(read::<PodIpPool>(&json!({"metadata": {"name": "web"}})), None, "without a version");
    }

    #[test]
    fn the_label_says_whose_it_is() {
        let labels = |value: &str| json!({(OURS.0): value, "advertised": "yes"});
        let of = |labels: Value| {
            let object = json!({"metadata": {"name": "web", "resourceVersion": "7", "labels": labels}});
            read::<PodIpPool>(&object).unwrap().is_ours
        };
        assert!(of(labels("cilium-node-ipam")));
        assert!(!of(labels("helm")) && !of(Value::Null));
    }

    #[test]
    fn what_is_written_is_read_as_ours() {
        let ranges = |mask_size, cidr: &str| PodIpRanges { mask_size, cidrs: vec![cidr.to_owned().into()] };
        let families = [(Family::V4, ranges(26, "10.1.0.0/16")), (Family::V6, ranges(122, "fd00::/64"))];
        let write =
            PodIpPoolWrite { pool: "p".into(), name: "web".into(), on: None, families: families.into() };
        let mut created = new_pod_ip_pool(&write, ApiVersion::V2).unwrap();
        assert_eq!(created["apiVersion"], "cilium.io/v2");
        assert_eq!(patch(&write), None);
        created["metadata"]["resourceVersion"] = json!("7");
        let found: PodIpPool = read(&created).unwrap();
        assert!(found.is_ours && write.is_shown_by(&found), "{found:?}");
        let later = PodIpPoolWrite { on: Some(("u".into(), Revision::of(7))), ..write };
        assert_eq!(new_pod_ip_pool(&later, ApiVersion::V2), None);
        let patch = patch(&later).unwrap();
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}), "and no labels");
        assert_eq!(patch["spec"]["ipv6"], json!({"cidrs": ["fd00::/64"], "maskSize": 122}));
    }

    /// A merge patch replaces the whole list.
    #[test]
    fn an_entry_that_only_a_newer_cilium_knows_is_written_as_it_was_read() {
        let known =
            json!({"cidr": "10.1.0.0/16", "reservedRanges": [{"start": "10.1.0.5", "end": "10.1.0.9"}]});
        let spec = json!({"ipv4": {"cidrs": ["10.0.0.0/16", known, 5], "maskSize": 26}});
        let metadata = json!({"name": "web", "uid": "u", "resourceVersion": "7"});
        let mut ranges = read::<PodIpPool>(&json!({"metadata": metadata, "spec": spec})).unwrap().families;
        let of_family = ranges.get_mut(&Family::V4).unwrap();
        let cidrs: Vec<&str> = of_family.cidrs.iter().map(|range| range.cidr.as_str()).collect();
        assert_eq!(cidrs, ["10.0.0.0/16", "10.1.0.0/16", ""]);
        of_family.cidrs.push("10.2.0.0/16".to_owned().into());
        let on = Some(("u".into(), Revision::of(7)));
        let write = PodIpPoolWrite { pool: "p".into(), name: "web".into(), on, families: ranges };
        let written = &patch(&write).unwrap()["spec"]["ipv4"]["cidrs"];
        assert_eq!(written, &json!(["10.0.0.0/16", known, 5, "10.2.0.0/16"]));
    }
}
