//! Reports about blocks that must leave and can't, or not yet.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::model::address_class::AddressClass;
use crate::model::claim::Claim;
use crate::model::counted::counted;
use crate::model::names::ten_of;
use crate::plan::draft::Draft;
use crate::plan::pods::drain_waits;
use crate::plan::subject::Subject;
use crate::publisher::answer::Drain;

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
                let why = self.world.why_kept(self.carrier, claim);
                let why =
                    why.or_else(of_version).or_else(|| self.why_not_removed(claim)).or_else(has_no_room);
                draft.findings.extend(why.map(|why| drain_waits(claim, &why)));
            }
        }
        for (claim, drain) in self.draining() {
            if self.traits.removes_with_query {
                let pods = self.why_not_removed(claim).unwrap_or_default();
                let why = "the agent still uses it and kept it; it takes no new pods";
                let why = if pods.is_empty() { why.to_owned() } else { format!("{why}; {pods}") };
                draft.findings.push(drain_waits(claim, &why));
            } else if let Drain::Closed(used) = &drain
                && let Some(users) = self.users_of(claim, used.len())
            {
                draft.findings.push(drain_waits(claim, &users));
            }
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

    /// The known users of a block; `None` if there are none.
    fn users_of(&self, claim: &Claim, n_used: u128) -> Option<String> {
        let look = self.world.look(&self.node.name);
        // A pod of the last read may have ended since. Only then its address is in no list.
        let counts =
            |address: &IpAddr| n_used > 0 || look.is_some_and(|look| look.unlisted.contains(address));
        let found = look.and_then(|look| look.found.as_ref().ok());
        let found = found.into_iter().flat_map(|pods| claim.cidr.entries_in(&pods.holders));
        let holders = found.filter(|(address, _)| counts(address)).map(|(_, pod)| pod);
        let pods: BTreeSet<&String> = holders.collect();
        let is = if n_used == 1 { "is" } else { "are" };
        let used = format!("{} of it {is} in use", counted(n_used, "address"));
        match (n_used, pods.is_empty()) {
            (0, true) => None,
            (0, false) => {
                let pods = ten_of(pods);
                Some(format!("the agent lists no address of it, but these pods have one: {pods}"))
            }
            (_, true) => Some(used),
            (_, false) => Some(format!("{used}, by {}", ten_of(pods))),
        }
    }
}
