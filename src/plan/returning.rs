//! The first blocks of a node that returns with a new carrier while its blocks must leave.
//!
//! The first block of a family stays on its carrier as the primary one. So in a mode with primary blocks such a node
//! gets another block, which is published in front of those. They then leave with the consent of the agent, as from
//! any node. Pods of the node may still run in them, so no address is free any sooner.

use std::collections::BTreeSet;

use super::draft::{Draft, NEXT, REST, Step, act};
use super::subject::Subject;
use crate::model::claim::ClaimState;
use crate::model::plan::Wait;
use crate::net::cidr::{Cidr, Family};
use crate::publisher::answer::Phase;

impl Subject<'_> {
    /// Claims a new primary block in each family in which the node holds only blocks that must leave. The first
    /// publication waits for such a claim.
    ///
    /// The node gets its old blocks alone if its pools or its limits allow no other block, or if a write about the node
    /// has just failed.
    pub(super) fn await_new_primaries(&self, draft: &mut Draft) -> Step {
        // An agent of the former mode may run on a node that moves, and uses the first block alone.
        if !self.traits.has_primary_blocks || self.node.growth_hold.is_some() {
            return NEXT;
        }
        let listed = self.publisher.blocks(self.carrier);
        let is_listed = |family: Family| listed.iter().any(|cidr| cidr.family() == family);
        let (mut waits, mut requests) = (false, Vec::new());
        for class in self.classes().iter().filter(|class| !is_listed(class.family)) {
            let leaving: BTreeSet<Cidr> = self.held_that_must_leave(class).map(|claim| claim.cidr).collect();
            if leaving.is_empty() {
                continue;
            }
            let beside_leaving = self.facts.claims.iter().find(|facts| {
                let claim = facts.claim;
                claim.state == ClaimState::Held && self.is_of(claim, class) && !leaving.contains(&claim.cidr)
            });
            match beside_leaving {
                Some(facts) if facts.known.shown => {}
                Some(_) => {
                    draft.wait_for(Wait::Answer);
                    waits = true;
                }
                None if self.serving().is_some_and(|serving| serving.pause.has_failed()) => {}
                None if self.awaits_initialization(draft) => waits = true,
                None => {
                    let claims = self.claim_all_replacements(draft, class, &leaving, Phase::FirstGrant);
                    requests.extend(claims.unwrap_or_default());
                }
            }
        }
        act(requests)?;
        if waits { REST } else { NEXT }
    }
}
