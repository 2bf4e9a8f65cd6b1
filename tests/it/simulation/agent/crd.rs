//! The agent of `ipam: crd`, as `docs/cilium.md` says: it sees its CiliumNode late, takes addresses out of `pool` for pods
//! and for itself, answers release marks, and writes `used` and its answers later still.
//!
//! Its pods keep their addresses while it restarts, whatever it knows of them. What it knows and what it has written may
//! be wrong in the three ways that the document names (Use).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use cilium_node_ipam::model::crd::{CrdFields, ReleaseMark};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::model::release::Release;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use serde_json::{Map, Value, json};

use super::super::store::{Store, Stored};

/// Agents from this one on obey owners.
const OBEYS_OWNERS: Release = Release::new(1, 13, 0);
/// Agents from this one on keep their health address when they restart.
const KEEPS_HEALTH: Release = Release::new(1, 16, 0);

pub(super) const ROUTER: &str = "router";
pub(super) const HEALTH: &str = "health";

/// One agent and the addresses of its pods.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    release: Release,
    /// What it knows of its CiliumNode.
    seen: Option<Seen>,
    /// How many pods want an address.
    pub(super) pods: usize,
    /// The addresses that pods have, and its own, whether it knows of them or not.
    pub(super) held: BTreeSet<IpAddr>,
    /// Its own addresses, as its state directory names them.
    own: BTreeMap<(&'static str, Family), IpAddr>,
    /// What the present process has given out or restored: all that is held, once it is ready.
    given_out: BTreeSet<IpAddr>,
    /// Whether the start of the present process has come past the wait for its pool.
    has_pool: bool,
    /// Whether its pods are restored and it has its own addresses.
    pub(super) is_ready: bool,
    /// Whether something has changed since it last wrote its use.
    is_due: bool,
}

/// A version of the CiliumNode, and what the agent has done to it without having written it yet.
#[derive(Debug, Clone)]
struct Seen {
    version: Rc<Stored>,
    /// The new mark of each address whose mark is answered; `None` where it goes.
    answers: BTreeMap<IpAddr, Option<ReleaseMark>>,
}

impl Seen {
    /// A version that the agent looks at, mark by mark (`docs/cilium.md`, Release handshake). One that still waits for its
    /// pool answers no mark of an address in it.
    fn answered(version: Rc<Stored>, given_out: &BTreeSet<IpAddr>, has_pool: bool) -> Self {
        let mut seen = Self { version, answers: BTreeMap::new() };
        let fields = seen.fields();
        let mut answers = BTreeMap::new();
        for (address, mark) in fields.marks.iter().filter(|_| !fields.pool.is_empty()) {
            let is_free = !given_out.contains(address);
            let answer = match (mark, fields.pool.contains(*address)) {
                (ReleaseMark::Marked, true) if !has_pool => continue,
                (ReleaseMark::Marked, true) if is_free => Some(ReleaseMark::Ready),
                (ReleaseMark::Marked, _) => Some(ReleaseMark::DoNotRelease),
                (ReleaseMark::Released, false) => None,
                _ => continue,
            };
            answers.insert(*address, answer);
        }
        seen.answers = answers;
        seen
    }

    fn fields(&self) -> &CrdFields {
        match &self.version.object {
            Object::CiliumNode(cilium_node) => &cilium_node.crd,
            other => unreachable!("no agent sees {other:?}"),
        }
    }

    /// Whether an address is marked, ready or released: it is given to nobody, and not restored.
    fn is_in_handshake(&self, address: IpAddr) -> bool {
        let standing = || self.fields().marks.get(&address).copied();
        let mark = self.answers.get(&address).copied().unwrap_or_else(standing);
        matches!(mark, Some(ReleaseMark::Marked | ReleaseMark::Ready | ReleaseMark::Released))
    }

    /// Whether an address can be given out or restored, as far as the object says.
    fn is_available(&self, address: IpAddr) -> bool {
        self.fields().pool.contains(address) && !self.is_in_handshake(address)
    }
}

impl Agent {
    /// The first process of an agent of this release.
    pub(super) fn new(release: Release) -> Self {
        Self {
            release,
            seen: None,
            pods: 0,
            held: BTreeSet::new(),
            own: BTreeMap::new(),
            given_out: BTreeSet::new(),
            has_pool: false,
            is_ready: false,
            is_due: false,
        }
    }

    /// Its process ends, and another of this release begins.
    pub(super) fn restart(&mut self, release: Release) {
        self.release = release;
        self.seen = None;
        self.given_out.clear();
        self.has_pool = false;
        self.is_ready = false;
        self.is_due = false;
    }

    /// Sees the present version of its CiliumNode. While there is none, or none that can be read, it goes on with what it
    /// had. Where only the metadata has changed, it takes the new version over without its own answers
    /// (`docs/cilium.md`, Lost answers).
    pub(super) fn look(&mut self, store: &Store, name: &NodeName) {
        let Some(stored) = store.stored(Kind::CiliumNode, name.as_str()) else { return };
        if !matches!(stored.object, Object::CiliumNode(_)) {
            return;
        }
        let is_same =
            |seen: &Seen, pointer| seen.version.json.pointer(pointer) == stored.json.pointer(pointer);
        self.seen = Some(match self.seen.take() {
            Some(seen) if Rc::ptr_eq(&seen.version, stored) => seen,
            Some(seen) if ["/metadata/uid", "/spec", "/status"].iter().all(|part| is_same(&seen, part)) => {
                Seen { version: Rc::clone(stored), answers: BTreeMap::new() }
            }
            _ => Seen::answered(Rc::clone(stored), &self.given_out, self.has_pool),
        });
    }

    /// Whether it can go on with its start.
    pub(super) fn can_go_on(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.fields().pool.is_empty())
    }

    /// Goes on with its start, if it can.
    pub(super) fn goes_on(&mut self) -> bool {
        self.has_pool |= self.can_go_on();
        self.has_pool
    }

    /// Restores at most so many of its pods. Returns the addresses that it can't restore: their pods lose their network.
    pub(super) fn restore(&mut self, at_most: usize) -> Vec<IpAddr> {
        if !self.goes_on() {
            return Vec::new();
        }
        let is_left = |address: &&IpAddr| !self.given_out.contains(*address) && !self.is_own(**address);
        let mut lost: Vec<IpAddr> = self.held.iter().filter(is_left).take(at_most).copied().collect();
        lost.retain(|address| !self.restores(*address));
        lost
    }

    /// Restores a pod, if it can.
    pub(super) fn restores(&mut self, address: IpAddr) -> bool {
        let can_be = self.has_available(address) && !self.given_out.contains(&address);
        if can_be {
            self.given_out.insert(address);
        } else {
            self.held.remove(&address);
        }
        can_be
    }

    /// Whether all of its pods are restored.
    pub(super) fn has_restored(&self) -> bool {
        self.held.iter().all(|address| self.given_out.contains(address) || self.is_own(*address))
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.own.values().any(|own| *own == address)
    }

    /// Takes its own addresses, after the pods have theirs, and is ready. Without an address for each it goes on
    /// starting.
    pub(super) fn begin(&mut self) {
        // Whatever it takes by chance may lie in any block.
        self.begin_by(|_, free| free.last().copied());
    }

    /// The same, with the addresses that are picked where it takes one by chance.
    pub(super) fn begin_by(&mut self, pick: impl Fn(&str, &[IpAddr]) -> Option<IpAddr>) {
        self.goes_on();
        let Some(seen) = &self.seen else { return };
        let fields = seen.fields();
        let families: BTreeSet<Family> = fields.pool.cidrs().map(Cidr::family).collect();
        let (mut own, mut given_out) = (BTreeMap::new(), self.given_out.clone());
        for (kept_for, family) in
            [ROUTER, HEALTH].into_iter().flat_map(|name| families.iter().map(move |family| (name, *family)))
        {
            let is_kept = kept_for == ROUTER || self.release >= KEEPS_HEALTH;
            let can_be_taken = |address: &IpAddr| seen.is_available(*address) && !given_out.contains(address);
            let before = self.own.get(&(kept_for, family)).copied();
            let owned = || {
                let mut owners = fields.owners.iter().filter(|_| self.release >= OBEYS_OWNERS);
                let is_for_it = |(address, owner): &(IpAddr, &String)| {
                    Family::of(*address) == family && *owner == kept_for
                };
                owners.find(is_for_it).map(|(address, _)| address)
            };
            let any = || {
                let of_family = fields.pool.iter().filter(|address| Family::of(*address) == family);
                let is_for_anybody = |address: &IpAddr| self.is_for_anybody(seen, *address);
                let free: Vec<IpAddr> = of_family.filter(is_for_anybody).filter(can_be_taken).collect();
                pick(kept_for, &free)
            };
            let Some(address) = before.filter(|_| is_kept).filter(can_be_taken).or_else(owned).or_else(any)
            else {
                return;
            };
            own.insert((kept_for, family), address);
            given_out.insert(address);
        }
        if own.is_empty() {
            return;
        }
        for before in self.own.values() {
            self.held.remove(before);
        }
        self.held.extend(own.values());
        (self.own, self.given_out) = (own, given_out);
        self.is_ready = true;
        self.is_due = true;
    }

    /// Whether a pod or a process without an entry of its own may get an address, as far as its owner goes.
    fn is_for_anybody(&self, seen: &Seen, address: IpAddr) -> bool {
        self.release < OBEYS_OWNERS || !seen.fields().owners.contains(address)
    }

    /// Starts and ends pods until as many run as are wanted, or no address is left; `from` varies which it takes and
    /// which end. An agent that is not ready starts none. Returns the addresses that are newly given out.
    pub(super) fn schedule(&mut self, from: usize) -> Vec<IpAddr> {
        let mut running: Vec<IpAddr> =
            self.held.iter().filter(|address| !self.is_own(**address)).copied().collect();
        let wanted = self.pods.saturating_sub(running.len());
        // The highest end, or any.
        if !from.is_multiple_of(2) && !running.is_empty() {
            let n_running = running.len();
            running.rotate_left(from % n_running);
        }
        for ended in running.into_iter().skip(self.pods) {
            self.ends(ended);
        }
        if !self.is_ready {
            return Vec::new();
        }
        let free = self.free();
        let (before, after) = free.split_at(if free.is_empty() { 0 } else { from % free.len() });
        let taken: Vec<IpAddr> = after.iter().chain(before).take(wanted).copied().collect();
        for address in &taken {
            self.gives(*address);
        }
        taken
    }

    /// What a pod may get.
    pub(super) fn free(&self) -> Vec<IpAddr> {
        let Some(seen) = &self.seen else { return Vec::new() };
        let offered = seen.fields().pool.iter();
        offered
            .filter(|address| seen.is_available(*address) && self.is_for_anybody(seen, *address))
            .filter(|address| !self.given_out.contains(address))
            .collect()
    }

    /// A pod gets this address.
    pub(super) fn gives(&mut self, address: IpAddr) {
        self.held.insert(address);
        self.given_out.insert(address);
        self.is_due = true;
    }

    /// A pod is gone.
    pub(super) fn ends(&mut self, address: IpAddr) {
        self.held.remove(&address);
        self.is_due |= self.given_out.remove(&address);
    }

    /// What it has to say, and has not written.
    pub(super) fn unwritten(&self) -> String {
        format!("{} {} {:?}", self.has_pool, self.is_due, self.seen.as_ref().map(|seen| &seen.answers))
    }

    /// What it has in its memory: what it has given out, and what of that is its own.
    pub(super) fn memory(&self) -> Value {
        let own: Map<String, Value> = self
            .own
            .iter()
            .filter(|_| self.is_ready)
            .map(|((name, family), address)| (format!("{name} {family}"), json!(address)))
            .collect();
        json!({ "allocated": self.given_out, "own": own })
    }

    /// Writes `used` and its answers onto the version that it has seen. One that has moved since it looks at again, and
    /// writes later. Before it is ready it writes only when it has answered something, and then only what it has restored.
    pub(super) fn report(&mut self, store: &mut Store, name: &NodeName) {
        let Some(seen) = &self.seen else { return };
        if !(self.is_due && self.is_ready) && seen.answers.is_empty() {
            return;
        }
        let is_present = store
            .stored(Kind::CiliumNode, name.as_str())
            .is_some_and(|stored| Rc::ptr_eq(stored, &seen.version));
        if is_present {
            let (given_out, answers) = (&self.given_out, &seen.answers);
            store.edit(Kind::CiliumNode, name.as_str(), |json| write_status(json, given_out, answers));
            self.is_due = false;
        }
        self.look(store, name);
    }

    /// Has written all that it uses, as those ask it to who restore a store from a backup.
    pub(super) fn report_all(&mut self, store: &mut Store, name: &NodeName) {
        // What the backup does not have it gives to nobody any more.
        self.seen = None;
        self.given_out.clone_from(&self.held);
        // One that has nothing has not begun.
        self.is_ready = !self.held.is_empty();
        self.has_pool |= self.is_ready;
        self.is_due = true;
        self.look(store, name);
        self.report(store, name);
    }

    /// Whether it has seen that an address can be given out or restored.
    pub(super) fn has_available(&self, address: IpAddr) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.is_available(address))
    }

    pub(super) fn seen(&self) -> Option<&Stored> {
        self.seen.as_ref().map(|seen| &*seen.version)
    }
}

/// The status that an agent puts: all that it has given out, and its answers. It leaves an empty `used` out.
fn write_status(
    json: &mut Value,
    given_out: &BTreeSet<IpAddr>,
    answers: &BTreeMap<IpAddr, Option<ReleaseMark>>,
) {
    let used: Map<String, Value> = given_out.iter().map(|address| (address.to_string(), json!({}))).collect();
    if used.is_empty() {
        json.pointer_mut("/status/ipam").and_then(Value::as_object_mut).map(|ipam| ipam.remove("used"));
    } else {
        json["status"]["ipam"]["used"] = Value::Object(used);
    }
    let marks = json.pointer_mut("/status/ipam/release-ips").and_then(Value::as_object_mut);
    let Some(marks) = marks else { return };
    for (address, answer) in answers {
        match answer {
            Some(ReleaseMark::Ready) => marks.insert(address.to_string(), json!("ready-for-release")),
            Some(_) => marks.insert(address.to_string(), json!("do-not-release")),
            None => marks.remove(&address.to_string()),
        };
    }
}
