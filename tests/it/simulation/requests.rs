//! How a request reaches the API server, in the JSON that `wire` makes of it, and how its answer is read.
//!
//! As in `controller::execute`, it makes one call to the server at a time, so any event can come between the two calls
//! of a deletion.

use std::rc::Rc;

use cilium_node_ipam::model::agent::PodsOnNode;
use cilium_node_ipam::model::carrier::CarrierChange;
use cilium_node_ipam::model::claim::block_name;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::names::Uid;
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::model::outcome::{Answer, Presence, Seen};
use cilium_node_ipam::model::request::{ClaimChange, ClaimUpdate, Read, Request, Target, Write};
use cilium_node_ipam::model::revision::{AnyRevision, Custom, Revision};
use cilium_node_ipam::wire::carrier_patch::{
    ManagedFields, bump_version_patch, merge_patch, new_cilium_node, usage_query_patch, withdrawal_patch,
};
use cilium_node_ipam::wire::{block, pool};
use serde_json::Value;

use super::store::{Part, Refusal, Store, Stored};

/// The version of an object that a write was decided on.
#[derive(Debug)]
pub(super) struct DecidedOn<'a> {
    pub(super) kind: Kind,
    pub(super) name: String,
    uid: &'a Uid,
    /// None for the second half of a deletion, which is bound to the version that the first half made.
    revision: Option<AnyRevision>,
}

impl DecidedOn<'_> {
    /// Safety rule 4: a write is applied only to the object and version that it was decided on.
    pub(super) fn is_of(&self, before: &Stored) -> Result<(), String> {
        if before.json["metadata"]["uid"] != self.uid.as_str() {
            return Err("was applied to another object than it was decided on".to_owned());
        }
        if self.revision.is_some() && before.object.revision() != self.revision {
            return Err("was applied to another version than it was decided on".to_owned());
        }
        Ok(())
    }
}

/// The version that a write was decided on; `None` for one that creates an object.
pub(super) fn decided_on(write: &Write) -> Option<DecidedOn<'_>> {
    let of = |kind, name: &str, uid, revision| Some(DecidedOn { kind, name: name.to_owned(), uid, revision });
    match write {
        Write::CreateClaim(_) | Write::CreateCiliumNode(_) => None,
        Write::UpdateClaim(update) => {
            let is_bound = update.change != ClaimChange::Delete;
            let revision = is_bound.then(|| update.revision.into());
            of(Kind::Claim, &block_name(update.cidr), &update.uid, revision)
        }
        Write::Publish(publication) => {
            let kind = publication.change.carrier_kind();
            of(kind, publication.node.as_str(), &publication.uid, Some(publication.revision))
        }
        Write::BumpVersion(bump) => {
            of(carrier_kind(bump.revision), bump.node.as_str(), &bump.uid, Some(bump.revision))
        }
        Write::UsageQuery(query) => {
            of(Kind::CiliumNode, query.node.as_str(), &query.uid, Some(query.revision))
        }
        Write::Withdraw(withdrawal) => {
            of(Kind::CiliumNode, withdrawal.node.as_str(), &withdrawal.uid, Some(withdrawal.revision))
        }
        Write::PoolStatus(status) => {
            of(Kind::Pool, status.pool.as_str(), &status.uid, Some(status.revision.into()))
        }
        Write::PoolFinalizers(write) => {
            of(Kind::Pool, write.pool.as_str(), &write.uid, Some(write.revision.into()))
        }
        Write::ClaimStatus(write) => {
            of(Kind::Claim, &block_name(write.cidr), &write.uid, Some(write.revision.into()))
        }
        Write::NodeCondition(write) => {
            of(Kind::Node, write.node.as_str(), &write.uid, Some(write.revision.into()))
        }
        Write::PodIpPool(write) => unreachable!("{}: an administrator creates it", write.name),
        Write::Frr(write) => unreachable!("{write}: no routes are exported"),
    }
}

/// How far a request has come.
#[derive(Debug, Clone)]
pub(super) enum Stage {
    /// It has not reached the server.
    Sent,
    /// The first half of a deletion is done, which removed our finalizer and made this version.
    Unfinalized(Revision),
    /// The server has done it; the answer is in flight.
    Answered(Answer, Seen),
    /// The object must be read: the request failed, created a CiliumNode, or has an unknown outcome.
    MustRead(Answer),
}

/// The server does a request, or the half that is next.
pub(super) fn serve(request: &Request, stage: &Stage, store: &mut Store) -> Stage {
    let write = match request {
        Request::Read(_) => return Stage::Answered(Answer::Done, settle(request, store)),
        Request::Write(write) => write,
    };
    let mut patch = |part, patch: &Value| {
        let on = decided_on(write).expect("a patch is of an object");
        store.patch(on.kind, &on.name, part, patch).map(|stored| answered(&stored))
    };
    let done = match write {
        Write::CreateClaim(new) => {
            let json = serde_json::to_value(block::new_claim(new)).expect("it is plain data");
            store.create(Kind::Claim, json).map(|stored| answered(&stored))
        }
        Write::UpdateClaim(update) => serve_update(update, stage, store),
        Write::Publish(publication) => patch(Part::Object, &merge_patch(publication, ManagedFields::Dropped)),
        Write::BumpVersion(bump) => patch(Part::Object, &bump_version_patch(bump)),
        Write::UsageQuery(query) => patch(part_of(&query.change), &usage_query_patch(query)),
        Write::Withdraw(withdrawal) => {
            patch(part_of(&withdrawal.change), &withdrawal_patch(withdrawal, ManagedFields::Dropped))
        }
        Write::CreateCiliumNode(new) => {
            store.create(Kind::CiliumNode, new_cilium_node(new)).map(|_| Stage::MustRead(Answer::Done))
        }
        Write::PoolStatus(status) => patch(Part::Status, &pool::status_patch(status)),
        Write::PoolFinalizers(finalizers) => patch(Part::Object, &pool::finalizers_patch(finalizers)),
        Write::ClaimStatus(status) => patch(Part::Status, &block::status_patch(status)),
        Write::NodeCondition(write) => unreachable!("{}: conditions are off", write.node),
        Write::PodIpPool(write) => unreachable!("{}: an administrator creates it", write.name),
        Write::Frr(write) => unreachable!("{write}: no routes are exported"),
    };
    match done {
        Ok(stage) => stage,
        // The watch shows the outcome, and a second write does no harm.
        Err(Refusal::Conflict(why)) if write.pool().is_some() => {
            Stage::Answered(Answer::Conflict(why), Seen::Nothing)
        }
        Err(Refusal::Conflict(why)) => Stage::MustRead(Answer::Conflict(why)),
        Err(Refusal::Invalid(why)) => {
            store.object_to(format!("`{write}` breaks a rule of the server: {why}"));
            Stage::Answered(Answer::Refused(why, None), Seen::Nothing)
        }
    }
}

fn serve_update(update: &ClaimUpdate, stage: &Stage, store: &mut Store) -> Result<Stage, Refusal> {
    let name = block_name(update.cidr);
    if let Some(patch) = block::update_patch(update) {
        return store.patch(Kind::Claim, &name, Part::Object, &patch).map(|stored| answered(&stored));
    }
    let mut revision = update.revision;
    if let Stage::Unfinalized(brought) = stage {
        revision = *brought;
    } else if let Some(patch) = block::drop_finalizer_patch(update) {
        return store.patch(Kind::Claim, &name, Part::Object, &patch).map(|patched| match &patched.object {
            // A user had deleted it before, and only our finalizer had kept it.
            Object::Claim(claim) if claim.deleting && claim.finalizers.is_empty() => {
                Stage::Answered(Answer::Done, Seen::Deleted(update.uid.clone()))
            }
            Object::Claim(claim) => Stage::Unfinalized(claim.revision),
            _ => Stage::Unfinalized(revision),
        });
    }
    let left = store.delete(Kind::Claim, &name, Some((&update.uid, revision)))?;
    // The finalizer of another writer may keep it.
    let deleted = || Stage::Answered(Answer::Done, Seen::Deleted(update.uid.clone()));
    Ok(left.as_ref().map_or_else(deleted, answered))
}

/// The kind of the carrier that a write was decided on.
fn carrier_kind(revision: AnyRevision) -> Kind {
    if revision.within::<Custom>().is_some() { Kind::CiliumNode } else { Kind::Node }
}

/// The part of a CiliumNode that a change belongs to.
fn part_of(change: &CarrierChange) -> Part {
    if change.is_of_status() { Part::Status } else { Part::Object }
}

fn answered(stored: &Rc<Stored>) -> Stage {
    Stage::Answered(Answer::Done, seen(&stored.object))
}

/// The knowledge from an answer that shows an object.
fn seen(object: &Object) -> Seen {
    match object.clone() {
        Object::CiliumNode(cilium_node) => Seen::CiliumNode(Box::new(cilium_node)),
        Object::Claim(claim) => Seen::Claim(Box::new(claim)),
        Object::Pool(pool) => Seen::Pool(Box::new(pool)),
        Object::Unreadable(_, unreadable) => Seen::Unreadable(unreadable.reason),
        Object::Node(node) => Seen::PatchedNode(Box::new(node)),
    }
}

/// The consistent read that settles a write, or a read that is a request of its own.
pub(super) fn settle(request: &Request, store: &Store) -> Seen {
    let read =
        |kind, name: &str| store.object(kind, name).map_or_else(|| Seen::Absent(store.revision()), seen);
    if let Request::Read(Read::Node(node, as_of)) = request {
        let presence = match store.object(Kind::Node, node.as_str()) {
            None => Presence::Gone,
            Some(Object::Node(found)) => Presence::Is(found.uid.clone()),
            Some(_) => Presence::Unreadable,
        };
        return Seen::Node { as_of: *as_of, read_at: Revision::of(store.revision().number()), presence };
    }
    if let Request::Read(Read::PodsOf(node, after)) = request {
        let agents = store.agent_pods.on(node).cloned().collect();
        return Seen::PodsOf {
            after: *after,
            pods: PodsOnNode {
                agents,
                holders: store.holders.get(node).cloned().unwrap_or_default(),
                n_starting: 0,
            },
        };
    }
    match request.target() {
        Target::Claim(cidr) => read(Kind::Claim, &block_name(cidr)),
        Target::CiliumNode(node) => read(Kind::CiliumNode, node.as_str()),
        Target::ClaimsOf(node) => {
            let (mut claims, mut unreadable) = (Vec::new(), Vec::new());
            // The server selects by the field, even if nothing else of the claim can be read.
            for stored in
                store.claims_as_stored().filter(|stored| stored.json["spec"]["node"] == node.as_str())
            {
                match &stored.object {
                    Object::Claim(claim) => claims.push(claim.clone()),
                    Object::Unreadable(_, object) => unreadable.push(object.clone()),
                    Object::Node(_) | Object::CiliumNode(_) | Object::Pool(_) => {}
                }
            }
            Seen::ClaimsOf { unreadable, revision: store.revision(), claims }
        }
        Target::Node(node) => store.object(Kind::Node, node.as_str()).map_or(Seen::Nothing, seen),
        Target::Pool(_)
        | Target::NodeCondition(_)
        | Target::PodIpPool(_)
        | Target::Frr(_)
        | Target::PodsOf(_) => Seen::Nothing,
    }
}

/// Whether a read shows the requested state, even if another replica made it.
pub(super) fn is_ours(request: &Request, seen: &Seen) -> bool {
    match (request, seen) {
        (Request::Write(Write::CreateClaim(new)), Seen::Claim(found)) => new.is_made_as(found),
        (Request::Read(_), _) => true,
        _ => false,
    }
}
