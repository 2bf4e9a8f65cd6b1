//! Objects of the kind ClusterCIDR with one range and several sizes, as one pool.
//!
//! Two pools can't share a range, and a pool can have blocks of several sizes.

use serde_json::{Map, Value, json};

use super::cluster_cidr::requirement;
use super::predicate::{Predicate, Requirements};
use crate::wire::json::text;

/// The pools that these pools become, and a sentence for each that has the range of another.
#[must_use]
pub fn merge(pools: Vec<Value>) -> (Vec<Value>, Vec<String>) {
    let (mut merged, mut notes): (Vec<Vec<Value>>, Vec<String>) = (Vec::new(), Vec::new());
    for pool in pools {
        match merged.iter_mut().find(|group| ranges(&group[0]) == ranges(&pool)) {
            Some(group) => group.push(pool),
            None => merged.push(vec![pool]),
        }
    }
    let pools = merged.into_iter().flat_map(|group| match of_group(&group) {
        Some(Ok(pool)) => {
            let others = group[1..].iter().map(name).collect::<Vec<_>>().join(", ");
            notes.push(format!(
                "{others} has the range of {}: one pool, with a block size for the nodes of each",
                name(&group[0])
            ));
            vec![pool]
        }
        Some(Err(why)) => {
            notes.push(format!("{} and others have one range, and stay apart: {why}", name(&group[0])));
            group
        }
        None => group,
    });
    (pools.collect(), notes)
}

fn name(pool: &Value) -> &str {
    text(&pool["metadata"]["name"])
}

/// The CIDRs of each family.
fn ranges(pool: &Value) -> [&Value; 2] {
    ["ipv4", "ipv6"].map(|family| &pool["spec"][family]["cidrs"])
}

/// The pool of a group with several members, or why one pool can't select the nodes of all.
fn of_group(group: &[Value]) -> Option<Result<Value, String>> {
    let [first, _, ..] = group else { return None };
    let conditions: Vec<Predicate> = group.iter().map(condition).collect();
    let selector = match Predicate::Any(conditions).requirements() {
        Ok(Requirements { expressions, .. }) => expressions,
        Err(why) => return Some(Err(why)),
    };
    let of_all: Vec<&Value> = group.iter().filter(|pool| expressions(pool).is_empty()).collect();
    if let [one, other, ..] = of_all[..] {
        return Some(Err(format!("{} and {} are both for all nodes", name(one), name(other))));
    }
    let mut spec = Map::new();
    if !selector.is_empty() {
        spec.insert("nodeSelector".to_owned(), json!({ "matchExpressions": selector }));
    }
    for family in ["ipv4", "ipv6"].into_iter().filter(|family| !first["spec"][family].is_null()) {
        let size = |pool: &Value| pool["spec"][family]["blockSize"].as_u64().unwrap_or_default();
        // The one that names more labels comes first.
        let mut sized: Vec<&Value> = group.iter().filter(|pool| !expressions(pool).is_empty()).collect();
        sized.sort_by_key(|pool| std::cmp::Reverse(expressions(pool).len()));
        let usual = of_all.first().map(|pool| size(pool)).or_else(|| group.iter().map(size).max());
        let sized: Vec<Value> = sized
            .into_iter()
            .map(|pool| json!({ "nodeSelector": pool["spec"]["nodeSelector"], "blockSize": size(pool) }))
            .collect();
        let cidrs = &first["spec"][family]["cidrs"];
        spec.insert(family.to_owned(), json!({ "blockSize": usual, "blockSizes": sized, "cidrs": cidrs }));
    }
    let mut pool = first.clone();
    pool["spec"] = Value::Object(spec);
    Some(Ok(pool))
}

fn expressions(pool: &Value) -> &[Value] {
    pool["spec"]["nodeSelector"]["matchExpressions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The condition on the nodes of a pool.
fn condition(pool: &Value) -> Predicate {
    Predicate::All(expressions(pool).iter().filter_map(requirement).collect())
}
