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
use super::retry_after;
use super::timeline::Timeline;
use super::write_slots::Place;
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

/// The outcome of a request that was sent once. An error is any [`Answer`] but [`Answer::Done`].
type Attempt<T> = Result<T, Answer>;

/// The outcome of a write, settled where its answer left it open. An error other than [`RefusedRead`] ends the process.
type Ended = anyhow::Result<(Answer, Seen)>;

/// Which part of an object a patch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Object,
    Status,
    /// The status, by a strategic merge patch, which adds to lists.
    Conditions,
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

    async fn write(&self, write: &Write, settling: Purpose<'_>) -> Ended {
        match write {
            Write::CreateClaim(claim) => self.create_claim(claim, settling).await,
            Write::Publish(publication) => self.publish(publication, settling).await,
            Write::UpdateClaim(update) => self.update_claim(update, settling).await,
            Write::BumpVersion(bump) => self.make_later_version(bump, settling).await,
            Write::UsageQuery(query) => self.ask(query, settling).await,
            Write::Withdraw(withdrawal) => self.withdraw(withdrawal, settling).await,
            Write::CreateCiliumNode(new) => self.create_cilium_node(new, settling).await,
            Write::PoolStatus(status) => {
                self.patch_pool(&status.pool, Part::Status, pool::status_patch(status), settling).await
            }
            Write::PoolFinalizers(write) => self.set_pool_finalizers(write, settling).await,
            Write::ClaimStatus(write) => self.write_claim_status(write, settling).await,
            Write::NodeCondition(write) => self.write_node_condition(write, settling).await,
            Write::PodIpPool(write) => self.write_pod_ip_pool(write).await,
            Write::Frr(write) => self.write_frr(write).await,
        }
    }

    /// Writes the finalizers of a pool. Ours is removed only where the server has no claim that names the pool.
    /// Another replica may have created one that the watch of claims has not shown here, and no version of the pool
    /// shows that.
    async fn set_pool_finalizers(&self, write: &PoolFinalizersWrite, settling: Purpose<'_>) -> Ended {
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

    async fn patch_pool(&self, pool: &PoolName, part: Part, patch: Value, settling: Purpose<'_>) -> Ended {
        let ended = self.patch_or_leave_to_watch::<Pools>(pool.as_str(), part, patch, settling).await?;
        if let Answer::Refused(why, _) = &ended.0 {
            warn!(%pool, why, "patch of the pool refused");
        }
        Ok(ended)
    }

    /// Sends a patch for which no node waits.
    async fn patch_or_leave_to_watch<W: Wire>(
        &self,
        name: &str,
        part: Part,
        patch: Value,
        settling: Purpose<'_>,
    ) -> Ended {
        Ok(match self.patch::<W>(name, part, patch).await {
            Ok(patched) => (Answer::Done, self.seen(patched)),
            // Writing it twice would do no harm. But while a server is away, the pause before the next try would
            // grow.
            Err(answer @ Answer::Unknown(_)) => (answer, self.read_one::<W>(name, settling).await?),
            // After a conflict the watch shows the outcome.
            Err(answer) => (answer, Seen::Nothing),
        })
    }

    async fn patch<W: Wire>(&self, name: &str, part: Part, patch: Value) -> Attempt<Object> {
        let api: Api<Watched<W>> = Api::all(self.clients.writes.clone());
        let params = patch_params();
        let patched = match part {
            Part::Object => self.attempt(api.patch(name, &params, &Patch::Merge(patch))).await,
            Part::Status => self.attempt(api.patch_status(name, &params, &Patch::Merge(patch))).await,
            Part::Conditions => self.attempt(api.patch_status(name, &params, &Patch::Strategic(patch))).await,
        };
        patched.map(Watched::into_object)
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
                    Err(Answer::Unknown(format!("no answer within {}", humantime::format_duration(timeout))))
                }
                Ok(Ok(applied)) => Ok(applied),
                Ok(Err(kube::Error::Api(status))) => Err(classify(&status)),
                Ok(Err(error)) => Err(match Fenced::of(&error) {
                    // Nothing was applied. The replica that leads makes the next decision.
                    Some(fenced @ Fenced::NotSent) => Answer::Refused(fenced.to_string(), None),
                    Some(fenced @ Fenced::Unanswered) => Answer::Unknown(fenced.to_string()),
                    None => Answer::Unknown(error.to_string()),
                }),
            }
        }
    }
}

/// The reason that kube gives to an answer whose body is not a `Status`.
const UNPARSED: &str = "Failed to parse error data";

/// The meaning of a parsed answer. Only a refusal of the request itself says for sure that nothing was applied.
fn classify(status: &Status) -> Answer {
    let why = explained(status, format!("{} ({} {})", status.message, status.code, status.reason));
    let wait = retry_after::asked_for(status);
    let names_uid = status
        .details
        .as_ref()
        .is_some_and(|details| details.causes.iter().any(|cause| cause.field == "metadata.uid"));
    match status.code {
        // This answer is not from the API server but from something between us and it.
        408 => Answer::Unknown(why),
        _ if status.reason == UNPARSED => Answer::Unknown(why),
        404 | 409 => Answer::Conflict(why),
        422 if names_uid => Answer::Conflict(why),
        400..=499 => Answer::Refused(why, wait),
        _ => Answer::Unknown(why),
    }
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests;
