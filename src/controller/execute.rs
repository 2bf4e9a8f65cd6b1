//! Carries out one write and finds out its outcome. Knows no policy: the plan decides the next step.
//!
//! Nothing is repeated blindly, and nothing unknown is taken for failed (safety rule 4). Only a parsed refusal is
//! final: any other error is settled by reading the object, as often as it takes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::core::Status;
use serde_json::Value;
use tracing::warn;

use super::client::{Clients, FIELD_MANAGER, explained};
use super::events::Events;
use super::lead::Fenced;
use super::places::Place;
use super::retry_after;
use super::timeline::Timeline;
use crate::model::names::PoolName;
use crate::model::observation::{Object, PoolObject};
use crate::model::outcome::{Answer, Outcome, Seen};
use crate::model::request::{PoolFinalizersWrite, Request, Write};
use crate::wire::carrier_patch::ManagedFields;
use crate::wire::watched::{Watched, Wire};
use crate::wire::{Claims, Pools, pool};

mod carriers;
mod claims;
mod frr;
mod pod_ip_pools;
mod reads;

/// Carries out writes.
#[derive(Clone)]
pub struct Executor {
    /// The clients.
    pub clients: Clients,
    /// The revisions seen.
    pub timeline: Arc<Timeline>,
    /// Whether patches of CiliumNodes remove `managedFields`.
    pub managed_fields: ManagedFields,
    /// The events that say that the server forbids to list.
    pub events: Events,
    /// The namespace of Cilium's agents.
    pub cilium_namespace: String,
    /// The namespace of FRRConfigurations; empty where none is written.
    pub frr_namespace: String,
}

/// The purpose of a read, which decides the consequence if the server refuses it.
#[derive(Debug, Clone, Copy)]
enum Purpose<'a> {
    /// A decision waits for it. After a refusal the read is not repeated, and the next decision waits in the pause of
    /// its node or pool.
    Decision,
    /// It settles the outcome that an answer has left open, and is repeated until it is answered: nothing unknown is
    /// taken for failed. If it is refused it leaves its place to others, which should not wait until a right is
    /// granted.
    Outcome(&'a Place),
}

/// The server refuses a read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
struct RefusedRead {
    why: String,
    wait: Option<Duration>,
}

/// The outcome of one request.
enum Attempt<T> {
    /// It was applied.
    Applied(T),
    /// The object is not as it was.
    Conflict(String),
    /// The server refused the request itself.
    Refused(String, Option<Duration>),
    /// It may have been applied, or not.
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
    /// Carries out `request` and returns its outcome; after an error the process exits.
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

    async fn write(&self, write: &Write, settling: Purpose<'_>) -> anyhow::Result<(Answer, Seen)> {
        Ok(match write {
            Write::CreateClaim(claim) => self.create_claim(claim, settling).await?,
            Write::Publish(publication) => self.publish(publication, settling).await?,
            Write::UpdateClaim(update) => self.update_claim(update, settling).await?,
            Write::BumpVersion(bump) => self.make_later_version(bump, settling).await?,
            Write::UsageQuery(query) => self.ask(query, settling).await?,
            Write::Withdraw(withdrawal) => self.withdraw(withdrawal, settling).await?,
            Write::CreateCiliumNode(new) => self.create_cilium_node(new, settling).await?,
            Write::PoolStatus(status) => {
                self.patch_pool(&status.pool, Part::Status, pool::status_patch(status), settling).await?
            }
            Write::PoolFinalizers(write) => self.set_pool_finalizers(write, settling).await?,
            Write::ClaimStatus(write) => self.write_claim_status(write, settling).await?,
            Write::PodIpPool(write) => self.write_pod_ip_pool(write).await?,
            Write::Frr(write) => self.write_frr(write).await?,
        })
    }

    /// Writes the finalizers of a pool. Ours is removed only where the server has no claim that names the pool.
    /// Another replica may have created one that the watch of claims has not shown here, and no version of the pool
    /// shows that.
    async fn set_pool_finalizers(
        &self,
        write: &PoolFinalizersWrite,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        if !write.finalizers.iter().any(|name| name == PoolObject::FINALIZER) {
            let (_, claims) =
                self.read_all::<Claims>(&format!("spec.pool={}", write.pool), Purpose::Decision).await?;
            if let Some(claim) = claims.first() {
                let why = format!("the pool keeps its finalizer: claim {} belongs to it", claim.name());
                return Ok((Answer::Conflict(why), Seen::Nothing));
            }
        }
        self.patch_pool(&write.pool, Part::Object, pool::finalizers_patch(write), settling).await
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

    /// Sends a patch for which no node waits. `found` reads the object, where there was no answer.
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
            // Writing it twice would do no harm. But while a server is away, the pause before the next try would
            // grow.
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

    /// Sends one request, once.
    fn attempt<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> impl Future<Output = Attempt<T>> {
        // In a box: a task has room for all that it may ever await, and there are as many tasks as writes in flight.
        let request = Box::pin(request);
        async move {
            match self.clients.limited(request).await {
                Err(timeout) => {
                    Attempt::Unknown(format!("no answer within {}", humantime::format_duration(timeout)))
                }
                Ok(Ok(applied)) => Attempt::Applied(applied),
                Ok(Err(kube::Error::Api(status))) => classify(&status),
                Ok(Err(error)) => match Fenced::of(&error) {
                    // Nothing was applied. The replica that leads makes the next decision.
                    Some(fenced @ Fenced::NotSent) => Attempt::Refused(fenced.to_string(), None),
                    Some(fenced @ Fenced::Unanswered) => Attempt::Unknown(fenced.to_string()),
                    None => Attempt::Unknown(error.to_string()),
                },
            }
        }
    }
}

/// The reason that kube gives to an answer whose body is not a `Status`.
const UNPARSED: &str = "Failed to parse error data";

/// The meaning of a parsed answer. Only a refusal of the request itself says for sure that nothing was applied.
fn classify<T>(status: &Status) -> Attempt<T> {
    let why = explained(status, format!("{} ({} {})", status.message, status.code, status.reason));
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

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests;
