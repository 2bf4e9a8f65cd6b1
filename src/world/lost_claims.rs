//! The claims that were lost, indexed by what is asked of them: whose they were, which range they take, and when they
//! were lost.
//!
//! Knows no other objects and decides nothing. Keeps one invariant: all three indexes name the same claims.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::claim::Claim;
use crate::model::names::NodeName;
use crate::model::revision::Revision;
use crate::net::cidr::Cidr;

/// A claim that went in any way but by its states. Its block stays taken. For a node that lives the claim is recreated,
/// unless it was on its way out; otherwise its CiliumNode has to be known as of later than that (safety rule 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostClaim {
    /// The block, or the range that an unreadable claim seemed to take.
    pub cidr: Cidr,
    /// A revision as of which nobody could publish its block any more: it was gone, or in a state that forbids it.
    pub at: Revision,
    /// The claim as it was known; `None` where it could not be read.
    pub claim: Option<Claim>,
    /// Whether its last version is known: otherwise it may have gone through every state since.
    pub was_seen: bool,
}

impl LostClaim {
    /// Whether the claim was last known in a state in which it may be deleted. Then its end was probably in order, and
    /// only a later version of the CiliumNode is missing that shows it. It is not recreated.
    #[must_use]
    pub fn was_on_its_way_out(&self) -> bool {
        self.claim.as_ref().is_some_and(Claim::may_be_deleted)
    }
}

/// Whose a lost claim was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostHolder {
    /// This node's.
    Node(NodeName),
    /// Nobody knows: the claim could not be read, nor the node that it named.
    Unknown,
}

/// The claims that were lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LostClaims {
    /// By whose they were; never an empty list.
    of: BTreeMap<LostHolder, BTreeMap<Cidr, LostClaim>>,
    /// Whose claims of exactly this range were lost; never an empty list.
    at: BTreeMap<Cidr, BTreeSet<LostHolder>>,
    /// Those that [`Self::passed`] has not returned yet.
    ahead: BTreeSet<(Revision, LostHolder, Cidr)>,
}

impl LostClaims {
    /// Adds a lost claim, and returns the one that it replaces.
    pub(super) fn insert(&mut self, holder: LostHolder, lost: LostClaim) -> Option<LostClaim> {
        let before = self.remove(&holder, lost.cidr);
        self.at.entry(lost.cidr).or_default().insert(holder.clone());
        self.ahead.insert((lost.at, holder.clone(), lost.cidr));
        self.of.entry(holder).or_default().insert(lost.cidr, lost);
        before
    }

    /// Removes a lost claim, and returns it.
    pub(super) fn remove(&mut self, holder: &LostHolder, cidr: Cidr) -> Option<LostClaim> {
        let of_holder = self.of.get_mut(holder)?;
        let lost = of_holder.remove(&cidr)?;
        if of_holder.is_empty() {
            self.of.remove(holder);
        }
        if let Some(holders) = self.at.get_mut(&cidr) {
            holders.remove(holder);
            if holders.is_empty() {
                self.at.remove(&cidr);
            }
        }
        self.ahead.remove(&(lost.at, holder.clone(), cidr));
        Some(lost)
    }

    /// The lost claims of a holder.
    pub(super) fn of<'a>(&'a self, holder: &LostHolder) -> impl Iterator<Item = &'a LostClaim> + use<'a> {
        self.of.get(holder).into_iter().flat_map(BTreeMap::values)
    }

    /// Whose claims of exactly this range were lost.
    pub(super) fn holders_at(&self, cidr: Cidr) -> impl Iterator<Item = &LostHolder> {
        self.at.get(&cidr).into_iter().flatten()
    }

    /// Everybody whose claims were lost.
    pub(super) fn holders(&self) -> impl Iterator<Item = &LostHolder> {
        self.of.keys()
    }

    /// Every lost claim.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&LostHolder, &LostClaim)> {
        self.of.iter().flat_map(|(holder, lost)| lost.values().map(move |lost| (holder, lost)))
    }

    /// Whose claims were lost up to this revision, each once: of a later revision they are not returned again.
    pub(super) fn passed(&mut self, revision: Revision) -> BTreeSet<LostHolder> {
        let mut passed = BTreeSet::new();
        while self.ahead.first().is_some_and(|(at, ..)| *at <= revision)
            && let Some((_, holder, _)) = self.ahead.pop_first()
        {
            passed.insert(holder);
        }
        passed
    }

    /// Whether the indexes name the same claims, and those that were lost later than `passed` are still ahead.
    pub(super) fn is_consistent(&self, passed: Option<Revision>) -> bool {
        let mut fresh = Self::default();
        for (holder, lost) in self.iter() {
            fresh.insert(holder.clone(), lost.clone());
        }
        let later = fresh.ahead.iter().filter(|(at, ..)| Some(*at) > passed);
        self.of == fresh.of
            && self.at == fresh.at
            && self.ahead.is_subset(&fresh.ahead)
            && later.into_iter().all(|entry| self.ahead.contains(entry))
    }

    #[cfg(test)]
    pub(super) fn break_an_index(&mut self) {
        self.at.clear();
    }
}
