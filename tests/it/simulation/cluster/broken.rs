//! Fields of objects that scripts make unreadable, and repair.

use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::observation::Object;
use serde_json::{Value, json};

use super::super::pools::LABEL;
use super::Cluster;

/// A field that can't be read, and its value before.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    /// The revision at which it became unreadable.
    pub(super) at: u64,
    kind: Kind,
    name: String,
    uid: Value,
    /// The JSON pointer to the part of the object that has the field.
    parent: &'static str,
    field: &'static str,
    before: Option<Value>,
    /// The unreadable value, which replaces the field or is added to it.
    nonsense: Value,
}

/// An unreadable value for an object of a kind, and its place.
fn nonsense(kind: Kind, field: u8) -> (&'static str, &'static str, Value) {
    let ways = match kind {
        Kind::Node => [("/metadata", "labels", json!({ LABEL: 5 })), ("/status", "addresses", json!("none"))],
        Kind::CiliumNode => {
            [("/spec/ipam", "podCIDRs", json!(["10.0.0.0/99"])), ("/spec/ipam", "pool", json!("nothing"))]
        }
        Kind::Pool => [
            ("/spec/ipv4", "blockSize", json!("small")),
            ("/spec", "nodeSelector", json!({ "matchExpressions": [{ "key": LABEL, "operator": "Like" }] })),
        ],
        Kind::Claim => [("/spec", "state", json!("Lost")), ("/spec", "node", json!(7))],
    };
    let [one, other] = ways;
    if field.is_multiple_of(2) { one } else { other }
}

pub(super) fn change(json: &mut Value, parent: &str, field: &str, to: Option<Value>) {
    let Some(parent) = json.pointer_mut(parent).and_then(Value::as_object_mut) else { return };
    match to {
        Some(value) => drop(parent.insert(field.to_owned(), value)),
        None => drop(parent.remove(field)),
    }
}

impl Cluster {
    pub(super) fn object_breaks(&mut self, kind: Kind, which: u8, field: u8) {
        let Some(name) = self.some_object(kind, which) else { return };
        let Some(stored) = self.store.stored(kind, &name).cloned() else { return };
        if matches!(stored.object, Object::Unreadable(..)) {
            return;
        }
        let (parent, field, nonsense) = nonsense(kind, field);
        let Some(holder) = stored.json.pointer(parent) else { return };
        let before = holder.get(field).cloned();
        let uid = stored.json["metadata"]["uid"].clone();
        let instead = match (&before, &nonsense) {
            // The values before stay beside the unreadable one.
            (Some(Value::Array(before)), Value::Array(added)) => json!([&before[..], &added[..]].concat()),
            _ => nonsense.clone(),
        };
        // Administrators edit pools. An editor of a node's objects is another writer.
        match &stored.object {
            Object::Pool(_) => {}
            Object::Node(_) | Object::CiliumNode(_) => self.taint(&name.as_str().into()),
            Object::Claim(claim) => self.taint(&claim.node.clone()),
            Object::Unreadable(..) => return,
        }
        if self.store.edit(kind, &name, |json| change(json, parent, field, Some(instead))) {
            let at = self.store.revision().number();
            self.broken.push(Broken { at, kind, name, uid, parent, field, before, nonsense });
        }
    }

    pub(super) fn objects_are_mended(&mut self) {
        // The last one first, because one field may have been broken twice. All are kept: a backup may bring them back.
        for Broken { kind, name, uid, parent, field, before, nonsense, .. } in self.broken.iter().rev() {
            let Some(stored) = self.store.stored(*kind, name) else { continue };
            // It may have been recreated.
            if stored.json["metadata"]["uid"] != *uid {
                continue;
            }
            let mended = match (stored.json.pointer(parent).and_then(|parent| parent.get(field)), nonsense) {
                (Some(Value::Array(now)), Value::Array(added)) => {
                    Some(now.iter().filter(|item| !added.contains(item)).cloned().collect())
                }
                (Some(now), nonsense) if now == nonsense => before.clone(),
                _ => continue,
            };
            self.store.edit(*kind, name, |json| change(json, parent, field, mended));
        }
    }
}
