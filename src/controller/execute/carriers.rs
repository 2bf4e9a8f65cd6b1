//! Writes on the carrier of a node's blocks: its CiliumNode, or in one mode the Node itself.

use kube::api::{Api, DynamicObject, PostParams};
use serde_json::Value;
use tracing::{debug, info, warn};

use super::{Attempt, Executor, Part, Purpose};
use crate::controller::client::FIELD_MANAGER;
use crate::model::carrier::CarrierChange;
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::outcome::{Answer, Seen};
use crate::model::request::{BumpVersion, NewCiliumNode, Publication, UsageQuery, Withdrawal};
use crate::model::revision::AnyRevision;
use crate::wire::carrier_patch::{
    bump_version_patch, merge_patch, new_cilium_node, usage_query_patch, withdrawal_patch,
};
use crate::wire::watched::Watched;
use crate::wire::{CiliumNodes, Nodes};

/// The part that a change of a carrier is of.
fn part_of(change: &CarrierChange) -> Part {
    if change.is_of_status() { Part::Status } else { Part::Object }
}

impl Executor {
    /// Publishes blocks.
    pub(super) async fn publish(
        &self,
        publication: &Publication,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        let (node, patch) = (&publication.node, merge_patch(publication, self.managed_fields));
        match publication.change.carrier_kind() {
            Kind::Node => self.patch_node(node, patch, settling).await,
            Kind::CiliumNode | Kind::Pool | Kind::Claim => {
                self.patch_cilium_node(node, Part::Object, patch, settling).await
            }
        }
    }

    /// Writes the annotation that makes a later version.
    pub(super) async fn make_later_version(
        &self,
        bump: &BumpVersion,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        let (node, patch) = (&bump.node, bump_version_patch(bump));
        match bump.revision {
            AnyRevision::Custom(_) => self.patch_cilium_node(node, Part::Object, patch, settling).await,
            AnyRevision::Core(_) => self.patch_node(node, patch, settling).await,
        }
    }

    /// Asks an agent which addresses it uses, or withdraws the usage query.
    pub(super) async fn ask(
        &self,
        query: &UsageQuery,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        debug!(node = %query.node, step = ?query.step, "usage query");
        self.patch_cilium_node(&query.node, part_of(&query.change), usage_query_patch(query), settling).await
    }

    /// Carries out a step by which blocks leave.
    pub(super) async fn withdraw(
        &self,
        withdrawal: &Withdrawal,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        let part = part_of(&withdrawal.change);
        let patch = withdrawal_patch(withdrawal, self.managed_fields);
        self.patch_cilium_node(&withdrawal.node, part, patch, settling).await
    }

    async fn patch_node(
        &self,
        node: &NodeName,
        patch: Value,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        let api: Api<Watched<Nodes>> = Api::all(self.clients.writes.clone());
        let answer = match self.patch(&api, node.as_str(), Part::Object, patch).await {
            Attempt::Applied(patched) => return Ok((Answer::Done, self.seen(patched.into_object()))),
            Attempt::Conflict(why) => Answer::Conflict(why),
            Attempt::Refused(why, wait) => {
                warn!(
                    %node,
                    why,
                    "patch of the Node refused; Cilium's mode kubernetes needs the right to patch Nodes, which \
                     the chart grants with `modes`"
                );
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Attempt::Unknown(why) => Answer::Unknown(why),
        };
        let (_, mut found) = self.read_all::<Nodes>(&format!("metadata.name={node}"), settling).await?;
        info!(%node, ?answer, "no answer to the patch of the Node; read the Node instead");
        Ok((answer, found.pop().map_or(Seen::Nothing, |object| self.seen(object))))
    }

    async fn patch_cilium_node(
        &self,
        node: &NodeName,
        part: Part,
        patch: Value,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        let api: Api<Watched<CiliumNodes>> = Api::all(self.clients.writes.clone());
        let answer = match self.patch(&api, node.as_str(), part, patch).await {
            Attempt::Applied(patched) => return Ok((Answer::Done, self.seen(patched.into_object()))),
            Attempt::Conflict(why) => Answer::Conflict(why),
            Attempt::Refused(why, wait) => {
                warn!(%node, why, "patch of the CiliumNode refused");
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Attempt::Unknown(why) => Answer::Unknown(why),
        };
        let seen = self.read_cilium_node(node, settling).await?;
        info!(%node, ?answer, "no answer to the patch of the CiliumNode; read the CiliumNode instead");
        Ok((answer, seen))
    }

    /// Creates a CiliumNode.
    pub(super) async fn create_cilium_node(
        &self,
        new: &NewCiliumNode,
        settling: Purpose<'_>,
    ) -> anyhow::Result<(Answer, Seen)> {
        let resource = kube::api::ApiResource::erase::<Watched<CiliumNodes>>(&());
        let api: Api<DynamicObject> = Api::all_with(self.clients.writes.clone(), &resource);
        let object: DynamicObject = serde_json::from_value(new_cilium_node(new))?;
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let mut forbidden = false;
        let create = async {
            let created = api.create(&params, &object).await;
            forbidden = matches!(&created, Err(kube::Error::Api(status)) if status.is_forbidden());
            created
        };
        let answer = match self.attempt(create).await {
            Attempt::Applied(_) => {
                info!(node = %new.node, "created the CiliumNode");
                Answer::Done
            }
            Attempt::Conflict(why) => Answer::Conflict(why),
            Attempt::Refused(why, wait) if forbidden => {
                warn!(
                    node = %new.node,
                    why,
                    "CiliumNode refused: --create-ciliumnodes needs the right to create ciliumnodes, which \
                     the chart grants with `createCiliumNodes`; until then the node waits for its agent to create the object"
                );
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Attempt::Refused(why, wait) => {
                warn!(node = %new.node, why, "CiliumNode refused");
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Attempt::Unknown(why) => Answer::Unknown(why),
        };
        Ok((answer, self.read_cilium_node(&new.node, settling).await?))
    }
}
