//! The agent of the modes cluster-pool and kubernetes, as `docs/cilium.md` describes it. It takes the first CIDR of
//! each family at its start, and looks at nothing afterwards. It gives all addresses but the first and last to pods,
//! and reports none of them.
//!
//! In kubernetes mode it reads the Node. If it uses annotations, it takes from them a family that the podCIDRs lack. In
//! cluster-pool mode it reads its CiliumNode. A pod with an address outside those CIDRs, or with their first or last one,
//! loses its network when the agent restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use cilium_node_ipam::model::cilium_version::CiliumVersion;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::NodeName;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::publisher::static_mode::NodeField;
use serde_json::{Value, json};

use super::super::mode::{Mode, blocks, given_of, is_assignable};
use super::super::store::{Store, Stored};
use super::surplus;

/// One agent and the addresses of its pods.
#[derive(Debug, Clone)]
pub(in super::super) struct Agent {
    mode: Mode,
    families: BTreeSet<Family>,
    /// The last version of the carrier that it has seen.
    seen: Option<Rc<Stored>>,
    /// The CIDRs of that version.
    shown: Vec<Cidr>,
    /// How many pods want an address of each family.
    pub(super) pods: usize,
    /// The addresses that pods have, whether it knows of them or not.
    pub(super) held: BTreeSet<IpAddr>,
    /// The CIDRs that the present process took at its start.
    taken: BTreeMap<Family, Cidr>,
    /// The addresses that the present process has given out or restored.
    given_out: BTreeSet<IpAddr>,
    /// Whether its pods are restored.
    pub(super) is_ready: bool,
    /// Whether the present process has annotated its Node with its CIDRs.
    pub(super) has_annotated: bool,
}

/// The annotations in which an agent finds its CIDR of a family: the first, else the second. It writes the first.
pub(in super::super) const fn annotations_of(family: Family) -> [&'static str; 2] {
    match family {
        Family::V4 => ["network.cilium.io/ipv4-pod-cidr", "io.cilium.network.ipv4-pod-cidr"],
        Family::V6 => ["network.cilium.io/ipv6-pod-cidr", "io.cilium.network.ipv6-pod-cidr"],
    }
}

/// The CIDRs of a Node for an agent that uses annotations. For a family that the podCIDRs lack, the first annotation
/// counts that exists, if it is a CIDR.
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

    /// The first process of an agent in a new Pod, on a node where pods already have these addresses.
    pub(super) fn after(mode: Mode, families: BTreeSet<Family>, pods: usize, held: BTreeSet<IpAddr>) -> Self {
        Self { pods, held, ..Self::new(mode, families) }
    }

    /// Its process exits, and another starts. Every version does the same.
    pub(super) fn restart(&mut self, _: CiliumVersion) {
        self.seen = None;
        self.shown.clear();
        self.taken.clear();
        self.given_out.clear();
        self.is_ready = false;
        self.has_annotated = false;
    }

    /// Reads the present version of the carrier.
    pub(super) fn look(&mut self, store: &Store, name: &NodeName) {
        let kind = self.mode.carrier_kind();
        let (Some(stored), Some(carrier)) =
            (store.stored(kind, name.as_str()), store.carrier_in(self.mode, name))
        else {
            return;
        };
        self.shown = if self.mode == Mode::Kubernetes(NodeField::Annotations) {
            shown_with_annotations(store, name, &stored.json)
        } else if carrier.malformed.is_empty() {
            blocks(&carrier)
        } else {
            // A text that is no CIDR stops the agent.
            return;
        };
        self.seen = Some(Rc::clone(stored));
    }

    pub(super) fn seen(&self) -> Option<&Stored> {
        self.seen.as_deref()
    }

    /// Continues its start, if it can: with the CIDRs that it saw, even if they have changed since. Returns whether it
    /// has its CIDRs.
    pub(super) fn goes_on(&mut self) -> bool {
        if self.taken.is_empty() {
            let first = |family: Family| self.shown.iter().copied().find(|cidr| cidr.family() == family);
            let of_all = self.families.iter().map(|family| Some((*family, first(*family)?)));
            self.taken = of_all.collect::<Option<_>>().unwrap_or_default();
        }
        !self.taken.is_empty()
    }

    /// Every CIDR that it has.
    pub(super) fn keeps(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.taken.values().copied()
    }

    /// Restores a pod, if it can.
    pub(super) fn restores(&mut self, address: IpAddr) -> bool {
        let can_be = self.keeps().any(|cidr| is_assignable(cidr, address));
        if can_be {
            self.given_out.insert(address);
        } else {
            self.held.remove(&address);
        }
        can_be
    }

    /// The addresses of pods that it has not restored.
    pub(super) fn not_restored(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.held.difference(&self.given_out).copied()
    }

    /// Is ready, once it has its CIDRs.
    pub(super) fn begin(&mut self) {
        self.is_ready = self.goes_on();
    }

    /// Starts and terminates pods, by family.
    pub(super) fn schedule(&mut self, from: usize) -> Vec<IpAddr> {
        let mut newly = Vec::new();
        for family in self.families.clone() {
            let running: Vec<IpAddr> =
                self.held.iter().copied().filter(|address| Family::of(*address) == family).collect();
            let wanted = self.pods.saturating_sub(running.len());
            for ended in surplus(running, self.pods, from) {
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

    /// The addresses that a pod may get.
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

    /// A pod terminates.
    pub(super) fn ends(&mut self, address: IpAddr) {
        self.held.remove(&address);
        self.given_out.remove(&address);
    }

    /// Its memory.
    pub(super) fn memory(&self) -> Value {
        json!({ "allocated": self.given_out, "taken": self.keeps().map(|cidr| cidr.to_string()).collect::<Vec<_>>() })
    }

    /// In kubernetes mode it copies its CIDRs onto its CiliumNode, over any others. If it uses annotations, it also
    /// writes them once onto its Node, when its pods are restored. In cluster-pool mode it reports nothing.
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

    /// A restored store can lack only the copy. The agent first takes the CIDRs that it saw before: it would take them
    /// later too, and administrators who restore count the CIDRs that agents have.
    pub(super) fn report_all(&mut self, store: &mut Store, name: &NodeName) {
        self.goes_on();
        self.look(store, name);
        self.report(store, name);
    }
}
