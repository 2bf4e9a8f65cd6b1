//! Labels that a Node gets after it was created. Its first block waits for them, and a finding reports labels that
//! came too late.
//!
//! Decides nothing about labels themselves: [`crate::world::World::pools_of`] says which pools select a node.

use super::draft::Draft;
use super::subject::Subject;
use crate::model::claim::Claim;
use crate::model::finding::{Finding, FindingKind};
use crate::model::names::ten_of;
use crate::model::plan::{TimedState, Wait};
use crate::model::pool::{Pool, SizeSource};
use crate::model::startup_taint;
use crate::publisher::answer::Stays;

impl Subject<'_> {
    /// Whether the first block of the node waits because labels may still come that change which pools select the node,
    /// or because its size follows from a number that kubelet has not reported. The node would keep another block for its
    /// life.
    pub(super) fn awaits_initialization(&self, draft: &mut Draft) -> bool {
        let wait = match startup_taint::first_of(draft.policy.startup_taints, &self.node.taints) {
            Some(taint) => Wait::Initialization(taint),
            None if self.lacks_max_pods() => Wait::MaxPods,
            None => return false,
        };
        let since = draft.note_lasting_since(self.world, TimedState::Uninitialized);
        let waits = draft.waits_until(since + draft.policy.initialization);
        if waits {
            draft.wait_for(wait);
        }
        waits
    }

    /// Whether the size of a block would follow from the number of its pods, and kubelet has not reported that.
    fn lacks_max_pods(&self) -> bool {
        let is_unknown = |pool: &Pool| {
            let given = pool.families.keys().filter(|family| self.world.gives_out_of(pool, **family));
            let mut sources = given.filter_map(|family| pool.size_for(self.node, *family));
            sources.any(|(_, source)| source == SizeSource::UnknownMaxPods)
        };
        self.world.pools_of(&self.node.name).any(is_unknown)
    }

    /// The findings about published blocks of pools that do not select the node: one about those that stay for the
    /// life of the node, and one about the others.
    pub(super) fn stray_blocks(&self) -> impl Iterator<Item = Finding> {
        let is_selecting =
            |pool: &Pool| self.world.pools_of(&self.node.name).any(|other| other.name == pool.name);
        let published = self.occupied().filter(|claim| self.publisher.lists(self.carrier, claim.cidr));
        let strays = published
            .filter_map(|claim| Some((claim, self.world.pool(&claim.pool)?)))
            .filter(|(_, pool)| !pool.deleting && !is_selecting(pool));
        let (for_life, further): (Vec<Stray<'_>>, Vec<Stray<'_>>) = strays.partition(|(claim, _)| {
            let leaves = self.publisher.may_leave(self.carrier, claim);
            matches!(
                leaves,
                Err(Stays::Primary | Stays::ForLife | Stays::AgentsOwn(..) | Stays::AgentsOwnUntilRejoin(..))
            )
        });
        let further: Vec<Stray<'_>> =
            further.into_iter().filter(|(claim, _)| !self.world.must_leave(claim)).collect();
        [self.stray_for_life(&for_life), self.stray_further(&further)].into_iter().flatten()
    }

    fn stray_for_life(&self, strays: &[Stray<'_>]) -> Option<Finding> {
        let message = format!(
            "it keeps these blocks as long as it lives, but their pools do not select it: {}; correct its labels \
             or the selector; or {}",
            listed(strays),
            rejoin(strays)?
        );
        Some(Finding::of_node(FindingKind::StrayBlock, &self.node.name, message))
    }

    fn stray_further(&self, strays: &[Stray<'_>]) -> Option<Finding> {
        let comes_back = self.way().how_surplus_returns();
        let message = format!(
            "it has further blocks of pools that do not select it: {}; {comes_back}; to move it at once, {}",
            listed(strays),
            rejoin(strays)?
        );
        Some(Finding::of_node(FindingKind::StrayFurtherBlock, &self.node.name, message))
    }
}

/// A block of a node, and its pool, which does not select the node.
type Stray<'a> = (&'a Claim, &'a Pool);

fn listed(strays: &[Stray<'_>]) -> String {
    ten_of(strays.iter().map(|(claim, pool)| format!("{} (pool {})", claim.cidr, pool.name)))
}

/// How a node gets other blocks in place of these; `None` without any.
fn rejoin(strays: &[Stray<'_>]) -> Option<String> {
    let longest = strays.iter().map(|(_, pool)| pool.reuse_after_node_loss).max()?;
    Some(format!(
        "drain the node, turn its machine off, delete its Node and CiliumNode, and let it join again after {} s \
         (reuseAfterNodeLoss)",
        longest.as_secs()
    ))
}
