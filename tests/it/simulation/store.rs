//! The API server as far as the controller can see it: JSON objects of four kinds under one revision counter. It has
//! creation that fails where the name exists, merge patches and deletions with preconditions, finalizers, consistent
//! lists, and a history per kind.
//!
//! It shows the objects that `wire` reads from the JSON, once per version. It knows only those rules of the product
//! that the definitions of its kinds let the server enforce. With a [`Defect`] it breaks a rule of its own, to prove
//! that the judge notices.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use cilium_node_ipam::model::claim::{Claim, block_name};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::{NodeName, Uid};
use cilium_node_ipam::model::node::{CiliumNode, Node};
use cilium_node_ipam::model::observation::{Object, Observation};
use cilium_node_ipam::model::pool::Pool;
use cilium_node_ipam::model::revision::{AnyRevision, Revision};
use cilium_node_ipam::model::time::Timestamp;
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::Cidr;
use cilium_node_ipam::publisher::carried_by_cilium_node;
use cilium_node_ipam::wire::watched::{Watched, Wire};
use cilium_node_ipam::wire::{CiliumNodes, Claims, Nodes, Pools};
use serde_json::{Map, Value, json};

use super::cluster::in_seconds;
use super::mode::{Mode, Modes, shown_by_node};

mod admission;
mod agent_pods;

pub(super) use agent_pods::AgentPods;

/// A promise that the server breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defect {
    /// A claim is created although its name exists.
    NamesAreNotUnique,
    /// A patch is applied to any version.
    VersionsAreIgnored,
}

/// The reason why the server refuses a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The object has changed: 404, 409, or 422 about the uid.
    Conflict(String),
    /// The object would break a rule of its definition: 422.
    Invalid(String),
}

/// The part of an object that a patch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Object,
    Status,
}

/// One version of an object: its JSON, and the object that the controller reads from it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    pub(super) json: Value,
    pub(super) object: Object,
}

/// An event of a watch.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) at: Revision,
    pub(super) name: String,
    /// The new version; `None` if the object was deleted.
    stored: Option<Rc<Stored>>,
}

impl Event {
    pub(super) fn observation(&self, kind: Kind) -> Observation {
        match &self.stored {
            Some(stored) => Observation::Applied(Box::new(stored.object.clone())),
            None => Observation::Deleted {
                kind,
                name: self.name.clone(),
                revision: AnyRevision::of(kind, self.at.number()),
            },
        }
    }
}

/// The API server and its objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Store {
    /// The time of its wall clock.
    pub(super) wall: Timestamp,
    defect: Option<Defect>,
    /// The modes of Cilium, which decide how the judge sees carriers.
    pub(super) modes: Modes,
    revision: u64,
    n_uids: u64,
    objects: BTreeMap<(Kind, String), Rc<Stored>>,
    history: BTreeMap<Kind, Vec<Event>>,
    /// The kinds with a webhook that undoes every patch.
    pub(super) undone: BTreeSet<Kind>,
    /// The Pods of Cilium's agents, which have a watch of their own.
    pub(super) agent_pods: AgentPods,
    /// The addresses that the pods of nodes have, where a read of Pods shows them.
    pub(super) holders: BTreeMap<NodeName, BTreeMap<IpAddr, String>>,
    /// Requests that the server refused, and that no replica may send.
    objections: Vec<String>,
}

impl Store {
    pub(super) fn new(wall: Timestamp, modes: Modes, defect: Option<Defect>) -> Self {
        // A store has a revision before it has any object of ours.
        Self { wall, modes, defect, revision: 1, ..Self::default() }
    }

    pub(super) fn revision(&self) -> Revision {
        Revision::of(self.revision)
    }

    /// Records a request that the server refuses in any version. The planner knows the rules, and sends none.
    pub(super) fn object_to(&mut self, request: String) {
        self.objections.push(request);
    }

    pub(super) fn objections(&self) -> &[String] {
        &self.objections
    }

    /// The first event of `kind` after `cursor`.
    pub(super) fn event_after(&self, kind: Kind, cursor: Revision) -> Option<&Event> {
        let history = self.history.get(&kind)?;
        history.get(history.partition_point(|event| event.at <= cursor))
    }

    /// All events of a kind.
    pub(super) fn history(&self, kind: Kind) -> &[Event] {
        self.history.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// Whether the agent of a CiliumNode has ever reported its use there.
    pub(super) fn has_reported(&self, seen: &CiliumNode) -> bool {
        let reports = |object: &Object| matches!(object, Object::CiliumNode(shown) if shown.uid == seen.uid && shown.crd.used.is_some());
        let versions = self.history(Kind::CiliumNode).iter().filter_map(|event| event.stored.as_ref());
        versions
            .filter(|stored| stored.object.name() == seen.name.as_str())
            .any(|stored| reports(&stored.object))
    }

    /// All objects of a kind, by name.
    pub(super) fn list(&self, kind: Kind) -> Vec<Object> {
        self.of_kind(kind).cloned().collect()
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let from = (kind, String::new());
        self.objects
            .range(from..)
            .take_while(move |((of, _), _)| *of == kind)
            .map(|(_, stored)| &stored.object)
    }

    pub(super) fn object(&self, kind: Kind, name: &str) -> Option<&Object> {
        self.stored(kind, name).map(|stored| &stored.object)
    }

    /// The present version of an object.
    pub(super) fn stored(&self, kind: Kind, name: &str) -> Option<&Rc<Stored>> {
        self.objects.get(&(kind, name.to_owned()))
    }

    pub(super) fn node(&self, name: &NodeName) -> Option<&Node> {
        match self.object(Kind::Node, name.as_str()) {
            Some(Object::Node(node)) => Some(node),
            _ => None,
        }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.of_kind(Kind::Node).filter_map(|object| match object {
            Object::Node(node) => Some(node),
            _ => None,
        })
    }

    pub(super) fn cilium_node(&self, name: &NodeName) -> Option<&CiliumNode> {
        match self.object(Kind::CiliumNode, name.as_str()) {
            Some(Object::CiliumNode(cilium_node)) => Some(cilium_node),
            _ => None,
        }
    }

    pub(super) fn cilium_nodes(&self) -> impl Iterator<Item = &CiliumNode> {
        self.of_kind(Kind::CiliumNode).filter_map(|object| match object {
            Object::CiliumNode(cilium_node) => Some(cilium_node),
            _ => None,
        })
    }

    /// The carrier of a node, as the judge sees it.
    pub(super) fn carrier(&self, name: &NodeName) -> Option<Cow<'_, CiliumNode>> {
        // Only the Node says in which mode a node is. After its deletion, a map shows the addresses that it offers.
        let has_map = || self.cilium_node(name).is_some_and(|seen| !seen.crd.pool.is_empty());
        let is_gone = self.modes.are_several() && self.node(name).is_none();
        let mode = if is_gone && has_map() { Mode::Crd } else { self.mode_of(name) };
        self.carrier_in(mode, name)
    }

    /// The same as a process sees it that takes the node for one of this mode.
    pub(super) fn carrier_in(&self, mode: Mode, name: &NodeName) -> Option<Cow<'_, CiliumNode>> {
        match mode {
            Mode::Kubernetes(field) => self.node(name).map(|node| Cow::Owned(shown_by_node(node, field))),
            mode => self.cilium_node(name).map(|seen| mode.shown_by(seen)),
        }
    }

    /// The carriers of all nodes, as the judge sees them.
    pub(super) fn carriers(&self) -> Vec<Cow<'_, CiliumNode>> {
        let mut names: BTreeSet<&NodeName> = self.cilium_nodes().map(|seen| &seen.name).collect();
        names.extend(self.nodes().map(|node| &node.name));
        names.into_iter().filter_map(|name| self.carrier(name)).collect()
    }

    /// The mode of a node now. Its agent has it from the next start of its Pod on.
    pub(super) fn mode_of(&self, name: &NodeName) -> Mode {
        self.node(name).map_or(self.modes.of_all, |node| self.modes.of_labels(&node.labels))
    }

    /// Every range that a node shows anywhere, of any of its modes.
    pub(super) fn shown_anywhere(&self, name: &NodeName) -> AddressSet {
        let mut shown = self.cilium_node(name).map(carried_by_cilium_node).unwrap_or_default();
        if let Some(node) = self.node(name).filter(|_| self.modes.use_nodes()) {
            shown.extend_with(&node.pod_cidrs.iter().copied().collect());
        }
        shown
    }

    pub(super) fn claim(&self, cidr: Cidr) -> Option<&Claim> {
        match self.object(Kind::Claim, &block_name(cidr)) {
            Some(Object::Claim(claim)) => Some(claim),
            _ => None,
        }
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.of_kind(Kind::Claim).filter_map(|object| match object {
            Object::Claim(claim) => Some(claim),
            _ => None,
        })
    }

    /// All claims, readable or not.
    pub(super) fn claims_as_stored(&self) -> impl Iterator<Item = &Stored> {
        self.objects.iter().filter(|((kind, _), _)| *kind == Kind::Claim).map(|(_, stored)| &**stored)
    }

    /// The names of all objects of a kind.
    pub(super) fn names(&self, kind: Kind) -> Vec<String> {
        self.objects.keys().filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect()
    }

    /// All pools that can be read.
    pub(super) fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.of_kind(Kind::Pool).filter_map(|object| match object {
            Object::Pool(object) => object.pool.as_ref().ok(),
            _ => None,
        })
    }

    /// Stores a version of an object, with its new revision in it.
    fn put(&mut self, kind: Kind, name: &str, mut json: Value) -> Rc<Stored> {
        self.revision += 1;
        json["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let stored = Rc::new(Stored { object: read(kind, &json), json });
        self.objects.insert((kind, name.to_owned()), Rc::clone(&stored));
        self.notify(kind, name, Some(Rc::clone(&stored)));
        stored
    }

    fn notify(&mut self, kind: Kind, name: &str, stored: Option<Rc<Stored>>) {
        let event = Event { at: self.revision(), name: name.to_owned(), stored };
        self.history.entry(kind).or_default().push(event);
    }

    /// Removes an object with all its finalizers; `false` if there was none.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) -> bool {
        if self.objects.remove(&(kind, name.to_owned())).is_none() {
            return false;
        }
        self.revision += 1;
        self.notify(kind, name, None);
        true
    }

    /// Returns to the objects at a revision, and continues from there: later revisions are used twice.
    pub(super) fn restore(&mut self, at: u64) {
        self.revision = at;
        self.objects.clear();
        for (kind, events) in &mut self.history {
            events.retain(|event| event.at.number() <= at);
            for Event { name, stored, .. } in events {
                let key = (*kind, name.clone());
                match stored {
                    Some(stored) => drop(self.objects.insert(key, Rc::clone(stored))),
                    None => drop(self.objects.remove(&key)),
                }
            }
        }
    }

    /// Creates an object under a name that is free.
    pub(super) fn create(&mut self, kind: Kind, mut json: Value) -> Result<Rc<Stored>, Refusal> {
        let name = json["metadata"]["name"].as_str().expect("whoever creates an object names it").to_owned();
        let ignores_names = kind == Kind::Claim && self.defect == Some(Defect::NamesAreNotUnique);
        if self.stored(kind, &name).is_some() && !ignores_names {
            return Err(Refusal::Conflict("the name exists".to_owned()));
        }
        self.n_uids += 1;
        json["metadata"]["uid"] = json!(format!("uid-{}", self.n_uids));
        json["metadata"]["creationTimestamp"] = json!(in_seconds(self.wall).to_string());
        json["metadata"]["generation"] = json!(1);
        Ok(self.put(kind, &name, json))
    }

    /// Applies a merge patch to one part of an object. One that changes nothing makes no new version.
    ///
    /// An object that is being deleted is gone with its last finalizer. The server then answers with the patched
    /// object, under the version before.
    pub(super) fn patch(
        &mut self,
        kind: Kind,
        name: &str,
        part: Part,
        patch: &Value,
    ) -> Result<Rc<Stored>, Refusal> {
        if patch["metadata"]["uid"].is_null() {
            // Versions are unique as long as the store is not restored from a backup, so scripts would not notice this.
            self.object_to(format!(
                "a patch of {} {name} does not say which object it is for",
                kind.as_str()
            ));
        }
        let found = Rc::clone(self.stored(kind, name).ok_or_else(absent)?);
        let mut patched = found.json.clone();
        merge(&mut patched, patch);
        if self.defect != Some(Defect::VersionsAreIgnored) {
            let differs = |field: &str| patched["metadata"][field] != found.json["metadata"][field];
            if differs("resourceVersion") {
                return Err(Refusal::Conflict("it is another version".to_owned()));
            }
            // For a patch of the status, the server drops its metadata before it compares uids.
            if part == Part::Object && differs("uid") {
                return Err(Refusal::Conflict("it is another object".to_owned()));
            }
        }
        let patched = match part {
            Part::Object => with_part_of(patched, &found.json, "status"),
            Part::Status => with_part_of(found.json.clone(), &patched, "status"),
        };
        self.update(kind, name, &found, patched)
    }

    /// Stores the new content of an object, if the rules of its kind allow that.
    fn update(
        &mut self,
        kind: Kind,
        name: &str,
        found: &Rc<Stored>,
        mut after: Value,
    ) -> Result<Rc<Stored>, Refusal> {
        for kept in ["resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "generation"] {
            copy(&mut after["metadata"], &found.json["metadata"], kept);
        }
        if let Some(metadata) = after["metadata"].as_object_mut() {
            // The store does not keep which writer wrote which field, so the removal of that is no change.
            metadata.remove("managedFields");
        }
        if after == found.json || self.undone.contains(&kind) {
            return Ok(Rc::clone(found));
        }
        let after_read = read(kind, &after);
        admission::admit(&found.object, &after_read, &found.json, &after).map_err(Refusal::Invalid)?;
        if after["metadata"]["deletionTimestamp"].is_string() && !has_finalizers(&after) {
            self.remove(kind, name);
            return Ok(Rc::new(Stored { json: after, object: after_read }));
        }
        if after["spec"] != found.json["spec"] {
            let generation = after["metadata"]["generation"].as_u64().unwrap_or_default();
            after["metadata"]["generation"] = json!(generation + 1);
        }
        Ok(self.put(kind, name, after))
    }

    /// Deletes an object, or only this version of it. One with finalizers stays, is marked, and is returned.
    pub(super) fn delete(
        &mut self,
        kind: Kind,
        name: &str,
        version: Option<(&Uid, Revision)>,
    ) -> Result<Option<Rc<Stored>>, Refusal> {
        let found = Rc::clone(self.stored(kind, name).ok_or_else(absent)?);
        let metadata = &found.json["metadata"];
        if let Some((uid, revision)) = version
            && self.defect != Some(Defect::VersionsAreIgnored)
            && (metadata["uid"] != uid.as_str()
                || metadata["resourceVersion"] != revision.to_string().as_str())
        {
            return Err(Refusal::Conflict("it is another version".to_owned()));
        }
        if !has_finalizers(&found.json) {
            self.remove(kind, name);
            return Ok(None);
        }
        if metadata["deletionTimestamp"].is_string() {
            return Ok(Some(found));
        }
        let mut marked = found.json.clone();
        marked["metadata"]["deletionTimestamp"] = json!(in_seconds(self.wall).to_string());
        Ok(Some(self.put(kind, name, marked)))
    }

    /// A client other than the controller writes an object. Returns `false` if nothing changes.
    ///
    /// The rules of the kind do not bind it: that client may have had another version of the definition.
    pub(super) fn edit(&mut self, kind: Kind, name: &str, edit: impl FnOnce(&mut Value)) -> bool {
        let Some(found) = self.stored(kind, name).cloned() else { return false };
        let mut after = found.json.clone();
        edit(&mut after);
        if after == found.json {
            return false;
        }
        if after["metadata"]["deletionTimestamp"].is_string()
            && !has_finalizers(&after)
            && has_finalizers(&found.json)
        {
            return self.remove(kind, name);
        }
        if after["spec"] != found.json["spec"] {
            let generation = after["metadata"]["generation"].as_u64().unwrap_or_default();
            after["metadata"]["generation"] = json!(generation + 1);
        }
        self.put(kind, name, after);
        true
    }
}

fn absent() -> Refusal {
    Refusal::Conflict("it does not exist".to_owned())
}

/// An object as the controller reads it.
pub(super) fn read(kind: Kind, json: &Value) -> Object {
    fn as_kind<W: Wire>(json: &Value) -> Object {
        let watched: Watched<W> =
            serde_json::from_str(&json.to_string()).expect("reading never fails on JSON");
        watched.into_object()
    }
    match kind {
        Kind::Node => as_kind::<Nodes>(json),
        Kind::CiliumNode => as_kind::<CiliumNodes>(json),
        Kind::Pool => as_kind::<Pools>(json),
        Kind::Claim => as_kind::<Claims>(json),
    }
}

/// A merge patch (RFC 7386).
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (field, change) in changes {
        if change.is_null() {
            fields.remove(field);
        } else {
            merge(fields.entry(field.clone()).or_insert(Value::Null), change);
        }
    }
}

/// `json` with one of its fields from another object.
fn with_part_of(mut json: Value, other: &Value, part: &str) -> Value {
    copy(&mut json, other, part);
    json
}

fn copy(into: &mut Value, from: &Value, field: &str) {
    let Some(fields) = into.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
        None => drop(fields.remove(field)),
    }
}

fn has_finalizers(json: &Value) -> bool {
    json["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}
