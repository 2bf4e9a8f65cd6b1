//! The agent of `ipam: multi-pool` (`docs/cilium.md`, Mode multi-pool), after `pkg/ipam/multipool_manager.go` and
//! `pkg/ipam/pool.go` of 1.20.2, step by step. It reports how many addresses it needs, takes whole CIDRs late, and
//! gives their addresses to pods. It releases CIDRs that it does not need, and writes back those that were removed
//! while in use.
//!
//! All its writes are one update of the last version that it has seen. A refused update is tried again at its next
//! tick. It does not know of its own update before its watch shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use cilium_node_ipam::model::cilium_version::CiliumVersion;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use serde_json::{Map, Value, json};

use super::super::mode::{OTHER_POOL, POOL, POOLS};
use super::super::store::{Store, Stored};
use super::surplus;

mod cidrs;

use cidrs::{Allocator, Cidrs};

/// The number of addresses in reserve (`--ipam-multi-pool-pre-allocation`).
const STEP: usize = 8;
/// Agents from this version on take a CIDR again that they have released, as long as they have not seen its removal.
const TAKES_BACK: CiliumVersion = CiliumVersion::new(1, 20, 0);

/// One agent and the addresses of its pods.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    release: CiliumVersion,
    families: BTreeSet<Family>,
    /// The last version of its CiliumNode that it has seen.
    seen: Option<Rc<Stored>>,
    /// How many pods want an address of each family.
    pub(super) pods: usize,
    /// The addresses that pods have, whether it knows of them or not.
    pub(super) held: BTreeSet<IpAddr>,
    /// The CIDRs of the present process, for each Cilium pool with an entry.
    pools: BTreeMap<&'static str, BTreeMap<Family, Cidrs>>,
    /// How many pods have asked the present process in vain; first those that it could not restore.
    pending: BTreeMap<(&'static str, Family), usize>,
    /// The Cilium pools of the addresses that pods have.
    pool_of: BTreeMap<IpAddr, &'static str>,
    /// Whether it has had an address of each family to give, so that its start could continue.
    has_begun: bool,
    /// Whether the present process has reported. At its first report it may not know yet that it has seen all of its
    /// CiliumNode, so it leaves `allocated` as it is.
    pub(super) has_reported: bool,
    /// Whether its pods are restored.
    pub(super) is_ready: bool,
    /// The CIDRs that it has taken again by itself, and that no version has shown since.
    taken_back: BTreeSet<Cidr>,
    /// The CIDRs of its pods, whether the present process knows of them or not.
    of_pods: BTreeSet<Cidr>,
    /// Pods in CIDRs that the process before had taken again and not written: no later one can restore them.
    pub(super) lost_by_itself: BTreeSet<IpAddr>,
}

impl Agent {
    /// The first process of an agent of this version.
    pub(super) const fn new(release: CiliumVersion, families: BTreeSet<Family>) -> Self {
        Self {
            release,
            families,
            seen: None,
            pods: 0,
            held: BTreeSet::new(),
            pools: BTreeMap::new(),
            pending: BTreeMap::new(),
            pool_of: BTreeMap::new(),
            has_begun: false,
            has_reported: false,
            is_ready: false,
            taken_back: BTreeSet::new(),
            of_pods: BTreeSet::new(),
            lost_by_itself: BTreeSet::new(),
        }
    }

    /// Its process exits, and another of this version starts.
    pub(super) fn restart(&mut self, release: CiliumVersion) {
        let is_unwritten = |address: &&IpAddr| self.taken_back.iter().any(|cidr| cidr.contains(**address));
        let unwritten: Vec<IpAddr> = self.held.iter().filter(is_unwritten).copied().collect();
        self.lost_by_itself.extend(unwritten);
        self.taken_back.clear();
        self.release = release;
        self.seen = None;
        self.pools.clear();
        self.pending.clear();
        self.has_begun = false;
        self.has_reported = false;
        self.is_ready = false;
    }

    /// Reads the present version of its CiliumNode, and none of those before it. It can't read one with a text that is
    /// no CIDR. Without an entry for a pool, it keeps the CIDRs that it has.
    pub(super) fn look(&mut self, store: &Store, name: &NodeName) {
        let Some(stored) = store.stored(Kind::CiliumNode, name.as_str()) else { return };
        let Object::CiliumNode(present) = &stored.object else { return };
        if !present.malformed.is_empty() || self.seen.as_ref().is_some_and(|seen| Rc::ptr_eq(seen, stored)) {
            return;
        }
        for entry in &present.pools.allocated {
            let Some(name) = POOLS.into_iter().find(|name| *name == entry.pool) else { continue };
            let pool = self.pools.entry(name).or_default();
            for family in &self.families {
                let of_family = entry.cidrs.iter().filter(|cidr| cidr.family() == *family);
                pool.entry(*family).or_default().update(&of_family.copied().collect::<Vec<_>>());
            }
            self.taken_back.retain(|cidr| !entry.cidrs.contains(cidr));
        }
        self.seen = Some(Rc::clone(stored));
    }

    pub(super) fn seen(&self) -> Option<&Stored> {
        self.seen.as_deref()
    }

    fn of_all(&self) -> impl Iterator<Item = &Cidrs> {
        self.pools.values().flat_map(BTreeMap::values)
    }

    /// Every CIDR that it has.
    pub(super) fn keeps(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.of_all().flat_map(|cidrs| &cidrs.allocators).map(|allocator| allocator.cidr)
    }

    /// Continues its start, which waits for an address of each family in the default pool. Returns whether it has
    /// continued.
    pub(super) fn goes_on(&mut self) -> bool {
        let has_any = |family| {
            let cidrs = self.pools.get(POOL).and_then(|pool| pool.get(family));
            cidrs.is_some_and(|cidrs| cidrs.open().any(|allocator| allocator.free().next().is_some()))
        };
        self.has_begun = self.has_begun || self.families.iter().all(has_any);
        self.has_begun
    }

    /// Whether it counts addresses that it does not give out, because their CIDR was removed while in use.
    pub(super) fn counts_wrongly(&self) -> bool {
        self.pools.values().flat_map(BTreeMap::values).any(|cidrs| !cidrs.removed.is_empty())
    }

    /// Whether it took the CIDR of an address again by itself, and no object shows that yet.
    pub(super) fn has_taken_back(&self, address: IpAddr) -> bool {
        self.taken_back.iter().any(|cidr| cidr.contains(address)) || self.lost_by_itself.contains(&address)
    }

    /// Restores a pod, if it can.
    pub(super) fn restores(&mut self, address: IpAddr) -> bool {
        let pool = self.pools.get_mut(self.name_of(address));
        let cidrs = pool.and_then(|pool| pool.get_mut(&Family::of(address)));
        let is_restored = cidrs.is_some_and(|cidrs| cidrs.restore(address));
        if !is_restored {
            self.asks_without_answer(self.name_of(address), Family::of(address));
            self.forget(address);
        }
        is_restored
    }

    /// The addresses of pods that it has not restored.
    pub(super) fn not_restored(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let is_used = |address: &IpAddr| {
            self.of_all()
                .flat_map(|cidrs| &cidrs.allocators)
                .any(|allocator| allocator.used.contains(address))
        };
        self.held.iter().copied().filter(move |address| !is_used(address))
    }

    /// Is ready, once it has made its first update and its start has continued. (It has an address of its own like any
    /// pod.)
    pub(super) fn begin(&mut self) {
        self.is_ready = self.has_reported && self.goes_on();
        if self.is_ready {
            self.lost_by_itself.clear();
        }
    }

    fn n_used(&self, name: &str, family: Family) -> usize {
        self.pools.get(name).and_then(|pool| pool.get(&family)).map_or(0, Cidrs::n_used)
    }

    /// The Cilium pool of a pod's address.
    fn name_of(&self, address: IpAddr) -> &'static str {
        self.pool_of.get(&address).copied().unwrap_or(POOL)
    }

    /// How many pods want an address of a pool.
    fn n_wanted(&self, name: &str) -> usize {
        let n_others = self.pods / 3;
        if name == OTHER_POOL { n_others } else { self.pods - n_others }
    }

    /// How many addresses of a pool it requests: those that are used and waited for, and of the default pool a reserve.
    fn n_needed(&self, name: &'static str, family: Family) -> usize {
        let n_pending = self.pending.get(&(name, family)).copied().unwrap_or_default();
        let needed = self.n_used(name, family) + n_pending;
        if name == OTHER_POOL { needed } else { (needed.div_ceil(STEP) + 1) * STEP }
    }

    /// Starts and terminates pods, by family.
    pub(super) fn schedule(&mut self, from: usize) -> Vec<IpAddr> {
        let shares =
            POOLS.into_iter().flat_map(|name| self.families.iter().map(move |family| (name, *family)));
        let mut given_out = Vec::new();
        for (name, family) in shares.collect::<Vec<_>>() {
            let is_of = |address: &IpAddr| Family::of(*address) == family && self.name_of(*address) == name;
            let running: Vec<IpAddr> = self.held.iter().copied().filter(is_of).collect();
            let n_wanted = self.n_wanted(name);
            let wanted = n_wanted.saturating_sub(running.len());
            for ended in surplus(running, n_wanted, from) {
                self.ends(ended);
            }
            if !self.is_ready {
                continue;
            }
            let new: Vec<IpAddr> = (0..wanted)
                .map_while(|at| self.gives(name, family, |free| free.get((from + at) % free.len()).copied()))
                .collect();
            self.pending.insert((name, family), wanted - new.len());
            given_out.extend(new);
        }
        given_out
    }

    /// A pod gets an address of a Cilium pool: `pick` chooses among those that it may get.
    pub(super) fn gives(
        &mut self,
        name: &'static str,
        family: Family,
        pick: impl FnOnce(&[IpAddr]) -> Option<IpAddr>,
    ) -> Option<IpAddr> {
        let cidrs = self.pools.get_mut(name)?.get_mut(&family)?;
        let address = cidrs.allocate(pick)?;
        let of_pod = cidrs.allocators.iter().map(|allocator| allocator.cidr);
        self.of_pods.extend(of_pod.filter(|cidr| cidr.contains(address)));
        self.held.insert(address);
        self.pool_of.insert(address, name);
        Some(address)
    }

    /// A pod that has not asked the present process before gets nothing.
    pub(super) fn asks_without_answer(&mut self, name: &'static str, family: Family) {
        *self.pending.entry((name, family)).or_default() += 1;
    }

    /// A pod that has asked in vain got an address later.
    pub(super) fn asked_with_success(&mut self, name: &'static str, family: Family) {
        if let Some(pending) = self.pending.get_mut(&(name, family)) {
            *pending = pending.saturating_sub(1);
        }
    }

    /// A pod terminates.
    pub(super) fn ends(&mut self, address: IpAddr) {
        let pool = self.pools.get_mut(self.name_of(address));
        for allocator in
            pool.into_iter().flat_map(BTreeMap::values_mut).flat_map(|cidrs| &mut cidrs.allocators)
        {
            allocator.used.remove(&address);
        }
        self.forget(address);
    }

    fn forget(&mut self, address: IpAddr) {
        self.held.remove(&address);
        self.pool_of.remove(&address);
        let held = &self.held;
        self.of_pods.retain(|cidr| held.iter().any(|address| cidr.contains(*address)));
    }

    /// The first update of its CiliumNode, without which its start does not continue. Returns whether it is made.
    pub(super) fn updates_first(&mut self, store: &mut Store, name: &NodeName) -> bool {
        if !self.has_reported {
            self.look(store, name);
            self.report(store, name);
        }
        self.has_reported
    }

    /// Its tick: reports its need and its CIDRs, and removes from `requested` everything that it does not know.
    pub(super) fn report(&mut self, store: &mut Store, name: &NodeName) {
        let Some(seen) = self.seen.clone() else { return };
        let (mut requested, mut allocated) = (Vec::new(), Vec::new());
        for name in POOLS {
            let (needed, cidrs) = self.report_of(name);
            if !needed.is_empty() {
                requested.push(json!({ "pool": name, "needed": needed }));
            }
            if cidrs.is_empty() {
                self.pools.remove(name);
            } else {
                let texts: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
                allocated.push(json!({ "pool": name, "cidrs": texts }));
            }
        }
        let requested = Value::Array(requested);
        let known = seen.json.pointer("/spec/ipam/pools").cloned().unwrap_or_default();
        let known_allocated = known["allocated"].as_array().cloned().unwrap_or_default();
        if !std::mem::replace(&mut self.has_reported, true) {
            allocated.clone_from(&known_allocated);
        }
        let has_changed = known["requested"] != requested || known_allocated != allocated;
        let is_present =
            store.stored(Kind::CiliumNode, name.as_str()).is_some_and(|present| Rc::ptr_eq(present, &seen));
        if has_changed && is_present {
            store.edit(Kind::CiliumNode, name.as_str(), |json| {
                json["spec"]["ipam"]["pools"] = json!({ "requested": requested, "allocated": allocated });
            });
        }
        self.is_asked_again();
    }

    /// Pods that wait ask a process that has restarted, but not before its first report. Until then it knows no need
    /// beyond the addresses that it has restored.
    fn is_asked_again(&mut self) {
        let shares =
            POOLS.into_iter().flat_map(|name| self.families.iter().map(move |family| (name, *family)));
        for (name, family) in shares.collect::<Vec<_>>() {
            if self.is_ready {
                let n_waiting = self.n_wanted(name).saturating_sub(self.n_used(name, family));
                let pending = self.pending.entry((name, family)).or_default();
                *pending = n_waiting.max(*pending);
            }
        }
    }

    /// Its need of a pool, and its CIDRs of the pool after it has released the surplus.
    fn report_of(&mut self, name: &'static str) -> (Map<String, Value>, Vec<Cidr>) {
        let (mut needed, mut cidrs) = (Map::new(), Vec::new());
        for family in self.families.clone() {
            let (n_used, n_needed) = (self.n_used(name, family), self.n_needed(name, family));
            if n_needed > 0 {
                needed.insert(format!("{family}-addrs"), json!(n_needed));
            }
            let pool = self.pools.get_mut(name);
            let Some(of_family) = pool.and_then(|pool| pool.get_mut(&family)) else { continue };
            if self.is_ready {
                let takes_back = self.release >= TAKES_BACK;
                self.taken_back.extend(of_family.release_excess(n_needed - n_used, takes_back));
            }
            let mut has: Vec<Cidr> = of_family.allocators.iter().map(|allocator| allocator.cidr).collect();
            has.sort_unstable();
            cidrs.extend(has);
        }
        (needed, cidrs)
    }

    /// Its memory, as Cilium's agent shows it (`tests/agent`, `dump`).
    pub(super) fn memory(&self) -> Value {
        let mut memory = Map::new();
        for name in POOLS {
            let (mut cidrs, mut released, mut needed) = (Vec::new(), Vec::new(), Map::new());
            for family in &self.families {
                needed.insert(family.to_string(), json!(self.n_needed(name, *family)));
                let Some(of_family) = self.pools.get(name).and_then(|pool| pool.get(family)) else {
                    continue;
                };
                cidrs.extend(of_family.allocators.iter().map(|allocator| {
                    json!({
                        "cidr": allocator.cidr.to_string(),
                        "inUse": allocator.used.len(),
                        "free": allocator.free().count(),
                        "removed": of_family.removed.contains(&allocator.cidr),
                    })
                }));
                released.extend(of_family.released.iter().map(ToString::to_string));
            }
            let pool = json!({ "cidrs": cidrs, "released": released, "needed": needed });
            memory.insert(name.to_owned(), pool);
        }
        Value::Object(memory)
    }

    /// It sees the restored CiliumNode, and writes back the CIDRs in use.
    pub(super) fn report_all(&mut self, store: &mut Store, name: &NodeName) {
        // An agent that was about to start is ready first, with the CIDRs of its pods. An agent without pods has not
        // started.
        for address in self.not_restored().collect::<Vec<_>>() {
            let cidr = self.of_pods.iter().find(|cidr| cidr.contains(address)).copied();
            let pool = self.pools.entry(self.name_of(address)).or_default();
            let cidrs = pool.entry(Family::of(address)).or_default();
            if !cidrs.restore(address) {
                cidrs.allocators.extend(cidr.map(Allocator::new));
                cidrs.restore(address);
            }
        }
        self.has_begun |= !self.held.is_empty();
        self.is_ready |= self.has_begun;
        for _ in 0..2 {
            self.look(store, name);
            self.report(store, name);
        }
        self.look(store, name);
    }
}
