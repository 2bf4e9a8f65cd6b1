//! Acts of people and other programs on objects that the controller writes or reads, allowed or not.

use std::collections::BTreeSet;
use std::net::IpAddr;

use cilium_node_ipam::model::claim::{ClaimState, block_name};
use cilium_node_ipam::model::freeze::{Freeze, Switch};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::{NodeName, PoolName};
use cilium_node_ipam::model::request::{NewClaim, Write};
use cilium_node_ipam::net::addresses::AddressSet;
use cilium_node_ipam::net::cidr::{Cidr, Family};
use cilium_node_ipam::publisher::Publisher;
use cilium_node_ipam::publisher::carried_by_cilium_node;
use cilium_node_ipam::publisher::mode::Mode;
use cilium_node_ipam::wire::block::new_claim;
use serde_json::{Value, json};

use super::super::mode::{self, Modes, OTHER_POOL, POOLS, blocks};
use super::super::pools::place;
use super::super::rules;
use super::broken::change;
use super::{Cluster, Suite, one_of, wall};

/// A finalizer of another writer.
const FINALIZER: &str = "example.com/keep";

/// The place of a claim that the planner did not decide.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Place {
    /// Anywhere in the universe.
    At(u8),
    /// At the first address of a claim, in general with another size.
    Over(u8),
    /// At the lowest address of a pool that no claim covers: replicas will probably claim it next.
    Next,
}

/// The CIDRs that another allocator gives to a node, where a node has one block of each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Given {
    /// A block of a pool in each family.
    Blocks,
    /// Two of them in each family.
    TwoBlocks,
    /// A block of a pool in one family.
    OneFamily,
    /// Any CIDR, which is a block of a pool only by chance.
    Anything,
    /// A CIDR that no pool ever has.
    Foreign,
}

/// An act of a person or program. A number selects one of the things that there are, modulo their number. `script.rs`
/// says which suite has it.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Hand {
    /// A block is removed from a CiliumNode, with its entries.
    BlockGoes { node: u8, block: u8 },
    /// All blocks are removed from a CiliumNode.
    BlocksGo { node: u8 },
    /// An entry is removed from `pool`.
    EntryGoes { node: u8, entry: u8 },
    /// All entries are removed from `pool`, and the blocks stay listed. Not while the agent restores its pods.
    MapIsEmptied { node: u8 },
    /// The agent of a node that has nothing ran in another mode, and still does.
    RanBefore { node: u8, at: u8 },
    /// A block that belongs to no node appears on a CiliumNode.
    BlockAppears { node: u8, at: u8, bits: u8 },
    /// A node gets CIDRs of another allocator instead of those that its carrier shows, where a node has one block of
    /// each family.
    OthersGive { node: u8, given: Given, at: u8, bits: u8 },
    /// `used` is removed, and so is the need that the agent reports.
    UseGoes { node: u8 },
    /// An entry is marked for release, as another controller would do it.
    EntryIsMarked { node: u8, entry: u8 },
    /// An entry gets the name of a pod as its owner.
    EntryIsOwned { node: u8, entry: u8 },
    /// A claim is moved to `Releasing`, as if its node were gone.
    ClaimIsReleased { claim: u8 },
    /// An object gets an annotation, and with it a new version.
    ObjectIsTouched { kind: Kind, which: u8 },
    /// An object gets a finalizer of another writer.
    FinalizerAppears { kind: Kind, which: u8 },
    /// All other writers remove their finalizers.
    FinalizersGo,
    /// A field of an object becomes unreadable.
    ObjectBreaks { kind: Kind, which: u8, field: u8 },
    /// All unreadable fields are repaired.
    ObjectsAreMended,
    /// A webhook undoes all patches of a kind.
    PatchesAreUndone { kind: Kind },
    /// The webhook stops.
    PatchesWork,
    /// The store is restored from a backup.
    StoreIsRestored { part: u8 },
    /// The `ConfigMap`s change.
    ModeChanges { mode: Setup },
    /// A replica reads the `ConfigMap`s.
    ModeIsHeard { replica: u8 },
}

/// The content of the `ConfigMap`s: Cilium's, and the one that freezes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Setup {
    /// As the cluster was set up.
    Usual,
    /// Agents run IPv4 only.
    OnlyV4,
    /// As the cluster was set up, with another default Cilium pool, where there is one. Agents would take it when they
    /// restart.
    OtherDefault,
    /// Another mode, in which only statuses of pools are written.
    Passive,
    /// As the cluster was set up, and an administrator has frozen all writes.
    Frozen,
}

impl Setup {
    /// The modes that a replica reads, in a cluster that was set up with these families.
    pub(in super::super) fn mode(self, runs: Modes, usual: &BTreeSet<Family>) -> Mode {
        match self {
            Self::Usual | Self::Frozen | Self::OnlyV4 => Mode::Active(runs.publishers(&self.families(usual))),
            Self::OtherDefault => Mode::from(other_default(runs.of_all.publisher(usual))),
            Self::Passive => Mode::Passive("a script".to_owned()),
        }
    }

    pub(in super::super) fn freeze(self) -> Freeze {
        Freeze::of((self == Self::Frozen).then(|| (Switch::Writes, "a script".to_owned())))
    }

    /// The families that agents run, of those that the cluster was set up with.
    pub(in super::super) fn families(self, usual: &BTreeSet<Family>) -> BTreeSet<Family> {
        if self == Self::OnlyV4 { [Family::V4].into() } else { usual.clone() }
    }

    /// Whether a write may start.
    pub(in super::super) fn allows(self, write: &Write) -> bool {
        self != Self::Passive && !self.freeze().stops_write(write)
    }
}

/// The mode that was set up, with another default Cilium pool, where there is one.
fn other_default(mut usual: Publisher) -> Publisher {
    if let Publisher::MultiPool(multi_pool) = &mut usual {
        multi_pool.default_pool = OTHER_POOL.into();
    }
    usual
}

/// Removes the agent's need for our Cilium pools from `requested`; usage queries stay.
fn demand_goes(json: &mut Value) {
    let requested = json.pointer_mut("/spec/ipam/pools/requested").and_then(Value::as_array_mut);
    if let Some(requested) = requested {
        requested.retain(|entry| POOLS.iter().all(|name| entry["pool"] != *name));
    }
}

/// Removes CIDRs from `allocated`. An entry that had several, and has none left, is removed too.
fn cidrs_go(allocated: &mut Vec<Value>, going: &BTreeSet<Cidr>) {
    let is_terminating = |cidr: &Value| {
        cidr.as_str().and_then(|cidr| cidr.parse().ok()).is_some_and(|cidr| going.contains(&cidr))
    };
    allocated.retain_mut(|entry| {
        let Some(cidrs) = entry["cidrs"].as_array_mut() else { return true };
        let n_before = cidrs.len();
        cidrs.retain(|cidr| !is_terminating(cidr));
        !cidrs.is_empty() || n_before < 2
    });
}

impl Cluster {
    pub(super) fn hand(&mut self, hand: Hand) {
        match hand {
            Hand::BlockGoes { node, block } => {
                if let Some((name, cidrs)) = self.carried(node)
                    && let Some(at) = one_of(block, cidrs.len())
                {
                    self.blocks_go(&name, &[cidrs[at]].into());
                }
            }
            Hand::BlocksGo { node } => {
                if let Some((name, cidrs)) = self.carried(node) {
                    self.blocks_go(&name, &cidrs.into_iter().collect());
                }
            }
            Hand::EntryGoes { node, entry } => {
                self.edit_entry(node, entry, |json, address| {
                    change(json, "/spec/ipam/pool", &address.to_string(), None);
                });
            }
            Hand::MapIsEmptied { node } => self.map_is_emptied(&super::node_name(node)),
            Hand::RanBefore { node, at } => self.ran_before(&super::node_name(node), at),
            Hand::BlockAppears { node, at, bits } => self.block_appears(node, at, bits),
            Hand::OthersGive { node, given, at, bits } => self.others_give(node, given, at, bits),
            Hand::UseGoes { node } => {
                if let Some((name, _)) = self.carried(node) {
                    self.edit_cilium_node(&name, |json| {
                        change(json, "/status/ipam", "used", None);
                        demand_goes(json);
                    });
                }
            }
            Hand::EntryIsMarked { node, entry } => {
                self.marked.extend(self.some_entry(node, entry));
                self.edit_entry(node, entry, |json, address| {
                    json["status"]["ipam"]["release-ips"][address.to_string()] = json!("marked-for-release");
                });
            }
            Hand::EntryIsOwned { node, entry } => self.edit_entry(node, entry, |json, address| {
                json["spec"]["ipam"]["pool"][address.to_string()]["owner"] = json!("default/static");
            }),
            Hand::ClaimIsReleased { claim } => self.claim_is_released(claim),
            Hand::ObjectIsTouched { kind, which } => {
                if let Some(name) = self.some_object(kind, which) {
                    let at = self.store.revision().to_string();
                    self.store
                        .edit(kind, &name, |json| json["metadata"]["annotations"]["touched"] = json!(at));
                }
            }
            Hand::FinalizerAppears { kind, which } => self.finalizer_appears(kind, which),
            Hand::FinalizersGo => self.finalizers_go(),
            Hand::ObjectBreaks { kind, which, field } => self.object_breaks(kind, which, field),
            Hand::ObjectsAreMended => self.objects_are_mended(),
            Hand::PatchesAreUndone { kind } => drop(self.store.undone.insert(kind)),
            Hand::PatchesWork => self.store.undone.clear(),
            Hand::StoreIsRestored { part } => self.store_is_restored(part),
            Hand::ModeChanges { mode } => {
                self.mode = mode;
                if matches!(mode, Setup::OnlyV4 | Setup::OtherDefault) {
                    self.taint_all();
                }
            }
            Hand::ModeIsHeard { replica } => {
                let number = usize::from(replica) % self.setting.n_replicas;
                self.replicas[number].hears_mode(self.mode);
            }
        }
    }

    /// Undoes everything that other writers broke or set.
    pub(super) fn hands_off(&mut self) {
        self.objects_are_mended();
        self.finalizers_go();
        self.marks_go();
        self.store.undone.clear();
        self.mode = Setup::Usual;
        for replica in &mut self.replicas {
            replica.hears_mode(self.mode);
        }
    }

    /// The CiliumNode of a node and the blocks on it.
    fn carried(&self, node: u8) -> Option<(NodeName, Vec<Cidr>)> {
        let name = super::node_name(node);
        let seen = self.store.cilium_node(&name)?;
        Some((name, blocks(seen)))
    }

    fn edit_cilium_node(&mut self, name: &NodeName, edit: impl FnOnce(&mut Value)) {
        self.taint(name);
        self.store.edit(Kind::CiliumNode, name.as_str(), edit);
    }

    fn edit_entry(&mut self, node: u8, entry: u8, edit: impl FnOnce(&mut Value, IpAddr)) {
        if let Some((name, address)) = self.some_entry(node, entry) {
            self.edit_cilium_node(&name, |json| edit(json, address));
        }
    }

    fn some_entry(&self, node: u8, entry: u8) -> Option<(NodeName, IpAddr)> {
        let name = super::node_name(node);
        let entries: Vec<IpAddr> = self.store.cilium_node(&name)?.crd.pool.iter().collect();
        one_of(entry, entries.len()).map(|at| (name, entries[at]))
    }

    fn blocks_go(&mut self, name: &NodeName, going: &BTreeSet<Cidr>) {
        let is_terminating =
            |text: &str| text.parse().is_ok_and(|address| going.iter().any(|cidr| cidr.contains(address)));
        self.taint(name);
        self.annotations_go(name, going);
        self.edit_cilium_node(name, |json| {
            let ipam = &mut json["spec"]["ipam"];
            if let Some(cidrs) = ipam["podCIDRs"].as_array_mut() {
                cidrs.retain(|cidr| {
                    let cidr = cidr.as_str().and_then(|cidr| cidr.parse().ok());
                    cidr.is_none_or(|cidr| !going.contains(&cidr))
                });
            }
            if let Some(pool) = ipam["pool"].as_object_mut() {
                pool.retain(|address, _| !is_terminating(address));
            }
            if let Some(allocated) =
                ipam.pointer_mut("/pools/allocated").and_then(serde_json::Value::as_array_mut)
            {
                cidrs_go(allocated, going);
            }
        });
    }

    fn block_appears(&mut self, node: u8, at: u8, bits: u8) {
        let name = super::node_name(node);
        let Some(cidr) = Cidr::containing(place(Family::V4, at), Family::V4.bits() - bits) else { return };
        let is_taken = self.store.claims().any(|claim| claim.cidr.overlaps(cidr))
            || self.store.cilium_nodes().any(|seen| carried_by_cilium_node(seen).count_in(cidr) > 0);
        // In other modes the agent would give its addresses to pods.
        let is_used = self.setting.modes.of_all != mode::Mode::Crd;
        if is_taken || is_used || self.store.cilium_node(&name).is_none() {
            return;
        }
        self.edit_cilium_node(&name, |json| {
            let cidrs = &mut json["spec"]["ipam"]["podCIDRs"];
            if cidrs.is_null() {
                *cidrs = json!([]);
            }
            if let Some(cidrs) = cidrs.as_array_mut() {
                cidrs.push(json!(cidr.to_string()));
            }
        });
    }

    pub(super) fn claim_is_made(&mut self, node: &NodeName, at: Place, bits: u8) {
        // Where a node has one block for life, another leader can't make it.
        let is_of_leader = self.setting.suite == Suite::Promises;
        if is_of_leader && self.store.mode_of(node).gives_one_block() {
            return;
        }
        let (Some(found), Some(seen)) = (self.store.node(node), self.store.carrier(node)) else { return };
        let Some(address) = self.address_at(at) else { return };
        let family = Family::of(address);
        let Some(cidr) = Cidr::containing(address, family.bits() - bits) else { return };
        let new = NewClaim {
            cidr,
            pool: PoolName::from("p0"),
            node: node.clone(),
            node_uid: found.uid.clone(),
            pod_ip_pool: None,
            excluded: AddressSet::new(),
            // The planner sets it too for a block that no carrier has had.
            created_for: Some(seen.uid.clone()),
            since: wall(self.clock),
        };
        let json = serde_json::to_value(new_claim(&new)).expect("it is plain data");
        // The claim may exist.
        if self.store.create(Kind::Claim, json).is_ok() && !is_of_leader {
            self.taint(node);
        }
    }

    fn address_at(&self, at: Place) -> Option<IpAddr> {
        match at {
            Place::At(at) => Some(place(Family::V4, at)),
            Place::Over(claim) => self.some_claim(claim).map(|(_, cidr)| cidr.first_address()),
            Place::Next => (0..=u8::MAX).map(|at| place(Family::V4, at)).find(|address| {
                rules::is_given_out(&self.store, *address)
                    && self.store.claims().all(|claim| !claim.cidr.contains(*address))
            }),
        }
    }

    pub(super) fn claim_is_removed(&mut self, claim: u8) {
        if let Some((node, cidr)) = self.some_claim(claim) {
            self.taint(&node);
            self.store.remove(Kind::Claim, &block_name(cidr));
        }
    }

    fn claim_is_released(&mut self, claim: u8) {
        let Some((node, cidr)) = self.some_claim(claim) else { return };
        let is_held = self.store.claim(cidr).is_some_and(|claim| claim.state == ClaimState::Held);
        if is_held {
            self.taint(&node);
            let since = wall(self.clock).to_string();
            self.store.edit(Kind::Claim, &block_name(cidr), |json| {
                let spec = &mut json["spec"];
                (spec["state"], spec["reason"], spec["since"]) =
                    (json!("Releasing"), json!("NodeGone"), json!(since));
            });
        }
    }

    pub(super) fn some_object(&self, kind: Kind, which: u8) -> Option<String> {
        let names = self.store.names(kind);
        one_of(which, names.len()).map(|at| names[at].clone())
    }

    fn finalizer_appears(&mut self, kind: Kind, which: u8) {
        let Some(name) = self.some_object(kind, which) else { return };
        self.store.edit(kind, &name, |json| {
            let metadata = &mut json["metadata"];
            // The server accepts no new finalizer on an object that is being deleted.
            if metadata["deletionTimestamp"].is_null() {
                let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
                if !finalizers.contains(&json!(FINALIZER)) {
                    finalizers.push(json!(FINALIZER));
                }
                metadata["finalizers"] = Value::Array(finalizers);
            }
        });
    }

    pub(super) fn finalizers_go(&mut self) {
        for kind in Kind::AS_LISTED {
            for name in self.store.names(kind) {
                // Without the finalizer, an object that is being deleted is gone.
                if kind == Kind::CiliumNode && !self.may_lose_cilium_node(&name.as_str().into()) {
                    continue;
                }
                self.store.edit(kind, &name, |json| {
                    if let Some(finalizers) =
                        json.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut)
                    {
                        finalizers.retain(|finalizer| *finalizer != json!(FINALIZER));
                    }
                });
                if kind == Kind::Node && self.store.stored(kind, &name).is_none() {
                    self.loses_node(name.as_str().into());
                }
            }
        }
    }

    /// The other writer removes its marks. Those of the controller stay.
    fn marks_go(&mut self) {
        for (name, address) in std::mem::take(&mut self.marked) {
            self.store.edit(Kind::CiliumNode, name.as_str(), |json| {
                change(json, "/status/ipam/release-ips", &address.to_string(), None);
            });
        }
    }
}
