//! The API server as far as the controller can tell: objects of four kinds under one revision counter, creation that
//! fails where the name exists, patches that carry uid and version, consistent lists, and a history per kind.
//!
//! Knows no rule of the product. A [`Defect`] makes it break one of its own, so that the rules can be seen to notice.

use std::collections::BTreeMap;

use cilium_node_ipam::model::carrier::CarrierChange;
use cilium_node_ipam::model::claim::{Claim, ClaimState, block_name};
use cilium_node_ipam::model::crd::{CrdChange, MarkChange, ReleaseMark};
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::{NodeName, PoolName, Uid};
use cilium_node_ipam::model::node::{CiliumNode, Node};
use cilium_node_ipam::model::observation::{Object, Observation, PoolObject};
use cilium_node_ipam::model::request::{
    BumpVersion, ClaimChange, ClaimUpdate, NewClaim, PoolFinalizersWrite, PoolStatusWrite, Publication,
    UsageProbe,
};
use cilium_node_ipam::model::revision::{AnyRevision, Revision};
use cilium_node_ipam::model::time::Timestamp;
use cilium_node_ipam::net::cidr::Cidr;

use super::cluster::in_seconds;

/// A promise that the server breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Defect {
    /// A claim whose name exists is created all the same.
    NamesAreNotUnique,
    /// A patch is applied to whatever version there is.
    VersionsAreIgnored,
}

/// The request is about an object that is not as it was: 404 or 409.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict(pub(super) String);

/// The API server and what it stores.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// The time of its wall clock.
    pub(super) wall: Timestamp,
    defect: Option<Defect>,
    revision: u64,
    n_uids: u64,
    objects: BTreeMap<(Kind, String), Object>,
    history: BTreeMap<Kind, Vec<(Revision, Observation)>>,
}

impl Store {
    pub(super) fn new(wall: Timestamp, defect: Option<Defect>) -> Self {
        // A store has a revision before there is anything of ours in it.
        Self { wall, defect, revision: 1, ..Self::default() }
    }

    pub(super) fn revision(&self) -> Revision {
        Revision::of(self.revision)
    }

    /// A uid that nothing had before.
    pub(super) fn new_uid(&mut self) -> Uid {
        self.n_uids += 1;
        format!("uid-{}", self.n_uids).into()
    }

    /// What the watch of `kind` says first after `cursor`.
    pub(super) fn event_after(&self, kind: Kind, cursor: Revision) -> Option<&(Revision, Observation)> {
        let history = self.history.get(&kind)?;
        history.get(history.partition_point(|(at, _)| *at <= cursor))
    }

    /// Everything that happened to a kind.
    pub(super) fn history(&self, kind: Kind) -> &[(Revision, Observation)] {
        self.history.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// All objects of a kind, by name.
    pub(super) fn list(&self, kind: Kind) -> Vec<Object> {
        self.of_kind(kind).cloned().collect()
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        self.objects.iter().filter(move |((of, _), _)| *of == kind).map(|(_, object)| object)
    }

    pub(super) fn object(&self, kind: Kind, name: &str) -> Option<&Object> {
        self.objects.get(&(kind, name.to_owned()))
    }

    /// Stores an object, with its new revision in it.
    pub(super) fn put(&mut self, mut object: Object) -> Revision {
        self.revision += 1;
        let revision = self.revision();
        match &mut object {
            Object::Node(node) => node.revision = Revision::of(self.revision),
            Object::CiliumNode(cilium_node) => cilium_node.revision = revision,
            Object::Pool(pool) => pool.revision = revision,
            Object::Claim(claim) => claim.revision = revision,
            Object::Unreadable(kind, unreadable) => {
                unreadable.revision = Some(AnyRevision::of(*kind, self.revision));
            }
        }
        let kind = object.kind();
        self.objects.insert((kind, object.name()), object.clone());
        self.history.entry(kind).or_default().push((revision, Observation::Applied(Box::new(object))));
        revision
    }

    /// Removes an object; `false` when there was none.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) -> bool {
        if self.objects.remove(&(kind, name.to_owned())).is_none() {
            return false;
        }
        self.revision += 1;
        let revision = self.revision();
        let gone = Observation::Deleted {
            kind,
            name: name.to_owned(),
            revision: AnyRevision::of(kind, self.revision),
        };
        self.history.entry(kind).or_default().push((revision, gone));
        true
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

    pub(super) fn pools(&self) -> impl Iterator<Item = &PoolObject> {
        self.of_kind(Kind::Pool).filter_map(|object| match object {
            Object::Pool(pool) => Some(pool),
            _ => None,
        })
    }

    /// Creates a claim, whose name is its lock.
    pub(super) fn create_claim(&mut self, new: &NewClaim) -> Result<Claim, Conflict> {
        if self.claim(new.cidr).is_some() && self.defect != Some(Defect::NamesAreNotUnique) {
            return Err(Conflict("the name exists".to_owned()));
        }
        let mut claim = Claim {
            cidr: new.cidr,
            pool: new.pool.clone(),
            node: new.node.clone(),
            node_uid: new.node_uid.clone(),
            withheld: new.withheld.clone(),
            state: ClaimState::Held,
            since: new.since,
            created_for: new.created_for.clone(),
            uid: self.new_uid(),
            revision: Revision::of(1),
            created: in_seconds(self.wall),
            deleting: false,
            finalizers: vec![Claim::FINALIZER.to_owned()],
        };
        claim.revision = self.put(Object::Claim(claim.clone()));
        Ok(claim)
    }

    /// Moves a claim, or deletes it: then there is nothing to answer with. A deletion drops our finalizer first, in a
    /// request of its own.
    pub(super) fn update_claim(&mut self, update: &ClaimUpdate) -> Result<Option<Claim>, Conflict> {
        let mut moved = self.carried_claim(update)?;
        match &update.change {
            ClaimChange::Hold(node_uid) => {
                moved.node_uid = node_uid.clone();
                moved.state = ClaimState::Held;
            }
            ClaimChange::Release(reason) => moved.state = ClaimState::Releasing(*reason),
            ClaimChange::Cool => {
                let reason =
                    moved.state.reason().ok_or_else(|| Conflict("it is not being released".to_owned()))?;
                moved.state = ClaimState::Cooling(reason);
            }
            ClaimChange::Delete => {
                self.drop_finalizer(update)?;
                self.remove(Kind::Claim, &block_name(update.cidr));
                return Ok(None);
            }
        }
        moved.since = update.since;
        if !moved.deleting && !moved.finalizers.iter().any(|finalizer| finalizer == Claim::FINALIZER) {
            moved.finalizers.push(Claim::FINALIZER.to_owned());
        }
        Ok(Some(self.put_or_finish(moved)))
    }

    /// The first half of a deletion.
    pub(super) fn drop_finalizer(&mut self, update: &ClaimUpdate) -> Result<(), Conflict> {
        let mut moved = self.carried_claim(update)?;
        let n_finalizers = moved.finalizers.len();
        moved.finalizers.retain(|finalizer| finalizer != Claim::FINALIZER);
        if moved.finalizers.len() < n_finalizers {
            self.put_or_finish(moved);
        }
        Ok(())
    }

    fn carried_claim(&self, update: &ClaimUpdate) -> Result<Claim, Conflict> {
        let found = self.claim(update.cidr).ok_or_else(|| Conflict("it does not exist".to_owned()))?;
        if found.uid != update.uid
            || found.revision != update.revision && self.defect != Some(Defect::VersionsAreIgnored)
        {
            return Err(Conflict("it is another version".to_owned()));
        }
        Ok(found.clone())
    }

    /// An object that somebody deletes goes with its last finalizer; the server answers with the object that was asked
    /// for, in the version before.
    fn put_or_finish(&mut self, mut claim: Claim) -> Claim {
        if claim.deleting && claim.finalizers.is_empty() {
            self.remove(Kind::Claim, &block_name(claim.cidr));
        } else {
            claim.revision = self.put(Object::Claim(claim.clone()));
        }
        claim
    }

    /// Somebody deletes a claim by hand.
    pub(super) fn delete_claim(&mut self, cidr: Cidr) {
        if let Some(mut claim) = self.claim(cidr).filter(|claim| !claim.deleting).cloned() {
            claim.deleting = true;
            self.put_or_finish(claim);
        }
    }

    /// Patches a CiliumNode. One that changes nothing makes no new version.
    pub(super) fn publish(&mut self, publication: &Publication) -> Result<CiliumNode, Conflict> {
        let found = self.carried_cilium_node(&publication.node, &publication.uid, publication.revision)?;
        let mut patched = found.clone();
        apply(&publication.change, &mut patched);
        if patched != *found {
            patched.revision = self.put(Object::CiliumNode(patched.clone()));
        }
        Ok(patched)
    }

    fn carried_cilium_node(
        &self,
        node: &NodeName,
        uid: &Uid,
        revision: AnyRevision,
    ) -> Result<&CiliumNode, Conflict> {
        let found = self.cilium_node(node).ok_or_else(|| Conflict("it does not exist".to_owned()))?;
        let is_carried = found.uid == *uid && AnyRevision::from(found.revision) == revision;
        if !is_carried && self.defect != Some(Defect::VersionsAreIgnored) {
            return Err(Conflict("it is another version".to_owned()));
        }
        Ok(found)
    }

    /// Writes a CiliumNode only to get a later version of it.
    pub(super) fn bump_version(&mut self, bump: &BumpVersion) -> Result<CiliumNode, Conflict> {
        let mut touched = self.carried_cilium_node(&bump.node, &bump.uid, bump.revision.into())?.clone();
        // The annotation names a revision that no version before could name.
        touched.revision = self.put(Object::CiliumNode(touched.clone()));
        Ok(touched)
    }

    /// Sets or removes the mark that makes an agent answer.
    pub(super) fn probe_usage(&mut self, probe: &UsageProbe) -> Result<CiliumNode, Conflict> {
        let found = self.carried_cilium_node(&probe.node, &probe.uid, probe.revision)?;
        let mut patched = found.clone();
        apply(&probe.change, &mut patched);
        if patched != *found {
            patched.revision = self.put(Object::CiliumNode(patched.clone()));
        }
        Ok(patched)
    }

    /// Writes the finalizers of a pool; `None` where it goes with the last one.
    pub(super) fn patch_pool_finalizers(
        &mut self,
        write: &PoolFinalizersWrite,
    ) -> Result<Option<PoolObject>, Conflict> {
        let mut patched = self.carried_pool(&write.pool, &write.uid, write.revision)?.clone();
        patched.finalizers.clone_from(&write.finalizers);
        if patched.deleting && patched.finalizers.is_empty() {
            self.remove(Kind::Pool, write.pool.as_str());
            return Ok(None);
        }
        patched.revision = self.put(Object::Pool(patched.clone()));
        Ok(Some(patched))
    }

    fn carried_pool(&self, pool: &PoolName, uid: &Uid, revision: Revision) -> Result<&PoolObject, Conflict> {
        let Some(Object::Pool(found)) = self.object(Kind::Pool, pool.as_str()) else {
            return Err(Conflict("it does not exist".to_owned()));
        };
        if found.uid != *uid || found.revision != revision {
            return Err(Conflict("it is another version".to_owned()));
        }
        Ok(found)
    }

    /// Patches the status of a pool.
    pub(super) fn patch_pool_status(&mut self, write: &PoolStatusWrite) -> Result<PoolObject, Conflict> {
        let found = self.carried_pool(&write.pool, &write.uid, write.revision)?;
        let mut patched = found.clone();
        patched.status = write.status.clone();
        patched.transitions =
            write.transitions.iter().map(|(kind, at)| (kind.as_str().to_owned(), *at)).collect();
        if patched != *found {
            patched.revision = self.put(Object::Pool(patched.clone()));
        }
        Ok(patched)
    }
}

/// What a patch of a CiliumNode does to it.
fn apply(change: &CarrierChange, patched: &mut CiliumNode) {
    let CarrierChange::Crd(change) = change;
    let fields = &mut patched.crd;
    match change {
        CrdChange::Blocks { pod_cidrs, entries } => {
            fields.pod_cidrs.clone_from(pod_cidrs);
            for (address, owner) in entries {
                fields.pool.insert(*address);
                if let Some(owner) = owner {
                    fields.owners.insert(*address, (*owner).to_owned());
                }
            }
        }
        CrdChange::Marks(marks) => {
            for (address, mark) in marks {
                match mark {
                    MarkChange::Ask => drop(fields.marks.insert(*address, ReleaseMark::Marked)),
                    MarkChange::Remove => drop(fields.marks.remove(address)),
                }
            }
        }
    }
}
