//! Carries out one write and finds out what became of it. No policy: what to do next is the plan's.
//!
//! Nothing is repeated blindly, and nothing unknown is taken for failed (safety rule 4): whatever did not end in a
//! parsed refusal is settled by reading the object, as often as it takes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use tracing::{info, warn};

use super::client::{Clients, FIELD_MANAGER, ReadError};
use super::timeline::Timeline;
use super::watch::Backoff;
use crate::api::cilium_node::{ManagedFields, merge_patch};
use crate::api::watched::{CiliumNodes, Claims, Pools, Watched};
use crate::api::{NodeIPBlock, block, pool_status};
use crate::ipam::block::Cidr;
use crate::ipam::claim::Claim;
use crate::ipam::names::{NodeName, Revision};
use crate::world::observe::Object;
use crate::world::write::{Answer, NewClaim, Outcome, PoolStatusWrite, Publication, Seen, Write};

/// Carries out writes.
#[derive(Clone)]
pub struct Writer {
    /// The clients.
    pub clients: Clients,
    /// The revisions seen.
    pub timeline: Arc<Timeline>,
    /// Whether patches of CiliumNodes remove `managedFields`.
    pub managed_fields: ManagedFields,
}

/// What one request came to.
enum Attempt<T> {
    /// It was applied.
    Applied(T),
    /// The object is not as it was.
    Moved(String),
    /// It was refused for good reasons of its own.
    Refused(String, Option<Duration>),
    /// Nobody knows.
    Unknown(String),
}

impl Writer {
    /// Carries out `write` and returns what became of it; an error ends the process.
    pub async fn carry_out(&self, write: Write) -> anyhow::Result<Outcome> {
        let (key, node) = (write.key(), write.node().cloned());
        let (answer, seen) = match write {
            Write::CreateClaim(claim) => self.create_claim(&claim).await?,
            Write::Publish(publication) => self.publish(&publication).await?,
            Write::ConfirmClaims(node) => (Answer::Done, self.claims_of(&node).await?),
            Write::ReadClaim(cidr, _) => (Answer::Done, self.read_claim(cidr).await?),
            Write::PoolStatus(status) => self.pool_status(&status).await,
        };
        Ok(Outcome { key, node, answer, seen })
    }

    async fn create_claim(&self, claim: &NewClaim) -> anyhow::Result<(Answer, Seen)> {
        let api: Api<NodeIPBlock> = Api::all(self.clients.writes.clone());
        let object = block::new_claim(
            claim.cidr,
            &claim.pool,
            &claim.node,
            &claim.node_uid,
            &claim.withheld,
            claim.since,
        );
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let answer = match self.attempt(api.create(&params, &object)).await {
            Attempt::Applied(created) => match Claim::try_from(&created) {
                Ok(created) => {
                    self.timeline.saw(created.revision);
                    info!(block = %claim.cidr, pool = %claim.pool, node = %claim.node, "claimed");
                    return Ok((Answer::Done, Seen::Claim(Box::new(created))));
                }
                Err(error) => Answer::Unknown(format!("the created claim can't be read: {error}")),
            },
            Attempt::Moved(why) => Answer::Moved(why),
            Attempt::Refused(why, wait) => {
                warn!(block = %claim.cidr, pool = %claim.pool, node = %claim.node, why, "claim refused");
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Attempt::Unknown(why) => Answer::Unknown(why),
        };
        let seen = self.read_claim(claim.cidr).await?;
        // Our create may have been applied although its answer was lost.
        let ours = matches!(&seen, Seen::Claim(found) if found.node == claim.node && found.node_uid == claim.node_uid);
        info!(block = %claim.cidr, node = %claim.node, ?answer, ours, "claim settled by reading");
        Ok((if ours { Answer::Done } else { answer }, seen))
    }

    async fn publish(&self, publication: &Publication) -> anyhow::Result<(Answer, Seen)> {
        let api: Api<Watched<CiliumNodes>> = Api::all(self.clients.writes.clone());
        let name = publication.node.as_str();
        let patch = Patch::Merge(merge_patch(publication, self.managed_fields));
        let answer = match self.attempt(api.patch(name, &patch_params(), &patch)).await {
            Attempt::Applied(patched) => {
                let blocks: Vec<String> = publication.added.iter().map(Cidr::to_string).collect();
                info!(
                    node = name,
                    blocks = blocks.join(" "),
                    addresses = publication.entries.len(),
                    "published"
                );
                return Ok((Answer::Done, self.seen(patched.into_object())));
            }
            Attempt::Moved(why) => Answer::Moved(why),
            Attempt::Refused(why, wait) => {
                warn!(node = name, why, "publication refused");
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Attempt::Unknown(why) => Answer::Unknown(why),
        };
        let seen = self.read_cilium_node(&publication.node).await?;
        info!(node = name, ?answer, "publication settled by reading");
        Ok((answer, seen))
    }

    async fn pool_status(&self, write: &PoolStatusWrite) -> (Answer, Seen) {
        let api: Api<Watched<Pools>> = Api::all(self.clients.writes.clone());
        let patch = Patch::Merge(pool_status::merge_patch(write));
        match self.attempt(api.patch_status(write.pool.as_str(), &patch_params(), &patch)).await {
            Attempt::Applied(patched) => (Answer::Done, self.seen(patched.into_object())),
            // The watch tells what became of it, and a status that is written twice does no harm.
            Attempt::Moved(why) => (Answer::Moved(why), Seen::Nothing),
            Attempt::Unknown(why) => (Answer::Unknown(why), Seen::Nothing),
            Attempt::Refused(why, wait) => {
                warn!(pool = %write.pool, why, "status refused");
                (Answer::Refused(why, wait), Seen::Nothing)
            }
        }
    }

    fn seen(&self, object: Object) -> Seen {
        self.timeline.saw(object.revision());
        match object {
            Object::CiliumNode(cilium_node) => Seen::CiliumNode(Box::new(cilium_node)),
            Object::Claim(claim) => Seen::Claim(Box::new(claim)),
            Object::Pool(pool) => Seen::Pool(Box::new(pool)),
            Object::Unreadable(_, unreadable) => Seen::Unreadable(unreadable.reason),
            Object::Node(_) => Seen::Nothing,
        }
    }

    /// One claim, by a consistent list, which tells its revision also when there is none.
    async fn read_claim(&self, cidr: Cidr) -> anyhow::Result<Seen> {
        let params = ListParams::default().fields(&format!("metadata.name={}", cidr.object_name()));
        let (revision, mut claims) =
            self.until_read(|| self.clients.list::<Claims>(&params, &self.timeline)).await?;
        Ok(claims.pop().map_or(Seen::Absent(Some(revision)), |claim| self.seen(claim)))
    }

    async fn claims_of(&self, node: &NodeName) -> anyhow::Result<Seen> {
        let params = ListParams::default().fields(&format!("spec.node={node}"));
        let (revision, claims) =
            self.until_read(|| self.clients.list::<Claims>(&params, &self.timeline)).await?;
        let claims = claims
            .into_iter()
            .filter_map(|object| match object {
                Object::Claim(claim) => Some(claim),
                Object::Node(_) | Object::CiliumNode(_) | Object::Pool(_) | Object::Unreadable(..) => None,
            })
            .collect();
        Ok(Seen::ClaimsOf { revision, claims })
    }

    async fn read_cilium_node(&self, node: &NodeName) -> anyhow::Result<Seen> {
        let params = ListParams::default().fields(&format!("metadata.name={node}"));
        let (revision, mut found): (Revision, Vec<Object>) =
            self.until_read(|| self.clients.list::<CiliumNodes>(&params, &self.timeline)).await?;
        Ok(found.pop().map_or(Seen::Absent(Some(revision)), |object| self.seen(object)))
    }

    /// Reads until there is an answer: an unknown outcome stays unknown until then.
    async fn until_read<T, F: Future<Output = Result<T, ReadError>>>(
        &self,
        read: impl Fn() -> F,
    ) -> anyhow::Result<T> {
        let mut backoff = Backoff::default();
        loop {
            match read().await {
                Ok(found) => return Ok(found),
                Err(ReadError::WentBack(error)) => return Err(error.into()),
                Err(error) => {
                    let wait = backoff.next();
                    warn!(%error, retry_in = ?wait, "read failed");
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    /// Sends one request, once.
    async fn attempt<T>(&self, request: impl Future<Output = Result<T, kube::Error>>) -> Attempt<T> {
        let timeout = self.clients.timeout;
        match tokio::time::timeout(timeout, request).await {
            Err(_) => Attempt::Unknown(format!("no answer within {}", humantime::format_duration(timeout))),
            Ok(Ok(applied)) => Attempt::Applied(applied),
            Ok(Err(kube::Error::Api(status))) => classify(&status),
            Ok(Err(error)) => Attempt::Unknown(error.to_string()),
        }
    }
}

/// What a parsed answer means. Only a refusal of the request itself says for sure that nothing was applied.
fn classify<T>(status: &Status) -> Attempt<T> {
    let why = format!("{} ({} {})", status.message, status.code, status.reason);
    let wait = status
        .details
        .as_ref()
        .map(|details| u64::from(details.retry_after_seconds))
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs);
    let names_uid = status
        .details
        .as_ref()
        .is_some_and(|details| details.causes.iter().any(|cause| cause.field == "metadata.uid"));
    match status.code {
        404 | 409 => Attempt::Moved(why),
        422 if names_uid => Attempt::Moved(why),
        400..=499 => Attempt::Refused(why, wait),
        _ => Attempt::Unknown(why),
    }
}

fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
