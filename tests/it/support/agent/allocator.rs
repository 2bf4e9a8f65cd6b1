//! The imitation of Cilium's crd-mode allocator (`pkg/ipam/crd.go`): its view of the CiliumNode, and its choices.
//!
//! No client, no task, no clock. It gets versions of the CiliumNode, and returns addresses and the next status. It
//! imitates Cilium's oddities too, and the comments name them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use crate::support::families::{Families, Family};

/// The allocator of one node.
#[derive(Debug)]
pub(super) struct Allocator {
    families: Families,
    /// The allocator's own copy: the last version received, and in it the answers that were not written yet.
    own: Option<Arc<DynamicObject>>,
    /// The last version received, as the informer keeps it.
    seen: Option<Arc<DynamicObject>>,
    /// By the canonical text of the address, as in Cilium: for Cilium, another spelling in the pool is another address.
    allocated: BTreeMap<String, Taken>,
    /// Addresses of the node itself. One in the pool is used up without reaching a pod.
    excluded: BTreeSet<IpAddr>,
    /// Whether the start is past the wait for the pool. Before, marks of pool addresses are not answered.
    registered: bool,
    rng: fastrand::Rng,
}

#[derive(Clone, Debug)]
struct Taken {
    owner: String,
    resource: String,
}

impl Allocator {
    pub(super) fn new(families: Families, rng: fastrand::Rng) -> Self {
        Self {
            families,
            own: None,
            seen: None,
            allocated: BTreeMap::new(),
            excluded: BTreeSet::new(),
            registered: false,
            rng,
        }
    }

    /// Takes over a version of the CiliumNode, or its deletion. Returns whether the status must be written because of
    /// it.
    pub(super) fn receive(&mut self, object: Option<&Arc<DynamicObject>>) -> bool {
        let Some(object) = object else {
            self.own = None;
            self.seen = None;
            return false;
        };
        let before = self.seen.replace(Arc::clone(object));
        if before.as_ref().is_some_and(|before| not_newer(object, before)) {
            self.seen = before;
            return false;
        }
        self.own = Some(Arc::clone(object));
        // A change of metadata alone discards the answers that were not written, and does nothing else.
        if before.is_some_and(|before| before.data == object.data) { false } else { self.answer_marks() }
    }

    /// The CiliumNode as the informer has it.
    pub(super) fn seen(&self) -> Option<&Arc<DynamicObject>> {
        self.seen.as_ref()
    }

    /// Whether the pool is large enough for the start to continue. Both families count together, including entries that
    /// are being released.
    pub(super) fn has_minimum(&self, health: bool) -> bool {
        let Some(own) = &self.own else { return false };
        let ipam = &own.data["spec"]["ipam"];
        let asked = |field: &str| ipam[field].as_u64().filter(|&n| n != 0);
        let required =
            asked("min-allocate").or_else(|| asked("pre-allocate")).unwrap_or(if health { 2 } else { 1 });
        ipam["pool"].as_object().is_some_and(|pool| pool.len() as u64 >= required)
    }

    /// The wait for the pool is over.
    pub(super) fn register(&mut self, excluded: BTreeSet<IpAddr>) {
        self.registered = true;
        self.excluded = excluded;
    }

    /// Any free address, or the one that the pool keeps for this owner.
    pub(super) fn allocate_next(&mut self, family: Family, owner: &str) -> Result<IpAddr, String> {
        loop {
            let (address, resource) = self.choose(family, owner)?;
            let taken = Taken { owner: owner.to_owned(), resource };
            let again = self.allocated.insert(address.to_string(), taken).is_some();
            if !self.excluded.contains(&address) {
                return Ok(address);
            }
            if again {
                // Here Cilium retries forever, under its lock.
                return Err(format!("the agent hangs: {address} is kept for {owner} and is the node's own"));
            }
        }
    }

    /// Exactly this address, as a restart asks for it. The owners in the pool do not matter.
    pub(super) fn allocate(&mut self, address: IpAddr, owner: &str) -> Result<(), String> {
        let text = address.to_string();
        if self.allocated.contains_key(&text) {
            return Err("IP already in use".to_owned());
        }
        let pool = self.pool()?;
        if self.is_in_handshake(&text) {
            return Err("IP not available, marked or ready for release".to_owned());
        }
        let resource = resource(pool.get(&text).ok_or_else(|| format!("IP {text} is not available"))?);
        self.allocated.insert(text, Taken { owner: owner.to_owned(), resource });
        Ok(())
    }

    /// Takes an address back.
    pub(super) fn release(&mut self, address: IpAddr) -> Result<(), String> {
        self.allocated
            .remove(&address.to_string())
            .map(drop)
            .ok_or_else(|| format!("IP {address} is not allocated"))
    }

    /// Every address given out, with its owner.
    pub(super) fn allocated(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        self.allocated.iter().filter_map(|(text, taken)| Some((text.parse().ok()?, taken.owner.as_str())))
    }

    /// The whole object with the status that must be written now. `None` without a CiliumNode.
    pub(super) fn status(&self) -> Option<DynamicObject> {
        let mut object = DynamicObject::clone(self.own.as_ref()?);
        let used: Map<_, _> =
            self.allocated.iter().map(|(text, taken)| (text.clone(), taken.entry())).collect();
        let ipam = &mut object.data["status"]["ipam"];
        // As Go's `omitempty`: empty fields are omitted, so an agent without addresses reports nothing.
        if !used.is_empty() {
            ipam["used"] = used.into();
        } else if let Some(ipam) = ipam.as_object_mut() {
            ipam.remove("used");
        }
        if let Some(ipam) = ipam.as_object_mut()
            && ipam.get("release-ips").and_then(Value::as_object).is_some_and(Map::is_empty)
        {
            ipam.remove("release-ips");
        }
        Some(object)
    }

    fn pool(&self) -> Result<&Map<String, Value>, String> {
        let own = self.own.as_ref().ok_or("CiliumNode for own node is not available")?;
        own.data["spec"]["ipam"]["pool"].as_object().ok_or_else(|| "No IPs available".to_owned())
    }

    /// An address of the pool with the `resource` of its entry.
    fn choose(&mut self, family: Family, owner: &str) -> Result<(IpAddr, String), String> {
        let own = self.own.as_ref().ok_or("CiliumNode for own node is not available")?;
        let no_entries = Map::new();
        let pool = own.data["spec"]["ipam"]["pool"].as_object().unwrap_or(&no_entries);
        let of_family =
            |text: &str| text.parse::<IpAddr>().ok().filter(|&address| Family::of(address) == family);
        // An entry that is kept for this owner is given out unchecked: it may be in use already, or a release of it may
        // be in progress.
        for (text, entry) in pool.iter().filter(|(_, entry)| !owner.is_empty() && entry["owner"] == owner) {
            if text.parse::<IpAddr>().is_err() {
                return Err(format!("invalid custom ip {text} for {owner}. "));
            }
            if let Some(address) = of_family(text) {
                return Ok((address, resource(entry)));
            }
        }
        let free = pool.iter().filter_map(|(text, entry)| {
            let kept = entry["owner"].as_str().is_some_and(|keeper| !keeper.is_empty());
            if kept || self.allocated.contains_key(text) || self.is_in_handshake(text) {
                return None;
            }
            of_family(text).map(|address| (address, resource(entry)))
        });
        // Go's order of iteration is random.
        let free: Vec<_> = free.collect();
        let full = "no IPs currently available on the node, allocation will be retried once IPs are added to CiliumNode \
                    spec.ipam.pool";
        self.rng.choice(free).ok_or_else(|| full.to_owned())
    }

    fn is_in_handshake(&self, text: &str) -> bool {
        let own = self.own.as_ref();
        let state = own.and_then(|own| own.data["status"]["ipam"]["release-ips"][text].as_str());
        matches!(state, Some("marked-for-release" | "ready-for-release" | "released"))
    }

    /// Answers the marks for release, in the object that the next write of the status sends.
    fn answer_marks(&mut self) -> bool {
        let Some(own) = &mut self.own else { return false };
        // Without a pool nothing is answered.
        let Some(pool) = own.data["spec"]["ipam"]["pool"].as_object() else { return false };
        let Some(marks) = own.data["status"]["ipam"]["release-ips"].as_object() else { return false };
        let mut answers = Vec::new();
        for (text, state) in marks {
            let answer = match (state.as_str(), pool.contains_key(text)) {
                (Some("released"), false) => None,
                (Some("marked-for-release"), false) => Some("do-not-release"),
                (Some("marked-for-release"), true) => {
                    let Ok(address) = text.parse::<IpAddr>() else { continue };
                    let ours = self.families.each().any(|family| family == Family::of(address));
                    if !self.registered || !ours {
                        continue;
                    }
                    Some(if self.allocated.contains_key(text) {
                        "do-not-release"
                    } else {
                        "ready-for-release"
                    })
                }
                _ => continue,
            };
            answers.push((text.clone(), answer));
        }
        if answers.is_empty() {
            return false;
        }
        if let Some(marks) = Arc::make_mut(own).data["status"]["ipam"]["release-ips"].as_object_mut() {
            for (text, answer) in answers {
                match answer {
                    Some(answer) => drop(marks.insert(text, answer.into())),
                    None => drop(marks.remove(&text)),
                }
            }
        }
        true
    }
}

impl Taken {
    fn entry(&self) -> Value {
        if self.resource.is_empty() {
            json!({"owner": self.owner})
        } else {
            json!({"owner": self.owner, "resource": self.resource})
        }
    }
}

fn resource(entry: &Value) -> String {
    entry["resource"].as_str().unwrap_or_default().to_owned()
}

/// Whether `object` is the same object as `before` at the same or an earlier version.
fn not_newer(object: &DynamicObject, before: &DynamicObject) -> bool {
    let version = |object: &DynamicObject| object.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    object.metadata.uid == before.metadata.uid && version(object) <= version(before)
}
