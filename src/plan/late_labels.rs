//! Labels that a Node gets after it was created. Its first block waits for them, and a finding reports labels that
//! came too late.
//!
//! Decides nothing about labels themselves: [`crate::world::World::pools_of`] says which pools select a node.

use super::draft::Draft;
use super::subject::Subject;
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::ten_of;
use crate::model::plan::{Lasting, Wait};
use crate::model::pool::Pool;
use crate::net::cidr::Cidr;
use crate::publisher::answer::Stays;

impl Subject<'_> {
    /// Whether the first block of the node waits because a cloud controller may still change which pools select the
    /// node. The node would keep a block of another pool for its life.
    pub(super) fn awaits_initialization(&self, draft: &mut Draft) -> bool {
        if !self.node.uninitialized {
            return false;
        }
        let since = draft.note_lasting_since(self.world, Lasting::Uninitialized);
        let waits = draft.waits_until(since + draft.policy.initialization);
        if waits {
            draft.wait_for(Wait::Initialization);
        }
        waits
    }

    /// The finding about blocks that stay for the life of the node although their pool does not select it.
    pub(super) fn stray_blocks(&self) -> Option<Finding> {
        let is_selecting =
            |pool: &Pool| self.world.pools_of(&self.node.name).any(|other| other.name == pool.name);
        let strays: Vec<(Cidr, &Pool)> = self
            .occupied()
            .filter(|claim| {
                let stays = self.publisher.may_leave(self.carrier, claim);
                self.publisher.carries(self.carrier, claim.cidr)
                    && matches!(stays, Err(Stays::Primary | Stays::ForLife | Stays::AgentsOwn(..)))
            })
            .filter_map(|claim| Some((claim.cidr, self.world.pool(&claim.pool)?)))
            .filter(|(_, pool)| !pool.deleting && !is_selecting(pool))
            .collect();
        let longest = strays.iter().map(|(_, pool)| pool.reuse_after_node_loss).max()?;
        let message = format!(
            "it keeps these blocks as long as it lives, but their pools do not select it: {}; correct its labels \
             or the selector; or drain the node, delete its Node and CiliumNode, and let it join again after {} s \
             (reuseAfterNodeLoss)",
            ten_of(strays.iter().map(|(cidr, pool)| format!("{cidr} (pool {})", pool.name))),
            longest.as_secs()
        );
        Some(Finding::of_node(FindingKind::StrayBlock, &self.node.name, message))
    }
}
