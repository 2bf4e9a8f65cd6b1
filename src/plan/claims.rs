//! The only place that moves a claim: a table of rows, each with the states it starts from, a guard, and a change.
//!
//! `needs` and `recreation` create claims; the first state is Held.
//!
//! [`crate::model::transitions`] lists the moves that may be made. `docs/invariants.md`, The states of a claim, has
//! the same rows with the reason of each.
//!
//! A replica with a stale view may start any move. Each move carries uid and version of the claim, so only the first
//! one succeeds. The proof of absence is always later than the move (safety rule 3).
//!
//! After the move no replica publishes the block. A patch with a version of the CiliumNode later than the move needs
//! a view of the claim that is as late (safety rule 4). A patch with an earlier version fails, because a later one
//! exists.

use super::abandoned;
use super::draft::Draft;
use super::facts::{Answer, ClaimFacts, Facts};
use super::guards;
use crate::model::claim::{Claim, Reason};
use crate::model::names::NodeName;
use crate::model::request::{ClaimChange, ClaimUpdate, Read, Request, Write};
use crate::model::time::Now;
use crate::model::transitions::{Rule, State};
use crate::world::World;

use Reason::{NodeGone, Reclaimed, Unused};
use State::{Cooling, Draining, Held, Releasing};

/// A row of the table.
pub(super) struct Row {
    pub(super) from: &'static [State],
    /// The guard as a sentence.
    pub(super) when: &'static str,
    pub(super) then: Then,
    pub(super) rule: Rule,
    guard: Guard,
}

/// When a row applies.
enum Guard {
    /// If this is so, by the objects of the node and the reads.
    If(fn(&ClaimFacts<'_>, &Facts<'_>, &mut Draft) -> Answer),
    /// If a step has chosen the claim, within limits and rates.
    Chosen,
}

/// The result of a row for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Stay,
    /// It is held for the present Node.
    Hold,
    /// It is held for the Node that it was made for.
    HoldForItsNode,
    /// It drains on the present carrier.
    Drain,
    Release(Reason),
    Cool,
    Delete,
}

/// A row whose guard is a function.
macro_rules! when {
    ($from:expr, $when:literal, $guard:path => $then:expr, $rule:ident) => {
        Row { from: $from, when: $when, then: $then, rule: Rule::$rule, guard: Guard::If($guard) }
    };
}

/// A row for claims that a step chooses.
macro_rules! chosen {
    ($from:expr, $when:literal => $then:expr, $rule:ident) => {
        Row { from: $from, when: $when, then: $then, rule: Rule::$rule, guard: Guard::Chosen }
    };
}

const OCCUPIED: &[State] = &[Held, Draining];
const RELEASED: &[State] = &[Releasing(Reclaimed), Releasing(NodeGone), Releasing(Unused)];
const COOLING: &[State] = &[Cooling(Reclaimed), Cooling(NodeGone), Cooling(Unused)];
const LOST: &[State] = &[Releasing(NodeGone), Cooling(NodeGone)];

/// The rows. Of those that start from the state of a claim, the first whose guard holds decides. If a guard needs a
/// proof, its read comes first, and the claim stays until then: no later row is tried. The rows that a step chooses
/// have no order.
pub(super) const ROWS: &[Row] = &[
    // A node that is gone, or that has returned.
    when!(OCCUPIED, "its Node and its carrier are gone", guards::node_is_lost => Then::Release(NodeGone), NodeLost),
    when!(OCCUPIED, "another Node of its name exists", guards::node_is_another => Then::Hold, NodeRecreated),
    when!(OCCUPIED, "only its carrier still exists", guards::only_carrier_remains => Then::Stay, CarrierRemains),
    // A drain that its carrier does not show.
    when!(
        &[Draining], "its agent has released the block, which must leave",
        guards::agent_released => Then::Release(Reclaimed), AgentReleased
    ),
    when!(
        &[Draining], "its carrier, in a later version, does not show the drain",
        guards::drain_is_not_shown => Then::Hold, DrainNotShown
    ),
    // A claim that nothing uses.
    when!(
        &[Held], "a user deleted it, and it can't be published",
        guards::is_given_up => Then::Release(Unused), GivenUp
    ),
    when!(
        &[Held], "no carrier has ever shown the block",
        guards::was_never_published => Then::Release(Unused), NeverPublished
    ),
    // A claim that was given up and is held again, or stays as it is.
    when!(
        COOLING, "it is being deleted, and only finalizers of other writers keep it",
        guards::is_terminating => Then::Stay, Terminating
    ),
    when!(LOST, "its Node has returned", guards::node_returned => Then::Hold, NodeReturned),
    when!(
        &[Releasing(Unused)], "its Node is gone too",
        guards::node_is_gone => Then::HoldForItsNode, LostMeanwhile
    ),
    when!(
        &[Releasing(Unused)], "it may have been published, and no user gave it up",
        guards::is_not_given_up => Then::Hold, NotGivenUp
    ),
    when!(
        &[Releasing(Reclaimed)], "the carrier with the word of its agent is gone",
        guards::carrier_is_gone => Then::HoldForItsNode, CarrierLost
    ),
    when!(
        &[Releasing(Reclaimed)], "the block is removed from the carrier next",
        guards::removal_is_due => Then::Stay, RemovalDue
    ),
    when!(
        &[Releasing(Reclaimed)], "a later version of the carrier shows the block without the consent of its agent",
        guards::agent_withdrew => Then::Hold, ConsentWithdrawn
    ),
    // A block that is free soon.
    when!(
        RELEASED, "the block is proven absent, no pod has an address of it, and its route is withdrawn",
        guards::is_absent => Then::Cool, Absent
    ),
    when!(
        COOLING, "the block has cooled, and its node is still lost if it was",
        guards::has_cooled => Then::Delete, Cooled
    ),
    // Blocks that leave nodes that exist. `drain::start` and `drain::kept` choose these for both ways of leaving.
    chosen!(&[Held], "its node can do without the block" => Then::Drain, DrainStarts),
    chosen!(&[Draining], "its node needs the block, or the block can't leave" => Then::Hold, DrainEnds),
    // Those that leave address by address: `drain::addresses`.
    chosen!(
        &[Draining], "its agent has released every address, and no pod has one" => Then::Release(Reclaimed),
        Consented
    ),
    chosen!(&[Draining], "its agent has released every address, and a pod has one" => Then::Hold, PodFound),
    // Those that leave as a whole: `drain::blocks`, and `released_by_agent` for the first and the last row.
    chosen!(
        &[Held], "its agent does not list the block, and its node does not need it" => Then::Release(Reclaimed),
        Unneeded
    ),
    chosen!(
        OCCUPIED, "the block must leave, and its node can do without it" => Then::Release(Reclaimed),
        RemovalStarts
    ),
    chosen!(&[Releasing(Reclaimed)], "its agent keeps using the removed block" => Then::Drain, Refused),
    chosen!(&[Releasing(Reclaimed)], "its node needs the block" => Then::Hold, NeededAgain),
];

/// When a rule applies to a claim, for a person.
#[must_use]
pub fn when(rule: Rule) -> &'static str {
    ROWS.iter().find(|row| row.rule == rule).map_or("", |row| row.when)
}

/// The rows in their order, each as a line of the table in the document: from, when, to, row.
#[cfg(test)]
#[must_use]
pub fn table() -> Vec<[String; 4]> {
    let line = |row: &Row| {
        let from: Vec<String> = row.from.iter().map(|state| format!("`{state}`")).collect();
        let to = match row.then {
            Then::Stay => "stays".to_owned(),
            Then::Hold | Then::HoldForItsNode => format!("`{Held}`"),
            Then::Drain => format!("`{Draining}`"),
            Then::Release(reason) => format!("`{}`", Releasing(reason)),
            Then::Cool => "`Cooling`, for the same reason".to_owned(),
            Then::Delete => "deleted".to_owned(),
        };
        [from.join(", "), row.when.to_owned(), to, format!("`{}`", row.rule.as_str())]
    };
    ROWS.iter().map(line).collect()
}

/// Adds the moves of the claims of a node that follow from its objects, and the reads that come first.
pub(super) fn advance(facts: &Facts<'_>, draft: &mut Draft, requests: &mut Vec<Request>) {
    for claim in &facts.claims {
        let then = next(claim, facts, draft, requests);
        if then.is_none() && claim.claim.is_published_state() && facts.node.is_some() {
            draft.findings.extend(guards::both_published(claim, facts));
        }
        if claim.claim.deleting && then != Some(Then::Delete) {
            draft.findings.push(abandoned::being_deleted(claim, facts));
        }
    }
}

/// The writes that restore our finalizer on the claims of a node that lost it. Each claim stays in its state. The
/// finalizer must be there before a user deletes the claim (safety rule 1).
pub(super) fn restore_finalizers(world: &World, name: &NodeName, now: Now) -> Vec<Request> {
    let claims = world.claims_of(name).map(|known| &known.claim);
    let without = claims.filter(|claim| !claim.has_finalizer() && !claim.deleting);
    let keep = |claim: &Claim| ClaimUpdate::of(claim, ClaimChange::Keep, now.wall);
    without.map(|claim| Write::UpdateClaim(keep(claim)).into()).collect()
}

/// The result of the row that applies to a claim now; `None` if none does. Adds the move, or the read that comes first.
fn next(
    claim: &ClaimFacts<'_>,
    facts: &Facts<'_>,
    draft: &mut Draft,
    requests: &mut Vec<Request>,
) -> Option<Then> {
    let state = State::from(&claim.claim.state);
    for row in ROWS.iter().filter(|row| row.from.contains(&state)) {
        let Guard::If(guard) = &row.guard else { continue };
        match guard(claim, facts, draft) {
            Answer::No => {}
            Answer::Unknown => return Some(Then::Stay),
            Answer::First(read) => {
                prove(requests, *read);
                return Some(Then::Stay);
            }
            Answer::Yes => {
                requests.extend(make(row, claim.claim, facts, draft));
                return Some(row.then);
            }
        }
    }
    None
}

/// The moves of these claims that a step has chosen under a rule.
pub(super) fn chosen<'c>(
    rule: Rule,
    claims: impl IntoIterator<Item = &'c Claim>,
    facts: &Facts<'_>,
    draft: &mut Draft,
) -> Vec<Request> {
    let mut requests = Vec::new();
    for claim in claims {
        let state = State::from(&claim.state);
        let row = ROWS.iter().find(|row| row.rule == rule && row.from.contains(&state));
        debug_assert!(row.is_some(), "{rule:?} does not start from {state}");
        requests.extend(row.and_then(|row| make(row, claim, facts, draft)));
    }
    requests
}

/// The write of a row. `None` if the claim stays as it is.
fn make(row: &Row, claim: &Claim, facts: &Facts<'_>, draft: &mut Draft) -> Option<Request> {
    draft.rules.push((claim.cidr, row.rule));
    let change = match row.then {
        Then::Stay => return None,
        Then::Hold => ClaimChange::Hold(facts.node.map_or(&claim.node_uid, |node| &node.uid).clone()),
        Then::HoldForItsNode => ClaimChange::Hold(claim.node_uid.clone()),
        Then::Drain => ClaimChange::Drain(facts.carrier?.uid().clone()),
        Then::Release(reason) => ClaimChange::Release(reason),
        Then::Cool => ClaimChange::Cool,
        Then::Delete => ClaimChange::Delete,
    };
    Some(Write::UpdateClaim(ClaimUpdate::of(claim, change, draft.now.wall)).into())
}

/// Adds a request that may prove something about a node. One request serves all claims of the node. Of two reads
/// the later one is kept.
fn prove(requests: &mut Vec<Request>, request: Request) {
    match requests.iter_mut().find(|planned| planned.target() == request.target()) {
        None => requests.push(request),
        Some(Request::Read(Read::Node(_, planned))) => {
            if let Request::Read(Read::Node(_, later)) = request {
                *planned = later.max(*planned);
            }
        }
        Some(_) => {}
    }
}
