//! Writes on the carrier of a node's blocks: its CiliumNode, or in one mode the Node itself.

use kube::api::{Api, DynamicObject};
use serde_json::Value;
use tracing::{debug, info, warn};

use super::{Ended, Executor, Part, Purpose};
use crate::controller::client::post_params;
use crate::model::carrier::CarrierChange;
use crate::model::kind::Kind;
use crate::model::names::NodeName;
use crate::model::outcome::{Answer, Seen};
use crate::model::request::{
    BumpVersion, NewCiliumNode, NodeConditionWrite, Publication, UsageQuery, Withdrawal,
};
use crate::model::revision::AnyRevision;
use crate::wire::carrier_patch::{
    bump_version_patch, merge_patch, new_cilium_node, usage_query_patch, withdrawal_patch,
};
use crate::wire::node::condition_patch;
use crate::wire::watched::{Watched, Wire};
use crate::wire::{CiliumNodes, Nodes};

/// The part that a change of a carrier is of.
fn part_of(change: &CarrierChange) -> Part {
    if change.is_of_status() { Part::Status } else { Part::Object }
}

impl Executor {
    /// Publishes blocks.
    pub(super) async fn publish(&self, publication: &Publication, settling: Purpose<'_>) -> Ended {
        let (node, patch) = (&publication.node, merge_patch(publication, self.managed_fields));
        match publication.change.carrier_kind() {
            Kind::Node => self.patch_carrier::<Nodes>(node, Part::Object, patch, settling).await,
            Kind::CiliumNode | Kind::Pool | Kind::Claim => {
                self.patch_carrier::<CiliumNodes>(node, Part::Object, patch, settling).await
            }
        }
    }

    /// Writes the annotation that makes a later version.
    pub(super) async fn make_later_version(&self, bump: &BumpVersion, settling: Purpose<'_>) -> Ended {
        let (node, patch) = (&bump.node, bump_version_patch(bump));
        match bump.revision {
            AnyRevision::Custom(_) => {
                self.patch_carrier::<CiliumNodes>(node, Part::Object, patch, settling).await
            }
            AnyRevision::Core(_) => self.patch_carrier::<Nodes>(node, Part::Object, patch, settling).await,
        }
    }

    /// Asks an agent which addresses it uses, or withdraws the usage query.
    pub(super) async fn ask(&self, query: &UsageQuery, settling: Purpose<'_>) -> Ended {
        debug!(node = %query.node, step = ?query.step, "usage query");
        let (part, patch) = (part_of(&query.change), usage_query_patch(query));
        self.patch_carrier::<CiliumNodes>(&query.node, part, patch, settling).await
    }

    /// Carries out a step by which blocks leave.
    pub(super) async fn withdraw(&self, withdrawal: &Withdrawal, settling: Purpose<'_>) -> Ended {
        let part = part_of(&withdrawal.change);
        let patch = withdrawal_patch(withdrawal, self.managed_fields);
        self.patch_carrier::<CiliumNodes>(&withdrawal.node, part, patch, settling).await
    }

    /// Writes the condition of a Node.
    pub(super) async fn write_node_condition(
        &self,
        write: &NodeConditionWrite,
        settling: Purpose<'_>,
    ) -> Ended {
        let (name, patch) = (write.node.as_str(), condition_patch(write));
        let ended = self.patch_or_leave_to_watch::<Nodes>(name, Part::Conditions, patch, settling).await?;
        if let Answer::Refused(why, _) = &ended.0 {
            warn!(node = %write.node, why, "condition of the Node refused");
        }
        Ok(ended)
    }

    async fn patch_carrier<W: Wire>(
        &self,
        node: &NodeName,
        part: Part,
        patch: Value,
        settling: Purpose<'_>,
    ) -> Ended {
        let kind = W::KIND.as_str();
        let answer = match self.patch::<W>(node.as_str(), part, patch).await {
            Ok(patched) => return Ok((Answer::Done, self.seen(patched))),
            Err(Answer::Refused(why, wait)) => {
                let remedy = if W::KIND == Kind::Node {
                    "; Cilium's mode kubernetes needs the right to patch Nodes, which the chart grants with \
                     `modes`"
                } else {
                    ""
                };
                warn!(%node, why, "patch of the {kind} refused{remedy}");
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Err(answer) => answer,
        };
        let seen = self.read_one::<W>(node.as_str(), settling).await?;
        info!(%node, ?answer, "no answer to the patch of the {kind}; read the {kind} instead");
        Ok((answer, seen))
    }

    /// Creates a CiliumNode.
    pub(super) async fn create_cilium_node(&self, new: &NewCiliumNode, settling: Purpose<'_>) -> Ended {
        let resource = kube::api::ApiResource::erase::<Watched<CiliumNodes>>(&());
        let api: Api<DynamicObject> = Api::all_with(self.clients.writes.clone(), &resource);
        let object: DynamicObject = serde_json::from_value(new_cilium_node(new))?;
        let mut forbidden = false;
        let create = async {
            let created = api.create(&post_params(), &object).await;
            forbidden = matches!(&created, Err(kube::Error::Api(status)) if status.is_forbidden());
            created
        };
        let answer = match self.attempt(create).await {
            Ok(_) => {
                info!(node = %new.node, "created the CiliumNode");
                Answer::Done
            }
            Err(Answer::Refused(why, wait)) => {
                let remedy = if forbidden {
                    ": --create-ciliumnodes needs the right to create ciliumnodes, which the chart grants \
                     with `createCiliumNodes`; until then the node waits for its agent to create the object"
                } else {
                    ""
                };
                warn!(node = %new.node, why, "CiliumNode refused{remedy}");
                return Ok((Answer::Refused(why, wait), Seen::Nothing));
            }
            Err(answer) => answer,
        };
        Ok((answer, self.read_one::<CiliumNodes>(new.node.as_str(), settling).await?))
    }
}
