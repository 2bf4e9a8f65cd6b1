//! How a request reaches the API server, in the JSON that `wire` makes of it, and what is learnt from the answer.
//!
//! As `controller::execute` does, one call to the server at a time, so that anything can come between the two calls of
//! a deletion.

use std::rc::Rc;

use cilium_node_ipam::model::claim::block_name;
use cilium_node_ipam::model::kind::Kind;
use cilium_node_ipam::model::observation::Object;
use cilium_node_ipam::model::request::{Answer, ClaimUpdate, Presence, Read, Request, Seen, Target, Write};
use cilium_node_ipam::model::revision::Revision;
use cilium_node_ipam::wire::cilium_node::{
    ManagedFields, bump_version_patch, merge_patch, new_cilium_node, usage_probe_patch,
};
use cilium_node_ipam::wire::{block, pool};

use super::store::{Part, Precondition, Refusal, Store, Stored};

/// How far a request has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// It has not reached the server.
    Sent,
    /// The first half of a deletion is done, which brought this version: our finalizer is gone.
    Unfinalized(Revision),
    /// The server has done it; the answer is on its way.
    Answered(Answer, Seen),
    /// It did not end in success: the object has to be read.
    MustRead(Answer),
}

/// The server does a request, or the half of it whose turn it is.
pub(super) fn serve(request: &Request, stage: &Stage, store: &mut Store) -> Stage {
    let write = match request {
        Request::Read(_) => return Stage::Answered(Answer::Done, settle(request, store)),
        Request::Write(write) => write,
    };
    let done = match write {
        Write::CreateClaim(new) => {
            let json = serde_json::to_value(block::new_claim(new)).expect("it is plain data");
            store.create(Kind::Claim, json).map(|stored| answered(&stored))
        }
        Write::UpdateClaim(update) => serve_update(update, stage, store),
        Write::Publish(publication) => {
            let patch = merge_patch(publication, ManagedFields::Dropped);
            store
                .patch(Kind::CiliumNode, publication.node.as_str(), Part::Object, &patch)
                .map(|stored| answered(&stored))
        }
        Write::BumpVersion(bump) => store
            .patch(Kind::CiliumNode, bump.node.as_str(), Part::Object, &bump_version_patch(bump))
            .map(|stored| answered(&stored)),
        Write::UsageProbe(probe) => store
            .patch(Kind::CiliumNode, probe.node.as_str(), Part::Status, &usage_probe_patch(probe))
            .map(|stored| answered(&stored)),
        Write::CreateCiliumNode(new) => {
            store.create(Kind::CiliumNode, new_cilium_node(new)).map(|_| Stage::MustRead(Answer::Done))
        }
        Write::PoolStatus(status) => store
            .patch(Kind::Pool, status.pool.as_str(), Part::Status, &pool::status_patch(status))
            .map(|stored| answered(&stored)),
        Write::PoolFinalizers(finalizers) => store
            .patch(Kind::Pool, finalizers.pool.as_str(), Part::Object, &pool::finalizers_patch(finalizers))
            .map(|stored| answered(&stored)),
    };
    match done {
        Ok(stage) => stage,
        // The watch shows the outcome, and writing it twice does no harm.
        Err(Refusal::Conflict(why)) if matches!(write, Write::PoolStatus(_) | Write::PoolFinalizers(_)) => {
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
            // Somebody had deleted it before, and the deletion was waiting for our finalizer only.
            Object::Claim(claim) if claim.deleting && claim.finalizers.is_empty() => {
                Stage::Answered(Answer::Done, Seen::Deleted(update.uid.clone()))
            }
            Object::Claim(claim) => Stage::Unfinalized(claim.revision),
            _ => Stage::Unfinalized(revision),
        });
    }
    let precondition = Precondition { uid: update.uid.clone(), revision };
    let left = store.delete(Kind::Claim, &name, Some(&precondition))?;
    // Somebody else's finalizer may keep it.
    let deleted = || Stage::Answered(Answer::Done, Seen::Deleted(update.uid.clone()));
    Ok(left.as_ref().map_or_else(deleted, answered))
}

fn answered(stored: &Rc<Stored>) -> Stage {
    Stage::Answered(Answer::Done, seen(&stored.object))
}

/// What an answer tells that shows an object.
fn seen(object: &Object) -> Seen {
    match object.clone() {
        Object::CiliumNode(cilium_node) => Seen::CiliumNode(Box::new(cilium_node)),
        Object::Claim(claim) => Seen::Claim(Box::new(claim)),
        Object::Pool(pool) => Seen::Pool(Box::new(pool)),
        Object::Unreadable(_, unreadable) => Seen::Unreadable(unreadable.reason),
        Object::Node(_) => Seen::Nothing,
    }
}

/// The consistent read that tells the outcome of a write, or a read that is a request of its own.
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
    match request.target() {
        Target::Claim(cidr) => read(Kind::Claim, &block_name(cidr)),
        Target::CiliumNode(node) => read(Kind::CiliumNode, node.as_str()),
        Target::ClaimsOf(node) => Seen::ClaimsOf {
            unreadable: Vec::new(),
            revision: store.revision(),
            claims: store.claims().filter(|claim| claim.node == node).cloned().collect(),
        },
        Target::Pool(_) | Target::Node(_) => Seen::Nothing,
    }
}

/// Whether a read shows that what was asked for is the case, whoever did it.
pub(super) fn is_ours(request: &Request, seen: &Seen) -> bool {
    match (request, seen) {
        (Request::Write(Write::CreateClaim(new)), Seen::Claim(found)) => new.is_made_as(found),
        (Request::Read(_), _) => true,
        _ => false,
    }
}
