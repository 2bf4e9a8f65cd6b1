//! Carries out one write and finds out its outcome. Knows no policy: the plan says what to do next.
//!
//! Nothing is repeated blindly, and nothing unknown is taken for failed (safety rule 4): whatever did not end in a
//! parsed refusal is settled by reading the object, as often as it takes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::Status;
use serde_json::Value;
use tracing::{info, warn};

use super::backoff::Retries;
use super::client::{Clients, FIELD_MANAGER, ReadError};
use super::events::Events;
use super::places::Place;
use super::timeline::Timeline;
use super::{forbidden, retry_after};
use crate::model::claim::{Claim, block_name};
use crate::model::names::{NodeName, PoolName};
use crate::model::observation::{Object, PoolObject};
use crate::model::outcome::{Answer, Outcome, Presence, Seen};
use crate::model::request::{
    ClaimStatusWrite, ClaimUpdate, NewClaim, PodIpPoolWrite, PoolFinalizersWrite, Read, Request, Write,
};
use crate::model::revision::{AnyRevision, Revision};
use crate::net::cidr::Cidr;
use crate::wire::carrier_patch::ManagedFields;
use crate::wire::node_pods::{NODE_FIELD, pods_on_node};
use crate::wire::pod_ip_pool::{self, WatchedPodIpPool};
use crate::wire::watched::{Watched, Wire};
use crate::wire::{CiliumNodes, Claims, NodeIPBlock, Nodes, Pools, block, pool};

mod carriers;

/// Carries out writes.
#[derive(Clone)]
pub struct Executor {
    /// The clients.
    pub clients: Clients,
    /// The revisions seen.
    pub timeline: Arc<Timeline>,
    /// Whether patches of CiliumNodes remove `managedFields`.
    pub managed_fields: ManagedFields,
    /// Where it is told that the server forbids to list.
    pub events: Events,
    /// The namespace of Cilium's agents.
    pub cilium_namespace: String,
}

/// What a read is for, and so what becomes of it if the server refuses it.
#[derive(Debug, Clone, Copy)]
enum Purpose<'a> {
    /// A decision waits for it. A refusal ends it: what is decided next waits in the pause of its node or pool.
    Decision,
    /// It settles what an answer has left open, and is repeated until it is answered: nothing unknown is taken for
    /// failed. If it is refused it leaves its place to others, who are not to wait until a right is granted.
    Outcome(&'a Place),
}

/// The server refuses a read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
struct RefusedRead {
    why: String,
    wait: Option<Duration>,
}

/// How one request ended.
enum Attempt<T> {
    /// It was applied.
    Applied(T),
    /// The object is not as it was.
    Conflict(String),
    /// The server refused the request itself.
    Refused(String, Option<Duration>),
    /// Nobody knows whether it was applied.
    Unknown(String),
}

impl<T> Attempt<T> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Self::Applied(answer) => Attempt::Applied(change(answer)),
            Self::Conflict(why) => Attempt::Conflict(why),
            Self::Refused(why, wait) => Attempt::Refused(why, wait),
            Self::Unknown(why) => Attempt::Unknown(why),
        }
    }
}

/// Which part of an object a patch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Object,
    Status,
}

impl Executor {
    /// Carries out `request` and returns its outcome; an error ends the process.
    pub async fn carry_out(&self, request: Request, place: &Place) -> anyhow::Result<Outcome> {
        let ended = match &request {
            Request::Read(read) => self.read(read, place).await.map(|seen| (Answer::Done, seen)),
            Request::Write(write) => self.write(write, Purpose::Outcome(place)).await,
        };
        let (answer, seen) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                let refused = error.downcast::<RefusedRead>()?;
                (Answer::Refused(refused.why, refused.wait), Seen::Nothing)
            }
        };
        Ok(Outcome { request, answer, seen })
    }

    async fn read(&self, read: &Read, place: &Place) -> anyhow::Result<Seen> {
        match read {
            Read::ClaimsOf(node) => self.claims_of(node).await,
            Read::PodsOf(node, after) => self.pods_of(node, *after).await,
            Read::Claim(cidr, _) => self.read_claim(*cidr, Purpose::Outcome(place)).await,
            Read::CiliumNode(node) => self.read_cilium_node(node, Purpose::Decision).await,
            Read::Node(node, as_of) => self.read_node(node, *as_of).await,
        }
    }

    async fn write(&self, write: &Write, settling: Purpose<'_>) -> anyhow::Result<(Answer, Seen)> {
        Ok(match write {
            Write::CreateClaim(claim) => self.create_claim(claim, settling).await?,
            Write::Publish(publication) => self.publish(publication, settling).await?,
            Write::UpdateClaim(update) => self.update_claim(update, settling).await?,
            Write::BumpVersion(bump) => self.make_later_version(bump, settling).await?,
            Write::UsageProbe(probe) => self.ask(probe, settling).await?,
            Write::Withdraw(withdrawal) => self.withdraw(withdrawal, settling).await?,
            Write::CreateCiliumNode(new) => self.create_cilium_node(new, settling).await?,
            Write::PoolStatus(status) => {
                self.patch_pool(&status.pool, Part::Status, pool::status_patch(status), settling).await?
            }
            Write::PoolFinalizers(write) => self.set_pool_finalizers(write, settling).await?,
            Write::ClaimStatus(write) => self.tell_on_claim(write, settling).await?,
            Write::PodIpPool(write) => self.write_pod_ip_pool(write).await?,
        })
    }

    /// Writes the finalizers of a pool. Ours is removed only where the server has no claim that names the pool: another
    /// replica may have created one that the watch of claims has not shown here, and no version of the pool tells.
    async fn set_pool_finalizers(
        &self,
        write: &PoolFinalizersWrite,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        if !write.finalizers.iter().any(|name| name == PoolObject::FINALIZER) {
            let (_, claims) =
                self.read_all::<Claims>(&format!("spec.pool={}", write.pool), Purpose::Decision).await?;
            if let Some(claim) = claims.first() {
                let why = format!("the pool keeps its finalizer: claim {} names it", claim.name());
                return Ok((Answer::Conflict(why), Seen::Nothing));
            }
        }
        self.patch_pool(&write.pool, Part::Object, pool::finalizers_patch(write), settling).await
    }

    async fn create_claim(&self, claim: &NewClaim, settling: Purpose<'_>) -> anyhow::Result<(Answer, Seen)> {
        let api: Api<NodeIPBlock> = Api::all(self.clients.writes.clone());
        let object = block::new_claim(claim);
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let before = self.timeline.highest();
        let answer = match self.attempt(api.create(&params, &object)).await {
            Attempt::Applied(created) => match Claim::try_from(&created) {
                Ok(created) => {
                    // The only answer to a write that always has a new revision.
                    self.timeline.read(created.revision, before)?;
                    return Ok((Answer::Done, Seen::Claim(Box::new(created))));
                }
                Err(error) => Answer::Unknown(format!("the created claim can't be read: {error}")),
            },
            Attempt::Conflict(why) => Answer::Conflict(why),
            Attempt::Refused(why, wait) => {
                warn!(block = %claim.cidr, pool = %claim.pool, node = %claim.node, why, "claim refused");
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Attempt::Unknown(why) => Answer::Unknown(why),
        };
        let seen = self.read_claim(claim.cidr, settling).await?;
        // Our create may have been applied although its answer was lost.
        let ours = matches!(&seen, Seen::Claim(found) if claim.is_made_as(found));
        info!(block = %claim.cidr, node = %claim.node, ?answer, ours, "claim settled by reading");
        Ok((if ours { Answer::Done } else { answer }, seen))
    }

    /// Changes or deletes a claim. A deletion first drops our finalizer if the claim still has it, and then carries the
    /// version that this brought.
    async fn update_claim(
        &self,
        update: &ClaimUpdate,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        let attempt = match block::update_patch(update) {
            Some(patch) => {
                let api: Api<Watched<Claims>> = Api::all(self.clients.writes.clone());
                let patch = Patch::Merge(patch);
                self.attempt(api.patch(&block_name(update.cidr), &patch_params(), &patch))
                    .await
                    .map(|patched| self.seen(patched.into_object()))
            }
            None => self.delete_claim(update).await,
        };
        let answer = match attempt {
            Attempt::Applied(seen) => {
                return Ok((Answer::Done, seen));
            }
            Attempt::Conflict(why) => Answer::Conflict(why),
            Attempt::Refused(why, wait) => {
                warn!(block = %update.cidr, node = %update.node, change = ?update.change, why, "move of a claim refused");
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Attempt::Unknown(why) => Answer::Unknown(why),
        };
        let seen = self.read_claim(update.cidr, settling).await?;
        info!(block = %update.cidr, node = %update.node, change = ?update.change, ?answer, "move of a claim settled by reading");
        Ok((answer, seen))
    }

    /// Writes the status of a claim.
    async fn tell_on_claim(
        &self,
        write: &ClaimStatusWrite,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        let (name, patch) = (block_name(write.cidr), block::status_patch(write));
        let found = self.read_claim(write.cidr, settling);
        let ended = self.patch_or_leave_to_watch::<Claims>(&name, Part::Status, patch, found).await?;
        if let Answer::Refused(why, _) = &ended.0 {
            warn!(block = %write.cidr, why, "status of the claim refused");
        }
        Ok(ended)
    }

    /// Creates a CiliumPodIPPool, or adds to it. Writing it twice does no harm, so nobody reads what became of it without an
    /// answer: the watch shows that.
    async fn write_pod_ip_pool(&self, write: &PodIpPoolWrite) -> anyhow::Result<(Answer, Seen)> {
        let resource = kube::api::ApiResource::erase::<WatchedPodIpPool>(&());
        let api: Api<DynamicObject> = Api::all_with(self.clients.writes.clone(), &resource);
        let name = write.name.as_str();
        let mut forbidden = false;
        let request = async {
            let written = match (pod_ip_pool::new_pod_ip_pool(write), pod_ip_pool::patch(write)) {
                (Some(new), _) => {
                    let new: DynamicObject = serde_json::from_value(new).map_err(kube::Error::SerdeError)?;
                    let manager = Some(FIELD_MANAGER.to_owned());
                    api.create(&PostParams { field_manager: manager, ..PostParams::default() }, &new).await
                }
                (None, patch) => {
                    api.patch(name, &patch_params(), &Patch::Merge(patch.unwrap_or_default())).await
                }
            };
            forbidden = matches!(&written, Err(kube::Error::Api(status)) if status.is_forbidden());
            written
        };
        Ok(match self.attempt(request).await {
            Attempt::Applied(written) => {
                info!(name, created = write.on.is_none(), "wrote the ciliumpodippool");
                let written = serde_json::from_value::<WatchedPodIpPool>(serde_json::to_value(written)?)?;
                let seen = written.into_pool().map_or(Seen::Nothing, |pool| Seen::PodIpPool(Box::new(pool)));
                (Answer::Done, seen)
            }
            // Somebody else may have created it; the watch shows that.
            Attempt::Conflict(why) => (Answer::Conflict(why), Seen::Nothing),
            Attempt::Unknown(why) => (Answer::Unknown(why), Seen::Nothing),
            Attempt::Refused(why, wait) => {
                let needs = if forbidden {
                    "; --create-podippools needs the right to create and patch ciliumpodippools, which \
                     examples/create-podippools grants"
                } else {
                    ""
                };
                warn!(name, why, "ciliumpodippool refused{needs}");
                (Answer::Refused(why, wait), Seen::Nothing)
            }
        })
    }

    async fn delete_claim(&self, update: &ClaimUpdate) -> Attempt<Seen> {
        let name = block_name(update.cidr);
        let api: Api<Watched<Claims>> = Api::all(self.clients.writes.clone());
        let mut revision = update.revision;
        if let Some(patch) = block::drop_finalizer_patch(update) {
            match self.attempt(api.patch(&name, &patch_params(), &Patch::Merge(patch))).await {
                // Somebody had deleted it before, and the deletion was waiting for our finalizer only.
                Attempt::Applied(patched) => match patched.into_object() {
                    Object::Claim(claim) if claim.deleting && claim.finalizers.is_empty() => {
                        return Attempt::Applied(Seen::Deleted(update.uid.clone()));
                    }
                    patched => {
                        revision = patched.revision().and_then(AnyRevision::within).unwrap_or(revision);
                    }
                },
                refused => return refused.map(|_| Seen::Nothing),
            }
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(update.uid.to_string()),
                resource_version: Some(revision.to_string()),
            }),
            ..DeleteParams::default()
        };
        self.attempt(api.delete(&name, &params)).await.map(|answer| match answer.left() {
            // Somebody else's finalizer keeps it.
            Some(kept) => self.seen(kept.into_object()),
            None => Seen::Deleted(update.uid.clone()),
        })
    }

    async fn patch_pool(
        &self,
        pool: &PoolName,
        part: Part,
        patch: Value,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        let found = self.read_pool(pool, settling);
        let ended = self.patch_or_leave_to_watch::<Pools>(pool.as_str(), part, patch, found).await?;
        if let Answer::Refused(why, _) = &ended.0 {
            warn!(%pool, why, "patch of the pool refused");
        }
        Ok(ended)
    }

    /// Patches what no node waits for. `found` reads the object, where there was no answer.
    async fn patch_or_leave_to_watch<W: Wire>(
        &self,
        name: &str,
        part: Part,
        patch: Value,
        found: impl Future<Output = anyhow::Result<Seen>>,
    ) -> anyhow::Result<(Answer, Seen)> {
        let api: Api<Watched<W>> = Api::all(self.clients.writes.clone());
        Ok(match self.patch(&api, name, part, patch).await {
            Attempt::Applied(patched) => (Answer::Done, self.seen(patched.into_object())),
            // The watch shows the outcome.
            Attempt::Conflict(why) => (Answer::Conflict(why), Seen::Nothing),
            // Writing it twice would do no harm, but a server that is away would be asked ever more seldom.
            Attempt::Unknown(why) => (Answer::Unknown(why), found.await?),
            Attempt::Refused(why, wait) => (Answer::Refused(why, wait), Seen::Nothing),
        })
    }

    async fn patch<W: Wire>(
        &self,
        api: &Api<Watched<W>>,
        name: &str,
        part: Part,
        patch: Value,
    ) -> Attempt<Watched<W>> {
        let patch = Patch::Merge(patch);
        match part {
            Part::Object => self.attempt(api.patch(name, &patch_params(), &patch)).await,
            Part::Status => self.attempt(api.patch_status(name, &patch_params(), &patch)).await,
        }
    }

    fn seen(&self, object: Object) -> Seen {
        self.timeline.saw_object(&object);
        match object {
            Object::CiliumNode(cilium_node) => Seen::CiliumNode(Box::new(cilium_node)),
            Object::Claim(claim) => Seen::Claim(Box::new(claim)),
            Object::Pool(pool) => Seen::Pool(Box::new(pool)),
            Object::Unreadable(_, unreadable) => Seen::Unreadable(unreadable.reason),
            Object::Node(node) => Seen::PatchedNode(Box::new(node)),
        }
    }

    /// Reads one claim by a consistent list, which has a revision even when there is no such claim.
    async fn read_claim(&self, cidr: Cidr, purpose: Purpose<'_>) -> anyhow::Result<Seen> {
        let (revision, mut claims) =
            self.read_all::<Claims>(&format!("metadata.name={}", block_name(cidr)), purpose).await?;
        Ok(claims.pop().map_or(Seen::Absent(revision), |claim| self.seen(claim)))
    }

    async fn claims_of(&self, node: &NodeName) -> anyhow::Result<Seen> {
        let (revision, claims) =
            self.read_all::<Claims>(&format!("spec.node={node}"), Purpose::Decision).await?;
        let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
        for object in claims {
            match object {
                Object::Claim(claim) => readable.push(claim),
                Object::Unreadable(_, object) => unreadable.push(object),
                Object::Node(_) | Object::CiliumNode(_) | Object::Pool(_) => {}
            }
        }
        Ok(Seen::ClaimsOf { revision, claims: readable, unreadable })
    }

    /// The Pods that are bound to a node. What is decided next goes without them, if they can't be had.
    async fn pods_of(&self, node: &NodeName, after: AnyRevision) -> anyhow::Result<Seen> {
        let api: Api<Pod> = Api::all(self.clients.reads.clone());
        let params = ListParams::default().fields(&format!("{NODE_FIELD}={node}"));
        match self.clients.within_timeout(api.list(&params)).await {
            Ok(list) => Ok(Seen::PodsOf { after, pods: pods_on_node(&list.items, &self.cilium_namespace) }),
            Err(error) => {
                warn!(%node, %error, "read of the node's pods failed: no block is taken back from it");
                Err(RefusedRead { why: error.to_string(), wait: error.asked_wait() }.into())
            }
        }
    }

    async fn read_cilium_node(&self, node: &NodeName, purpose: Purpose<'_>) -> anyhow::Result<Seen> {
        let (revision, mut found) =
            self.read_all::<CiliumNodes>(&format!("metadata.name={node}"), purpose).await?;
        Ok(found.pop().map_or(Seen::Absent(revision), |object| self.seen(object)))
    }

    async fn read_pool(&self, pool: &PoolName, purpose: Purpose<'_>) -> anyhow::Result<Seen> {
        let (revision, mut found) = self.read_all::<Pools>(&format!("metadata.name={pool}"), purpose).await?;
        Ok(found.pop().map_or(Seen::Absent(revision), |object| self.seen(object)))
    }

    async fn read_node(&self, node: &NodeName, as_of: Revision) -> anyhow::Result<Seen> {
        let (read_at, mut found) =
            self.read_all::<Nodes>(&format!("metadata.name={node}"), Purpose::Decision).await?;
        let presence = match found.pop() {
            None => Presence::Gone,
            Some(Object::Node(node)) => Presence::Is(node.uid),
            Some(Object::CiliumNode(_) | Object::Claim(_) | Object::Pool(_) | Object::Unreadable(..)) => {
                Presence::Unreadable
            }
        };
        Ok(Seen::Node { as_of, read_at, presence })
    }

    /// Reads the objects of a kind that a field selector selects, until there is an answer, or until the server refuses
    /// what a decision waits for.
    async fn read_all<W: Wire>(
        &self,
        selector: &str,
        purpose: Purpose<'_>,
    ) -> anyhow::Result<(Revision<W::Store>, Vec<Object>)> {
        let params = ListParams::default().fields(selector);
        let mut retries = Retries::default();
        loop {
            retries.begins(&self.clients.contact);
            match self.clients.list::<W>(&params, &self.timeline).await {
                Ok(found) => return Ok(found),
                Err(ReadError::StoreRewound(error)) => return Err(error.into()),
                Err(error) => {
                    if let Some(refused) = refused_by(&error) {
                        if let Some(event) = forbidden::event_of_reads(&self.clients.contact.standing) {
                            self.events.tell(event);
                        }
                        match purpose {
                            Purpose::Decision => {
                                warn!(kind = W::KIND.as_str(), selector, %error, "read refused");
                                return Err(refused.into());
                            }
                            Purpose::Outcome(place) => place.step_aside(),
                        }
                    }
                    let rest = retries.failed(error.asked_wait());
                    warn!(kind = W::KIND.as_str(), selector, %error, retry_in = ?rest.wait, "read failed");
                    retries.rest(rest, &self.clients.contact).await;
                }
            }
        }
    }

    /// Sends one request, once.
    async fn attempt<T>(&self, request: impl Future<Output = Result<T, kube::Error>>) -> Attempt<T> {
        match self.clients.limited(request).await {
            Err(timeout) => {
                Attempt::Unknown(format!("no answer within {}", humantime::format_duration(timeout)))
            }
            Ok(Ok(applied)) => Attempt::Applied(applied),
            Ok(Err(kube::Error::Api(status))) => classify(&status),
            Ok(Err(error)) => Attempt::Unknown(error.to_string()),
        }
    }
}

/// The reason that kube gives to an answer whose body is not a `Status`.
const UNPARSED: &str = "Failed to parse error data";

/// What a parsed answer means. Only a refusal of the request itself says for sure that nothing was applied.
fn classify<T>(status: &Status) -> Attempt<T> {
    let why = format!("{} ({} {})", status.message, status.code, status.reason);
    let wait = retry_after::asked_for(status);
    let names_uid = status
        .details
        .as_ref()
        .is_some_and(|details| details.causes.iter().any(|cause| cause.field == "metadata.uid"));
    match status.code {
        // This answer is not from the API server but from something between us and it.
        408 => Attempt::Unknown(why),
        _ if status.reason == UNPARSED => Attempt::Unknown(why),
        404 | 409 => Attempt::Conflict(why),
        422 if names_uid => Attempt::Conflict(why),
        400..=499 => Attempt::Refused(why, wait),
        _ => Attempt::Unknown(why),
    }
}

/// Why the server does not carry out a read, where it says that. Whoever asks again gets the same answer until somebody
/// changes something.
fn refused_by(error: &ReadError) -> Option<RefusedRead> {
    match classify::<()>(error.answer()?) {
        Attempt::Refused(why, wait) => Some(RefusedRead { why, wait }),
        Attempt::Conflict(why) => Some(RefusedRead { why, wait: None }),
        Attempt::Applied(()) | Attempt::Unknown(_) => None,
    }
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests;
