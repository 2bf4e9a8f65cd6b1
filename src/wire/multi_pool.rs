//! `spec.ipam.pools` of a CiliumNode on the wire: the need and the blocks of its agent in each Cilium pool, and our
//! patches.
//!
//! A patch replaces a whole list, so each entry is kept as it was read, with fields that only a newer Cilium knows.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::json::text;
use super::watched::read_cidrs;
use crate::model::kind::Kind;
use crate::model::multi_pool::{Allocated, Entry, PoolsChange, QUESTION, Question, Requested};
use crate::model::node::Malformed;
use crate::model::revision::Revision;
use crate::net::cidr::Family;

/// The two lists, with entries in any form: a malformed entry must not make the whole CiliumNode unreadable.
#[derive(Default, Deserialize)]
pub(super) struct WirePools {
    requested: Option<Vec<Value>>,
    allocated: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
struct WireNeed {
    #[serde(default, rename = "ipv4-addrs")]
    ipv4: u64,
    #[serde(default, rename = "ipv6-addrs")]
    ipv6: u64,
}

/// Reads both lists. A text that is no canonical CIDR is added to `malformed`. The range that it means counts all the
/// same, if it can be real.
pub(super) fn read(pools: WirePools, malformed: &mut Vec<Malformed>) -> (Vec<Requested>, Vec<Allocated>) {
    let requested = pools.requested.unwrap_or_default().iter().map(read_requested).collect();
    let allocated = pools.allocated.unwrap_or_default();
    let allocated =
        allocated.iter().enumerate().map(|(index, entry)| read_allocated(index, entry, malformed));
    (requested, allocated.collect())
}

fn read_requested(entry: &Value) -> Requested {
    let pool = pool_of(entry);
    let needed = entry.get("needed").cloned().and_then(|needed| serde_json::from_value(needed).ok());
    let needed: WireNeed = needed.unwrap_or_default();
    let by_family = [(Family::V4, needed.ipv4), (Family::V6, needed.ipv6)];
    let needed: BTreeMap<Family, u128> = by_family
        .into_iter()
        .filter(|(_, needed)| *needed > 0)
        .map(|(family, needed)| (family, needed.into()))
        .collect();
    // A Pod may ask for a pool of any name. The entry for it has a need, disappears with the Pod, and answers no usage
    // query.
    let asked_as_of = pool.strip_prefix(QUESTION).filter(|_| needed.is_empty()).and_then(Revision::parse);
    Requested { asked_as_of, pool, needed, entry: Entry(entry.to_string()) }
}

fn read_allocated(index: usize, entry: &Value, malformed: &mut Vec<Malformed>) -> Allocated {
    let listed = entry.get("cidrs").and_then(Value::as_array).into_iter().flatten();
    let texts = listed.map(|cidr| cidr.as_str().map_or_else(|| cidr.to_string(), ToOwned::to_owned));
    let field = format!("spec.ipam.pools.allocated[{index}].cidrs");
    let cidrs = read_cidrs(Kind::CiliumNode, &field, texts.collect(), malformed);
    Allocated { pool: pool_of(entry), cidrs, entry: Entry(entry.to_string()) }
}

fn pool_of(entry: &Value) -> String {
    text(&entry["pool"]).to_owned()
}

/// A change of the lists as a merge patch.
pub(super) fn change_patch(change: &PoolsChange) -> Value {
    let pools = match change {
        PoolsChange::Allocate(allocated) => json!({ "allocated": allocated_entries(allocated) }),
        PoolsChange::Ask(question) => json!({ "requested": requested_entries(question) }),
        PoolsChange::Remove { allocated, question, .. } => {
            json!({ "allocated": allocated_entries(allocated), "requested": requested_entries(question) })
        }
    };
    json!({ "spec": { "ipam": { "pools": pools } } })
}

fn requested_entries(question: &Question) -> Vec<Value> {
    let Question { others, as_of } = question;
    let asked = json!({ "pool": format!("{QUESTION}{as_of}"), "needed": {} });
    others.iter().map(|entry| Value::Object(fields(entry))).chain([asked]).collect()
}

fn allocated_entries(allocated: &[Allocated]) -> Vec<Value> {
    allocated.iter().map(allocated_entry).collect()
}

fn allocated_entry(allocated: &Allocated) -> Value {
    let mut entry = fields(&allocated.entry);
    entry.insert("pool".to_owned(), json!(allocated.pool));
    entry.insert(
        "cidrs".to_owned(),
        json!(allocated.cidrs.iter().map(ToString::to_string).collect::<Vec<_>>()),
    );
    Value::Object(entry)
}

fn fields(entry: &Entry) -> Map<String, Value> {
    serde_json::from_str(&entry.0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> (Vec<Requested>, Vec<Allocated>, Vec<Malformed>) {
        let mut malformed = Vec::new();
        let (requested, allocated) = read(serde_json::from_str(text).unwrap(), &mut malformed);
        (requested, allocated, malformed)
    }

    #[test]
    fn demand_and_questions_are_told_apart() {
        let (requested, allocated, malformed) = read_text(
            r#"{"requested":[{"pool":"default","needed":{"ipv4-addrs":16,"ipv6-addrs":8}},{"pool":"mars"},
                {"pool":"nodeipam.io-asked-as-of-41","needed":{}}]}"#,
        );
        let shown: Vec<String> = requested
            .iter()
            .map(|entry| {
                format!("{} {:?} {:?}", entry.pool, entry.needed, entry.asked_as_of.map(Revision::number))
            })
            .collect();
        assert_eq!(
            shown,
            ["default {V4: 16, V6: 8} None", "mars {} None", "nodeipam.io-asked-as-of-41 {} Some(41)"]
        );
        assert_eq!((allocated, malformed), (vec![], vec![]));
    }

    /// A user who may create Pods may name any pool in them.
    #[test]
    fn a_pool_that_is_named_like_a_question_and_needed_is_none() {
        let (requested, ..) =
            read_text(r#"{"requested":[{"pool":"nodeipam.io-asked-as-of-41","needed":{"ipv4-addrs":8}}]}"#);
        assert_eq!(requested[0].asked_as_of, None);
        assert_eq!(requested[0].needed.len(), 1);
    }

    #[test]
    fn text_that_is_no_cidr_is_reported_and_what_it_means_is_taken() {
        let (_, allocated, malformed) = read_text(
            r#"{"allocated":[{"pool":"default","cidrs":["10.0.0.0/28","010.0.0.16/28","10.0.0.33/28","x",7]}]}"#,
        );
        let shown: Vec<String> = malformed.iter().map(|m| format!("{} {}", m.field, m.value)).collect();
        assert_eq!(
            shown,
            [
                "spec.ipam.pools.allocated[0].cidrs[1] 010.0.0.16/28",
                "spec.ipam.pools.allocated[0].cidrs[2] 10.0.0.33/28",
                "spec.ipam.pools.allocated[0].cidrs[3] x",
                "spec.ipam.pools.allocated[0].cidrs[4] 7",
            ]
        );
        assert!(allocated[0].cidrs.contains(&"10.0.0.0/28".parse().unwrap()));
        assert!(allocated[0].cidrs.contains(&"10.0.0.32/28".parse().unwrap()));
    }

    #[test]
    fn a_patch_keeps_what_it_does_not_know() {
        let text = r#"{"allocated":[{"pool":"mars","cidrs":["10.9.0.0/28"],"of":{"a":"newer Cilium"}},
            {"pool":"default","cidrs":["10.0.0.0/28"],"allowFirstIP":true}],
            "requested":[{"pool":"default","needed":{"ipv4-addrs":8},"since":"1.21"}]}"#;
        let (requested, mut allocated, _) = read_text(text);
        allocated[1].cidrs.push("10.0.0.16/28".parse().unwrap());
        assert_eq!(
            change_patch(&PoolsChange::Allocate(allocated.clone())),
            json!({ "spec": { "ipam": { "pools": { "allocated": [
                { "pool": "mars", "cidrs": ["10.9.0.0/28"], "of": { "a": "newer Cilium" } },
                { "pool": "default", "cidrs": ["10.0.0.0/28", "10.0.0.16/28"], "allowFirstIP": true },
            ] } } } })
        );
        let others = requested.into_iter().map(|entry| entry.entry).collect();
        let question = Question { others, as_of: Revision::of(41) };
        let asked = json!([
            { "pool": "default", "needed": { "ipv4-addrs": 8 }, "since": "1.21" },
            { "pool": "nodeipam.io-asked-as-of-41", "needed": {} },
        ]);
        assert_eq!(
            change_patch(&PoolsChange::Ask(question.clone())),
            json!({ "spec": { "ipam": { "pools": { "requested": asked } } } })
        );
        let (off, allocated) = (vec!["10.0.0.0/28".parse().unwrap()], vec![allocated.remove(0)]);
        assert_eq!(
            change_patch(&PoolsChange::Remove { off, allocated, question }),
            json!({ "spec": { "ipam": { "pools": {
                "allocated": [{ "pool": "mars", "cidrs": ["10.9.0.0/28"], "of": { "a": "newer Cilium" } }],
                "requested": asked,
            } } } })
        );
    }
}
