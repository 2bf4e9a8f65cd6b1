//! Blocks that an agent has let go by itself, in modes in which it does.
//!
//! A block that is held and that its carrier does not show is one of three: it is new, its agent gave it back, or somebody
//! took it off. No object tells them apart, and none has to: as long as the node needs it, it is published, and else it
//! goes back, with the proof that the mode asks for.

use super::draft::Draft;
use super::evidence::is_carried;
use super::subject::Subject;
use crate::model::claim::{Claim, ClaimState, Reason};
use crate::model::request::{ClaimChange, ClaimUpdate, Write};
use crate::model::time::Now;

impl Subject<'_> {
    /// Begins to give back what its agent let go, and the node does not need.
    pub(super) fn give_back_what_was_let_go(&self, draft: &mut Draft, now: Now) {
        if !self.publisher.agent_lets_go(self.carrier) {
            return;
        }
        for family in self.publisher.families() {
            let of_family = |claim: &&Claim| claim.cidr.family() == *family;
            let (carried, mut absent): (Vec<&Claim>, Vec<&Claim>) = self
                .offering()
                .filter(of_family)
                .filter(|claim| claim.state == ClaimState::Held)
                .partition(|claim| is_carried(self.world, claim));
            absent.sort_by_key(|claim| (claim.created, claim.cidr));
            let mut kept = carried;
            for claim in absent {
                let demand = self.publisher.demand(self.carrier, *family, kept.iter().copied());
                if demand.capacity < demand.used {
                    kept.push(claim);
                    continue;
                }
                let change = ClaimChange::Release(Reason::Reclaimed);
                draft.requests.push(Write::UpdateClaim(ClaimUpdate::of(claim, change, now.wall)).into());
            }
        }
    }
}
