//! The agent of the modes cluster-pool and kubernetes, as `docs/cilium.md` says: it takes the first CIDR of each family when
//! it starts, gives all but the ends to pods, says nothing of them, and looks at nothing afterwards.
//!
//! In kubernetes mode it reads the Node, and where it uses annotations, those of a family that the podCIDRs lack; in
//! cluster-pool mode its CiliumNode. A pod that has an address outside those CIDRs loses its network when the agent starts
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::model::release::Release;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::publisher::static_mode::NodeField;
use serde_json::{Value, json};

use super::super::mode::{Mode, blocks, given_of};
use super::super::store::{Store, Stored};

/// One agent and the addresses of its pods.
#[derive(Debug, Clone)]
pub(in super::super) struct Agent {
    mode: Mode,
    families: BTreeSet<Family>,
    /// The version of the carrier that it has heard of last.
    seen: Option<Rc<Stored>>,
    /// What it listed.
    shown: Vec<Cidr>,
    /// How many pods want an address of each family.
    pub(super) pods: usize,
    /// The addresses that pods have, whether it knows of them or not.
    pub(super) held: BTreeSet<IpAddr>,
    /// What the present process took when it started.
    taken: BTreeMap<Family, Cidr>,
    /// What the present process has given out or restored.
    given_out: BTreeSet<IpAddr>,
    /// Whether its pods are restored.
    pub(super) is_ready: bool,
    /// Whether the present process has annotated its Node with what it took.
    pub(super) has_annotated: bool,
}

/// The annotations in which an agent finds its CIDR of a family: the first, else the second. It writes the first.
pub(in super::super) const fn annotations_of(family: Family) -> [&'static str; 2] {
    match family {
        Family::V4 => ["network.cilium.io/ipv4-pod-cidr", "io.cilium.network.ipv4-pod-cidr"],
        Family::V6 => ["network.cilium.io/ipv6-pod-cidr", "io.cilium.network.ipv6-pod-cidr"],
    }
}

/// What an agent takes of a Node where it uses annotations: of a family that the podCIDRs lack, the first that is there, if that
/// is a CIDR.
fn shown_with_annotations(store: &Store, name: &NodeName, node: &Value) -> Vec<Cidr> {
    let listed = store.node(name).map(|node| node.pod_cidrs.clone()).unwrap_or_default();
    let of_family = |family: Family| {
        let listed = listed.iter().copied().find(|cidr| cidr.family() == family);
        let annotation = |name| node["metadata"]["annotations"][name].as_str();
        let annotated = || annotations_of(family).into_iter().find_map(annotation)?.parse().ok();
        listed.or_else(annotated)
    };
    Family::ALL.into_iter().filter_map(of_family).collect()
}

impl Agent {
    /// The first process of an agent.
    pub(super) const fn new(mode: Mode, families: BTreeSet<Family>) -> Self {
        Self {
            mode,
            families,
            seen: None,
            shown: Vec::new(),
            pods: 0,
            held: BTreeSet::new(),
            taken: BTreeMap::new(),
            given_out: BTreeSet::new(),
            is_ready: false,
            has_annotated: false,
        }
    }

    /// Its process ends, and another begins. Every release does the same.
    pub(super) fn restart(&mut self, _: Release) {
        self.seen = None;
        self.shown.clear();
        self.taken.clear();
        self.given_out.clear();
        self.is_ready = false;
        self.has_annotated = false;
    }

    /// Sees the present version of the carrier.
    pub(super) fn look(&mut self, store: &Store, name: &NodeName) {
        let kind = self.mode.carrier_kind();
        let (Some(stored), Some(carrier)) = (store.stored(kind, name.as_str()), store.carrier(name)) else {
            return;
        };
        self.shown = if self.mode == Mode::Kubernetes(NodeField::Annotations) {
            shown_with_annotations(store, name, &stored.json)
        } else if carrier.malformed.is_empty() {
            blocks(&carrier)
        } else {
            // A text that is no CIDR stops it.
            return;
        };
        self.seen = Some(Rc::clone(stored));
    }

    pub(super) fn seen(&self) -> Option<&Stored> {
        self.seen.as_deref()
    }

    /// What it takes when it goes on with its start, whatever has become of that since it looked.
    pub(super) fn about_to_take(&self) -> BTreeMap<Family, Cidr> {
        let first = |family: Family| self.shown.iter().copied().find(|cidr| cidr.family() == family);
        if self.taken.is_empty() && self.families.iter().all(|family| first(*family).is_some()) {
            return self.families.iter().filter_map(|family| Some((*family, first(*family)?))).collect();
        }
        BTreeMap::new()
    }

    /// Whether it can go on with its start.
    pub(super) fn goes_on(&mut self) -> bool {
        self.taken.extend(self.about_to_take());
        !self.taken.is_empty()
    }

    /// Every CIDR that it has.
    pub(super) fn keeps(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.taken.values().copied()
    }

    pub(super) fn has_available(&self, address: IpAddr) -> bool {
        self.keeps().any(|cidr| cidr.contains(address))
    }

    /// Restores at most so many of its pods. Returns the addresses that it can't restore.
    pub(super) fn restore(&mut self, at_most: usize) -> Vec<IpAddr> {
        if !self.goes_on() {
            return Vec::new();
        }
        let mut lost: Vec<IpAddr> = self.not_restored().take(at_most).collect();
        lost.retain(|address| !self.restores(*address));
        lost
    }

    /// Restores a pod, if it can.
    pub(super) fn restores(&mut self, address: IpAddr) -> bool {
        let can_be = self.has_available(address);
        if can_be {
            self.given_out.insert(address);
        } else {
            self.held.remove(&address);
        }
        can_be
    }

    fn not_restored(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.held.difference(&self.given_out).copied()
    }

    pub(super) fn has_restored(&self) -> bool {
        self.not_restored().next().is_none()
    }

    /// Is ready, once it has its CIDRs.
    pub(super) fn begin(&mut self) {
        self.is_ready = self.goes_on();
    }

    /// Starts and ends pods, by family.
    pub(super) fn schedule(&mut self, from: usize) -> Vec<IpAddr> {
        let mut newly = Vec::new();
        for family in self.families.clone() {
            let mut running: Vec<IpAddr> =
                self.held.iter().copied().filter(|address| Family::of(*address) == family).collect();
            let wanted = self.pods.saturating_sub(running.len());
            // The highest end, or any.
            if !from.is_multiple_of(2) && !running.is_empty() {
                let n_running = running.len();
                running.rotate_left(from % n_running);
            }
            for ended in running.into_iter().skip(self.pods) {
                self.ends(ended);
            }
            let free = if self.is_ready { self.free(family) } else { Vec::new() };
            let (before, after) = free.split_at(if free.is_empty() { 0 } else { from % free.len() });
            newly.extend(after.iter().chain(before).take(wanted).copied());
        }
        for address in &newly {
            self.gives(*address);
        }
        newly
    }

    /// What a pod may get.
    pub(super) fn free(&self, family: Family) -> Vec<IpAddr> {
        let taken = self.taken.get(&family).into_iter();
        let offered = taken.flat_map(|cidr| given_of(*cidr));
        offered.filter(|address| !self.given_out.contains(address)).collect()
    }

    /// A pod gets this address.
    pub(super) fn gives(&mut self, address: IpAddr) {
        self.held.insert(address);
        self.given_out.insert(address);
    }

    /// A pod is gone.
    pub(super) fn ends(&mut self, address: IpAddr) {
        self.held.remove(&address);
        self.given_out.remove(&address);
    }

    /// What it has in its memory.
    pub(super) fn memory(&self) -> Value {
        json!({ "allocated": self.given_out, "taken": self.keeps().map(|cidr| cidr.to_string()).collect::<Vec<_>>() })
    }

    /// In kubernetes mode it copies what it took onto its CiliumNode, over whatever is there, and once, when its pods
    /// are restored, in the annotations of its Node where it uses them; otherwise it says nothing.
    pub(super) fn report(&mut self, store: &mut Store, name: &NodeName) {
        let Mode::Kubernetes(field) = self.mode else { return };
        if self.taken.is_empty() {
            return;
        }
        if field == NodeField::Annotations && self.is_ready && !self.has_annotated {
            self.has_annotated = true;
            store.edit(Kind::Node, name.as_str(), |json| {
                for (family, cidr) in &self.taken {
                    json["metadata"]["annotations"][annotations_of(*family)[0]] = json!(cidr.to_string());
                }
            });
        }
        let texts: Vec<String> = self.keeps().map(|cidr| cidr.to_string()).collect();
        store.edit(Kind::CiliumNode, name.as_str(), |json| json["spec"]["ipam"]["podCIDRs"] = json!(texts));
    }

    /// It has nothing to say that a restored store lacks, but for the copy. What it listed before is taken by now: it would
    /// take that also later, and whoever restores counts what agents have.
    pub(super) fn report_all(&mut self, store: &mut Store, name: &NodeName) {
        self.goes_on();
        self.look(store, name);
        self.report(store, name);
    }
}
