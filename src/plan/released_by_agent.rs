//! Blocks that an agent has released by itself, in modes in which agents do so.
//!
//! A held block that its carrier does not show is one of three. It is new, its agent released it, or another writer
//! removed it. No object distinguishes these cases, and no decision needs to: a block that the node needs is
//! published. Any other block is released, with the proof that the mode asks for.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use super::claims::chosen;
use super::draft::{Draft, NEXT, REST, Step, act, act_now};
use super::pods::LOOK_AGAIN;
use super::subject::Subject;
use crate::model::address_class::AddressClass;
use crate::model::claim::{Claim, ClaimState};
use crate::model::plan::{TimedState, Wait};
use crate::model::pool::Pool;
use crate::model::request::{Read, Request};
use crate::model::transitions::Rule;
use crate::net::cidr::Cidr;

/// How long a failing read of a node's Pods may delay the other blocks that the node holds. The controller may lack
/// the right to list Pods.
const PODS_AWAITED_FOR: Duration = Duration::from_secs(60);

impl<'a> Subject<'a> {
    /// Holds blocks again that the agent released and now needs, if their pools would give them to the node. No other
    /// node can have them.
    pub(super) fn rehold_released_blocks(&self, draft: &mut Draft) -> Vec<Request> {
        if !self.publisher.agent_releases_blocks(self.carrier) {
            return Vec::new();
        }
        let name = &self.node.name;
        let gives = |claim: &Claim, class: &AddressClass| {
            let family = claim.cidr.family();
            let is_of = |pool: &Pool| pool.name == claim.pool && self.world.gives_out_of(pool, family);
            self.world.pools_for(name, class).any(is_of)
        };
        let mut needed = Vec::new();
        for class in self.classes() {
            let of_class = |claim: &&Claim| self.is_of(claim, class);
            let released = self.claims().filter(of_class);
            let released = released
                .filter(|claim| claim.is_reclaimed() && !claim.is_terminating())
                .filter(|claim| gives(claim, class) && !self.world.must_leave(claim));
            let mut kept: Vec<&Claim> = self.offering().filter(of_class).collect();
            let ours = self.ours(class);
            for claim in released {
                let demand = self.publisher.demand(self.carrier, class, &kept, &ours);
                if demand.capacity >= demand.used {
                    break;
                }
                kept.push(claim);
                needed.push(claim);
            }
        }
        chosen(Rule::NeededAgain, needed, self, draft)
    }

    /// Holds releasing blocks again if the carrier shows nothing and its agent needs addresses. Then another writer
    /// has removed all blocks, and the agent may start afresh with the blocks that it finds. A pod may have got an
    /// address of such a block just before its removal.
    ///
    /// The agent requests addresses under the pool names of its pods only after it has restored them. So a block of
    /// another name is held if a read of the Pods finds a pod in it. All this comes before any publication.
    pub(super) fn rehold_releasing_blocks(&self, draft: &mut Draft) -> Step {
        // Blocks of another writer may be enough for the agent.
        if !self.traits.removes_with_query || !self.publisher.blocks(self.carrier).is_empty() {
            return NEXT;
        }
        let leaving: Vec<&Claim> =
            self.claims().filter(|claim| claim.is_reclaimed() && !claim.is_terminating()).collect();
        let in_need: Vec<&AddressClass> =
            self.classes().iter().filter(|class| self.demand(class).used > 0).collect();
        if leaving.is_empty() || in_need.is_empty() {
            return NEXT;
        }
        let is_needed = |claim: &&Claim| in_need.iter().any(|class| self.is_of(claim, class));
        let (needed, others): (Vec<&Claim>, Vec<&Claim>) = leaving.into_iter().partition(is_needed);
        if !others.is_empty() {
            self.await_pods(draft)?;
        }
        let in_use = others.into_iter().filter(|claim| self.has_pods(claim));
        act(chosen(Rule::NeededAgain, needed.into_iter().chain(in_use), self, draft))
    }

    /// The next step follows when the Pods of the node were read after this version of its carrier was known, or
    /// can't be read.
    fn await_pods(&self, draft: &mut Draft) -> Step {
        let look = self.world.look_after(self.carrier);
        if look.is_some_and(|look| look.found.is_ok()) {
            return NEXT;
        }
        let since = draft.note_lasting_since(self.world, TimedState::PodsUnread);
        if let Some(look) = look {
            if since + PODS_AWAITED_FOR <= draft.now.uptime {
                return NEXT;
            }
            draft.wait_for(Wait::Answer);
            if draft.waits_until(look.at + LOOK_AGAIN) {
                return REST;
            }
        }
        act_now(Read::PodsOf(self.node.name.clone(), self.carrier.revision()))
    }

    /// Whether a pod has an address of the block. The read of the node's Pods must be later than this version of the
    /// carrier was known.
    fn has_pods(&self, claim: &Claim) -> bool {
        let pods = self.world.look_after(self.carrier).and_then(|look| look.found.as_ref().ok());
        pods.is_some_and(|pods| pods.use_any_of(claim.cidr))
    }

    /// Whether the agent of a carrier that shows nothing has released everything. Then it needs none of the blocks
    /// that the node holds. A read of the Pods also finds no pod that has, or may have, an address of them. Otherwise
    /// another writer may have removed the blocks, and pods may be in any of them.
    pub(super) fn agent_released_everything(&self, draft: &mut Draft) -> Step<bool> {
        let is_needed = |class: &AddressClass| {
            self.offering().any(|claim| self.is_of(claim, class)) && self.demand(class).used > 0
        };
        if !self.publisher.agent_releases_blocks(self.carrier)
            || self.offering().next().is_none()
            || self.classes().iter().any(is_needed)
        {
            return ControlFlow::Continue(false);
        }
        self.await_pods(draft)?;
        let pods = self.world.look_after(self.carrier).and_then(|look| look.found.as_ref().ok());
        let has_none = pods.is_some_and(|pods| pods.n_starting == 0);
        ControlFlow::Continue(has_none && !self.offering().any(|claim| self.has_pods(claim)))
    }

    /// Starts to release the blocks that the agent has released and the node does not need. The node needs the
    /// replacements of blocks that are about to be removed.
    pub(super) fn release_unneeded_blocks(
        &self,
        draft: &mut Draft,
        imminent: &BTreeSet<Cidr>,
    ) -> Vec<Request> {
        if !self.publisher.agent_releases_blocks(self.carrier) {
            return Vec::new();
        }
        let stays = |claim: &Claim| !imminent.contains(&claim.cidr);
        let classes = self.classes();
        let unneeded = classes.iter().flat_map(|class| self.unneeded(class, stays, std::iter::empty()));
        chosen(Rule::Unneeded, unneeded, self, draft)
    }

    /// The held blocks of a class that the carrier does not show and the node does not need. The blocks on the
    /// carrier for which `stays` is true, and these `others`, count as capacity. The oldest blocks are needed first,
    /// and those that must leave last.
    pub(super) fn unneeded(
        &self,
        class: &AddressClass,
        stays: impl Fn(&Claim) -> bool,
        others: impl Iterator<Item = &'a Claim>,
    ) -> Vec<&'a Claim> {
        let offering = self.facts.claims.iter().filter(|facts| facts.is_offering());
        let held =
            offering.filter(|facts| facts.claim.state == ClaimState::Held && self.is_of(facts.claim, class));
        let (mut kept, mut absent) = (Vec::new(), Vec::new());
        for facts in held {
            let is_kept = facts.is_carried || facts.is_shown_by_other_mode;
            if is_kept { kept.push(facts.claim) } else { absent.push(facts.claim) }
        }
        kept.retain(|claim| stays(claim));
        kept.extend(others);
        absent.sort_by_key(|claim| (self.world.must_leave(claim), claim.created, claim.cidr));
        let ours = self.ours(class);
        absent.retain(|claim| {
            let demand = self.publisher.demand(self.carrier, class, &kept, &ours);
            let is_needed = demand.capacity < demand.used;
            kept.extend(is_needed.then_some(*claim));
            !is_needed
        });
        absent
    }
}
