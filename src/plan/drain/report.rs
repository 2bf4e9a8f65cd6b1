//! Reports about blocks that must leave and can't, or not yet.

use std::collections::BTreeSet;

use crate::model::address_class::AddressClass;
use crate::model::counted::counted;
use crate::model::names::ten_of;
use crate::model::node::HOLD_GROWTH;
use crate::plan::draft::Draft;
use crate::plan::pods::drain_waits;
use crate::plan::subject::Subject;

impl Subject<'_> {
    /// Reports each block that must leave, with the reason for which it waits.
    pub(super) fn report_drains(&self, draft: &mut Draft) {
        let of_version = || (!self.may_reclaim(draft.policy)).then(|| self.why_version_forbids().to_owned());
        for class in self.classes() {
            for claim in self.held_that_must_leave(class) {
                let has_no_room = || {
                    let needed = !self.can_do_without(class, &BTreeSet::from([claim.cidr]));
                    needed.then(|| self.why_no_replacement(class, draft))
                };
                let of_hold = || {
                    let is_held = self.node.growth_hold.is_some();
                    is_held.then(|| format!("the annotation {HOLD_GROWTH} of its Node stops drains"))
                };
                let why = self.world.why_kept(self.carrier, claim);
                let why = why
                    .or_else(of_hold)
                    .or_else(of_version)
                    .or_else(|| self.way().why_held(self, claim))
                    .or_else(has_no_room);
                draft.findings.extend(why.map(|why| drain_waits(claim, &why)));
            }
        }
        for (claim, drain) in self.draining() {
            let why = self.way().why_draining(self, claim, drain);
            draft.findings.extend(why.map(|why| drain_waits(claim, &why)));
        }
    }

    /// Why a block that its node needs is not replaced.
    fn why_no_replacement(&self, class: &AddressClass, draft: &Draft) -> String {
        let kept = self.world.pools_for(&self.node.name, class).filter_map(|pool| {
            let n_kept = self.n_kept_free(draft.now, pool, class.family, 0)?;
            Some(format!("{} of pool {}", counted(n_kept, "free block"), pool.name))
        });
        let kept: Vec<String> = kept.collect();
        if kept.is_empty() {
            return "the node needs it, and its other pools have no room".to_owned();
        }
        format!(
            "the node needs it, and the last free blocks stay for nodes that join: {}; each pool keeps as many as \
             nodes joined in the last hour, and at least one",
            ten_of(kept)
        )
    }
}
