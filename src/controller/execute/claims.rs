//! Writes of claims. Their outcome is known, or it is read: a claim is the lock on its block.

use kube::api::{Api, DeleteParams, Preconditions};
use tracing::{info, warn};

use super::{Attempt, Ended, Executor, Part, Purpose};
use crate::controller::client::post_params;
use crate::model::claim::{Claim, block_name};
use crate::model::observation::Object;
use crate::model::outcome::{Answer, Seen};
use crate::model::request::{ClaimStatusWrite, ClaimUpdate, NewClaim};
use crate::model::revision::AnyRevision;
use crate::wire::watched::Watched;
use crate::wire::{Claims, NodeIPBlock, block};

impl Executor {
    pub(super) async fn create_claim(&self, claim: &NewClaim, settling: Purpose<'_>) -> Ended {
        let api: Api<NodeIPBlock> = Api::all(self.clients.writes.clone());
        let before = self.timeline.highest();
        let answer = match self.attempt(api.create(&post_params(), &block::new_claim(claim))).await {
            Ok(created) => match Claim::try_from(&created) {
                Ok(created) => {
                    // The only answer to a write that always has a new revision.
                    self.timeline.read(created.revision, before)?;
                    return Ok((Answer::Done, Seen::Claim(Box::new(created))));
                }
                Err(error) => Answer::Unknown(format!("the created claim is unreadable: {error}")),
            },
            Err(Answer::Refused(why, wait)) => {
                warn!(block = %claim.cidr, pool = %claim.pool, node = %claim.node, why, "creation of the claim \
                     refused");
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Err(answer) => answer,
        };
        let seen = self.read_one::<Claims>(&block_name(claim.cidr), settling).await?;
        // Our create may have been applied although its answer was lost.
        let ours = matches!(&seen, Seen::Claim(found) if claim.is_made_as(found));
        info!(block = %claim.cidr, node = %claim.node, ?answer, ours, "no answer to the creation of the claim; \
             read the claim instead");
        Ok((if ours { Answer::Done } else { answer }, seen))
    }

    /// Changes or deletes a claim. A deletion first drops our finalizer if the claim still has it, and then carries the
    /// version that this brought.
    pub(super) async fn update_claim(&self, update: &ClaimUpdate, settling: Purpose<'_>) -> Ended {
        let name = block_name(update.cidr);
        let attempt = match block::update_patch(update) {
            Some(patch) => {
                let patched = self.patch::<Claims>(&name, Part::Object, patch).await;
                patched.map(|claim| self.seen(claim))
            }
            None => self.delete_claim(update).await,
        };
        let answer = match attempt {
            Ok(seen) => return Ok((Answer::Done, seen)),
            Err(Answer::Refused(why, wait)) => {
                warn!(block = %update.cidr, node = %update.node, change = ?update.change, why, "update of the \
                     claim refused");
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Err(answer) => answer,
        };
        let seen = self.read_one::<Claims>(&name, settling).await?;
        info!(block = %update.cidr, node = %update.node, change = ?update.change, ?answer, "no answer to the \
             update of the claim; read the claim instead");
        Ok((answer, seen))
    }

    /// Writes the status of a claim.
    pub(super) async fn write_claim_status(&self, write: &ClaimStatusWrite, settling: Purpose<'_>) -> Ended {
        let (name, patch) = (block_name(write.cidr), block::status_patch(write));
        let ended = self.patch_or_leave_to_watch::<Claims>(&name, Part::Status, patch, settling).await?;
        if let Answer::Refused(why, _) = &ended.0 {
            warn!(block = %write.cidr, why, "status update of the claim refused");
        }
        Ok(ended)
    }

    async fn delete_claim(&self, update: &ClaimUpdate) -> Attempt<Seen> {
        let name = block_name(update.cidr);
        let mut revision = update.revision;
        if let Some(patch) = block::drop_finalizer_patch(update) {
            match self.patch::<Claims>(&name, Part::Object, patch).await? {
                // Another writer had deleted it before, and the deletion was waiting for our finalizer only.
                Object::Claim(claim) if claim.deleting && claim.finalizers.is_empty() => {
                    return Ok(Seen::Deleted(update.uid.clone()));
                }
                patched => revision = patched.revision().and_then(AnyRevision::within).unwrap_or(revision),
            }
        }
        let api: Api<Watched<Claims>> = Api::all(self.clients.writes.clone());
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(update.uid.to_string()),
                resource_version: Some(revision.to_string()),
            }),
            ..DeleteParams::default()
        };
        self.attempt(api.delete(&name, &params)).await.map(|answer| match answer.left() {
            // The finalizer of another writer keeps it.
            Some(kept) => self.seen(kept.into_object()),
            None => Seen::Deleted(update.uid.clone()),
        })
    }
}
