//! The agent of `ipam: crd`, as `docs/cilium.md` describes it. It sees its CiliumNode late, and takes addresses out of
//! `pool` for pods and for itself. It answers release marks, and writes `used` and its answers later still.
//!
//! Its pods keep their addresses while it restarts, whether it knows of them or not. Its knowledge and its reports may
//! be wrong in the three ways that the document names (Use).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use cilium_node_ipam::model::cilium_version::CiliumVersion;
use cilium_node_ipam::model::crd::{CrdFields, ReleaseMark};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use serde_json::{Map, Value, json};

use super::super::mode::given_of;
use super::super::store::{Store, Stored};
use super::surplus;

/// Agents from this version on keep their health address when they restart.
const KEEPS_HEALTH: CiliumVersion = CiliumVersion::new(1, 16, 0);

pub(super) const ROUTER: &str = "router";
pub(super) const HEALTH: &str = "health";

/// One agent and the addresses of its pods.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    release: CiliumVersion,
    /// The CiliumNode as it knows it.
    seen: Option<Seen>,
    /// How many pods want an address.
    pub(super) pods: usize,
    /// The addresses that pods have, and its own, whether it knows of them or not.
    pub(super) held: BTreeSet<IpAddr>,
    /// Its own addresses, as its state directory names them.
    own: BTreeMap<(&'static str, Family), IpAddr>,
    /// The addresses that the present process has given out or restored: all that are held, once it is ready.
    given_out: BTreeSet<IpAddr>,
    /// Whether the start of the present process has passed the wait for its pool.
    has_pool: bool,
    /// Whether its pods are restored and it has its own addresses.
    pub(super) is_ready: bool,
    /// Whether something has changed since it last wrote its use.
    is_due: bool,
    /// The range in which it runs in another mode, until it restarts. It reads no map then, and reports nothing.
    former: Option<Cidr>,
}

/// A version of the CiliumNode, and the agent's changes to it that are not written yet.
#[derive(Debug, Clone)]
struct Seen {
    version: Rc<Stored>,
    /// The new mark of each address with an answered mark; `None` if the agent removes the mark.
    answers: BTreeMap<IpAddr, Option<ReleaseMark>>,
}

impl Seen {
    /// A version with marks that the agent looks at one by one (`docs/cilium.md`, Release handshake). An agent that
    /// still waits for its pool answers no mark of an address in it.
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

    /// Whether an address is marked, ready or released: it is neither given out nor restored.
    fn is_in_handshake(&self, address: IpAddr) -> bool {
        let api_health = || self.fields().marks.get(&address).copied();
        let mark = self.answers.get(&address).copied().unwrap_or_else(api_health);
        matches!(mark, Some(ReleaseMark::Marked | ReleaseMark::Ready | ReleaseMark::Released))
    }

    /// Whether an address can be given out or restored, according to the object.
    fn is_available(&self, address: IpAddr) -> bool {
        self.fields().pool.contains(address) && !self.is_in_handshake(address)
    }
}

impl Agent {
    /// The first process of an agent of this version.
    pub(super) fn new(release: CiliumVersion) -> Self {
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
            former: None,
        }
    }

    /// The first process of an agent in a new Pod, on a node where pods already have these addresses.
    pub(super) fn after(release: CiliumVersion, pods: usize, held: BTreeSet<IpAddr>) -> Self {
        Self { pods, held, ..Self::new(release) }
    }

    /// The addresses of pods, without its own.
    pub(super) fn of_pods(&self) -> BTreeSet<IpAddr> {
        self.held.iter().copied().filter(|address| !self.is_own(*address)).collect()
    }

    /// Its process runs in another mode from now on, and gives its pods addresses of this range.
    pub(super) fn runs_in_another_mode(&mut self, range: Cidr) {
        self.former = Some(range);
        self.seen = None;
        self.is_ready = true;
    }

    /// Its process exits, and another of this version starts.
    pub(super) fn restart(&mut self, release: CiliumVersion) {
        self.release = release;
        self.seen = None;
        self.given_out.clear();
        self.has_pool = false;
        self.is_ready = false;
        self.is_due = false;
        self.former = None;
    }

    /// Reads the present version of its CiliumNode. If there is none, or it can't be read, the agent keeps using the
    /// last one. If only the metadata has changed, it takes the new version over without its own answers
    /// (`docs/cilium.md`, Lost answers).
    pub(super) fn look(&mut self, store: &Store, name: &NodeName) {
        if self.former.is_some() {
            return;
        }
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

    /// Whether its start can continue.
    pub(super) fn can_go_on(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| !seen.fields().pool.is_empty())
    }

    /// Continues its start, if it can. Returns whether it has its pool.
    pub(super) fn goes_on(&mut self) -> bool {
        self.has_pool |= self.can_go_on();
        self.has_pool
    }

    /// Restores a pod, if it can.
    pub(super) fn restores(&mut self, address: IpAddr) -> bool {
        let is_available = self.seen.as_ref().is_some_and(|seen| seen.is_available(address));
        let can_be = is_available && !self.given_out.contains(&address);
        if can_be {
            self.given_out.insert(address);
        } else {
            self.held.remove(&address);
        }
        can_be
    }

    /// The addresses of pods that it has not restored.
    pub(super) fn not_restored(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.held.difference(&self.given_out).copied().filter(|address| !self.is_own(*address))
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.own.values().any(|own| *own == address)
    }

    /// Takes its own addresses, after the pods have theirs, and is ready. Without an address for each it is still
    /// starting.
    pub(super) fn begin(&mut self) {
        // An address that it takes by chance may be in any block.
        self.begin_by(|_, free| free.last().copied());
    }

    /// The same; `pick` chooses where the agent takes an address by chance.
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
                let mut owners = fields.owners.iter();
                let is_for_it = |(address, owner): &(IpAddr, &String)| {
                    Family::of(*address) == family && *owner == kept_for
                };
                owners.find(is_for_it).map(|(address, _)| address)
            };
            let any = || {
                let of_family = fields.pool.iter().filter(|address| Family::of(*address) == family);
                let is_for_any_pod = |address: &IpAddr| Self::is_for_any_pod(seen, *address);
                let free: Vec<IpAddr> = of_family.filter(is_for_any_pod).filter(can_be_taken).collect();
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

    /// Whether a pod or process that no entry names may get an address, according to its owner.
    fn is_for_any_pod(seen: &Seen, address: IpAddr) -> bool {
        !seen.fields().owners.contains(address)
    }

    /// Starts and terminates pods until as many run as are wanted, or no address is left. `from` varies which addresses
    /// it takes and which pods terminate. An agent that is not ready starts none. Returns the addresses that are newly
    /// given out.
    pub(super) fn schedule(&mut self, from: usize) -> Vec<IpAddr> {
        let running: Vec<IpAddr> =
            self.held.iter().filter(|address| !self.is_own(**address)).copied().collect();
        let wanted = self.pods.saturating_sub(running.len());
        for ended in surplus(running, self.pods, from) {
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

    /// The addresses that a pod may get.
    pub(super) fn free(&self) -> Vec<IpAddr> {
        if let Some(range) = self.former {
            return given_of(range).filter(|address| !self.given_out.contains(address)).collect();
        }
        let Some(seen) = &self.seen else { return Vec::new() };
        let offered = seen.fields().pool.iter();
        offered
            .filter(|address| seen.is_available(*address) && Self::is_for_any_pod(seen, *address))
            .filter(|address| !self.given_out.contains(address))
            .collect()
    }

    /// A pod gets this address.
    pub(super) fn gives(&mut self, address: IpAddr) {
        self.held.insert(address);
        self.given_out.insert(address);
        self.is_due = true;
    }

    /// A pod terminates.
    pub(super) fn ends(&mut self, address: IpAddr) {
        self.held.remove(&address);
        self.is_due |= self.given_out.remove(&address);
    }

    /// The state that it has not written, as text.
    pub(super) fn unwritten(&self) -> String {
        format!("{} {} {:?}", self.has_pool, self.is_due, self.seen.as_ref().map(|seen| &seen.answers))
    }

    /// Its memory: the addresses that it has given out, and its own among them.
    pub(super) fn memory(&self) -> Value {
        let own: Map<String, Value> = self
            .own
            .iter()
            .filter(|_| self.is_ready)
            .map(|((name, family), address)| (format!("{name} {family}"), json!(address)))
            .collect();
        json!({ "allocated": self.given_out, "own": own })
    }

    /// Writes `used` and its answers onto the version that it has seen. If another version is present, it reads that
    /// and writes later. Before it is ready, it writes only if it has answered something, and then only the addresses
    /// that it has restored.
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

    /// Writes everything that it uses, as administrators who restore a store from a backup ask it to.
    pub(super) fn report_all(&mut self, store: &mut Store, name: &NodeName) {
        // It gives out no address any more that the backup lacks.
        self.seen = None;
        self.given_out.clone_from(&self.held);
        // An agent without addresses has not started.
        self.is_ready = !self.held.is_empty();
        self.has_pool |= self.is_ready;
        self.is_due = true;
        self.look(store, name);
        self.report(store, name);
    }

    pub(super) fn seen(&self) -> Option<&Stored> {
        self.seen.as_ref().map(|seen| &*seen.version)
    }
}

/// The status that an agent writes: all addresses that it has given out, and its answers. It leaves an empty `used`
/// out.
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
